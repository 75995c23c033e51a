"""Sets of row ids, numbered 0, 1, 2… in ascending order: what columns and neighbour lists are arranged by."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.storage.integer_sets import distinct

RowIds: TypeAlias = NDArray[np.int64]
"""Lance numbers rows with unsigned 64-bit integers and never comes near 2^63; NumPy computes with signed ones."""

# A lookup table may be this many times larger than what it looks up before binary search takes over.
_SPARSEST_TABLE: Final = 8


class RowSpace:
    """A set of row ids, numbered 0, 1, 2… in ascending order."""

    def __init__(self, rows: RowIds) -> None:
        """`rows` are ascending and distinct."""
        self._rows = rows

    @classmethod
    def of(cls, rows: RowIds) -> RowSpace:
        """From any row ids, in any order, repeated or not."""
        return cls(distinct(rows))

    @property
    def rows(self) -> RowIds:
        return self._rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """Of its own, without what it shares."""
        return self._rows.nbytes

    @property
    def nbytes_of_all(self) -> int:
        """With the table that it may make to look row ids up."""
        return self._rows.nbytes if self.is_contiguous else (1 + _SPARSEST_TABLE) * self._rows.nbytes

    @property
    def is_contiguous(self) -> bool:
        return len(self._rows) > 0 and int(self._rows[-1]) - int(self._rows[0]) + 1 == len(self._rows)

    @cached_property
    def _table(self) -> NDArray[np.int64] | None:
        """The number of each row id of a set that is not empty; None where it would be mostly gaps."""
        span = int(self._rows[-1]) - int(self._rows[0]) + 1
        if span > _SPARSEST_TABLE * len(self._rows):
            return None
        table = np.full(span, -1, np.int64)
        table[self._rows - self._rows[0]] = np.arange(len(self._rows))
        return table

    def rows_at(self, positions: NDArray[Any]) -> RowIds:
        """The row ids with these numbers."""
        rows: RowIds = self._rows[positions]
        return rows

    def positions(self, rows: RowIds) -> NDArray[np.int64]:
        """The number of each row id, -1 for one that is not in the set."""
        own = self._rows
        if not len(own):
            return np.full(len(rows), -1, np.int64)
        if rows is own:
            return np.arange(len(rows))
        if self.is_contiguous or (len(rows) * _SPARSEST_TABLE > len(own) and self._table is not None):
            return self._by_table(rows)
        positions = np.searchsorted(own, rows)
        positions[positions == len(own)] = 0
        positions[own[positions] != rows] = -1
        return positions

    def _by_table(self, rows: RowIds) -> NDArray[np.int64]:
        first, last = int(self._rows[0]), int(self._rows[-1])
        offsets = rows - first if first else rows
        # Seen as unsigned, what is below zero is beyond every end.
        inside_all = not len(offsets) or int(offsets.view(np.uint64).max()) <= last - first
        if self.is_contiguous and inside_all:
            return offsets
        inside = (offsets >= 0) & (offsets <= last - first)
        if self.is_contiguous:
            return np.where(inside, offsets, -1)
        assert self._table is not None
        if inside_all:
            return self._table[offsets]
        return np.where(inside, self._table[np.where(inside, offsets, 0)], -1)

    def contains(self, rows: RowIds) -> NDArray[np.bool_]:
        return self.positions(rows) >= 0


class GrownRowSpace(RowSpace):
    """A set and a few later row ids beside it: what it grew from is shared and not copied."""

    def __init__(self, early: RowSpace, late: RowIds) -> None:
        """`late` are ascending and all beyond those of `early`."""
        super().__init__(late)
        self.early = early

    @property
    def late(self) -> RowIds:
        return self._rows

    @cached_property
    def rows(self) -> RowIds:
        return np.concatenate((self.early.rows, self.late))

    def __len__(self) -> int:
        return len(self.early) + len(self.late)

    def rows_at(self, positions: NDArray[Any]) -> RowIds:
        beyond = positions >= len(self.early)
        if not beyond.any():
            return self.early.rows_at(positions)
        rows = np.empty(len(positions), np.int64)
        rows[~beyond] = self.early.rows_at(positions[~beyond])
        rows[beyond] = self.late[positions[beyond] - len(self.early)]
        return rows

    def positions(self, rows: RowIds) -> NDArray[np.int64]:
        positions = self.early.positions(rows)
        absent = np.flatnonzero(positions < 0)
        if len(absent):
            late = super().positions(rows[absent])
            positions[absent] = np.where(late < 0, -1, late + len(self.early))
        return positions


def extend_space(space: RowSpace, rows: RowIds) -> RowSpace | None:
    """The set with more row ids, ascending, some of which it may hold. None when that would renumber those it has."""
    fresh = rows[~space.contains(rows)]
    if not len(fresh):
        return space
    early, late = (space.early, space.late) if isinstance(space, GrownRowSpace) else (space, rows[:0])
    held = late if len(late) else early.rows
    if len(held) and fresh[0] < held[-1]:
        return None
    return GrownRowSpace(early, np.concatenate((late, fresh)))
