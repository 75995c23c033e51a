"""Predicates over bound rows, evaluated on values.

A predicate over one column is tested once per stored value and spread over the rows that share it. Called for
everything that could not be pushed into a scan; the answer is the same as if it had been.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.values.bindings import Bindings, Mask
from omnigraph.engine.query.values.compare import compared, compared_with_constant
from omnigraph.engine.query.values.properties import Located
from omnigraph.engine.query.values.values import Evaluated, evaluate, load_together
from omnigraph.language.query import ir
from omnigraph.language.query.lens import AllOf, RowFilter, sides

# Rows of two columns that are compared between two looks at the clock: texts are compared one by one.
_ROWS_PER_CHECK = 1 << 16


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
        return _compared(left, predicate.operator, right, rows.length)
    masks = []
    for start in range(0, max(1, rows.length), _ROWS_PER_CHECK):
        context.cancellation.check()
        part = slice(start, start + _ROWS_PER_CHECK)
        masks.append(compared(left.part(part).gathered(), predicate.operator, right.part(part).gathered()))
    return np.concatenate(masks)


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


def _compared(left: Evaluated, operator: ir.Operator, right: Evaluated, length: int) -> Mask:
    for side in (left, right):
        if isinstance(side, pa.Scalar) and not side.is_valid:
            return np.zeros(length, dtype=bool)
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return np.repeat(compared(pa.repeat(left, 1), operator, pa.repeat(right, 1)), length)
    if isinstance(left, Located) and isinstance(right, pa.Scalar):
        column = left.condensed()
        return compared_with_constant(column.values, operator, right)[column.positions]
    if isinstance(left, pa.Scalar) and isinstance(right, Located):
        column = right.condensed()
        return compared(pa.repeat(left, len(column.values)), operator, column.values)[column.positions]
    raise AssertionError("two columns are compared part by part")
