"""Reading by stable row id, and finding the rows in which two versions of a table differ.

A row id names the same entity through every update within one line of versions; two branches may give the same new
number to different rows, so versions are compared by the files they share and never by row ids alone. Called by the
query runtime; nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.errors import IntegrityError
from omnigraph.storage.ordered import places
from omnigraph.storage.tables.differing import changed_row_count, differing_rows
from omnigraph.storage.tables.reading import Table, quoted
from omnigraph.storage.tables.wide import take

ROW_ID = "_rowid"

# Measured: one long list is parsed once and walks the index in order, so it beats several short ones.
_VALUES_PER_LOOKUP = 10_000
# From here on one scan of the column costs less than looking the values up, with or without an index.
_VALUES_PER_SCAN = 50_000
# Each test of a batch hashes all the values first, so batches are large.
_ROWS_PER_TEST = 1 << 20


def table_key(table: Table) -> str:
    """The table and its version: what is read under one key never changes."""
    return f"{table.state.path}@{table.state.version}"


def rows_by_id(
    table: Table, columns: Sequence[str] = (), *, filter: str | None = None, limit: int | None = None
) -> pa.Table:
    """The rows that satisfy `filter`, with their row ids, ascending by row id."""
    return _ascending(table.read(columns, filter=filter, limit=limit, row_ids=True))


def rows_with(table: Table, column: str, values: Iterable[str], columns: Sequence[str]) -> pa.Table:
    """The rows whose text `column` holds one of `values`, with their row ids, ascending by row id."""
    wanted = list(values)
    if len(wanted) > _VALUES_PER_SCAN:
        return _ascending(_scanned_with(table, column, pa.array(wanted, pa.string()), columns))
    parts = [
        table.read(
            columns,
            filter=f"{column} IN ({', '.join(quoted(v) for v in wanted[start : start + _VALUES_PER_LOOKUP])})",
            row_ids=True,
        )
        for start in range(0, len(wanted), _VALUES_PER_LOOKUP)
    ]
    return _ascending(pa.concat_tables(parts)) if parts else _nothing(table, columns)


def _scanned_with(table: Table, column: str, wanted: pa.Array, columns: Sequence[str]) -> pa.Table:
    read = list(dict.fromkeys((*columns, column)))
    with table.reading():
        scanner = table.dataset.scanner(columns=read, with_row_id=True, batch_size=_ROWS_PER_TEST)
        parts = [
            pa.Table.from_batches([batch]).filter(pc.is_in(batch.column(column), value_set=wanted))
            for batch in scanner.to_reader()
        ]
    return pa.concat_tables(parts).select([*columns, ROW_ID]) if parts else _nothing(table, columns)


def take_rows(table: Table, row_ids: NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
    """These columns of these rows, in the order given. Every row id must be of this version."""
    if not len(row_ids):
        return pa.schema([table.schema.field(name) for name in columns]).empty_table()
    taken = take(table, pa.array(row_ids.view(np.uint64)), columns)
    if len(taken) != len(row_ids):
        raise IntegrityError(table.state.path, f"version {table.state.version} lacks rows that it numbered itself")
    return taken


def blob_bytes(table: Table, column: str, row_id: int) -> bytes:
    """The content of one managed blob."""
    with table.reading():
        (blob,) = table.dataset.take_blobs(column, ids=[row_id])
        with blob:
            data: bytes = blob.readall()
    return data


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """How much of a table an index knows. Rows it does not know are found by scanning."""

    indexed_rows: int
    unindexed_rows: int

    @property
    def is_complete(self) -> bool:
        return not self.unindexed_rows


def index_coverage(table: Table, column: str, kind: str | None = None) -> IndexCoverage:
    """The coverage of the indexes on one column, of one kind (`BTREE`, `INVERTED`…) when it is given."""
    covered = {
        fragment
        for index in table.indexes()
        if index.field_names == [column] and kind in (None, index.index_type.upper())
        for segment in index.segments
        for fragment in segment.fragment_ids
    }
    rows = {f.fragment_id: f.metadata.num_rows for f in table.dataset.get_fragments()}
    indexed = sum(count for fragment, count in rows.items() if fragment in covered)
    return IndexCoverage(indexed, sum(rows.values()) - indexed)


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Rows of `old` that `new` lacks or has otherwise, and the reverse. Both with row ids, ascending."""

    old: pa.Table
    new: pa.Table


def row_changes(old: Table, new: Table, columns: Sequence[str], *, at_most: int) -> RowChanges | None:
    """In which rows, by row id and `columns`, two versions of one table differ.

    Only rows that the versions do not share are read; None when those are more than `at_most`.
    """
    if table_key(old) == table_key(new):
        return RowChanges(_nothing(old, columns), _nothing(new, columns))
    if changed_row_count(old, new, columns) > at_most:
        return None
    left, right = differing_rows(old, new, columns, (columns, columns))
    return _without_equal(_ascending(left), _ascending(right), columns)


def _without_equal(old: pa.Table, new: pa.Table, columns: Sequence[str]) -> RowChanges:
    left, right = old.column(ROW_ID).to_numpy(), new.column(ROW_ID).to_numpy()
    at, in_both = places(left, right)
    in_old, in_new = at[in_both], np.flatnonzero(in_both)
    same = np.ones(len(in_old), dtype=bool)
    for name in columns:
        equal = pc.equal(old.column(name).take(pa.array(in_old)), new.column(name).take(pa.array(in_new)))
        same &= pc.fill_null(equal, False).to_numpy(zero_copy_only=False).astype(bool)
    keep_old, keep_new = np.ones(len(left), dtype=bool), np.ones(len(right), dtype=bool)
    keep_old[in_old[same]] = False
    keep_new[in_new[same]] = False
    return RowChanges(old.filter(pa.array(keep_old)), new.filter(pa.array(keep_new)))


def _nothing(table: Table, columns: Sequence[str]) -> pa.Table:
    fields = [table.schema.field(name) for name in columns]
    return pa.schema([*fields, pa.field(ROW_ID, pa.uint64())]).empty_table()


def _ascending(read: pa.Table) -> pa.Table:
    ids = read.column(ROW_ID).to_numpy()
    # A scan follows the fragments, and an updated row has moved to a newer one.
    return read if bool((ids[1:] > ids[:-1]).all()) else read.take(pa.array(np.argsort(ids, kind="stable")))
