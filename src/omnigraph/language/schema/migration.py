"""Plans a schema change: the differences between the accepted catalog and a new schema, as ordered steps.

`schema plan` and `schema apply` call `evolve`. It gives the new schema identities that follow renames, so types and
properties are compared by identity and never by name. Planning is pure: it sees no data and applies nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple, TypeAlias, TypeVar

from omnigraph.api.schema import (
    AddConstraint,
    AddProperty,
    AddType,
    AnnotationOutput,
    DropMode,
    DropProperty,
    DropType,
    ExtendEnum,
    IndexConstraint,
    PropertyTypeOutput,
    RenameProperty,
    RenameType,
    SchemaPlan,
    SchemaStep,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    VectorScalar,
)
from omnigraph.language.catalog import AnyType, Catalog, EdgeType, InlineRule, InterfaceType, NodeType, Property
from omnigraph.language.schema.compile import build_catalog, declare_schema
from omnigraph.language.schema.resolved import DeclaredSchema
from omnigraph.language.types import PropertyType


class Tier(StrEnum):
    DESTRUCTIVE = "destructive"
    VALIDATED = "validated"


class MigrationCode(StrEnum):
    """`OG-<family>-<number>`. Only the two `MF` codes marked below are emitted; the others are reserved names."""

    LOSE_GRAPH_TYPE = "OG-DS-101"
    LOSE_NODE_TYPE = "OG-DS-102"
    LOSE_EDGE_TYPE = "OG-DS-103"
    LOSE_PROPERTY = "OG-DS-104"
    LOSE_VECTOR_PROPERTY = "OG-DS-105"
    ADD_REQUIRED_PROPERTY = "OG-MF-103"  # emitted
    MAKE_REQUIRED = "OG-MF-104"
    CHANGE_PROPERTY_TYPE = "OG-MF-106"  # emitted

    @property
    def tier(self) -> Tier:
        validated = (MigrationCode.ADD_REQUIRED_PROPERTY, MigrationCode.MAKE_REQUIRED)
        return Tier.VALIDATED if self in validated else Tier.DESTRUCTIVE


class Evolution(NamedTuple):
    """A plan and the catalog that it leads to. The catalog of an unsupported plan must not be accepted."""

    plan: SchemaPlan
    catalog: Catalog


def evolve(accepted: Catalog, schema: str | DeclaredSchema, *, allow_data_loss: bool = False) -> Evolution:
    """Plan the way from `accepted`, the catalog of a graph, to `schema`; with `allow_data_loss` every drop is hard."""
    declared = declare_schema(schema) if isinstance(schema, str) else schema
    desired, notes = build_catalog(declared, accepted, by_name=True)
    steps: tuple[SchemaStep, ...] = tuple(_Planner(accepted, desired, "hard" if allow_data_loss else "soft").plan())
    if not steps:
        if desired != accepted:
            steps = (UnsupportedChange("schema", "the schemas differ in a way that no migration step covers"),)
        else:
            desired = accepted
    supported = not any(isinstance(step, UnsupportedChange) for step in steps)
    return Evolution(SchemaPlan(supported, steps, notes), desired)


def type_output(type_: PropertyType) -> PropertyTypeOutput:
    """The wire form of a property's type."""
    scalar = type_.scalar.value if type_.dimension is None else VectorScalar(type_.dimension)
    return PropertyTypeOutput(scalar, type_.nullable, type_.list, type_.enum_values)


Named = TypeVar("Named", Property, AnyType)

_Rules: TypeAlias = dict[str, frozenset[object]]
"""The constraints of a type by their names, in terms of property ids, so that a rename is not a change."""


def _match_by_id(
    before: Iterable[Named], after: Iterable[Named]
) -> tuple[list[tuple[Named, Named | None]], list[Named]]:
    """Each of `after` with what it was before, and what is gone, both sorted by name."""
    old = {each.id: each for each in sorted(before, key=lambda each: each.name)}
    current = [(new, old.pop(new.id, None)) for new in sorted(after, key=lambda each: each.name)]
    return current, list(old.values())


class _Planner:
    def __init__(self, accepted: Catalog, desired: Catalog, mode: DropMode) -> None:
        self.accepted = accepted
        self.desired = desired
        self.mode = mode

    def plan(self) -> Iterator[SchemaStep]:
        yield from self._plan_kind(self.accepted.interfaces.values(), self.desired.interfaces.values())
        yield from self._plan_kind(self.accepted.nodes.values(), self.desired.nodes.values())
        yield from self._plan_kind(self.accepted.edges.values(), self.desired.edges.values())

    def _plan_kind(self, accepted: Iterable[AnyType], desired: Iterable[AnyType]) -> Iterator[SchemaStep]:
        current, gone = _match_by_id(accepted, desired)
        for new, old in current:
            if old is None:
                yield AddType(new.kind, new.name)
            else:
                yield from self._plan_type(old, new)
        for old in gone:
            if isinstance(old, InterfaceType):
                yield UnsupportedChange(_entity(old), "an interface can't be removed or renamed")
            else:
                yield DropType(old.kind, old.name, self.mode)

    def _plan_type(self, old: AnyType, new: AnyType) -> Iterator[SchemaStep]:
        if old.name != new.name:
            yield RenameType(new.kind, old.name, new.name)
        if isinstance(old, NodeType) and isinstance(new, NodeType):
            if _interface_ids(self.accepted, old.implements) != _interface_ids(self.desired, new.implements):
                yield UnsupportedChange(_entity(new), "the implemented interfaces can't be changed")
            yield from _plan_type_notes(old, new)
        elif isinstance(old, EdgeType) and isinstance(new, EdgeType):
            yield from self._plan_edge_shape(old, new)
            yield from _plan_type_notes(old, new)
        before, after = _rules_of(old), _rules_of(new)
        # Whether the type as a whole gained or lost a rule on a column: then the change is reported there.
        changed = {name: before[name] ^ after[name] for name in before}
        yield from self._plan_properties(old, new, changed)
        yield from _plan_rules(new, before, after)

    def _plan_edge_shape(self, old: EdgeType, new: EdgeType) -> Iterator[SchemaStep]:
        ends = (self.accepted.nodes[old.from_type].id, self.accepted.nodes[old.to_type].id)
        if ends != (self.desired.nodes[new.from_type].id, self.desired.nodes[new.to_type].id):
            reason = f"endpoints can't be changed from {old.from_type} -> {old.to_type}"
            yield UnsupportedChange(_entity(new), f"{reason} to {new.from_type} -> {new.to_type}")
        if old.cardinality != new.cardinality:
            reason = f"cardinality can't be changed from {old.cardinality} to {new.cardinality}"
            yield UnsupportedChange(_entity(new), reason)

    def _plan_properties(self, old: AnyType, new: AnyType, changed: _Rules) -> Iterator[SchemaStep]:
        current, gone = _match_by_id(old.property_list, new.property_list)
        for prop, old_prop in current:
            if old_prop is not None:
                yield from self._plan_property(old, old_prop, new, prop, changed)
            elif prop.type.nullable:
                yield AddProperty(new.kind, new.name, prop.name, type_output(prop.type))
            else:
                reason = f"a new property of an existing type must be nullable: declare it as {prop.type.as_nullable()}"
                yield _unsupported_change(_entity(new, prop), reason, MigrationCode.ADD_REQUIRED_PROPERTY)
        for lost in gone:
            yield DropProperty(new.kind, new.name, lost.name, self.mode)

    def _plan_property(
        self, owner: AnyType, old: Property, new_owner: AnyType, new: Property, changed: _Rules
    ) -> Iterator[SchemaStep]:
        entity = _entity(new_owner, new)
        if old.name != new.name:
            yield RenameProperty(new_owner.kind, new_owner.name, old.name, new.name)
        if old.type != new.type:
            yield _plan_type_change(new_owner, old, new)
        if _embed_meaning(owner, old) != _embed_meaning(new_owner, new):
            yield UnsupportedChange(entity, "the @embed source or model can't be changed")
        if old.metric != new.metric:
            yield UnsupportedChange(entity, f"@metric can't be changed from {old.distance} to {new.distance}")
        for rule in sorted(set(old.inline) ^ set(new.inline)):
            if frozenset({new.id}) not in changed[rule]:
                yield UnsupportedChange(entity, f"@{rule} can't move between the property and the body of the type")
        if old.injected != new.injected:
            how = "injected by an interface" if new.injected else "declared by the type itself"
            yield UnsupportedChange(entity, f"an existing property can't become {how}")
        elif _interface_ids(self.accepted, old.interfaces) != _interface_ids(self.desired, new.interfaces):
            yield UnsupportedChange(entity, "the interfaces that ask for this property can't be changed")
        if old.description != new.description or old.is_embedded_on_write != new.is_embedded_on_write:
            notes = _notes(new.description)
            if new.embed is not None and new.embed.on_write:
                # The moment at which vectors are computed is not part of their meaning, so it may change.
                notes += (AnnotationOutput("embed", new.embed.property, {"on_write": "true"}),)
            yield UpdatePropertyMetadata(new_owner.kind, new_owner.name, new.name, notes)
        if sorted(old.annotations, key=repr) != sorted(new.annotations, key=repr):
            yield UnsupportedChange(entity, "custom annotations can't be changed")


def _interface_ids(catalog: Catalog, names: Iterable[str]) -> set[int]:
    return {catalog.interfaces[name].id for name in names}


def _entity(type_: AnyType, prop: Property | None = None) -> str:
    name = f"{type_.kind}:{type_.name}"
    return name if prop is None else f"{name}.{prop.name}"


def _notes(description: str | None, instruction: str | None = None) -> tuple[AnnotationOutput, ...]:
    texts = (("description", description), ("instruction", instruction))
    return tuple(AnnotationOutput(name, text) for name, text in texts if text is not None)


def _plan_type_notes(old: NodeType | EdgeType, new: NodeType | EdgeType) -> Iterator[SchemaStep]:
    if (old.description, old.instruction) != (new.description, new.instruction):
        yield UpdateTypeMetadata(new.kind, new.name, _notes(new.description, new.instruction))
    if sorted(old.annotations, key=repr) != sorted(new.annotations, key=repr):
        yield UnsupportedChange(_entity(new), "custom annotations can't be changed")


def _plan_type_change(owner: AnyType, old: Property, new: Property) -> SchemaStep:
    before, after = old.type, new.type
    if before.enum_values is not None and after.enum_values is not None and before.nullable == after.nullable:
        added = sorted(set(after.enum_values) - set(before.enum_values))
        if added and set(before.enum_values) <= set(after.enum_values):
            return ExtendEnum(owner.kind, owner.name, new.name, tuple(added))
    reason = f"the type can't be changed from {before} to {after}"
    return _unsupported_change(_entity(owner, new), reason, MigrationCode.CHANGE_PROPERTY_TYPE)


def _unsupported_change(entity: str, reason: str, code: MigrationCode) -> UnsupportedChange:
    return UnsupportedChange(entity, reason, code.value, code.tier.value)


def _embed_meaning(owner: AnyType, prop: Property) -> object:
    """By the source's identity: a renamed source is the same source. An interface may name a property it lacks."""
    if prop.embed is None:
        return None
    source = owner.properties.get(prop.embed.property)
    return (source.id if source is not None else prop.embed.property, prop.embed.model)


def _column_id(owner: AnyType, column: str) -> object:
    """The ends of an edge (`@src`, and `src` in older catalogs) have no id and never change their name."""
    prop = owner.properties.get(column)
    return column.removeprefix("@") if prop is None else prop.id


def _column_ids(owner: AnyType, columns: Iterable[str]) -> frozenset[object]:
    return frozenset(_column_id(owner, column) for column in columns)


def _rules_of(owner: AnyType) -> _Rules:
    rules: dict[str, Iterable[tuple[str, ...]]] = {rule: _inline_columns(owner, rule) for rule in InlineRule}
    ranges, checks = frozenset[object](), frozenset[object]()
    if not isinstance(owner, InterfaceType):
        key = [owner.key] if owner.key else []
        rules = {InlineRule.KEY: key, InlineRule.UNIQUE: owner.uniques, InlineRule.INDEX: owner.indexes}
    if isinstance(owner, NodeType):
        ranges = frozenset((_column_id(owner, r.property), r.low, r.high) for r in owner.ranges)
        checks = frozenset((_column_id(owner, c.property), c.pattern) for c in owner.checks)
    columns = {name: frozenset[object](_column_ids(owner, each) for each in rule) for name, rule in rules.items()}
    return {**columns, "range": ranges, "check": checks}


def _inline_columns(owner: AnyType, rule: InlineRule) -> list[tuple[str, ...]]:
    return [(prop.name,) for prop in owner.property_list if rule in prop.inline]


_NEW_KEY = "; declare a new type with the key, and load what `export` gives of the old one into it"


def _plan_rules(new: AnyType, before: _Rules, after: _Rules) -> Iterator[SchemaStep]:
    for name in before:
        lost, gained = before[name] - after[name], after[name] - before[name]
        if name == InlineRule.INDEX:
            gained = frozenset()  # an index can be added
        if lost:
            yield UnsupportedChange(_entity(new), f"@{name} can't be {'changed' if gained else 'removed'}")
        elif gained:
            remedy = _NEW_KEY if name == InlineRule.KEY else ""
            yield UnsupportedChange(_entity(new), f"@{name} can't be added to an existing type{remedy}")
    indexes = _inline_columns(new, InlineRule.INDEX) if isinstance(new, InterfaceType) else new.indexes
    for columns in sorted(indexes):
        if _column_ids(new, columns) not in before[InlineRule.INDEX]:
            yield AddConstraint(new.kind, new.name, IndexConstraint(columns))
