"""Rows of values without a graph, for tests of the evaluator: variables bound to columns, and what a value gives."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.bindings import Bindings
from omnigraph.engine.query.context import ValueContext
from omnigraph.engine.query.properties import Located
from omnigraph.engine.query.value_columns import column_type
from omnigraph.engine.query.values.evaluate import evaluate
from omnigraph.engine.query.values.predicates import predicate_mask
from omnigraph.language.query import ir
from omnigraph.language.query.functions import FUNCTIONS
from omnigraph.language.query.value_types import BOOL, F64, I64, STRING, NullType, ValueType, list_of
from omnigraph.storage.tables.rows import wide_type

I64_LIST = list_of(I64.as_nullable())
STRING_LIST = list_of(STRING.as_nullable())


class Rows:
    """Some rows with a value of each variable. When `shared`, equal values are one."""

    def __init__(self, columns: Mapping[str, tuple[ValueType, Sequence[Any]]], *, shared: bool = False) -> None:
        self.context = ValueContext.of({})
        self.types = {name: type_ for name, (type_, _) in columns.items()}
        length = len(next(iter(columns.values()))[1]) if columns else 1
        bound = {}
        for name, (type_, values) in columns.items():
            array, order = pa.array(values, column_type(type_)), np.arange(length)
            if shared and length:
                # Every value once and one that no row has, as a slice, in the form that columns of any size have.
                spelled = list(map(repr, values))
                first = list(dict.fromkeys(map(spelled.index, spelled)))
                array = pa.concat_arrays([array.slice(length - 1), array.take(pa.array([*first, length - 1]))])
                array, order = array.cast(wide_type(array.type)).slice(1), np.array(list(map(spelled.index, spelled)))
                order = np.searchsorted(first, order)
            bound[name] = self.context.bound.add(name, type_, array)[order]
        self.bindings = Bindings(bound, length)

    def variable(self, name: str) -> ir.VariableValue:
        return ir.VariableValue(name, self.types[name])

    def values(self, value: ir.Value) -> list[Any]:
        return results(evaluate(value, self.bindings, self.context), self.bindings.length)

    def mask(self, predicate: ir.Value) -> list[bool]:
        return list(predicate_mask(predicate, self.bindings, self.context))


def results(evaluated: Located | pa.Scalar, length: int) -> list[Any]:
    array = evaluated.gather() if isinstance(evaluated, Located) else pa.repeat(evaluated, length)
    assert len(array) == length
    values: list[Any] = array.to_pylist()
    return values


def value_of(value: ir.Value) -> Any:
    """A value without variables."""
    return Rows({}).values(value)[0]


def constant(value: Any) -> ir.Value:
    """A Python value as a constant or a list of them."""
    match value:
        case None:
            return ir.Constant(None, NullType())
        case bool():
            return ir.Constant(value, BOOL)
        case int():
            return ir.Constant(value, I64)
        case float():
            return ir.Constant(value, F64)
        case str():
            return ir.Constant(value, STRING)
        case datetime.date():
            raise AssertionError("dates are constants as texts")
        case list() | tuple():
            items = tuple(map(constant, value))
            item = next((each.type for each in items if each.type != NullType()), STRING)
            return ir.ListOf(items, list_of(item))
    raise AssertionError(value)


def call(function: str, *arguments: Any) -> ir.Call:
    """A call as the checker types it; Python values are constants."""
    values = tuple(each if hasattr(each, "__struct_fields__") else constant(each) for each in arguments)
    type_ = FUNCTIONS[function].result([value.type for value in values])
    assert type_ is not None, f"{function} of {[str(value.type) for value in values]}"
    return ir.Call(function, values, type_)
