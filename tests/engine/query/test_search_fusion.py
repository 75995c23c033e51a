"""Reciprocal rank fusion: scores by rank in each arm, ties in order of first appearance, rows of one arm per node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.query.search.ranked_rows import fuse_ranks
from omnigraph.errors import BadRequestError


def arm(nodes: str) -> np.ndarray:
    return np.array([ord(node) for node in nodes], np.int64)


def fused_nodes(first: str, second: str, limit: int, k: int = 60) -> str:
    return "".join((first + second)[row] for row in fuse_ranks(arm(first), arm(second), limit, k).rows)


@pytest.mark.parametrize(
    ("first", "second", "limit", "expected"),
    [
        ("ABC", "CAD", 10, "ACBD"),
        ("mnr", "drc", 3, "rmd"),
        ("AB", "", 5, "AB"),
        ("", "AB", 5, "AB"),
        ("", "", 5, ""),
        ("AB", "CD", 10, "ACBD"),
        ("AB", "BA", 10, "AB"),
        ("AABB", "BBB", 10, "BBAA"),
        ("AABB", "BBB", 1, "BB"),
        ("A", "ACC", 10, "ACC"),
        ("AB", "AB", 0, ""),
    ],
)
def test_worked_examples(first: str, second: str, limit: int, expected: str) -> None:
    assert fused_nodes(first, second, limit) == expected


def test_scores_add_up_over_the_arms() -> None:
    fused = fuse_ranks(arm("mnr"), arm("drc"), 3)
    assert fused.scores.tolist() == pytest.approx([1 / 63 + 1 / 62, 1 / 61, 1 / 61])


def test_a_node_of_both_arms_gives_its_rows_of_the_first() -> None:
    assert fuse_ranks(arm("AB"), arm("BBA"), 10).rows.tolist() == [0, 1]


@pytest.mark.parametrize("k", [0, -3])
def test_the_constant_must_be_positive(k: int) -> None:
    with pytest.raises(BadRequestError, match="greater than zero"):
        fuse_ranks(arm("A"), arm("B"), 1, k)


nodes = st.text("ABCDEF", max_size=10)


@given(first=nodes, second=nodes, limit=st.integers(0, 7), k=st.integers(1, 100))
def test_fusion_follows_its_definition(first: str, second: str, limit: int, k: int) -> None:
    scores: dict[str, float] = {}
    for each in (first, second):
        for rank, node in enumerate(dict.fromkeys(each)):
            scores[node] = scores.get(node, 0.0) + 1 / (k + rank + 1)
    seen = list(dict.fromkeys(first + second))
    kept = sorted(seen, key=lambda node: (-scores[node], seen.index(node)))[:limit]
    expected = "".join(node * (first if node in first else second).count(node) for node in kept)
    assert fused_nodes(first, second, limit, k) == expected
