"""Rows of a running query: one column of integers per variable, and how many rows each row stands for.

The integer of a node or an edge is its stable row id, that of any other value its position in `BoundValues`; -1 is
null. A variable of several types has a second column, `member_column`, with the position of the type among its members.
Every operator takes `Bindings` and returns new ones; property values are fetched only when something needs them.
Counts are exact 64-bit numbers. One that outgrows 64 bits becomes `UNCOUNTABLE`, which is an error only for the
operator that reads it. Nothing here rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.errors import ResourceLimitError
from omnigraph.storage.tables.rows import RowIds

Counts: TypeAlias = NDArray[np.int64]
"""Each at least 0, or `UNCOUNTABLE`."""

UNCOUNTABLE: Final = -1
LARGEST_COUNT: Final = 2**63 - 1

_EXACT_IN_FLOAT: Final = 2.0**53
_HALF_BITS: Final = 32
_HALF: Final = np.int64(2**_HALF_BITS - 1)


def multiply(counts: Counts, factors: Counts) -> Counts:
    """Count by count. Nothing times anything is nothing."""
    if not len(counts):
        return counts
    if min(int(counts.min()), int(factors.min())) >= 0 and int(counts.max()) * int(factors.max()) <= LARGEST_COUNT:
        return counts * factors
    none = (counts == 0) | (factors == 0)
    positive = (counts > 0) & (factors > 0)
    fits = positive & (counts <= LARGEST_COUNT // np.where(positive, factors, 1))
    product = np.where(fits, counts, 0) * np.where(fits, factors, 0)
    return np.where(none | fits, product, UNCOUNTABLE)


def added_up(positions: NDArray[Any], counts: Counts | None, size: int) -> Counts:
    """The sum of the counts at each position below `size`; without counts, each is 1."""
    if counts is None or not len(counts):
        return np.bincount(positions, minlength=size)
    # A float sum of whole numbers is exact as long as it stays below 2^53, and much the fastest.
    rough = np.bincount(positions, counts, minlength=size)
    if int(counts.min()) >= 0 and float(rough.max()) < _EXACT_IN_FLOAT:
        return rough.astype(np.int64)
    low, high, unknown = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.bool_)
    np.add.at(low, positions, counts & _HALF)
    np.add.at(high, positions, counts >> _HALF_BITS)
    unknown[positions[counts < 0]] = True
    high += low >> _HALF_BITS
    fits = ~unknown & (high <= LARGEST_COUNT >> _HALF_BITS)
    return np.where(fits, (np.where(fits, high, 0) << _HALF_BITS) | (low & _HALF), UNCOUNTABLE)


def total(counts: Counts) -> int:
    """The sum of all counts."""
    if not len(counts):
        return 0
    if int(counts.min()) < 0:
        return UNCOUNTABLE
    summed = (int((counts >> _HALF_BITS).sum()) << _HALF_BITS) + int((counts & _HALF).sum())
    return summed if summed <= LARGEST_COUNT else UNCOUNTABLE


def readable(counts: Counts) -> Counts:
    """The counts, checked before they are read."""
    if len(counts) and int(counts.min()) < 0:
        remedy = "the match has more rows than a 64-bit count can tell; narrow it with pins, filters or fewer hops"
        raise ResourceLimitError("counted rows", LARGEST_COUNT, LARGEST_COUNT + 1, remedy)
    return counts


Indices: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

# Numbers that are copied between two questions whether to go on.
_COPIED_AT_ONCE = 1 << 20


_IDENTITY = np.arange(1 << 16)
_IDENTITY.flags.writeable = False
_LARGEST_IDENTITY: Final = 1 << 20


def identity(length: int) -> Indices:
    """0, 1, 2…: read only, and shared up to some length."""
    global _IDENTITY
    if length > _LARGEST_IDENTITY:
        return np.arange(length)
    if length > len(_IDENTITY):
        longer = np.arange(length)
        longer.flags.writeable = False
        _IDENTITY = longer
    return _IDENTITY[:length]


def is_identity(indices: Indices) -> bool:
    """Whether indices are known to be 0, 1, 2…, without a look at them."""
    own = indices is _IDENTITY or indices.base is _IDENTITY
    return own and indices.ctypes.data == _IDENTITY.ctypes.data and indices.flags.c_contiguous


_MEMBER: Final = "#member"


def member_column(variable: str) -> str:
    """The column that tells which of its types each row of a variable has."""
    return variable + _MEMBER


def with_members(variables: Iterable[str]) -> set[str]:
    """The columns that may hold these variables."""
    return {column for variable in variables for column in (variable, member_column(variable))}


def output_variable(index: int) -> str:
    """The variable that a column of an aggregate is bound to, for what reads it as `OutputValue`."""
    return f"#output:{index}"


@dataclass(frozen=True, slots=True)
class Bindings:
    """`length` rows. `weights` says how many rows each stands for, None that it is one.

    Weights appear only where a consumer counts rows without looking at them (an aggregate, a negation), in place of
    expanding to a variable that is never read.
    """

    rows: Mapping[str, RowIds]
    length: int
    weights: Counts | None = None

    def take(self, indices: Indices) -> Bindings:
        return self._map(lambda column: column[indices], len(indices))

    def _map(self, change: Callable[[NDArray[np.int64]], NDArray[np.int64]], length: int) -> Bindings:
        """The same change of every column and of the weights."""
        columns = {variable: change(column) for variable, column in self.rows.items()}
        return Bindings(columns, length, None if self.weights is None else change(self.weights))

    def each(self, counts: NDArray[np.int64], check: Callable[[], None]) -> Bindings:
        """Every row as often as it counts, one after the other. Asks often whether to go on."""
        length = int(counts.sum())
        return self._map(lambda column: _repeat(column, counts, length, check), length)

    def times(self, count: int, check: Callable[[], None]) -> Bindings:
        """All rows, so often."""
        return self._map(lambda column: _tile(column, count, check), self.length * count)

    def where(self, mask: Mask) -> Bindings:
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def slice(self, start: int, stop: int) -> Bindings:
        stop = min(stop, self.length)
        if start <= 0 and stop == self.length:
            return self
        return self._map(lambda column: column[start:stop], max(0, stop - start))

    def only(self, variables: Iterable[str]) -> Bindings:
        """The same rows, fewer columns: those of the variables, and what tells the types of these."""
        wanted = set(variables)
        columns = {name: column for name, column in self.rows.items() if name.removesuffix(_MEMBER) in wanted}
        return Bindings(columns, self.length, self.weights)

    def binding(self, columns: Mapping[str, RowIds]) -> Bindings:
        """The same rows with more columns."""
        return Bindings({**self.rows, **columns}, self.length, self.weights)

    def with_weights(self, factors: Counts) -> Bindings:
        """Each row standing for `factors` times as many; rows that stand for none are gone."""
        weights = factors if self.weights is None else multiply(self.weights, factors)
        return Bindings(self.rows, self.length, weights).where(factors != 0)

    @property
    def total(self) -> int:
        """How many rows these stand for, perhaps `UNCOUNTABLE`."""
        return self.length if self.weights is None else total(self.weights)

    @property
    def nbytes(self) -> int:
        weights = 0 if self.weights is None else self.weights.nbytes
        return sum(column.nbytes for column in self.rows.values()) + weights


def concatenate(parts: Sequence[Bindings]) -> Bindings:
    """The rows of all parts, which bind the same variables, in order. Weighted rows are never concatenated."""
    # An operator without rows may bind less than it does with some.
    parts = [part for part in parts if part.length] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    columns = {variable: np.concatenate([part.rows[variable] for part in parts]) for variable in parts[0].rows}
    return Bindings(columns, sum(part.length for part in parts))


def _repeat(
    column: NDArray[np.int64], counts: NDArray[np.int64], length: int, check: Callable[[], None]
) -> NDArray[np.int64]:
    check()
    if length <= _COPIED_AT_ONCE:
        return np.repeat(column, counts)
    repeated = np.empty(length, column.dtype)
    ends = np.cumsum(counts)
    start = at = 0
    while start < len(column):
        check()
        stop = max(start + 1, int(np.searchsorted(ends, at + _COPIED_AT_ONCE, side="right")))
        repeated[at : ends[stop - 1]] = np.repeat(column[start:stop], counts[start:stop])
        start, at = stop, int(ends[stop - 1])
    return repeated


def _tile(column: NDArray[np.int64], count: int, check: Callable[[], None]) -> NDArray[np.int64]:
    tiled = np.empty((count, len(column)), column.dtype)
    step = max(1, _COPIED_AT_ONCE // max(1, len(column)))
    for start in range(0, count, step):
        check()
        tiled[start : start + step] = column
    return tiled.reshape(-1)
