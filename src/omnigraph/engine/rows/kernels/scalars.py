"""What one JSON-like value becomes in a column: the exact rules, one value at a time.

The column kernels take a vectorised way when they can prove that it agrees, and come here for everything else, so
this module is both the slow path and the reference. Python values in, stored Python values out: a Date is its
epoch day, a DateTime its epoch millisecond.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Final, TypeAlias

from omnigraph.api.values import not_finite
from omnigraph.errors import BadRequestError
from omnigraph.language.types import INTEGER_RANGES, Scalar
from omnigraph.language.values import parse_date, parse_datetime, round_to_f32, shape_of

Stored: TypeAlias = "str | bool | int | float"

MANAGED_PREFIX: Final = "base64:"

# JSON integers live in these bounds; a token beyond them counts as a float.
_INTEGER_TOKENS: Final = (-(2**63), 2**64 - 1)


class UnfitError(Exception):
    """A value of the right shape that its type can't hold. Refused by every grammar; the text is the reason."""


class WrongShapeError(UnfitError):
    """A value of another JSON type than the property's. The lenient grammar reads it as null."""


def stored_scalar(scalar: Scalar, value: object) -> Stored:
    """The value as the column holds it; raises UnfitError or WrongShapeError."""
    return _RULES[scalar](scalar, value)


def is_integer_token(value: object) -> bool:
    return type(value) is int and _INTEGER_TOKENS[0] <= value <= _INTEGER_TOKENS[1]


def managed_bytes(text: str) -> bytes:
    """The payload of a `base64:` value: the standard padded alphabet and nothing else."""
    encoded = text[len(MANAGED_PREFIX) :]
    try:
        payload = binascii.a2b_base64(encoded, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise UnfitError(f"invalid base64 value: {error}") from None
    # The decoder forgives set bits behind the last byte; two spellings of one value would then exist.
    if base64.b64encode(payload).decode() != encoded:
        raise UnfitError("invalid base64 value: not the standard padded form")
    return payload


def _wrong(scalar: Scalar, value: object) -> WrongShapeError:
    return WrongShapeError(f"expects {scalar.value}, got {shape_of(value)}")


def _string(scalar: Scalar, value: object) -> str:
    if isinstance(value, str):
        return value
    raise _wrong(scalar, value)


def _bool(scalar: Scalar, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(scalar, value)


def _integer(scalar: Scalar, value: object) -> int:
    if type(value) is not int or not is_integer_token(value):
        raise _wrong(scalar, value)
    return _within(value, INTEGER_RANGES[scalar], scalar)


def _within(value: int, bounds: tuple[int, int], scalar: Scalar) -> int:
    if not bounds[0] <= value <= bounds[1]:
        raise UnfitError(f"{value} is outside the range of {scalar.value}")
    return value


def _float(scalar: Scalar, value: object) -> float:
    if type(value) is not int and not isinstance(value, float):
        raise _wrong(scalar, value)
    try:
        number = float(value)
        if math.isfinite(number):
            return round_to_f32(number) if scalar is Scalar.F32 else number
    except OverflowError:
        raise UnfitError(f"the number exceeds {scalar.value}") from None
    except BadRequestError as error:
        raise UnfitError(str(error)) from None
    raise UnfitError(not_finite(number))


def _date(scalar: Scalar, value: object) -> int:
    return _instant(scalar, value, parse_date, INTEGER_RANGES[Scalar.I32])


def _datetime(scalar: Scalar, value: object) -> int:
    return _instant(scalar, value, parse_datetime, INTEGER_RANGES[Scalar.I64])


def _instant(scalar: Scalar, value: object, parse: Callable[[str], int], bounds: tuple[int, int]) -> int:
    if isinstance(value, str):
        try:
            return parse(value)
        except BadRequestError as error:
            raise UnfitError(str(error)) from None
    if type(value) is int and is_integer_token(value):
        return _within(value, bounds, scalar)
    raise _wrong(scalar, value)


_RULES: Final[dict[Scalar, Callable[[Scalar, object], Stored]]] = {
    Scalar.STRING: _string,
    Scalar.BOOL: _bool,
    Scalar.I32: _integer,
    Scalar.I64: _integer,
    Scalar.U32: _integer,
    Scalar.U64: _integer,
    Scalar.F32: _float,
    Scalar.F64: _float,
    Scalar.DATE: _date,
    Scalar.DATETIME: _datetime,
}
