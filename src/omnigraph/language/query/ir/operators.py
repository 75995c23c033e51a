"""The operators of a read and the plan they form.

Rows. A row assigns to each variable bound so far a node, a stored edge, or a value. A variable of several types knows
which of its `members` each row has. A variable bound inside an optional join may be null. Operators are pure functions
from rows to rows; all of them but `Rank`, `Fuse`, `Sort`, `Aggregate` and `Distinct` keep the order of their (left)
input, and groups come in the order of first appearance.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct

from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query.ir.values import (
    AggregateValue,
    Bm25Rank,
    FusedRank,
    NearestRank,
    ParameterValue,
    Predicate,
    Value,
)
from omnigraph.language.query.syntax import PathMode
from omnigraph.language.query.value_types import BOOL, F64, I64, EntityType, PathType, ValueType
from omnigraph.language.types import PropertyType

UNBOUNDED: Final = 2**62
"""The greatest number of hops of a traversal that names none."""


class Scan(Struct, frozen=True):
    """Every node of a type that satisfies all `predicates`, one row each. They mention `variable` alone."""

    variable: str
    type: NodeType
    predicates: tuple[Predicate, ...] = ()


class TypeUnionScan(Struct, frozen=True):
    """Every node of several types, type after type. Each scan has its own form of the predicates; `members` are the
    types of the variable, of which the scans are some."""

    variable: str
    members: tuple[NodeType, ...]
    scans: tuple[Scan, ...]


class Outer(Struct, frozen=True):
    """The leaf of a block: the outer row, reduced to `variables`. One row per distinct assignment is enough.

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
    distance lies in `min_hops..max_hops`, once. The start is at distance zero from itself, and at distance one if it
    has a self loop and `min_hops` is 1; it is not reported otherwise. `min_hops > max_hops` yields nothing.
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


class EdgeStep(Struct, frozen=True):
    """One way to take a hop: an edge type walked in one direction, from nodes of one type to nodes of another.

    `OUT` leads from `edge.from_type` to `edge.to_type`, `IN` back. Either direction is two steps, or one `BOTH` of an
    edge type with one node type at its ends: then a self loop is walked once.
    """

    edge: EdgeType
    direction: Direction
    start: NodeType
    end: NodeType


class Each(Struct, frozen=True):
    """What a hop has to satisfy: `conditions` over `edge`, the stored edge, `node`, where the hop arrives, and other
    bound variables. An edge variable of several types has the members of the `Walk`, a node its `arrivals`."""

    edge: str
    node: str
    conditions: tuple[Predicate, ...]


class Walk(Struct, frozen=True):
    """What every traversal over several edge types, between variables of several types, or with conditions on its hops
    has in common: a hop is any of the `steps`, and the search is over (type, id).

    `source_members`, `destination_members` and `edge_members` are the types of those variables in the order in which
    a binding numbers them. `node_members` are all types that the search may pass through, in the order of paths.
    """

    source: str
    source_members: tuple[NodeType, ...]
    steps: tuple[EdgeStep, ...]
    min_hops: int
    max_hops: int
    destination: str
    destination_members: tuple[NodeType, ...]
    edge_members: tuple[EdgeType, ...]
    node_members: tuple[NodeType, ...]
    each: Each | None = None

    @property
    def arrivals(self) -> tuple[NodeType, ...]:
        """The types of the node that a hop may arrive at, in the order of `node_members`."""
        ends = {step.end.type_key for step in self.steps}
        return tuple(member for member in self.node_members if member.type_key in ends)


class ExpandWalk(Struct, frozen=True):
    """As `Expand`, over a `Walk`. With `edge_variable` one row per stored edge of the only hop, by type, then id."""

    input: ReadOperator
    walk: Walk
    edge_variable: str | None = None
    closing: bool = False
    predicates: tuple[Predicate, ...] = ()


class PathExpand(Struct, frozen=True):
    """As `ExpandWalk`, with `path` bound to how the destination was reached.

    `SHORTEST`: one path of least length for each destination, of several the one whose sequence of edge (type name,
    id) is smallest. `ALL_SHORTEST`: a row for each of them. `TRAILS`: a row for every walk without a repeated edge
    whose length is within the hops. The distance rules of `Expand` hold for the first two.
    """

    input: ReadOperator
    walk: Walk
    mode: PathMode
    path: str
    path_type: PathType
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


class SemiJoin(Struct, frozen=True):
    """The rows of `input` for which `inner` has a row."""

    input: ReadOperator
    inner: ReadOperator
    correlated: tuple[str, ...]


class BlockJoin(Struct, frozen=True):
    """Every row of `input` with one more value, `output`: whether `inner` has a row for it (`aggregate` None), or an
    aggregate over the rows of `inner`. A row without a match has false, 0 for a count, `[]` for collect, else null."""

    input: ReadOperator
    inner: ReadOperator
    correlated: tuple[str, ...]
    output: str
    aggregate: AggregateValue | None = None

    @property
    def type(self) -> ValueType:
        return BOOL if self.aggregate is None else self.aggregate.type


class OptionalJoin(Struct, frozen=True):
    """Every row of `input` extended by each of its rows of `inner`, or once with null for all that `inner` binds.

    `introduced` are the variables that `inner` adds, with their types.
    """

    input: ReadOperator
    inner: ReadOperator
    correlated: tuple[str, ...]
    introduced: tuple[tuple[str, ValueType], ...]


class Unwind(Struct, frozen=True):
    """Every row once for each item of its list, null items too; a null or empty list drops the row."""

    input: ReadOperator
    items: Value
    variable: str
    type: ValueType


class BoundColumn(Struct, frozen=True):
    """A variable of the next stage and what it is bound to. An `EntityValue` stays an entity, with the members of
    `type`; everything else becomes a value of `type`, to which numbers are widened."""

    variable: str
    value: Value
    type: ValueType


class Bind(Struct, frozen=True):
    """The boundary of a stage: rows that bind these columns and nothing else."""

    input: ReadOperator
    columns: tuple[BoundColumn, ...]


class Distinct(Struct, frozen=True):
    """The first row of each combination of the `variables`, all that its input binds, with their types. Null equals
    null, NaN equals NaN, -0.0 equals 0.0, lists and records compare by content, entities by identity."""

    input: ReadOperator
    variables: tuple[tuple[str, ValueType], ...]


class UnionAll(Struct, frozen=True):
    """The rows of all inputs, one input after the other. They bind the same variables with the same types."""

    inputs: tuple[ReadOperator, ...]


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


Count: TypeAlias = int | ParameterValue
"""A number of rows; a parameter is at least 0 when it is bound."""


class BestNodes(Struct, frozen=True):
    """The rows of the first `count + offset` nodes that `variable` is bound to. The rows of one node follow each
    other."""

    input: ReadOperator
    variable: str
    count: Count
    offset: Count = 0


class Fuse(Struct, frozen=True):
    """Reciprocal rank fusion. `first` and `second` are the same match, each ranked by its own arm.

    An arm that ranks by `nearest` is cut to the best `limit + offset` nodes of its variable that have rows.
    In each arm the distinct nodes of `variable` are numbered by first appearance r = 0, 1, 2…; a node scores the
    sum over the arms that contain it of 1 / (k + r + 1). Best first; ties keep the order of `first`, then nodes
    found only by `second` in its order. The best `limit + offset` nodes are kept, each with all its rows from `first`
    (from `second` when `first` lacks it) in that arm's order.
    """

    first: ReadOperator
    second: ReadOperator
    variable: str
    rank: FusedRank
    limit: Count
    offset: Count = 0


class SortKey(Struct, frozen=True):
    """`nulls_first` None: nulls come first ascending and last descending. Entities order by (type name, id)."""

    value: Value
    descending: bool
    nulls_first: bool | None = None


class TieBreak(Struct, frozen=True):
    """A variable by whose id, or (type name, id), rows are ordered that all keys leave equal; paths by their edges."""

    variable: str
    type: EntityType | PathType


class Sort(Struct, frozen=True):
    """Stable sort by `keys`, then by the ids of the `tie_break` variables ascending, in that order.

    The tie-break covers every named entity and path of the match: rows that it leaves equal differ in nothing that a
    query could show. Above an `Aggregate` or a `Distinct` it is empty and the order of first appearance decides.
    """

    input: ReadOperator
    keys: tuple[SortKey, ...]
    tie_break: tuple[TieBreak, ...]


class Limit(Struct, frozen=True):
    """The first `count` rows after the first `offset`; without a count all of them."""

    input: ReadOperator
    count: Count | None
    offset: Count = 0


class Column(Struct, frozen=True):
    """One output column: its executed name and how its value comes about."""

    name: str
    value: Value


class Project(Struct, frozen=True):
    """The output columns of every row, in order. The top of every plan whose columns are not those of an
    `Aggregate`."""

    input: ReadOperator
    columns: tuple[Column, ...]


class AggregateColumn(Struct, frozen=True):
    name: str
    value: Value


class Aggregate(Struct, frozen=True):
    """One row per group; columns that are not `AggregateValue` are the grouping keys, of which null is a value too.

    Without keys there is one row, also over nothing. Groups come in the order of first appearance. Its columns are read
    as `OutputValue`; an `EntityValue` stays an entity there.
    """

    input: ReadOperator
    columns: tuple[AggregateColumn, ...]

    @property
    def keys(self) -> tuple[Value, ...]:
        return tuple(c.value for c in self.columns if not isinstance(c.value, AggregateValue))


ReadOperator: TypeAlias = (
    Scan
    | TypeUnionScan
    | Outer
    | Expand
    | ExpandWalk
    | PathExpand
    | CrossJoin
    | Filter
    | AntiJoin
    | SemiJoin
    | BlockJoin
    | OptionalJoin
    | Unwind
    | Bind
    | Distinct
    | UnionAll
    | Rank
    | BestNodes
    | Fuse
    | Sort
    | Limit
    | Project
    | Aggregate
)


def type_of_sum(type_: ValueType) -> PropertyType:
    """`sum` of integers is an exact I64, of floats F64; null over nothing."""
    return as_column_number(type_).as_nullable()


def as_column_number(type_: ValueType) -> PropertyType:
    return I64 if isinstance(type_, PropertyType) and type_.is_integer else F64


class QueryParameter(Struct, frozen=True):
    """`counts_rows`: it is a limit or an offset, and refused below 0."""

    name: str
    type: PropertyType
    counts_rows: bool = False


class OutputColumn(Struct, frozen=True):
    """The name and type of a result column as executed."""

    name: str
    type: ValueType


class ReadPlan(Struct, frozen=True):
    """A read, ready to run. `root` yields exactly the values of `columns`, in their order: it is a `Project`, or an
    `Aggregate` below nothing but `Sort` and `Limit`."""

    name: str
    parameters: tuple[QueryParameter, ...]
    root: ReadOperator
    columns: tuple[OutputColumn, ...]
