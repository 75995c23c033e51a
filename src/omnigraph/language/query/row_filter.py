"""What one actor sees of a graph: which rows of each type, and which of their properties read as null.

Policies make a `Visibility` for an actor; the engine applies it when it plans a read or checks a write. It has
nothing left to bind: the actor is a constant in it, so a query with a parameter of the same name can't replace it.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from omnigraph.language.catalog import Catalog, EdgeType, NodeType, Property
from omnigraph.language.query import ir
from omnigraph.language.types import PropertyType, Scalar

_MOST_SCHEMAS: Final = 16

RowFilter: TypeAlias = ir.Value
"""A Bool value of `ir.ROW`, the row that it is about. The row is visible when it is true: not when it is null."""

EVERY_ROW: Final = ir.Constant(True, ir.BOOL)
NO_ROW: Final = ir.Constant(False, ir.BOOL)
_UNKNOWN: Final = ir.Constant(None, ir.BOOL.as_nullable())


def all_of(tests: Iterable[RowFilter]) -> RowFilter:
    """The conjunction, without what is always true."""
    return _join(tests, ir.And, EVERY_ROW, NO_ROW)


def any_of(tests: Iterable[RowFilter]) -> RowFilter:
    """The disjunction, without what is never true."""
    return _join(tests, ir.Or, NO_ROW, EVERY_ROW)


def _join(
    tests: Iterable[RowFilter], kind: type[ir.And] | type[ir.Or], neutral: ir.Constant, decisive: ir.Constant
) -> RowFilter:
    parts: dict[RowFilter, None] = {}
    for test in tests:
        parts |= dict.fromkeys(test.operands if isinstance(test, kind) else (test,))
    parts.pop(neutral, None)
    if decisive in parts:
        return decisive
    return neutral if not parts else next(iter(parts)) if len(parts) == 1 else kind(tuple(parts))


def for_actor(test: RowFilter, actor: str) -> RowFilter:
    """Bind the filter to an actor, its only parameter, and decide the tests that no longer depend on a row."""

    def bind(value: ir.Value) -> ir.Value:
        return ir.Constant(actor, ir.STRING) if isinstance(value, ir.ParameterValue) else value

    return simplify(ir.rebuild(test, bind))


def simplify(test: RowFilter) -> RowFilter:
    """The same filter without tests whose outcome is certain. At the top, what is null shows as little as what is
    false."""
    return _drop_unknown(ir.rebuild(test, _decide))


def _drop_unknown(test: RowFilter) -> RowFilter:
    match test:
        case ir.And():
            return all_of(map(_drop_unknown, test.operands))
        case ir.Or():
            return any_of(map(_drop_unknown, test.operands))
    return NO_ROW if test == _UNKNOWN else test


def _decide(value: ir.Value) -> ir.Value:
    """The outcome of a test if it is certain. Calculations are left to the engine."""
    match value:
        case ir.And():
            return all_of(value.operands)
        case ir.Or():
            return any_of(value.operands)
        case ir.Not(operand=ir.Constant(value=outcome)):
            return _UNKNOWN if outcome is None else _outcome(not outcome)
        case ir.IsNull(operand=ir.Constant(value=constant)):
            return _outcome((constant is None) is not value.negated)
        case ir.Compare(left=ir.Constant(value=None)) | ir.Compare(right=ir.Constant(value=None)):
            return _UNKNOWN
        case ir.In(item=ir.Constant(value=None)) | ir.In(items=ir.Constant(value=None)):
            return _UNKNOWN
        case ir.Compare(left=ir.Constant() as left, right=ir.Constant() as right):
            return _compare(value, left, right)
        case ir.In(item=ir.Constant() as item, items=ir.Constant() as items) if _is_text(item) and _is_text(items):
            assert isinstance(items.value, tuple)
            return EVERY_ROW if item.value in items.value else _UNKNOWN if None in items.value else NO_ROW
    return value


def _outcome(holds: bool) -> ir.Constant:
    return EVERY_ROW if holds else NO_ROW


# How texts compare; the actor is one.
_TEXT_TESTS: Final[dict[ir.Operator, Callable[[Any, Any], bool]]] = {
    ir.Operator.EQUAL: operator.eq,
    ir.Operator.NOT_EQUAL: operator.ne,
    ir.Operator.LESS: operator.lt,
    ir.Operator.LESS_OR_EQUAL: operator.le,
    ir.Operator.GREATER: operator.gt,
    ir.Operator.GREATER_OR_EQUAL: operator.ge,
    ir.Operator.SUBSTRING: operator.contains,
    ir.Operator.PREFIX: str.startswith,
    ir.Operator.MEMBER: operator.contains,
}


def _compare(test: ir.Compare, left: ir.Constant, right: ir.Constant) -> ir.Value:
    is_member_test = test.operator is ir.Operator.MEMBER
    if not (_is_text(left) and _is_text(right)) or isinstance(left.value, tuple) is not is_member_test:
        return test
    return _outcome(_TEXT_TESTS[test.operator](left.value, right.value))


def _is_text(constant: ir.Constant) -> bool:
    """Whether a constant is a text, or a list of them."""
    values = constant.value if isinstance(constant.value, tuple) else (constant.value,)
    is_string = isinstance(constant.type, PropertyType) and constant.type.scalar is Scalar.STRING
    return is_string and all(value is None or isinstance(value, str) for value in values)


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
            return replace(value, variable=variable) if isinstance(value, ir.PropertyValue | ir.MetaValue) else value

        return ir.rebuild(self.rows, rename)


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
        return any(isinstance(part, ir.Now) for visibility in self.types.values() for part in ir.walk(visibility.rows))

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
        dropped and declared anew is found by its name, for the same reason. A property that the snapshot lacks is null
        there, as it is for every reader. One that it has with another type says nothing: no test of it shows a row.
        Rules can't name what the schema has dropped, so restricted actors don't see it.
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


def _plain(test: RowFilter) -> list[object]:
    """A filter as plain values, equal for equal filters."""
    return [_own_parts(part) for part in ir.walk(test)]


def _own_parts(value: ir.Value) -> tuple[object, ...]:
    """A value without the values that it is made of, whose number tells where they end."""
    match value:
        case ir.PropertyValue():
            return "property", value.prop.id, value.prop.name
        case ir.MetaValue():
            return "meta", value.field.value
        case ir.Constant():
            return "constant", repr(value.value), str(value.type)
    fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
    plain = [(name, str(own)) for name, own in fields if own is None or isinstance(own, str | bool)]
    return type(value).__name__, len(ir.operands_of(value)), plain


def _birth(declared: NodeType | EdgeType | Property) -> tuple[object, ...]:
    """What stays when names change. The number alone does not tell: two branches give out the same ones."""
    if isinstance(declared, Property):
        return declared.id, declared.column
    return declared.kind, declared.id, declared.birth_name


# What has a type of its own, made from those of its operands.
_CALCULATIONS: Final = (
    ir.Arithmetic | ir.Negative | ir.Call | ir.Case | ir.ListOf | ir.Record | ir.Field | ir.ListForm | ir.Reduce
)


def _transpose(visibility: TypeVisibility, type_: NodeType | EdgeType) -> TypeVisibility:
    by_birth = {_birth(prop): prop for prop in type_.property_list}

    def new_place(value: ir.PropertyValue) -> Property | None:
        return by_birth.get(_birth(value.prop)) or type_.properties.get(value.prop.name)

    def move(value: ir.Value) -> ir.Value:
        match value:
            case ir.PropertyValue():
                prop = new_place(value)
                return (
                    ir.Constant(None, value.type.as_nullable())
                    if prop is None
                    else replace(value, owner=type_, prop=prop)
                )
            case ir.MetaValue():
                return replace(value, members=(type_,))
        return value

    def keeps_its_meaning(test: RowFilter) -> bool:
        parts = list(ir.walk(test))
        calculates = any(isinstance(part, _CALCULATIONS) for part in parts)
        moved = ((part.prop.type, new_place(part)) for part in parts if isinstance(part, ir.PropertyValue))
        return all(prop is None or _fits(prop.type, was, exactly=calculates) for was, prop in moved)

    def change(test: RowFilter) -> RowFilter:
        match test:
            case ir.And():
                return all_of(map(change, test.operands))
            case ir.Or():
                return any_of(map(change, test.operands))
        return ir.rebuild(test, move) if keeps_its_meaning(test) else NO_ROW

    masked_births = {_birth(prop) for prop in visibility.type.property_list if prop.name in visibility.masked}
    masked = {p.name for p in type_.property_list if _birth(p) in masked_births or p.name in visibility.masked}
    return TypeVisibility(type_, simplify(change(visibility.rows)), with_vectors(type_, masked))


def _fits(type_: PropertyType, was: PropertyType, *, exactly: bool) -> bool:
    """Whether a test means the same with a property of another type."""
    return type_.compatible_with(was) and not (exactly and type_.scalar is not was.scalar)


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
