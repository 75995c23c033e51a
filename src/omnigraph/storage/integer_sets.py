"""Sets of integers as ascending arrays: distinct values, unions, membership, all by sorting.

The set functions of NumPy hash integers since 2.3, which is up to sixty times slower than sorting them, and much worse
on what is nearly sorted already, as row ids are. All sets of numbers are made here; nothing else calls
`np.unique`, `np.union1d`, `np.intersect1d` or `np.isin`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.integer[Any])

# A table over the whole range of values may be this many times larger than what it answers for.
_WIDEST_TABLE: Final = 6


class Factorization(NamedTuple):
    """Distinct values, ascending; the first position of each in the input; the position of every input among them."""

    values: NDArray[Any]
    first: NDArray[np.int64]
    of_input: NDArray[np.int64]


def is_ascending(values: NDArray[Any]) -> bool:
    """Strictly: sorted and without a repetition."""
    return bool((values[1:] > values[:-1]).all())


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """Ascending, each once."""
    if is_ascending(values):
        return values
    ordered = np.sort(values)
    return ordered[_begins(ordered)]


def count_values(values: NDArray[Number]) -> tuple[NDArray[Number], NDArray[np.int64]]:
    """The distinct values, ascending, and how often each occurs."""
    ordered = np.sort(values)
    starts = np.flatnonzero(_begins(ordered))
    return ordered[starts], np.diff(np.append(starts, len(ordered)))


def factorize(values: NDArray[Any]) -> Factorization:
    """The distinct values and how the input is spelled in them."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = _begins(ordered)
    of_input = np.empty(len(values), np.int64)
    of_input[order] = np.cumsum(begins) - 1
    return Factorization(ordered[begins], order[begins], of_input)


def union(left: NDArray[Number], right: NDArray[Number]) -> NDArray[Number]:
    """The values of two ascending arrays, each once."""
    if not len(left) or not len(right):
        return left if len(left) else right
    both = np.concatenate((left, right))
    both.sort(kind="stable")  # finds the two runs and merges them
    return both[_begins(both)]


def find_positions(ordered: NDArray[Number], values: NDArray[Number]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The position of each value in an ascending array, and whether it is there at all."""
    if not len(ordered):
        return np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
    positions = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return positions, ordered[positions] == values


def is_member(values: NDArray[Number], allowed: NDArray[Number]) -> NDArray[np.bool_]:
    """Whether each value is one of the allowed ones, which come in any order."""
    if not len(allowed) or not len(values):
        return np.zeros(len(values), np.bool_)
    if int(allowed.max()) - int(allowed.min()) <= _WIDEST_TABLE * (len(values) + len(allowed)):
        return np.isin(values, allowed, kind="table")
    return find_positions(np.sort(allowed), values)[1]


def _begins(ordered: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of these sorted values differ from the one before."""
    begins = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    return begins
