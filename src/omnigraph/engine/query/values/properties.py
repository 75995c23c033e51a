"""Property values of bound rows, read as late as possible and at most once.

A column is read whole when that is cheaper than picking rows out of it, and then shared by every variable of its
type; otherwise only the rows asked for are read. Called by everything that needs a value; never filters anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.values.bindings import Indices, RowSpace
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import ROW_ID, RowIds, by_row_id, row_ids_of

# Measured on a local disk: picking a row costs about as much as reading this many bytes in sequence.
_BYTES_PER_PICK = 10_000
_STRING_BYTES = 24
_LIST_BYTES = 64
_INT32_OFFSETS = 1 << 31


@dataclass(frozen=True, slots=True)
class Located:
    """Values, and for each row where in them its own stands. Several rows may share one."""

    values: pa.Array
    positions: Indices

    def gathered(self) -> pa.Array:
        """One value per row."""
        if len(self.positions) == len(self.values) and np.array_equal(self.positions, np.arange(len(self.positions))):
            return self.values
        return self.values.take(pa.array(self.positions))

    def part(self, rows: slice) -> Located:
        """The same for some of the rows."""
        return Located(self.values, self.positions[rows])

    def condensed(self) -> Located:
        """The same rows over no more values than there are rows."""
        if len(self.values) <= len(self.positions):
            return self
        return Located(self.gathered(), np.arange(len(self.positions)))


@dataclass(frozen=True, slots=True)
class _Slice:
    """The values of one column for a set of rows."""

    space: RowSpace
    values: pa.Array


class Properties:
    """The columns one query has read."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._whole: dict[tuple[str, str], _Slice] = {}
        self._partial: dict[tuple[str, str, str], _Slice] = {}

    def remember(self, table: Table, variable: str, rows: RowIds, read: pa.Table) -> None:
        """What a scan read along with its row ids; `rows` are ascending."""
        space = RowSpace(rows)
        for name in read.column_names:
            if name != ROW_ID:
                self._keep(table, variable, name, _Slice(space, one_array(read.column(name))))

    def located(self, table: Table, variable: str, column: str, rows: RowIds) -> Located:
        """The values of a stored column for `rows`. The table holds every row it is asked for."""
        self.load(table, variable, [column], rows)
        slice_ = self._whole.get((table.key, column)) or self._partial[table.key, variable, column]
        return Located(slice_.values, slice_.space.positions(rows))

    def load(self, table: Table, variable: str, columns: Sequence[str], rows: RowIds) -> None:
        """Make sure the columns can be located without another request."""
        missing = [c for c in columns if not self._covers(table, variable, c, rows)]
        if not missing:
            return
        if all(self._whole_is_cheaper(table, c, len(rows)) for c in missing):
            read = by_row_id(table.read(missing, row_ids=True))
            space = RowSpace(row_ids_of(read))
            for name in missing:
                values = one_array(read.column(name))
                self._budget.hold(values.nbytes)
                self._whole[table.key, name] = _Slice(space, values)
            return
        wanted = RowSpace.of(rows)
        read = table.take(wanted.rows, missing)
        for name in missing:
            self._keep(table, variable, name, _Slice(wanted, one_array(read.column(name))))

    def _covers(self, table: Table, variable: str, column: str, rows: RowIds) -> bool:
        if (table.key, column) in self._whole:
            return True
        partial = self._partial.get((table.key, variable, column))
        return partial is not None and bool(partial.space.contains(rows).all())

    def _keep(self, table: Table, variable: str, column: str, slice_: _Slice) -> None:
        """Only the newest partial read of a variable's column stays: rows move on, they seldom come back."""
        key = (table.key, variable, column)
        if (old := self._partial.pop(key, None)) is not None:
            self._budget.release(old.values.nbytes)
        self._budget.hold(slice_.values.nbytes)
        self._partial[key] = slice_

    def _whole_is_cheaper(self, table: Table, column: str, picks: int) -> bool:
        cost = table.state.rows * _bytes_per_value(table.schema.field(column).type)
        return cost <= picks * _BYTES_PER_PICK and cost <= (self._budget.limit - self._budget.held) // 2


def _bytes_per_value(type_: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(type_):
        return int(type_.list_size) * 4
    if pa.types.is_list(type_):
        return _LIST_BYTES
    return _STRING_BYTES if pa.types.is_string(type_) else max(1, type_.bit_width // 8)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece. Texts beyond 2 GiB do not fit 32-bit offsets and move to wider ones."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_string(column.type) and column.nbytes >= _INT32_OFFSETS:
        column = column.cast(pa.large_string())
    return column.combine_chunks()
