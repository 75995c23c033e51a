"""Searches in Lance: its tokenizer, its text and vector indexes, and rows with their stable row ids.

The search modules of the query engine call it and make exact results of the pieces. Text is asked only of indexed rows:
without an index Lance returns nothing, silently.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader
from lance.lance import tokenize
from lance.query import MatchQuery
from numpy.typing import NDArray

from omnigraph.storage.cache import SHARED_MEMORY, ByteBoundCache
from omnigraph.storage.tables.rows import ROW_ID, RowIds, Table, row_ids_of

SCORE: Final = "_score"
DISTANCE: Final = "_distance"

_EVERY_EXPANSION: Final = 1 << 30
_EVERY_PARTITION: Final = 1 << 16
_FACT_BYTES: Final = 8 << 20
_BYTES_PER_PART: Final = 256


@dataclass(frozen=True, slots=True)
class IndexSegment:
    """One independently built part of an index and the fragments whose rows it was built from."""

    uuid: str
    fragment_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """An index as a search needs to know it; `parameters` is what it was built with, as Lance reports it."""

    name: str
    segments: tuple[IndexSegment, ...]
    parameters: Mapping[str, Any]

    @property
    def fragment_ids(self) -> frozenset[int]:
        return frozenset().union(*(segment.fragment_ids for segment in self.segments))


@dataclass(frozen=True, slots=True)
class FragmentContent:
    """A fragment and the name of its live content: equal names mean equal rows, in any version of any table."""

    fragment_id: int
    name: tuple[str, ...]


def text_tokens(text: str, options: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Tokens of a text as an inverted index with these options sees them, with their word positions. Positions count
    every word, dropped ones too, from the first word that was kept."""
    return [(token.text, token.position) for token in tokenize(text, **options)]


class _IndexLookup(NamedTuple):
    match: ColumnIndex | None


# What every search asks a version for is remembered: Lance makes it anew, in longer than some searches take.
_CONTENTS: Final[ByteBoundCache[tuple[FragmentContent, ...]]] = SHARED_MEMORY.add(
    "fragments of searched tables", ByteBoundCache(_FACT_BYTES)
)
_INDEXES: Final[ByteBoundCache[_IndexLookup]] = SHARED_MEMORY.add(
    "indexes of searched columns", ByteBoundCache(_FACT_BYTES)
)


def fragment_contents(table: Table) -> tuple[FragmentContent, ...]:
    key = (table._dataset.uri, table.state)
    if (cached := _CONTENTS.get(key)) is not None:
        return cached
    contents = tuple(
        FragmentContent(
            fragment.fragment_id,
            (table._dataset.uri, *(file.path for file in fragment.metadata.files), fragment.deletion_file() or ""),
        )
        for fragment in table._fragments()
    )
    return _CONTENTS.keep(key, contents, (sum(len(c.name) for c in contents) + 1) * _BYTES_PER_PART)


def index_of(table: Table, column: str, kind: str) -> ColumnIndex | None:
    """The index of a kind on a column; None when no fragment of this version is covered by one."""
    key = (table._dataset.uri, table.state, column, kind)
    if (cached := _INDEXES.get(key)) is not None:
        return cached.match
    index = _find_index(table, column, kind)
    parts = 1 if index is None else 1 + len(index.fragment_ids) + len(index.segments)
    return _INDEXES.keep(key, _IndexLookup(index), parts * _BYTES_PER_PART).match


def _find_index(table: Table, column: str, kind: str) -> ColumnIndex | None:
    living = {content.fragment_id for content in fragment_contents(table)}
    for index in table._described_indexes():
        if index.field_names == [column] and index.index_type.upper() == kind:
            segments = tuple(IndexSegment(s.uuid, frozenset(s.fragment_ids) & living) for s in index.segments)
            column_index = ColumnIndex(index.name, segments, index.details)
            if column_index.fragment_ids:
                return column_index
    return None


def indexed_documents(table: Table, segment: IndexSegment) -> tuple[RowIds, NDArray[np.uint32]]:
    """Every document of a text index segment as it was built: row ids, and how many tokens each has. Rows without any
    token are not documents. Rows deleted or rewritten since are still listed."""
    directory = f"{table._dataset.uri}/_indices/{segment.uuid}"
    options = table._dataset.latest_storage_options()
    with table.reading():
        described = LanceFileReader(f"{directory}/metadata.lance", storage_options=options).metadata().schema.metadata
        parts = [
            LanceFileReader(f"{directory}/part_{part}_docs.lance", storage_options=options).read_all().to_table()
            for part in json.loads(described[b"partitions"])
        ]
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.uint32)
    documents = pa.concat_tables(parts)
    return row_ids_of(documents), documents.column("_num_tokens").to_numpy()


def matching_rows(
    table: Table,
    column: str,
    text: str,
    *,
    filter: str | None = None,
    limit: int | None = None,
    max_edits: int = 0,
    filter_by_index: bool = True,
) -> pa.Table:
    """Indexed rows that share a token with the text, with `_rowid` and `_score`; the best `limit` when given. Only for
    a column with an inverted index. Scores count every document ever indexed, live or not. `filter_by_index` lets
    indexes of the filtered columns find the rows that pass, which is slower than reading the columns when many do."""
    query = MatchQuery(text, column, fuzziness=max_edits, max_expansions=_EVERY_EXPANSION)
    with table.reading():
        scanner = table._dataset.scanner(
            columns=[SCORE],
            full_text_query=query,
            filter=filter,
            prefilter=True,
            limit=limit,
            with_row_id=True,
            fast_search=True,
            use_scalar_index=filter_by_index,
        )
        return table._collect(scanner)


def filtered_rows(table: Table, filter: str, *, by_index: bool) -> RowIds:
    """The row ids of the rows that pass a filter, in any order; by the indexes of its columns, or by reading them."""
    with table.reading():
        scanner = table._dataset.scanner(columns=[], filter=filter, with_row_id=True, use_scalar_index=by_index)
        return row_ids_of(table._collect(scanner))


def stored_vectors(table: Table, column: str, fragment_id: int) -> Iterator[pa.RecordBatch]:
    """A vector column of a fragment as its files hold it, with `_rowid`, which is null for a deleted row."""
    with table.reading():
        yield from table._dataset.scanner(
            columns=[column],
            fragments=table._fragments_among([fragment_id]),
            with_row_id=True,
            include_deleted_rows=True,
        ).to_reader()


def nearest_rows(
    table: Table,
    column: str,
    vector: NDArray[np.float32],
    k: int,
    metric: str,
    *,
    filter: str | None,
    index: ColumnIndex | None,
    probes: int | None = None,
) -> pa.Table:
    """The k rows closest by Lance's single precision arithmetic, with their vectors, `_rowid` and `_distance`. Uses
    `index` when given, all of its partitions and every row outside it; rows without a vector are left out. With
    `probes`, so many partitions of each segment are looked at, and more while fewer than k rows pass the filter."""
    asked: dict[str, Any] = {"column": column, "q": vector, "k": k, "metric": metric, "use_index": index is not None}
    if index is not None and probes is None:
        asked["nprobes"] = _EVERY_PARTITION
    elif probes is not None:
        asked["minimum_nprobes"] = probes
    with table.reading():
        scanner = table._dataset.scanner(
            columns=[column, DISTANCE], nearest=asked, filter=filter, prefilter=True, with_row_id=True
        )
        return table._collect(scanner)


def deleted_rows(table: Table, columns: Sequence[str], fragment_ids: frozenset[int]) -> pa.Table | None:
    """Rows deleted from these fragments as the files still hold them, with the `_rowid` they most likely had. A
    fragment numbers the rows of one append consecutively, so its living rows tell the ids of the others. None where
    they contradict that; the caller has to know which ids it expects."""
    parts = [table.read(columns, row_ids=True, fragments=())]
    for fragment in table._fragments():
        if fragment.fragment_id not in fragment_ids or fragment.deletion_file() is None:
            continue
        with table.reading():
            rows = table._dataset.scanner(
                columns=list(columns), fragments=[fragment], with_row_id=True, include_deleted_rows=True
            ).to_table()
        dead = np.asarray(rows.column(ROW_ID).is_null())
        offsets = np.arange(rows.num_rows, dtype=np.uint64)
        # Unsigned on purpose: a start "below zero" wraps around and back.
        starts = rows.column(ROW_ID).drop_null().to_numpy() - offsets[~dead]
        if not starts.size or (starts != starts[0]).any():
            return None
        deleted = rows.drop_columns(ROW_ID).filter(pa.array(dead))
        parts.append(deleted.append_column(ROW_ID, pa.array(offsets[dead] + starts[0])))
    return pa.concat_tables(parts)
