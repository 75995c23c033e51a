"""`map any all none single reduce`: values over the items of a list, with a variable bound to each of them.

The rows are repeated once for each item, and conditions and bodies are evaluated for all items of many lists at once;
`reduce` goes through the lists in step. Where only the item matters, a list that rows share is looked at once.
`evaluate` calls this module, which calls it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Bindings, Indices
from omnigraph.engine.query.context import ValueContext
from omnigraph.engine.query.properties import Located, gathering_parts
from omnigraph.engine.query.value_columns import column_type, compact_lists, list_array, list_offsets
from omnigraph.engine.query.values.compare import Truth
from omnigraph.engine.query.values.elementwise import (
    Evaluate,
    Evaluated,
    HeldValues,
    Piece,
    as_located,
    gather_all,
    join_pieces,
)
from omnigraph.engine.query.values.logic import true_rows, truth_of
from omnigraph.engine.query.values.stored import variable_columns, variables_read
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import ListFunction
from omnigraph.language.query.value_types import item_of

# Items whose bodies are evaluated at once, beyond the first list, and what one of them takes beside its variables.
_ITEMS_AT_ONCE: Final = 1 << 17
_ITEM_BYTES: Final = 256


# ---- rows and their lists -------------------------------------------------------------------------------


class _Lists(NamedTuple):
    """Lists without nulls, each with the row whose variables its values read, and where the results go: the position
    of the list of each row of the query, -1 for a null list."""

    lists: Located
    rows: Bindings
    positions: Indices


def _lists_of(items: Evaluated, rows: Bindings, outer: frozenset[str]) -> _Lists:
    column = as_located(items, rows.length)
    valid = np.append(column.values.is_valid().to_numpy(zero_copy_only=False), False)
    if not outer and len(column.values) <= rows.length:
        used = np.zeros(len(valid), np.bool_)
        used[column.positions] = True
        chosen = np.flatnonzero(used & valid)
        numbers = np.full(len(valid), -1, np.int64)
        numbers[chosen] = np.arange(len(chosen))
        return _Lists(Located(column.values, chosen), Bindings({}, len(chosen)), numbers[column.positions])
    present = np.flatnonzero(valid[column.positions])
    numbers = np.full(rows.length, -1, np.int64)
    numbers[present] = np.arange(len(present))
    return _Lists(Located(column.values, column.positions[present]), rows.only(outer).take(present), numbers)


class _Chunk(NamedTuple):
    """Some of the rows, and their lists side by side."""

    rows: Bindings
    items: pa.Array
    lengths: NDArray[np.int64]


def _chunks(lists: _Lists, context: ValueContext) -> Iterator[_Chunk]:
    for part in gathering_parts([lists.lists], lists.rows.length, context.budget):
        start, stop = part.start, min(part.stop, lists.rows.length)
        gathered = compact_lists(lists.lists.part(slice(start, stop)).gather())
        lengths = pc.list_value_length(gathered).to_numpy(zero_copy_only=False).astype(np.int64)
        ends = np.cumsum(lengths)
        most = min(_ITEMS_AT_ONCE, context.budget.available // (_ITEM_BYTES + 8 * len(lists.rows.rows)))
        first = 0
        while first < len(lengths):
            before = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
            items = gathered.values.slice(before, int(ends[last - 1]) - before)
            yield _Chunk(lists.rows.slice(start + first, start + last), items, lengths[first:last])
            first = last


def _each_list(
    value: ir.ListForm | ir.Reduce,
    outer: frozenset[str],
    rows: Bindings,
    context: ValueContext,
    evaluate: Evaluate,
    result_of: Callable[[_Chunk], pa.Array],
) -> Evaluated:
    """One result for each list, chunk by chunk; `outer` are the variables of the row that it depends on."""
    items = evaluate(value.items, rows, context)
    if isinstance(items, pa.Scalar) and not items.is_valid:
        return pa.scalar(None, column_type(value.type))
    lists = _lists_of(items, rows, outer)
    made: list[pa.Array] = []
    with HeldValues(context.budget) as held:
        for chunk in _chunks(lists, context) if lists.rows.length else ():
            made.append(result_of(chunk))
            held.hold(made[-1])
        return Located(held.join(made, column_type(value.type)), lists.positions)


# ---- map and quantifiers --------------------------------------------------------------------------------


def list_form(value: ir.ListForm, rows: Bindings, context: ValueContext, evaluate: Evaluate) -> Evaluated:
    outer = variables_read(value.condition, value.body) - {value.variable}
    return _each_list(
        value, outer, rows, context, evaluate, lambda chunk: _form_of_chunk(value, chunk, context, evaluate)
    )


def _form_of_chunk(value: ir.ListForm, chunk: _Chunk, context: ValueContext, evaluate: Evaluate) -> pa.Array:
    check = context.cancellation.check
    context.budget.step(8 * len(chunk.items) * (len(chunk.rows.rows) + 2))
    each_item = chunk.rows.each(chunk.lengths, check)
    parents = np.repeat(np.arange(len(chunk.lengths)), chunk.lengths)
    item_type = item_of(value.items.type)
    mark = context.bound.mark()
    try:
        item = Located(chunk.items, np.arange(len(chunk.items)))
        columns = variable_columns(value.variable, item_type, item, item_type, len(chunk.items), context)
        each_item = each_item.binding(columns)
        if value.condition is not None:
            kept = true_rows(evaluate(value.condition, each_item, context), each_item.length)
            each_item, parents = each_item.where(kept), parents[kept]
        body = evaluate(value.body, each_item, context)
    finally:
        context.bound.release(mark)
    if value.function is not ListFunction.MAP:
        return _QUANTIFIERS[value.function](truth_of(body, len(parents)), parents, len(chunk.lengths)).array()
    kept_lengths = np.bincount(parents, minlength=len(chunk.lengths))
    target = item_of(value.type)
    results = join_pieces([(np.arange(len(parents)), body, value.body.type)], len(parents), target, context)
    return list_array(list_offsets(kept_lengths), gather_all(results, context))


def _count(mask: NDArray[np.bool_], parents: Indices, size: int) -> Indices:
    return np.bincount(parents[mask], minlength=size)


def _any(items: Truth, parents: Indices, size: int) -> Truth:
    """True if one is true, else null if one is null, else false."""
    true = _count(items.true, parents, size) > 0
    return Truth(true, ~true & (_count(items.null, parents, size) > 0))


def _none(items: Truth, parents: Indices, size: int) -> Truth:
    some = _any(items, parents, size)
    return Truth(~some.true & ~some.null, some.null)


def _all(items: Truth, parents: Indices, size: int) -> Truth:
    """False if one is false, else null if one is null, else true."""
    return _none(Truth(~items.true & ~items.null, items.null), parents, size)


def _single(items: Truth, parents: Indices, size: int) -> Truth:
    """False if two are true, else null if one is null, else whether exactly one is true."""
    true, null = _count(items.true, parents, size), _count(items.null, parents, size)
    unknown = (true < 2) & (null > 0)
    return Truth((true == 1) & ~unknown, unknown)


_QUANTIFIERS: Final[Mapping[ListFunction, Callable[[Truth, Indices, int], Truth]]] = {
    ListFunction.ANY: _any,
    ListFunction.ALL: _all,
    ListFunction.NONE: _none,
    ListFunction.SINGLE: _single,
}


# ---- reduce ---------------------------------------------------------------------------------------------


def reduce(value: ir.Reduce, rows: Bindings, context: ValueContext, evaluate: Evaluate) -> Evaluated:
    """The body once for each item, in order, with the value so far."""
    outer = variables_read(value.body, value.initial) - {value.variable, value.accumulator}
    return _each_list(
        value, outer, rows, context, evaluate, lambda chunk: _reduce_chunk(value, chunk, context, evaluate)
    )


def _reduce_chunk(value: ir.Reduce, chunk: _Chunk, context: ValueContext, evaluate: Evaluate) -> pa.Array:
    """All lists of a chunk in step: the n-th items of those that are long enough, at once."""
    budget, item_type = context.budget, item_of(value.items.type)
    starts = np.cumsum(chunk.lengths) - chunk.lengths
    running = np.arange(len(chunk.lengths))
    so_far = _accumulate(value, value.initial, evaluate(value.initial, chunk.rows, context), len(running), context)
    pieces: list[Piece] = []
    finished, mark = HeldValues(budget), context.bound.mark()
    try:
        item = Located(chunk.items, np.arange(len(chunk.items)))
        item_columns = variable_columns(value.variable, item_type, item, item_type, len(chunk.items), context)
        for step in range(int(chunk.lengths.max(initial=0)) + 1):
            context.cancellation.check()
            goes_on = chunk.lengths[running] > step
            if not goes_on.all():
                result = Located(so_far.values, so_far.positions[~goes_on]).condense(budget)
                finished.hold(result.values)
                pieces.append((running[~goes_on], result, value.type))
                running, so_far = running[goes_on], Located(so_far.values, so_far.positions[goes_on])
            if not len(running):
                break
            step_mark = context.bound.mark()
            columns = {name: column[starts[running] + step] for name, column in item_columns.items()}
            columns |= variable_columns(value.accumulator, value.type, so_far, value.type, len(running), context)
            below = chunk.rows if len(running) == chunk.rows.length else chunk.rows.take(running)
            body = evaluate(value.body, below.binding(columns), context)
            so_far = _accumulate(value, value.body, body, len(running), context)
            context.bound.release(step_mark)
    finally:
        context.bound.release(mark)
        finished.release()
    return gather_all(join_pieces(pieces, len(chunk.lengths), value.type, context), context)


def _accumulate(value: ir.Reduce, part: ir.Value, evaluated: Evaluated, length: int, context: ValueContext) -> Located:
    """The value so far, in the type of the whole."""
    return join_pieces([(np.arange(length), evaluated, part.type)], length, value.type, context)
