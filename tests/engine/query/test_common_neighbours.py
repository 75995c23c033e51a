"""Closed patterns: whatever finds the common neighbours of two nodes, they are those of plain sets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.read import ReadOptions
from omnigraph.engine.query.traversal import intersection, search
from omnigraph.engine.query.traversal.adjacency import Neighbours, Pairs, change_layer, of_pairs
from omnigraph.engine.query.traversal.intersection import Side, common_neighbours
from omnigraph.errors import ResourceLimitError
from omnigraph.graph import Graph
from omnigraph.storage.tables.memory.row_space import RowSpace
from tests.engine.query.test_hop_search import Context
from tests.engine.query_graphs import edge, node

NODES = 6
EDGES = st.sets(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=24)
PAIRS = st.lists(st.tuples(st.integers(-1, NODES - 1), st.integers(-1, NODES - 1)), max_size=40)


def adjacency_of(edges: set[tuple[int, int]], space: RowSpace, *, layered: bool) -> Neighbours:
    """The adjacency of some edges between the nodes 0, 1, 2…; a layered one has half of them in its layer."""
    ordered = np.array(sorted(edges), np.int64).reshape(-1, 2)
    first = ordered[: len(ordered) // 2] if layered else ordered
    base = of_pairs(space, space, first[:, 0], first[:, 1])
    if not layered:
        return base
    rest = ordered[len(first) :]
    return change_layer(base, space, space, Pairs(rest[:0, 0], rest[:0, 0]), Pairs(rest[:, 0], rest[:, 1]))


@settings(max_examples=80, deadline=None)
@given(left=EDGES, right=EDGES, pairs=PAIRS, layered=st.booleans(), gap=st.integers(1, 3), seed=st.integers(0, 7))
def test_they_are_the_intersection_of_sets(
    left: set[tuple[int, int]],
    right: set[tuple[int, int]],
    pairs: list[tuple[int, int]],
    layered: bool,
    gap: int,
    seed: int,
) -> None:
    """In parts of any size, by marks or by halving, between adjacencies that number their nodes alike or not."""
    rows = RowSpace(np.arange(NODES) * gap)
    others = rows if seed & 1 else RowSpace(np.arange(NODES) * gap)
    nodes = np.array(pairs, np.int64).reshape(-1, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intersection, "_PAIRS_PER_CHECK", 7 if seed & 2 else 1 << 18)
        patch.setattr(search, "HOPS_AT_ONCE", 5 if seed & 2 else 1 << 18)
        patch.setattr(intersection, "_LONGER", 1 if seed & 4 else 8)
        patch.setattr(intersection, "_MARKS", 64)
        sides = (
            Side(adjacency_of(left, rows, layered=layered), nodes[:, 0]),
            Side(adjacency_of(right, others, layered=layered), nodes[:, 1]),
        )
        parts = list(common_neighbours(*sides, Context()))
    met = [
        (part.pairs.start + int(pair), int(end))
        for part in parts
        for pair, end in zip(part.of_pair, part.ends, strict=True)
    ]
    assert met == [
        (number, end * gap)
        for number, (a, b) in enumerate(pairs)
        for end in range(NODES)
        if (a, end) in left and (b, end) in right
    ]
    covered = [number for part in parts for number in range(part.pairs.start, part.pairs.stop)]
    assert covered == list(range(len(pairs)))


# ---- queries --------------------------------------------------------------------------------------------

PEOPLE = "abcdefgh"
Arcs = set[tuple[str, str]]
PATTERNS: dict[str, Callable[[Arcs, str, str, str], bool]] = {
    "$a knows $b  $b knows $c  $c knows $a": lambda e, a, b, c: {(a, b), (b, c), (c, a)} <= e,
    "$a knows $b  $b knows $c  $a knows $c": lambda e, a, b, c: {(a, b), (b, c), (a, c)} <= e,
    "$b knows $a  $b knows $c  $a knows $c": lambda e, a, b, c: {(b, a), (b, c), (a, c)} <= e,
    "$a knows $b  $a knows $c  $b knows $c  $c knows $b": lambda e, a, b, c: {(a, b), (a, c), (b, c), (c, b)} <= e,
    "$a knows $b  $b knows $c  $c <knows> $a": lambda e, a, b, c: {(a, b), (b, c)} <= e and bool({(c, a), (a, c)} & e),
}
FILTERS: dict[str, Callable[[str, str, str], bool]] = {
    "": lambda a, b, c: True,
    "$c.age > 3": lambda a, b, c: PEOPLE.index(c) > 3,
    "$a.age < $c.age  $b.age != 2": lambda a, b, c: PEOPLE.index(a) < PEOPLE.index(c) and b != "c",
}
SCHEMA = "node Person { slug: String @key  age: I32 }\nedge Knows: Person -> Person"


def commits() -> list[tuple[str, Arcs]]:
    """Edges of a small graph, some of them parallel, as they come commit by commit."""
    random = np.random.default_rng(5)
    arcs = [(PEOPLE[a], PEOPLE[b]) for a, b in random.integers(0, len(PEOPLE), (44, 2)).tolist()]
    return [("load", set(arcs[:30])), ("load", set(arcs[30:])), ("delete", {(a, b) for a, b in arcs if a == "b"})]


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Graph, str, Arcs]]]:
    """A graph with the snapshot and the edges after each commit."""
    arcs: Arcs = set()
    with Graph.init(tmp_path_factory.mktemp("closed") / "g", SCHEMA) as graph:
        graph.load("\n".join(node("Person", name, age=age) for age, name in enumerate(PEOPLE)), mode="append")
        states = []
        for kind, some in commits():
            if kind == "load":
                graph.load("\n".join(edge("Knows", *arc) for arc in sorted(some) * 2), mode="append")
                arcs = arcs | some
            else:
                graph.mutate('query q() { delete Knows where from = "b" }')
                arcs = arcs - some
            states.append((graph, graph.resolve_snapshot(), arcs))
        yield states


@pytest.mark.parametrize("mode", ["indexed", "csr"])
@pytest.mark.parametrize("condition", FILTERS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_closed_patterns_match_what_loops_match(
    states: list[tuple[Graph, str, Arcs]], pattern: str, condition: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MODE_VARIABLE, mode)
    match = f"match {{ $a: Person  {pattern}  {condition} }}"
    for graph, snapshot, arcs in states:
        expected = [
            names
            for names in itertools.product(PEOPLE, repeat=3)
            if PATTERNS[pattern](arcs, *names) and FILTERS[condition](*names)
        ]
        rows = graph.query(
            f"query q() {{ {match} return {{ $a.slug as a, $b.slug as b, $c.slug as c }} }}", snapshot=snapshot
        ).rows()
        assert sorted(tuple(row.values()) for row in rows) == expected
        (row,) = graph.query(f"query q() {{ {match} return {{ count(*) as n }} }}", snapshot=snapshot).rows()
        assert row["n"] == len(expected)
        per_end = graph.query(
            f"query q() {{ {match} return {{ $c.slug as c, count(*) as n }} order {{ c }} }}", snapshot=snapshot
        ).rows()
        ends = [c for _, _, c in expected]
        assert {row["c"]: row["n"] for row in per_end} == {c: ends.count(c) for c in sorted(set(ends))}


def test_a_profile_says_that_lists_are_intersected(states: list[tuple[Graph, str, Arcs]]) -> None:
    graph, snapshot, _ = states[0]
    text = "query q() { match { $a: Person  $a knows $b  $b knows $c  $c knows $a } return { count(*) as n } }"
    profile = graph.query(text, snapshot=snapshot, options=ReadOptions(profile=True)).profile
    assert any("common neighbours of $b and $a" in line for line in profile.lines())


def test_the_shorter_list_of_each_pair_is_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that everybody knows and that knows everybody does not cost its neighbours once for each of them."""
    monkeypatch.setenv(MODE_VARIABLE, "csr")
    size = 300
    lines = [node("Person", f"p{i}", age=i) for i in range(size)]
    lines += [edge("Knows", "p0", f"p{i}") for i in range(1, size)]
    lines += [edge("Knows", f"p{i}", "p0") for i in range(1, size)]
    text = "query q() { match { $a: Person  $a knows $b  $b knows $c  $c knows $a } return { count(*) as n } }"
    with Graph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load("\n".join(lines), mode="append")
        options = ReadOptions(traversal_work=4 * len(lines))
        assert graph.query(text, options=options).rows() == [{"n": 0}]
        with pytest.raises(ResourceLimitError):
            graph.query(text, options=ReadOptions(traversal_work=size))
