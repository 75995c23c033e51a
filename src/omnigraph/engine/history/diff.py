"""The net difference of two states of the graph, by value and by entity id, as a reader sees them.

`type_delta` is shared by diffs, merges and change images. It reads only rows that the two table versions do not share
and then compares values, so compaction changes nothing. Types pair by lifetime: a rename is not a change, a drop and
re-create is another type. For a restricted reader an entity exists on a side only if its row is visible there, so
an update can make an entity, and the edges at it, appear or vanish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.enums import EntityKind, Operation
from omnigraph.api.history import EVERYTHING, ChangedEnds, ChangeScope, ChangeSet, EntityChange
from omnigraph.engine.query.bindings import Mask
from omnigraph.engine.query.visibility import visible_entities
from omnigraph.engine.rows.columns import RowMask, equal_values
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import ChangeFeedGapError, HistoricalVersionReclaimedError
from omnigraph.language.catalog import EdgeType, TableType, check_type_names
from omnigraph.language.query.row_filter import EVERY_ROW, NO_ROW
from omnigraph.storage.identifiers import MAIN, now_micros
from omnigraph.storage.integer_sets import is_member
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
    positions = pc.index_in(new.column("id"), value_set=old.column("id").combine_chunks())
    common = new.filter(pc.is_valid(positions))
    partners = old.take(positions.drop_null())
    changed = pa.array(~_equal_rows(before, partners, after, common))
    updated = _with_earlier(common.filter(changed), row_ids_of(partners)[changed.to_numpy(False)])
    return TypeDelta(
        pair,
        inserted=new.filter(pc.is_null(positions)).sort_by("id"),
        updated=updated.sort_by("id"),
        deleted=old.filter(pc.invert(pc.is_in(old.column("id"), value_set=new.column("id")))).sort_by("id"),
    )


def equal_entities(left: TypeState, left_rows: RowIds, right: TypeState, right_rows: RowIds) -> RowMask:
    """Row by row, whether two states hold the same values of all properties. Endpoints are the caller's to compare."""
    columns = sorted((left.visible | right.visible) - set(left.keys))
    same = np.ones(len(left_rows), np.bool_)
    for start in range(0, len(left_rows), _COMPARED_ROWS):
        block = slice(start, start + _COMPARED_ROWS)
        same[block] = _equal_block(columns, left, left_rows[block], right, right_rows[block])
    return same


def _equal_rows(before: TypeState, old: pa.Table, after: TypeState, new: pa.Table) -> RowMask:
    same = np.ones(new.num_rows, np.bool_)
    for end in after.keys[1:]:
        same &= equal_values(old.column(end), new.column(end))
    # Rows whose endpoints moved are known to differ; only the others are read.
    open_ = np.flatnonzero(same)
    same[open_] = equal_entities(before, row_ids_of(old)[open_], after, row_ids_of(new)[open_])
    return same


def _equal_block(columns: list[str], left: TypeState, mine: RowIds, right: TypeState, other: RowIds) -> RowMask:
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
    shown = state.visible - state.masked
    stored = [c for c in columns if c in shown and c in state.table.columns]
    if not stored:
        return {}
    taken = state.table.take(row_ids, stored)
    return {name: taken.column(name) for name in stored}


_BlobSide = tuple[TypeState, RowIds, pa.ChunkedArray]


def _equal_blob_cells(column: str, left: _BlobSide, right: _BlobSide, still_equal: RowMask) -> RowMask:
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


def deltas(before: Snapshot, after: Snapshot, scope: ChangeScope = EVERYTHING) -> Iterator[TypeDelta]:
    """The deltas of the selected types that may differ, by type key."""
    if before.visibility.is_unrestricted and after.visibility.is_unrestricted:
        for pair in paired_types(before, after):
            if not pair.unchanged and scope.selects_type(pair.type.kind, pair.type.name):
                yield type_delta(pair)
        return
    visible = _VisibleStates(before, after)
    for pair in visible.pairs:
        if scope.selects_type(pair.type.kind, pair.type.name):
            yield visible.rows(pair).delta


class _VisibleRows:
    """The rows of one type that may differ, and which of them are visible."""

    def __init__(self, pair: TypePair, old: pa.Table, new: pa.Table, masks: tuple[Mask, Mask]) -> None:
        self._pair = pair
        self._old, self._new = old, new
        self._masks = masks

    @cached_property
    def delta(self) -> TypeDelta:
        old, new = (rows.filter(pa.array(mask)) for rows, mask in zip((self._old, self._new), self._masks, strict=True))
        return delta_of_rows(self._pair, old, new)

    @cached_property
    def one_sided_ids(self) -> list[str]:
        """Ids that both states hold, and that are visible in only one of them."""
        positions = pc.index_in(self._new.column("id"), value_set=self._old.column("id").combine_chunks())
        common = pc.is_valid(positions).to_numpy(zero_copy_only=False)
        was, is_ = self._masks[0][positions.drop_null().to_numpy().astype(np.int64)], self._masks[1][common]
        ids: list[str] = self._new.column("id").filter(pa.array(common)).filter(pa.array(was != is_)).to_pylist()
        return ids


class _VisibleStates:
    """Two states, each with its own visibility, at one moment."""

    def __init__(self, before: Snapshot, after: Snapshot) -> None:
        self._before, self._after = before, after
        self._now = now_micros() // 1000
        self._visibilities = before.visibility, after.visibility
        self.pairs = paired_types(before, after)
        self._known: dict[str, _VisibleRows] = {}

    def rows(self, pair: TypePair) -> _VisibleRows:
        lifetime = pair.newest.lifetime
        visible_rows = self._known.get(lifetime)
        if visible_rows is None:
            old, new = self._candidates(pair)
            masks = self._mask(self._before, pair.before, old), self._mask(self._after, pair.after, new)
            visible_rows = self._known[lifetime] = _VisibleRows(pair, old, new, masks)
        return visible_rows

    def _mask(self, snapshot: Snapshot, state: TypeState | None, rows: pa.Table) -> Mask:
        if state is None:
            return np.zeros(0, dtype=bool)
        return visible_entities(snapshot, state.type, row_ids_of(rows), self._now)

    def _candidates(self, pair: TypePair) -> tuple[pa.Table, pa.Table]:
        """The rows of either side that may make a difference."""
        before, after = pair.before, pair.after
        if self._shows_nothing(pair):
            return no_rows(pair.newest), no_rows(pair.newest)
        if before is None or after is None:
            return rows_of_one_side(pair)
        if self._looks_different(before.type, after.type):
            return before.keys_of_all(), after.keys_of_all()
        old, new = (no_rows(after), no_rows(after)) if pair.unchanged else unshared_rows(before, after)
        if not isinstance(before.type, EdgeType) or not isinstance(after.type, EdgeType):
            return old, new
        for column, name_before, name_after in (
            ("src", before.type.from_type, after.type.from_type),
            ("dst", before.type.to_type, after.type.to_type),
        ):
            flipped = self._one_sided_ends(name_before, name_after)
            if flipped is None:
                return before.keys_of_all(), after.keys_of_all()
            if flipped:
                old, new = _with_edges_at(before, column, flipped, old), _with_edges_at(after, column, flipped, new)
        return old, new

    def _shows_nothing(self, pair: TypePair) -> bool:
        sides = zip(self._visibilities, (pair.before, pair.after), strict=True)
        return all(side is None or visibility.of(side.type).rows == NO_ROW for visibility, side in sides)

    def _looks_different(self, before: TableType, after: TableType) -> bool:
        """Whether a row that both versions share may be visible, or read, differently on the two sides."""
        visibilities = self._visibilities[0].of(before), self._visibilities[1].of(after)
        return visibilities[0] != visibilities[1] and not all(visibility.is_unrestricted for visibility in visibilities)

    def _one_sided_ends(self, before: str, after: str) -> list[str] | None:
        """Nodes at the ends of edges that are visible in only one state; None when all of them have to be tested."""
        ends = self._before.catalog.nodes[before], self._after.catalog.nodes[after]
        if all(visibility.of(end).rows == EVERY_ROW for visibility, end in zip(self._visibilities, ends, strict=True)):
            return []
        keys = tuple(end.type_key for end in ends)
        for pair in self.pairs:
            if pair.before and pair.after and (pair.before.type_key, pair.after.type_key) == keys:
                return self.rows(pair).one_sided_ids
        return None


def _with_edges_at(state: TypeState, column: str, ids: list[str], rows: pa.Table) -> pa.Table:
    """Some edges of a state together with those at some nodes, each once."""
    edges = state.table.rows_among(column, ids, state.keys, row_ids=True).select(rows.column_names).cast(rows.schema)
    fresh = ~is_member(row_ids_of(edges), row_ids_of(rows))
    return pa.concat_tables([rows, edges.filter(pa.array(fresh))])


def diff(before: Snapshot, after: Snapshot, scope: ChangeScope = EVERYTHING) -> ChangeSet:
    """The net difference of two states, of any branches, in any direction."""
    if scope.types:
        check_type_names(scope.types, before.catalog, after.catalog)
    changes: list[EntityChange] = []
    try:
        for delta in deltas(before, after, scope):
            changes += entity_changes(delta, published_in(before), published_in(after), scope)
    except HistoricalVersionReclaimedError as error:
        raise ChangeFeedGapError(_reclaimed_message(before, after, error)) from error
    branch = None if after.branch == MAIN else after.branch
    return ChangeSet.of(before.version, after.version, branch, tuple(changes))


def diff_of(
    workspace: Workspace, before: str | Snapshot, after: str | Snapshot, scope: ChangeScope = EVERYTHING
) -> ChangeSet:
    """The same of branches, commits or states. A branch that moved on while its head was released is read again."""
    states = workspace.state_of(before), workspace.state_of(after)
    try:
        return diff(*states, scope)
    except ChangeFeedGapError:
        newer = workspace.state_of(before), workspace.state_of(after)
        if [state.commit_id for state in newer] == [state.commit_id for state in states]:
            raise
        return diff(*newer, scope)


def _reclaimed_message(before: Snapshot, after: Snapshot, error: HistoricalVersionReclaimedError) -> str:
    gone = error.dataset_version_id
    in_before = any(state.version == gone for state in before.entry.tables.values())
    return before.commit_id if in_before else after.commit_id


def published_in(state: Snapshot) -> dict[str, int]:
    """By the folder of a table, the version of the graph in which it last changed."""
    tables = state.entry.tables
    return {tables[key].path: version for key, version in state.table_versions().items()}


def entity_changes(
    delta: TypeDelta, before: Mapping[str, int], after: Mapping[str, int], scope: ChangeScope = EVERYTHING
) -> Iterator[EntityChange]:
    """The changes of one type in id order. `before` and `after` say when the tables of either side last changed."""
    kind, name = EntityKind(delta.pair.type.kind), delta.pair.type.name
    changes = []
    for op in Operation:
        if scope.selects_op(op) and delta.part(op).num_rows:
            state, versions = (delta.pair.before, before) if op is Operation.DELETE else (delta.pair.after, after)
            if state is None:
                raise AssertionError("an entity that changed is in one of the states")
            version = versions[state.state.path]
            changes += [(row["id"], op, version, row) for row in delta.part(op).to_pylist()]
    for entity_id, op, version, row in sorted(changes, key=lambda change: change[0]):
        yield EntityChange(kind, name, entity_id, op, version, ends_of(row))


def ends_of(row: Mapping[str, Any]) -> ChangedEnds | None:
    """The endpoints of an edge; a node has none."""
    return ChangedEnds(row["src"], row["dst"]) if "src" in row else None
