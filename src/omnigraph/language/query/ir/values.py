"""The values of a plan: what is bound, tests, calculations and rankings, each with its type.

There is one tree of values for filters, projections, sort keys, assignments and row filters. A value depends on one row
only, unless an aggregate is part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar, TypeAlias

from msgspec import Struct

from omnigraph.language.catalog import EdgeType, NodeType, Property, TableType
from omnigraph.language.query.syntax import AggregateFunction, ArithmeticOperator, ListFunction, MetaField, TextFunction
from omnigraph.language.query.value_types import (
    BOOL,
    DATETIME,
    F64,
    STRING,
    EntityType,
    PathType,
    RecordType,
    ValueType,
    is_list,
)
from omnigraph.language.types import PropertyType

NOW_PARAMETER = "__nanograph_now"


# ---- values: what is bound ------------------------------------------------------------------------------


class PropertyValue(Struct, frozen=True):
    """A property of the node or edge that a variable is bound to; null where the stored value is null.

    `optional`: the variable may be null, and then the value is.
    """

    variable: str
    owner: NodeType | EdgeType
    prop: Property
    optional: bool = False

    @property
    def type(self) -> PropertyType:
        return self.prop.type.as_nullable() if self.optional else self.prop.type


class UnionProperty(Struct, frozen=True):
    """A property of a variable of several types: one part for each of its members, None where the member lacks it."""

    variable: str
    parts: tuple[PropertyValue | None, ...]
    type: ValueType


class MetaValue(Struct, frozen=True):
    """The id, an end or the type name of the entity that a variable is bound to."""

    variable: str
    members: tuple[TableType, ...]
    field: MetaField
    optional: bool = False

    @property
    def type(self) -> PropertyType:
        return STRING.as_nullable(self.optional)


class EntityValue(Struct, frozen=True):
    """The node or edge that a variable is bound to: an object where it is returned, its identity where it is compared,
    grouped or counted."""

    variable: str
    type: EntityType


class NodeKey(Struct, frozen=True):
    """The id of the node with this key; null for a null key. A text is an id or a key that is a text."""

    node: NodeType
    key: Value

    @property
    def type(self) -> PropertyType:
        return STRING.as_nullable(self.key.type.nullable)


class VariableValue(Struct, frozen=True):
    """A value that a variable is bound to: a column of the stage before, an item of a list, a path, a block's result.

    What a query binds within a value (`ListForm`, `Reduce`) has a name that nothing else in the query has."""

    variable: str
    type: ValueType


def as_variable(variable: str, type_: ValueType) -> EntityValue | VariableValue:
    """The value of a variable that is bound with this type."""
    return EntityValue(variable, type_) if isinstance(type_, EntityType) else VariableValue(variable, type_)


class ParameterValue(Struct, frozen=True):
    """The coerced value of a declared parameter; the same for every row."""

    name: str
    type: PropertyType


ConstantItem: TypeAlias = str | int | float | bool | None


class Constant(Struct, frozen=True):
    """A literal, or a list of literals of one type. Date and DateTime carry their text, which is parsed (and refused)
    when the query runs. `None` is null."""

    value: ConstantItem | tuple[ConstantItem, ...]
    type: ValueType


class Now(Struct, frozen=True):
    """The instant of the request, from the parameter `__nanograph_now`: one value for a whole query."""

    type: ClassVar[PropertyType] = DATETIME


# ---- values: tests --------------------------------------------------------------------------------------


class Operator(StrEnum):
    """How two values are tested. `contains` has become `SUBSTRING` or `MEMBER`, by the type of its left side."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    SUBSTRING = "substring"
    PREFIX = "prefix"
    MEMBER = "member"


class Compare(Struct, frozen=True):
    """`left operator right`. Null when either side is null, for every operator.

    Numbers compare by value across their types, strings and enums by code point, Bool false before true; lists, records
    and entities only for equality, entities by (type, id), the others item by item: unequal if a pair is, else null if
    the equality of a pair is.
    `SUBSTRING`, `PREFIX`: `right` occurs in, begins `left`. `MEMBER`: `left` is a list that holds `right`; unlike `In`
    it is false, not null, for a list that holds a null and no equal item.
    """

    left: Value
    operator: Operator
    right: Value

    @property
    def type(self) -> PropertyType:
        left, right = self.left.type, self.right.type
        # The items of a list and the fields of a record may be null, and so may be whether they are equal.
        holds_nulls = self.operator is not Operator.MEMBER and (is_list(left) or isinstance(left, RecordType))
        return BOOL.as_nullable(holds_nulls or left.nullable or right.nullable)


class And(Struct, frozen=True):
    """False if an operand is false, else null if one is null, else true."""

    operands: tuple[Value, ...]

    @property
    def type(self) -> PropertyType:
        return BOOL.as_nullable(any(operand.type.nullable for operand in self.operands))


class Or(Struct, frozen=True):
    """True if an operand is true, else null if one is null, else false."""

    operands: tuple[Value, ...]

    @property
    def type(self) -> PropertyType:
        return BOOL.as_nullable(any(operand.type.nullable for operand in self.operands))


class Not(Struct, frozen=True):
    """Null for null."""

    operand: Value

    @property
    def type(self) -> PropertyType:
        return BOOL.as_nullable(self.operand.type.nullable)


class IsNull(Struct, frozen=True):
    """Whether a value of any kind is null, or is not when `negated`. Never null itself."""

    type: ClassVar[PropertyType] = BOOL

    operand: Value
    negated: bool = False


class In(Struct, frozen=True):
    """Null when the item or the list is null; true when an item equals it; else null when the list holds a null; else
    false. A null item is null even in an empty list."""

    item: Value
    items: Value

    @property
    def type(self) -> PropertyType:
        return BOOL.as_nullable()


# What a search may take as its text, vector, distance or constant: never something that changes from row to row.
Operand: TypeAlias = ParameterValue | Constant


class TextMatch(Struct, frozen=True):
    """Whether the analysed text of a node property shares a token with the analysed query.

    `search` and `match_text` ask for an equal token, `fuzzy` for one within `max_edits` edits (2 when None).
    Never null: a null text matches nothing, so the value is then false. `field` of several types is a `UnionProperty`.
    """

    type: ClassVar[PropertyType] = BOOL

    function: TextFunction
    field: PropertyValue | UnionProperty
    query: Operand
    max_edits: Operand | None = None


# ---- values: calculations -------------------------------------------------------------------------------


class Arithmetic(Struct, frozen=True):
    """Two numbers: integers give I64, checked, a float operand makes F64. `+` also joins two texts or two lists, which
    the type tells. Null for a null operand."""

    left: Value
    operator: ArithmeticOperator
    right: Value
    type: ValueType


class Negative(Struct, frozen=True):
    operand: Value
    type: PropertyType


class Call(Struct, frozen=True):
    """A function of `language.query.functions` by its name. `written` is the call as text, for errors at run time."""

    function: str
    arguments: tuple[Value, ...]
    type: ValueType
    written: str = ""


class Branch(Struct, frozen=True):
    test: Value
    value: Value


class Case(Struct, frozen=True):
    """The value of the first branch whose test is true, or, with an operand, equals it; else `otherwise`, or null.
    Nothing is evaluated for rows that do not need it."""

    operand: Value | None
    branches: tuple[Branch, ...]
    otherwise: Value | None
    type: ValueType


class ListOf(Struct, frozen=True):
    """A list made of values that are not all constants."""

    items: tuple[Value, ...]
    type: ValueType


class Record(Struct, frozen=True):
    """Named values, in the order of the type's fields. Never null."""

    values: tuple[Value, ...]
    type: RecordType


class Field(Struct, frozen=True):
    """One value of a record; null when the record is."""

    record: Value
    name: str
    type: ValueType


class ListForm(Struct, frozen=True):
    """`map`, `any`, `all`, `none`, `single` over the items of a list, with `variable` bound to each of them in
    `condition` and `body` (a `VariableValue`). A null list gives null. Quantifiers are three-valued."""

    function: ListFunction
    variable: str
    items: Value
    condition: Value | None
    body: Value
    type: ValueType


class Reduce(Struct, frozen=True):
    """The `body` once per item, in order, with `accumulator` bound to the value so far. A null list gives null."""

    accumulator: str
    initial: Value
    variable: str
    items: Value
    body: Value
    type: ValueType


class MakePath(Struct, frozen=True):
    """A path from bound nodes, edges and paths whose ends meet; null when one of them is."""

    parts: tuple[Value, ...]
    type: PathType


# ---- values: rankings, outputs --------------------------------------------------------------------------


class NearestRank(Struct, frozen=True):
    """Nodes by distance of their vector to the query, closest first; `field.prop.distance` is the metric.

    A String `query` is embedded at the property's dimension first. Nodes without a vector have no rank. Unless it is
    `exact`, an index of many vectors may leave out some of the closest nodes.
    """

    field: PropertyValue | UnionProperty
    query: Operand
    exact: bool = False


class Bm25Rank(Struct, frozen=True):
    """Nodes by BM25 of their text for the query, best first. Nodes that share no token with it have no rank."""

    field: PropertyValue
    query: Operand


class FusedRank(Struct, frozen=True):
    """Reciprocal rank fusion of two rankings; `k` is 60 when None, and a parameter must bring it above 0."""

    first: NearestRank | Bm25Rank
    second: NearestRank | Bm25Rank
    k: Operand | None = None

    @property
    def variable(self) -> str:
        return self.first.field.variable


Ranking: TypeAlias = NearestRank | Bm25Rank | FusedRank


class Score(Struct, frozen=True):
    """What a ranking measured for the row: distance, BM25 score, fused score; null where the row has no rank.

    A `FusedRank` only occurs here when the plan fuses by the very same rank.
    """

    type: ClassVar[PropertyType] = F64

    rank: Ranking


class AggregateValue(Struct, frozen=True):
    """One aggregate over the rows of a group. Nulls are skipped; over nothing `count` gives 0, `collect` `[]`, the
    others null. Without an argument it counts rows (`count(*)`), with an `EntityValue` rows where it is bound.

    `distinct`: equal values count once. `fraction` is the constant of the percentiles. It is part of a larger value
    only until the query is lowered: in a plan it is a column of an `Aggregate` or the aggregate of a `BlockJoin`.
    """

    function: AggregateFunction
    argument: Value | None
    type: ValueType
    distinct: bool = False
    fraction: Operand | None = None


class OutputValue(Struct, frozen=True):
    """The value of an output column of the `Aggregate` below; what is above an `Aggregate` reads its columns so."""

    index: int
    type: ValueType


Value: TypeAlias = (
    PropertyValue
    | UnionProperty
    | MetaValue
    | EntityValue
    | NodeKey
    | VariableValue
    | ParameterValue
    | Constant
    | Now
    | Compare
    | And
    | Or
    | Not
    | IsNull
    | In
    | TextMatch
    | Arithmetic
    | Negative
    | Call
    | Case
    | ListOf
    | Record
    | Field
    | ListForm
    | Reduce
    | MakePath
    | Score
    | AggregateValue
    | OutputValue
)
Predicate: TypeAlias = Value
"""A Bool value that decides about a row: the row stays only when it is true."""


_OF_VARIABLE = (PropertyValue, EntityValue, MetaValue, VariableValue, UnionProperty)
_LEAVES = (Constant, ParameterValue, PropertyValue, EntityValue, MetaValue, VariableValue, OutputValue, Now)
"""What is made of no other values."""


def operands_of(value: Value) -> tuple[Value, ...]:
    """The values that a value is made of, in source order."""
    if isinstance(value, _LEAVES):
        return ()
    match value:
        case Compare() | Arithmetic():
            return (value.left, value.right)
        case And() | Or():
            return value.operands
        case Not() | IsNull() | Negative():
            return (value.operand,)
        case NodeKey():
            return (value.key,)
        case AggregateValue():
            return () if value.argument is None else (value.argument,)
        case In():
            return (value.item, value.items)
        case Call():
            return value.arguments
        case Case():
            branches = [part for branch in value.branches for part in (branch.test, branch.value)]
            return tuple(part for part in (value.operand, *branches, value.otherwise) if part is not None)
        case ListOf():
            return value.items
        case Record():
            return value.values
        case Field():
            return (value.record,)
        case ListForm():
            return tuple(part for part in (value.items, value.condition, value.body) if part is not None)
        case Reduce():
            return (value.initial, value.items, value.body)
        case MakePath():
            return value.parts
        case UnionProperty():
            return tuple(part for part in value.parts if part is not None)
        case TextMatch():
            return (value.field,)
        case Score(rank=FusedRank() as fused):
            return (fused.first.field, fused.second.field)
        case Score(rank=NearestRank() | Bm25Rank() as rank):
            return (rank.field,)
    return ()


def walk(value: Value) -> Iterator[Value]:
    """The value and everything it is made of. A loop: values may be deep."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        yield value
        waiting += reversed(operands_of(value))


def conjuncts(predicate: Predicate) -> Iterator[Predicate]:
    """The conditions that `and` joins, in source order, each of which decides about a row by itself."""
    waiting = [predicate]
    while waiting:
        predicate = waiting.pop()
        if isinstance(predicate, And):
            waiting += reversed(predicate.operands)
        else:
            yield predicate


def variables_of(value: Value) -> Iterator[str]:
    """The variables of the row that a value depends on, in source order: not those that it binds itself."""
    names: list[str] = []
    local: list[str] = []
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, _OF_VARIABLE):
            names.append(value.variable)
        elif isinstance(value, Compare):
            waiting += (value.right, value.left)
        elif not isinstance(value, _LEAVES):
            if isinstance(value, ListForm):
                local.append(value.variable)
            elif isinstance(value, Reduce):
                local += (value.variable, value.accumulator)
            waiting += reversed(operands_of(value))
    return iter(names) if not local else (name for name in names if name not in local)


def predicate_variables(predicate: Predicate) -> frozenset[str]:
    return frozenset(variables_of(predicate))
