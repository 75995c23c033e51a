"""The net difference of two states of the graph, by value and by entity id, as a reader sees them.

`type_delta` is shared by diffs, merges and change images. It reads only rows that the two table versions do not share
and then compares values, so compaction changes nothing. Types pair by lifetime: a rename is not a change, a drop and
re-create is another type. Diffs and merges read the older side as the newer one declares it, so a change of the schema
alone changes no entity. Where a record of it comes first (`schema_changes`), every value that differs counts, and
dropped properties and types do not. For a restricted reader an entity exists on a side only if its row is visible
there, so an update can make an entity, and the edges at it, appear or vanish.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from omnigraph.api.enums import EntityKind, Operation
from omnigraph.api.history import EVERYTHING, ChangedEnds, ChangeScope, ChangeSet, EntityChange
from omnigraph.engine.query.bindings import Mask
from omnigraph.engine.query.visibility import visible_entities
from omnigraph.engine.rows.carry import is_older
from omnigraph.engine.rows.columns import RowMask, equal_values
from omnigraph.engine.rows.end_ids import stored_id, with_plain_ends
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import ChangeFeedGapError, HistoricalVersionReclaimedError
from omnigraph.language.catalog import EdgeEnd, EdgeType, TableType, check_type_names
from omnigraph.language.query.row_filter import EVERY_ROW, NO_ROW
from omnigraph.storage.identifiers import MAIN, now_micros
from omnigraph.storage.integer_sets import is_member
from omnigraph.storage.models import ChangeCounts
from omnigraph.storage.tables.blobs import BlobDescriptors
from omnigraph.storage.tables.rows import ROW_ID, ROW_ID_FIELD, RowIds, row_ids_of
from omnigraph.storage.tables.version_diff import VersionDiff

_COMPARED_ROWS = 32_768

_Column: TypeAlias = pa.Array | pa.ChunkedArray


@dataclass(frozen=True)
class TypePair:
    """One lifetime of a type at two moments; None where it does not exist then. `is_recorded` says that a record tells
    the reader which properties were dropped, so that their values make no difference."""

    before: TypeState | None
    after: TypeState | None
    is_recorded: bool = False

    @cached_property
    def compared(self) -> TypeState | None:
        """The earlier state with the values that make a difference."""
        if not self.is_recorded or self.before is None or self.after is None:
            return self.before
        kept = {prop.id for prop in self.after.type.property_list}
        properties = tuple(prop for prop in self.before.type.property_list if prop.id in kept)
        return replace(self.before, type=structs.replace(self.before.type, property_list=properties))

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
    def comparable(self) -> tuple[TypeState, TypeState]:
        """Both sides as the newer declaration has them, so that a change of the schema alone changes no entity."""
        if self.before is None or self.after is None:
            raise AssertionError("one state has nothing to be compared with")
        if is_older(self.after.type, self.before.type):
            return self.before, self.after.carried_to(self.before.type)
        return self.before.carried_to(self.after.type), self.after

    @property
    def unchanged(self) -> bool:
        return self.compared is not None and self.after is not None and self.compared.same_content(self.after)


EARLIER: Final = "earlier"
OP: Final = "op"


@dataclass(frozen=True)
class TypeDelta:
    """What became of the entities of one type. `rows` are in id order: the system columns, `op`, the row id of the
    later state (`_rowid`, null if it was deleted) and of the earlier one (`earlier`, null if it was inserted)."""

    pair: TypePair
    rows: pa.Table

    @property
    def counts(self) -> ChangeCounts:
        ops = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)
        return ChangeCounts(*(pc.sum(pc.equal(self.rows.column(OP), op.value)).as_py() or 0 for op in ops))

    def __len__(self) -> int:
        return int(self.rows.num_rows)


@dataclass(frozen=True)
class Selection:
    """The types that a scope selects in a commit: those that have one of its names before or after it, and those with
    some ids. The ids are of types that had one of the names in earlier commits, or will have.

    Where commits are read one after another (`joins`), a type that gets one of the names is new to the reader: all of
    its entities are inserted.
    """

    scope: ChangeScope
    ids: frozenset[int] = frozenset()
    joins: bool = False

    def select(self, pairs: Iterable[TypePair]) -> Iterator[TypePair]:
        """The selected ones of these types, each as the reader has to see it."""
        names = self.scope.types
        for pair in pairs:
            if self.scope.kinds and pair.type.kind not in self.scope.kinds:
                continue
            was_selected = pair.before is not None and (pair.type.id in self.ids or pair.before.type.name in names)
            if not names or was_selected:
                yield pair
            elif pair.after is not None and (pair.type.id in self.ids or pair.after.type.name in names):
                yield replace(pair, before=None) if self.joins else pair

    def following(self, selected: Iterable[TypePair]) -> Selection:
        """The selection of the next commit, after one that selected these types: they stay selected by another name."""
        if not self.scope.types:
            return self
        states = (pair.after for pair in selected if pair.after is not None)
        return replace(self, ids=frozenset(each.type.id for each in states if each.type.name not in self.scope.types))


ALL_TYPES: Final = Selection(EVERYTHING)


def paired_types(before: Snapshot, after: Snapshot, *, are_recorded: bool = False) -> list[TypePair]:
    """Every type of either state, by type key; where a name has had two lives, the older one comes first."""
    old = {state.lifetime: state for state in TypeState.all_of(before).values()}
    new = {state.lifetime: state for state in TypeState.all_of(after).values()}
    pairs = [TypePair(old.get(lifetime), new.get(lifetime), are_recorded) for lifetime in {**old, **new}]
    return sorted(pairs, key=lambda pair: (pair.type.type_key, pair.after is not None))


def type_delta(pair: TypePair) -> TypeDelta:
    """The entities that differ. Reads what the two versions do not share, and nothing else."""
    return delta_of_rows(pair, *unshared_rows(pair))


def unshared_rows(pair: TypePair) -> tuple[pa.Table, pa.Table]:
    """The system columns and row ids of the rows that only one of two versions holds at their address, per version."""
    before, after = pair.compared, pair.after
    if before is None or after is None:
        keys = pair.newest.keys_of_all()
        none = keys.slice(0, 0)
        return (none, keys) if before is None else (keys, none)
    if pair.unchanged:
        return no_rows(after), no_rows(after)
    return VersionDiff.of(before.table, after.table, before.visible, after.visible).rows(after.keys)


def delta_of_rows(pair: TypePair, old: pa.Table, new: pa.Table) -> TypeDelta:
    """What the entities of some rows became: `old` are those of the earlier state that may differ, `new` of the later.
    An entity that may differ and is on both sides is in both."""
    positions = pc.index_in(new.column("id"), value_set=old.column("id").combine_chunks())
    common, partners = new.filter(pc.is_valid(positions)), old.take(positions.drop_null())
    changed = pa.array(~_equal_rows(pair, partners, common))
    gone = pc.invert(pc.is_in(old.column("id"), value_set=new.column("id")))
    inserted = rows_with_op(new.filter(pc.is_null(positions)), Operation.INSERT)
    updated = rows_with_op(common.filter(changed), Operation.UPDATE, partners.filter(changed).column(ROW_ID))
    parts = [inserted, updated, rows_with_op(old.filter(gone), Operation.DELETE)]
    return TypeDelta(pair, pa.concat_tables(parts).sort_by("id"))


def rows_with_op(keys: pa.Table, op: Operation, earlier: pa.ChunkedArray | None = None) -> pa.Table:
    """Rows of a delta from system columns and row ids; those of deleted entities are of the earlier state."""
    row_ids, none = keys.column(ROW_ID), pa.nulls(keys.num_rows, ROW_ID_FIELD.type)
    if op is Operation.DELETE:
        row_ids, earlier = none, row_ids
    columns = {name: keys.column(name).cast(pa.string()) for name in keys.column_names if name != ROW_ID}
    columns |= {ROW_ID: row_ids, EARLIER: none if earlier is None else earlier}
    return pa.table(columns | {OP: pa.repeat(op.value, keys.num_rows)})


def equal_entities(left: TypeState, left_rows: RowIds, right: TypeState, right_rows: RowIds) -> RowMask:
    """Row by row, whether two states hold the same values of all properties. Endpoints are the caller's to compare."""
    columns, blobs = sorted((left.visible | right.visible) - set(left.keys)), left.blob_columns & right.blob_columns
    same = np.ones(len(left_rows), np.bool_)
    for start in range(0, len(left_rows), _COMPARED_ROWS):
        block = slice(start, start + _COMPARED_ROWS)
        mine, other, equal = left_rows[block], right_rows[block], same[block]
        left_values, right_values = _values(left, mine, columns), _values(right, other, columns)
        for column in columns:
            here, there = left_values.get(column), right_values.get(column)
            if here is not None and there is not None:
                is_blob = column in blobs
                sides = (left, mine, here), (right, other, there)
                equal &= _equal_blob_cells(column, *sides, equal) if is_blob else equal_values(here, there)
            elif (present := there if here is None else here) is not None:
                equal &= present.is_null().to_numpy()
    return same


def _equal_rows(pair: TypePair, old: pa.Table, new: pa.Table) -> RowMask:
    same = np.ones(new.num_rows, np.bool_)
    if pair.compared is None or pair.after is None:
        return same
    for end in pair.after.keys[1:]:
        same &= equal_values(old.column(end), new.column(end))
    # Rows whose endpoints moved are known to differ; only the others are read.
    open_ = np.flatnonzero(same)
    before, after = (pair.compared, pair.after) if pair.is_recorded else pair.comparable
    same[open_] = equal_entities(before, row_ids_of(old)[open_], after, row_ids_of(new)[open_])
    return same


def _values(state: TypeState, row_ids: RowIds, columns: list[str]) -> dict[str, _Column]:
    shown = state.visible - state.masked
    stored = [c for c in columns if c in shown and c in state.table.columns]
    values: dict[str, _Column] = {}
    if stored:
        taken = state.table.take(row_ids, stored)
        values = {name: state.carry(name, taken.column(name)) for name in stored}
    if state.carries:
        values |= {name: state.absent(name, len(row_ids)) for name in columns if name in shown and name not in values}
    return values


_BlobSide = tuple[TypeState, RowIds, _Column]


def _equal_blob_cells(column: str, left: _BlobSide, right: _BlobSide, still_equal: RowMask) -> RowMask:
    """Managed cells by their bytes, references by what they point at. Bytes are read only when nothing else decides."""
    here, there = BlobDescriptors.of(left[2]), BlobDescriptors.of(right[2])
    same = ~here.valid & ~there.valid
    references = here.external & there.external & (here.position == there.position) & (here.size == there.size)
    same |= references & equal_values(here.uri, there.uri)
    candidates = np.flatnonzero(here.managed & there.managed & (here.size == there.size) & still_equal)
    mine, other = (state.table.blobs(column, row_ids[candidates]) for state, row_ids, _ in (left, right))
    same[candidates] = [blob.equals(there) for blob, there in zip(mine, other, strict=True)]
    return same


def no_rows(state: TypeState) -> pa.Table:
    """The system columns and row ids of no row of a type."""
    fields = [pa.field(name, pa.string()) for name in state.keys]
    return pa.schema([*fields, ROW_ID_FIELD]).empty_table()


def deltas(
    before: Snapshot, after: Snapshot, selection: Selection = ALL_TYPES, *, are_recorded: bool = False
) -> Iterator[TypeDelta]:
    """The selected changes of the selected types that may differ, by type key. Where changes of the schema are
    recorded, the record of a dropped type stands for its entities."""
    restricted = not (before.visibility.is_unrestricted and after.visibility.is_unrestricted)
    visible, ops = _VisibleStates(before, after, are_recorded), selection.scope.ops
    for pair in selection.select(visible.pairs):
        if are_recorded and pair.after is None:
            continue
        if restricted or not pair.unchanged:
            delta = visible.rows(pair).delta if restricted else type_delta(pair)
            if ops:
                wanted = pa.array([op.value for op in ops], pa.string())
                delta = TypeDelta(pair, delta.rows.filter(pc.is_in(delta.rows.column(OP), value_set=wanted)))
            yield delta


@dataclass(frozen=True)
class _VisibleRows:
    """The rows of one type that may differ, and which of them are visible, before and after."""

    pair: TypePair
    old: pa.Table
    new: pa.Table
    was_visible: Mask
    is_visible: Mask

    @property
    def delta(self) -> TypeDelta:
        old, new = self.old.filter(pa.array(self.was_visible)), self.new.filter(pa.array(self.is_visible))
        return delta_of_rows(self.pair, old, new)

    @cached_property
    def one_sided_ids(self) -> list[str]:
        """Ids that both states hold, and that are visible in only one of them."""
        positions = pc.index_in(self.new.column("id"), value_set=self.old.column("id").combine_chunks())
        common = pc.is_valid(positions).to_numpy(zero_copy_only=False)
        was_visible = self.was_visible[positions.drop_null().to_numpy().astype(np.int64)]
        flipped = was_visible != self.is_visible[common]
        ids: list[str] = self.new.column("id").filter(pa.array(common)).filter(pa.array(flipped)).to_pylist()
        return ids


class _VisibleStates:
    """Two states, each with its own visibility, at one moment."""

    def __init__(self, before: Snapshot, after: Snapshot, are_recorded: bool) -> None:
        self._states = before, after
        self._now = now_micros() // 1000
        self.pairs = paired_types(before, after, are_recorded=are_recorded)
        self._known: dict[tuple[str, bool], _VisibleRows] = {}

    def rows(self, pair: TypePair) -> _VisibleRows:
        key = pair.newest.lifetime, pair.before is None
        if key not in self._known:
            tables = self._candidates(pair)
            masks = [
                visible_entities(state, side.type, row_ids_of(rows), self._now) if side else np.zeros(0, dtype=bool)
                for state, side, rows in zip(self._states, (pair.before, pair.after), tables, strict=True)
            ]
            self._known[key] = _VisibleRows(pair, *tables, *masks)
        return self._known[key]

    def _candidates(self, pair: TypePair) -> tuple[pa.Table, pa.Table]:
        """The rows of either side that may make a difference."""
        before, after = pair.before, pair.after
        sides = zip(self._states, (before, after), strict=True)
        visible = [state.visibility.of(side.type) for state, side in sides if side is not None]
        if all(part.rows == NO_ROW for part in visible):
            return no_rows(pair.newest), no_rows(pair.newest)
        if before is None or after is None:
            return unshared_rows(pair)
        if visible[0] != visible[1] and not all(part.is_unrestricted for part in visible):
            # A row that both versions share may be visible, or read, differently on the two sides.
            return before.keys_of_all(), after.keys_of_all()
        old, new = unshared_rows(pair)
        if not isinstance(before.type, EdgeType) or not isinstance(after.type, EdgeType):
            return old, new
        for end_before, end_after in zip(before.type.ends, after.type.ends, strict=True):
            flipped = self._one_sided_ids(end_before, end_after)
            if flipped is None:
                return before.keys_of_all(), after.keys_of_all()
            if flipped:
                column = end_before.column
                old, new = _with_edges_at(before, column, flipped, old), _with_edges_at(after, column, flipped, new)
        return old, new

    def _one_sided_ids(self, before: EdgeEnd, after: EdgeEnd) -> list[str] | None:
        """The ids of nodes that are visible in only one state, as the column of an end holds them; None when all of
        them have to be tested."""
        if before.interface is None and after.interface is None:
            return self._one_sided_ends(before.types[0], after.types[0])
        if before != after:
            return None
        stored: list[str] = []
        for node in before.types:
            flipped = self._one_sided_ends(node, node)
            if flipped is None:
                return None
            stored += (stored_id(before, node, node_id) for node_id in flipped)
        return stored

    def _one_sided_ends(self, before: str, after: str) -> list[str] | None:
        """Nodes at the ends of edges that are visible in only one state; None when all of them have to be tested."""
        ends = [state.catalog.nodes[name] for state, name in zip(self._states, (before, after), strict=True)]
        if all(state.visibility.of(end).rows == EVERY_ROW for state, end in zip(self._states, ends, strict=True)):
            return []
        keys = [end.type_key for end in ends]
        for pair in self.pairs:
            if pair.before and pair.after and [pair.before.type_key, pair.after.type_key] == keys:
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
        for delta in deltas(before, after, Selection(scope)):
            changes += entity_changes(delta, published_in(before), published_in(after))
    except HistoricalVersionReclaimedError as error:
        in_before = any(state.version == error.dataset_version_id for state in before.entry.tables.values())
        raise ChangeFeedGapError(before.commit_id if in_before else after.commit_id) from error
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


def published_in(state: Snapshot) -> dict[str, int]:
    """By the folder of a table, the version of the graph in which it last changed."""
    tables = state.entry.tables
    return {tables[key].path: version for key, version in state.table_versions().items()}


def entity_changes(delta: TypeDelta, before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[EntityChange]:
    """The changes of one type in id order. `before` and `after` say when the tables of either side last changed."""
    kind, name = EntityKind(delta.pair.type.kind), delta.pair.type.name
    rows = with_plain_ends(delta.pair.newest.type, delta.rows.drop_columns([ROW_ID, EARLIER]), types=True)
    for row in rows.to_pylist():
        op = Operation(row[OP])
        state, versions = (delta.pair.before, before) if op is Operation.DELETE else (delta.pair.after, after)
        if state is None:
            raise AssertionError("an entity that changed is in one of the states")
        named = (row["src"], row["dst"], row.get("src_type"), row.get("dst_type")) if "src" in row else None
        ends = None if named is None else ChangedEnds(*named)
        yield EntityChange(kind, name, row["id"], op, versions[state.state.path], ends)
