"""Index segments: which of them an index lacks, and how they are built.

Staging and table maintenance call it; nothing here commits. An index is a set of segments, each built from some
fragments; rows outside them are found by scanning, so an index that lags behind is slower and never wrong. It would
become wrong in one way only, which is avoided here: a segment keeps the old values of a row, so when that row got new
values in another fragment, covering that fragment too would show both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from lance import LanceOperation
from lance.dataset import Index
from numpy.typing import NDArray

from omnigraph.language.catalog import Metric, VectorIndex
from omnigraph.storage.models import VectorIndexRecord
from omnigraph.storage.tables.lance_errors import LANCE_ERRORS, translate_errors
from omnigraph.storage.tables.rows import Table, identifier

BTREE: Final = "BTREE"
NGRAM: Final = "NGRAM"
LABEL_LIST: Final = "LABEL_LIST"
TEXT_INDEX_KIND: Final = "INVERTED"
VECTOR_INDEX_KIND: Final = "IVF_FLAT"
APPROXIMATE_INDEX_KIND: Final = "IVF_SQ"
"""Groups of near vectors, each number in one byte: of the kinds that Lance has, the fastest at the same recall."""
VECTOR_INDEX_KINDS: Final = frozenset({VECTOR_INDEX_KIND, APPROXIMATE_INDEX_KIND})

TEXT_INDEX_OPTIONS: Final[dict[str, Any]] = {
    "base_tokenizer": "simple",
    "language": "English",
    # Lance keeps tokens that are shorter than this, in UTF-8 bytes: 40 ASCII characters are the longest.
    "max_token_length": 41,
    "lower_case": True,
    "stem": True,
    "remove_stop_words": True,
    "ascii_folding": True,
    "with_position": False,
}
"""How every full-text index is built. Search analyses texts and queries with the same options."""

NO_VECTORS: Final = "property has no non-null vectors to train on yet"
EXTREME_VECTORS: Final = "property has vectors too long or too short for an index; they are searched without one"

MOST_SEGMENTS: Final = 8
"""Every search asks every segment; from here on one new segment takes the place of all."""

_ROWS_PER_PARTITION: Final = 256
"""At least so many vectors train the centre of a partition."""

_RECORD: Final = "omnigraph.index."
"""What the records of vector indexes begin with among the settings that a table version has."""

# Far beyond what any model makes, and far within what sums of squares may reach in 32 bits.
_SHORTEST_ORDINARY: Final = 1e-12
_LONGEST_ORDINARY: Final = 1e12

_MOVED: Final = "_row_created_at_version != _row_last_updated_at_version"
"""Rows that had other values once, in a fragment that an old segment may know."""


def vector_index_options(metric: Metric) -> dict[str, Any]:
    """One partition of the vectors themselves, so that searching it is exact. Approximate indexes share the metric."""
    return {"num_partitions": 1, "metric": metric.value}


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index as it should be. The name says column and kind, so that it is found again without a registry."""

    column: str
    kind: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    vectors: VectorIndex | None = None
    """The parameters of an index of vectors that may be approximate."""

    @property
    def is_vector(self) -> bool:
        return self.kind in VECTOR_INDEX_KINDS


def spec_at(table: Table, spec: IndexSpec) -> IndexSpec:
    """The index as it should be at the size of a table version. From some size on, vectors get an approximate index; it
    stays until the table has shrunk to half of that."""
    if spec.vectors is None:
        return spec
    exact_rows, rows = spec.vectors.exact_rows, table.state.rows
    stays = rows * 2 > exact_rows and _stored_kind(table, spec.name) == APPROXIMATE_INDEX_KIND
    if rows <= exact_rows and not stays:
        return spec
    return replace(spec, kind=APPROXIMATE_INDEX_KIND, options={"metric": spec.options["metric"]})


def partition_count(spec: IndexSpec, rows: int, total: int) -> int:
    """The partitions of a segment over `rows` of the `total` rows of a table: its share of what is declared, or the
    square root of its rows."""
    declared = None if spec.vectors is None else spec.vectors.partitions
    wanted = math.isqrt(rows) if declared is None else round(declared * rows / max(1, total))
    return max(1, min(wanted, rows // _ROWS_PER_PARTITION))


def most_partitions(table: Table, spec: IndexSpec) -> int:
    """The partitions of the largest segment of a stored index."""
    segments = stored_indexes(table).get(spec.name, ())
    sizes = [sum(f.metadata.num_rows for f in table._fragments_among(segment.fragment_ids)) for segment in segments]
    return partition_count(spec, max(sizes, default=0), table.state.rows)


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """An index as a version has it: what it covers, its size where that is known, and what was measured of it."""

    kind: str
    rows: IndexCoverage
    bytes: int | None
    is_outdated: bool
    record: VectorIndexRecord | None
    is_measured: bool
    """Whether the record is of these segments."""


def stored_index(table: Table, spec: IndexSpec) -> StoredIndex | None:
    """A declared index as it is stored; None before it is built. Reads the manifest alone."""
    index = next((each for each in table._described_indexes() if each.name == spec.name), None)
    if index is None:
        return None
    record = index_record(table, spec.name)
    covered = {fragment for segment in index.segments for fragment in segment.fragment_ids}
    sizes = [segment.size_bytes for segment in index.segments]
    return StoredIndex(
        kind=index.index_type.upper(),
        rows=_coverage(table, covered),
        bytes=None if None in sizes else sum(sizes),
        is_outdated=is_outdated(table, spec),
        record=record,
        is_measured=record is not None and record.segments == segment_ids(table, spec.name),
    )


def segment_ids(table: Table, name: str) -> tuple[str, ...]:
    """The segments of an index, in a fixed order."""
    return tuple(sorted(str(segment.uuid) for segment in stored_indexes(table).get(name, ())))


def _stored_kind(table: Table, name: str) -> str | None:
    return next((index.index_type.upper() for index in table._described_indexes() if index.name == name), None)


def index_record(table: Table, name: str) -> VectorIndexRecord | None:
    """What was measured of an approximate index when it was built; None when it has not been measured."""
    text = table._dataset.config().get(f"{_RECORD}{name}")
    return None if text is None else VectorIndexRecord.from_json(text, f"{table.state.path}: {name}")


def index_records(records: Mapping[str, VectorIndexRecord]) -> Any:
    """The operation that keeps records, by index name, with the next version of a table and all after it."""
    texts: dict[str, str | None] = {f"{_RECORD}{name}": record.to_json() for name, record in records.items()}
    return LanceOperation.UpdateConfig(config_updates=LanceOperation.UpdateMap(texts))


@dataclass(frozen=True, slots=True)
class IndexNeed:
    """The work that completes an index: a segment over `fragment_ids`, in place of the segments in `replaced`."""

    fragment_ids: tuple[int, ...] = ()
    replaced: tuple[Index, ...] = ()
    pending: str | None = None

    def __bool__(self) -> bool:
        return bool(self.fragment_ids)


def stored_indexes(table: Table) -> dict[str, tuple[Index, ...]]:
    """The segments of every index of a version, by index name."""
    return {
        described.name: tuple(
            Index(
                uuid=segment.uuid,
                name=described.name,
                fields=described.fields,
                dataset_version=segment.dataset_version_at_last_update,
                fragment_ids=segment.fragment_ids,
                index_version=segment.index_version,
                created_at=segment.created_at,
                base_id=segment.base_id,
            )
            for segment in described.segments
        )
        for described in table._described_indexes()
    }


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """How much of a table an index knows. Rows it does not know are found by scanning."""

    indexed_rows: int
    unindexed_rows: int


def covered_fragments(table: Table) -> dict[str, set[int]]:
    """Which fragments of a version each of its indexes covers, by index name."""
    living = {f.fragment_id for f in table._fragments()}
    return {
        name: living & {fragment for segment in segments for fragment in segment.fragment_ids}
        for name, segments in stored_indexes(table).items()
    }


def index_coverage(table: Table, column: str, kind: str | None = None) -> IndexCoverage:
    """How many rows the indexes on one column know, of one kind (`BTREE`, `INVERTED`…) when it is given."""
    covered = {
        fragment
        for index in table._described_indexes()
        if index.field_names == [column] and kind in (None, index.index_type.upper())
        for segment in index.segments
        for fragment in segment.fragment_ids
    }
    return _coverage(table, covered)


def _coverage(table: Table, covered: Collection[int]) -> IndexCoverage:
    rows = {f.fragment_id: f.metadata.num_rows for f in table._fragments()}
    indexed = sum(count for fragment, count in rows.items() if fragment in covered)
    return IndexCoverage(indexed, sum(rows.values()) - indexed)


def index_need(table: Table, spec: IndexSpec) -> IndexNeed:
    """The work that completes index `spec` in this version."""

    spec = spec_at(table, spec)

    def trainable(fragment_ids: list[int]) -> list[int]:
        if not spec.is_vector:
            return fragment_ids
        has_vector = f"{identifier(spec.column)} IS NOT NULL"
        return [fragment_id for fragment_id in fragment_ids if _any_row(table, [fragment_id], has_vector)]

    living = [f.fragment_id for f in table._fragments()]
    segments = stored_indexes(table).get(spec.name, ())
    if segments and is_outdated(table, spec):
        return IndexNeed(tuple(trainable(living)), segments)
    covered = {fragment for segment in segments for fragment in segment.fragment_ids}
    missing = trainable([fragment_id for fragment_id in living if fragment_id not in covered])
    if not missing:
        lacks_vectors = spec.is_vector and not segments and living
        return IndexNeed(pending=NO_VECTORS if lacks_vectors else None)
    living_segments = [s for s in segments if not set(s.fragment_ids).isdisjoint(living)]
    if not living_segments:
        return IndexNeed(tuple(missing), segments)
    # The id of a row never changes, so what an old segment knows of it stays true wherever the row moves.
    rewritten = spec.column != "id" and _any_row(table, missing, _MOVED)
    if rewritten or len(living_segments) >= MOST_SEGMENTS:
        return IndexNeed(tuple(trainable(living)), segments)
    return IndexNeed(tuple(missing), tuple(s for s in segments if s not in living_segments))


def is_outdated(table: Table, spec: IndexSpec) -> bool:
    """Whether a stored index of vectors is of another kind, or was built with other parameters, than it should be."""
    declared = spec.vectors
    if declared is None:
        return False
    spec = spec_at(table, spec)
    record = index_record(table, spec.name)
    for index in table._described_indexes():
        if index.name == spec.name:
            metric = str(index.details.get("metric_type", "")).lower()
            if index.index_type.upper() != spec.kind or metric != spec.options["metric"]:
                return True
    if spec.kind != APPROXIMATE_INDEX_KIND or record is None or record.partitions == declared.partitions:
        return False
    return record.segments == segment_ids(table, spec.name)  # of segments that nobody has measured it says nothing


def build_segment(table: Table, spec: IndexSpec, fragment_ids: tuple[int, ...]) -> Index | None:
    """One new segment over these fragments, written and not yet part of any version; None as `create_segment`."""
    # Building one takes the dataset for itself: others who read or write from the same version would fail.
    own = copy(table._dataset)
    with table.writing("indexing"):
        segment = create_segment(own, spec_at(table, spec), fragment_ids)
        if spec.kind == TEXT_INDEX_KIND:
            # A text segment can be searched only after this step, even when it is the only one.
            segment = own.merge_existing_index_segments([segment])
    return segment


@dataclass(frozen=True, slots=True)
class VectorLengths:
    """The least and the greatest length among some vectors; those of length zero are left out."""

    least: float = math.inf
    greatest: float = 0.0

    @property
    def are_ordinary(self) -> bool:
        """Whether squares of them, and sums of many, keep their precision in 32 bits. False if one is not finite."""
        return self.least >= _SHORTEST_ORDINARY and self.greatest <= _LONGEST_ORDINARY

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> VectorLengths:
        """Of the rows of a matrix."""
        wide = vectors.astype(np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
        if not np.isfinite(lengths).all():
            return cls(0.0, math.inf)
        lengths = lengths[lengths > 0]
        return cls(float(lengths.min(initial=math.inf)), float(lengths.max(initial=0.0)))

    def __or__(self, other: VectorLengths) -> VectorLengths:
        return VectorLengths(min(self.least, other.least), max(self.greatest, other.greatest))


def matrix_of(vectors: pa.Array) -> NDArray[np.float32]:
    """The vectors of a column that are not null, as the rows of a matrix."""
    present = vectors.drop_null()
    flat: NDArray[np.float32] = present.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(present), vectors.type.list_size)


def create_segment(dataset: Any, spec: IndexSpec, fragment_ids: Collection[int]) -> Index | None:
    """The segment that Lance builds; None for vectors that its single precision can't be trained with."""
    options = dict(spec.options)
    if spec.kind == APPROXIMATE_INDEX_KIND:
        chosen = [dataset.get_fragment(fragment_id) for fragment_id in fragment_ids]
        rows = sum(fragment.metadata.num_rows for fragment in chosen)
        total = sum(fragment.metadata.num_rows for fragment in dataset.get_fragments())
        options["num_partitions"] = partition_count(spec, rows, total)
    try:
        segment: Index = dataset.create_index_uncommitted(
            spec.column, spec.kind, name=spec.name, fragment_ids=list(fragment_ids), replace=True, **options
        )
    except LANCE_ERRORS:
        if not spec.is_vector:
            raise
        lengths = VectorLengths()
        fragments = [dataset.get_fragment(fragment_id) for fragment_id in fragment_ids]
        with translate_errors(f"reading {spec.column}"):
            for batch in dataset.scanner(columns=[spec.column], fragments=fragments).to_reader():
                lengths |= VectorLengths.of(matrix_of(batch.column(0)))
        if lengths.are_ordinary and lengths.greatest:
            raise
        return None
    return segment


def _any_row(table: Table, fragment_ids: list[int], filter: str) -> bool:
    with table.reading():
        fragments = table._fragments_among(fragment_ids)
        scanner = table._dataset.scanner(
            columns=[], filter=filter, fragments=fragments, limit=1, with_row_id=True, use_scalar_index=False
        )
        return bool(scanner.to_table().num_rows)
