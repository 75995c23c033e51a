"""Testing columns of values against each other, exactly.

Numbers of different types compare by value: nothing is truncated, wrapped or rounded to make two types meet. Every
function answers with a plain mask that is False where an operand is null. Called by `filter`; knows no table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.values.bindings import Mask
from omnigraph.language.query.ir import Operator

ARROW_TESTS: Final[dict[Operator, Callable[..., Any]]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.LESS_OR_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_OR_EQUAL: pc.greater_equal,
}
_SIGN: Final[dict[Operator, Callable[[NDArray[np.int8]], Mask]]] = {
    Operator.EQUAL: lambda sign: sign == 0,
    Operator.NOT_EQUAL: lambda sign: sign != 0,
    Operator.LESS: lambda sign: sign < 0,
    Operator.LESS_OR_EQUAL: lambda sign: sign <= 0,
    Operator.GREATER: lambda sign: sign > 0,
    Operator.GREATER_OR_EQUAL: lambda sign: sign >= 0,
}
_INT64_END = 2.0**63


def compared(left: pa.Array, operator: Operator, right: pa.Array) -> Mask:
    """`left operator right`, position by position."""
    match operator:
        case Operator.MEMBER:
            return _member(left, right)
        case Operator.SUBSTRING:
            return _each(left, right, lambda text, part: part in text)
        case Operator.PREFIX:
            return _each(left, right, lambda text, part: text.startswith(part))
    if _is_number(left.type) and left.type != right.type:
        valid = as_mask(pc.and_(left.is_valid(), right.is_valid()))
        return valid & _SIGN[operator](_sign(_numbers(left), _numbers(right)))
    return as_mask(ARROW_TESTS[operator](left, right))


def compared_with_constant(left: pa.Array, operator: Operator, right: pa.Scalar) -> Mask:
    """`left operator right` where `right` is one non-null value."""
    match operator:
        case Operator.SUBSTRING:
            return as_mask(pc.match_substring(left, right.as_py()))
        case Operator.PREFIX:
            return as_mask(pc.starts_with(left, right.as_py()))
        case Operator.MEMBER:
            return _member(left, pa.repeat(right, len(left)))
    if _is_number(left.type) and left.type != right.type:
        return compared(left, operator, pa.repeat(right, len(left)))
    return as_mask(ARROW_TESTS[operator](left, right))


def as_mask(flags: pa.BooleanArray) -> Mask:
    """Null becomes False: a predicate that is not known to be true drops its row."""
    filled = pc.fill_null(flags, False) if flags.null_count else flags
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=bool)


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _numbers(column: pa.Array) -> NDArray[Any]:
    """The values, with something harmless where they are null. Narrow types widen to the one of their family."""
    if column.null_count:
        column = pc.fill_null(column, 0)
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        return values.astype(np.float64, copy=False)
    return values if column.type == pa.uint64() else values.astype(np.int64, copy=False)


def _sign(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.int8]:
    """-1, 0 or 1 for less, equal and greater."""
    if left.dtype == right.dtype:
        return _ordered(left, right)
    if left.dtype == np.float64:
        return np.negative(_sign(right, left))
    if right.dtype == np.float64:
        return _integer_with_float(left, right)
    if left.dtype == np.uint64:
        return np.negative(_sign(right, left))
    # int64 with uint64: a negative number is less, any other one fits.
    return np.where(left < 0, np.int8(-1), _ordered(left.astype(np.uint64), right)).astype(np.int8)


def _ordered(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.int8]:
    return (left > right).astype(np.int8) - (left < right).astype(np.int8)


def _integer_with_float(left: NDArray[Any], right: NDArray[np.float64]) -> NDArray[np.int8]:
    """Compare with the whole part first; where that is equal, a fraction makes the float the larger one."""
    if left.dtype == np.uint64:
        low, high, kind = 0.0, 2.0**64, np.uint64
    else:
        low, high, kind = -_INT64_END, _INT64_END, np.int64  # type: ignore[assignment]
    whole = np.floor(right)
    inside = (whole >= low) & (whole < high)
    sign = _ordered(left, np.where(inside, whole, 0.0).astype(kind))
    sign = np.where((sign == 0) & (right > whole), np.int8(-1), sign)
    return np.where(inside, sign, np.where(right < low, np.int8(1), np.int8(-1))).astype(np.int8)


def _member(lists: pa.Array, items: pa.Array) -> Mask:
    """Whether each list holds the item beside it."""
    parents = pc.list_parent_indices(lists)
    equal = compared(pc.list_flatten(lists), Operator.EQUAL, items.take(parents))
    found = np.zeros(len(lists), dtype=bool)
    found[parents.to_numpy(zero_copy_only=False)[equal]] = True
    return found


def _each(left: pa.Array, right: pa.Array, test: Callable[[str, str], bool]) -> Mask:
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return np.fromiter((a is not None and b is not None and test(a, b) for a, b in pairs), bool, len(left))
