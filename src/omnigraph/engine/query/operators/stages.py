"""What lies between the matches of a query: columns that become variables, lists that become rows, and how many rows
pass.

`run` calls it. A variable is an integer per row (`bindings`), so a column that is passed on is never copied; values are
evaluated here once and bound (`value_columns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

import numpy as np

from omnigraph.engine.query.bindings import Bindings, Indices, concatenate, member_column, with_members
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.plans import entity_of
from omnigraph.engine.query.properties import Located
from omnigraph.engine.query.value_columns import compact_lists
from omnigraph.engine.query.values.elementwise import as_located
from omnigraph.engine.query.values.evaluate import evaluate
from omnigraph.engine.query.values.stored import load_together, variable_columns
from omnigraph.errors import BadRequestError
from omnigraph.language.query import ir
from omnigraph.language.query.value_types import EntityType, ValueType, item_of


def no_rows(variables: Iterable[str]) -> Bindings:
    """Nothing, bound to these variables."""
    return Bindings({column: np.empty(0, np.int64) for column in with_members(variables)}, 0)


def bind(plan: ir.Bind, rows: Bindings, needed: AbstractSet[str], context: ReadContext) -> Bindings:
    """The rows of the next stage, with those of its variables that are needed."""
    columns = [column for column in plan.columns if column.variable in needed]
    load_together([column.value for column in columns], rows, context)
    bound: dict[str, Indices] = {}
    for column in columns:
        bound |= bound_columns(column.variable, column.type, column.value, rows, context)
    return Bindings(bound, rows.length, rows.weights)


def bound_columns(
    variable: str, type_: ValueType, value: ir.Value, rows: Bindings, context: ReadContext
) -> dict[str, Indices]:
    """The columns that bind a variable of this type to a value of the rows."""
    entity = entity_of(value)
    if entity is not None and isinstance(type_, EntityType):
        return _entity_columns(variable, type_, *entity, rows)
    if isinstance(value, ir.VariableValue) and (value.variable, value.type) == (variable, type_):
        return {variable: rows.rows[variable]}
    return variable_columns(variable, type_, evaluate(value, rows, context), value.type, rows.length, context)


def _entity_columns(
    variable: str, type_: EntityType, source: str, source_type: EntityType, rows: Bindings
) -> dict[str, Indices]:
    """The same entities under another name, their types numbered as in `type_`."""
    columns = {variable: rows.rows[source]}
    if len(type_.members) > 1:
        numbers = {member.type_key: number for number, member in enumerate(type_.members)}
        table = np.array([numbers[member.type_key] for member in source_type.members], np.int64)
        members = rows.rows.get(member_column(source))
        columns[member_column(variable)] = np.full(rows.length, table[0]) if members is None else table[members]
    return columns


def unwind(
    plan: ir.Unwind, rows: Bindings, needed: AbstractSet[str], counts_only: bool, context: ReadContext
) -> Bindings:
    """Each row once per item of its list. Items are bound once, however many rows share their list. With `counts_only`
    the rows are only counted: where nothing reads the items, a row stands for all of its own."""
    lists = as_located(evaluate(plan.items, rows, context), rows.length).condense(context.budget)
    compact = compact_lists(lists.values)
    starts = np.asarray(compact.offsets.to_numpy(zero_copy_only=False), np.int64)
    counts = np.diff(starts)[lists.positions]
    total = int(counts.sum())
    kept = rows.only(needed - {plan.variable})
    binds = plan.variable in needed
    if counts_only and not binds:
        return kept.with_weights(counts)
    context.budget.step(total * 8 * (1 + len(kept.rows) + 3 * binds + (rows.weights is not None)))
    repeated = kept.each(counts, context.cancellation.check)
    if not binds:
        return repeated
    item_at = np.arange(total) - np.repeat(np.cumsum(counts) - counts - starts[lists.positions], counts)
    items = Located(compact.values, np.arange(len(compact.values)))
    bound = variable_columns(plan.variable, plan.type, items, item_of(plan.items.type), len(compact.values), context)
    return repeated.binding({name: column[item_at] for name, column in bound.items()})


def row_count(count: ir.Count | None, context: ReadContext) -> int | None:
    """How many rows a limit or an offset asks for."""
    if not isinstance(count, ir.ParameterValue):
        return count
    number = context.constant(count)
    if not isinstance(number, int) or number < 0:
        raise BadRequestError(f"param '{count.name}': a number of rows is at least 0, not {number}")
    return number


def rows_to_find(plan: ir.Limit | ir.BestNodes | ir.Fuse, context: ReadContext) -> int | None:
    """How many of the first rows, or nodes, decide the result of an operator; None for all of them."""
    count = row_count(plan.limit if isinstance(plan, ir.Fuse) else plan.count, context)
    return None if count is None else count + (row_count(plan.offset, context) or 0)


def take_limit(plan: ir.Limit, pieces: Iterator[Bindings], needed: AbstractSet[str], context: ReadContext) -> Bindings:
    """The rows that a limit lets pass. No more pieces are asked for than that takes."""
    missing, skipped = row_count(plan.count, context), row_count(plan.offset, context) or 0
    if missing == 0:
        return no_rows(needed)
    parts: list[Bindings] = []
    held = 0
    for rows in pieces:
        first = min(skipped, rows.length)
        skipped -= first
        parts.append(rows.slice(first, rows.length if missing is None else first + missing))
        held += parts[-1].nbytes
        context.budget.step(held)
        if missing is not None:
            missing -= parts[-1].length
            if not missing:
                break
    return concatenate(parts)
