"""The value of a plan expression for the rows at hand, and exact comparisons of columns.

Filters, ordering, aggregates and projection call it. Numbers of different types compare by value: nothing is
truncated, wrapped or rounded. A mask is False where an operand is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Bindings, Mask, RowSpace
from omnigraph.engine.query.context import ReadContext, scalar_constant
from omnigraph.engine.query.operators.ranking import matching_rows, scores_of
from omnigraph.engine.query.properties import Located
from omnigraph.engine.query.search.ranked_rows import Candidates
from omnigraph.engine.rows.columns import arrow_type
from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.ir import Operator

Evaluated: TypeAlias = "Located | pa.Scalar"

_ID = "id"


def evaluate(value: ir.Value, rows: Bindings, context: ReadContext) -> Evaluated:
    """The value for every row."""
    match value:
        case ir.PropertyValue():
            if not context.has_column(value):
                return pa.scalar(None, arrow_type(value.type))
            table = context.table(value.owner)
            return context.properties.locate(table, value.variable, value.prop.column, rows.rows[value.variable])
        case ir.NodeId():
            table = context.table(value.owner)
            return context.properties.locate(table, value.variable, _ID, rows.rows[value.variable])
        case ir.TextMatch():
            bound = rows.rows[value.field.variable]
            candidates = RowSpace.of(bound)
            matching = RowSpace(matching_rows(value, Candidates(rows=candidates.rows), context))
            return Located(pa.array(matching.contains(candidates.rows)), candidates.positions(bound))
        case ir.Score():
            bound = rows.rows[next(ir.variables_of(value))]
            scores = scores_of(value.rank, bound, context)
            positions, size = scores.space.positions(bound), len(scores.values)
            values = pa.array(np.append(scores.values, 0.0), mask=np.arange(size + 1) == size)
            return Located(values, np.where(positions < 0, size, positions))
        case ir.OutputValue():
            raise AssertionError("an output column is sorted by its aggregate")
        case _:
            return scalar_constant(value, context.parameters)


def load_together(values: Iterable[ir.Value], rows: Bindings, context: ReadContext) -> None:
    """Read the stored columns of several values with one request per variable instead of one per value."""
    wanted: dict[str, dict[str, None]] = {}
    owners: dict[str, NodeType | EdgeType] = {}
    for value in values:
        match value:
            case ir.PropertyValue() if context.has_column(value):
                wanted.setdefault(value.variable, {})[value.prop.column] = None
            case ir.NodeId():
                wanted.setdefault(value.variable, {})[_ID] = None
            case _:
                continue
        owners[value.variable] = value.owner
    for variable, columns in wanted.items():
        context.properties.load(context.table(owners[variable]), variable, list(columns), rows.rows[variable])


ARROW_TESTS: Final[dict[Operator, Callable[..., Any]]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.LESS_OR_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_OR_EQUAL: pc.greater_equal,
}


def compare(left: pa.Array, operator: Operator, right: pa.Array) -> Mask:
    """`left operator right`, position by position."""
    match operator:
        case Operator.MEMBER:
            return _member(left, right)
        case Operator.SUBSTRING | Operator.PREFIX:
            test = str.__contains__ if operator is Operator.SUBSTRING else str.startswith
            pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
            return np.fromiter((a is not None and b is not None and test(a, b) for a, b in pairs), bool, len(left))
    if _is_number(left.type) and left.type != right.type:
        valid = as_mask(pc.and_(left.is_valid(), right.is_valid()))
        signs = pa.array(_sign(_numbers(left), _numbers(right)))
        return valid & as_mask(ARROW_TESTS[operator](signs, pa.scalar(0, pa.int8())))
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
    if _is_number(left.type) and left.type != right.type:
        left = pa.repeat(left, length) if left_is_scalar else left
        right = pa.repeat(right, length) if right_is_scalar else right
    return compare(left, operator, right)


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


def _member(lists: pa.Array, items: pa.Array) -> Mask:
    """Whether each list holds the item beside it."""
    parents, held = pc.list_parent_indices(lists), pc.list_flatten(lists)
    if pa.types.is_string(held.type) or pa.types.is_large_string(held.type):
        # Texts are compared by number: a long one is not copied for every item of its list.
        members = items.drop_null().unique()
        held, items = (pc.index_in(side, value_set=members.cast(side.type)) for side in (held, items))
    return _mark_lists(len(lists), parents, compare(held, Operator.EQUAL, items.take(parents)))


def _mark_lists(length: int, parents: pa.Array, equal: Mask) -> Mask:
    """The lists that have an item which is equal."""
    marks = np.zeros(length, dtype=bool)
    marks[parents.to_numpy(zero_copy_only=False)[equal]] = True
    return marks


def _one_of(values: pa.Array, items: pa.Array) -> Mask:
    """Which values are in a list. Items of another number type count where the type of the values holds them exactly;
    the two zeros of a float are one."""
    if _is_number(values.type):
        numbers, kind = items.drop_null().to_pylist(), values.type.to_pandas_dtype()
        if pa.types.is_integer(values.type):
            low, high = np.iinfo(kind).min, np.iinfo(kind).max
            items = pa.array([int(n) for n in numbers if low <= n <= high and n == int(n)], values.type)
        else:
            with np.errstate(over="ignore"):
                exact = [float(kind(n)) for n in numbers if float(kind(n)) == n]
            values, items = (pc.add(side, pa.scalar(0.0, side.type)) for side in (values, pa.array(exact, values.type)))
    return as_mask(pc.and_(pc.is_in(values, value_set=items), values.is_valid()))
