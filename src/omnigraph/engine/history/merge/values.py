"""The values behind the conflicts of a merge: what a property was in the base, and what it is on each of the branches.

Called once, for the conflicts that are reported. Values have the form that query results have; long ones are cut,
because a report is read by people, and blobs are shown by their size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from omnigraph.api.branches import MergeConflict, PropertyConflict
from omnigraph.api.enums import ConflictKind, Side
from omnigraph.api.values import rendered
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.storage.tables.blobs import stored_blob
from omnigraph.storage.tables.rows import row_ids_of

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
        _detailed(each, entities.get(each.type_key, {}), each.entity_id or subjects.get(each)) for each in conflicts
    ]


def _detailed(
    conflict: MergeConflict, entities: Mapping[str, Mapping[str, Entity]], entity_id: str | None
) -> MergeConflict:
    if not entities or entity_id is None:
        return conflict
    found = {place: entities[place].get(entity_id) for place in (_BASE, *Side)}
    listed = tuple(_listed(conflict, found))
    names = {each.property for each in listed}
    return replace(
        conflict,
        property=conflict.property or (names.pop() if len(names) == 1 else None),
        properties=listed,
        absent_in=tuple(str(place) for place, entity in found.items() if entity is None),
    )


def _listed(conflict: MergeConflict, found: Mapping[str, Entity | None]) -> Iterator[PropertyConflict]:
    base, ours, theirs = found[_BASE], found[Side.OURS], found[Side.THEIRS]
    known = {name: None for entity in (base, ours, theirs) if entity is not None for name in entity}
    for name in known:
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
    return {place: {} if state is None else dict(_read(state, ids)) for place, state in states.items()}


def _read(state: TypeState, ids: Sequence[str]) -> Iterable[tuple[str, Entity]]:
    found = state.keys_among(ids)
    row_ids = row_ids_of(found)
    rows = state.rows(row_ids, blobs=False)
    names = list(rows.column("id").to_pylist())
    columns = {_ENDS[end]: rows.column(end).to_pylist() for end in state.keys[1:]}
    for prop in state.type.property_list:
        if not prop.type.is_blob:
            columns[prop.name] = rendered(rows.column(prop.column))
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
