"""The syntax tree of `.gq` as written, before any name is resolved.

The parser builds it; the type checker and the formatter read it. Nodes are immutable and compare by content: a
`TextSpan` equals every other, so two layouts of one program are equal programs. Row filters of policies are trees of
their own: comparisons of a row's properties, joined by `and` and `or`, in which a bare name (`Alias`) is a property.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct


class TextSpan(Struct, frozen=True, eq=False, gc=False):
    """The characters `text[start:end]` that a node was read from. Takes no part in comparing nodes."""

    start: int
    end: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpan)

    def __hash__(self) -> int:
        return 0


class Name(Struct, frozen=True):
    """An identifier as written, with its place."""

    text: str
    at: TextSpan


# ---- expressions ----------------------------------------------------------------------------------------


class Variable(Struct, frozen=True):
    """`$name`: a parameter or a binding; only the checker can tell."""

    name: str
    at: TextSpan

    @property
    def is_anonymous(self) -> bool:
        return self.name == "_"


class PropertyAccess(Struct, frozen=True):
    """`$variable.property`"""

    variable: Variable
    property: Name
    at: TextSpan


class StringLiteral(Struct, frozen=True):
    value: str
    at: TextSpan


class IntegerLiteral(Struct, frozen=True):
    value: int
    at: TextSpan


class FloatLiteral(Struct, frozen=True):
    """`text` keeps the written digits: the formatter must not change `0.10` into another spelling."""

    text: str
    at: TextSpan

    @property
    def value(self) -> float:
        return float(self.text)


class BooleanLiteral(Struct, frozen=True):
    value: bool
    at: TextSpan


class DateLiteral(Struct, frozen=True):
    """`date("…")`; the text is checked when it is used."""

    text: str
    at: TextSpan


class DateTimeLiteral(Struct, frozen=True):
    """`datetime("…")`; the text is checked when it is used."""

    text: str
    at: TextSpan


class ListLiteral(Struct, frozen=True):
    items: tuple[Literal, ...]
    at: TextSpan


Literal: TypeAlias = (
    StringLiteral | IntegerLiteral | FloatLiteral | BooleanLiteral | DateLiteral | DateTimeLiteral | ListLiteral
)


class Now(Struct, frozen=True):
    """`now()`: the instant of the request."""

    at: TextSpan


class Alias(Struct, frozen=True):
    """A bare name: an output column."""

    name: str
    at: TextSpan


class TextFunction(StrEnum):
    SEARCH = "search"
    MATCH_TEXT = "match_text"
    FUZZY = "fuzzy"


class AggregateFunction(StrEnum):
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


class NearestCall(Struct, frozen=True):
    target: PropertyAccess
    query: Expression
    at: TextSpan


class TextCall(Struct, frozen=True):
    """`search`, `match_text` or `fuzzy`; only `fuzzy` may carry `max_edits`."""

    function: TextFunction
    field: Expression
    query: Expression
    max_edits: Expression | None
    at: TextSpan


class Bm25Call(Struct, frozen=True):
    field: Expression
    query: Expression
    at: TextSpan


class RrfCall(Struct, frozen=True):
    first: NearestCall | Bm25Call
    second: NearestCall | Bm25Call
    k: Expression | None
    at: TextSpan


class AggregateCall(Struct, frozen=True):
    function: AggregateFunction
    argument: Expression
    at: TextSpan


Expression: TypeAlias = (
    Variable | PropertyAccess | Literal | Now | Alias | NearestCall | TextCall | Bm25Call | RrfCall | AggregateCall
)
Cell: TypeAlias = Literal | Variable | Now


# ---- clauses --------------------------------------------------------------------------------------------


class Comparison(StrEnum):
    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"


class Pin(Struct, frozen=True):
    """`property: value` inside the braces of a binding."""

    property: Name
    value: Cell
    at: TextSpan


class Binding(Struct, frozen=True):
    """`$variable: Type { pins }`"""

    variable: Variable
    type_name: Name
    pins: tuple[Pin, ...]
    at: TextSpan


class Hops(Struct, frozen=True):
    """`{minimum, maximum}`; an open maximum parses and is refused by the checker."""

    minimum: int
    maximum: int | None
    at: TextSpan


class Traversal(Struct, frozen=True):
    """`$source edge $destination`, `$source <edge> $destination`, each with an edge variable or hop bounds."""

    source: Variable
    edge: Name
    undirected: bool
    edge_variable: Variable | None
    hops: Hops | None
    destination: Variable
    at: TextSpan


class Filter(Struct, frozen=True):
    left: Expression
    operator: Comparison
    right: Expression
    at: TextSpan


class TextClause(Struct, frozen=True):
    """A text call standing alone: the same as `call = true`."""

    call: TextCall
    at: TextSpan


class Negation(Struct, frozen=True):
    clauses: tuple[Clause, ...]
    at: TextSpan


Clause: TypeAlias = Negation | Binding | Traversal | Filter | TextClause


# ---- queries --------------------------------------------------------------------------------------------


class Parameter(Struct, frozen=True):
    """`$name: Type`. `dimension` is what was written in `Vector(…)`; whether the type exists is checked later."""

    name: str
    type_name: Name
    is_list: bool
    dimension: int | None
    nullable: bool
    at: TextSpan


class Projection(Struct, frozen=True):
    expression: Expression
    alias: Name | None
    at: TextSpan


class SortKey(Struct, frozen=True):
    """`direction` is None when none was written, which sorts ascending."""

    expression: Expression
    direction: str | None
    at: TextSpan


class Match(Struct, frozen=True):
    clauses: tuple[Clause, ...]
    at: TextSpan


class Return(Struct, frozen=True):
    projections: tuple[Projection, ...]
    at: TextSpan


class Order(Struct, frozen=True):
    keys: tuple[SortKey, ...]
    at: TextSpan


class Limit(Struct, frozen=True):
    count: int
    at: TextSpan


class Read(Struct, frozen=True):
    match: Match
    returns: Return
    order: Order | None
    limit: Limit | None
    at: TextSpan


class Assignment(Struct, frozen=True):
    property: Name
    value: Cell
    at: TextSpan


class Predicate(Struct, frozen=True):
    property: Name
    operator: Comparison
    value: Cell
    at: TextSpan


class Insert(Struct, frozen=True):
    type_name: Name
    assignments: tuple[Assignment, ...]
    at: TextSpan


class Update(Struct, frozen=True):
    type_name: Name
    assignments: tuple[Assignment, ...]
    predicate: Predicate
    at: TextSpan


class Delete(Struct, frozen=True):
    type_name: Name
    predicate: Predicate
    at: TextSpan


Statement: TypeAlias = Insert | Update | Delete


class Writes(Struct, frozen=True):
    statements: tuple[Statement, ...]
    at: TextSpan


class Meta(Struct, frozen=True):
    """`@description("…")` or `@instruction("…")`"""

    name: str
    text: str
    at: TextSpan


class Query(Struct, frozen=True):
    name: Name
    parameters: tuple[Parameter, ...]
    metas: tuple[Meta, ...]
    body: Read | Writes
    at: TextSpan

    @property
    def is_mutation(self) -> bool:
        return isinstance(self.body, Writes)

    @property
    def description(self) -> str | None:
        return self._meta("@description")

    @property
    def instruction(self) -> str | None:
        return self._meta("@instruction")

    def _meta(self, name: str) -> str | None:
        return next((meta.text for meta in self.metas if meta.name == name), None)


class QueryFile(Struct, frozen=True):
    queries: tuple[Query, ...]


class AllOf(Struct, frozen=True):
    """Tests joined by `and`."""

    tests: tuple[RowTest, ...]
    at: TextSpan


class AnyOf(Struct, frozen=True):
    """Tests joined by `or`."""

    tests: tuple[RowTest, ...]
    at: TextSpan


RowTest: TypeAlias = Filter | BooleanLiteral | AllOf | AnyOf
