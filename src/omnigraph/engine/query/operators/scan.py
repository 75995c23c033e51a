"""The scan operator, and predicates tested on the values of bound rows.

Predicates that can be pushed go into the Lance scan, text predicates into the search; the others are evaluated here,
with the same result, and only on rows that are visible: an error of an invisible row would tell of it. Columns that are
certainly needed are read along with the row ids when few rows are expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from omnigraph.engine.query.bindings import Bindings, concatenate, member_column
from omnigraph.engine.query.context import Plain, ReadContext
from omnigraph.engine.query.operators.pushdown import split_pushdown
from omnigraph.engine.query.operators.ranking import matching_rows
from omnigraph.engine.query.operators.row_filters import holds, split_row_filter
from omnigraph.engine.query.search.ranked_rows import Candidates
from omnigraph.engine.query.values.evaluate import constant_value, is_constant
from omnigraph.engine.query.values.predicates import filter_rows, predicate_mask
from omnigraph.engine.query.values.stored import META_COLUMNS, stored_columns
from omnigraph.language.query import ir
from omnigraph.language.query.row_filter import RowFilter
from omnigraph.language.query.syntax import MetaField
from omnigraph.language.types import INTEGER_RANGES
from omnigraph.storage.tables.indexes import index_coverage
from omnigraph.storage.tables.memory.columns import COLUMNS
from omnigraph.storage.tables.memory.value_index import MOST_LOOKUPS, rows_with
from omnigraph.storage.tables.rows import RowIds, by_row_id, row_ids_of

# The share of a type that a condition is taken to find, before its index is asked.
_FOUND_SHARE: Final = 1_000
# Of the row ids of a whole type, while they are put in order.
_BYTES_PER_ROW: Final = 24
# What conditions without any arithmetic are made of.
_COMPARISONS: Final = (
    ir.Compare,
    ir.In,
    ir.And,
    ir.Or,
    ir.Not,
    ir.IsNull,
    ir.PropertyValue,
    ir.MetaValue,
    ir.Constant,
    ir.ParameterValue,
    ir.Now,
)


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


def scan(
    plan: ir.Scan,
    wanted: Iterable[ir.Value],
    context: ReadContext,
    *,
    limit: int | None = None,
    counts_only: bool = False,
) -> Bindings:
    """One row per node, ascending by row id. `wanted` are values that later operators read of the variable. `limit` is
    how many rows are enough, whichever they are. With `counts_only` nobody looks at the rows themselves."""
    if (matches := _scan_memory(plan, context, limit, counts_only)) is not None:
        return matches
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


# ---- in memory ------------------------------------------------------------------------------------------


class _Lookup(NamedTuple):
    """Texts that a column is compared with."""

    column: str
    texts: tuple[str, ...]


class _Tests(NamedTuple):
    """What the rows of a scan are tested for, when columns in memory can tell it all."""

    row_test: RowFilter | None
    conjuncts: tuple[ir.Predicate, ...]
    lookup: _Lookup | None
    """Texts that an index finds the rows of, so that the other tests are about a few rows."""
    columns: tuple[str, ...]
    """The columns that the tests read."""


def _tests_of(plan: ir.Scan, context: ReadContext) -> _Tests | None:
    """None when a test needs a search."""
    conjuncts = tuple(part for predicate in plan.predicates for part in ir.conjuncts(predicate))
    row_test = context.visibility.of(plan.type).rows_of(plan.variable) if context.is_restricted(plan.type) else None
    tests = conjuncts if row_test is None else (row_test, *conjuncts)
    if any(isinstance(part, ir.TextMatch | ir.Score) for test in tests for part in ir.walk(test)):
        return None
    columns = sorted({column for _, _, _, column in stored_columns(tests, context)})
    lookup = None
    for i, test in enumerate(conjuncts):
        if (lookup := _lookup_of(test, plan, context)) is not None:
            conjuncts = (*conjuncts[:i], *conjuncts[i + 1 :])  # the rows that it finds pass it
            break
    # What can fail is only tested on rows that pass everything else.
    return _Tests(row_test, tuple(sorted(conjuncts, key=_can_fail)), lookup, tuple(columns))


def _scan_memory(plan: ir.Scan, context: ReadContext, limit: int | None, counts_only: bool) -> Bindings | None:
    """The rows of a scan whose columns are in memory; None where the files have to be asked. Those of a text that is
    looked up are tested alone. Otherwise whole columns are compared: an index is only asked while they are not here."""
    if (tests := _tests_of(plan, context)) is None:
        return None
    table = context.table(plan.type)
    if tests.lookup is not None:
        rows = rows_with(table, *tests.lookup)
        if rows is None:
            return None
        context.profiler.note(f"in memory: found by {tests.lookup.column}")
    else:
        if not _may_read_whole(plan, tests, context) or not context.properties.load_whole(table, tests.columns):
            return None
        context.budget.step(_BYTES_PER_ROW * table.state.rows)
        rows = COLUMNS.rows(table).space.rows
        if tests.columns:
            context.profiler.note(f"in memory: {', '.join(tests.columns)} compared")
    matches = Bindings({plan.variable: rows}, len(rows))
    context.budget.step(rows.nbytes)
    if tests.row_test is not None:
        matches = matches.where(holds(tests.row_test, matches, context))
    if counts_only and limit is None and tests.conjuncts:
        matches = filter_rows(matches, tests.conjuncts[:-1], context)
        return Bindings({}, int(predicate_mask(tests.conjuncts[-1], matches, context).sum()))
    matches = filter_rows(matches, tests.conjuncts, context)
    return matches if limit is None else matches.slice(0, limit)


def _can_fail(test: ir.Predicate) -> bool:
    """Whether a condition does more than compare what is stored with constants."""
    return not all(isinstance(part, _COMPARISONS) for part in ir.walk(test))


def _lookup_of(test: ir.Predicate, plan: ir.Scan, context: ReadContext) -> _Lookup | None:
    """The texts that an indexed column must be one of; None for another test. A node with a key of one property is
    looked up by its id, which is that key."""
    match test:
        case ir.Compare(operator=ir.Operator.EQUAL, left=side, right=other):
            side, other = (other, side) if is_constant(side) else (side, other)
        case ir.In(item=side, items=other):
            pass
        case _:
            return None
    if not is_constant(other) or (column := _looked_up_column(side, plan)) is None:
        return None
    constant = constant_value(other, context)
    values = constant if isinstance(constant, list) else [constant]
    if len(values) > MOST_LOOKUPS:
        return None
    texts = [_text_of(value) for value in values if value is not None]
    return None if None in texts else _Lookup(column, tuple(text for text in texts if text is not None))


def _looked_up_column(side: ir.Value, plan: ir.Scan) -> str | None:
    match side:
        case ir.MetaValue(variable=plan.variable, field=MetaField.ID, members=(_,)):
            return "id"
        case ir.PropertyValue(variable=plan.variable, prop=prop) if side.owner.type_key == plan.type.type_key:
            type_ = prop.type
            if plan.type.key == (prop.name,) and (type_.is_free_text or type_.scalar in INTEGER_RANGES):
                return "id"
            return prop.column if type_.is_free_text and plan.type.index_kinds(prop.name) else None
    return None


def _text_of(value: Plain) -> str | None:
    """How an id spells a key."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _may_read_whole(plan: ir.Scan, tests: _Tests, context: ReadContext) -> bool:
    """Whether whole columns may be compared: they are in memory, or their files would be read from end to end anyhow,
    because no index helps. Where one does, it is asked until that has cost as much as loading the columns."""
    table = context.table(plan.type)
    if COLUMNS.holds(table, tests.columns):
        return True
    parts = (part for test in tests.conjuncts for part in ir.walk(test) if isinstance(part, ir.PropertyValue))
    if any(plan.type.index_kinds(part.prop.name) for part in parts if part.owner.type_key == plan.type.type_key):
        return COLUMNS.earn(table, tests.columns, table.state.rows // _FOUND_SHARE)
    return True


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
