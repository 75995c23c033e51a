"""The top of a plan that does not aggregate: the order of rows, and output columns a batch at a time.

`run` calls it last. Sort keys become arrays of codes, a key is evaluated only for rows that the keys before it left
undecided, and a limit selects before it sorts. Never holds more than the batch at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Bindings, Indices
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.operators.values import Evaluated, evaluate, load_together
from omnigraph.engine.query.properties import Located, gathering_parts, one_array, reorder
from omnigraph.errors import ResourceLimitError
from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir

BATCH_ROWS = 65_536
_FEWER_ROWS = 8


def project(plan: ir.Project, schema: pa.Schema, rows: Bindings, context: ReadContext) -> Iterator[pa.RecordBatch]:
    values = [column.value for column in plan.columns]
    start, size = 0, BATCH_ROWS
    while start < rows.length:
        context.cancellation.check()
        part = rows.slice(start, start + size)
        try:
            load_together(values, part, context)
        except ResourceLimitError:
            if part.length == 1:
                raise
            # Values may be of any size: fewer rows of them may fit.
            size = max(1, part.length // _FEWER_ROWS)
            continue
        yield from _batches([evaluate(value, part, context) for value in values], part.length, schema, context)
        start += part.length


def _batches(
    evaluated: Sequence[Evaluated], length: int, schema: pa.Schema, context: ReadContext
) -> Iterator[pa.RecordBatch]:
    """The rows in batches of bounded bytes. Texts of one batch never come near the 2 GiB that Arrow allows them."""
    columns = [value for value in evaluated if isinstance(value, Located)]
    constant = sum(pa.repeat(value, 1).nbytes for value in evaluated if not isinstance(value, Located))
    for rows in gathering_parts(columns, length, context.budget, most_rows=BATCH_ROWS, beside=constant):
        size = min(length, rows.stop) - rows.start
        arrays = [v.part(rows).gather() if isinstance(v, Located) else pa.repeat(v, size) for v in evaluated]
        typed = [a if a.type == f.type else a.cast(f.type) for a, f in zip(arrays, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(typed, schema=schema)


# Codes, ranks and the order of a key, each one number per row.
_CODED_COPIES = 4

Codes: TypeAlias = NDArray[Any]
Key: TypeAlias = Callable[[Indices], Codes]
"""The codes of some rows, given by index; smaller comes first."""


def sorted_rows(
    plan: ir.Sort, rows: Bindings, owners: dict[str, NodeType | EdgeType], limit: int | None, context: ReadContext
) -> Bindings:
    """The rows in order, only the first `limit` when there is one. Ties are broken by the ids of some variables."""

    def codes_by(key: ir.SortKey | str) -> Key:
        def codes(chosen: Indices) -> Codes:
            context.cancellation.check()
            if isinstance(key, ir.SortKey):
                values = evaluate(key.value, rows.take(chosen), context)
                return codes_of(values, len(chosen), key.descending, context.budget)
            ids = context.properties.locate(context.table(owners[key]), key, "id", rows.rows[key][chosen])
            return codes_of(ids, len(chosen), descending=False, budget=context.budget)

        return codes

    keys = [*map(codes_by, plan.keys), *map(codes_by, plan.tie_break)]
    return rows.take(first_in_order(keys, rows.length, limit))


def sorted_table(keys: Sequence[ir.SortKey], table: pa.Table, limit: int | None, budget: MemoryBudget) -> pa.Table:
    """Aggregate rows in order. Equal ones keep the order of first appearance."""

    def by_column(key: ir.SortKey) -> Key:
        assert isinstance(key.value, ir.OutputValue)
        values = one_array(table.column(key.value.index))
        return lambda chosen: codes_of(Located(values, chosen), len(chosen), key.descending, budget)

    budget.hold(table.nbytes)
    chosen = first_in_order([by_column(key) for key in keys], len(table), limit)
    columns = [reorder(column, chosen, budget) for column in table.columns]
    budget.release(table.nbytes)
    return pa.Table.from_arrays(columns, schema=table.schema)


def first_in_order(keys: Sequence[Key], length: int, limit: int | None = None) -> Indices:
    """The indices of the first `limit` rows in the order of the keys, rows that tie in all of them as they come."""
    chosen = np.arange(length)
    if limit is not None and limit < length:
        chosen = _select_first(keys, chosen, limit)
    return _sort_order(keys, chosen)


def _select_first(keys: Sequence[Key], candidates: Indices, count: int) -> Indices:
    """Which rows are among the first `count`, ascending. Only rows tied at the edge are looked at twice."""
    chosen: list[Indices] = []
    for key in keys:
        if count == 0 or count >= len(candidates):
            break
        codes = key(candidates)
        edge = np.partition(codes, count - 1)[count - 1]
        before = codes < edge
        chosen.append(candidates[before])
        count -= int(before.sum())
        candidates = candidates[codes == edge]
    chosen.append(candidates[:count])
    return np.sort(np.concatenate(chosen))


def _sort_order(keys: Sequence[Key], order: Indices) -> Indices:
    order = order.copy()
    group = np.zeros(len(order), np.int64)
    tied = np.arange(len(order))
    for key in keys:
        if len(tied) < 2:
            break
        codes, own = key(order[tied]), group[tied]
        order_in_group = np.lexsort((codes, own))
        order[tied] = order[tied][order_in_group]
        codes = codes[order_in_group]
        differs = (own[1:] != own[:-1]) | (codes[1:] != codes[:-1])
        group[tied] = np.concatenate(([0], np.cumsum(differs)))
        alone = np.concatenate(([True], differs)) & np.concatenate((differs, [True]))
        tied = tied[~alone]
    return order


def codes_of(evaluated: Evaluated, length: int, descending: bool, budget: MemoryBudget) -> Codes:
    """Numbers that compare like the values, null below everything; reversed when descending."""
    if not isinstance(evaluated, Located):
        return np.zeros(length, np.int64)
    column = evaluated.condense(budget)
    budget.step(column.values.nbytes + _CODED_COPIES * 8 * length)
    codes = _ascending_codes(column.values)[column.positions]
    if not descending:
        return codes
    return -codes if codes.dtype == np.float64 else ~codes


def _ascending_codes(values: pa.Array) -> Codes:
    type_ = values.type
    if not values.null_count and pa.types.is_floating(type_):
        return _numpy(values, np.float64)
    if not values.null_count and pa.types.is_integer(type_) and type_ != pa.uint64():
        return _numpy(values, np.int64)
    if pa.types.is_boolean(type_):
        values = values.cast(pa.int8())
    ranks = _numpy(pc.rank(values, sort_keys="ascending", tiebreaker="dense"), np.int64)
    return np.where(_numpy(values.is_valid(), np.bool_), ranks, 0)


def _numpy(values: pa.Array, kind: type[np.generic]) -> Codes:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=kind)
