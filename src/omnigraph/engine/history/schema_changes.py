"""The records of what a commit did to types, for readers of its changes.

`changes` puts them before the entity changes of a commit. A type gets a record when its images changed their form (its
properties, their names and types, the ends of an edge), when it came, went or was renamed, and when other values may
come from now on (constraints, keys, enums): consumers that check values would stop at the first new one. Descriptions,
annotations, indexes, defaults and interfaces alone are of no importance to a reader of images; beside such a change
they are among its steps.

A restricted actor gets the records of the schema that is left when its masked properties are taken out, and none of a
type of which it sees no row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, TypeAlias, TypeVar

from msgspec.structs import replace

from omnigraph.api.enums import EntityKind, TypeChange
from omnigraph.api.history import ChangedType, SchemaChange
from omnigraph.api.schema import (
    AddConstraint,
    ChangeDefault,
    ChangeInterfaces,
    ChangeMetric,
    DropConstraint,
    DropType,
    SchemaStep,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from omnigraph.engine.history.diff import TypePair
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import Catalog, EdgeType, NodeType
from omnigraph.language.query.row_filter import NO_ROW
from omnigraph.language.schema.migration import steps_between

_NOTES: Final = UpdateTypeMetadata | UpdatePropertyMetadata | ChangeInterfaces | ChangeDefault | ChangeMetric
_RULES: Final = ("key", "uniques", "indexes", "ranges", "checks")
_ORDER: Final = (TypeChange.DROPPED, TypeChange.CHANGED, TypeChange.RENAMED, TypeChange.RULES, TypeChange.ADDED)

_TypeKey: TypeAlias = tuple[str, str]


def schema_changes(before: Snapshot, after: Snapshot, pairs: Iterable[TypePair]) -> tuple[SchemaChange, ...]:
    """The records of some types, in the order in which they can be applied: what was dropped comes first and what was
    added last, because a new type may have the name of a dropped one."""
    comparison = _Comparison(before, after)
    records = [record for pair in pairs if (record := comparison.record(pair)) is not None]
    return tuple(
        sorted(records, key=lambda each: (_ORDER.index(each.change), each.kind is EntityKind.EDGE, each.type.id))
    )


class _Comparison:
    """Two schemas as a reader sees them, and the steps from one to the other, by the type that they are about."""

    def __init__(self, before: Snapshot, after: Snapshot) -> None:
        self._before, self._after = before, after
        self._old, self._new = _visible_schema(before), _visible_schema(after)
        self._drops: dict[_TypeKey, list[SchemaStep]] = {}
        self._steps: dict[_TypeKey, list[SchemaStep]] = {}
        for step in steps_between(self._old, self._new):
            by_type = self._drops if isinstance(step, DropType) else self._steps
            by_type.setdefault(subject_of(step), []).append(step)

    def record(self, pair: TypePair) -> SchemaChange | None:
        sides = [(self._before, pair.before), (self._after, pair.after)]
        if all(state.rule_visibility.of(side.type).rows == NO_ROW for state, side in sides if side is not None):
            return None
        type_, steps = pair.type, (self._drops if pair.after is None else self._steps)
        own = steps.get((type_.kind, type_.name), [])
        change = self._change(pair, own)
        if change is None:
            return None
        was = None if pair.before is None else pair.before.type.name
        is_dropped = change is TypeChange.DROPPED and pair.before is not None
        return SchemaChange(
            kind=EntityKind(type_.kind),
            type=ChangedType(pair.newest.lifetime, type_.name),
            change=change,
            renamed_from=was if was != type_.name else None,
            entities=self._rows_of(pair.before) if is_dropped else None,
            steps=tuple(step for step in own if not isinstance(step, UnsupportedChange)),
            schema_before=self._before.entry.schema,
            schema_after=self._after.entry.schema,
        )

    def _change(self, pair: TypePair, steps: list[SchemaStep]) -> TypeChange | None:
        if pair.before is None:
            return TypeChange.ADDED
        if pair.after is None:
            return TypeChange.DROPPED
        if _form(self._old, pair.before.type_key) != _form(self._new, pair.after.type_key):
            return TypeChange.CHANGED
        if pair.before.type.name != pair.after.type.name:
            return TypeChange.RENAMED
        return TypeChange.RULES if any(map(_is_rule, steps)) else None

    def _rows_of(self, dropped: TypeState | None) -> int | None:
        return dropped.state.rows if dropped is not None and self._before.rule_visibility.is_unrestricted else None


def subject_of(step: SchemaStep) -> _TypeKey:
    """The type that a step is about, by its kind and the name it has after the step; a dropped one by its last."""
    if isinstance(step, UnsupportedChange):
        kind, _, path = step.entity.partition(":")
        return kind, path.partition(".")[0]
    names = (getattr(step, member, None) for member in ("type_name", "to_name", "name"))
    return step.type_kind, next(name for name in names if name is not None)


def _is_rule(step: SchemaStep) -> bool:
    """Whether a step decides which values may come, or what they mean. An index and a description do not."""
    is_index = isinstance(step, AddConstraint | DropConstraint) and step.constraint.index is not None
    return not isinstance(step, _NOTES) and not is_index


def _form(catalog: Catalog, type_key: str) -> object:
    """What an image of a type is made of: its ends, and its properties by identity, with their names and what their
    values can be. The values of an enum are a rule."""
    type_ = catalog.type_of_key(type_key)
    if type_ is None:
        raise AssertionError(f"the catalog of a commit has no type for its table {type_key}")
    ends = (type_.from_type, type_.to_type) if isinstance(type_, EdgeType) else ()
    properties = set[tuple[object, ...]]()
    for prop in type_.property_list:
        kind = prop.type
        dimension = kind.dimension if kind.is_vector else None
        properties.add((prop.id, prop.name, kind.scalar, kind.list, kind.nullable, dimension))
    return [(catalog.nodes.get(end) or catalog.interfaces[end]).id for end in ends], properties


def _visible_schema(state: Snapshot) -> Catalog:
    """The schema of a snapshot without the properties that its reader may not see, and without rules about them."""
    visibility, catalog = state.rule_visibility, state.catalog
    if visibility.is_unrestricted:
        return catalog
    nodes = {name: _without(type_, visibility.of(type_).masked) for name, type_ in catalog.nodes.items()}
    edges = {name: _without(type_, visibility.of(type_).masked) for name, type_ in catalog.edges.items()}
    return Catalog(nodes, edges, catalog.interfaces, catalog.next_id)


_Type = TypeVar("_Type", NodeType, EdgeType)


def _without(type_: _Type, masked: Collection[str]) -> _Type:
    if not masked:
        return type_
    rules = {name: _rules_without(getattr(type_, name), masked) for name in _RULES if hasattr(type_, name)}
    if not frozenset(masked).isdisjoint(type_.key):
        rules["key"] = ()
    shown = tuple(prop for prop in type_.property_list if prop.name not in masked)
    return replace(type_, property_list=shown, **rules)


def _rules_without(rules: tuple[object, ...], masked: Collection[str]) -> tuple[object, ...]:
    """The rules that are about none of some properties. Each is a tuple of names, or names one property; a key is a
    tuple of names itself."""
    shown = []
    for rule in rules:
        names = rule if isinstance(rule, tuple) else (getattr(rule, "property", rule),)
        if frozenset(names).isdisjoint(masked):
            shown.append(rule)
    return tuple(shown)
