"""Property values of bound rows, read as late as possible and at most once.

A column is read whole when that is cheaper than picking rows out of it, and then shared by every variable of its
type; otherwise only the rows asked for are read. Called by everything that needs a value; never filters anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Indices, identity
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.errors import ResourceLimitError
from omnigraph.storage.integer_sets import factorize
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.memory.columns import COLUMNS, Codes
from omnigraph.storage.tables.memory.row_space import RowSpace
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
        if len(self.positions) == len(self.values) and np.array_equal(self.positions, identity(len(self.positions))):
            return self.values
        return self.values.take(as_indices(self.positions))

    @property
    def nbytes(self) -> int:
        """The bytes of one value per row."""
        return int(_sizes_at(self.values, self.positions).sum())

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
        if _fixed_bytes(self.values.type) is not None:
            # Finding what rows share costs more than numbers of their own.
            budget.step(self.nbytes)
            return Located(self.values.take(as_indices(self.positions)), identity(len(self.positions)))
        held, _, positions = factorize(self.positions)
        budget.step(int(_sizes_at(self.values, held).sum()))
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
    fixed = [size for column in columns if (size := _fixed_bytes(column.values.type)) is not None]
    if len(fixed) == len(columns):
        yield from _equal_parts(beside + 1 + sum(fixed), length, budget, most_rows, kept=kept)
        return

    def row_bytes(rows: slice) -> NDArray[np.int64]:
        nbytes = np.full(rows.stop - rows.start, beside + 1, np.int64)
        for column in columns:
            nbytes += _sizes_at(column.values, column.positions[rows])
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


def _equal_parts(row_bytes: int, length: int, budget: MemoryBudget, most_rows: int, *, kept: bool) -> Iterator[slice]:
    """Parts of rows that all take the same."""
    most = min(_GATHERED_BYTES, budget.available // _COPIES)
    start = 0
    while True:
        if kept:
            most = min(most, budget.available // _COPIES)
        count = max(1, min(most_rows, length - start, most // row_bytes))
        budget.step(_COPIES * row_bytes * count if length else 0)
        yield slice(start, start + count)
        start += count
        if start >= length:
            return


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


def _sizes_at(values: pa.Array, positions: Indices) -> NDArray[np.int64]:
    """The bytes of the values at these positions; a null takes none."""
    if not len(values):
        return np.zeros(len(positions), np.int64)
    is_null = positions < 0
    at = np.where(is_null, 0, positions) if is_null.any() else positions
    sizes = _bytes_before(values, at + 1) - _bytes_before(values, at)
    return np.where(is_null, 0, sizes)


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
    """The values of one column for a set of rows. With codes, rows share values."""

    space: RowSpace
    values: pa.Array
    codes: Codes | None = None

    def locate(self, rows: RowIds) -> Located:
        if rows is self.space.rows:
            codes = identity(len(rows)) if self.codes is None else self.codes.astype(np.int64)
            return Located(self.values, codes)
        positions = self.space.positions(rows)
        if self.codes is None:
            return Located(self.values, positions)
        if positions.min(initial=0) >= 0:
            return Located(self.values, self.codes[positions].astype(np.int64))
        absent = positions < 0
        located = self.codes[np.where(absent, 0, positions)].astype(np.int64) if len(self.codes) else positions
        return Located(self.values, np.where(absent, -1, located))

    def holds(self, rows: RowIds) -> bool:
        """Whether it has the values of all these rows, of which negative ones have none."""
        return rows is self.space.rows or bool((self.space.contains(rows) | (rows < 0)).all())


class Properties:
    """The columns one query has read."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._shared: dict[tuple[str, str], _Slice] = {}
        """Whole columns in the memory of the process, which no query is charged for."""
        self._whole: dict[tuple[str, str], _Slice] = {}
        self._partial: dict[tuple[str, str, str], _Slice] = {}
        self._too_large: set[tuple[str, str]] = set()

    def remember(self, table: Table, variable: str, rows: RowIds, read: pa.Table) -> None:
        """What a scan read along with its row ids; `rows` are ascending."""
        self._keep(table, variable, RowSpace(rows), read, [name for name in read.column_names if name != ROW_ID])

    def load_whole(self, table: Table, columns: Collection[str]) -> bool:
        """Have whole columns from the memory of the process; False when they can't be there."""
        missing = [name for name in columns if (table.key, name) not in self._shared]
        if not missing:
            return True
        if (read := COLUMNS.whole(table, missing)) is None:
            return False
        space = COLUMNS.rows(table).space
        for name, column in read.items():
            self._shared[table.key, name] = _Slice(space, column.values, column.codes)
        return True

    def locate(self, table: Table, variable: str, column: str, rows: RowIds) -> Located:
        """The values of a stored column for `rows`, null for those that are negative. The table holds all others."""
        self.load(table, variable, [column], rows)
        key = table.key, column
        slice_ = self._shared.get(key) or self._whole.get(key) or self._partial[table.key, variable, column]
        return slice_.locate(rows)

    def load(self, table: Table, variable: str, columns: Sequence[str], rows: RowIds) -> None:
        """Make sure the columns can be located without another request."""
        keys = {name: (table.key, name) for name in columns}
        missing = [name for name, key in keys.items() if key not in self._shared and key not in self._whole]
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
        """Read columns whole, if they fit: values may be larger than anybody expected, and fewer may do. What is in the
        memory of the process is not the query's."""
        if self.load_whole(table, columns):
            return True
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
