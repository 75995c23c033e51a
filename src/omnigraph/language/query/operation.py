"""Describes an operation without running it: its result columns, and which types it may read and write.

Lint prints it, policy and the HTTP catalog rely on it. The type sets are conservative: whatever execution may touch
is in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.resolved import (
    ResolvedBinding,
    ResolvedClause,
    ResolvedDelete,
    ResolvedInsertEdge,
    ResolvedNegation,
    ResolvedProjection,
    ResolvedQuery,
    ResolvedStatement,
    ResolvedTraversal,
    ResolvedWrites,
)
from omnigraph.language.types import PropertyType, Scalar

_KINDS = {
    Scalar.STRING: "string",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.U32: "int",
    Scalar.I64: "bigint",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.BLOB: "blob",
    Scalar.VECTOR: "vector",
}


class ValueShape(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of one column or parameter; its fields are the wire form."""

    name: str
    kind: str
    item_kind: str | None = None
    vector_dim: int | None = None
    nullable: bool

    @classmethod
    def of(cls, name: str, type_: PropertyType, *, nullable: bool | None = None) -> ValueShape:
        return cls(
            name=name,
            kind="list" if type_.list else _KINDS[type_.scalar],
            item_kind=_KINDS[type_.scalar] if type_.list else None,
            vector_dim=type_.dimension,
            nullable=type_.nullable if nullable is None else nullable,
        )


class TouchedType(Struct, frozen=True):
    """A type that an operation reads or writes."""

    kind: Literal["node", "edge"]
    type_name: str

    @classmethod
    def of(cls, type_: NodeType | EdgeType) -> TouchedType:
        return cls("edge" if isinstance(type_, EdgeType) else "node", type_.name)


class Operation(Struct, frozen=True):
    """`result` in projection order, empty for mutations; `reads` and `writes` without repeats, nodes first."""

    result: tuple[ValueShape, ...]
    reads: tuple[TouchedType, ...]
    writes: tuple[TouchedType, ...]


def describe(query: ResolvedQuery) -> Operation:
    if isinstance(query.body, ResolvedWrites):
        statements = query.body.statements
        return Operation((), _sorted(_read_by(statements)), _sorted(_written_by(statements)))
    return Operation(
        tuple(_result_shape(projection) for projection in query.body.projections),
        _sorted(_matched(query.body.clauses)),
        (),
    )


def describe_parameters(parameters: Iterable[ir.QueryParameter]) -> tuple[ValueShape, ...]:
    return tuple(ValueShape.of(parameter.name, parameter.type) for parameter in parameters)


def _result_shape(projection: ResolvedProjection) -> ValueShape:
    value = projection.value
    if isinstance(value, ir.NodeId):
        return ValueShape(name=projection.described_name, kind="object", nullable=False)
    # An aggregate may meet no rows at all, so every one of them is described as nullable.
    nullable = True if isinstance(value, ir.AggregateValue) else None
    return ValueShape.of(projection.described_name, value.type, nullable=nullable)


def _sorted(touched: Iterable[TouchedType]) -> tuple[TouchedType, ...]:
    return tuple(sorted(set(touched), key=lambda type_: (type_.kind != "node", type_.type_name)))


def _matched(clauses: Iterable[ResolvedClause]) -> Iterator[TouchedType]:
    for clause in clauses:
        match clause:
            case ResolvedBinding():
                yield TouchedType.of(clause.type)
            case ResolvedTraversal():
                yield TouchedType.of(clause.edge)
                yield TouchedType.of(clause.source_type)
                yield TouchedType.of(clause.destination_type)
            case ResolvedNegation():
                yield from _matched(clause.clauses)


def _written_by(statements: Iterable[ResolvedStatement]) -> Iterator[TouchedType]:
    for statement in statements:
        yield TouchedType.of(statement.type)
        if isinstance(statement, ResolvedDelete):
            yield from (TouchedType.of(edge) for edge in statement.cascades)


def _read_by(statements: Iterable[ResolvedStatement]) -> Iterator[TouchedType]:
    yield from _written_by(statements)
    for statement in statements:
        if isinstance(statement, ResolvedInsertEdge):
            yield TouchedType("node", statement.type.from_type)
            yield TouchedType("node", statement.type.to_type)
