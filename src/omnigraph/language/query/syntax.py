"""The syntax tree of `.gq` as written, before any name is resolved.

The parser builds it; the type checker and the formatter read it. Nodes are immutable and compare by content, so two
layouts of one program are equal programs. Row filters of policies are trees of their own: comparisons of a row's
properties, joined by `and` and `or`, in which a bare name (`Alias`) is a property.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from omnigraph.language.source import Name, SyntaxNode

# ---- expressions ----------------------------------------------------------------------------------------


class Variable(SyntaxNode, frozen=True):
    """`$name`: a parameter or a binding; only the checker can tell."""

    name: str

    @property
    def is_anonymous(self) -> bool:
        return self.name == "_"


class PropertyAccess(SyntaxNode, frozen=True):
    """`$variable.property`"""

    variable: Variable
    property: Name


class StringLiteral(SyntaxNode, frozen=True):
    value: str


class IntegerLiteral(SyntaxNode, frozen=True):
    value: int


class FloatLiteral(SyntaxNode, frozen=True):
    """`text` keeps the written digits: the formatter must not change `0.10` into another spelling."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)


class BooleanLiteral(SyntaxNode, frozen=True):
    value: bool


class DateLiteral(SyntaxNode, frozen=True):
    """`date("…")`; the text is checked when it is used."""

    text: str


class DateTimeLiteral(SyntaxNode, frozen=True):
    """`datetime("…")`; the text is checked when it is used."""

    text: str


class ListLiteral(SyntaxNode, frozen=True):
    items: tuple[Literal, ...]


Literal: TypeAlias = (
    StringLiteral | IntegerLiteral | FloatLiteral | BooleanLiteral | DateLiteral | DateTimeLiteral | ListLiteral
)


class Now(SyntaxNode, frozen=True):
    """`now()`: the instant of the request."""


class Alias(SyntaxNode, frozen=True):
    """A bare name: an output column."""

    name: str


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


class NearestCall(SyntaxNode, frozen=True):
    target: PropertyAccess
    query: Expression


class TextCall(SyntaxNode, frozen=True):
    """`search`, `match_text` or `fuzzy`; only `fuzzy` may carry `max_edits`."""

    function: TextFunction
    field: Expression
    query: Expression
    max_edits: Expression | None


class Bm25Call(SyntaxNode, frozen=True):
    field: Expression
    query: Expression


class RrfCall(SyntaxNode, frozen=True):
    first: NearestCall | Bm25Call
    second: NearestCall | Bm25Call
    k: Expression | None


class AggregateCall(SyntaxNode, frozen=True):
    function: AggregateFunction
    argument: Expression


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


class Pin(SyntaxNode, frozen=True):
    """`property: value` inside the braces of a binding."""

    property: Name
    value: Cell


class Binding(SyntaxNode, frozen=True):
    """`$variable: Type { pins }`"""

    variable: Variable
    type_name: Name
    pins: tuple[Pin, ...]


class Hops(SyntaxNode, frozen=True):
    """`{minimum, maximum}`; an open maximum parses and is refused by the checker."""

    minimum: int
    maximum: int | None


class Traversal(SyntaxNode, frozen=True):
    """`$source edge $destination`, `$source <edge> $destination`, each with an edge variable or hop bounds."""

    source: Variable
    edge: Name
    undirected: bool
    edge_variable: Variable | None
    hops: Hops | None
    destination: Variable


class Filter(SyntaxNode, frozen=True):
    left: Expression
    operator: Comparison
    right: Expression


class TextClause(SyntaxNode, frozen=True):
    """A text call standing alone: the same as `call = true`."""

    call: TextCall


class Negation(SyntaxNode, frozen=True):
    clauses: tuple[Clause, ...]


Clause: TypeAlias = Negation | Binding | Traversal | Filter | TextClause


# ---- queries --------------------------------------------------------------------------------------------


class Parameter(SyntaxNode, frozen=True):
    """`$name: Type`. `dimension` is what was written in `Vector(…)`; whether the type exists is checked later."""

    name: str
    type_name: Name
    is_list: bool
    dimension: int | None
    nullable: bool


class Projection(SyntaxNode, frozen=True):
    expression: Expression
    alias: Name | None


class SortKey(SyntaxNode, frozen=True):
    """`direction` is None when none was written, which sorts ascending."""

    expression: Expression
    direction: str | None


class Match(SyntaxNode, frozen=True):
    clauses: tuple[Clause, ...]


class Return(SyntaxNode, frozen=True):
    projections: tuple[Projection, ...]


class Order(SyntaxNode, frozen=True):
    keys: tuple[SortKey, ...]


class Limit(SyntaxNode, frozen=True):
    count: int


class Read(SyntaxNode, frozen=True):
    match: Match
    returns: Return
    order: Order | None
    limit: Limit | None


class Assignment(SyntaxNode, frozen=True):
    property: Name
    value: Cell


class Predicate(SyntaxNode, frozen=True):
    property: Name
    operator: Comparison
    value: Cell


class Insert(SyntaxNode, frozen=True):
    type_name: Name
    assignments: tuple[Assignment, ...]


class Update(SyntaxNode, frozen=True):
    type_name: Name
    assignments: tuple[Assignment, ...]
    predicate: Predicate


class Delete(SyntaxNode, frozen=True):
    type_name: Name
    predicate: Predicate


Statement: TypeAlias = Insert | Update | Delete


class Writes(SyntaxNode, frozen=True):
    statements: tuple[Statement, ...]


class Meta(SyntaxNode, frozen=True):
    """`@description("…")` or `@instruction("…")`"""

    name: str
    text: str


class Query(SyntaxNode, frozen=True):
    name: Name
    parameters: tuple[Parameter, ...]
    metas: tuple[Meta, ...]
    body: Read | Writes

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


class AllOf(SyntaxNode, frozen=True):
    """Tests joined by `and`."""

    tests: tuple[RowTest, ...]


class AnyOf(SyntaxNode, frozen=True):
    """Tests joined by `or`."""

    tests: tuple[RowTest, ...]


RowTest: TypeAlias = Filter | BooleanLiteral | AllOf | AnyOf
