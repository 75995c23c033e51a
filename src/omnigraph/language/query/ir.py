"""The operator tree of a compiled query: everything an executor needs, with nothing left to look up.

Built by `lower`, run by the engine. Types, directions, roots, output names and tie-breaks are resolved here once;
an executor never reads the syntax tree or the catalog again. Variables are plain strings without `$`; a variable
that nobody named (`$_`, or the implicit root of a group) begins with `#` and can't be referred to by a value.

Rows. A row assigns a node to every node variable and a stored edge to every edge variable bound so far. Operators
are pure functions from rows to rows, and all of them but `Rank`, `Fuse`, `Sort` and `Aggregate` keep the order of
their (left) input.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar, TypeAlias

from msgspec import Struct

from omnigraph.language.catalog import EdgeType, NodeType, Property
from omnigraph.language.query.syntax import AggregateFunction, TextFunction
from omnigraph.language.types import INTEGERS, PropertyType, Scalar

NOW_PARAMETER = "__nanograph_now"

STRING = PropertyType(Scalar.STRING)
BOOL = PropertyType(Scalar.BOOL)
I64 = PropertyType(Scalar.I64)
F64 = PropertyType(Scalar.F64)
DATETIME = PropertyType(Scalar.DATETIME)


# ---- values ---------------------------------------------------------------------------------------------


class PropertyValue(Struct, frozen=True):
    """A property of the node or edge that a variable is bound to; null where the stored value is null."""

    variable: str
    owner: NodeType | EdgeType
    prop: Property

    @property
    def type(self) -> PropertyType:
        return self.prop.type


class NodeId(Struct, frozen=True):
    """The id of the node a variable is bound to: what a bare `$x` stands for."""

    type: ClassVar[PropertyType] = STRING

    variable: str
    owner: NodeType


class ParameterValue(Struct, frozen=True):
    """The coerced value of a declared parameter; the same for every row."""

    name: str
    type: PropertyType


ConstantItem: TypeAlias = str | int | float | bool


class Constant(Struct, frozen=True):
    """A literal. Date and DateTime carry their text, which is parsed (and refused) when the query runs."""

    value: ConstantItem | tuple[ConstantItem, ...]
    type: PropertyType


class Now(Struct, frozen=True):
    """The instant of the request, from the parameter `__nanograph_now`: one value for a whole query."""

    type: ClassVar[PropertyType] = DATETIME


# What a search may take as its text, vector, distance or constant: never something that changes from row to row.
Operand: TypeAlias = ParameterValue | Constant


class TextMatch(Struct, frozen=True):
    """Whether the analysed text of a node property shares a token with the analysed query.

    `search` and `match_text` ask for an equal token, `fuzzy` for one within `max_edits` edits (2 when None).
    Never null: a null text matches nothing, so the value is then false.
    """

    type: ClassVar[PropertyType] = BOOL

    function: TextFunction
    field: PropertyValue
    query: Operand
    max_edits: Operand | None = None


class NearestRank(Struct, frozen=True):
    """Nodes by distance of their vector to the query, closest first; `field.prop.distance` is the metric.

    A String `query` is embedded at the property's dimension first. Nodes without a vector have no rank.
    """

    field: PropertyValue
    query: Operand


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


class OutputValue(Struct, frozen=True):
    """The value of an output column of the `Aggregate` below; only sort keys above an `Aggregate` use it."""

    index: int
    type: PropertyType


Value: TypeAlias = PropertyValue | NodeId | ParameterValue | Constant | Now | TextMatch | Score | OutputValue


def variables_of(value: Value) -> Iterator[str]:
    """The variables whose binding a value depends on."""
    match value:
        case PropertyValue() | NodeId():
            yield value.variable
        case TextMatch():
            yield value.field.variable
        case Score(rank=FusedRank() as fused):
            yield fused.first.field.variable
            yield fused.second.field.variable
        case Score(rank=NearestRank() | Bm25Rank() as rank):
            yield rank.field.variable


# ---- predicates -----------------------------------------------------------------------------------------


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
    """`left operator right`. Not true when either side is null, for every operator.

    Numbers compare by value across their types, strings and enums by code point, Bool false before true.
    `SUBSTRING`, `PREFIX`: `right` occurs in, begins `left`. `MEMBER`: `left` is a list that holds `right`.
    """

    left: Value
    operator: Operator
    right: Value


Predicate: TypeAlias = Compare | TextMatch


def predicate_variables(predicate: Predicate) -> frozenset[str]:
    if isinstance(predicate, TextMatch):
        return frozenset(variables_of(predicate))
    return frozenset((*variables_of(predicate.left), *variables_of(predicate.right)))


# ---- read operators -------------------------------------------------------------------------------------


class Scan(Struct, frozen=True):
    """Every node of a type that satisfies all `predicates`, one row each. They mention `variable` alone."""

    variable: str
    type: NodeType
    predicates: tuple[Predicate, ...] = ()


class Outer(Struct, frozen=True):
    """The leaf of a negation: the outer row, reduced to `variables`. One row per distinct assignment is enough.

    Without variables it is the one empty row, the leaf of a match that binds nothing.
    """

    variables: tuple[str, ...]


class Direction(StrEnum):
    """How an edge is walked from the source variable: along src → dst, against it, or both."""

    OUT = "out"
    IN = "in"
    BOTH = "both"

    @property
    def flipped(self) -> Direction:
        return {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT}.get(self, self)


class Expand(Struct, frozen=True):
    """Walk an edge type from the node bound to `source`.

    Without `edge_variable`: breadth-first search from `source`; each row is extended by every node whose shortest
    distance lies in `min_hops..max_hops`, once. The start is at distance one from itself if it has a self loop, and
    is not reported otherwise. `min_hops > max_hops` yields nothing: several hops over an edge with different
    endpoint types.
    With `edge_variable`: one row per stored edge in `direction`, in edge id order, both variables bound.

    `closing`: `destination` is bound already, and the expansion is a test that keeps the rows whose result
    includes it (with an edge variable, once per edge). Each closing expansion is its own test.
    `predicates` mention `destination` or `edge_variable` alone and filter the result; they never prune the search.
    """

    input: ReadOperator
    source: str
    edge: EdgeType
    direction: Direction
    min_hops: int
    max_hops: int
    destination: str
    destination_type: NodeType
    edge_variable: str | None = None
    closing: bool = False
    predicates: tuple[Predicate, ...] = ()


class CrossJoin(Struct, frozen=True):
    """Every left row with every right row; the right side repeats within each left row."""

    left: ReadOperator
    right: ReadOperator


class Filter(Struct, frozen=True):
    """The rows for which every predicate is true."""

    input: ReadOperator
    predicates: tuple[Predicate, ...]


class AntiJoin(Struct, frozen=True):
    """The rows of `input` for which `inner` has no row.

    `inner` reads the outer row through its `Outer` leaf; `correlated` names the variables it reads.
    """

    input: ReadOperator
    inner: ReadOperator
    correlated: tuple[str, ...]


class Rank(Struct, frozen=True):
    """The rows in the order of a ranking, best first, ties by the node's id ascending; rows without a rank go.

    Directly above the `Scan` of its variable when that is a scan root: a `Limit` or `BestNodes` above then asks for
    as many ranked nodes as it needs. Otherwise it ranks the rows of the whole match.
    `starts` are other ways to the nodes of such a scan: the traversals that connect its variable, each begun at
    another variable that has predicates. Every node that has a row in the match has one in each of them.
    """

    input: ReadOperator
    rank: NearestRank | Bm25Rank
    starts: tuple[ReadOperator, ...] = ()


class BestNodes(Struct, frozen=True):
    """The rows of the first `count` nodes that `variable` is bound to. The rows of one node follow each other."""

    input: ReadOperator
    variable: str
    count: int


class Fuse(Struct, frozen=True):
    """Reciprocal rank fusion. `first` and `second` are the same match, each ranked by its own arm.

    An arm that ranks by `nearest` is cut to the best `limit` nodes of its variable that have rows.
    In each arm the distinct nodes of `variable` are numbered by first appearance r = 0, 1, 2…; a node scores the
    sum over the arms that contain it of 1 / (k + r + 1). Best first; ties keep the order of `first`, then nodes
    found only by `second` in its order. The best `limit` nodes are kept, each with all its rows from `first` (from
    `second` when `first` lacks it) in that arm's order.
    """

    first: ReadOperator
    second: ReadOperator
    variable: str
    rank: FusedRank
    limit: int


class SortKey(Struct, frozen=True):
    """Nulls come first ascending and last descending."""

    value: Value
    descending: bool


class Sort(Struct, frozen=True):
    """Stable sort by `keys`, then by the ids of the `tie_break` variables ascending, in that order.

    The tie-break covers every named variable, so the order is total. Above an `Aggregate` it is empty and the order
    of first appearance decides.
    """

    input: ReadOperator
    keys: tuple[SortKey, ...]
    tie_break: tuple[str, ...]


class Limit(Struct, frozen=True):
    """The first `count` rows."""

    input: ReadOperator
    count: int


class Column(Struct, frozen=True):
    """One output column: its executed name and how its value comes about. Names may repeat."""

    name: str
    value: Value


class Project(Struct, frozen=True):
    """The output columns of every row, in order. Always the top of a plan that does not aggregate."""

    input: ReadOperator
    columns: tuple[Column, ...]


class AggregateValue(Struct, frozen=True):
    """One aggregate over the rows of a group. Nulls are skipped; all-null gives null, `count` gives 0.

    `count` gives I64, `sum` of integers an exact I64 and of floats F64, `avg` F64, `min` and `max` the type of their
    argument.
    """

    function: AggregateFunction
    argument: Value

    @property
    def type(self) -> PropertyType:
        match self.function:
            case AggregateFunction.COUNT:
                return I64
            case AggregateFunction.SUM:
                return type_of_sum(self.argument.type)
            case AggregateFunction.AVG:
                return F64.as_nullable()
            case _:
                return self.argument.type.as_nullable()


def type_of_sum(type_: PropertyType) -> PropertyType:
    """What `sum` gives for numbers of a type."""
    return (I64 if type_.scalar in INTEGERS else F64).as_nullable()


class AggregateColumn(Struct, frozen=True):
    """One output column of an `Aggregate`: a grouping key, or an aggregate."""

    name: str
    value: Value | AggregateValue


class Aggregate(Struct, frozen=True):
    """One row per distinct combination of the grouping keys, in order of first appearance; null is a key too.

    Without grouping keys there is always exactly one row, over no input rows too.
    """

    input: ReadOperator
    columns: tuple[AggregateColumn, ...]

    @property
    def keys(self) -> tuple[Value, ...]:
        return tuple(c.value for c in self.columns if not isinstance(c.value, AggregateValue))


ReadOperator: TypeAlias = (
    Scan | Outer | Expand | CrossJoin | Filter | AntiJoin | Rank | BestNodes | Fuse | Sort | Limit | Project | Aggregate
)


class QueryParameter(Struct, frozen=True):
    name: str
    type: PropertyType


class OutputColumn(Struct, frozen=True):
    """The name and type of a result column as executed. Both aggregates and properties may repeat a name."""

    name: str
    type: PropertyType


class ReadPlan(Struct, frozen=True):
    """A read, ready to run. `root` yields exactly the values of `columns`, in their order."""

    name: str
    parameters: tuple[QueryParameter, ...]
    root: ReadOperator
    columns: tuple[OutputColumn, ...]


# ---- write statements -----------------------------------------------------------------------------------


class Assign(Struct, frozen=True):
    """A property and the value it gets, converted to the stored type, with range checks, when the query runs.

    An integer that meets a float property is widened; a float never becomes an integer.
    """

    property: Property
    value: Value


class Endpoint(StrEnum):
    """The two ends of an edge, by the names that mutations use."""

    FROM = "from"
    TO = "to"


class Where(Struct, frozen=True):
    """The one comparison of an update or delete. Null never satisfies it, nor does a list or vector column."""

    column: Property | Endpoint
    operator: Operator
    value: Value


class InsertNode(Struct, frozen=True):
    """A keyed type: replace the whole node of the derived id, or add it. Otherwise: add one with a fresh id.

    Properties that are not assigned become null.
    """

    type: NodeType
    assignments: tuple[Assign, ...]


class InsertEdge(Struct, frozen=True):
    """Add one edge with a fresh id between the nodes whose ids are `source` and `target`."""

    type: EdgeType
    source: Value
    target: Value
    assignments: tuple[Assign, ...]


class UpdateNodes(Struct, frozen=True):
    """Give every matching node the assigned values and leave the rest of it alone. Never touches key members."""

    type: NodeType
    assignments: tuple[Assign, ...]
    where: Where


class DeleteNodes(Struct, frozen=True):
    """Remove every matching node and, from each of the `cascades`, every edge that touches one."""

    type: NodeType
    where: Where
    cascades: tuple[EdgeType, ...]


class DeleteEdges(Struct, frozen=True):
    type: EdgeType
    where: Where


WriteStatement: TypeAlias = InsertNode | InsertEdge | UpdateNodes | DeleteNodes | DeleteEdges


class WritePlan(Struct, frozen=True):
    """A mutation, ready to run: statements in order, one atomic commit.

    Either inserts and updates, of which later statements see earlier ones, or deletes, which all see the committed
    state; never both.
    """

    name: str
    parameters: tuple[QueryParameter, ...]
    statements: tuple[WriteStatement, ...]

    @property
    def only_deletes(self) -> bool:
        return all(isinstance(statement, DeleteNodes | DeleteEdges) for statement in self.statements)

    @property
    def is_insert_only(self) -> bool:
        return all(isinstance(statement, InsertNode | InsertEdge) for statement in self.statements)


Plan: TypeAlias = ReadPlan | WritePlan
