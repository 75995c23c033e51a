"""A query whose names and types are resolved, in the order it was written.

The type checker produces it; lowering turns it into operators and the operation descriptor reads its types. A value
here may hold what a plan's can't: an aggregate as a part of it, and the hidden variable of a block (`Query.blocks`).
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import PathMode
from omnigraph.language.query.value_types import PathType, ValueType
from omnigraph.language.source import NOWHERE, TextSpan

# ---- clauses --------------------------------------------------------------------------------------------


class Binding(Struct, frozen=True):
    """`pins` are conditions of `variable` alone. `types` are those that this clause allows; the type of the variable,
    which all clauses together narrow, is in the scope."""

    variable: str
    types: tuple[NodeType, ...]
    pins: tuple[ir.Value, ...]
    at: TextSpan = NOWHERE


class Traversal(Struct, frozen=True):
    """A traversal over one edge type between nodes of one type each, without conditions on its hops.

    `direction` is seen from `source` as written. Each `$_` has a hidden name of its own.
    """

    source: str
    destination: str
    edge: EdgeType
    direction: ir.Direction
    source_type: NodeType
    destination_type: NodeType
    min_hops: int
    max_hops: int
    edge_variable: str | None
    at: TextSpan = NOWHERE


class WalkTraversal(Struct, frozen=True):
    """Every other traversal, seen from the source as written; with `path`, one that binds how it was walked."""

    walk: ir.Walk
    edge_variable: str | None = None
    path: str | None = None
    mode: PathMode | None = None
    path_type: PathType | None = None
    at: TextSpan = NOWHERE


class Filter(Struct, frozen=True):
    predicate: ir.Value
    at: TextSpan = NOWHERE


class Negation(Struct, frozen=True):
    clauses: tuple[Clause, ...]
    variables: dict[str, ValueType]
    """Those visible inside, outer ones too."""


class OptionalBlock(Struct, frozen=True):
    """`introduced` are the variables that it adds, with their types outside of it: nullable."""

    clauses: tuple[Clause, ...]
    variables: dict[str, ValueType]
    introduced: tuple[tuple[str, ValueType], ...]


Clause: TypeAlias = Binding | Traversal | WalkTraversal | Filter | Negation | OptionalBlock


class Block(Struct, frozen=True):
    """A pattern that is a value: whether it matches (`aggregate` None), or an aggregate over its matches."""

    clauses: tuple[Clause, ...]
    variables: dict[str, ValueType]
    aggregate: ir.AggregateValue | None


# ---- reads ----------------------------------------------------------------------------------------------


class Unwind(Struct, frozen=True):
    """A variable for the items of a list; of a list of nodes or edges it is a node or an edge."""

    items: ir.Value
    variable: str
    type: ValueType


class Projection(Struct, frozen=True):
    """`name` is the executed column name, `described_name` the one in operation descriptors. `variable` is the name of
    the column in the next stage; None when nothing can use it."""

    value: ir.Value
    name: str
    described_name: str
    alias: str | None
    at: TextSpan
    variable: str | None


class OutputName(Struct, frozen=True):
    """A sort key that is an output column: by its alias, or because it is the same expression."""

    index: int


class Sort(Struct, frozen=True):
    """A part of a larger value that is an output column is an `ir.OutputValue` with the index of the projection."""

    value: ir.Value | OutputName
    descending: bool
    nulls_first: bool | None
    at: TextSpan


class Stage(Struct, frozen=True):
    """`imported` are the variables that come from the stage before, `variables` all that are visible after `match`.

    `ranking` is what the leading sort key ranks by, `sort` what is left to sort by: a rank call silences the keys after
    it, the name of a score leaves room for them.
    """

    imported: dict[str, ValueType]
    unwinds: tuple[Unwind, ...]
    clauses: tuple[Clause, ...]
    variables: dict[str, ValueType]
    projections: tuple[Projection, ...]
    distinct: bool
    sort: tuple[Sort, ...]
    ranking: ir.Ranking | None
    limit: ir.Count | None
    offset: ir.Count
    offset_at: TextSpan = NOWHERE


class Chain(Struct, frozen=True):
    head: Read | None
    stages: tuple[Stage, ...]


class Read(Struct, frozen=True):
    """`columns` are those of the result, with the types that all chains agree on; `described` as descriptors name
    them."""

    chains: tuple[Chain, ...]
    keeps_all: tuple[bool, ...]
    columns: tuple[ir.OutputColumn, ...]
    described: tuple[ir.OutputColumn, ...]


# ---- writes ---------------------------------------------------------------------------------------------


class Feed(Struct, frozen=True):
    """The rows that statements run for. `clauses` and `unwinds` follow `chain` as another stage would."""

    chain: Chain | None
    imported: dict[str, ValueType]
    unwinds: tuple[Unwind, ...]
    clauses: tuple[Clause, ...]
    variables: dict[str, ValueType]


class Write(Struct, frozen=True):
    """A statement as it runs, its position and those of its assignments."""

    plan: ir.InsertNode | ir.InsertEdge | ir.Update | ir.Delete | ir.UpdateVariable | ir.DeleteVariable
    at: TextSpan
    assigned_at: tuple[TextSpan, ...] = ()


class ForEachRow(Struct, frozen=True):
    feed: Feed
    statements: tuple[Write, ...]
    at: TextSpan


class Writes(Struct, frozen=True):
    statements: tuple[Write | ForEachRow, ...]


class Query(Struct, frozen=True):
    """`blocks` are those of all its values, at any depth, by their hidden variables."""

    name: str
    parameters: tuple[ir.QueryParameter, ...]
    body: Read | Writes
    blocks: dict[str, Block]
