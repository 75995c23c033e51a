"""The scan operator, and predicates tested on the values of bound rows.

Predicates that can be pushed go into the Lance scan, text predicates into the search; the others are evaluated here,
with the same result, and only on rows that are visible: an error of an invisible row would tell of it. Columns that are
certainly needed are read along with the row ids when few rows are expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from omnigraph.engine.query.bindings import Bindings, concatenate, member_column
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.operators.pushdown import split_pushdown
from omnigraph.engine.query.operators.ranking import matching_rows
from omnigraph.engine.query.operators.row_filters import holds, split_row_filter
from omnigraph.engine.query.search.ranked_rows import Candidates
from omnigraph.engine.query.values.evaluate import is_constant
from omnigraph.engine.query.values.predicates import filter_rows
from omnigraph.engine.query.values.stored import META_COLUMNS
from omnigraph.language.query import ir
from omnigraph.language.query.row_filter import RowFilter
from omnigraph.language.query.syntax import MetaField
from omnigraph.storage.tables.indexes import index_coverage
from omnigraph.storage.tables.rows import RowIds, by_row_id, row_ids_of


def select_scan(
    plan: ir.Scan, context: ReadContext, *, visible_only: bool = True
) -> tuple[Candidates, tuple[ir.Predicate, ...], RowFilter | None]:
    """The rows of a scan before they are read: candidates, predicates still to test, and the row filter of the
    visibility where the candidates do not keep it. `visible_only` leaves out invisible rows."""
    filter_, rest = split_pushdown(plan.predicates, context)
    row_test: RowFilter | None = None
    if visible_only and context.is_restricted(plan.type):
        row_test = context.visibility.of(plan.type).rows_of(plan.variable)
        # A single node is tested itself: asking an index for all visible rows would cost more than the node.
        if filter_ is None or not names_one_node(plan):
            text, row_test = split_row_filter(row_test, context)
            filter_ = " AND ".join(part for part in (filter_, text) if part is not None) or None
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
        columns = eager_columns(plan, [*wanted, *(() if row_test is None else (row_test,))], rest, context)
        table = context.table(plan.type)
        enough = None if rest or row_test is not None else limit
        read = by_row_id(table.read(columns, filter=candidates.filter, limit=enough, row_ids=True))
        rows = row_ids_of(read)
        context.budget.step(rows.nbytes)
        context.properties.remember(table, plan.variable, rows, read)
    matches = Bindings({plan.variable: rows}, len(rows))
    if row_test is not None:
        matches = matches.where(holds(row_test, matches, context))
    return filter_rows(matches, rest, context)


def scan_union(
    plan: ir.TypeUnionScan, wanted: Sequence[ir.Value], context: ReadContext, *, limit: int | None = None
) -> Bindings:
    """The rows of several scans, one type after the other, with the type of each row."""
    parts = [_of_member(plan, Bindings({plan.variable: np.empty(0, np.int64)}, 0), 0)]
    enough = limit
    for each in plan.scans:
        rows = scan(each, wanted, context, limit=enough)
        parts.append(_of_member(plan, rows, plan.members.index(each.type)))
        if enough is not None and (enough := enough - rows.length) <= 0:
            break
    return concatenate(parts)


def _of_member(plan: ir.TypeUnionScan, rows: Bindings, member: int) -> Bindings:
    """Rows with their type; a variable of one type needs none."""
    if len(plan.members) == 1:
        return rows
    return rows.binding({member_column(plan.variable): np.full(rows.length, member)})


def scan_candidates(plan: ir.Scan, context: ReadContext, *, visible_only: bool = True) -> Candidates:
    """What a ranking above the scan may choose from. One that leaves out invisible rows by itself passes
    `visible_only=False`."""
    candidates, rest, row_test = select_scan(plan, context, visible_only=visible_only)
    if not rest and row_test is None:
        return candidates
    return Candidates(rows=scan(plan, (), context).rows[plan.variable])


def eager_columns(
    plan: ir.Scan, wanted: Iterable[ir.Value], rest: Iterable[ir.Predicate], context: ReadContext
) -> list[str]:
    """The columns to read along: all that will be wanted of a node that is named by its key or id, none otherwise. What
    only the scan itself tests is not wanted, except by `rest`."""
    if not names_one_node(plan):
        return []
    pushed = {id(predicate) for predicate in plan.predicates} - {id(predicate) for predicate in rest}
    tested = {id(part) for predicate in plan.predicates if id(predicate) in pushed for part in ir.walk(predicate)}
    columns: dict[str, None] = {}
    for value in wanted:
        for part in ir.walk(value):
            if id(part) in tested:
                continue
            match part:
                case ir.PropertyValue(variable=plan.variable) if _is_stored(part, plan, context):
                    columns[part.prop.column] = None
                case ir.MetaValue(variable=plan.variable) if part.field in META_COLUMNS:
                    columns[META_COLUMNS[part.field]] = None
    return list(columns)


def _is_stored(value: ir.PropertyValue, plan: ir.Scan, context: ReadContext) -> bool:
    """Whether the table of a scan has the property: a variable of several types has properties of the others too."""
    return value.owner.type_key == plan.type.type_key and context.has_column(value)


def _note_indexes(plan: ir.Scan, context: ReadContext) -> None:
    """Which of the filtered columns have an index, and how much of the table it knows."""
    table = context.table(plan.type)
    parts = (part for predicate in plan.predicates for part in ir.walk(predicate))
    for prop in dict.fromkeys(part.prop for part in parts if isinstance(part, ir.PropertyValue)):
        indexed = index_coverage(table, prop.column).indexed_rows
        coverage = f"index on {indexed} of {table.state.rows} rows" if indexed else "no index"
        context.profiler.note(f"{prop.name}: {coverage}")


def names_one_node(plan: ir.Scan) -> bool:
    """Whether the predicates give the whole key, or the id."""
    pinned: set[str] = set()
    for predicate in plan.predicates:
        match predicate:
            case ir.Compare(left=side, operator=ir.Operator.EQUAL, right=other):
                side, other = (other, side) if is_constant(side) else (side, other)
                match side:
                    case ir.MetaValue(field=MetaField.ID) if is_constant(other):
                        return True
                    case ir.PropertyValue() if is_constant(other):
                        pinned.add(side.prop.name)
    return bool(plan.type.key) and pinned >= set(plan.type.key)
