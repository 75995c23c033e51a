"""What became of the entities of one type between two states, by value and by entity id.

`type_delta` is the core that diffs, merges and change images share: it reads only what the two table versions do not
have in common, and then compares values, so that compaction or a rewrite with equal values is no change. Types pair
by lifetime: a rename is no change, a drop and re-create is another type.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.enums import Operation
from omnigraph.engine.rows.equality import Mask, equal_values
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import TableType
from omnigraph.storage.models import ChangeCounts
from omnigraph.storage.tables.blobs import BlobDescriptors
from omnigraph.storage.tables.rows import ROW_ID_FIELD, RowIds, row_ids_of
from omnigraph.storage.tables.version_diff import VersionDiff

_COMPARED_ROWS = 32_768


@dataclass(frozen=True)
class TypePair:
    """One lifetime of a type at two moments; None where it does not exist then."""

    before: TypeState | None
    after: TypeState | None

    @property
    def newest(self) -> TypeState:
        state = self.after or self.before
        if state is None:
            raise AssertionError("a pair has at least one side")
        return state

    @property
    def type(self) -> TableType:
        """The declaration that names the changes: the later one."""
        return self.newest.type

    @property
    def unchanged(self) -> bool:
        return self.before is not None and self.after is not None and self.before.same_content(self.after)


@dataclass(frozen=True)
class TypeDelta:
    """What became of the entities of one type. Each part is a table in id order: the system columns and row ids.

    `inserted` has the row ids of the later table, `deleted` those of the earlier one; `updated` has the system columns
    of the later state, and the row ids of both sides in `_rowid` (later) and `earlier`.
    """

    pair: TypePair
    inserted: pa.Table
    updated: pa.Table
    deleted: pa.Table

    @property
    def counts(self) -> ChangeCounts:
        return ChangeCounts(self.inserted.num_rows, self.updated.num_rows, self.deleted.num_rows)

    def __len__(self) -> int:
        return int(self.inserted.num_rows + self.updated.num_rows + self.deleted.num_rows)

    def part(self, op: Operation) -> pa.Table:
        return {Operation.INSERT: self.inserted, Operation.UPDATE: self.updated, Operation.DELETE: self.deleted}[op]


EARLIER = "earlier"


def paired_types(before: Snapshot, after: Snapshot) -> list[TypePair]:
    """Every type of either state, by type key; where a name has had two lives, the older one comes first."""
    old = {state.lifetime: state for state in TypeState.all_of(before).values()}
    new = {state.lifetime: state for state in TypeState.all_of(after).values()}
    pairs = [TypePair(old.get(lifetime), new.get(lifetime)) for lifetime in {**old, **new}]
    return sorted(pairs, key=lambda pair: (pair.type.type_key, pair.after is not None))


def type_delta(pair: TypePair) -> TypeDelta:
    """The entities that differ. Reads what the two versions do not share, and nothing else."""
    before, after = pair.before, pair.after
    if before is None or after is None:
        return delta_of_rows(pair, *rows_of_one_side(pair))
    if pair.unchanged:
        return delta_of_rows(pair, no_rows(after), no_rows(after))
    return delta_of_rows(pair, *unshared_rows(before, after))


def rows_of_one_side(pair: TypePair) -> tuple[pa.Table, pa.Table]:
    """All rows of a type that only one of two states has: none on the other side."""
    keys = pair.newest.keys_of_all()
    none = keys.slice(0, 0)
    return (none, keys) if pair.before is None else (keys, none)


def unshared_rows(before: TypeState, after: TypeState) -> tuple[pa.Table, pa.Table]:
    """The system columns and row ids of the rows that only one of two versions holds in that place, per version."""
    return VersionDiff.of(before.table, after.table, before.visible, after.visible).rows(after.keys)


def delta_of_rows(pair: TypePair, old: pa.Table, new: pa.Table) -> TypeDelta:
    """What the entities of some rows became: `old` are those of the earlier state that may differ, `new` of the later.
    An entity that may differ and is on both sides is in both."""
    before, after = pair.before, pair.after
    if before is None or after is None:
        updated = _with_earlier(old.slice(0, 0), np.empty(0, np.int64))
        return TypeDelta(pair, new.sort_by("id"), updated, old.sort_by("id"))
    place = pc.index_in(new.column("id"), value_set=old.column("id").combine_chunks())
    common = new.filter(pc.is_valid(place))
    partners = old.take(place.drop_null())
    changed = pa.array(~_equal_rows(before, partners, after, common))
    updated = _with_earlier(common.filter(changed), row_ids_of(partners)[changed.to_numpy(False)])
    return TypeDelta(
        pair,
        inserted=new.filter(pc.is_null(place)).sort_by("id"),
        updated=updated.sort_by("id"),
        deleted=old.filter(pc.invert(pc.is_in(old.column("id"), value_set=new.column("id")))).sort_by("id"),
    )


def equal_entities(left: TypeState, left_rows: RowIds, right: TypeState, right_rows: RowIds) -> Mask:
    """Row by row, whether two states hold the same values of all properties. Endpoints are the caller's to compare."""
    columns = sorted((left.visible | right.visible) - set(left.keys))
    same = np.ones(len(left_rows), np.bool_)
    for start in range(0, len(left_rows), _COMPARED_ROWS):
        block = slice(start, start + _COMPARED_ROWS)
        same[block] = _equal_block(columns, left, left_rows[block], right, right_rows[block])
    return same


def _equal_rows(before: TypeState, old: pa.Table, after: TypeState, new: pa.Table) -> Mask:
    same = np.ones(new.num_rows, np.bool_)
    for end in after.keys[1:]:
        same &= equal_values(old.column(end), new.column(end))
    # Rows whose endpoints moved are known to differ; only the others are read.
    open_ = np.flatnonzero(same)
    same[open_] = equal_entities(before, row_ids_of(old)[open_], after, row_ids_of(new)[open_])
    return same


def _equal_block(columns: list[str], left: TypeState, mine: RowIds, right: TypeState, other: RowIds) -> Mask:
    left_values, right_values = _values(left, mine, columns), _values(right, other, columns)
    same = np.ones(len(mine), np.bool_)
    blobs = left.blob_columns & right.blob_columns
    for column in columns:
        here, there = left_values.get(column), right_values.get(column)
        if here is None or there is None:
            present = here if there is None else there
            same &= np.ones(len(mine), np.bool_) if present is None else present.is_null().to_numpy()
        elif column in blobs:
            same &= _equal_blob_cells(column, (left, mine, here), (right, other, there), same)
        else:
            same &= equal_values(here, there)
    return same


def _values(state: TypeState, row_ids: RowIds, columns: list[str]) -> dict[str, pa.ChunkedArray]:
    shown = state.visible - state.hidden
    stored = [c for c in columns if c in shown and c in state.table.columns]
    if not stored:
        return {}
    taken = state.table.take(row_ids, stored)
    return {name: taken.column(name) for name in stored}


_BlobSide = tuple[TypeState, RowIds, pa.ChunkedArray]


def _equal_blob_cells(column: str, left: _BlobSide, right: _BlobSide, still_equal: Mask) -> Mask:
    """Managed cells by their bytes, references by what they point at. Bytes are read only when nothing else decides."""
    here, there = BlobDescriptors.of(left[2]), BlobDescriptors.of(right[2])
    same = ~here.valid & ~there.valid
    references = here.external & there.external & (here.position == there.position) & (here.size == there.size)
    same |= references & equal_values(here.uri, there.uri)
    candidates = np.flatnonzero(here.managed & there.managed & (here.size == there.size) & still_equal)
    pairs = zip(
        left[0].table.blobs(column, left[1][candidates]),
        right[0].table.blobs(column, right[1][candidates]),
        strict=True,
    )
    same[candidates] = [mine.equals(other) for mine, other in pairs]
    return same


def no_rows(state: TypeState) -> pa.Table:
    """The system columns and row ids of no row of a type."""
    fields = [pa.field(name, pa.string()) for name in state.keys]
    return pa.schema([*fields, ROW_ID_FIELD]).empty_table()


def _with_earlier(rows: pa.Table, earlier: RowIds) -> pa.Table:
    return rows.append_column(EARLIER, pa.array(earlier, ROW_ID_FIELD.type))
