"""Vectors that a write computes: of its own texts, where the schema declares it or a load asks, and of texts that it
compares stored vectors with.

Providers are slow and fail, so nothing is computed while a write holds its branch. A write that finds texts without
vectors releases the branch; the vectors are computed, and the write is prepared again. Of texts that are written, all
other checks have passed by then, so a refused write costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.api.governance import Limits
from omnigraph.engine.query.search.embedder import DocumentEmbedder, Embedder, check_embedder, document_vectors
from omnigraph.engine.rows.columns import rows_schema, with_vectors, without_vector
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.errors import BadRequestError, ConstraintError, ResourceLimitError
from omnigraph.language.catalog import Catalog, Property
from omnigraph.language.violations import Sentence

Outcome = TypeVar("Outcome")
_Target: TypeAlias = tuple[Property, NDArray[np.bool_], list[str]]
"""A vector property, the rows that get a vector, and their texts."""

_REMEDY: Final = "write fewer rows at a time, or use the Spark pipeline"


class _TextsWantedError(Exception):
    """A write needs vectors that are not computed yet: of these texts, by dimension, or of a text that it compares
    stored vectors with."""

    def __init__(self, texts: dict[int, list[str]], query: tuple[str, int] | None = None) -> None:
        super().__init__("vectors have to be computed first")
        self.texts, self.query = texts, query


@dataclass(frozen=True, slots=True)
class _KnownVectors:
    """The client of a write's reads: it has the vectors that were computed, and asks for the others."""

    client: Embedder
    vectors: Mapping[tuple[str, int], NDArray[np.float32]]

    @property
    def model(self) -> str:
        return self.client.model

    @property
    def is_mock(self) -> bool:
        return bool(getattr(self.client, "is_mock", False))

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        if (vector := self.vectors.get((text, dimension))) is None:
            raise _TextsWantedError({}, (text, dimension))
        return vector


@dataclass
class OnWriteVectors:
    """What one write computes. `every` has it fill all `@embed` properties, not only those declared `on_write`."""

    embedder: Embedder | None
    limits: Limits
    every: bool = False
    _known: dict[int, dict[str, NDArray[np.float32]]] = field(default_factory=dict)
    _queries: dict[tuple[str, int], NDArray[np.float32]] = field(default_factory=dict)

    @property
    def for_reads(self) -> Embedder | None:
        """The client for texts that stored vectors are compared with."""
        return None if self.embedder is None else _KnownVectors(self.embedder, self._queries)

    def compute_for(self, attempt: Callable[[], Outcome]) -> Outcome:
        """What the attempt gives, made again whenever it needs vectors. It holds nothing while they are computed."""
        while True:
            try:
                return attempt()
            except _TextsWantedError as wanted:
                texts, query = wanted.texts, wanted.query
            if query is not None and self.embedder is not None:
                self._queries[query] = self.embedder.embed_query(*query)
            for dimension, missing in texts.items():
                if (size := 4 * dimension * len(missing)) > self.limits.bytes:
                    raise ResourceLimitError("load bytes of computed vectors", self.limits.bytes, size, _REMEDY)
                if not isinstance(self.embedder, DocumentEmbedder):
                    raise AssertionError("texts are wanted of a client only")
                vectors = document_vectors(self.embedder, missing, dimension)
                self._known.setdefault(dimension, {}).update(zip(missing, vectors, strict=True))

    def is_computed(self, prop: Property) -> bool:
        return prop.embed is not None and (self.every or prop.embed.on_write)

    def fill(self, change: GraphChange, catalog: Catalog) -> GraphChange:
        """The change with a vector wherever there is a text and none, its types as the catalog declares them."""
        declared = {key: _as_declared(each, catalog) for key, each in change.by_type.items()}
        targets = {key: list(self._targets(each)) for key, each in declared.items()}
        missing: dict[int, dict[str, None]] = {}
        for prop, _, texts in chain.from_iterable(targets.values()):
            vectors = self._known.get(prop.type.dimension or 0, {})
            wanted = (text for text in texts if text not in vectors)
            missing.setdefault(prop.type.dimension or 0, {}).update(dict.fromkeys(wanted))
        if any(missing.values()):
            raise _TextsWantedError({dimension: list(texts) for dimension, texts in missing.items() if texts})
        filled = {}
        for key, each in declared.items():
            rows = each.rows
            for prop, where, texts in targets[key]:
                vectors = self._known[prop.type.dimension or 0]
                rows = with_vectors(rows, prop.column, where, np.stack([vectors[text] for text in texts]))
            filled[key] = replace(each, rows=rows)
        return GraphChange(filled)

    def _targets(self, change: TypeChange) -> Iterator[_Target]:
        """The vector properties that some rows of a changed type lack, though they have the text."""
        for prop in change.type.property_list:
            if prop.embed is None or not self.is_computed(prop):
                continue
            if change.columns is not None and prop.column not in change.columns:
                continue
            source = change.type.properties[prop.embed.property]
            where = without_vector(change.rows, source.column, prop.column)
            if not prop.type.nullable:
                _refuse_missing_texts(change, prop, source, where)
            if where.any():
                check_embedder(self._client(change, prop), change.type.name, prop)
                texts = change.rows.column(source.column).filter(pa.array(where)).to_pylist()
                yield prop, where, texts

    def _client(self, change: TypeChange, prop: Property) -> DocumentEmbedder:
        if isinstance(self.embedder, DocumentEmbedder):
            return self.embedder
        lacking = "without an embedding client" if self.embedder is None else "with one that has no embed_documents"
        raise BadRequestError(
            f"{change.type.name}.{prop.name} is computed when it is written, and this graph was opened {lacking}; "
            "open it with one, or write the vectors"
        )


def _as_declared(change: TypeChange, catalog: Catalog) -> TypeChange:
    """A change whose rows were read by the fillable form of its type."""
    declared = catalog.type_named(change.type_key)
    if declared is change.type:
        return change
    return replace(change, type=declared, rows=pa.table(change.rows.columns, schema=rows_schema(declared)))


def _refuse_missing_texts(change: TypeChange, prop: Property, source: Property, where: NDArray[np.bool_]) -> None:
    """A row has its vector or a text to make one of, where the schema wants a vector."""
    missing = change.rows.column(prop.column).is_null().to_numpy() & ~where
    if not missing.any():
        return
    row, key = int(np.argmax(missing)), change.type_key
    reason = Sentence.NO_TEXT.text(property=prop.name, source=source.name)
    message = f"{change.where(row) or 'row 0: '}{key}: {reason}"
    entity_id, line = change.ids[row].as_py(), change.line(row) or 0
    raise ConstraintError(Sentence.NO_TEXT.rule, key, prop.name, entity_id, line, message=message)
