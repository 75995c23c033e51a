"""The values of the cells of a statement: literals, parameters and the instant of the request."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.engine.rows.kernels.endpoints import NotANodeError, edge_ends
from omnigraph.language.catalog import Catalog, EdgeType, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.params import BoundValue


def evaluate(value: ir.Value, bound: Mapping[str, BoundValue]) -> BoundValue:
    """A plain value. Dates stay texts here; they are read where their column is known."""
    match value:
        case ir.Constant():
            return list(value.value) if isinstance(value.value, tuple) else value.value
        case ir.ParameterValue():
            return bound[value.name]
        case ir.Now():
            return bound[ir.NOW_PARAMETER]
        case _:
            raise AssertionError(f"{type(value).__name__} is not a cell of a statement")


def sought(type_: TableType, where: ir.Where, bound: Mapping[str, BoundValue], catalog: Catalog) -> BoundValue:
    """The value that a `where` compares its column with. The ends of edges are stored as ids, so a key becomes one."""
    value = evaluate(where.value, bound)
    is_equality = where.operator in (ir.Operator.EQUAL, ir.Operator.NOT_EQUAL)
    if not isinstance(type_, EdgeType) or not isinstance(where.column, ir.Endpoint) or value is None or not is_equality:
        return value
    end = edge_ends(catalog, type_)[0 if where.column is ir.Endpoint.FROM else 1]
    try:
        return end.id_of(value)
    except NotANodeError:
        return str(value)  # no node has this key, so no edge has this text at its end
