"""Predicates tested on rows: those that are true for a row keep it.

A comparison of a stored column with a constant is tested once for each stored value, in parts that fit the byte budget.
Of a conjunction, each part is only tested on rows that the parts before have left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.bindings import Bindings, Mask, identity
from omnigraph.engine.query.context import RowsContext, ValueContext
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.properties import Located, gathering_parts
from omnigraph.engine.query.values.compare import compare, compare_sides
from omnigraph.engine.query.values.elementwise import Evaluated
from omnigraph.engine.query.values.evaluate import evaluate, evaluate_each
from omnigraph.engine.query.values.logic import LISTED_COPIES, Side, comparable_items, comparable_sides, true_rows
from omnigraph.engine.query.values.stored import load_together, variables_read
from omnigraph.language.query import ir
from omnigraph.language.query.params import BoundValue
from omnigraph.language.query.value_types import is_null

# Rows of two columns that are compared between two looks at the clock: texts are compared one by one.
_ROWS_PER_CHECK: Final = 1 << 16
_NUMBERS_PER_CHECK: Final = 1 << 20
# Rows share a value of so few: comparing their positions with that of the one that passes is the fastest test.
_MOST_COMPARED: Final = 1 << 20


def filter_rows(rows: Bindings, predicates: Sequence[ir.Predicate], context: ValueContext) -> Bindings:
    """The rows for which every predicate is true, in their order."""
    load_together(predicates, rows, context)
    for predicate in predicates:
        if not rows.length:
            break
        rows = rows.where(predicate_mask(predicate, rows, context))
    return rows


def predicate_mask(predicate: ir.Predicate, rows: Bindings, context: ValueContext) -> Mask:
    """The rows for which a predicate is true."""
    match predicate:
        case ir.And():
            return _all_true(predicate, rows, context)
        case ir.Or():
            return _any_true(predicate, rows, context)
        case ir.Compare():
            return _compare_mask(predicate, rows, context)
        case ir.In():
            # They differ only in what is null.
            return _compare_mask(ir.Compare(predicate.items, ir.Operator.MEMBER, predicate.item), rows, context)
    return true_rows(evaluate(predicate, rows, context), rows.length)


def table_mask(predicate: ir.Predicate, rows: pa.Table, parameters: Mapping[str, BoundValue]) -> Mask:
    """Which rows of an Arrow table, with the columns of a stored one, satisfy a predicate of `ir.ROW`."""
    context = RowsContext.over(rows, parameters)
    return predicate_mask(predicate, Bindings({ir.ROW: np.arange(rows.num_rows)}, rows.num_rows), context)


def _all_true(predicate: ir.And, rows: Bindings, context: ValueContext) -> Mask:
    mask = np.ones(rows.length, np.bool_)
    chosen = rows.only(variables_read(predicate))
    for operand in predicate.operands:
        if not chosen.length:
            break
        holds = predicate_mask(operand, chosen, context)
        mask[mask] = holds
        chosen = chosen.where(holds)
    return mask


def _any_true(predicate: ir.Or, rows: Bindings, context: ValueContext) -> Mask:
    mask = np.zeros(rows.length, np.bool_)
    waiting = rows.only(variables_read(predicate))
    for operand in predicate.operands:
        if not waiting.length:
            break
        holds = predicate_mask(operand, waiting, context)
        mask[~mask] = holds
        waiting = waiting.where(~holds)
    return mask


def _compare_mask(predicate: ir.Compare, rows: Bindings, context: ValueContext) -> Mask:
    if is_null(predicate.left.type) or is_null(predicate.right.type):
        return np.zeros(rows.length, np.bool_)
    evaluated = evaluate_each([predicate.left, predicate.right], rows, context)
    first, second = Side(evaluated[0], predicate.left.type), Side(evaluated[1], predicate.right.type)
    if predicate.operator is ir.Operator.MEMBER:
        second, first = comparable_items(second, first)
    else:
        first, second = comparable_sides(first, second)
    return _mask_of_sides(first.evaluated, predicate.operator, second.evaluated, rows.length, context.budget)


def _mask_of_sides(left: Evaluated, operator: ir.Operator, right: Evaluated, length: int, budget: MemoryBudget) -> Mask:
    if isinstance(left, Located) and isinstance(right, Located):
        parts = gathering_parts([left, right], length, budget, most_rows=_ROWS_PER_CHECK)
        return np.concatenate([compare(left.part(p).gather(), operator, right.part(p).gather()) for p in parts])
    if isinstance(left, Located):
        assert isinstance(right, pa.Scalar)
        beside = pa.repeat(right, 1).nbytes if pa.types.is_nested(right.type) else 0
        return _test_column(left, lambda values: compare_sides(values, operator, right, len(values)), budget, beside)
    if not isinstance(right, Located):
        return compare_sides(left, operator, right, length)
    beside = pa.repeat(left, 1).nbytes
    if operator is ir.Operator.MEMBER:
        budget.step(LISTED_COPIES * beside)
        beside = 0  # a list is had once for all rows
    return _test_column(right, lambda values: compare_sides(left, operator, values, len(values)), budget, beside)


def _test_column(column: Located, test: Callable[[pa.Array], Mask], budget: MemoryBudget, beside: int = 0) -> Mask:
    """A test of one column, part by part: once for each value where rows share values, else for each row."""
    shared = len(column.values) <= len(column.positions)
    every = Located(column.values, identity(len(column.values))) if shared else column
    rows = _NUMBERS_PER_CHECK if _is_plain(column.values.type) else _ROWS_PER_CHECK
    parts = gathering_parts([every], len(every.positions), budget, most_rows=rows, beside=beside)
    mask = np.concatenate([test(every.values[part] if shared else every.part(part).gather()) for part in parts])
    if shared and column.positions.min(initial=0) < 0:
        mask = np.append(mask, False)
    if not shared:
        return mask
    if len(mask) > _MOST_COMPARED or int(mask.sum()) != 1:
        return mask[column.positions]
    return np.asarray(column.positions == mask.argmax())


def _is_plain(type_: pa.DataType) -> bool:
    """Whether a million values of a type are compared in an instant."""
    return bool(pa.types.is_integer(type_) or pa.types.is_temporal(type_))
