"""The values of the cells of a statement: literals, parameters and the instant of the request."""

from __future__ import annotations

from collections.abc import Mapping

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
