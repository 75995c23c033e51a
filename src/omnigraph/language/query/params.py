"""Converts the JSON values of parameters to the declared types of a query.

Every interface that runs a query calls `bind_parameters` once, before anything is executed: a missing or unfit
parameter is an error here and never a silently dropped condition. Pure: the caller supplies the time of the request.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from typing import TypeAlias

from omnigraph.dates import format_datetime
from omnigraph.errors import BadRequestError
from omnigraph.language.query.ir import NOW_PARAMETER, QueryParameter
from omnigraph.language.source import LONE_SURROGATE, did_you_mean
from omnigraph.language.types import FLOATS, INTEGER_RANGES, INTEGERS, PropertyType, Scalar
from omnigraph.language.values import shape_of

BoundValue: TypeAlias = "str | int | float | bool | list[BoundValue] | None"

_DECIMAL = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LONGEST_INTEGER = 20
_BEYOND_ALL = 2**65
_JS_SAFE = 2**53 - 1
_DEEPEST_ARRAY = 32
_MOST_NAMED = 5


class Host(Enum):
    """Whose numbers arrive: JavaScript writes 5 and 5.0 alike and rounds integers beyond 2^53."""

    NATIVE = "native"
    JAVASCRIPT = "javascript"


class _UnfitError(Exception):
    """A value that its type does not take; the text completes `param '<key>': …`."""


def bind_parameters(
    parameters: Sequence[QueryParameter], arguments: object, *, now_millis: int, host: Host = Host.NATIVE
) -> dict[str, BoundValue]:
    """The value of every declared parameter, of undeclared keys as they come, and of `now()`.

    Date and DateTime stay texts, which are read where they are used. Omitted nullable parameters are null.
    """
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise BadRequestError("params must be a JSON object")
    declared = {parameter.name: parameter.type for parameter in parameters}
    counts = {parameter.name for parameter in parameters if parameter.counts_rows}
    bound: dict[str, BoundValue] = {}
    for key, value in arguments.items():
        if not isinstance(key, str):
            raise BadRequestError(f"the names of parameters must be texts, not {key!r}")
        try:
            expected = declared.get(key)
            bound[key] = _infer(value) if expected is None else _coerce(value, expected, host)
            if key in counts:
                _check_count(bound[key])
        except _UnfitError as unfit:
            raise BadRequestError(f"param '{key}': {unfit}") from None
    for name, type_ in declared.items():
        if name not in bound:
            if not type_.nullable:
                message = f"parameter '{name}' not provided; the query needs a {type_}"
                raise BadRequestError(message + _undeclared_hint(name, bound.keys() - declared.keys()))
            bound[name] = None
    bound[NOW_PARAMETER] = format_datetime(now_millis)
    return bound


def _undeclared_hint(missing: str, names: Set[str]) -> str:
    """What was given beside a missing parameter, which may be the same under another name."""
    if not names:
        return ""
    near = next((name for name in sorted(names) if did_you_mean(name, [missing])), None)
    if near is not None:
        return f"; '{near}' is given and not declared: did you mean '{missing}'?"
    return f"; given and not declared: {', '.join(sorted(names)[:_MOST_NAMED])}"


def _coerce(value: object, expected: PropertyType, host: Host) -> BoundValue:
    if value is None:
        if expected.nullable:
            return None
        raise _UnfitError("null is not accepted for non-nullable parameter")
    if expected.list:
        if not isinstance(value, list | tuple):
            raise _UnfitError(f"expected {expected}, got {shape_of(value)}")
        return [_coerced_scalar(item, expected.item, host) for item in value]
    return _coerced_scalar(value, expected, host)


def _check_count(value: BoundValue) -> None:
    if isinstance(value, int) and value < 0:
        raise _UnfitError(f"a limit or an offset is at least 0, not {value}")


def _coerced_scalar(value: object, expected: PropertyType, host: Host) -> BoundValue:
    scalar = expected.scalar
    if scalar in INTEGERS:
        return _integer(value, scalar, host)
    if scalar in FLOATS:
        return _float(value, expected)
    if scalar is Scalar.VECTOR:
        return _vector(value, expected)
    if scalar is Scalar.BOOL:
        if isinstance(value, bool):
            return value
    elif isinstance(value, str):
        return _text(value)
    raise _UnfitError(f"expected {expected}, got {shape_of(value)}")


def _text(value: str) -> str:
    if LONE_SURROGATE.search(value):
        raise _UnfitError("the text holds half of a surrogate pair, which no column can store")
    return value


def _integer(value: object, scalar: Scalar, host: Host) -> int:
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        # Judged by length first: Python refuses to convert texts of many thousand digits.
        significant = value.lstrip("+-").lstrip("0")
        number = int(value) if len(significant) <= _LONGEST_INTEGER else _BEYOND_ALL
    elif (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and host is Host.JAVASCRIPT and value.is_integer()
    ):
        number = int(value)
        if host is Host.JAVASCRIPT and abs(number) > _JS_SAFE:
            raise _UnfitError(
                "the number is beyond what JavaScript keeps exactly (2^53-1); pass it as a decimal string"
            )
    else:
        raise _UnfitError(f"expected {scalar.value}, got {shape_of(value)}")
    low, high = INTEGER_RANGES[scalar]
    if number < low and low == 0:
        raise _UnfitError(f"expected a non-negative {scalar.value}, got {value}")
    if not low <= number <= high:
        raise _UnfitError(f"{value} exceeds {scalar.value}")
    return number


def _float(value: object, expected: PropertyType) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise _UnfitError(f"the number exceeds {expected.scalar.value}") from None
        if math.isfinite(number):
            return number
        raise _UnfitError(f"expected a finite {expected.scalar.value}, got {'NaN' if math.isnan(number) else number}")
    raise _UnfitError(f"expected {expected}, got {shape_of(value)}")


def _vector(value: object, expected: PropertyType) -> list[BoundValue]:
    if not isinstance(value, list | tuple):
        raise _UnfitError(f"expected {expected}, got {shape_of(value)}")
    if len(value) != expected.dimension:
        raise _UnfitError(f"expected {expected}, got {len(value)} numbers")
    number = PropertyType(Scalar.F32)
    return [item if type(item) is float and math.isfinite(item) else _float(item, number) for item in value]


def _infer(value: object, depth: int = 0) -> BoundValue:
    """An undeclared value: harmless, so it keeps whatever plain shape it has."""
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple) and depth < _DEEPEST_ARRAY:
        return [_infer(item, depth + 1) for item in value]
    raise _UnfitError(f"{shape_of(value)} is not a parameter value")
