"""Values of every type as Arrow columns while a query runs, and those that variables are bound to.

A node or an edge is a reference: the position of its type among the members of the `EntityType`, and its stable row id.
A path is the references of its nodes and of its edges. Objects are made of them only where rows leave the query.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Indices
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.properties import Located, one_array
from omnigraph.engine.rows.columns import arrow_type
from omnigraph.errors import EvaluationError, EvaluationRule
from omnigraph.language.query.value_types import (
    EntityType,
    ListType,
    NullType,
    PathType,
    RecordType,
    ValueType,
    as_nullable,
    is_list,
    item_of,
)
from omnigraph.storage.tables.rows import RowIds

REFERENCE: Final = pa.struct([pa.field("member", pa.int32()), pa.field("row", pa.int64())])
PATH: Final = pa.struct([pa.field("nodes", pa.list_(REFERENCE)), pa.field("edges", pa.list_(REFERENCE))])

_LARGEST_OFFSET: Final = 2**31 - 1


def column_type(type_: ValueType) -> pa.DataType:
    """The Arrow type of such values within a query."""
    match type_:
        case EntityType():
            return REFERENCE
        case PathType():
            return PATH
        case ListType():
            return pa.list_(column_type(type_.item))
        case RecordType():
            return pa.struct([pa.field(name, column_type(field)) for name, field in type_.fields])
        case NullType():
            return pa.string()
    return arrow_type(type_)


def references(members: Indices | int, rows: RowIds) -> pa.Array:
    """Entities by member and row id; a negative row id is null."""
    absent = rows < 0
    codes = np.full(len(rows), members, np.int32) if isinstance(members, int) else members.astype(np.int32)
    return pa.StructArray.from_arrays(
        [pa.array(codes), pa.array(rows)], fields=list(REFERENCE), mask=pa.array(absent) if absent.any() else None
    )


def convert(values: pa.Array, source: ValueType, target: ValueType) -> pa.Array:
    """Values of one type as those of another that holds them, as `value_types.unify` makes it: numbers widen, null is
    null of any type, entities get the numbers that their types have in `target`."""
    return _convert(values, source, target, _widen)


def renumber_members(values: pa.Array, source: ValueType, target: ValueType) -> pa.Array:
    """The same with numbers and texts as they are: only entities get the numbers that their types have in `target`."""
    return _convert(values, source, target, lambda array, _: array)


_Widen: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]


def _convert(values: pa.Array, source: ValueType, target: ValueType, widen: _Widen) -> pa.Array:
    if isinstance(source, NullType):
        return pa.nulls(len(values), column_type(target))
    if as_nullable(source) == as_nullable(target):
        return values
    match target:
        case EntityType() if isinstance(source, EntityType):
            return _renumber(values, source, target)
        case PathType() if isinstance(source, PathType):
            nodes = _convert_items(values.field(0), source.nodes, target.nodes, widen)
            edges = _convert_items(values.field(1), source.edges, target.edges, widen)
            return pa.StructArray.from_arrays([nodes, edges], fields=list(PATH), mask=null_mask(values))
        case RecordType() if isinstance(source, RecordType):
            pairs = zip(source.fields, target.fields, strict=True)
            fields = [_convert(values.field(i), own, new, widen) for i, ((_, own), (_, new)) in enumerate(pairs)]
            names = [name for name, _ in target.fields]
            return pa.StructArray.from_arrays(fields, names=names, mask=null_mask(values))
    if is_list(source) and is_list(target):
        return _convert_items(values, item_of(source), item_of(target), widen)
    return widen(values, column_type(target))


def _widen(values: pa.Array, type_: pa.DataType) -> pa.Array:
    if values.type == type_ or pa.types.is_large_string(values.type):
        return values
    if pa.types.is_floating(type_) and pa.types.is_integer(values.type):
        return values.cast(type_, safe=False)  # not every integer is a float: the nearest one
    try:
        return values.cast(type_)
    except pa.ArrowInvalid as error:
        raise EvaluationError(EvaluationRule.ARITHMETIC_OVERFLOW, "", message=str(error)) from None


def _convert_items(lists: pa.Array, source: ValueType, target: ValueType, widen: _Widen) -> pa.Array:
    if source == target:
        return lists
    lists = compact_lists(lists)
    return list_array(lists.offsets, _convert(lists.values, source, target, widen), null_mask(lists))


def repeat(value: pa.Scalar, length: int) -> pa.Array:
    """A column of one value. Arrow repeats no list zero times."""
    return pa.repeat(value, max(1, length)).slice(0, length)


def compact_lists(lists: pa.Array) -> pa.Array:
    """The same lists, so that `values` holds their items in order and nothing else, and `offsets` begins with 0."""
    if pa.types.is_fixed_size_list(lists.type):
        lists = lists.cast(pa.list_(lists.type.value_type))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return list_array(list_offsets(lengths), pc.list_flatten(lists), null_mask(lists))


def list_offsets(lengths: NDArray[Any]) -> pa.Array:
    """Where lists of these lengths begin, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.array(offsets if offsets[-1] > _LARGEST_OFFSET else offsets.astype(np.int32))


def list_array(offsets: pa.Array, items: pa.Array, mask: pa.Array | None = None) -> pa.Array:
    """Lists of these items; `mask` tells which of them are null."""
    kind = pa.LargeListArray if offsets.type == pa.int64() else pa.ListArray
    return kind.from_arrays(offsets, items, mask=mask)


def null_mask(values: pa.Array) -> pa.Array | None:
    """Which of the values are null; None when none is."""
    return values.is_null() if values.null_count else None


def _renumber(values: pa.Array, source: EntityType, target: EntityType) -> pa.Array:
    numbers = {member.type_key: number for number, member in enumerate(target.members)}
    table = np.array([numbers[member.type_key] for member in source.members], np.int32)
    if np.array_equal(table, np.arange(len(table))):
        return values
    codes = values.field(0).fill_null(0).to_numpy(zero_copy_only=False)
    fields = [pa.array(table[codes]), values.field(1)]
    return pa.StructArray.from_arrays(fields, fields=list(REFERENCE), mask=null_mask(values))


class _Parts:
    """The values of one variable, in the arrays that they were added as."""

    def __init__(self) -> None:
        self.arrays: list[pa.Array] = []
        self.starts: list[int] = []
        self.length = 0

    def add(self, array: pa.Array) -> None:
        self.arrays.append(array)
        self.starts.append(self.length)
        self.length += len(array)

    def drop_from(self, length: int) -> int:
        """Forget arrays that begin at or behind so many values; how many bytes that frees."""
        freed = 0
        while self.arrays and self.starts[-1] >= length:
            freed += self.arrays.pop().nbytes
            self.length = self.starts.pop()
        return freed

    def locate(self, positions: Indices) -> Located:
        """Pieces of rows read the array that was added last; a reader of several gets them as one."""
        if len(self.arrays) > 1:
            start = self.starts[-1]
            if not ((positions >= 0) & (positions < start)).any():
                return Located(self.arrays[-1], np.where(positions < 0, -1, positions - start))
            self.arrays, self.starts = [one_array(pa.chunked_array(self.arrays))], [0]
        return Located(self.arrays[0], positions)


Mark: TypeAlias = "dict[tuple[str, pa.DataType], int]"


class BoundValues:
    """The values that variables of a query are bound to. A row holds the position of its value, -1 for null, so rows
    with values are taken, repeated and joined like those with row ids.

    Values are only added, so positions stay valid: a variable that is bound piece by piece grows. A later stage may
    bind a name again to values of another type, which are kept apart.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._parts: dict[tuple[str, pa.DataType], _Parts] = {}
        self._pinned: Mark = {}

    def add(self, variable: str, type_: ValueType, values: pa.Array | pa.ChunkedArray) -> Indices:
        """The positions of some values, one for each of them; those of nulls are -1."""
        parts = self._parts.setdefault((variable, column_type(type_)), _Parts())
        if isinstance(values, pa.ChunkedArray):
            self._budget.step((2 if values.num_chunks > 1 else 1) * values.nbytes)
        array = one_array(values) if isinstance(values, pa.ChunkedArray) else values
        self._budget.hold(array.nbytes)
        positions = np.arange(parts.length, parts.length + len(array))
        if array.null_count:
            positions[np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)] = -1
        parts.add(array)
        return positions

    def locate(self, variable: str, type_: ValueType, positions: Indices) -> Located:
        """The values at these positions."""
        key = (variable, column_type(type_))
        parts = self._parts.get(key)
        if parts is None or not parts.arrays:
            return Located(pa.nulls(0, key[1]), positions)
        return parts.locate(positions)

    def mark(self) -> Mark:
        """The values that are bound now."""
        return {key: parts.length for key, parts in self._parts.items()}

    def release(self, mark: Mark) -> None:
        """Forget what was bound since, for rows that nobody has any more."""
        for key, parts in self._parts.items():
            self._budget.release(parts.drop_from(max(mark.get(key, 0), self._pinned.get(key, 0))))

    def pin(self) -> None:
        """Rows that are bound now are kept beyond their piece: nothing of theirs is forgotten."""
        self._pinned = self.mark()
