"""How many rows a row stands for: exact 64-bit counts that know when they do not fit.

Counts are multiplied and added while rows are folded, long before anybody knows whether they will be read: a negation
or a `max` never looks at them. So a count that outgrows 64 bits becomes `UNCOUNTABLE` and stays it, and only whoever
reads it gets the error. Nothing here ever rounds.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.errors import ResourceLimitError

Counts: TypeAlias = NDArray[np.int64]
"""Each at least 0, or `UNCOUNTABLE`."""

UNCOUNTABLE: Final = -1
LARGEST_COUNT: Final = 2**63 - 1

_EXACT_IN_FLOAT: Final = 2.0**53
_HALF_BITS: Final = 32
_HALF: Final = np.int64(2**_HALF_BITS - 1)


def multiplied(counts: Counts, factors: Counts) -> Counts:
    """Count by count. Nothing times anything is nothing."""
    if not len(counts):
        return counts
    if min(int(counts.min()), int(factors.min())) >= 0 and int(counts.max()) * int(factors.max()) <= LARGEST_COUNT:
        return counts * factors
    none = (counts == 0) | (factors == 0)
    known = (counts > 0) & (factors > 0)
    fits = known & (counts <= LARGEST_COUNT // np.where(known, factors, 1))
    product = np.where(fits, counts, 0) * np.where(fits, factors, 0)
    return np.where(none | fits, product, UNCOUNTABLE)


def added_up(places: NDArray[Any], counts: Counts | None, size: int) -> Counts:
    """The sum of the counts at each place below `size`, each being 1 when there are none."""
    if counts is None or not len(counts):
        return np.bincount(places, minlength=size)
    # A float sum of whole numbers is exact as long as it stays below 2^53, and much the fastest.
    rough = np.bincount(places, counts, minlength=size)
    if int(counts.min()) >= 0 and float(rough.max()) < _EXACT_IN_FLOAT:
        return rough.astype(np.int64)
    low, high, unknown = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.bool_)
    np.add.at(low, places, counts & _HALF)
    np.add.at(high, places, counts >> _HALF_BITS)
    unknown[places[counts < 0]] = True
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
        raise ResourceLimitError(
            "counted rows",
            LARGEST_COUNT,
            LARGEST_COUNT + 1,
            "the match has more rows than a 64-bit count can tell; narrow it with pins, filters or fewer hops",
        )
    return counts
