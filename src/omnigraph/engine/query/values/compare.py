"""Exact comparisons of columns.

Numbers of different types compare by value: nothing is truncated, wrapped or rounded, and NaN equals nothing. A mask is
False where an operand is null. Lists and records are equal as openCypher says: a null within them makes the outcome
null unless something else decides it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Mask
from omnigraph.engine.query.value_columns import compact_lists, repeat
from omnigraph.language.query.ir import Operator

ARROW_TESTS: Final[dict[Operator, Callable[..., Any]]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.LESS_OR_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_OR_EQUAL: pc.greater_equal,
}


_NUMPY_TESTS: Final[dict[Operator, Callable[..., Any]]] = {
    Operator.EQUAL: np.equal,
    Operator.NOT_EQUAL: np.not_equal,
    Operator.LESS: np.less,
    Operator.LESS_OR_EQUAL: np.less_equal,
    Operator.GREATER: np.greater,
    Operator.GREATER_OR_EQUAL: np.greater_equal,
}


class Truth(NamedTuple):
    """Which rows are true and which are null; the others are false."""

    true: Mask
    null: Mask

    def array(self) -> pa.Array:
        return pa.array(self.true, mask=self.null)


def sides_truth(left: pa.Array | pa.Scalar, operator: Operator, right: pa.Array | pa.Scalar, length: int) -> Truth:
    """`left operator right` for so many rows, none of them null on either side."""
    if _is_nested(left.type) and operator in (Operator.EQUAL, Operator.NOT_EQUAL):
        truth = _equal(_repeat(left, length), _repeat(right, length))
        return truth if operator is Operator.EQUAL else Truth(~truth.true & ~truth.null, truth.null)
    return Truth(compare_sides(left, operator, right, length), np.zeros(length, np.bool_))


def membership_truth(items: pa.Array | pa.Scalar, lists: pa.Array | pa.Scalar, length: int) -> Truth:
    """`items in lists` for so many rows, none of them null on either side: a null in a list leaves open what no other
    item decides."""
    if _is_nested(items.type):
        lists = compact_lists(_repeat(lists, length))
        parents = pc.list_parent_indices(lists)
        truth = _equal(lists.values, _repeat(items, length).take(parents))
        true, null = (_mark_lists(length, parents, mask) for mask in truth)
        return Truth(true, null & ~true)
    true = compare_sides(lists, Operator.MEMBER, items, length)
    if isinstance(lists, pa.Scalar):
        return Truth(true, ~true & bool(lists.values.null_count))
    holds_null = as_mask(pc.list_flatten(lists).is_null())
    return Truth(true, ~true & _mark_lists(length, pc.list_parent_indices(lists), holds_null))


def compare(left: pa.Array, operator: Operator, right: pa.Array) -> Mask:
    """`left operator right`, position by position."""
    match operator:
        case Operator.MEMBER:
            return _member(left, right)
        case Operator.SUBSTRING | Operator.PREFIX:
            test = str.__contains__ if operator is Operator.SUBSTRING else str.startswith
            pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
            return np.fromiter((a is not None and b is not None and test(a, b) for a, b in pairs), bool, len(left))
    if _is_nested(left.type):
        truth = _equal(left, right)
        return truth.true if operator is Operator.EQUAL else ~truth.true & ~truth.null
    if _is_number(left.type) and left.type != right.type:
        return _compare_numbers(left, operator, right)
    return as_mask(ARROW_TESTS[operator](left, right))


def compare_sides(left: pa.Array | pa.Scalar, operator: Operator, right: pa.Array | pa.Scalar, length: int) -> Mask:
    """`left operator right` for so many rows; a scalar is the same value for all of them, and is not repeated for each
    if it may be long."""
    left_is_scalar, right_is_scalar = isinstance(left, pa.Scalar), isinstance(right, pa.Scalar)
    if (left_is_scalar and not left.is_valid) or (right_is_scalar and not right.is_valid):
        return np.zeros(length, dtype=bool)
    if left_is_scalar and right_is_scalar:
        return np.repeat(compare_sides(left, operator, pa.repeat(right, 1), 1), length)
    if operator in (Operator.MEMBER, Operator.SUBSTRING, Operator.PREFIX):
        if left_is_scalar:
            return _constant_contains(left, operator, right)
        return _contains_constant(left, operator, right) if right_is_scalar else compare(left, operator, right)
    if right_is_scalar and (mask := _compare_integers(left, operator, right)) is not None:
        return mask
    if _is_nested(left.type) or (_is_number(left.type) and left.type != right.type):
        left, right = _repeat(left, length), _repeat(right, length)
    return compare(left, operator, right)


def _repeat(side: pa.Array | pa.Scalar, length: int) -> pa.Array:
    return repeat(side, length) if isinstance(side, pa.Scalar) else side


def _compare_integers(left: pa.Array, operator: Operator, right: pa.Scalar) -> Mask | None:
    """Integers without nulls beside one that their type holds; None for everything else. NumPy makes a mask of bytes,
    which is what is wanted, in a third of the time."""
    if left.null_count or not (pa.types.is_integer(left.type) and pa.types.is_integer(right.type)):
        return None
    values, number = left.to_numpy(), right.as_py()
    limits = np.iinfo(values.dtype)
    if not limits.min <= number <= limits.max:
        return None
    return np.asarray(_NUMPY_TESTS[operator](values, values.dtype.type(number)))


# ---- lists, records and entities ------------------------------------------------------------------------


def _is_nested(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_))


def _equal(left: pa.Array, right: pa.Array) -> Truth:
    """Whether the values are equal, position by position."""
    null = ~as_mask(pc.and_(left.is_valid(), right.is_valid()))
    if pa.types.is_struct(left.type):
        # Entities and paths are structs of numbers without nulls: equal where all of them are.
        false = np.zeros(len(left), np.bool_)
        for field in range(left.type.num_fields):
            inner = _equal(left.field(field), right.field(field))
            false |= ~inner.true & ~inner.null
            null |= inner.null
        false &= ~(as_mask(left.is_null()) | as_mask(right.is_null()))
        return Truth(~false & ~null, null & ~false)
    if _is_nested(left.type):
        return _equal_lists(left, right, null)
    return Truth(compare(left, Operator.EQUAL, right), null)


def _equal_lists(left: pa.Array, right: pa.Array, null: Mask) -> Truth:
    lengths = [pc.fill_null(pc.list_value_length(side), -1).to_numpy(zero_copy_only=False) for side in (left, right)]
    same = ~null & (lengths[0] == lengths[1])
    chosen = pa.array(same)
    items = _equal(pc.list_flatten(left.filter(chosen)), pc.list_flatten(right.filter(chosen)))
    parents = pa.array(np.repeat(np.flatnonzero(same), lengths[0][same]))
    unknown = _mark_lists(len(left), parents, items.null)
    differs = _mark_lists(len(left), parents, ~items.true & ~items.null)
    return Truth(same & ~differs & ~unknown, null | (unknown & ~differs))


def _contains_constant(left: pa.Array, operator: Operator, right: pa.Scalar) -> Mask:
    """Whether texts or lists contain, or begin with, one non-null value."""
    match operator:
        case Operator.SUBSTRING:
            return as_mask(pc.match_substring(left, right.as_py()))
        case Operator.PREFIX:
            return as_mask(pc.starts_with(left, right.as_py()))
    held = pc.list_flatten(left)
    return _mark_lists(len(left), pc.list_parent_indices(left), compare_sides(held, Operator.EQUAL, right, len(held)))


def _constant_contains(left: pa.Scalar, operator: Operator, right: pa.Array) -> Mask:
    """Whether one non-null text or list contains, or begins with, each of some values."""
    if operator is Operator.MEMBER:
        return _one_of(right, left.values)
    text, parts = str(left.as_py()), right.to_pylist()
    test = text.__contains__ if operator is Operator.SUBSTRING else text.startswith
    return np.fromiter((part is not None and test(part) for part in parts), bool, len(parts))


def _member(lists: pa.Array, items: pa.Array) -> Mask:
    """Whether each list holds the item beside it."""
    parents, held = pc.list_parent_indices(lists), pc.list_flatten(lists)
    if pa.types.is_string(held.type) or pa.types.is_large_string(held.type):
        # Texts are compared by number: a long one is not copied for every item of its list.
        members = items.drop_null().unique()
        held, items = (pc.index_in(side, value_set=members.cast(side.type)) for side in (held, items))
    return _mark_lists(len(lists), parents, compare(held, Operator.EQUAL, items.take(parents)))


def _mark_lists(length: int, parents: pa.Array, chosen: Mask) -> Mask:
    """The lists that have a chosen item."""
    marks = np.zeros(length, dtype=bool)
    marks[parents.to_numpy(zero_copy_only=False)[chosen]] = True
    return marks


def _one_of(values: pa.Array, items: pa.Array) -> Mask:
    """Which values are in a list. Items of another number type count where the type of the values holds them exactly;
    the two zeros of a float are one, and NaN is none of them."""
    if _is_nested(values.type):
        equal = [_equal(values, repeat(item, len(values))).true for item in items]
        return np.logical_or.reduce(equal) if equal else np.zeros(len(values), np.bool_)
    if _is_number(values.type) and values.type != items.type:
        items = _exactly(items.drop_null().to_pylist(), values.type)
    if pa.types.is_floating(values.type):
        items = items.filter(pc.invert(pc.is_nan(items)))
        values, items = (pc.add(side, pa.scalar(0.0, side.type)) for side in (values, items))
    return as_mask(pc.and_(pc.is_in(values, value_set=items), values.is_valid()))


def _exactly(numbers: list[Any], type_: pa.DataType) -> pa.Array:
    """Those of some numbers that a type holds as they are."""
    kind = type_.to_pandas_dtype()
    if pa.types.is_integer(type_):
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        return pa.array([int(n) for n in numbers if low <= n <= high and n == int(n)], type_)
    with np.errstate(over="ignore"):
        return pa.array([float(kind(n)) for n in numbers if float(kind(n)) == n], type_)


# ---- numbers --------------------------------------------------------------------------------------------


def as_mask(flags: pa.BooleanArray) -> Mask:
    """Null becomes False: a predicate that is not known to be true drops its row."""
    filled = pc.fill_null(flags, False) if flags.null_count else flags
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=bool)


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _compare_numbers(left: pa.Array, operator: Operator, right: pa.Array) -> Mask:
    valid = as_mask(pc.and_(left.is_valid(), right.is_valid()))
    sides = _numbers(left), _numbers(right)
    mask = as_mask(ARROW_TESTS[operator](pa.array(_sign(*sides)), pa.scalar(0, pa.int8())))
    for side in sides:
        if side.dtype == np.float64 and (odd := np.isnan(side)).any():
            mask = np.where(odd, operator is Operator.NOT_EQUAL, mask)
    return valid & mask


def _numbers(column: pa.Array) -> NDArray[Any]:
    """The values, with something harmless where they are null. Narrow types widen to the one of their family."""
    if column.null_count:
        column = pc.fill_null(column, 0)
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        return values.astype(np.float64, copy=False)
    return values if column.type == pa.uint64() else values.astype(np.int64, copy=False)


def _sign(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.int8]:
    """-1, 0 or 1 for less, equal and greater; anything for NaN."""
    if left.dtype == right.dtype:
        return _order(left, right)
    if left.dtype == np.float64:
        return np.negative(_sign(right, left))
    if right.dtype == np.float64:
        return _integer_with_float(left, right)
    if left.dtype == np.uint64:
        return np.negative(_sign(right, left))
    # int64 with uint64: a negative number is less, any other one fits.
    return np.where(left < 0, np.int8(-1), _order(left.astype(np.uint64), right)).astype(np.int8)


def _order(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.int8]:
    return (left > right).astype(np.int8) - (left < right).astype(np.int8)


def _integer_with_float(left: NDArray[Any], right: NDArray[np.float64]) -> NDArray[np.int8]:
    """Compare with the whole part first; where that is equal, a fraction makes the float the larger one."""
    # As a float, the largest integer of a type becomes the power of two after it.
    low, end = float(np.iinfo(left.dtype).min), float(np.iinfo(left.dtype).max)
    whole = np.floor(right)
    inside = (whole >= low) & (whole < end)
    sign = _order(left, np.where(inside, whole, 0.0).astype(left.dtype))
    sign = np.where((sign == 0) & (right > whole), np.int8(-1), sign)
    return np.where(inside, sign, np.where(right < low, np.int8(1), np.int8(-1))).astype(np.int8)
