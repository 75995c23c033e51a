"""Counts of rows are whole numbers: exact to the last one of 64 bits, refused beyond, whatever way they came about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.query.traversal.mode import MODE_VARIABLE
from omnigraph.engine.query.values.counting import LARGEST_COUNT, UNCOUNTABLE, added_up, multiplied, readable, total
from omnigraph.errors import ResourceLimitError
from omnigraph.graph import Graph
from tests.engine.query_graphs import edge, node

SCHEMA = """
node Stop { slug: String @key  line: String?  n: I32 }
edge To: Stop -> Stop
"""
FAN = 8


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """`FAN` stops that all lead to all of them, and one apart that leads to itself."""
    names = [f"s{i}" for i in range(FAN)]
    lines = [node("Stop", name, line="even" if i % 2 == 0 else "odd", n=i) for i, name in enumerate(names)]
    lines += [edge("To", a, b) for a in names for b in names]
    lines += [node("Stop", "apart", line="even", n=99), edge("To", "apart", "apart")]
    with Graph.init(tmp_path_factory.mktemp("counts") / "g", SCHEMA) as made:
        made.load("\n".join(lines), mode="append")
        yield made


@pytest.fixture(params=["csr", "indexed"])
def graph(stored: Graph, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv(MODE_VARIABLE, request.param)
    return stored


def chain(hops: int, result: str) -> str:
    steps = "  ".join(f"$x{i} to $x{i + 1}" for i in range(hops))
    return f"query q() {{ match {{ $x0: Stop  {steps} }} return {{ {result} }} }}"


def one(graph: Graph, text: str) -> Any:
    (row,) = graph.query(text).rows()
    return row["n"]


@pytest.mark.parametrize("hops", [1, 16, 17, 18, 19])
def test_a_count_of_paths_is_exact(graph: Graph, hops: int) -> None:
    """One path stays apart, so every count is odd: beyond 2^53 a float has no odd numbers."""
    assert one(graph, chain(hops, f"count($x{hops}) as n")) == FAN ** (hops + 1) + 1


def test_a_count_per_group_is_exact(graph: Graph) -> None:
    text = chain(18, "$x18.line as line, count($x0) as n")
    found = {row["line"]: row["n"] for row in graph.query(text).rows()}
    assert found == {"even": FAN**19 // 2 + 1, "odd": FAN**19 // 2}


@pytest.mark.parametrize(
    ("hops", "result"),
    [
        (20, "count($x20) as n"),
        (40, "count($x40) as n"),
        (22, "$x22.line as line, count($x0) as n"),
        (21, "sum($x21.n) as n"),
        (21, "avg($x21.n) as n"),
    ],
)
def test_more_rows_than_a_count_can_tell_are_refused(graph: Graph, hops: int, result: str) -> None:
    with pytest.raises(ResourceLimitError, match="64-bit") as raised:
        graph.query(chain(hops, result))
    assert (raised.value.resource, raised.value.limit) == ("counted rows", 2**63 - 1)


def test_the_size_of_a_product_is_refused_alike(graph: Graph) -> None:
    steps = "  ".join(f"$x{i} to $x{i + 1}  $y{i} to $y{i + 1}" for i in range(11))
    text = f"query q() {{ match {{ $x0: Stop  $y0: Stop  {steps} }} return {{ count($x0) as n }} }}"
    with pytest.raises(ResourceLimitError, match="64-bit"):
        graph.query(text)


def test_who_does_not_read_a_count_is_not_refused(graph: Graph) -> None:
    assert one(graph, chain(40, "max($x40.n) as n")) == 99


counts = st.integers(0, 9) | st.integers(0, LARGEST_COUNT) | st.just(UNCOUNTABLE)


@given(st.lists(st.tuples(counts, counts, st.integers(0, 2)), max_size=8))
def test_arithmetic_is_that_of_whole_numbers(rows: list[tuple[int, int, int]]) -> None:
    left, right, places = (np.array([row[i] for row in rows], np.int64) for i in range(3))

    def fitting(count: int, *parts: int) -> int:
        return count if UNCOUNTABLE not in parts and count <= LARGEST_COUNT else UNCOUNTABLE

    assert multiplied(left, right).tolist() == [fitting(a * b, a, b) if a and b else 0 for a, b, _ in rows]
    groups = [[a for a, _, place in rows if place == wanted] for wanted in range(3)]
    assert added_up(places, left, 3).tolist() == [fitting(sum(group), *group) for group in groups]
    assert total(left) == fitting(sum(left.tolist()), *left.tolist())
    if UNCOUNTABLE in left:
        with pytest.raises(ResourceLimitError):
            readable(left)
    else:
        assert readable(left) is left
