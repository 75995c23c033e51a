"""Values of other systems as the loader takes them: Arrow columns of any width, and Python objects.

Spark, Parquet, CSV and dictionary readers call it. A cast that loses nothing is taken; all other values go through the
same rules as JSON, with the same reasons.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from itertools import chain
from typing import Any, Final
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from omnigraph.api.load import plain_array
from omnigraph.api.values import epoch_millis, is_pandas_null, numpy_value, plain_number
from omnigraph.dates import MILLIS_PER_DAY
from omnigraph.engine.rows.columns import EPOCH_TYPES, arrow_type, vector_cells, whole_array
from omnigraph.engine.rows.kernels.coerce import JSON_KINDS, Column, all_finite, all_match, coerce, timestamps
from omnigraph.errors import BadRequestError
from omnigraph.language.types import FLOATS, INTEGERS, NUMERIC, PropertyType, Scalar

_INTEGER_TEXT: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_NUMBER_TEXT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
# Arrow's own parser takes more than decimal numbers (hex, inf), so it is asked only about these.
_PLAIN_INTEGER: Final = r"^-?[0-9]+$"
_PLAIN_NUMBER: Final = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_BOOL_TEXTS: Final = {"true": True, "false": False}
_EXACT_IN_F64: Final = 2.0**53
_read_array = msgspec.json.Decoder(list).decode
_MILLIS: Final = arrow_type(PropertyType(Scalar.DATETIME))
_PER_MILLI: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
# Dates beyond the year 9999, durations beyond some billion days, unknown zones.
_NOT_IN_PYTHON: Final = (OverflowError, ValueError, LookupError, pa.ArrowException)


def coerce_arrow(type_: PropertyType, array: pa.Array) -> Column:
    """A column of `type_` from an Arrow array; rows that do not fit are null and have a reason."""
    array = plain_array(whole_array(array))
    if pt.is_null(array.type):
        return Column(pa.nulls(len(array), arrow_type(type_)))
    if pt.is_large_string(array.type):
        array = array.cast(pa.string())
    try:
        direct = _direct(type_, array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # some value does not fit; the value rules tell which
        direct = None
    return Column(direct) if direct is not None else coerce(type_, _json_like(type_, array))


def _direct(type_: PropertyType, array: pa.Array) -> pa.Array | None:
    """The column in one cast, where a cast is known to keep every value; None leaves it to the value rules."""
    if type_.is_vector:
        return _direct_vectors(type_, array)
    if type_.is_blob:
        return None
    if type_.list:
        return _direct_lists(type_, array)
    source, target = array.type, arrow_type(type_)
    if pt.is_string(source) and type_.scalar in NUMERIC:
        if not all_match(array, _PLAIN_INTEGER if type_.scalar in INTEGERS else _PLAIN_NUMBER):
            return None
        array = array.cast(target if type_.scalar in INTEGERS else pa.float64())
        source = array.type
    if type_.scalar in FLOATS and (pt.is_floating(source) or pt.is_integer(source)):
        numbers = array.cast(pa.float64(), safe=False).cast(target, safe=False)
        return numbers if all_finite(numbers) else None
    if type_.scalar is Scalar.DATE and (pt.is_date(source) or pt.is_timestamp(source)):
        return _floor(_millis(array), MILLIS_PER_DAY).cast(pa.int32()).cast(target)
    if type_.scalar is Scalar.DATETIME:
        if pt.is_date(source) or pt.is_timestamp(source):
            return _millis(array).cast(_MILLIS)
        return timestamps(array) if pt.is_string(source) else None
    same_kind = (
        source == target
        or (type_.scalar in INTEGERS and pt.is_integer(source))
        or (type_.scalar is Scalar.DATE and pt.is_string(source))
    )
    return array.cast(target) if same_kind else None


def _millis(array: pa.Array) -> pa.Array:
    """Epoch milliseconds of dates and timestamps; finer units are cut towards the past, like texts are."""
    if pt.is_date(array.type) or array.type.unit == "s":
        return array.cast(pa.timestamp("ms")).cast(pa.int64())
    return _floor(array.cast(pa.int64()), _PER_MILLI[array.type.unit])


def _floor(numbers: pa.Array, divisor: int) -> pa.Array:
    floored = np.floor_divide(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False), divisor)
    return pc.if_else(numbers.is_valid(), pa.array(floored, pa.int64()), pa.scalar(None, pa.int64()))


def _direct_lists(type_: PropertyType, array: pa.Array) -> pa.Array | None:
    if not (pt.is_list(array.type) or pt.is_large_list(array.type) or pt.is_fixed_size_list(array.type)):
        return None
    items = coerce_arrow(_item_of(type_), array.flatten())
    if items.unfit or items.array.null_count:
        return None
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64()))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())
    missing = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(offsets, items.array, type=arrow_type(type_), mask=missing)


def _direct_vectors(type_: PropertyType, array: pa.Array) -> pa.Array | None:
    source = array.type
    if not (pt.is_list(source) or pt.is_large_list(source) or pt.is_fixed_size_list(source)):
        return None
    if not (pt.is_floating(source.value_type) or pt.is_integer(source.value_type)):
        return None
    if not pc.all(pc.equal(pc.list_value_length(array), type_.dimension), min_count=0).as_py():
        return None
    numbers = pc.list_flatten(array).cast(pa.float64(), safe=False).cast(pa.float32(), safe=False)
    if numbers.null_count or not all_finite(numbers):
        return None
    if not array.null_count:
        return pa.FixedSizeListArray.from_arrays(numbers, type=arrow_type(type_))
    filled = np.zeros((len(array), type_.dimension or 0), np.float32)
    filled[array.is_valid().to_numpy(zero_copy_only=False)] = numbers.to_numpy().reshape(-1, type_.dimension or 0)
    return vector_cells(filled, arrow_type(type_), array.is_null())


def _json_like(type_: PropertyType, array: pa.Array) -> list[object]:
    """The values as JSON would have given them, after reading texts of numbers as numbers."""
    if pt.is_list(array.type) or pt.is_large_list(array.type) or pt.is_fixed_size_list(array.type):
        item = _item_of(type_)
        return [None if not row.is_valid else _json_like(item, row.values) for row in array]
    if type_.scalar in EPOCH_TYPES and (pt.is_date(array.type) or pt.is_timestamp(array.type)):
        per_value = MILLIS_PER_DAY if type_.scalar is Scalar.DATE else 1
        return [None if millis is None else millis // per_value for millis in _exact_millis(array)]
    values = python_values(array)
    if type_.is_blob and pt.is_struct(array.type):
        return [blob_content(cell) for cell in values]
    if type_.list or type_.is_vector:
        return [array_text(value) for value in values]
    return [reread(type_.scalar, value) for value in values]


def _exact_millis(array: pa.Array) -> list[int | None]:
    """As `_millis`, also where 64 bits do not hold them: the rules of the type refuse such a number."""
    ticks = array.cast(pa.int32() if pt.is_date32(array.type) else pa.int64()).to_pylist()
    unit = "ms" if pt.is_date(array.type) else array.type.unit
    per_tick = MILLIS_PER_DAY if pt.is_date32(array.type) else 1000 if unit == "s" else 1
    return [None if tick is None else tick * per_tick // _PER_MILLI.get(unit, 1) for tick in ticks]


def python_values(array: pa.Array) -> list[object]:
    """The values as Python has them. One that Python can't hold stays as it is; no property takes it."""
    try:
        return list(array.to_pylist())
    except _NOT_IN_PYTHON:
        return [python_value(scalar) for scalar in array]


def python_value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except _NOT_IN_PYTHON:
        return scalar


def blob_content(cell: object) -> object:
    """The bytes or the URI of a blob cell, which is how our own Parquet and Arrow files hold one."""
    match cell:
        case {"data": content, "uri": None, **rest} | {"data": None, "uri": content, **rest} if not rest:
            return content
    return cell


def array_text(value: object) -> object:
    """The array that a text spells as JSON, which is how CSV writes one; anything else as it is."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return _read_array(value)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return value
    return value


def reread(scalar: Scalar, value: object) -> object:
    """A value as JSON would have given it: a text of a number as the number, a whole float as the integer it is."""
    if isinstance(value, Decimal):
        value = plain_number(value)
    if isinstance(value, float) and scalar in INTEGERS and value.is_integer() and abs(value) <= _EXACT_IN_F64:
        return int(value)
    if isinstance(value, str):
        if scalar in INTEGERS and _INTEGER_TEXT.fullmatch(value):
            return int(value)
        if scalar in FLOATS and _NUMBER_TEXT.fullmatch(value):
            return float(value)
        if scalar is Scalar.BOOL:
            return _BOOL_TEXTS.get(value.lower(), value)
    return value


_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_PLAIN_KINDS: Final[dict[Scalar, set[type]]] = {**JSON_KINDS, Scalar.BLOB: {str, bytes}}


def plain_values(type_: PropertyType, values: Sequence[object]) -> Sequence[object]:
    """The values of one property, null where there is none. The same sequence when there is nothing to change."""
    if not type_.list and not type_.is_vector:
        is_plain = _are_plain(type_.scalar, values)
    else:
        is_plain = set(map(type, values)) <= {list, type(None)} and _are_plain(
            _item_of(type_).scalar, list(chain.from_iterable(value for value in values if isinstance(value, list)))
        )
    return values if is_plain else [plain_value(type_, value) for value in values]


def plain_value(type_: PropertyType, value: object) -> object:
    """One value, for a property of that type."""
    if type_.list or type_.is_vector:
        items = _items(value)
        return items if not isinstance(items, list) else [plain_value(_item_of(type_), item) for item in items]
    return _plain_scalar(type_.scalar, value)


def _are_plain(scalar: Scalar, values: Sequence[object]) -> bool:
    return set(map(type, values)) <= {*_PLAIN_KINDS[scalar], type(None)}


def _item_of(type_: PropertyType) -> PropertyType:
    return PropertyType(Scalar.F32) if type_.is_vector else type_.item


def _items(value: object) -> object:
    """The items of an array of any kind; null and other values unchanged."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, pa.Scalar):
        return python_value(value)
    if isinstance(value, np.ndarray):
        return _numpy(value)
    if hasattr(value, "to_list") and not isinstance(value, str):
        return value.to_list()
    return None if is_pandas_null(value) else array_text(value)


def _plain_scalar(scalar: Scalar, value: Any) -> object:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, np.generic):
        value = _numpy(value)
    if isinstance(value, pa.Scalar):
        value = python_value(value)
    if value is None or is_pandas_null(value):
        return None
    if isinstance(value, date):
        if scalar not in EPOCH_TYPES:
            return value
        days = value.toordinal() - _EPOCH_DAY
        millis = epoch_millis(value) if isinstance(value, datetime) else days * MILLIS_PER_DAY
        return millis // MILLIS_PER_DAY if scalar is Scalar.DATE else millis
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str) and type(value) is not str:
        value = str.__str__(value)
    return reread(scalar, value)


def _numpy(value: Any) -> object:
    """As Python has it; a moment that Python can't hold as it is."""
    try:
        return numpy_value(value)
    except BadRequestError:
        return value
