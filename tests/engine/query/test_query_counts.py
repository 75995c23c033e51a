"""Counts of rows are whole numbers: exact to the last one of 64 bits, refused beyond, whatever way they came about."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.query.bindings import LARGEST_COUNT, UNCOUNTABLE, added_up, multiply, readable, total
from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.errors import EvaluationError, ResourceLimitError
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


NUMBERS = "node Row { slug: String @key  part: String  i: I32?  l: I64?  u: U64? }\nedge Of: Row -> Row"
EXTREMES = {
    "i": (-(2**31), -1, 0, 7, 2**31 - 1, None),
    "l": (-(2**63), -(2**53) - 1, -1, 0, 2**53 + 1, 2**62, 2**63 - 1, None),
    "u": (0, 1, 2**53 + 1, 2**63, 2**64 - 1, None),
}


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Graph, list[dict[str, Any]]]]:
    """Rows of three parts with integers of every width, each row leading to three others."""
    chosen = random.Random(11)
    rows = [
        {"slug": f"r{i}", "part": "abc"[i % 3], **{name: chosen.choice(values) for name, values in EXTREMES.items()}}
        for i in range(60)
    ]
    lines = [json.dumps({"type": "Row", "data": row}) for row in rows]
    lines += [edge("Of", f"r{i}", f"r{(i * 7 + k) % 60}") for i in range(60) for k in range(3)]
    with Graph.init(tmp_path_factory.mktemp("numbers") / "g", NUMBERS) as made:
        made.load("\n".join(lines), mode="append")
        yield made, rows


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("weighted", [False, True])
def test_integers_are_added_exactly(numbers: tuple[Graph, list[dict[str, Any]]], name: str, weighted: bool) -> None:
    """`weighted`: rows stand for the paths that end there, so that values are multiplied before they are added."""
    graph, rows = numbers
    walk, times = ("$r of $x  $x of $y", 9) if weighted else ("", 1)
    for parts in (["a"], ["b"], ["c"], ["a", "b", "c"]):
        values = [row[name] for row in rows if row["part"] in parts and row[name] is not None] * times
        match = f"$r: Row  {json.dumps(parts)} contains $r.part  {walk}"
        text = f"query q() {{ match {{ {match} }} return {{ AGG($r.{name}) as n }} }}"
        assert graph.query(text.replace("AGG", "avg")).rows() == [{"n": sum(values) / len(values)}]
        ask = partial(graph.query, text.replace("AGG", "sum"))
        if -(2**63) <= sum(values) < 2**63:
            assert ask().rows() == [{"n": sum(values)}]
            assert str(ask().to_arrow().schema.field("n").type) == "int64"
        else:
            with pytest.raises(EvaluationError, match=f"the sum {sum(values)} does not fit into 64 bits") as raised:
                ask()
            assert (raised.value.rule, raised.value.expression) == ("arithmetic_overflow", f"sum($r.{name})")


def test_sums_of_groups_are_exact(numbers: tuple[Graph, list[dict[str, Any]]]) -> None:
    graph, rows = numbers
    match = "match { $r: Row  $r.l < 4611686018427387904 }"
    text = f"query q() {{ {match} return {{ $r.slug as s, sum($r.l) as n, avg($r.l) as a }} }}"
    expected = [(r["slug"], r["l"], float(r["l"])) for r in rows if r["l"] is not None and r["l"] < 2**62]
    assert sorted(tuple(row.values()) for row in graph.query(text)) == sorted(expected)
    text = "query q() { match { $r: Row } return { $r.part as s, sum($r.i) as n, avg($r.u) as a } }"
    for row in graph.query(text):
        own = [r for r in rows if r["part"] == row["s"]]
        wide = [r["u"] for r in own if r["u"] is not None]
        assert row["n"] == sum(r["i"] or 0 for r in own)
        assert row["a"] == sum(wide) / len(wide)


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

    assert multiply(left, right).tolist() == [fitting(a * b, a, b) if a and b else 0 for a, b, _ in rows]
    groups = [[a for a, _, place in rows if place == wanted] for wanted in range(3)]
    assert added_up(places, left, 3).tolist() == [fitting(sum(group), *group) for group in groups]
    assert total(left) == fitting(sum(left.tolist()), *left.tolist())
    if UNCOUNTABLE in left:
        with pytest.raises(ResourceLimitError):
            readable(left)
    else:
        assert readable(left) is left


def test_the_average_of_large_floats_is_within_them(tmp_path: Path) -> None:
    """Their sum is not: no float holds it."""
    rows = [{"slug": f"{n}", "team": "abb"[n], "f": f} for n, f in enumerate([1.7e308, 1.7e308, -1.7e308])]
    rows += [{"slug": "x", "team": "c", "f": 1.7e308}, {"slug": "y", "team": "c", "f": 1.7e308}]
    with Graph.init(tmp_path / "g", "node N { slug: String @key  team: String  f: F64 }") as graph:
        graph.load(rows, type="N", mode="append")
        by_team = "query q() { match { $n: N } return { $n.team as t, avg($n.f) as m } order { t } }"
        assert [row["m"] for row in graph.query(by_team).rows()] == [1.7e308, 0.0, 1.7e308]
        (whole,) = graph.query("query q() { match { $n: N } return { avg($n.f) as m } }").rows()
        assert whole["m"] == pytest.approx(1.7e308 / 5 * 3)
