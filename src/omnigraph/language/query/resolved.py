"""A query whose names and types are resolved, in the order it was written.

The type checker produces it; lowering turns it into operators and the operation descriptor reads its types. It
may still hold things that typecheck and can't run: those are `Refused` values, which lowering reports.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir
from omnigraph.language.source import TextSpan
from omnigraph.language.types import PropertyType


class Refused(Struct, frozen=True):
    """An expression of a known type that no executor takes; `reason` completes the sentence of the refusal."""

    type: PropertyType
    reason: str
    at: TextSpan

    def with_type(self, type_: PropertyType) -> Refused:
        """The refusal of something larger, of another type, for the same reason."""
        return Refused(type_, self.reason, self.at)


class OutputName(Struct, frozen=True):
    """A bare name in `order`; whether such a column exists is asked when the query is lowered."""

    name: str
    at: TextSpan


Typed: TypeAlias = ir.Value | Refused
TypedProjection: TypeAlias = ir.Value | ir.AggregateValue | Refused


class Binding(Struct, frozen=True):
    variable: str
    type: NodeType
    pins: tuple[ir.Compare, ...]


class Traversal(Struct, frozen=True):
    """`direction` is seen from `source` as written. Each `$_` has a hidden name of its own."""

    source: str
    destination: str
    edge: EdgeType
    direction: ir.Direction
    source_type: NodeType
    destination_type: NodeType
    min_hops: int
    max_hops: int
    edge_variable: str | None


class Filter(Struct, frozen=True):
    predicate: ir.Predicate | Refused


class Negation(Struct, frozen=True):
    clauses: tuple[Clause, ...]


Clause: TypeAlias = Binding | Traversal | Filter | Negation


class Projection(Struct, frozen=True):
    """`name` is the executed column name, `described_name` the one in operation descriptors."""

    value: TypedProjection
    name: str
    described_name: str
    alias: str | None
    at: TextSpan


class Sort(Struct, frozen=True):
    value: Typed | OutputName
    descending: bool
    at: TextSpan


class Read(Struct, frozen=True):
    """`nodes` and `edges` are the variables visible outside negations."""

    clauses: tuple[Clause, ...]
    nodes: dict[str, NodeType]
    edges: dict[str, EdgeType]
    projections: tuple[Projection, ...]
    sort: tuple[Sort, ...]
    limit: int | None

    @property
    def is_aggregate(self) -> bool:
        return any(isinstance(p.value, ir.AggregateValue) for p in self.projections)


class Write(Struct, frozen=True):
    """A statement as it runs, its position and those of its assignments."""

    plan: ir.WriteStatement
    at: TextSpan
    assigned_at: tuple[TextSpan, ...] = ()


class Writes(Struct, frozen=True):
    statements: tuple[Write, ...]


class Query(Struct, frozen=True):
    name: str
    parameters: tuple[ir.QueryParameter, ...]
    body: Read | Writes
