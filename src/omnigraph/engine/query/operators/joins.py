"""Joins: of rows with the solutions of a block, and of two sides by an equality.

A block is solved once for each distinct assignment of the outer variables that it reads. Assignments are numbered in a
column of their own, the tag, which travels through the inner plan like a variable; the tags that come out tell whose
solution a row is. `run` runs the inner plans, and calls the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.engine.query.bindings import Bindings, Indices, Mask, with_members
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.operators.aggregate import Grouped, aggregate_column
from omnigraph.engine.query.plans import Needed, reads
from omnigraph.engine.query.properties import Located
from omnigraph.engine.query.values.elementwise import as_located
from omnigraph.engine.query.values.evaluate import evaluate
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import MetaField
from omnigraph.language.query.value_types import (
    BOOL,
    EntityType,
    ValueType,
    as_nullable,
    is_integer,
    is_number,
    is_text,
    list_of,
)
from omnigraph.language.types import PropertyType
from omnigraph.storage.integer_sets import factorize, is_ascending

# A table over the range of numbers may be this many times larger than what it numbers.
_WIDEST_TABLE: Final = 4
# Keys as they are, of one type, and in the table that finds them.
_KEY_COPIES: Final = 3
# Up to so many keys, and this share of a type, are looked up instead of reading the type.
_MOST_LOOKUPS: Final = 1_000
_LOOKUP_SHARE: Final = 16


# ---- blocks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignments:
    """The distinct assignments of the correlated variables of some rows, with their tags, and the one that each of the
    rows has; None when every row has its own."""

    outer: Bindings
    tag: str
    of_row: Indices | None

    def rows_of(self, column: Indices) -> Indices:
        """A column of assignments as one of rows."""
        return column if self.of_row is None else column[self.of_row]


def assign(rows: Bindings, variables: Iterable[str], tag: str) -> Assignments:
    """The distinct assignments of some variables, each with its number in the column `tag`."""
    columns = {name: rows.rows[name] for name in with_members(variables) if name in rows.rows}
    if not columns:
        return Assignments(Bindings({tag: np.zeros(1, np.int64)}, 1), tag, np.zeros(rows.length, np.int64))
    if len(columns) == 1 and is_ascending(next(iter(columns.values()))):
        return Assignments(Bindings({**columns, tag: np.arange(rows.length)}, rows.length), tag, None)
    first, of_row = _number(list(columns.values()))
    if len(first) == rows.length:
        return Assignments(Bindings({**columns, tag: np.arange(rows.length)}, rows.length), tag, None)
    outer = {name: column[first] for name, column in columns.items()}
    return Assignments(Bindings({**outer, tag: np.arange(len(first))}, len(first)), tag, of_row)


def _number(columns: list[Indices]) -> tuple[Indices, Indices]:
    """A number for each combination of the columns, ascending by them: the first row that has it, and that of each
    row."""
    first, numbers = _number_integers(columns[0])
    for column in columns[1:]:
        other_first, other = _number_integers(column)
        first, numbers = _number_integers(numbers * len(other_first) + other)
    return first, numbers


def _number_integers(values: Indices) -> tuple[Indices, Indices]:
    low = int(values.min(initial=0))
    width = int(values.max(initial=0)) - low + 1
    if width > _WIDEST_TABLE * len(values):
        _, first, numbers = factorize(values)
        return first, numbers
    row_of = np.full(width, -1, np.int64)
    row_of[values[::-1] - low] = np.arange(len(values) - 1, -1, -1)
    present = row_of >= 0
    return row_of[present], (np.cumsum(present) - 1)[values - low]


def solved_rows(solutions: Bindings, assignments: Assignments) -> Mask:
    """Which rows have a solution."""
    solved = np.zeros(assignments.outer.length, np.bool_)
    solved[_tags(solutions, assignments)] = True
    return solved if assignments.of_row is None else solved[assignments.of_row]


def _tags(solutions: Bindings, assignments: Assignments) -> Indices:
    """Whose solution each row is. A plan that reads nothing of the outer rows is solved for all of them alike."""
    tags = solutions.rows.get(assignments.tag)
    return np.zeros(solutions.length, np.int64) if tags is None else tags


def solution_variables(plan: ir.BlockJoin | ir.OptionalJoin, needed: Needed) -> Needed:
    """The variables that have to be bound in the solutions."""
    if isinstance(plan, ir.OptionalJoin):
        return needed & {variable for variable, _ in plan.introduced}
    return frozenset() if plan.aggregate is None else reads([plan.aggregate])


def with_block(
    plan: ir.BlockJoin, rows: Bindings, solutions: Bindings, assignments: Assignments, context: ReadContext
) -> Bindings:
    """The rows with the value of their block."""
    if plan.aggregate is None:
        flags = pa.array([False, True])
        column = context.bound.add(plan.output, BOOL, flags)[solved_rows(solutions, assignments).astype(np.int64)]
        return rows.binding({plan.output: column})
    groups = Grouped(_tags(solutions, assignments), assignments.outer.length)
    column = aggregate_column(plan.output, plan.aggregate, groups, solutions, context)
    return rows.binding({plan.output: assignments.rows_of(column)})


def with_optional(
    plan: ir.OptionalJoin,
    rows: Bindings,
    solutions: Bindings,
    assignments: Assignments,
    needed: AbstractSet[str],
    context: ReadContext,
) -> Bindings:
    """Each row with each of its solutions, or with nulls."""
    tags = _tags(solutions, assignments)
    if len(tags) > 1 and not (tags[1:] >= tags[:-1]).all():
        order = np.argsort(tags, kind="stable")
        solutions, tags = solutions.take(order), tags[order]
    matches = np.bincount(tags, minlength=assignments.outer.length)
    counts = assignments.rows_of(matches)
    starts = assignments.rows_of(np.cumsum(matches) - matches)
    repeats = np.maximum(counts, 1)
    total = int(repeats.sum())
    inner = solutions.only(solution_variables(plan, frozenset(needed)))
    kept = rows.only(needed)
    context.budget.step(total * 8 * (len(kept.rows) + len(inner.rows) + 3))
    joined = kept.each(repeats, context.cancellation.check)
    at = np.arange(total) - np.repeat(np.cumsum(repeats) - repeats - starts, repeats)
    alone = np.repeat(counts == 0, repeats)
    # One row more, the null of rows without a solution.
    at[alone] = solutions.length
    joined = joined.binding({name: np.append(column, -1)[at] for name, column in inner.rows.items()})
    if inner.weights is None:
        return joined
    return joined.with_weights(np.append(inner.weights, 1)[at])


# ---- equalities -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """The right side of an equality, its rows found by their key."""

    rows: Bindings
    keys: pa.Array
    order: Indices
    starts: Indices
    """Where the rows of each key begin in `order`, and where those of the last one end."""


def key_rows(value: ir.Value, other: ir.Value, rows: Bindings, context: ReadContext) -> KeyedRows:
    """Rows by the keys that `value` has in them, which are compared with those of `other`."""
    located = _keys(value, other, rows, context)
    encoded = located.values.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)[located.positions]
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    return KeyedRows(rows, encoded.dictionary, order, starts)


def equal_pairs(value: ir.Value, other: ir.Value, left: Bindings, right: KeyedRows, context: ReadContext) -> Bindings:
    """The rows of a cross join in which the keys are equal, or look alike as floats: the filter above tells. Null is
    equal to nothing."""
    located = _keys(value, other, left, context)
    keys = right.keys if right.keys.type == located.values.type else right.keys.cast(located.values.type)
    codes = pc.fill_null(pc.index_in(located.values, value_set=keys, skip_nulls=True), -1)
    code_of = codes.to_numpy(zero_copy_only=False).astype(np.int64)[located.positions]
    counts = np.where(code_of < 0, 0, np.diff(right.starts, append=0)[code_of])
    total = int(counts.sum())
    context.budget.step(total * 8 * (len(left.rows) + len(right.rows.rows) + 3))
    at = np.arange(total) - np.repeat(np.cumsum(counts) - counts - right.starts[code_of], counts)
    pairs = left.each(counts, context.cancellation.check)
    other_rows = right.rows.take(right.order[at])
    pairs = pairs.binding(other_rows.rows)
    return pairs if other_rows.weights is None else pairs.with_weights(other_rows.weights)


def _keys(value: ir.Value, other: ir.Value, rows: Bindings, context: ReadContext) -> Located:
    """The keys of both sides of an equality: rows with equal values have equal keys."""
    located = as_located(evaluate(value, rows, context), rows.length).condense(context.budget)
    values = located.values
    context.budget.step(_KEY_COPIES * values.nbytes + 4 * 8 * rows.length)
    if isinstance(value.type, EntityType):
        values = pc.struct_field(values, "row")
    elif is_number(value.type) and not _of_one_kind(value.type, other.type):
        values = pc.add(values.cast(pa.float64(), safe=False), 0.0)
    elif pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))
    elif pa.types.is_string(values.type):
        values = values.cast(pa.large_string())
    return Located(values, located.positions)


def _of_one_kind(left: ValueType, right: ValueType) -> bool:
    return isinstance(left, PropertyType) and isinstance(right, PropertyType) and left.scalar is right.scalar


def lookup_scan(
    plan: ir.Scan, value: ir.Value, other: ir.Value, left: Bindings, context: ReadContext
) -> ir.Scan | None:
    """The scan of those nodes alone whose property is one of the few values that `other` has in the rows of the left
    side; None where reading all nodes costs as much."""
    match value:
        case ir.PropertyValue(variable=plan.variable) | ir.MetaValue(variable=plan.variable, field=MetaField.ID):
            pass
        case _:
            return None
    if not (is_text(value.type) and is_text(other.type)) and not (is_integer(value.type) and is_integer(other.type)):
        return None
    keys = _keys(other, other, left, context).values.drop_null().unique()
    if len(keys) > _MOST_LOOKUPS or len(keys) * _LOOKUP_SHARE > context.table(plan.type).state.rows:
        return None
    listed = ir.Constant(tuple(keys.to_pylist()), list_of(as_nullable(other.type, False)))
    return replace(plan, predicates=(*plan.predicates, ir.In(value, listed)))
