"""Property values of bound rows, read as late as possible and at most once.

A column is read whole when that is cheaper than picking rows out of it, and then shared by every variable of its
type; otherwise only the rows asked for are read. Called by everything that needs a value; never filters anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Indices, RowSpace
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.errors import ResourceLimitError
from omnigraph.storage.integer_sets import factorize
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import ROW_ID, RowIds, by_row_id, row_ids_of, wide_type

# Measured on a local disk: picking a row costs about as much as reading this many bytes in sequence.
_BYTES_PER_PICK = 10_000
_STRING_BYTES = 24
_LIST_BYTES = 64
_INT32_OFFSETS = 1 << 31
_OFFSET_BYTES = 8
# What is gathered at a time: enough for the cost of a call not to matter, little beside any budget.
_GATHERED_BYTES = 16 << 20
# What is gathered is compared, cast or made into Python values: so many copies are had at once.
_COPIES = 4


@dataclass(frozen=True, slots=True)
class Located:
    """Values, and for each row the position of its own. Several rows may share one; a negative position is null."""

    values: pa.Array
    positions: Indices

    def gather(self) -> pa.Array:
        """One value per row."""
        if len(self.positions) == len(self.values) and np.array_equal(self.positions, np.arange(len(self.positions))):
            return self.values
        return self.values.take(as_indices(self.positions))

    @property
    def nbytes(self) -> int:
        """The bytes of one value per row."""
        return int(_sizes_at(value_bytes(self.values), self.positions).sum())

    def part(self, rows: slice) -> Located:
        """The same for some of the rows."""
        return Located(self.values, self.positions[rows])

    def in_parts(self, budget: MemoryBudget) -> pa.ChunkedArray:
        """One value per row, in as many chunks as texts beyond 2 GiB need."""
        parts = gathering_parts([self], len(self.positions), budget, kept=True)
        return _gather_all((self.part(part).gather() for part in parts), self.values.type, budget)

    def condense(self, budget: MemoryBudget) -> Located:
        """The same rows over no more values than there are rows, null being a value too: no position is negative."""
        has_null = bool((self.positions < 0).any())
        if len(self.values) <= len(self.positions) and not has_null:
            return self
        held, _, positions = factorize(self.positions)
        budget.step(int(_sizes_at(value_bytes(self.values), held).sum()))
        return Located(self.values.take(as_indices(held)), positions)


def gathering_parts(
    columns: Sequence[Located],
    length: int,
    budget: MemoryBudget,
    *,
    most_rows: int = 1 << 16,
    beside: int = 0,
    kept: bool = False,
) -> Iterator[slice]:
    """Parts of some rows, at least one, whose values can be gathered within the budget, which is asked for each.

    Several rows may share a large value, so what is gathered can be any number of times larger than what was read.
    `beside` is what a row needs besides these columns. With `kept`, earlier parts count against the budget, so that
    later ones are smaller.
    """
    most_bytes = length * (beside + 1 + sum(column.values.nbytes for column in columns))
    if length <= most_rows and most_bytes <= min(_GATHERED_BYTES, budget.available // _COPIES):
        budget.check()
        yield slice(0, max(1, length))
        return
    sizes = [value_bytes(column.values) for column in columns]

    def row_bytes(rows: slice) -> NDArray[np.int64]:
        nbytes = np.full(rows.stop - rows.start, beside + 1, np.int64)
        for column, size in zip(columns, sizes, strict=True):
            nbytes += _sizes_at(size, column.positions[rows])
        return nbytes

    yield from _fitting_parts(row_bytes, length, budget, most_rows, kept=kept)


def _gather_all(parts: Iterator[pa.Array], type_: pa.DataType, budget: MemoryBudget) -> pa.ChunkedArray:
    """The parts of a column. They count against the budget while more are gathered; then their owner counts them."""
    arrays: list[pa.Array] = []
    try:
        for array in parts:
            budget.hold(array.nbytes)
            arrays.append(array)
    finally:
        budget.release(sum(array.nbytes for array in arrays))
    return pa.chunked_array(arrays, type_)


def _fitting_parts(
    row_bytes: Callable[[slice], NDArray[np.int64]], length: int, budget: MemoryBudget, most_rows: int, *, kept: bool
) -> Iterator[slice]:
    most = min(_GATHERED_BYTES, budget.available // _COPIES)
    start = 0
    while True:
        if kept:
            most = min(most, budget.available // _COPIES)
        ends = np.cumsum(row_bytes(slice(start, min(length, start + most_rows))))
        count = max(1, int(np.searchsorted(ends, most, side="right")))
        budget.step(_COPIES * int(ends[min(count, len(ends)) - 1]) if len(ends) else 0)
        yield slice(start, start + count)
        start += count
        if start >= length:
            return


def as_indices(positions: Indices) -> pa.Array:
    """Indices for `take` of Arrow: negative positions are null."""
    absent = positions < 0
    return pa.array(positions, mask=absent if absent.any() else None)


def _sizes_at(sizes: NDArray[np.int64] | int, positions: Indices) -> NDArray[np.int64]:
    """The bytes of the values at these positions; a null takes none."""
    if isinstance(sizes, int):
        return np.where(positions < 0, 0, sizes)
    if not len(sizes):
        return np.zeros(len(positions), np.int64)
    return np.where(positions < 0, 0, sizes[positions])


def value_bytes(values: pa.Array) -> NDArray[np.int64] | int:
    """How many bytes each value takes: one number for each of them, or one that is the same for all."""
    same = _fixed_bytes(values.type)
    if same is not None:
        return same
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return np.diff(_offsets(values)).astype(np.int64) + _OFFSET_BYTES
    return np.diff(_bytes_before(values, np.arange(len(values) + 1)))


def _fixed_bytes(type_: pa.DataType) -> int | None:
    """The bytes of a value of this type; None where they differ."""
    if pa.types.is_fixed_size_list(type_):
        return int(type_.list_size) * 4
    if pa.types.is_struct(type_):
        fields = [_fixed_bytes(field.type) for field in type_]
        return None if None in fields else sum((each for each in fields if each is not None), 1)
    if pa.types.is_nested(type_) or pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return None
    return 1 if pa.types.is_null(type_) else max(1, int(type_.bit_width) // 8)


def _bytes_before(values: pa.Array, at: Indices) -> NDArray[np.int64]:
    """The bytes of all values before each of these positions. The items of lists are not looked at one by one."""
    if (same := _fixed_bytes(values.type)) is not None:
        return at * same
    if pa.types.is_struct(values.type):
        before = at
        for i in range(values.type.num_fields):
            before = before + _bytes_before(values.field(i), at)
        return before
    starts: NDArray[np.int64] = _offsets(values)[at].astype(np.int64)
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        starts = _bytes_before(values.values, starts)
    return starts + _OFFSET_BYTES * at


def _offsets(values: pa.Array) -> NDArray[Any]:
    """Where each text or list begins in what they are made of, and where the last one ends."""
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_list(values.type)
    buffer = values.buffers()[1]
    if not len(values) or buffer is None:
        return np.zeros(len(values) + 1, np.int64)
    return np.frombuffer(buffer, np.int64 if wide else np.int32)[values.offset : values.offset + len(values) + 1]


class _Slice(NamedTuple):
    """The values of one column for a set of rows."""

    space: RowSpace
    values: pa.Array

    def holds(self, rows: RowIds) -> bool:
        """Whether it has the values of all these rows, of which negative ones have none."""
        return rows is self.space.rows or bool((self.space.contains(rows) | (rows < 0)).all())


class Properties:
    """The columns one query has read."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._whole: dict[tuple[str, str], _Slice] = {}
        self._partial: dict[tuple[str, str, str], _Slice] = {}
        self._too_large: set[tuple[str, str]] = set()

    def remember(self, table: Table, variable: str, rows: RowIds, read: pa.Table) -> None:
        """What a scan read along with its row ids; `rows` are ascending."""
        self._keep(table, variable, RowSpace(rows), read, [name for name in read.column_names if name != ROW_ID])

    def locate(self, table: Table, variable: str, column: str, rows: RowIds) -> Located:
        """The values of a stored column for `rows`, null for those that are negative. The table holds all others."""
        self.load(table, variable, [column], rows)
        slice_ = self._whole.get((table.key, column)) or self._partial[table.key, variable, column]
        return Located(slice_.values, slice_.space.positions(rows))

    def load(self, table: Table, variable: str, columns: Sequence[str], rows: RowIds) -> None:
        """Make sure the columns can be located without another request."""
        missing = [name for name in columns if (table.key, name) not in self._whole]
        missing = [
            name
            for name in missing
            if (part := self._partial.get((table.key, variable, name))) is None or not part.holds(rows)
        ]
        if not missing:
            return
        rows = rows[rows >= 0]
        if all(self._whole_is_cheaper(table, c, len(rows)) for c in missing) and self._load_whole(table, missing):
            return
        wanted = RowSpace.of(rows)
        self._keep(table, variable, wanted, table.take(wanted.rows, missing), missing)

    def _load_whole(self, table: Table, columns: Sequence[str]) -> bool:
        """Read columns whole, if they fit: values may be larger than anybody expected, and fewer may do."""
        try:
            read = by_row_id(table.read(columns, row_ids=True))
            space = RowSpace(row_ids_of(read))
            nbytes = read.nbytes
            slices = {name: _Slice(space, self._in_one(read, name, nbytes)) for name in columns}
            self._budget.step(sum(slice_.values.nbytes for slice_ in slices.values()))
        except ResourceLimitError:
            self._too_large.update((table.key, name) for name in columns)
            return False
        for name, slice_ in slices.items():
            self._budget.hold(slice_.values.nbytes)
            self._whole[table.key, name] = slice_
        return True

    def _in_one(self, read: pa.Table, name: str, nbytes: int) -> pa.Array:
        """A column of rows that were read and take so many bytes."""
        column = read.column(name)
        self._budget.step(nbytes + (column.nbytes if column.num_chunks > 1 else 0))
        return one_array(column)

    def _keep(self, table: Table, variable: str, space: RowSpace, read: pa.Table, columns: Sequence[str]) -> None:
        """Only the newest partial read of a variable's column stays: rows move on, they seldom come back."""
        nbytes = read.nbytes
        for name in columns:
            key, values = (table.key, variable, name), self._in_one(read, name, nbytes)
            if (old := self._partial.pop(key, None)) is not None:
                self._budget.release(old.values.nbytes)
            self._budget.hold(values.nbytes)
            self._partial[key] = _Slice(space, values)

    def _whole_is_cheaper(self, table: Table, column: str, picks: int) -> bool:
        if (table.key, column) in self._too_large:
            return False
        type_ = table.schema.field(column).type
        if pa.types.is_fixed_size_list(type_):
            each = int(type_.list_size) * 4
        elif pa.types.is_list(type_):
            each = _LIST_BYTES
        else:
            each = _STRING_BYTES if pa.types.is_string(type_) else max(1, type_.bit_width // 8)
        cost = table.state.rows * each
        return cost <= picks * _BYTES_PER_PICK and cost <= (self._budget.limit - self._budget.held) // 2


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece. Texts beyond 2 GiB do not fit 32-bit offsets and move to wider ones."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.nbytes >= _INT32_OFFSETS:
        column = column.cast(wide_type(column.type))
    return column.combine_chunks()
