"""Plans a schema change: the differences between the accepted catalog and a new schema, as ordered steps.

`schema plan` and `schema apply` call `evolve`. It gives the new schema identities that follow renames, so types and
properties are compared by identity and never by name. Planning is pure: it sees no data and applies nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from msgspec import to_builtins

from omnigraph.api import schema as steps
from omnigraph.api.schema import Constraint, DropMode, SchemaPlan, SchemaStep, UnsupportedChange
from omnigraph.language.catalog import (
    Annotation,
    AnyType,
    Catalog,
    EdgeType,
    InlineRule,
    InterfaceType,
    NodeType,
    Property,
)
from omnigraph.language.schema.compile import build_catalog, declare_schema
from omnigraph.language.schema.resolved import DeclaredSchema
from omnigraph.language.types import FLOATS, PropertyType, Scalar


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
    planned = steps_between(accepted, desired, "hard" if allow_data_loss else "soft")
    if not planned:
        if desired != accepted:
            planned = (UnsupportedChange("schema", "the schemas differ in a way that no migration step covers"),)
        else:
            desired = accepted
    supported = not any(isinstance(step, UnsupportedChange) for step in planned)
    return Evolution(SchemaPlan(supported, planned, notes), desired)


def steps_between(accepted: Catalog, desired: Catalog, mode: DropMode = "soft") -> tuple[SchemaStep, ...]:
    """The steps from one catalog to another that followed it."""
    return tuple(_Planner(accepted, desired, mode).plan())


Named = TypeVar("Named", Property, AnyType)

_Rules: TypeAlias = dict[str, dict[object, Constraint]]
"""The constraints of a type by their names, each under what it means in terms of property ids: a rename is not a
change."""

_KeptRules: TypeAlias = set[tuple[InlineRule, object]]


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
                yield steps.AddType(new.kind, new.name)
            else:
                yield from self._plan_type(old, new)
        for old in gone:
            yield steps.DropType(old.kind, old.name, self.mode)

    def _plan_type(self, old: AnyType, new: AnyType) -> Iterator[SchemaStep]:
        if old.name != new.name:
            yield steps.RenameType(new.kind, old.name, new.name)
        if isinstance(old, NodeType) and isinstance(new, NodeType):
            yield from self._plan_interfaces(old, new)
            yield from _plan_type_notes(old, new)
        elif isinstance(old, EdgeType) and isinstance(new, EdgeType):
            yield from self._plan_edge_shape(old, new)
            yield from _plan_type_notes(old, new)
        before, after = _rules_of(old), _rules_of(new)
        # Rules that the type as a whole has kept: where they are written means nothing.
        kept = {(InlineRule(rule), each) for rule in InlineRule for each in before[rule].keys() & after[rule].keys()}
        yield from self._plan_properties(old, new, kept)
        yield from _plan_rules(new, before, after)

    def _plan_interfaces(self, old: NodeType, new: NodeType) -> Iterator[SchemaStep]:
        before = {self.accepted.interfaces[name].id: name for name in old.implements}
        after = {self.desired.interfaces[name].id: name for name in new.implements}
        added = tuple(sorted(after[each] for each in after.keys() - before.keys()))
        removed = tuple(sorted(before[each] for each in before.keys() - after.keys()))
        if added or removed:
            yield steps.ChangeInterfaces("node", new.name, added, removed)

    def _plan_edge_shape(self, old: EdgeType, new: EdgeType) -> Iterator[SchemaStep]:
        yield from _plan_ends(self.accepted, self.desired, old, new)
        if old.cardinality != new.cardinality:
            yield steps.ChangeCardinality("edge", new.name, str(old.cardinality), str(new.cardinality))

    def _plan_properties(self, old: AnyType, new: AnyType, kept: _KeptRules) -> Iterator[SchemaStep]:
        current, gone = _match_by_id(old.property_list, new.property_list)
        for prop, old_prop in current:
            if old_prop is not None:
                yield from _plan_property(old, old_prop, new, prop, kept)
            elif prop.type.nullable or prop.default is not None or isinstance(new, InterfaceType):
                yield steps.AddProperty(new.kind, new.name, prop.name, type_output(prop.type), prop.default)
            else:
                yield _unsupported_change(_entity(new, prop), _new_required(prop), MigrationCode.ADD_REQUIRED_PROPERTY)
        for lost in gone:
            yield steps.DropProperty(new.kind, new.name, lost.name, self.mode)


def _new_required(prop: Property) -> str:
    nullable = prop.type.as_nullable()
    if prop.type.is_vector or prop.type.is_blob:
        return f"a new {prop.type} of an existing type must be nullable: declare it as {nullable}"
    remedy = f"give it one, or declare it as {nullable}"
    return f"a new required property of an existing type needs a default for the rows that are there; {remedy}"


def _plan_property(
    owner: AnyType, old: Property, new_owner: AnyType, new: Property, kept: _KeptRules
) -> Iterator[SchemaStep]:
    place = new_owner.kind, new_owner.name, new.name
    if old.name != new.name:
        yield steps.RenameProperty(new_owner.kind, new_owner.name, old.name, new.name)
    if old.type != new.type:
        if (refusal := refusal_of(owner, old, new)) is not None:
            yield _unsupported_change(_entity(new_owner, new), refusal, MigrationCode.CHANGE_PROPERTY_TYPE)
        else:
            yield from plan_type_change(new_owner, old, new)
    if old.default != new.default:
        yield steps.ChangeDefault(*place, old.default, new.default)
    if _embed_meaning(owner, old) != _embed_meaning(new_owner, new):
        yield steps.ChangeEmbed(*place, _embed_output(old), _embed_output(new))
    if old.distance != new.distance:
        yield steps.ChangeMetric(*place, old.distance.value, new.distance.value)
    moved = any((rule, frozenset({new.id})) in kept for rule in set(old.inline) ^ set(new.inline))
    if moved or old.injected != new.injected or _property_notes(old) != _property_notes(new):
        yield steps.UpdatePropertyMetadata(*place, _property_notes(new))


def _plan_ends(accepted: Catalog, desired: Catalog, old: EdgeType, new: EdgeType) -> Iterator[SchemaStep]:
    """An end may be widened from a node type to an interface that this node type implements."""
    roles: tuple[Literal["source", "target"], ...] = ("source", "target")
    names = (old.from_type, new.from_type), (old.to_type, new.to_type)
    for role, (before, after), own, wanted in zip(roles, names, old.ends, new.ends, strict=True):
        kinds = [
            catalog.nodes if end.interface is None else catalog.interfaces
            for catalog, end in ((accepted, own), (desired, wanted))
        ]
        if kinds[0][before].id == kinds[1][after].id:
            continue
        if own.interface is None and wanted.interface is not None:
            if any(member.id == wanted.interface.base for member in wanted.interface.members):
                yield steps.WidenEndpoint("edge", new.name, role, before, after)
                continue
            reason = f"the {role} can't be widened from {before} to {after}: {before} does not implement {after}"
        else:
            reason = f"endpoints can't be changed from {old.from_type} -> {old.to_type}"
            reason = f"{reason} to {new.from_type} -> {new.to_type}{_NEW_EDGE}"
        yield UnsupportedChange(_entity(new), reason)
        return


def _entity(type_: AnyType, prop: Property | None = None) -> str:
    name = f"{type_.kind}:{type_.name}"
    return name if prop is None else f"{name}.{prop.name}"


def _notes(
    description: str | None, instruction: str | None, custom: Iterable[Annotation]
) -> tuple[steps.AnnotationOutput, ...]:
    texts = (("description", description), ("instruction", instruction))
    notes = (steps.AnnotationOutput(name, text) for name, text in texts if text is not None)
    others = (steps.AnnotationOutput(each.name, each.value, dict(each.kwargs)) for each in sorted(custom, key=repr))
    return (*notes, *others)


def _property_notes(prop: Property) -> tuple[steps.AnnotationOutput, ...]:
    notes = _notes(prop.description, None, prop.annotations)
    if prop.index is not None:
        parameters = {name: str(value) for name, value in to_builtins(prop.index).items()}
        notes = (*notes, steps.AnnotationOutput("index", None, parameters))
    if prop.embed is None or not prop.embed.on_write:
        return notes
    # The moment at which vectors are computed is not part of their meaning, so it may change.
    return (*notes, steps.AnnotationOutput("embed", prop.embed.property, {"on_write": "true"}))


def _plan_type_notes(old: NodeType | EdgeType, new: NodeType | EdgeType) -> Iterator[SchemaStep]:
    before, after = (_notes(each.description, each.instruction, each.annotations) for each in (old, new))
    if before != after:
        yield steps.UpdateTypeMetadata(new.kind, new.name, after)


def _unsupported_change(entity: str, reason: str, code: MigrationCode) -> UnsupportedChange:
    return UnsupportedChange(entity, reason, code.value, code.tier.value)


def _embed_meaning(owner: AnyType, prop: Property) -> object:
    """By the source's identity: a renamed source is the same source. An interface may name a property it lacks."""
    if prop.embed is None:
        return None
    source = owner.properties.get(prop.embed.property)
    return (source.id if source is not None else prop.embed.property, prop.embed.model)


def _embed_output(prop: Property) -> steps.EmbedOutput | None:
    return None if prop.embed is None else steps.EmbedOutput(prop.embed.property, prop.embed.model)


def _column_id(owner: AnyType, column: str) -> object:
    """The ends of an edge (`@src`, and `src` in older catalogs) have no id and never change their name."""
    prop = owner.properties.get(column)
    return column.removeprefix("@") if prop is None else prop.id


_COLUMN_RULES: dict[InlineRule, Callable[[tuple[str, ...]], Constraint]] = {
    InlineRule.KEY: lambda columns: Constraint(key=columns),
    InlineRule.UNIQUE: lambda columns: Constraint(unique=columns),
    InlineRule.INDEX: lambda columns: Constraint(index=columns),
}


def _rules_of(owner: AnyType) -> _Rules:
    columns: dict[InlineRule, Iterable[tuple[str, ...]]] = {rule: _inline_columns(owner, rule) for rule in InlineRule}
    ranges: dict[object, Constraint] = {}
    checks: dict[object, Constraint] = {}
    if not isinstance(owner, InterfaceType):
        key = [owner.key] if owner.key else []
        columns = {InlineRule.KEY: key, InlineRule.UNIQUE: owner.uniques, InlineRule.INDEX: owner.indexes}
    if isinstance(owner, NodeType):
        for low in owner.ranges:
            bounds = steps.RangeOutput(low.property, low.low, low.high)
            ranges[_column_id(owner, low.property), low.low, low.high] = Constraint(range=bounds)
        for check in owner.checks:
            pattern = steps.CheckOutput(check.property, check.pattern)
            checks[_column_id(owner, check.property), check.pattern] = Constraint(check=pattern)

    def by_columns(rule: InlineRule) -> dict[object, Constraint]:
        return {
            frozenset(_column_id(owner, column) for column in names): _COLUMN_RULES[rule](names)
            for names in columns[rule]
        }

    return {**{rule.value: by_columns(rule) for rule in InlineRule}, "range": ranges, "check": checks}


def _inline_columns(owner: AnyType, rule: InlineRule) -> list[tuple[str, ...]]:
    return [(prop.name,) for prop in owner.property_list if rule in prop.inline]


_NEW_KEY = "; declare a new type with the key, and load what `export` gives of the old one into it"
_NEW_EDGE = "; declare a new edge type, fill it from a `match` over this one, then drop this one"


def _plan_rules(new: AnyType, before: _Rules, after: _Rules) -> Iterator[SchemaStep]:
    """Rules that are gone and rules that are new; a changed rule is both. Only edge types may get a key."""
    for name in before:
        lost = [before[name][each] for each in before[name] if each not in after[name]]
        gained = [after[name][each] for each in after[name] if each not in before[name]]
        if name == InlineRule.KEY and not isinstance(new, InterfaceType) and (lost or (gained and new.kind == "node")):
            change = "changed" if lost and gained else "removed" if lost else "added to an existing type"
            yield UnsupportedChange(_entity(new), f"@key can't be {change}{_NEW_KEY}")
            continue
        for constraint in sorted(lost, key=str):
            yield steps.DropConstraint(new.kind, new.name, constraint)
        for constraint in sorted(gained, key=str):
            yield steps.AddConstraint(new.kind, new.name, constraint)


WIDER: dict[Scalar, frozenset[Scalar]] = {
    Scalar.I32: frozenset({Scalar.I64, Scalar.F64}),
    Scalar.U32: frozenset({Scalar.U64, Scalar.I64, Scalar.F64}),
    Scalar.F32: frozenset({Scalar.F64}),
}
"""The scalars that hold every value of another one exactly."""

BY_HAND = "add a property of the new type, fill it with an update, then drop the old one and rename the new one"


def type_output(type_: PropertyType) -> steps.PropertyTypeOutput:
    """The wire form of a property's type."""
    scalar = type_.scalar.value if type_.dimension is None else steps.VectorScalar(type_.dimension)
    return steps.PropertyTypeOutput(scalar, type_.nullable, type_.list, type_.enum_values)


def fresh_renames(old: Property, new: Property) -> dict[str, str]:
    """The enum values that a change renames."""
    values = old.type.enum_values or ()
    return {before: after for before, after in new.renamed_values if before in values}


def refusal_of(owner: AnyType, old: Property, new: Property) -> str | None:
    """Why stored values can't become values of the new type; None when they can. `owner` is the old declaration."""
    before, after = old.type, new.type
    is_wider = after.scalar in WIDER.get(before.scalar, ())
    if (
        before.list != after.list
        or before.dimension != after.dimension
        or not (is_wider or before.scalar == after.scalar)
    ):
        return f"the type can't be changed from {before} to {after}; {BY_HAND}"
    if isinstance(owner, InterfaceType) or old.name not in owner.key:
        return None
    if is_wider and after.scalar in FLOATS:
        return f"the type of a key can't be changed from {before} to {after}: ids would change; declare a new type"
    if fresh_renames(old, new):
        return "values of a key can't be renamed: ids would change; declare a new type"
    return None


def plan_type_change(owner: AnyType, old: Property, new: Property) -> Iterator[SchemaStep]:
    """The steps between two types that `refusal_of` has nothing against."""
    before, after = old.type, new.type
    place = owner.kind, owner.name, new.name
    both_enums = before.enum_values is not None and after.enum_values is not None
    rest = PropertyType(after.scalar, after.nullable, after.list, before.enum_values, after.dimension)
    if before != (rest if both_enums else after):
        yield steps.ChangePropertyType(*place, type_output(before), type_output(after))
    if before.enum_values is None or after.enum_values is None:
        return
    renames = fresh_renames(old, new)
    for value, name in sorted(renames.items()):
        yield steps.RenameEnumValue(*place, value, name)
    added = set(after.enum_values) - set(before.enum_values) - set(renames.values())
    removed = set(before.enum_values) - set(after.enum_values) - set(renames)
    if added:
        yield steps.ExtendEnum(*place, tuple(sorted(added)))
    if removed:
        yield steps.NarrowEnum(*place, tuple(sorted(removed)))
