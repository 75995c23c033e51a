"""The syntax tree of `.gq` as written, before any name is resolved.

The parser builds it; the type checker and the formatter read it. Nodes are immutable and compare by content, so two
layouts of one program are equal programs. A row filter of a policy is an expression in which a bare name (`Alias`) is
a property of the row, as it is in the conditions of a mutation.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from omnigraph.language.source import Name, SyntaxNode

# ---- operands -------------------------------------------------------------------------------------------


class Variable(SyntaxNode, frozen=True):
    """`$name`: a parameter or a binding; only the checker can tell."""

    name: str

    @property
    def is_anonymous(self) -> bool:
        return self.name == "_"


class PropertyAccess(SyntaxNode, frozen=True):
    """`$variable.property`, of an entity or of a record. `lenient` (`$x.p?`): null where a type of the variable lacks
    the property."""

    variable: Variable
    property: Name
    lenient: bool = False


class MetaField(StrEnum):
    """What every entity has beside its properties."""

    ID = "@id"
    SRC = "@src"
    DST = "@dst"
    TYPE = "@type"


class MetaAccess(SyntaxNode, frozen=True):
    """`$x.@id`; without a variable, `@id` of the row that a mutation or a row filter tests."""

    variable: Variable | None
    field: MetaField


class StringLiteral(SyntaxNode, frozen=True):
    value: str


class IntegerLiteral(SyntaxNode, frozen=True):
    """Without a sign, and of any size: the checker refuses what does not fit 64 bits."""

    value: int


class FloatLiteral(SyntaxNode, frozen=True):
    """`text` keeps the written digits: the formatter must not change `0.10` into another spelling."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)


class BooleanLiteral(SyntaxNode, frozen=True):
    value: bool


class NullLiteral(SyntaxNode, frozen=True):
    pass


class DateLiteral(SyntaxNode, frozen=True):
    """`date("…")`; the text is checked when it is used."""

    text: str


class DateTimeLiteral(SyntaxNode, frozen=True):
    """`datetime("…")`; the text is checked when it is used."""

    text: str


Literal: TypeAlias = (
    StringLiteral | IntegerLiteral | FloatLiteral | BooleanLiteral | NullLiteral | DateLiteral | DateTimeLiteral
)


class ListLiteral(SyntaxNode, frozen=True):
    """`[a, b]` of any expressions."""

    items: tuple[Expression, ...]


class Now(SyntaxNode, frozen=True):
    """`now()`: the instant of the request."""


class Alias(SyntaxNode, frozen=True):
    """A bare name: an output column in `order`, a property in the condition of a mutation or a row filter."""

    name: str


# ---- operators ------------------------------------------------------------------------------------------


class Comparison(StrEnum):
    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"


class Compare(SyntaxNode, frozen=True):
    left: Expression
    operator: Comparison
    right: Expression


class In(SyntaxNode, frozen=True):
    """`item in items`"""

    item: Expression
    items: Expression


class IsNull(SyntaxNode, frozen=True):
    """`operand is null`, or `is not null` when `negated`."""

    operand: Expression
    negated: bool


class And(SyntaxNode, frozen=True):
    """At least two operands joined by `and`; one that is an `And` itself was written in parentheses."""

    operands: tuple[Expression, ...]


class Or(SyntaxNode, frozen=True):
    """At least two operands joined by `or`."""

    operands: tuple[Expression, ...]


class Not(SyntaxNode, frozen=True):
    operand: Expression


class ArithmeticOperator(StrEnum):
    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"


class Arithmetic(SyntaxNode, frozen=True):
    left: Expression
    operator: ArithmeticOperator
    right: Expression


class Negative(SyntaxNode, frozen=True):
    """`-operand`"""

    operand: Expression


class Parentheses(SyntaxNode, frozen=True):
    """`(operand)`: kept because written parentheses stay. `bare` looks through them."""

    operand: Expression


class CaseBranch(SyntaxNode, frozen=True):
    """`when test then value`"""

    test: Expression
    value: Expression


class Case(SyntaxNode, frozen=True):
    """`case [operand] when … then … [else …] end`"""

    operand: Expression | None
    branches: tuple[CaseBranch, ...]
    otherwise: Expression | None


# ---- calls ----------------------------------------------------------------------------------------------


class Argument(SyntaxNode, frozen=True):
    """`value`, or `name: value` in `record`."""

    name: Name | None
    value: Expression


class Call(SyntaxNode, frozen=True):
    """A function by its name; which functions there are is the checker's business."""

    function: Name
    arguments: tuple[Argument, ...]


class ListFunction(StrEnum):
    MAP = "map"
    ANY = "any"
    ALL = "all"
    NONE = "none"
    SINGLE = "single"


class ListForm(SyntaxNode, frozen=True):
    """`map($x in items where condition : body)`, `any($x in items : body)`; only `map` takes a condition."""

    function: ListFunction
    variable: Variable
    items: Expression
    condition: Expression | None
    body: Expression


class Reduce(SyntaxNode, frozen=True):
    """`reduce($a = initial, $x in items : body)`"""

    accumulator: Variable
    initial: Expression
    variable: Variable
    items: Expression
    body: Expression


class TextFunction(StrEnum):
    SEARCH = "search"
    MATCH_TEXT = "match_text"
    FUZZY = "fuzzy"


class TextCall(SyntaxNode, frozen=True):
    """`search`, `match_text` or `fuzzy`; only `fuzzy` may carry `max_edits`."""

    function: TextFunction
    field: Expression
    query: Expression
    max_edits: Expression | None


class NearestCall(SyntaxNode, frozen=True):
    """`nearest($x.p, query)`, perhaps with `exact: true`."""

    target: PropertyAccess
    query: Expression
    exact: bool | None = None


class Bm25Call(SyntaxNode, frozen=True):
    field: Expression
    query: Expression


class RrfCall(SyntaxNode, frozen=True):
    first: NearestCall | Bm25Call
    second: NearestCall | Bm25Call
    k: Expression | None


class AggregateFunction(StrEnum):
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    COLLECT = "collect"
    STDEV = "stdev"
    STDEVP = "stdevp"
    PERCENTILE_CONT = "percentile_cont"
    PERCENTILE_DISC = "percentile_disc"


class AggregateCall(SyntaxNode, frozen=True):
    """`sum(argument)`, `count(distinct argument)`, `percentile_cont(argument, fraction)`; `count(*)` has none."""

    function: AggregateFunction
    argument: Expression | None
    distinct: bool = False
    fraction: Expression | None = None


class Negation(SyntaxNode, frozen=True):
    """`not { clauses }`: no match. It may be a clause, or an operand of `and` and `or`."""

    clauses: tuple[Clause, ...]


class ExistsBlock(SyntaxNode, frozen=True):
    """`exists { clauses }`"""

    clauses: tuple[Clause, ...]


class AggregateBlock(SyntaxNode, frozen=True):
    """`count { clauses }`, `sum(argument) { clauses }`: an aggregate over the matches of a pattern."""

    aggregate: AggregateCall
    clauses: tuple[Clause, ...]


Expression: TypeAlias = (
    Variable
    | PropertyAccess
    | MetaAccess
    | Literal
    | ListLiteral
    | Now
    | Alias
    | Compare
    | In
    | IsNull
    | And
    | Or
    | Not
    | Arithmetic
    | Negative
    | Parentheses
    | Case
    | Call
    | ListForm
    | Reduce
    | TextCall
    | NearestCall
    | Bm25Call
    | RrfCall
    | AggregateCall
    | Negation
    | ExistsBlock
    | AggregateBlock
)


def bare(expression: Expression) -> Expression:
    """The expression without the parentheses around it."""
    while isinstance(expression, Parentheses):
        expression = expression.operand
    return expression


# ---- clauses --------------------------------------------------------------------------------------------


class Pin(SyntaxNode, frozen=True):
    """`property: value` inside the braces of a binding."""

    property: Name
    value: Expression


class Binding(SyntaxNode, frozen=True):
    """`$variable: Type { pins }`, `$variable: (A | B)`, and `$variable: *`, which names no type."""

    variable: Variable
    type_names: tuple[Name, ...]
    pins: tuple[Pin, ...]


class Selector(SyntaxNode, frozen=True):
    """Which edges a hop may take: one name, `(x | y)`, or `*`, which names none; `<…>` walks them either way."""

    edges: tuple[Name, ...]
    undirected: bool = False


class Hops(SyntaxNode, frozen=True):
    """`{minimum, maximum}`; without a maximum there is no upper bound."""

    minimum: int
    maximum: int | None


class Each(SyntaxNode, frozen=True):
    """`each $edge $node { clauses }`: what every hop has to satisfy. The checker takes nothing but filters there."""

    edge: Variable
    node: Variable
    clauses: tuple[Clause, ...]


class Traversal(SyntaxNode, frozen=True):
    """`$source edge $destination`, with an edge variable, hop bounds or conditions on its hops."""

    source: Variable
    selector: Selector
    edge_variable: Variable | None
    hops: Hops | None
    destination: Variable
    each: Each | None = None


class PathMode(StrEnum):
    SHORTEST = "shortest"
    ALL_SHORTEST = "all_shortest"
    TRAILS = "trails"


class Path(SyntaxNode, frozen=True):
    """`path $variable: shortest $a edge{1,6} $b`"""

    variable: Variable
    mode: PathMode
    traversal: Traversal


class Filter(SyntaxNode, frozen=True):
    """An expression as a clause: its rows are those for which it is true."""

    condition: Expression


class Optional(SyntaxNode, frozen=True):
    """`optional { clauses }`"""

    clauses: tuple[Clause, ...]


Clause: TypeAlias = Negation | Optional | Binding | Path | Traversal | Filter


# ---- reads ----------------------------------------------------------------------------------------------


class Unwind(SyntaxNode, frozen=True):
    """`unwind items as $variable`"""

    items: Expression
    variable: Variable


class Match(SyntaxNode, frozen=True):
    clauses: tuple[Clause, ...]


class Projection(SyntaxNode, frozen=True):
    """The alias may be any text: `as "loans per year"`."""

    expression: Expression
    alias: Name | None


class Return(SyntaxNode, frozen=True):
    projections: tuple[Projection, ...]
    distinct: bool = False


class SortKey(SyntaxNode, frozen=True):
    """`direction` is None when none was written, which sorts ascending; `nulls` is `first`, `last` or None."""

    expression: Expression
    direction: str | None
    nulls: str | None = None


class Order(SyntaxNode, frozen=True):
    keys: tuple[SortKey, ...]


class RowCount(SyntaxNode, frozen=True):
    """What `limit` or `offset` is given: a literal or a parameter."""

    value: IntegerLiteral | Variable


class Stage(SyntaxNode, frozen=True):
    unwinds: tuple[Unwind, ...]
    match: Match | None
    returns: Return
    order: Order | None
    limit: RowCount | None
    offset: RowCount | None


class Chain(SyntaxNode, frozen=True):
    """Stages joined by `then`. `head` is a read in braces whose rows the first of the stages gets."""

    head: Read | None
    stages: tuple[Stage, ...]


class Read(SyntaxNode, frozen=True):
    """Chains joined by `union`; `keeps_all[i]` says that the i-th of these words was `union all`."""

    chains: tuple[Chain, ...]
    keeps_all: tuple[bool, ...] = ()


# ---- writes ---------------------------------------------------------------------------------------------


class Assignment(SyntaxNode, frozen=True):
    property: Name
    value: Expression


class InsertMode(StrEnum):
    """`insert` replaces or adds, `insert new` only adds, `upsert` changes what is assigned, or adds."""

    INSERT = "insert"
    NEW = "insert new"
    UPSERT = "upsert"


class Insert(SyntaxNode, frozen=True):
    type_name: Name
    assignments: tuple[Assignment, ...]
    mode: InsertMode = InsertMode.INSERT


class Update(SyntaxNode, frozen=True):
    """`update Type set { … } where condition`"""

    type_name: Name
    assignments: tuple[Assignment, ...]
    condition: Expression


class Delete(SyntaxNode, frozen=True):
    """`delete Type where condition`"""

    type_name: Name
    condition: Expression


class UpdateVariable(SyntaxNode, frozen=True):
    """`update $variable set { … }`, after a feed."""

    variable: Variable
    assignments: tuple[Assignment, ...]


class DeleteVariable(SyntaxNode, frozen=True):
    """`delete $variable`, after a feed."""

    variable: Variable


class Feed(SyntaxNode, frozen=True):
    """The rows that statements run for: a chain and `then`, unwound lists, a match; at least one of them."""

    chain: Chain | None
    unwinds: tuple[Unwind, ...]
    match: Match | None


PlainWrite: TypeAlias = Insert | Update | Delete
RowWrite: TypeAlias = Insert | Update | Delete | UpdateVariable | DeleteVariable
"""The checker refuses `Update` and `Delete` after a feed."""


class ForEachRow(SyntaxNode, frozen=True):
    feed: Feed
    statements: tuple[RowWrite, ...]


Statement: TypeAlias = PlainWrite | ForEachRow


class Writes(SyntaxNode, frozen=True):
    statements: tuple[Statement, ...]


# ---- queries --------------------------------------------------------------------------------------------


class Parameter(SyntaxNode, frozen=True):
    """`$name: Type`. `dimension` is what was written in `Vector(…)`; whether the type exists is checked later."""

    name: str
    type_name: Name
    is_list: bool
    dimension: int | None
    nullable: bool


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


class BranchCreate(SyntaxNode, frozen=True):
    """`branch create name from source`"""

    name: Name
    source: Name | None


class BranchDelete(SyntaxNode, frozen=True):
    name: Name


class BranchMerge(SyntaxNode, frozen=True):
    """`branch merge source into target`"""

    source: Name
    target: Name | None


class BranchList(SyntaxNode, frozen=True):
    pass


class Explain(SyntaxNode, frozen=True):
    """`explain query …`"""

    query: Query


TextStatement: TypeAlias = BranchCreate | BranchDelete | BranchMerge | BranchList | Explain


class QueryFile(Struct, frozen=True):
    """The query declarations of a text, or its only statement."""

    queries: tuple[Query, ...]
    statement: TextStatement | None = None
