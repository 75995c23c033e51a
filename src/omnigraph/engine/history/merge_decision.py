"""The three-way decision of a merge: entities of one type, the schema, and the values behind conflicts.

`merge_plan` calls it with the changes of both sides since the base. A change of one side goes to the other, equal
changes agree, different ones conflict unless a person has decided. The result is one transfer in each direction, so
that the merged table can be built on the side that needs less work. Rows are not compared when the schemas conflict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.api.branches import MergeConflict, PropertyConflict
from omnigraph.api.enums import ConflictKind, EntityKind, Operation, Side
from omnigraph.api.history import EntityChange
from omnigraph.api.values import render_column
from omnigraph.engine.history.diff import TypeDelta, ends_of, equal_entities
from omnigraph.engine.rows.columns import equal_values
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.write.change import TypeChange
from omnigraph.errors import ConstraintRule
from omnigraph.language.catalog import AnyType, Catalog
from omnigraph.storage.models import ChangeCounts
from omnigraph.storage.tables.blobs import stored_blob
from omnigraph.storage.tables.rows import ROW_ID, ROW_ID_FIELD, row_ids_of


def conflict(
    kind: ConflictKind,
    type_key: str,
    entity_id: str | None,
    message: str,
    rule: ConstraintRule | None = None,
    property: str | None = None,
) -> MergeConflict:
    """A conflict of two branches; a broken constraint names its rule and property."""
    return MergeConflict.of(type_key, entity_id, kind.value, message, rule, property)


Decide: TypeAlias = Callable[[ConflictKind, str, str], Side | None]
Overrides: TypeAlias = Mapping[str, Side]

OP = "op"


@dataclass(frozen=True)
class Transfer:
    """What the table of one side takes over from the other: rows of the giver and ids to remove, in id order.

    `rows` has the system columns, the giver's row id (null for a removal) and `op`, seen from the receiver.
    """

    giver: TypeState
    rows: pa.Table

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def written(self) -> pa.Table:
        return self.rows.filter(pc.not_equal(self.rows.column(OP), Operation.DELETE.value))

    @property
    def deleted(self) -> pa.Table:
        return self.rows.filter(pc.equal(self.rows.column(OP), Operation.DELETE.value))

    @property
    def counts(self) -> ChangeCounts:
        ops = self.rows.column(OP).to_pylist()
        return ChangeCounts(ops.count("insert"), ops.count("update"), ops.count("delete"))

    def entity_changes(self, version: int) -> Iterator[EntityChange]:
        """What the receiver gains; `version` says when the giver's table last changed."""
        kind, name = EntityKind(self.giver.type.kind), self.giver.type.name
        for row in self.rows.to_pylist():
            yield EntityChange(kind, name, row["id"], Operation(row[OP]), version, ends_of(row))

    def change(self, *, blobs: bool) -> TypeChange:
        """The transfer as a change of the receiver. Without `blobs` it can be judged but not staged."""
        written = self.written
        return TypeChange(
            self.giver.type,
            self.giver.rows(row_ids_of(written), blobs=blobs),
            deleted=frozenset(self.deleted.column("id").to_pylist()),
            fresh=self.counts.updated == 0 and self.counts.deleted == 0,
        )


@dataclass(frozen=True)
class Decision:
    """The outcome for one type: what each side gives to the other, and what stays open."""

    to_target: Transfer
    to_source: Transfer
    conflicts: list[MergeConflict]


def classify(theirs: Operation, ours: Operation, *, equal: bool) -> ConflictKind | None:
    """The rows of the three-way table where both sides changed the entity; None when they agree."""
    deletes = [theirs, ours].count(Operation.DELETE)
    if deletes == 1:
        return ConflictKind.DELETE_VS_UPDATE
    if deletes == 2 or equal:
        return None
    return ConflictKind.DIVERGENT_INSERT if ours is Operation.INSERT else ConflictKind.DIVERGENT_UPDATE


def decide_entities(source: TypeDelta, target: TypeDelta, decide: Decide, overrides: Overrides) -> Decision:
    """Both deltas start at the same base. `overrides` settle entities whatever the table says."""
    theirs, ours = _changes(source), _changes(target)
    giving, taking = source.pair.newest, target.pair.newest
    settled = pa.array(list(overrides), pa.string())
    theirs_alone, ours_alone = _without(theirs, ours.column("id")), _without(ours, theirs.column("id"))
    to_target, to_source = [_without(theirs_alone, settled)], [_without(ours_alone, settled)]
    both_theirs = _without(_without(theirs, theirs_alone.column("id")), settled)
    both_ours = _without(_without(ours, ours_alone.column("id")), settled)
    conflicts = []
    for i, kind in _disagreements(giving, both_theirs, taking, both_ours):
        mine, other = both_ours.slice(i, 1), both_theirs.slice(i, 1)
        entity_id = mine.column("id")[0].as_py()
        side = decide(kind, taking.type_key, entity_id)
        if side is None:
            conflicts.append(conflict(kind, taking.type_key, entity_id, _message(kind, taking.type_key, entity_id)))
        elif side is Side.THEIRS:
            to_target.append(_as_received(mine, other))
        else:
            to_source.append(_as_received(other, mine))
    to_target.append(_restore([i for i, side in overrides.items() if side is Side.THEIRS], giving, taking))
    to_source.append(_restore([i for i, side in overrides.items() if side is Side.OURS], taking, giving))
    return Decision(
        Transfer(giving, pa.concat_tables(to_target).sort_by("id")),
        Transfer(taking, pa.concat_tables(to_source).sort_by("id")),
        conflicts,
    )


def _disagreements(
    source: TypeState, theirs: pa.Table, target: TypeState, ours: pa.Table
) -> Iterator[tuple[int, ConflictKind]]:
    """Of entities that both sides changed, in the same order: the positions where they do not agree, and how."""
    their_ops = [Operation(op) for op in theirs.column(OP).to_pylist()]
    our_ops = [Operation(op) for op in ours.column(OP).to_pylist()]
    alive = [i for i, ops in enumerate(zip(their_ops, our_ops, strict=True)) if Operation.DELETE not in ops]
    other, mine = theirs.take(pa.array(alive, pa.int64())), ours.take(pa.array(alive, pa.int64()))
    same = equal_entities(source, row_ids_of(other), target, row_ids_of(mine))
    for end in target.keys[1:]:
        same &= equal_values(other.column(end), mine.column(end))
    equal = dict(zip(alive, same.tolist(), strict=True))
    for i, (theirs_op, ours_op) in enumerate(zip(their_ops, our_ops, strict=True)):
        kind = classify(theirs_op, ours_op, equal=equal.get(i, False))
        if kind is not None:
            yield i, kind


def _changes(delta: TypeDelta) -> pa.Table:
    """All changes of a delta in id order: system columns, row id (null when deleted) and op."""
    schema = _schema(delta.pair.newest)
    parts = []
    for op in Operation:
        rows = delta.part(op).select([name for name in schema.names if name != OP])
        if op is Operation.DELETE:
            rows = _without_row_ids(rows)
        parts.append(rows.append_column(OP, pa.array([op.value] * rows.num_rows, pa.string())).cast(schema))
    return pa.concat_tables(parts).sort_by("id")


def _schema(state: TypeState) -> pa.Schema:
    fields = [pa.field(name, pa.string()) for name in state.keys]
    return pa.schema([*fields, ROW_ID_FIELD, pa.field(OP, pa.string())])


def _without_row_ids(rows: pa.Table) -> pa.Table:
    """A deleted entity has no row in the later state."""
    return rows.set_column(rows.column_names.index(ROW_ID), ROW_ID, pa.nulls(rows.num_rows, ROW_ID_FIELD.type))


def _without(changes: pa.Table, ids: pa.Array | pa.ChunkedArray) -> pa.Table:
    return changes.filter(pc.invert(pc.is_in(changes.column("id"), value_set=ids)))


def _as_received(receiver: pa.Table, giver: pa.Table) -> pa.Table:
    """The giver's change as the receiver will meet it: an entity the receiver has deleted comes back as an insert."""
    if giver.column(OP)[0].as_py() == Operation.DELETE.value:
        return giver
    absent = receiver.column(OP)[0].as_py() == Operation.DELETE.value
    return _as_op(giver, Operation.INSERT if absent else Operation.UPDATE)


def _restore(ids: Sequence[str], giver: TypeState, receiver: TypeState) -> pa.Table:
    """Whatever the giver has under these ids, also when that means nothing."""
    schema = _schema(giver)
    there, here = giver.keys_among(ids), receiver.keys_among(ids)
    present = pc.is_in(there.column("id"), value_set=here.column("id"))
    removed = here.filter(pc.invert(pc.is_in(here.column("id"), value_set=there.column("id"))))
    parts = [
        _as_op(there.filter(present), Operation.UPDATE),
        _as_op(there.filter(pc.invert(present)), Operation.INSERT),
        _as_op(_without_row_ids(removed), Operation.DELETE),
    ]
    return pa.concat_tables([part.cast(schema) for part in parts])


def _as_op(rows: pa.Table, op: Operation) -> pa.Table:
    ops = pa.array([op.value] * rows.num_rows, pa.string())
    if OP in rows.column_names:
        return rows.set_column(rows.column_names.index(OP), OP, ops)
    return rows.append_column(OP, ops)


_HOW = {
    ConflictKind.DIVERGENT_INSERT: "was inserted on both branches with different values",
    ConflictKind.DIVERGENT_UPDATE: "was changed on both branches in different ways",
    ConflictKind.DELETE_VS_UPDATE: "was deleted on one branch and changed on the other",
}


def _message(kind: ConflictKind, type_key: str, entity_id: str) -> str:
    return f"{type_key} '{entity_id}' {_HOW[kind]}"


def schema_side(base: Snapshot, source: Snapshot, target: Snapshot) -> Side | list[MergeConflict]:
    """The side whose schema is taken, or why neither can be."""
    digest = source.entry.schema
    if digest == target.entry.schema:
        return _same_lifetimes(source, target) or Side.OURS
    if digest == base.entry.schema:
        return Side.OURS
    if target.entry.schema == base.entry.schema:
        return Side.THEIRS
    differing = list(_differing(source, target))
    if differing:
        return differing
    lifetimes = _same_lifetimes(source, target)
    # Equal declarations whose comments or spent identities differ: the one that has spent more knows them all.
    newer = Side.THEIRS if source.catalog.next_id > target.catalog.next_id else Side.OURS
    return lifetimes or newer


def _same_lifetimes(source: Snapshot, target: Snapshot) -> list[MergeConflict]:
    """A type that both sides created is two types of one name, each with its own entities."""
    pairs = []
    for type_key in sorted(source.entry.tables.keys() & target.entry.tables.keys()):
        if source.entry.tables[type_key].table_id != target.entry.tables[type_key].table_id:
            message = f"{type_key} was created on '{source.branch}' and on '{target.branch}' independently"
            pairs.append(conflict(ConflictKind.SCHEMA_DIVERGENCE, type_key, None, message))
    return pairs


def _differing(source: Snapshot, target: Snapshot) -> Iterator[MergeConflict]:
    theirs, ours = _declarations(source.catalog), _declarations(target.catalog)
    for type_key in sorted(theirs.keys() | ours.keys()):
        mine, other = ours.get(type_key), theirs.get(type_key)
        if mine == other:
            continue
        if mine is None or other is None:
            only = source.branch if mine is None else target.branch
            message = f"{type_key} is declared on '{only}' only, and both branches changed the schema"
        else:
            parts = ", ".join(_differing_parts(mine, other)) or "its declaration"
            message = f"{type_key} is declared differently on '{source.branch}' and '{target.branch}': {parts}"
        yield conflict(ConflictKind.SCHEMA_DIVERGENCE, type_key, None, message)


def _declarations(catalog: Catalog) -> dict[str, AnyType]:
    return {f"{type_.kind}:{type_.name}": type_ for type_ in catalog.types()}


def _differing_parts(mine: AnyType, other: AnyType) -> Iterator[str]:
    for name in sorted(mine.properties.keys() | other.properties.keys()):
        if mine.properties.get(name) != other.properties.get(name):
            yield f"property '{name}'"


MOST_WITH_VALUES: Final = 1_000
"""So many conflicts are reported with their values. The others are only named."""

_LONGEST_TEXT: Final = 500
_LONGEST_LIST: Final = 32
_BASE: Final = "base"
_ENDS: Final = {"src": "from", "dst": "to"}

Entity: TypeAlias = Mapping[str, Any]
States: TypeAlias = Mapping[str, TypeState | None]
"""One type in the base and on both sides, by `base`, `ours` and `theirs`."""


def with_values(
    conflicts: Sequence[MergeConflict], states: Mapping[str, States], subjects: Mapping[MergeConflict, str]
) -> list[MergeConflict]:
    """The same conflicts with the values of their entities. `subjects` are entities that a conflict is about and does
    not name."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for each in conflicts[:MOST_WITH_VALUES]:
        entity_id = each.entity_id or subjects.get(each)
        if entity_id is not None and each.type_key in states:
            wanted[each.type_key].add(entity_id)
    entities = {type_key: _entities(states[type_key], sorted(ids)) for type_key, ids in wanted.items()}
    return [
        _with_properties(each, entities.get(each.type_key, {}), each.entity_id or subjects.get(each))
        for each in conflicts
    ]


def _with_properties(
    conflict: MergeConflict, entities: Mapping[str, Mapping[str, Entity]], entity_id: str | None
) -> MergeConflict:
    if not entities or entity_id is None:
        return conflict
    by_side = {side: entities[side].get(entity_id) for side in (_BASE, *Side)}
    listed = tuple(_property_conflicts(conflict, by_side))
    names = {each.property for each in listed}
    return replace(
        conflict,
        property=conflict.property or (names.pop() if len(names) == 1 else None),
        properties=listed,
        absent_in=tuple(str(side) for side, entity in by_side.items() if entity is None),
    )


def _property_conflicts(conflict: MergeConflict, entities: Mapping[str, Entity | None]) -> Iterator[PropertyConflict]:
    base, ours, theirs = entities[_BASE], entities[Side.OURS], entities[Side.THEIRS]
    names = {name: None for entity in (base, ours, theirs) if entity is not None for name in entity}
    for name in names:
        values = [None if entity is None else entity.get(name) for entity in (base, ours, theirs)]
        if _concerns(conflict, name, values, ours, theirs):
            yield PropertyConflict(name, *(_short(value) for value in values))


def _concerns(
    conflict: MergeConflict, name: str, values: Sequence[Any], ours: Entity | None, theirs: Entity | None
) -> bool:
    """Whether a property belongs to a conflict: what differs, what one side changed, or what breaks a rule."""
    if conflict.kind == ConflictKind.ORPHAN_EDGE:
        return name in _ENDS.values()
    if conflict.kind not in _OF_ENTITIES:
        return conflict.property is not None and name in conflict.property.split(", ")
    before, mine, other = values
    if ours is None or theirs is None:
        return bool((mine if theirs is None else other) != before)
    return bool(mine != other)


_OF_ENTITIES: Final = frozenset(
    {ConflictKind.DIVERGENT_INSERT, ConflictKind.DIVERGENT_UPDATE, ConflictKind.DELETE_VS_UPDATE}
)


def _entities(states: States, ids: Sequence[str]) -> dict[str, dict[str, Entity]]:
    """The entities with these ids in each of the three states, by id."""
    return {side: {} if state is None else dict(_read(state, ids)) for side, state in states.items()}


def _read(state: TypeState, ids: Sequence[str]) -> Iterable[tuple[str, Entity]]:
    keys = state.keys_among(ids)
    row_ids = row_ids_of(keys)
    rows = state.rows(row_ids, blobs=False)
    names = list(rows.column("id").to_pylist())
    columns = {_ENDS[end]: rows.column(end).to_pylist() for end in state.keys[1:]}
    for prop in state.type.property_list:
        if not prop.type.is_blob:
            columns[prop.name] = render_column(rows.column(prop.column))
        elif prop.column in state.table.columns:
            cells = state.table.take(row_ids, [prop.column]).column(prop.column).to_pylist()
            columns[prop.name] = [_blob(cell) for cell in cells]
    for row, entity_id in enumerate(names):
        yield entity_id, {name: column[row] for name, column in columns.items()}


def _blob(cell: dict[str, Any] | None) -> str | None:
    stored = stored_blob(cell)
    if stored is None:
        return None
    return stored.uri if stored.uri is not None else f"blob of {stored.size} bytes"


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return f"{value[:_LONGEST_TEXT]}… ({len(value)} characters)"
    if isinstance(value, list):
        items = [_short(item) for item in value[:_LONGEST_LIST]]
        return items if len(value) <= _LONGEST_LIST else [*items, f"… ({len(value)} items)"]
    return value
