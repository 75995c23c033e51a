"""Grouping and aggregates over bound rows.

Keys are grouped by codes of their stored values, so no text is compared row by row, and groups come out in the order
of first appearance. A row may stand for several (its weight); every aggregate here respects that. Integers are added
exactly, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Bindings, Counts, Indices, Mask, added_up, readable, total
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.operators.values import evaluate, load_together
from omnigraph.engine.query.properties import Located
from omnigraph.engine.rows.columns import arrow_type
from omnigraph.errors import ResourceLimitError
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import AggregateFunction
from omnigraph.storage.integer_sets import factorize

# Codes are combined without sorting while their range is at most this many times the number of rows.
_WIDEST_TABLE = 4
_LARGEST_CODE = 2**62
# Distinct values are copied into a dictionary, beside the hash table that finds them; lists are made into texts.
_ENCODED_COPIES = 3
_SHOWN_COPIES = 16

# Values, weights, their products and a part of each; and what an integer of Python takes with its place in a list.
_ADDED_COPIES = 4
_INTEGER_BYTES = 64
_ADDED_AT_ONCE = 1 << 16

_LARGEST = 2**63 - 1
_EXACT_IN_FLOAT = 2**53
_HALF_BITS = 32
_HALF = 2**32 - 1


class Groups(NamedTuple):
    """The group of each row, numbered by first appearance, and the row each group appeared with."""

    of_row: Indices
    first: Indices


def aggregate_rows(plan: ir.Aggregate, rows: Bindings, context: ReadContext) -> pa.Table:
    """One row per group, columns in the order of the plan."""
    inner = [c.value.argument if isinstance(c.value, ir.AggregateValue) else c.value for c in plan.columns]
    load_together([value for value in inner if isinstance(value, ir.PropertyValue)], rows, context)
    groups = _group(plan.keys, rows, context)
    heads = rows.take(groups.first) if plan.keys else rows.slice(0, 0)
    budget = context.budget
    typed = []
    for column in plan.columns:
        if isinstance(column.value, ir.AggregateValue):
            array = _aggregate(column.value, groups, rows, context)
        else:
            array = _locate(column.value, heads, context).in_parts(budget)
        typed.append(_with_one_zero(array.cast(arrow_type(column.value.type))))
        budget.hold(typed[-1].nbytes)
    # The caller that takes the table counts it from now on.
    budget.release(sum(array.nbytes for array in typed))
    return pa.Table.from_arrays(typed, names=[column.name for column in plan.columns])


def _group(keys: tuple[ir.Value, ...], rows: Bindings, context: ReadContext) -> Groups:
    if not keys:
        # There is always one group, even without a row to appear with.
        return Groups(np.zeros(rows.length, np.int64), np.zeros(1, np.int64))
    codes, width = np.zeros(rows.length, np.int64), 1
    for key in keys:
        context.cancellation.check()
        own, size = _key_codes(key, rows, context)
        if width * size > _LARGEST_CODE:
            distinct, _, codes = factorize(codes)
            width = len(distinct)
        codes, width = codes * size + own, width * size
    if width > max(_WIDEST_TABLE * rows.length, 1 << 16):
        _, first, codes = factorize(codes)
        present = np.argsort(first)
    else:
        absent = rows.length
        first = np.full(width, absent, np.int64)
        # Assigned backwards: where a code repeats, its first row is written last and stays.
        first[codes[::-1]] = np.arange(absent - 1, -1, -1)
        present = np.flatnonzero(first < absent)
        present = present[np.argsort(first[present])]
    group_of = np.empty(len(first), np.int64)
    group_of[present] = np.arange(len(present))
    return Groups(group_of[codes], first[present])


def _key_codes(key: ir.Value, rows: Bindings, context: ReadContext) -> tuple[NDArray[np.int64], int]:
    """Codes below the returned size, equal where the key's values are; null is a value too."""
    if isinstance(key, ir.NodeId):
        bound = rows.rows[key.variable]
        if not len(bound):
            return bound, 1
        low = int(bound.min())
        return bound - low, int(bound.max()) - low + 1
    evaluated = evaluate(key, rows, context)
    if not isinstance(evaluated, Located):
        return np.zeros(rows.length, np.int64), 1
    column = evaluated.condense(context.budget)
    values = _with_one_zero(column.values)
    context.budget.step(_ENCODED_COPIES * values.nbytes + 3 * rows.length * 8)
    if pa.types.is_nested(values.type):
        context.budget.step(_SHOWN_COPIES * values.nbytes)
        # Arrow does not encode lists; their texts are as equal as they are.
        values = pa.array([None if v is None else repr(v) for v in values.to_pylist()], pa.string())
    encoded = values.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes[column.positions], max(1, len(encoded.dictionary))


def _with_one_zero(values: pa.Array) -> pa.Array:
    """-0.0 and 0.0 are one value. Which of them a group has, or shows, must not depend on the order of its rows."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def _aggregate(
    plan: ir.AggregateValue, groups: Groups, rows: Bindings, context: ReadContext
) -> pa.Array | pa.ChunkedArray:
    context.cancellation.check()
    size = len(groups.first)
    if plan.function is AggregateFunction.COUNT and isinstance(plan.argument, ir.NodeId):
        return pa.array(_count(groups, size, rows.weights, None))
    column = _locate(plan.argument, rows, context).condense(context.budget)
    valid = column.values.is_valid().to_numpy(zero_copy_only=False)
    present = valid[column.positions]
    if plan.function in (AggregateFunction.MIN, AggregateFunction.MAX):
        largest = plan.function is AggregateFunction.MAX
        return _extreme(column, present, groups, size, largest=largest, budget=context.budget)
    counts = _count(groups, size, rows.weights, present)
    if plan.function is AggregateFunction.COUNT:
        return pa.array(counts)
    empty = counts == 0
    averages = plan.function is AggregateFunction.AVG
    if pa.types.is_integer(column.values.type):
        sums = _exact_sums(column, groups, size, rows.weights, context.budget)
        exact = _divide(sums, counts, context.budget) if averages else _as_int64(sums, plan, context.budget)
        return pa.array(exact, mask=empty)
    context.budget.step(_ADDED_COPIES * 8 * len(column.positions))
    floats = _sum(column, groups, size, rows.weights)
    if averages:
        divisors = np.where(empty, 1, counts)
        floats = floats / divisors
        if not np.isfinite(floats).all():  # a sum may be too large for a float, its mean never is
            parts = _sum(column, groups, size, rows.weights, divisors[groups.of_row])
            floats = np.where(np.isfinite(floats), floats, parts)
    return pa.array(floats, mask=empty)


def _locate(value: ir.Value, rows: Bindings, context: ReadContext) -> Located:
    evaluated = evaluate(value, rows, context)
    if isinstance(evaluated, Located):
        return evaluated
    return Located(pa.repeat(evaluated, 1), np.zeros(rows.length, np.int64))


def _count(groups: Groups, size: int, weights: Counts | None, present: NDArray[np.bool_] | None) -> Counts:
    of_row = groups.of_row
    if present is not None and not present.all():
        of_row = of_row[present]
        weights = None if weights is None else weights[present]
    if size == 1:
        return readable(np.array([len(of_row) if weights is None else total(weights)], np.int64))
    return readable(added_up(of_row, weights, size))


def _sum(
    column: Located, groups: Groups, size: int, weights: Counts | None, divisors: Counts | None = None
) -> NDArray[np.float64]:
    """The sums of floats, or of the quotients by some divisors."""
    stored = pc.fill_null(column.values, 0).to_numpy(zero_copy_only=False).astype(np.float64)
    values = stored[column.positions]
    if divisors is not None:
        values = values / divisors
    if weights is not None:
        values = values * readable(weights)
    return np.bincount(groups.of_row, weights=values, minlength=size).astype(np.float64, copy=False)


def _exact_sums(
    column: Located, groups: Groups, size: int, weights: Counts | None, budget: MemoryBudget
) -> NDArray[Any]:
    """The sums of integers, exactly: of 64 bits where all that is added fits, else of Python's own integers."""
    budget.step(_ADDED_COPIES * 8 * len(column.positions))
    values: NDArray[Any] = pc.fill_null(column.values, 0).to_numpy(zero_copy_only=False)
    if not len(values):
        return np.zeros(size, np.int64)
    values = values if values.dtype == np.uint64 else values.astype(np.int64)
    largest = max(abs(int(values.min())), abs(int(values.max())))
    rows = values[column.positions]
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
    """The sums as the 64-bit integers that `sum` gives. Raises `ResourceLimitError` for one that is larger."""
    if sums.dtype == np.int64:
        return sums
    for amount in (each for part in _added_parts(len(sums), budget) for each in sums[part].tolist()):
        if not -_LARGEST - 1 <= amount <= _LARGEST:
            prop = plan.argument
            of = f"{prop.owner.name}.{prop.prop.name}" if isinstance(prop, ir.PropertyValue) else "integers"
            remedy = f"a sum of {of} is {amount}, which no 64-bit integer can hold; add up fewer rows, or take avg()"
            raise ResourceLimitError("summed integers", _LARGEST, _LARGEST + 1, remedy)
    return sums.astype(np.int64)


def _extreme(
    column: Located, present: Mask, groups: Groups, size: int, *, largest: bool, budget: MemoryBudget
) -> pa.ChunkedArray:
    """Smallest or largest by rank among the distinct values, which works alike for numbers and texts."""
    budget.step(_ENCODED_COPIES * column.values.nbytes + 3 * len(column.positions) * 8)
    encoded = column.values.dictionary_encode()
    ascending = pc.array_sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(ascending), np.int64)
    rank[ascending] = np.arange(len(ascending))
    codes: NDArray[Any] = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    ranks = rank[codes] if len(rank) else np.zeros(len(codes), np.int64)
    extremes = np.full(size, -1 if largest else len(ascending), np.int64)
    (np.maximum if largest else np.minimum).at(extremes, groups.of_row[present], ranks[column.positions][present])
    # One value more, the null of groups without any.
    values = pa.concat_arrays([encoded.dictionary.take(pa.array(ascending)), pa.nulls(1, encoded.dictionary.type)])
    return Located(values, np.where(extremes < 0, len(ascending), extremes)).in_parts(budget)
