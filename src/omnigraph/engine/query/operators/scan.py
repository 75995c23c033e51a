"""The scan operator, and predicates tested on the values of bound rows.

Predicates that can be pushed go into the Lance scan, text predicates into the search; the others are tested here,
once per stored value, with the same result. Columns that are certainly needed are read along with the row ids when
few rows are expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.bindings import Bindings, Mask
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.operators.pushdown import row_filter_text, split_pushdown
from omnigraph.engine.query.operators.ranking import matching_rows
from omnigraph.engine.query.operators.values import compare, compare_sides, evaluate, load_together
from omnigraph.engine.query.properties import Located, gathering_parts
from omnigraph.engine.query.search.ranked_rows import Candidates
from omnigraph.language.query import ir
from omnigraph.language.query.row_filter import EVERY_ROW, AllOf, RowFilter, sides
from omnigraph.storage.tables.indexes import index_coverage
from omnigraph.storage.tables.rows import RowIds, by_row_id, row_ids_of

# Rows of two columns that are compared between two looks at the clock: texts are compared one by one.
_ROWS_PER_CHECK = 1 << 16
# A list of constants, its items as Python values, and as values of the column's type.
_LISTED_COPIES = 8


def filter_rows(rows: Bindings, predicates: Sequence[ir.Predicate], context: ReadContext) -> Bindings:
    """The rows for which every predicate is true, in their order."""
    compares = [side for p in predicates if isinstance(p, ir.Compare) for side in (p.left, p.right)]
    load_together(compares, rows, context)
    for predicate in predicates:
        if not rows.length:
            break
        rows = rows.where(predicate_mask(predicate, rows, context))
    return rows


def predicate_mask(predicate: ir.Predicate, rows: Bindings, context: ReadContext) -> Mask:
    if isinstance(predicate, ir.TextMatch):
        predicate = ir.Compare(predicate, ir.Operator.EQUAL, ir.Constant(True, ir.BOOL))
    left, right = evaluate(predicate.left, rows, context), evaluate(predicate.right, rows, context)
    operator, budget = predicate.operator, context.budget
    if isinstance(left, Located) and isinstance(right, Located):
        parts = gathering_parts([left, right], rows.length, budget, most_rows=_ROWS_PER_CHECK)
        return np.concatenate([compare(left.part(p).gather(), operator, right.part(p).gather()) for p in parts])
    if isinstance(left, Located):
        return _test_column(left, lambda values: compare_sides(values, operator, right, len(values)), budget)
    if not isinstance(right, Located):
        return compare_sides(left, operator, right, rows.length)
    beside = pa.repeat(left, 1).nbytes
    if operator is ir.Operator.MEMBER:
        budget.step(_LISTED_COPIES * beside)
        beside = 0  # a list is had once for all rows
    return _test_column(right, lambda values: compare_sides(left, operator, values, len(values)), budget, beside)


def holds(test: RowFilter, rows: Bindings, context: ReadContext) -> Mask:
    """Which rows satisfy a filter made of several comparisons."""
    load_together(sides(test), rows, context)
    return combine_masks(test, rows.length, lambda comparison: predicate_mask(comparison, rows, context))


def combine_masks(test: RowFilter, length: int, mask_of: Callable[[ir.Compare], Mask]) -> Mask:
    """The mask of a filter from those of its comparisons."""
    if isinstance(test, ir.Compare):
        return mask_of(test)
    masks = [combine_masks(part, length, mask_of) for part in test.tests]
    if isinstance(test, AllOf):
        return np.logical_and.reduce(masks) if masks else np.ones(length, dtype=bool)
    return np.logical_or.reduce(masks) if masks else np.zeros(length, dtype=bool)


def _test_column(column: Located, test: Callable[[pa.Array], Mask], budget: MemoryBudget, beside: int = 0) -> Mask:
    """A test of one column, part by part: once for each value where rows share values, else for each row."""
    shared = len(column.values) <= len(column.positions)
    every = Located(column.values, np.arange(len(column.values))) if shared else column
    parts = gathering_parts([every], len(every.positions), budget, most_rows=_ROWS_PER_CHECK, beside=beside)
    mask = np.concatenate([test(every.values[part] if shared else every.part(part).gather()) for part in parts])
    return mask[column.positions] if shared else mask


def select_scan(
    plan: ir.Scan, context: ReadContext, *, visible_only: bool = True
) -> tuple[Candidates, tuple[ir.Predicate, ...], RowFilter | None]:
    """The rows of a scan before they are read: candidates, predicates still to test, and the row filter of the
    visibility where the candidates do not keep it. `visible_only` leaves out invisible rows."""
    filter_, rest = split_pushdown(plan.predicates, context)
    row_test: RowFilter | None = None
    if visible_only and (visibility := context.visibility.of(plan.type)).rows != EVERY_ROW:
        row_test = visibility.rows_of(plan.variable)
        # A single node is tested itself: asking an index for all visible rows would cost more than the node.
        of_one = filter_ is not None and names_one_node(plan)
        text = None if of_one else row_filter_text(row_test, context)
        if text is not None:
            filter_ = text if filter_ is None else f"{filter_} AND {text}"
            row_test = None
    rows: RowIds | None = None
    for predicate in [p for p in rest if isinstance(p, ir.TextMatch)]:
        # Two text predicates are a conjunction: the second searches among what the first found.
        rows = matching_rows(predicate, Candidates(filter_, rows), context)
    rest = tuple(p for p in rest if not isinstance(p, ir.TextMatch))
    return Candidates(filter_ if rows is None else None, rows), rest, row_test


def scan(plan: ir.Scan, wanted: Iterable[ir.Value], context: ReadContext, *, limit: int | None = None) -> Bindings:
    """One row per node, ascending by row id. `wanted` are values that later operators read of the variable. `limit` is
    how many rows are enough, whichever they are."""
    candidates, rest, row_test = select_scan(plan, context)
    if candidates.filter is not None:
        context.profiler.note(f"filter: {candidates.filter}")
        if context.profiler.detailed:
            _note_indexes(plan, context)
    rows = candidates.rows
    if rows is None:
        columns = eager_columns(plan, [*wanted, *(() if row_test is None else sides(row_test))], context)
        table = context.table(plan.type)
        enough = None if rest or row_test is not None else limit
        read = by_row_id(table.read(columns, filter=candidates.filter, limit=enough, row_ids=True))
        rows = row_ids_of(read)
        context.budget.step(rows.nbytes)
        context.properties.remember(table, plan.variable, rows, read)
    matches = filter_rows(Bindings({plan.variable: rows}, len(rows)), rest, context)
    return matches if row_test is None else matches.where(holds(row_test, matches, context))


def scan_candidates(plan: ir.Scan, context: ReadContext, *, visible_only: bool = True) -> Candidates:
    """What a ranking above the scan may choose from. One that leaves out invisible rows by itself passes
    `visible_only=False`."""
    candidates, rest, row_test = select_scan(plan, context, visible_only=visible_only)
    if not rest and row_test is None:
        return candidates
    return Candidates(rows=scan(plan, (), context).rows[plan.variable])


def eager_columns(plan: ir.Scan, wanted: Iterable[ir.Value], context: ReadContext) -> list[str]:
    """The columns to read along: all that will be wanted of a node that its key names, none otherwise."""
    if not names_one_node(plan):
        return []
    columns: dict[str, None] = {}
    for value in wanted:
        match value:
            case ir.PropertyValue(variable=plan.variable) if context.has_column(value):
                columns[value.prop.column] = None
            case ir.NodeId(variable=plan.variable):
                columns["id"] = None
    return list(columns)


def _note_indexes(plan: ir.Scan, context: ReadContext) -> None:
    """Which of the filtered columns have an index, and how much of the table it knows."""
    table = context.table(plan.type)
    compared = [side for p in plan.predicates if isinstance(p, ir.Compare) for side in (p.left, p.right)]
    for prop in dict.fromkeys(side.prop for side in compared if isinstance(side, ir.PropertyValue)):
        indexed = index_coverage(table, prop.column).indexed_rows
        coverage = f"index on {indexed} of {table.state.rows} rows" if indexed else "no index"
        context.profiler.note(f"{prop.name}: {coverage}")


def names_one_node(plan: ir.Scan) -> bool:
    """Whether the predicates give the whole key."""
    equal = [p.left for p in plan.predicates if isinstance(p, ir.Compare) and p.operator is ir.Operator.EQUAL]
    pinned = {side.prop.name for side in equal if isinstance(side, ir.PropertyValue)}
    return bool(plan.type.key) and pinned >= set(plan.type.key)
