"""Predicates over bound rows, evaluated on values.

A predicate over one column is tested once per stored value and spread over the rows that share it. Called for
everything that could not be pushed into a scan; the answer is the same as if it had been.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.values.bindings import Bindings, Mask
from omnigraph.engine.query.values.compare import compared, compared_sides
from omnigraph.engine.query.values.properties import Located, gathering_parts
from omnigraph.engine.query.values.values import Evaluated, evaluate, load_together
from omnigraph.language.query import ir
from omnigraph.language.query.lens import AllOf, RowFilter, sides

# Rows of two columns that are compared between two looks at the clock: texts are compared one by one.
_ROWS_PER_CHECK = 1 << 16
# A list of constants, its items as Python values, and as values of the column's type.
_LISTED_COPIES = 8


def filtered(rows: Bindings, predicates: Sequence[ir.Predicate], context: ReadContext) -> Bindings:
    """The rows for which every predicate is true, in their order."""
    compares = [side for p in predicates if isinstance(p, ir.Compare) for side in (p.left, p.right)]
    load_together(compares, rows, context)
    for predicate in predicates:
        if not rows.length:
            break
        rows = rows.where(satisfied(predicate, rows, context))
    return rows


def satisfied(predicate: ir.Predicate, rows: Bindings, context: ReadContext) -> Mask:
    if isinstance(predicate, ir.TextMatch):
        predicate = ir.Compare(predicate, ir.Operator.EQUAL, ir.Constant(True, ir.BOOL))
    left = evaluate(predicate.left, rows, context)
    right = evaluate(predicate.right, rows, context)
    if not isinstance(left, Located) or not isinstance(right, Located):
        return _compared(left, predicate.operator, right, rows.length, context.budget)
    parts = gathering_parts([left, right], rows.length, context.budget, most_rows=_ROWS_PER_CHECK)
    operator = predicate.operator
    return np.concatenate([compared(left.part(p).gathered(), operator, right.part(p).gathered()) for p in parts])


def holds(test: RowFilter, rows: Bindings, context: ReadContext) -> Mask:
    """Which rows satisfy a filter made of several comparisons."""
    load_together(sides(test), rows, context)
    return _holds(test, rows, context)


def _holds(test: RowFilter, rows: Bindings, context: ReadContext) -> Mask:
    if isinstance(test, ir.Compare):
        return satisfied(test, rows, context)
    masks = [_holds(part, rows, context) for part in test.tests]
    if isinstance(test, AllOf):
        return np.logical_and.reduce(masks) if masks else np.ones(rows.length, dtype=bool)
    return np.logical_or.reduce(masks) if masks else np.zeros(rows.length, dtype=bool)


def _compared(left: Evaluated, operator: ir.Operator, right: Evaluated, length: int, budget: MemoryBudget) -> Mask:
    """Where at most one side is a column."""
    if isinstance(left, Located) and not isinstance(right, Located):
        return _tested(left, lambda values: compared_sides(values, operator, right, len(values)), budget)
    if isinstance(right, Located) and not isinstance(left, Located):
        beside = pa.repeat(left, 1).nbytes
        if operator is ir.Operator.MEMBER:
            budget.step(_LISTED_COPIES * beside)
            beside = 0  # a list is had once for all rows
        return _tested(right, lambda values: compared_sides(left, operator, values, len(values)), budget, beside)
    assert not isinstance(left, Located)
    assert not isinstance(right, Located)
    return compared_sides(left, operator, right, length)


def _tested(column: Located, test: Callable[[pa.Array], Mask], budget: MemoryBudget, beside: int = 0) -> Mask:
    """A test of one column, part by part: once for each value where rows share values, else for each row."""
    shared = len(column.values) <= len(column.positions)
    every = Located(column.values, np.arange(len(column.values))) if shared else column
    parts = gathering_parts([every], len(every.positions), budget, most_rows=_ROWS_PER_CHECK, beside=beside)
    mask = np.concatenate([test(every.values[part] if shared else every.part(part).gathered()) for part in parts])
    return mask[column.positions] if shared else mask
