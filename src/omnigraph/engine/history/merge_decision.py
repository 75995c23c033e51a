"""The three-way decision of a merge: entities of one type, the schema, and the values behind conflicts.

`merge_plan` calls it with the changes of both sides since the base. A change of one side goes to the other, equal
changes agree, different ones conflict unless a person has decided. The result is one transfer in each direction, so
that the merged table can be built on the side that needs less work. Rows are not compared when the schemas conflict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.api.branches import MergeConflict, PropertyConflict, Resolutions
from omnigraph.api.enums import ConflictKind, Operation, Side
from omnigraph.api.values import render_column
from omnigraph.engine.history.diff import OP, TypeDelta, TypePair, equal_entities, rows_with_op
from omnigraph.engine.rows.columns import equal_values
from omnigraph.engine.rows.export_form import end_columns
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import EdgeType
from omnigraph.storage.tables.blobs import stored_blob
from omnigraph.storage.tables.rows import row_ids_of


@dataclass(frozen=True)
class Decision:
    """The outcome for one type: what each side takes over from the other, and what stays open."""

    to_target: TypeDelta
    to_source: TypeDelta
    conflicts: list[MergeConflict]

    def taken_by(self, side: Side) -> TypeDelta:
        return self.to_target if side is Side.OURS else self.to_source


def classify(theirs: Operation, ours: Operation, *, equal: bool) -> ConflictKind | None:
    """The rows of the three-way table where both sides changed the entity; None when they agree."""
    deletes = [theirs, ours].count(Operation.DELETE)
    if deletes == 1:
        return ConflictKind.DELETE_VS_UPDATE
    if deletes == 2 or equal:
        return None
    return ConflictKind.DIVERGENT_INSERT if ours is Operation.INSERT else ConflictKind.DIVERGENT_UPDATE


def decide_entities(
    source: TypeDelta,
    target: TypeDelta,
    overrides: Mapping[str, Side],
    resolutions: Resolutions,
    otherwise: Side | None,
) -> Decision:
    """Both deltas start at the same base. `overrides` settle entities whatever the table says; `otherwise` is the side
    of those that nobody has decided about, if there is one."""
    theirs, ours = source.rows, target.rows
    giving, taking = source.pair.newest, target.pair.newest
    type_key, settled = taking.type_key, pa.array(list(overrides), pa.string())
    theirs_alone, ours_alone = _without(theirs, ours.column("id")), _without(ours, theirs.column("id"))
    to_target, to_source = [_without(theirs_alone, settled)], [_without(ours_alone, settled)]
    both_theirs = _without(_without(theirs, theirs_alone.column("id")), settled)
    both_ours = _without(_without(ours, ours_alone.column("id")), settled)
    conflicts = []
    for i, kind in _disagreements(giving, both_theirs, taking, both_ours):
        mine, other = both_ours.slice(i, 1), both_theirs.slice(i, 1)
        entity_id = mine.column("id")[0].as_py()
        side = resolutions.decide(kind, type_key, entity_id) or otherwise
        if side is None:
            message = f"{type_key} '{entity_id}' {_HOW[kind]}"
            conflicts.append(MergeConflict.of(type_key, entity_id, kind.value, message))
        elif side is Side.THEIRS:
            to_target.append(_as_received(mine, other))
        else:
            to_source.append(_as_received(other, mine))
    to_target.append(_restore([i for i, side in overrides.items() if side is Side.THEIRS], giving, taking))
    to_source.append(_restore([i for i, side in overrides.items() if side is Side.OURS], taking, giving))
    gained = TypeDelta(TypePair(taking, giving), pa.concat_tables(to_target).sort_by("id"))
    return Decision(gained, TypeDelta(TypePair(giving, taking), pa.concat_tables(to_source).sort_by("id")), conflicts)


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


def _without(changes: pa.Table, ids: pa.Array | pa.ChunkedArray) -> pa.Table:
    return changes.filter(pc.invert(pc.is_in(changes.column("id"), value_set=ids)))


def _as_received(receiver: pa.Table, giver: pa.Table) -> pa.Table:
    """The giver's change as the receiver will meet it: an entity the receiver has deleted comes back as an insert."""
    if giver.column(OP)[0].as_py() == Operation.DELETE.value:
        return giver
    absent = receiver.column(OP)[0].as_py() == Operation.DELETE.value
    op = Operation.INSERT if absent else Operation.UPDATE
    return giver.set_column(giver.column_names.index(OP), OP, pa.array([op.value]))


def _restore(ids: Sequence[str], giver: TypeState, receiver: TypeState) -> pa.Table:
    """Whatever the giver has under these ids, also when that means nothing."""
    there, here = giver.keys_among(ids), receiver.keys_among(ids)
    present = pc.is_in(there.column("id"), value_set=here.column("id"))
    updated = rows_with_op(there.filter(present), Operation.UPDATE)
    inserted = rows_with_op(there.filter(pc.invert(present)), Operation.INSERT)
    return pa.concat_tables([updated, inserted, rows_with_op(_without(here, there.column("id")), Operation.DELETE)])


# What both sides did to an entity, by the kind of the conflict.
_HOW: Final[Mapping[str, str]] = {
    ConflictKind.DIVERGENT_INSERT: "was inserted on both branches with different values",
    ConflictKind.DIVERGENT_UPDATE: "was changed on both branches in different ways",
    ConflictKind.DELETE_VS_UPDATE: "was deleted on one branch and changed on the other",
}


def schema_side(base: Snapshot, source: Snapshot, target: Snapshot) -> Side | list[MergeConflict]:
    """The side whose schema is taken, or why neither can be."""
    theirs, ours = source.entry.schema, target.entry.schema
    if theirs != ours:
        if theirs == base.entry.schema:
            return Side.OURS
        if ours == base.entry.schema:
            return Side.THEIRS
        if differing := list(_schema_conflicts(source, target)):
            return differing
    # A type that both sides created is two types of one name, each with its own entities.
    twice = [
        schema_conflict(key, f"{key} was created on '{source.branch}' and on '{target.branch}' independently")
        for key in sorted(source.entry.tables.keys() & target.entry.tables.keys())
        if source.entry.tables[key].table_id != target.entry.tables[key].table_id
    ]
    # Equal declarations whose comments or spent identities differ: the one that has spent more knows them all.
    return twice or (Side.THEIRS if source.catalog.next_id > target.catalog.next_id else Side.OURS)


def schema_conflict(type_key: str, message: str) -> MergeConflict:
    return MergeConflict.of(type_key, None, ConflictKind.SCHEMA_DIVERGENCE.value, message)


def _schema_conflicts(source: Snapshot, target: Snapshot) -> Iterator[MergeConflict]:
    """Types that the two schemas do not declare alike."""
    catalogs = source.catalog, target.catalog
    theirs, ours = ({f"{type_.kind}:{type_.name}": type_ for type_ in each.types()} for each in catalogs)
    for type_key in sorted(theirs.keys() | ours.keys()):
        mine, other = ours.get(type_key), theirs.get(type_key)
        if mine == other:
            continue
        if mine is None or other is None:
            only = source.branch if mine is None else target.branch
            message = f"{type_key} is declared on '{only}' only, and both branches changed the schema"
        else:
            names = sorted(mine.properties.keys() | other.properties.keys())
            parts = [f"property '{name}'" for name in names if mine.properties.get(name) != other.properties.get(name)]
            how = ", ".join(parts) or "its declaration"
            message = f"{type_key} is declared differently on '{source.branch}' and '{target.branch}': {how}"
        yield schema_conflict(type_key, message)


MOST_WITH_VALUES: Final = 1_000
"""So many conflicts are reported with their values. The others are only named."""

_LONGEST_TEXT: Final = 500
_LONGEST_LIST: Final = 32
_ENDS: Final = frozenset({"from", "to", "from_type", "to_type"})

BASE: Final = "base"
States: TypeAlias = Mapping[str, TypeState | None]
"""One type in the base and on both sides, by `base`, `ours` and `theirs`."""

Entity: TypeAlias = Mapping[str, Any]


class Orphan(NamedTuple):
    """An edge that one side has and a node that the other side deleted."""

    edge: tuple[str, str]
    node: tuple[str, str]
    edge_side: Side


class Finding(NamedTuple):
    """A conflict. `subject` is the entity that a conflict over a value is about and does not name; a resolution may
    settle an orphan."""

    conflict: MergeConflict
    subject: str | None = None
    orphan: Orphan | None = None


def with_values(findings: Sequence[Finding], states: Mapping[str, States]) -> list[MergeConflict]:
    """The conflicts with the values of their entities."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for each in findings[:MOST_WITH_VALUES]:
        entity_id = each.conflict.entity_id or each.subject
        if entity_id is not None and each.conflict.type_key in states:
            wanted[each.conflict.type_key].add(entity_id)
    entities = {
        key: {side: {} if state is None else dict(_read(state, sorted(ids))) for side, state in states[key].items()}
        for key, ids in wanted.items()
    }
    return [_with_properties(each, entities.get(each.conflict.type_key, {})) for each in findings]


def _with_properties(finding: Finding, entities: Mapping[str, Mapping[str, Entity]]) -> MergeConflict:
    conflict, entity_id = finding.conflict, finding.conflict.entity_id or finding.subject
    if not entities or entity_id is None:
        return conflict
    by_side = {side: entities[side].get(entity_id) for side in (BASE, *Side)}
    listed = tuple(_property_conflicts(conflict, *(by_side[side] for side in (BASE, Side.OURS, Side.THEIRS))))
    names = {each.property for each in listed}
    property = conflict.property or (names.pop() if len(names) == 1 else None)
    absent = tuple(str(side) for side, entity in by_side.items() if entity is None)
    return replace(conflict, property=property, properties=listed, absent_in=absent)


def _property_conflicts(
    conflict: MergeConflict, base: Entity | None, ours: Entity | None, theirs: Entity | None
) -> Iterator[PropertyConflict]:
    """The properties that belong to a conflict: what differs, what one side changed, or what breaks a rule."""
    for name in dict.fromkeys(name for entity in (base, ours, theirs) for name in entity or ()):
        before, mine, other = ((entity or {}).get(name) for entity in (base, ours, theirs))
        if conflict.kind == ConflictKind.ORPHAN_EDGE:
            concerned = name in _ENDS
        elif conflict.kind not in _HOW:
            concerned = conflict.property is not None and name in conflict.property.split(", ")
        elif ours is None or theirs is None:
            concerned = (mine if theirs is None else other) != before
        else:
            concerned = mine != other
        if concerned:
            yield PropertyConflict(name, _short(before), _short(mine), _short(other))


def _read(state: TypeState, ids: Sequence[str]) -> Iterator[tuple[str, Entity]]:
    """The entities with these ids, by id."""
    row_ids = row_ids_of(state.keys_among(ids))
    rows = state.rows(row_ids, blobs=False)
    columns: dict[str, list[Any]] = {}
    if isinstance(state.type, EdgeType):
        columns = {name: column.to_pylist() for name, column in end_columns(state.type, rows).items()}
    for prop in state.type.property_list:
        if not prop.type.is_blob:
            columns[prop.name] = render_column(rows.column(prop.column))
        elif prop.column in state.table.columns:
            cells = state.table.take(row_ids, [prop.column]).column(prop.column).to_pylist()
            columns[prop.name] = [_blob(cell) for cell in cells]
    for row, entity_id in enumerate(rows.column("id").to_pylist()):
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
