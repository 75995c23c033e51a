"""Sets of numbers by sorting: the same answers as NumPy's set functions, which nobody calls any more."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from omnigraph.storage.integer_sets import (
    count_values,
    distinct,
    factorize,
    find_positions,
    is_ascending,
    is_member,
    union,
)

SOURCE = Path(__file__).resolve().parents[2] / "src" / "omnigraph"
HASHING = re.compile(r"\b(?:np|numpy)\.(?:unique\w*|union1d|intersect1d|setdiff1d|setxor1d|isin|in1d)\(")

numbers = arrays.arrays(
    st.sampled_from((np.int32, np.int64, np.uint64)), st.integers(0, 30), elements=st.integers(0, 2**31 - 1)
) | arrays.arrays(np.int64, st.integers(0, 30), elements=st.integers(-3, 9))


@given(numbers)
def test_distinct_values_with_their_counts_and_places(values: np.ndarray) -> None:
    expected, first, inverse, counts = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
    assert distinct(values).tolist() == expected.tolist()
    assert [part.tolist() for part in count_values(values)] == [expected.tolist(), counts.tolist()]
    assert [part.tolist() for part in factorize(values)] == [expected.tolist(), first.tolist(), inverse.tolist()]
    assert is_ascending(values) == (values.tolist() == expected.tolist())


@given(numbers, numbers)
def test_unions_and_membership(one: np.ndarray, other: np.ndarray) -> None:
    other = other.astype(one.dtype)
    assert union(distinct(one), distinct(other)).tolist() == np.union1d(one, other).tolist()
    assert is_member(one, other).tolist() == np.isin(one, other).tolist()
    at, found = find_positions(distinct(other), one)
    assert found.tolist() == np.isin(one, other).tolist()
    assert distinct(other)[at[found]].tolist() == one[found].tolist()


def test_nothing_in_the_source_calls_the_set_functions_that_hash() -> None:
    strays = [
        f"{path.relative_to(SOURCE)}: {call}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "integer_sets.py"
        for call in HASHING.findall(path.read_text())
    ]
    assert strays == []
