"""Functions of lists and paths, by arithmetic on where the items of each list begin and end.

Indices count from 0, negative ones from the end. A kernel gets columns without nulls; items may be null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Indices
from omnigraph.engine.query.properties import as_indices, value_bytes
from omnigraph.engine.query.value_columns import (
    PATH,
    column_type,
    compact_lists,
    list_array,
    list_offsets,
    renumber_members,
)
from omnigraph.engine.query.values.arithmetic import integers
from omnigraph.engine.query.values.elementwise import Argument, Kernel, Part
from omnigraph.errors import EvaluationRule
from omnigraph.language.query import ir
from omnigraph.language.query.value_types import EntityType, PathType, list_of

MOST_ITEMS: Final = 1_000_000
"""The longest list that `range` makes."""
_FAR: Final = 2**62
"""An index beyond every list."""
_RANGE_BYTES: Final = 48
"""Of an item of a range, which is calculated from where it is, and from the beginning and the step of its list."""
_POSITION_BYTES: Final = 32
"""Of an item that gets another place: where it was, where it goes, and its list."""


def _lists(part: Part, argument: Argument) -> tuple[pa.Array, NDArray[np.int64]]:
    """The lists with their items side by side, and where each begins."""
    lists = compact_lists(part.array(argument))
    return lists, lists.offsets.to_numpy().astype(np.int64)


def concatenate_lists(part: Part, *operands: Argument) -> pa.Array:
    """The items of the first list, then those of the next one, row by row. They are of one type."""
    lists, offsets = zip(*(_lists(part, operand) for operand in operands), strict=True)
    part.reserve(sum(2 * each.values.nbytes + _POSITION_BYTES * len(each.values) for each in lists))
    lengths = np.stack([np.diff(each) for each in offsets], axis=1)
    starts = np.cumsum(lengths.ravel()).reshape(lengths.shape) - lengths
    order = np.empty(int(lengths.sum()), np.int64)
    first = 0
    for number, each in enumerate(offsets):
        sources = np.arange(each[-1])
        within = sources - np.repeat(each[:-1], lengths[:, number])
        order[np.repeat(starts[:, number], lengths[:, number]) + within] = sources + first
        first += int(each[-1])
    items = pa.concat_arrays([each.values for each in lists])
    return list_array(list_offsets(lengths.sum(axis=1)), items.take(pa.array(order)))


# ---- items and parts ------------------------------------------------------------------------------------


def _item_at(part: Part, argument: Argument, index: NDArray[Any]) -> pa.Array:
    """One item of each list; null where it has no such item."""
    if isinstance(argument, pa.Scalar):
        lengths = np.full(part.size, len(argument.values), np.int64)
        items, starts = argument.values, np.zeros(part.size, np.int64)
    else:
        lists, offsets = _lists(part, argument)
        items, starts, lengths = lists.values, offsets[:-1], np.diff(offsets)
    index = np.where(index < 0, index + lengths, index)
    chosen = np.where((index >= 0) & (index < lengths), starts + index, -1)
    part.reserve(_bytes_at(items, chosen))
    return items.take(as_indices(chosen))


def _bytes_at(items: pa.Array, chosen: Indices) -> int:
    sizes = value_bytes(items)
    return sizes * len(chosen) if isinstance(sizes, int) else int(sizes[chosen[chosen >= 0]].sum())


def _head(part: Part, lists: Argument) -> pa.Array:
    return _item_at(part, lists, np.zeros(part.size, np.int64))


def _last(part: Part, lists: Argument) -> pa.Array:
    return _item_at(part, lists, np.full(part.size, -1))


def _item(part: Part, lists: Argument, index: Argument) -> pa.Array:
    return _item_at(part, lists, _index(part, index))


def _index(part: Part, argument: Argument) -> NDArray[np.int64]:
    """An index, where one beyond every list stays beyond every list."""
    index: NDArray[np.int64] = np.minimum(part.numbers(argument), _FAR).astype(np.int64)
    return np.maximum(index, -_FAR)


def _tail(part: Part, lists: Argument) -> pa.Array:
    return _slice(part, lists, pa.scalar(1), pa.scalar(_FAR))


def _slice(part: Part, lists: Argument, start: Argument, stop: Argument) -> pa.Array:
    """The items from one index up to, and without, another."""
    compact, offsets = _lists(part, lists)
    part.reserve(compact.values.nbytes + _POSITION_BYTES * len(compact.values))
    lengths = np.diff(offsets)

    def clip(argument: Argument) -> NDArray[np.int64]:
        index = _index(part, argument)
        return np.clip(np.where(index < 0, index + lengths, index), 0, lengths)

    first = clip(start)
    counts = np.maximum(clip(stop) - first, 0)
    new_offsets = list_offsets(counts)
    chosen = np.arange(int(counts.sum())) + np.repeat(offsets[:-1] + first - new_offsets.to_numpy()[:-1], counts)
    return list_array(new_offsets, compact.values.take(pa.array(chosen)))


def reverse_lists(part: Part, lists: Argument) -> pa.Array:
    compact, offsets = _lists(part, lists)
    part.reserve(compact.values.nbytes + _POSITION_BYTES * len(compact.values))
    rows = np.repeat(np.arange(part.size), np.diff(offsets))
    # The item that is as far from the end of its list as this one is from its beginning.
    mirrored = offsets[rows] + offsets[rows + 1] - 1 - np.arange(len(rows))
    return list_array(compact.offsets, compact.values.take(pa.array(mirrored)))


def _range(part: Part, first: Argument, last: Argument, step: Argument | None = None) -> pa.Array:
    """The integers from one to another, both included."""
    one, other = integers(part, first), integers(part, last)
    steps = np.ones(part.size, np.int64) if step is None else integers(part, step)
    if not steps.all():
        part.fail(EvaluationRule.BAD_ARGUMENT, "the step of a range is 0")
    counts = np.empty(part.size, np.int64)
    for row, (a, b, by) in enumerate(part.watch(zip(one.tolist(), other.tolist(), steps.tolist(), strict=True))):
        # Of Python's integers: the bounds may lie further apart than 64 bits reach.
        counts[row] = count = min(max(0, (b - a) // by + 1), MOST_ITEMS + 1)
        if count > MOST_ITEMS:
            part.fail(EvaluationRule.BAD_ARGUMENT, f"a range has at most {MOST_ITEMS} items")
    part.reserve(_RANGE_BYTES * int(counts.sum()))
    offsets = list_offsets(counts)
    within = np.arange(int(counts.sum())) - np.repeat(offsets.to_numpy()[:-1], counts)
    return list_array(offsets, pa.array(np.repeat(one, counts) + np.repeat(steps, counts) * within))


# ---- paths ----------------------------------------------------------------------------------------------


def _nodes(part: Part, paths: pa.Array) -> pa.Array:
    return paths.field(0)


def _edges(part: Part, paths: pa.Array) -> pa.Array:
    return paths.field(1)


def _length(part: Part, paths: pa.Array) -> pa.Array:
    return pc.list_value_length(_edges(part, paths)).cast(pa.int64())


def path_kernel(parts: Sequence[ir.Value], type_: PathType) -> Kernel:
    """Paths made of nodes, edges and paths. Where one part ends in the node that the next one begins with, the path
    has it once."""

    def kernel(part: Part, *operands: Argument) -> pa.Array:
        nodes: list[pa.Array] = []
        edges: list[pa.Array] = []
        ends_in_node = False
        for operand, own in zip(operands, parts, strict=True):
            array = part.array(operand)
            if isinstance(own.type, EntityType) and own.type.is_edge:
                edges.append(_as_lists(renumber_members(array, own.type, type_.edges)))
                ends_in_node = False
                continue
            if isinstance(own.type, PathType):
                walked = renumber_members(array, own.type, type_)
                edges.append(walked.field(1))
                met = walked.field(0)
            else:
                assert isinstance(own.type, EntityType)
                met = _as_lists(renumber_members(array, own.type, type_.nodes))
            nodes.append(_tail(part, met) if ends_in_node else met)
            ends_in_node = True
        joined = [_all_of(part, lists, own) for lists, own in ((nodes, type_.nodes), (edges, type_.edges))]
        return pa.StructArray.from_arrays(joined, fields=list(PATH))

    return kernel


def _as_lists(values: pa.Array) -> pa.Array:
    """A list of one item for each value."""
    return list_array(list_offsets(np.ones(len(values), np.int64)), values)


def _all_of(part: Part, lists: Sequence[pa.Array], type_: EntityType) -> pa.Array:
    if not lists:
        return pa.array([[]] * part.size, column_type(list_of(type_)))
    return concatenate_lists(part, *lists)


def lists_of(part: Part, items: Sequence[pa.Array]) -> pa.Array:
    """A list for each row, of one item from each array. There is at least one array."""
    part.reserve(sum(2 * each.nbytes + _POSITION_BYTES * len(each) for each in items))
    width = len(items)
    # The items of a row lie as far apart as there are rows.
    order = np.arange(part.size * width).reshape(width, part.size).T.ravel()
    return list_array(list_offsets(np.full(part.size, width)), pa.concat_arrays(items).take(pa.array(order)))


LIST_FUNCTIONS: Final[Mapping[str, Kernel]] = {
    "head": _head,
    "last": _last,
    "tail": _tail,
    "item": _item,
    "slice": _slice,
    "range": _range,
    "nodes": _nodes,
    "edges": _edges,
    "start": lambda part, paths: _head(part, _nodes(part, paths)),
    "end": lambda part, paths: _last(part, _nodes(part, paths)),
    "length": _length,
}
