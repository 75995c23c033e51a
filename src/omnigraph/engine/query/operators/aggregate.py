"""Aggregates over bound rows: of the groups of an `Aggregate`, and of the outer rows of a block.

A row may stand for several (its weight); every aggregate here respects that. Integers are added exactly, in whatever
order they come. Over nothing a count is 0, a collected list is empty, and everything else is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import (
    Bindings,
    Counts,
    Indices,
    Mask,
    added_up,
    is_identity,
    output_variable,
    readable,
    total,
)
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.operators.grouping import Coded, code_rows, group, groups_of
from omnigraph.engine.query.operators.stages import bound_columns
from omnigraph.engine.query.plans import counts_rows, entity_of
from omnigraph.engine.query.properties import Located, one_array
from omnigraph.engine.query.value_columns import column_type, list_array, list_offsets
from omnigraph.engine.query.values.elementwise import as_located
from omnigraph.engine.query.values.evaluate import constant_value, evaluate
from omnigraph.engine.query.values.stored import load_together, variable_columns
from omnigraph.errors import EvaluationError, EvaluationRule
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import AggregateFunction
from omnigraph.language.query.value_types import NullType, is_number

# Distinct values are copied into a dictionary, beside the hash table that finds them.
_ENCODED_COPIES = 3

# Values, weights, their products and a part of each; and what an integer of Python takes with its place in a list.
_ADDED_COPIES = 4
_INTEGER_BYTES = 64
_ADDED_AT_ONCE = 1 << 16
# Positions, their order, and what is gathered by them.
_ORDERED_COPIES = 4

_LARGEST = 2**63 - 1
_EXACT_IN_FLOAT = 2**53
_HALF_BITS = 32
_HALF = 2**32 - 1


def aggregate_rows(plan: ir.Aggregate, rows: Bindings, needed: AbstractSet[str], context: ReadContext) -> Bindings:
    """One row per group, binding those of its columns that are needed."""
    columns = [(output_variable(i), c.value) for i, c in enumerate(plan.columns) if output_variable(i) in needed]
    inner = [value.argument if isinstance(value, ir.AggregateValue) else value for _, value in columns]
    load_together([value for value in inner if value is not None], rows, context)
    groups = group(plan.keys, rows, context)
    heads = rows.take(groups.first) if plan.keys else rows.slice(0, 0)
    heads = Bindings(heads.rows, heads.length)
    grouped = Grouped(groups.of_row, len(groups))
    bound: dict[str, Indices] = {}
    for variable, value in columns:
        if isinstance(value, ir.AggregateValue):
            bound[variable] = aggregate_column(variable, value, grouped, rows, context)
        else:
            bound |= _key_columns(variable, value, heads, context)
    return Bindings(bound, len(groups))


def _key_columns(variable: str, key: ir.Value, heads: Bindings, context: ReadContext) -> dict[str, Indices]:
    """The columns of a variable that is bound to a key, which each group has from its first row."""
    if not is_number(key.type):
        return bound_columns(variable, key.type, key, heads, context)
    column = as_located(evaluate(key, heads, context), heads.length)
    shown = Located(_with_one_zero(column.values), column.positions)
    return variable_columns(variable, key.type, shown, key.type, heads.length, context)


@dataclass(frozen=True)
class Grouped:
    """The group below `size` of each row. Not every group has one."""

    of_row: Indices
    size: int

    @cached_property
    def lengths(self) -> Counts:
        """How many rows each group has."""
        return added_up(self.of_row, None, self.size)

    def where(self, mask: Mask) -> Grouped:
        return Grouped(self.of_row[mask], self.size)


@dataclass(frozen=True, slots=True)
class _Argument:
    """The values that are aggregated, none of them null, their groups, and how many rows each stands for."""

    column: Located
    groups: Grouped
    weights: Counts | None

    @property
    def rows(self) -> int:
        return len(self.column.positions)


def aggregate_column(
    variable: str, value: ir.AggregateValue, groups: Grouped, rows: Bindings, context: ReadContext
) -> Indices:
    """The column of a variable that is bound to an aggregate: one value for each group."""
    array = _aggregate(value, groups, rows, context)
    wanted = column_type(value.type)
    if array.type != wanted and not pa.types.is_nested(wanted) and not pa.types.is_large_string(array.type):
        array = array.cast(wanted)
    return context.bound.add(variable, value.type, _with_one_zero(array))


def _with_one_zero(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """-0.0 and 0.0 are one value. Which of them a group shows must not depend on the order of its rows."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def _aggregate(
    plan: ir.AggregateValue, groups: Grouped, rows: Bindings, context: ReadContext
) -> pa.Array | pa.ChunkedArray:
    context.cancellation.check()
    if plan.argument is None or counts_rows(plan):
        return pa.array(_count(groups, rows.weights))
    if isinstance(plan.argument.type, NullType) and plan.type.nullable:
        return pa.nulls(groups.size, column_type(plan.type))
    argument = _argument(plan, plan.argument, groups, rows, context)
    budget = context.budget
    match plan.function:
        case AggregateFunction.COUNT:
            return pa.array(_count(argument.groups, argument.weights))
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return _extreme(argument, largest=plan.function is AggregateFunction.MAX, budget=budget)
        case AggregateFunction.COLLECT:
            return _collect(argument, budget)
        case AggregateFunction.STDEV | AggregateFunction.STDEVP:
            return _deviation(argument, budget, of_sample=plan.function is AggregateFunction.STDEV)
        case AggregateFunction.PERCENTILE_CONT | AggregateFunction.PERCENTILE_DISC:
            return _percentile(plan, argument, context)
    return _sum_or_mean(plan, argument, budget)


def _argument(
    plan: ir.AggregateValue, value: ir.Value, groups: Grouped, rows: Bindings, context: ReadContext
) -> _Argument:
    counts = plan.function is AggregateFunction.COUNT
    column, weights = _locate(value, rows, context, only_counts=counts).condense(context.budget), rows.weights
    if not plan.distinct and not column.values.null_count:
        return _Argument(column, groups, weights)
    valid = column.values.is_valid().to_numpy(zero_copy_only=False)
    present = valid[column.positions]
    if plan.distinct:
        # A value counts once for each group: at its first row.
        codes = code_rows([value], rows, context).beside(Coded(groups.of_row, max(1, groups.size)))
        first = np.zeros(rows.length, np.bool_)
        first[groups_of(codes).first] = True
        present, weights = present & first, None
    if present.all():
        return _Argument(column, groups, weights)
    weights = None if weights is None else weights[present]
    return _Argument(Located(column.values, column.positions[present]), groups.where(present), weights)


def _locate(value: ir.Value, rows: Bindings, context: ReadContext, *, only_counts: bool) -> Located:
    """The values. Of an entity that is only counted it matters whether it is there."""
    if only_counts and (entity := entity_of(value)) is not None:
        return Located(pa.array([True]), np.minimum(rows.rows[entity[0]], 0))
    return as_located(evaluate(value, rows, context), rows.length)


def _count(groups: Grouped, weights: Counts | None) -> Counts:
    if groups.size == 1:
        return readable(np.array([len(groups.of_row) if weights is None else total(weights)], np.int64))
    return groups.lengths if weights is None else readable(added_up(groups.of_row, weights, groups.size))


# ---- sums and means -------------------------------------------------------------------------------------


def _sum_or_mean(plan: ir.AggregateValue, argument: _Argument, budget: MemoryBudget) -> pa.Array:
    counts = _count(argument.groups, argument.weights)
    empty = counts == 0
    averages = plan.function is AggregateFunction.AVG
    if pa.types.is_integer(argument.column.values.type):
        sums = _exact_sums(argument, budget)
        exact = _divide(sums, counts, budget) if averages else _as_int64(sums, plan, budget)
        return pa.array(exact, mask=empty)
    if averages:
        return pa.array(_means(argument, counts, budget), mask=empty)
    return pa.array(_sum(argument, budget), mask=empty)


def _means(argument: _Argument, counts: Counts, budget: MemoryBudget) -> NDArray[np.float64]:
    """The means of floats; whatever it is of a group without any."""
    divisors = np.where(counts == 0, 1, counts)
    with np.errstate(over="ignore", invalid="ignore"):
        means: NDArray[np.float64] = _sum(argument, budget) / divisors
        if not np.isfinite(means).all():  # a sum may be too large for a float, its mean never is
            parts = _sum(argument, budget, divisors[argument.groups.of_row])
            means = np.where(np.isfinite(means), means, parts)
    return means


def _numbers(column: Located) -> NDArray[np.float64]:
    """The floats of each row. None of them is null."""
    stored = pc.fill_null(column.values, 0).to_numpy(zero_copy_only=False).astype(np.float64)
    values: NDArray[np.float64] = stored[column.positions]
    return values


def _sum(argument: _Argument, budget: MemoryBudget, divisors: Counts | None = None) -> NDArray[np.float64]:
    """The sums of floats, or of the quotients by some divisors."""
    budget.step(_ADDED_COPIES * 8 * argument.rows)
    values = _numbers(argument.column)
    if divisors is not None:
        values = values / divisors
    if argument.weights is not None:
        values = values * readable(argument.weights)
    groups = argument.groups
    return np.bincount(groups.of_row, weights=values, minlength=groups.size).astype(np.float64, copy=False)


def _deviation(argument: _Argument, budget: MemoryBudget, *, of_sample: bool) -> pa.Array:
    """The standard deviations: of a sample, where that of a single value is 0, or of all there is."""
    groups, counts = argument.groups, _count(argument.groups, argument.weights)
    budget.step(_ADDED_COPIES * 8 * argument.rows)
    values = _numbers(argument.column)
    means = _means(argument, counts, budget)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (values - means[groups.of_row]) ** 2
        if argument.weights is not None:
            squares = squares * argument.weights
        summed = np.bincount(groups.of_row, weights=squares, minlength=groups.size)
        deviations = np.sqrt(summed / np.maximum(1, counts - 1 if of_sample else counts))
    return pa.array(deviations, mask=counts == 0)


def _exact_sums(argument: _Argument, budget: MemoryBudget) -> NDArray[Any]:
    """The sums of integers, exactly: of 64 bits where all that is added fits, else of Python's own integers."""
    column, groups, size, weights = argument.column, argument.groups, argument.groups.size, argument.weights
    budget.step(_ADDED_COPIES * 8 * argument.rows)
    filled = pc.fill_null(column.values, 0) if column.values.null_count else column.values
    values: NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    if not len(values):
        return np.zeros(size, np.int64)
    largest = max(abs(int(values.min())), abs(int(values.max())))
    rows = (
        values if is_identity(column.positions) and len(values) == len(column.positions) else values[column.positions]
    )
    if weights is None and largest * len(rows) < _EXACT_IN_FLOAT:
        return np.bincount(groups.of_row, weights=rows, minlength=size).astype(np.int64)
    rows = rows if rows.dtype == np.uint64 else rows.astype(np.int64)
    if weights is None:
        added = len(rows)
    else:
        weights = readable(weights)
        added = total(weights) if total(weights) >= 0 else _LARGEST
        if largest * int(weights.max(initial=0)) > _LARGEST:
            budget.step(_INTEGER_BYTES * size)
            sums = np.zeros(size, object)
            for part in _added_parts(len(rows), budget):
                np.add.at(sums, groups.of_row[part], rows[part].astype(object) * weights[part].astype(object))
            return sums
        rows = rows.astype(np.int64) * weights
    if largest * added < _EXACT_IN_FLOAT:
        return np.bincount(groups.of_row, weights=rows, minlength=size).astype(np.int64)
    low, high = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for part in _added_parts(len(rows), budget):
        np.add.at(low, groups.of_row[part], (rows[part] & rows.dtype.type(_HALF)).astype(np.int64))
        np.add.at(high, groups.of_row[part], (rows[part] >> rows.dtype.type(_HALF_BITS)).astype(np.int64))
    if largest * added <= _LARGEST:
        return (high << _HALF_BITS) + low
    sums = np.empty(size, object)
    budget.step(_INTEGER_BYTES * size)
    for part in _added_parts(size, budget):
        halves = zip(high[part].tolist(), low[part].tolist(), strict=True)
        sums[part] = [(up << _HALF_BITS) + down for up, down in halves]
    return sums


def _added_parts(length: int, budget: MemoryBudget) -> Iterator[slice]:
    """Parts of rows or groups that are added up in an instant."""
    for start in range(0, length, _ADDED_AT_ONCE):
        budget.check()
        yield slice(start, start + _ADDED_AT_ONCE)


def _divide(sums: NDArray[Any], counts: Counts, budget: MemoryBudget) -> NDArray[np.float64]:
    """The quotients, each rounded once, as Python divides integers; floats do so where both of them are exact."""
    divisors = np.where(counts == 0, 1, counts)
    if sums.dtype == np.int64 and len(sums):
        largest = max(abs(int(sums.min())), abs(int(sums.max())), int(divisors.max()))
        if largest < _EXACT_IN_FLOAT:
            exact: NDArray[np.float64] = sums / divisors
            return exact
    quotients = np.empty(len(sums), np.float64)
    for part in _added_parts(len(sums), budget):
        divisions = zip(sums[part].tolist(), divisors[part].tolist(), strict=True)
        quotients[part] = [each / count for each, count in divisions]
    return quotients


def _as_int64(sums: NDArray[Any], plan: ir.AggregateValue, budget: MemoryBudget) -> NDArray[np.int64]:
    """The sums as the 64-bit integers that `sum` gives. Raises `EvaluationError` for one that is larger."""
    if sums.dtype == np.int64:
        return sums
    for amount in (each for part in _added_parts(len(sums), budget) for each in sums[part].tolist()):
        if not -_LARGEST - 1 <= amount <= _LARGEST:
            message = f"the sum {amount} does not fit into 64 bits; add up fewer rows, or take avg()"
            raise EvaluationError(EvaluationRule.ARITHMETIC_OVERFLOW, ir.value_text(plan), message=message)
    return sums.astype(np.int64)


# ---- order within groups --------------------------------------------------------------------------------


def _ranked_values(column: Located, budget: MemoryBudget) -> tuple[pa.Array, Indices]:
    """The distinct values, ascending, and the place of each row's value among them. None of these is null."""
    budget.step(_ENCODED_COPIES * column.values.nbytes + 3 * len(column.positions) * 8)
    encoded = column.values.dictionary_encode()
    ascending = pc.array_sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(ascending), np.int64)
    rank[ascending] = np.arange(len(ascending))
    codes: NDArray[Any] = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    ranks = rank[codes][column.positions] if len(rank) else np.zeros(len(column.positions), np.int64)
    return encoded.dictionary.take(pa.array(ascending)), ranks


def _extreme(argument: _Argument, *, largest: bool, budget: MemoryBudget) -> pa.ChunkedArray:
    """Smallest or largest by rank among the distinct values, which works alike for numbers and texts."""
    values, ranks = _ranked_values(argument.column, budget)
    extremes = np.full(argument.groups.size, -1 if largest else len(values), np.int64)
    (np.maximum if largest else np.minimum).at(extremes, argument.groups.of_row, ranks)
    return Located(values, np.where(extremes == len(values), -1, extremes)).in_parts(budget)


def _collect(argument: _Argument, budget: MemoryBudget) -> pa.Array:
    """The values of each group in the order of its rows."""
    groups, weights = argument.groups, argument.weights
    counts = _count(groups, weights)
    budget.step(_ORDERED_COPIES * 8 * (argument.rows + int(counts.sum())))
    order = np.argsort(groups.of_row, kind="stable")
    positions = argument.column.positions[order]
    if weights is not None:
        positions = np.repeat(positions, weights[order])
    gathered = Located(argument.column.values, positions).in_parts(budget)
    budget.step((2 if gathered.num_chunks > 1 else 1) * gathered.nbytes)
    return list_array(list_offsets(counts), one_array(gathered))


def _percentile(plan: ir.AggregateValue, argument: _Argument, context: ReadContext) -> pa.Array | pa.ChunkedArray:
    """The value at a fraction of the ordered values of each group: `percentile_disc` gives the first one that so large
    a share does not exceed, `percentile_cont` what lies between the two nearest."""
    fraction = _fraction(plan, context)
    groups, counts = argument.groups, _count(argument.groups, argument.weights)
    context.budget.step(_ORDERED_COPIES * 8 * argument.rows)
    values, ranks = _ranked_values(argument.column, context.budget)
    order = np.lexsort((ranks, groups.of_row))
    ranks = ranks[order]
    # Where each row ends among all values, those before its group included.
    ends = np.cumsum(np.ones(len(order), np.int64) if argument.weights is None else argument.weights[order])
    first = np.cumsum(counts) - counts

    def rank_at(places: Indices) -> Indices:
        """The rank of the value at a place of each group; -1 for a group without values."""
        at = np.searchsorted(ends, first + places, side="right")
        return np.where(counts == 0, -1, np.append(ranks, -1)[np.minimum(at, len(ranks))])

    if plan.function is AggregateFunction.PERCENTILE_DISC:
        # Rounded first: 0.07 of 100 values is 7 of them, and a little more in floats.
        share = np.ceil(np.round(fraction * counts, 9)).astype(np.int64)
        return Located(values, rank_at(np.maximum(share - 1, 0))).in_parts(context.budget)
    place = fraction * np.maximum(counts - 1, 0)
    whole = np.floor(place)
    numbers = np.append(values.to_numpy(zero_copy_only=False).astype(np.float64), 0.0)
    low, high = numbers[rank_at(whole.astype(np.int64))], numbers[rank_at(np.ceil(place).astype(np.int64))]
    with np.errstate(invalid="ignore"):
        between = np.where(low == high, low, low + (high - low) * (place - whole))
    return pa.array(between, mask=counts == 0)


def _fraction(plan: ir.AggregateValue, context: ReadContext) -> float:
    assert plan.fraction is not None
    fraction = constant_value(plan.fraction, context)
    if isinstance(fraction, int | float) and 0 <= fraction <= 1:
        return float(fraction)
    message = f"the fraction of {plan.function.value}() lies between 0 and 1, it is {fraction}"
    raise EvaluationError(EvaluationRule.BAD_ARGUMENT, ir.value_text(plan), message=message)
