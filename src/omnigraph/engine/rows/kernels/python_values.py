"""Values of a Python program as JSON would have given them, so that one set of rules judges both.

Rows that come as dictionaries hold dates, decimals, NumPy scalars and arrays, enum members. What has one meaning for
the type of a property becomes that; anything else is left as it is, for the rules to refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from enum import Enum
from itertools import chain
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from omnigraph.api.values import epoch_millis, is_pandas_null, numpy_value
from omnigraph.engine.rows.kernels.loose import array_text, python_value, reread
from omnigraph.errors import BadRequestError
from omnigraph.language.types import FLOATS, INTEGERS, PropertyType, Scalar

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_MILLIS: Final = 86_400_000
_NULL: Final = type(None)

_AS_THEY_ARE: Final[dict[Scalar, frozenset[type]]] = {
    Scalar.STRING: frozenset({str}),
    Scalar.BOOL: frozenset({bool}),
    Scalar.DATE: frozenset({str}),
    Scalar.DATETIME: frozenset({str}),
    Scalar.BLOB: frozenset({str, bytes}),
    **{scalar: frozenset({int}) for scalar in INTEGERS},
    **{scalar: frozenset({int, float}) for scalar in FLOATS},
}


def plain_values(type_: PropertyType, values: Sequence[object]) -> Sequence[object]:
    """The values of one property, null where there is none. The same sequence when there is nothing to change."""
    if not type_.list and not type_.is_vector:
        return values if _are_plain(type_.scalar, values) else [plain_value(type_, value) for value in values]
    if set(map(type, values)) <= {list, _NULL}:
        items = list(chain.from_iterable(value for value in values if isinstance(value, list)))
        if _are_plain(_item_of(type_).scalar, items):
            return values
    return [plain_value(type_, value) for value in values]


def plain_value(type_: PropertyType, value: object) -> object:
    """One value, for a property of that type."""
    if type_.list or type_.is_vector:
        items = _items(value)
        return items if not isinstance(items, list) else [plain_value(_item_of(type_), item) for item in items]
    return _plain_scalar(type_.scalar, value)


def _are_plain(scalar: Scalar, values: Sequence[object]) -> bool:
    return set(map(type, values)) <= {*_AS_THEY_ARE[scalar], _NULL}


def _item_of(type_: PropertyType) -> PropertyType:
    return PropertyType(Scalar.F32) if type_.is_vector else type_.item


def _items(value: object) -> object:
    """The items of an array of any kind; null, or what is no array, as it is."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, pa.Scalar):
        return python_value(value)
    if isinstance(value, np.ndarray):
        return _numpy(value)
    if hasattr(value, "to_list") and not isinstance(value, str):
        return value.to_list()
    return None if _is_null(value) else array_text(value)


def _plain_scalar(scalar: Scalar, value: Any) -> object:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, np.generic):
        value = _numpy(value)
    if isinstance(value, pa.Scalar):
        value = python_value(value)
    if _is_null(value):
        return None
    if isinstance(value, date):
        return _instant(scalar, value)
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


def _is_null(value: object) -> bool:
    """None, and what pandas has for it."""
    return value is None or is_pandas_null(value)


def _instant(scalar: Scalar, value: date) -> object:
    """Dates and times as the integers that a column holds."""
    if scalar is Scalar.DATE:
        return epoch_millis(value) // _DAY_MILLIS if isinstance(value, datetime) else value.toordinal() - _EPOCH_DAY
    if scalar is Scalar.DATETIME:
        return epoch_millis(value) if isinstance(value, datetime) else (value.toordinal() - _EPOCH_DAY) * _DAY_MILLIS
    return value
