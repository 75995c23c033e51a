"""Result values as JSON, by the rules of the language: full-width integers, or ones that JavaScript keeps exactly.

Pure functions from Arrow columns to plain Python values; used by results, the HTTP server, the CLI and the remote
client alike. The type of a column says all there is to know: a vector is a list of a fixed size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from omnigraph.api.enums import Integers
from omnigraph.calendar import format_date, format_datetime

if TYPE_CHECKING:
    import pyarrow as pa

_JS_SAFE: Final = 2**53 - 1


def rendered(column: pa.Array | pa.ChunkedArray, integers: Integers = Integers.NATIVE) -> list[Any]:
    """One JSON value per row."""
    import pyarrow as pa

    type_ = column.type
    if pa.types.is_fixed_size_list(type_):
        return [None if row is None else [_vector_item(x) for x in row] for row in column.to_pylist()]
    if pa.types.is_list(type_):
        item, number = _renderer(type_.value_type, integers)
        rows = _plain(column, None if number is None else pa.list_(number))
        return [None if row is None else [None if x is None else item(x) for x in row] for row in rows]
    item, number = _renderer(type_, integers)
    rows = _plain(column, number)
    return rows if item is _same else [None if x is None else item(x) for x in rows]


def _plain(column: pa.Array | pa.ChunkedArray, number: pa.DataType | None) -> list[Any]:
    """Days and milliseconds as numbers: Python's own dates end at the year 9999."""
    rows: list[Any] = (column if number is None else column.cast(number)).to_pylist()
    return rows


def _renderer(type_: pa.DataType, integers: Integers) -> tuple[Callable[[Any], Any], pa.DataType | None]:
    """How one value is rendered, and the numbers it is read as where Python's own type would not do."""
    import pyarrow as pa

    if pa.types.is_date32(type_):
        return format_date, pa.int32()
    if pa.types.is_timestamp(type_):
        return format_datetime, pa.int64()
    if pa.types.is_floating(type_):
        return _float, None
    if integers is Integers.JS_SAFE and (pa.types.is_int64(type_) or pa.types.is_uint64(type_)):
        return _js_safe, None
    return _same, None


def _same(value: Any) -> Any:
    return value


def _js_safe(number: int) -> int | str:
    return number if abs(number) <= _JS_SAFE else str(number)


def _float(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _vector_item(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
