"""Vectors for texts, made on executors: for the rows of a run as they come, and for stored rows by `reembedding`.

A run fills only cells without a vector whose source text is there. Every provider answer is retried a few times; a
row that can't be embedded fails its task, and Spark tries the task again before the run fails.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.embeddings.client import EmbeddingClient, open_client
from omnigraph.embeddings.configuration import EmbeddingConfig
from omnigraph.embeddings.provider import Role
from omnigraph.errors import BadRequestError, EmbeddingError
from omnigraph.language.catalog import Catalog
from omnigraph.pipeline.file.model import EmbedStep

_ATTEMPTS: Final = 4
_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class EmbedTask:
    """One vector column and the text column it comes from. The configuration travels to executors with its key."""

    source: str
    target: str
    dimension: int
    config: EmbeddingConfig

    def filled(self, rows: pa.Table) -> pa.Table:
        index = rows.column_names.index(self.target)
        column = rows.column(index).combine_chunks()
        texts = rows.column(self.source)
        wanted = pc.and_(pc.is_null(column), pc.is_valid(texts)).to_numpy()
        if not wanted.any():
            return rows
        vectors = np.zeros((rows.num_rows, self.dimension), np.float32)
        present = column.is_valid().to_numpy(zero_copy_only=False)
        if present.any():
            vectors[present] = np.array(column.filter(pa.array(present)).to_pylist(), np.float32)
        vectors[wanted] = self._embedded(texts.filter(pa.array(wanted)))
        field = rows.schema.field(index)
        return rows.set_column(index, field, _cells(vectors, field.type, pa.array(~(present | wanted))))

    def vectors(self, texts: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
        """A cell for every text, none of which is null."""
        return _cells(self._embedded(texts), type_)

    def _embedded(self, texts: pa.ChunkedArray) -> NDArray[np.float32]:
        """A provider embeds one text per call; what a batch repeats is asked once."""
        client = open_client(self.config)
        encoded = texts.combine_chunks().dictionary_encode()
        distinct = [_embedded(client, text, self.dimension) for text in encoded.dictionary.to_pylist()]
        vectors: NDArray[np.float32] = np.stack(distinct)[encoded.indices.to_numpy()]
        return vectors


def _cells(vectors: NDArray[np.float32], type_: pa.DataType, mask: pa.Array | None = None) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=type_, mask=mask)


def _embedded(client: EmbeddingClient, text: str, dimension: int) -> NDArray[np.float32]:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return client.embed(text, dimension, Role.DOCUMENT)
        except EmbeddingError:
            if attempt == _ATTEMPTS:
                raise
            time.sleep(_PAUSE_SECONDS * 2**attempt)
    raise AssertionError("unreachable")


def embed_tasks(
    steps: Sequence[EmbedStep], catalog: Catalog, config: EmbeddingConfig
) -> dict[str, tuple[EmbedTask, ...]]:
    """The vectors to fill, by type key. A model that the schema records must be the one that is configured."""
    tasks: dict[str, list[EmbedTask]] = {}
    for step in steps:
        node = catalog.nodes[step.type_name]
        prop = node.properties[step.property]
        if prop.embed is None:
            raise BadRequestError(f"{node.name}.{prop.name} has no @embed source in the schema")
        if prop.embed.model is not None and prop.embed.model != config.model:
            raise EmbeddingError(
                f"{node.name}.{prop.name} is embedded with '{prop.embed.model}', and '{config.model}' is configured"
            )
        source = node.properties[prop.embed.property].column
        tasks.setdefault(node.type_key, []).append(EmbedTask(source, prop.column, prop.type.dimension or 0, config))
    return {key: tuple(found) for key, found in tasks.items()}
