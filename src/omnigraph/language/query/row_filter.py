"""What one actor sees of a graph: which rows of each type, and which of their properties read as null.

Policies make a `Visibility` for an actor; the engine applies it when it plans a read or checks a write. It has
nothing left to bind: the actor is a constant in it, so a query with a parameter of the same name can't replace it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from omnigraph.language.catalog import Catalog, EdgeType, NodeType, Property
from omnigraph.language.query import ir

_MOST_SCHEMAS: Final = 16
ROW: Final = "#row"
"""The variable that a row filter speaks of. No query can spell it."""


class AllOf(Struct, frozen=True):
    """True when every test is; without tests, always."""

    tests: tuple[RowFilter, ...] = ()


class AnyOf(Struct, frozen=True):
    """True when a test is; without tests, never."""

    tests: tuple[RowFilter, ...] = ()


RowFilter: TypeAlias = ir.Compare | AllOf | AnyOf
"""A test of one row. A comparison with null is not true, and nothing here negates, so there is no third outcome."""

EVERY_ROW: Final = AllOf()
NO_ROW: Final = AnyOf()


def all_of(tests: Iterable[RowFilter]) -> RowFilter:
    """The conjunction, without what is always true."""
    return _join(tests, AllOf, NO_ROW)


def any_of(tests: Iterable[RowFilter]) -> RowFilter:
    """The disjunction, without what is never true."""
    return _join(tests, AnyOf, EVERY_ROW)


def _join(tests: Iterable[RowFilter], kind: type[AllOf] | type[AnyOf], decisive: RowFilter) -> RowFilter:
    parts: list[RowFilter] = []
    for test in tests:
        parts += test.tests if isinstance(test, kind) else (test,)
    if decisive in parts:
        return decisive
    return parts[0] if len(parts) == 1 else kind(tuple(dict.fromkeys(parts)))


def map_comparisons(test: RowFilter, change: Callable[[ir.Compare], RowFilter]) -> RowFilter:
    """The same filter with every comparison replaced by what `change` makes of it."""
    match test:
        case ir.Compare():
            return change(test)
        case AllOf():
            return all_of(map_comparisons(part, change) for part in test.tests)
        case AnyOf():
            return any_of(map_comparisons(part, change) for part in test.tests)


def sides(test: RowFilter) -> list[ir.Value]:
    """Everything that a filter compares, in source order."""
    if isinstance(test, ir.Compare):
        return [test.left, test.right]
    return [side for part in test.tests for side in sides(part)]


@dataclass(frozen=True, slots=True)
class TypeVisibility:
    """The visible part of one type: the rows that satisfy `rows`, with the masked properties as null."""

    type: NodeType | EdgeType
    rows: RowFilter = EVERY_ROW
    masked: frozenset[str] = frozenset()

    @property
    def is_unrestricted(self) -> bool:
        return self.rows == EVERY_ROW and not self.masked

    def rows_of(self, variable: str) -> RowFilter:
        """The filter of the rows, about the node or edge that a variable of a plan is bound to."""

        def rename(value: ir.Value) -> ir.Value:
            return replace(value, variable=variable) if isinstance(value, ir.PropertyValue) else value

        return map_comparisons(self.rows, lambda test: ir.Compare(rename(test.left), test.operator, rename(test.right)))


@dataclass(frozen=True)
class Visibility:
    """The part of a graph that an actor sees. A type that is not in `types` (by type key) is visible as a whole."""

    types: Mapping[str, TypeVisibility] = field(default_factory=dict)
    schema: Catalog | None = field(default=None, repr=False, compare=False)
    """The schema that the rules were checked against. Parts that it has dropped are invisible in older snapshots."""
    _on: dict[str, Visibility] = field(default_factory=dict, init=False, repr=False, compare=False)
    """This visibility bound to the last schemas, by their digests."""

    @property
    def is_unrestricted(self) -> bool:
        """Whether everything is visible, as some operations require."""
        return not self.types

    @property
    def reads_the_clock(self) -> bool:
        """Whether the visible rows depend on the moment."""
        return any(isinstance(side, ir.Now) for visibility in self.types.values() for side in sides(visibility.rows))

    @cached_property
    def digest(self) -> str:
        """Equal for visibilities that show the same: a result for one actor is never handed to one who sees something
        else. Empty for an unrestricted one."""
        parts = [
            (visibility.type.id, visibility.type.type_key, sorted(visibility.masked), _plain(visibility.rows))
            for _, visibility in sorted(self.types.items())
        ]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32] if parts else ""

    def of(self, type_: NodeType | EdgeType) -> TypeVisibility:
        return self.types.get(type_.type_key) or TypeVisibility(type_)

    def on(self, catalog: Catalog) -> Visibility:
        """The same visibility for a snapshot with another schema: an older one, or that of another branch.

        Types and properties are found by what stays through a rename, so that one does not open anything; what was
        dropped and declared anew is found by its name, for the same reason. A property that the snapshot lacks, or has
        with another type, is null there as far as a filter can tell, so the comparison is not true. Rules can't name
        what the schema has dropped, so restricted actors don't see it.
        """
        if (cached := self._on.get(catalog.digest)) is not None:
            return cached
        if len(self._on) >= _MOST_SCHEMAS:
            self._on.clear()
        by_birth = {_birth(visibility.type): visibility for visibility in self.types.values()}
        types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
        visibilities = []
        for type_ in types:
            same = by_birth.get(_birth(type_)) or self.types.get(type_.type_key)
            visibility = TypeVisibility(type_) if same is None else _transpose(same, type_)
            visibilities.append(visibility if self.schema is None else _without_dropped(visibility, self.schema))
        moved = self._on[catalog.digest] = visibility_of(visibilities, self.schema)
        return moved


def visibility_of(visibilities: Iterable[TypeVisibility], schema: Catalog | None = None) -> Visibility:
    """The visibility of an actor, from the types that are restricted."""
    return Visibility({each.type.type_key: each for each in visibilities if not each.is_unrestricted}, schema)


UNRESTRICTED: Final = Visibility()


def with_vectors(type_: NodeType | EdgeType, masked: AbstractSet[str]) -> frozenset[str]:
    """Masked properties and the vectors that are computed from them: a vector reveals its text."""
    made = {p.name for p in type_.property_list if p.embed is not None and p.embed.property in masked}
    return frozenset(masked | made)


def _plain(test: RowFilter) -> object:
    """A filter as plain values, equal for equal filters."""
    if not isinstance(test, ir.Compare):
        return type(test).__name__, [_plain(part) for part in test.tests]
    sides = [
        (side.prop.id, side.prop.name) if isinstance(side, ir.PropertyValue) else repr(side)
        for side in (test.left, test.right)
    ]
    return test.operator.value, sides


def _birth(declared: NodeType | EdgeType | Property) -> tuple[object, ...]:
    """What stays when names change. The number alone does not tell: two branches give out the same ones."""
    if isinstance(declared, Property):
        return declared.id, declared.column
    return declared.kind, declared.id, declared.birth_name


def _transpose(visibility: TypeVisibility, type_: NodeType | EdgeType) -> TypeVisibility:
    by_birth = {_birth(prop): prop for prop in type_.property_list}

    def move(value: ir.Value) -> ir.Value | None:
        if not isinstance(value, ir.PropertyValue):
            return value
        prop = by_birth.get(_birth(value.prop)) or type_.properties.get(value.prop.name)
        if prop is None or not prop.type.compatible_with(value.type):
            return None
        return ir.PropertyValue(value.variable, type_, prop)

    def change(test: ir.Compare) -> RowFilter:
        left, right = move(test.left), move(test.right)
        return NO_ROW if left is None or right is None else ir.Compare(left, test.operator, right)

    masked_births = {_birth(prop) for prop in visibility.type.property_list if prop.name in visibility.masked}
    masked = {p.name for p in type_.property_list if _birth(p) in masked_births or p.name in visibility.masked}
    return TypeVisibility(type_, map_comparisons(visibility.rows, change), with_vectors(type_, masked))


def _without_dropped(visibility: TypeVisibility, schema: Catalog) -> TypeVisibility:
    """The visibility without parts that a schema has numbered and does not have: they were dropped since, or belong to
    a branch whose schema went another way. What has a later number is new, and shown until a rule names it."""
    types: Mapping[str, NodeType | EdgeType] = schema.nodes if visibility.type.kind == "node" else schema.edges
    same = (type_ for type_ in types.values() if _birth(type_) == _birth(visibility.type))
    type_ = next(same, None) or types.get(visibility.type.name)
    if type_ is None:
        return visibility if visibility.type.id >= schema.next_id else TypeVisibility(visibility.type, NO_ROW)
    births = {_birth(prop) for prop in type_.property_list}
    dropped = {
        prop.name
        for prop in visibility.type.property_list
        if prop.id < schema.next_id and _birth(prop) not in births and prop.name not in type_.properties
    }
    return TypeVisibility(visibility.type, visibility.rows, with_vectors(visibility.type, visibility.masked | dropped))
