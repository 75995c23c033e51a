"""Values as a Python program gives them, as JSON has them: parameters of a query, and members of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from omnigraph.calendar import format_datetime
from omnigraph.errors import BadRequestError

# No type of a parameter nests at all; a value that does is refused where it is bound, and has to get there.
DEEPEST_VALUE: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI: Final = timedelta(milliseconds=1)
_PANDAS_NULLS: Final = frozenset({"NAType", "NaTType"})
_MOST_BITS: Final = 1024
"""No number of a property has more."""
_PLAIN: Final = frozenset({str, float, bool, type(None)})
"""What JSON has as it is; integers may be too long."""
_FINER_THAN_PYTHON: Final = ("ns]", "ps]", "fs]", "as]")


def plain_parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a Python program as JSON has them: dates and times as texts, arrays of NumPy as lists."""
    if not isinstance(params, Mapping):
        raise BadRequestError(f"params must be a mapping of names to values, not '{type(params).__name__}'")
    plain = {}
    for name, value in params.items():
        try:
            plain[name] = plain_value(value)
        except BadRequestError as error:
            raise BadRequestError(f"param '{name}': {error}") from None
    return plain


def plain_value(value: Any, depth: int = 0) -> Any:
    """One value; what has no form in JSON as it is."""
    if type(value) in _PLAIN:
        return value
    if type(value) is int:
        if value.bit_length() > _MOST_BITS:
            raise BadRequestError("the number exceeds every type of number")
        return value
    if is_pandas_null(value):
        return None
    if isinstance(value, Enum):
        return plain_value(value.value, depth)
    if isinstance(value, datetime):
        return format_datetime(epoch_millis(value))
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        return plain_number(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if depth == DEEPEST_VALUE:
        raise BadRequestError(f"the value is nested deeper than {DEEPEST_VALUE} levels")
    if isinstance(value, Mapping):
        return {key: plain_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return list(value) if _PLAIN.issuperset(map(type, value)) else [plain_value(each, depth + 1) for each in value]
    plain = _python_value(value)
    return value if plain is value else plain_value(plain, depth + 1)


def _python_value(value: Any) -> Any:
    """What an array or a scalar of NumPy, Arrow, pandas or Polars holds, without importing them."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return numpy_value(value)
    for method in ("tolist", "to_list", "as_py"):
        if hasattr(value, method) and not isinstance(value, type):
            return getattr(value, method)()
    return value


def numpy_value(value: Any) -> Any:
    """An array or a scalar of NumPy as Python has it. Python knows no moment finer than a microsecond, and NumPy makes
    an integer of such a one."""
    name = getattr(value.dtype, "name", "")
    if name.startswith("datetime64"):
        if name.endswith(_FINER_THAN_PYTHON):
            value = value.astype("datetime64[us]")
        if _holds_integers(moments := value.tolist()):
            raise BadRequestError("the moment is outside the years 1 to 9999")
        return moments
    return value.tolist()


def _holds_integers(value: object) -> bool:
    """NumPy has nothing better for a moment that Python can't hold."""
    return any(map(_holds_integers, value)) if isinstance(value, list) else isinstance(value, int)


def is_pandas_null(value: object) -> bool:
    """What pandas has for None."""
    return type(value).__name__ in _PANDAS_NULLS and type(value).__module__.startswith("pandas.")


def epoch_millis(value: datetime) -> int:
    """Milliseconds since 1970. A time without a zone is UTC, as it is in Arrow."""
    return int(((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MILLI)


def plain_number(value: Decimal) -> int | float:
    """A decimal as the number that JSON would have: whole ones exactly, others as the nearest float."""
    if value.is_finite() and value == value.to_integral_value():
        return int(value)
    return math.nan if value.is_nan() else float(value)


def plain_id(value: Any) -> str:
    """The id of an entity. An integer names the node whose key has that value."""
    if isinstance(value, str):
        return value
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise BadRequestError(f"an id is a text, not '{type(value).__name__}'")


# What can be sent


def json_problem(value: object) -> str | None:
    """Why JSON can't hold a plain value; None where it can."""
    if value is None or isinstance(value, bool | int | str):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else not_finite(value)
    if isinstance(value, Mapping):
        if any(not isinstance(name, str) for name in value):
            return "the names of members must be texts"
        return json_problem(list(value.values()))
    if isinstance(value, list | tuple):
        return next((problem for item in value if (problem := json_problem(item)) is not None), None)
    return f"'{type(value).__name__}' is not a value that can be stored"


def not_finite(number: float) -> str:
    """What to say of a number that no column stores."""
    return f"{'NaN' if math.isnan(number) else number} is not finite, which no column stores; leave the value out"
