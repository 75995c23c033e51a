"""Calculations with numbers: the operators, and the functions of mathematics.

Integers are I64 and checked, floats follow IEEE 754 and never fail. A kernel gets columns without nulls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.values.elementwise import Argument, Kernel, Part
from omnigraph.errors import EvaluationRule
from omnigraph.language.query.syntax import ArithmeticOperator

_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1
# Beyond so many digits before or behind the point, rounding changes nothing or leaves nothing.
_MOST_DIGITS: Final = 400
_EXACT: Final = Context(prec=2000)
_HALF: Final = Decimal("0.5")

_CHECKED: Final[Mapping[ArithmeticOperator, Callable[..., pa.Array]]] = {
    ArithmeticOperator.ADD: pc.add_checked,
    ArithmeticOperator.SUBTRACT: pc.subtract_checked,
    ArithmeticOperator.MULTIPLY: pc.multiply_checked,
}
_FLOATING: Final[Mapping[ArithmeticOperator, Callable[..., Any]]] = {
    ArithmeticOperator.ADD: np.add,
    ArithmeticOperator.SUBTRACT: np.subtract,
    ArithmeticOperator.MULTIPLY: np.multiply,
    ArithmeticOperator.DIVIDE: np.divide,
    ArithmeticOperator.REMAINDER: np.fmod,
}


# ---- operators ------------------------------------------------------------------------------------------


def number_kernel(operator: ArithmeticOperator, *, floats: bool) -> Kernel:
    """`left operator right` of numbers: of I64, or of F64 when one of the sides is a float."""

    def of_floats(part: Part, left: Argument, right: Argument) -> pa.Array:
        with np.errstate(all="ignore"):
            return pa.array(_FLOATING[operator](_operand(part, left), _operand(part, right)))

    def of_integers(part: Part, left: Argument, right: Argument) -> pa.Array:
        one, other = integers(part, left), integers(part, right)
        if operator in _CHECKED:
            return call_checked(part, _CHECKED[operator], one, other)
        if not other.all():
            part.fail(EvaluationRule.DIVISION_BY_ZERO, "an integer is divided by zero")
        if operator is ArithmeticOperator.REMAINDER:
            # Every integer is a multiple of -1; the quotient of the smallest one does not fit.
            return pa.array(np.fmod(one, np.where(other == -1, 1, other)))
        return call_checked(part, pc.divide_checked, one, other)

    return of_floats if floats else of_integers


def negative(part: Part, operand: Argument) -> pa.Array:
    """`-operand`"""
    if pa.types.is_floating(operand.type):
        return pa.array(np.negative(floats_of(part, operand)))
    return call_checked(part, pc.negate_checked, integers(part, operand))


def call_checked(part: Part, function: Callable[..., pa.Array], *columns: NDArray[np.int64]) -> pa.Array:
    """The results of an Arrow function that refuses what does not fit into 64 bits."""
    try:
        return function(*map(pa.array, columns))
    except pa.ArrowInvalid:
        part.fail(EvaluationRule.ARITHMETIC_OVERFLOW, "the result does not fit into 64 bits")


def integers(part: Part, argument: Argument) -> NDArray[np.int64]:
    """Integers as I64, which a U64 may be too large for."""
    values = part.numbers(argument)
    if values.dtype == np.uint64 and len(values) and int(values.max()) > _LARGEST:
        part.fail(EvaluationRule.ARITHMETIC_OVERFLOW, f"{values.max()} does not fit into I64")
    return values.astype(np.int64, copy=False)


def floats_of(part: Part, argument: Argument) -> NDArray[np.float64]:
    return part.numbers(argument).astype(np.float64, copy=False)


def _operand(part: Part, argument: Argument) -> NDArray[np.float64]:
    """A number that is calculated with: no U64 beyond I64 is, not even beside a float."""
    if pa.types.is_integer(argument.type):
        return integers(part, argument).astype(np.float64)
    return floats_of(part, argument)


# ---- functions ------------------------------------------------------------------------------------------


def _floating(function: Callable[..., NDArray[np.float64]]) -> Kernel:
    """A function of floats; NaN outside of its domain."""

    def kernel(part: Part, *arguments: Argument) -> pa.Array:
        with np.errstate(all="ignore"):
            return pa.array(function(*(floats_of(part, argument) for argument in arguments)))

    return kernel


def _constant(value: float) -> Kernel:
    return lambda part: pa.array([value] * part.size, pa.float64())


def _absolute(part: Part, x: Argument) -> pa.Array:
    if pa.types.is_floating(x.type):
        return pa.array(np.abs(floats_of(part, x)))
    return call_checked(part, pc.abs_checked, integers(part, x))


def _sign(part: Part, x: Argument) -> pa.Array:
    values = part.numbers(x)
    kind = np.float64 if pa.types.is_floating(x.type) else np.int64
    return pa.array(np.sign(values).astype(kind))


def _round(part: Part, x: Argument, digits: Argument | None = None) -> pa.Array:
    """To the nearest number with so many digits behind the point, of two the larger. The number is what its shortest
    spelling says: 2.675 to two digits is 2.68."""
    if digits is None or (isinstance(digits, pa.Scalar) and digits.as_py() == 0):
        values = floats_of(part, x)
        with np.errstate(all="ignore"):
            low = np.floor(values)
            return pa.array(np.where(values - low >= 0.5, low + 1, low))
    return pa.array([_round_one(number, places) for number, places in part.each(x, digits)], pa.float64())


def _round_one(number: float, digits: int) -> float:
    if not math.isfinite(number) or digits > _MOST_DIGITS:
        return float(number)
    if digits < -_MOST_DIGITS:
        return 0.0
    scaled = Decimal(repr(number)).scaleb(digits, _EXACT)
    whole = _EXACT.add(scaled, _HALF).to_integral_value(ROUND_FLOOR, _EXACT)
    return float(whole.scaleb(-digits, _EXACT))


NUMBER_FUNCTIONS: Final[Mapping[str, Kernel]] = {
    "abs": _absolute,
    "sign": _sign,
    "ceil": _floating(np.ceil),
    "floor": _floating(np.floor),
    "round": _round,
    "sqrt": _floating(np.sqrt),
    "exp": _floating(np.exp),
    "log": _floating(np.log),
    "log10": _floating(np.log10),
    "power": _floating(np.power),
    "pi": _constant(math.pi),
    "e": _constant(math.e),
    "sin": _floating(np.sin),
    "cos": _floating(np.cos),
    "tan": _floating(np.tan),
    "asin": _floating(np.arcsin),
    "acos": _floating(np.arccos),
    "atan": _floating(np.arctan),
    "atan2": _floating(np.arctan2),
    "degrees": _floating(np.degrees),
    "radians": _floating(np.radians),
}
