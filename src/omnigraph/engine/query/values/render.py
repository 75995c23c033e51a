"""Result values as JSON, by the rules of the language: full-width integers, or ones that JavaScript keeps exactly.

Pure functions from Arrow columns to plain Python values; used by results, the HTTP server and the CLI alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from omnigraph.api.enums import Integers
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.language.values import format_date, format_datetime

_JS_SAFE = 2**53 - 1


def rendered(
    column: pa.Array | pa.ChunkedArray, type_: PropertyType, integers: Integers = Integers.NATIVE
) -> list[Any]:
    """One JSON value per row."""
    if type_.is_vector:
        return [None if row is None else [_vector_item(x) for x in row] for row in column.to_pylist()]
    item = _renderer(type_.scalar, integers)
    if type_.list:
        flat = pa.list_(pa.int64() if _is_temporal(type_.scalar) else column.type.value_type)
        rows = _plain(column, flat if _is_temporal(type_.scalar) else column.type)
        return [None if row is None else [None if x is None else item(x) for x in row] for row in rows]
    rows = _plain(column, pa.int64() if _is_temporal(type_.scalar) else column.type)
    return rows if item is _same else [None if x is None else item(x) for x in rows]


def _plain(column: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> list[Any]:
    """Days and milliseconds as numbers: Python's own dates end at the year 9999."""
    if column.type != type_:
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        elif pa.types.is_list(column.type) and pa.types.is_date32(column.type.value_type):
            column = column.cast(pa.list_(pa.int32()))
        else:
            column = column.cast(type_)
    rows: list[Any] = column.to_pylist()
    return rows


def _is_temporal(scalar: Scalar) -> bool:
    return scalar in (Scalar.DATE, Scalar.DATETIME)


def _renderer(scalar: Scalar, integers: Integers) -> Callable[[Any], Any]:
    match scalar:
        case Scalar.DATE:
            return format_date
        case Scalar.DATETIME:
            return format_datetime
        case Scalar.F32 | Scalar.F64:
            return _float
        case Scalar.I64 | Scalar.U64 if integers is Integers.JS_SAFE:
            return lambda number: number if abs(number) <= _JS_SAFE else str(number)
    return _same


def _same(value: Any) -> Any:
    return value


def _float(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _vector_item(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
