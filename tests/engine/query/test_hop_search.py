"""Searches on arrays alone: distances, shortest paths and trails are those of the reference, in batches of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.bindings import Indices, Mask
from omnigraph.engine.query.limits import Cancellation, MemoryBudget, TraversalWork
from omnigraph.engine.query.traversal import hop_graph, search, trails
from omnigraph.engine.query.traversal.adjacency import of_edges
from omnigraph.engine.query.traversal.hop_graph import EdgeNumbers, HopGraph, MetHops, NodeNumbers, Step
from omnigraph.engine.query.traversal.paths import (
    Paths,
    ShortestPaths,
    all_shortest_paths,
    join_paths,
    paths_between,
    shortest_paths,
)
from omnigraph.engine.query.traversal.search import HopRange
from omnigraph.engine.query.traversal.trails import find_trails
from omnigraph.errors import QueryCancelledError, ResourceLimitError
from omnigraph.storage.tables.memory.row_space import RowSpace
from tests.engine import walk_reference as reference
from tests.engine.walk_reference import Entity, Hop, Walked

NODES = (("A", 3), ("B", 2))
EDGE_TYPES = {"p": (0, 0), "q": (0, 1), "r": (1, 0), "s": (1, 1)}
RANGES = [(0, 0), (0, 1), (0, 9), (1, 1), (1, 2), (1, 9), (2, 2), (2, 9), (3, 4), (2, 1)]
FIRST_ROW = 7
"""Row ids begin somewhere and have gaps."""


@dataclass
class Context:
    cancellation: Cancellation = field(default_factory=Cancellation)
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    work: TraversalWork = field(default_factory=TraversalWork)
    _marks: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))

    def marks(self, size: int) -> Mask:
        if len(self._marks) < size:
            self._marks = np.zeros(size, np.bool_)
        assert not self._marks.any(), "marks of another search were left"
        return self._marks[:size]


@dataclass
class Typed:
    """A graph as hops for the reference, and as adjacencies. A hop over an edge that begins with `!` does not exist."""

    edges: list[tuple[str, int, int, bool]]

    @property
    def hops(self) -> list[Hop]:
        found = []
        for number, (name, source, target, either) in enumerate(self.edges):
            edge = (name, f"{number:02d}")
            ends = self.node(EDGE_TYPES[name][0], source), self.node(EDGE_TYPES[name][1], target)
            found.append(Hop(edge, *ends))
            if either and ends[0] != ends[1]:
                found.append(Hop(edge, *reversed(ends)))
        return found

    @staticmethod
    def node(member: int, number: int) -> Entity:
        return NODES[member][0], str(number)

    def graph(self, context: Context, *, back: bool = False, with_edges: bool = True, **tests: Any) -> HopGraph:
        spaces = [RowSpace(FIRST_ROW + 2 * np.arange(count)) for _, count in NODES]
        steps, rows = [], []
        for member, name in enumerate(EDGE_TYPES):
            own = [(number, edge) for number, edge in enumerate(self.edges) if edge[0] == name]
            rows.append(np.array([100 + number for number, _ in own], np.int64))
            hops = [(s, t, rank, False) for rank, (_, (_, s, t, _)) in enumerate(own)]
            hops += [
                (t, s, rank, True) for rank, (_, (_, s, t, e)) in enumerate(own) if e and not self._loops(name, s, t)
            ]
            for turned in (False, True):
                some = np.array([hop[:3] for hop in hops if hop[3] is turned], np.int64).reshape(-1, 3)
                start, end = EDGE_TYPES[name][::-1] if turned else EDGE_TYPES[name]
                if back:
                    some, start, end = some[:, [1, 0, 2]], end, start
                lists = of_edges(spaces[start], spaces[end], some[:, 0], some[:, 1], some[:, 2], rows[-1])
                steps.append(Step(start, end, member, lists))
        edges = EdgeNumbers(range(len(EDGE_TYPES)), rows)
        return HopGraph(NodeNumbers(spaces), steps, edges if with_edges else None, context, **tests)

    @staticmethod
    def _loops(name: str, source: int, target: int) -> bool:
        return source == target and EDGE_TYPES[name][0] == EDGE_TYPES[name][1]


ALL_NODES = [(name, str(number)) for name, count in NODES for number in range(count)]
ANYWHERE = lambda owner, node: np.ones(len(node), np.bool_)  # noqa: E731


def edges_drawn(most: int) -> st.SearchStrategy[list[tuple[str, int, int, bool]]]:
    def of_type(name: str) -> st.SearchStrategy[tuple[str, int, int, bool]]:
        source, target = (st.integers(0, NODES[member][1] - 1) for member in EDGE_TYPES[name])
        return st.tuples(st.just(name), source, target, st.booleans())

    return st.lists(st.sampled_from(sorted(EDGE_TYPES)).flatmap(of_type), max_size=most)


@pytest.fixture(params=[False, True], autouse=True)
def _batch_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(search, "HOPS_AT_ONCE", 2)
        monkeypatch.setattr(hop_graph, "_NODES_AT_ONCE", 1)
        monkeypatch.setattr(trails, "TRAILS_AT_ONCE", 3)
        monkeypatch.setattr(trails, "_NUMBERS_COMPARED", 1)


def entity(number: int) -> Entity:
    return ALL_NODES[number]


def written(
    paths: Paths, graph: HopGraph, context: Context
) -> Iterator[tuple[int, tuple[Entity, ...], tuple[Entity, ...]]]:
    """Each path as its owner, its nodes and its edges."""
    sequences = paths.write_out(context)
    node = edge = 0
    for owner, length in zip(paths.owners.tolist(), sequences.lengths.tolist(), strict=True):
        nodes = tuple(entity(int(n)) for n in sequences.nodes[node : node + length + 1])
        yield owner, nodes, edges_at(graph, sequences.edges[edge : edge + length])
        node, edge = node + length + 1, edge + length


def edges_at(graph: HopGraph, numbers: Indices) -> tuple[Entity, ...]:
    assert graph.edges is not None
    names = list(EDGE_TYPES)
    members, rows = graph.edges.members_at(numbers), graph.edges.rows_at(numbers)
    return tuple((names[m], f"{r - 100:02d}") for m, r in zip(members.tolist(), rows.tolist(), strict=True))


def as_written(owner: int, walked: Walked) -> tuple[int, tuple[Entity, ...], tuple[Entity, ...]]:
    return owner, reference.nodes_of(entity(owner), walked), reference.edges_of(walked)


STARTS = np.arange(len(ALL_NODES))


@settings(max_examples=30, deadline=None)
@given(edges_drawn(9))
def test_distances(edges: list[tuple[str, int, int, bool]]) -> None:
    typed = Typed(edges)
    for with_edges in (False, True):
        for least, most in RANGES:
            context = Context()
            graph = typed.graph(context, with_edges=with_edges)
            owners, nodes = search.search(graph, STARTS, HopRange(least, most), context)
            found = sorted((entity(o), entity(n)) for o, n in zip(owners.tolist(), nodes.tolist(), strict=True))
            assert found == sorted((s, e) for s in ALL_NODES for e in reference.within(s, typed.hops, least, most))
            graph.release()
            assert context.budget.held == 0


@settings(max_examples=30, deadline=None)
@given(edges_drawn(9))
def test_shortest_paths(edges: list[tuple[str, int, int, bool]]) -> None:
    typed = Typed(edges)
    for least, most in RANGES:
        context = Context()
        graph = typed.graph(context)
        expected = {
            (i, e): those
            for i in STARTS.tolist()
            for e, those in reference.shortest(entity(i), typed.hops, least, most).items()
        }
        one = shortest_paths(graph, STARTS, HopRange(least, most), ANYWHERE, context)
        assert one.owners.tolist() == sorted(one.owners.tolist())
        assert sorted(written(one, graph, context)) == sorted(
            as_written(o, those[0]) for (o, _), those in expected.items()
        )
        every = all_shortest_paths(graph, STARTS, HopRange(least, most), ANYWHERE, context)
        all_of_them = sorted(as_written(o, walked) for (o, _), those in expected.items() for walked in those)
        assert sorted(written(every.paths(context, first_only=False), graph, context)) == all_of_them
        assert counted([every]) == {(o, e): len(those) for (o, e), those in expected.items()}


def counted(found: Sequence[ShortestPaths]) -> dict[tuple[int, Entity], int]:
    counts: dict[tuple[int, Entity], int] = {}
    for part in found:
        for owner, node, count in zip(*(column.tolist() for column in part.count()), strict=True):
            assert (owner, entity(node)) not in counts
            counts[owner, entity(node)] = count
    return counts


@settings(max_examples=30, deadline=None)
@given(edges_drawn(9))
def test_paths_between_two_nodes_from_both_sides(edges: list[tuple[str, int, int, bool]]) -> None:
    typed = Typed(edges)
    starts, ends = np.repeat(STARTS, len(STARTS)), np.tile(STARTS, len(STARTS))
    for least, most in RANGES:
        context = Context()
        graph, back = typed.graph(context), typed.graph(context, back=True)
        reached = [reference.shortest(node, typed.hops, least, most) for node in ALL_NODES]
        expected = {
            pair: reached[s][entity(e)]
            for pair, (s, e) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
            if entity(e) in reached[s]
        }
        parts = paths_between(graph, back, starts, ends, HopRange(least, most), context)
        found = [p for part in parts for p in written(part.paths(context, first_only=False), graph, context)]
        all_of_them = [
            (pair, *as_written(starts[pair], walked)[1:]) for pair, those in expected.items() for walked in those
        ]
        assert sorted(found) == sorted(all_of_them)
        first = join_paths([part.paths(context, first_only=True) for part in parts])
        smallest = [(pair, *as_written(starts[pair], those[0])[1:]) for pair, those in expected.items()]
        assert sorted(written(first, graph, context)) == sorted(smallest)
        assert {pair: n for (pair, _), n in counted(parts).items()} == {pair: len(t) for pair, t in expected.items()}


@settings(max_examples=30, deadline=None)
@given(edges_drawn(6))
def test_trails(edges: list[tuple[str, int, int, bool]]) -> None:
    typed = Typed(edges)
    for least, most in RANGES:
        context = Context()
        graph = typed.graph(context)
        found = []
        for part in find_trails(graph, STARTS, HopRange(least, most), ANYWHERE, context):
            for owner, nodes, numbers in zip(part.owners.tolist(), part.nodes, part.edges, strict=True):
                found.append((owner, tuple(entity(int(n)) for n in nodes), edges_at(graph, numbers)))
        expected = [
            as_written(s, w) for s in STARTS.tolist() for w in reference.trails(entity(s), typed.hops, least, most)
        ]
        assert sorted(found) == sorted(expected)
        graph.release()
        assert context.budget.held == 0


@settings(max_examples=30, deadline=None)
@given(edges_drawn(9), st.sets(st.integers(0, 8)), st.sets(st.tuples(st.integers(0, 4), st.integers(0, 8))))
def test_hops_that_do_not_exist_or_are_not_allowed_from_some_start(
    edges: list[tuple[str, int, int, bool]], missing: set[int], forbidden: set[tuple[int, int]]
) -> None:
    typed = Typed(edges)
    context = Context()

    def rows_of(graph: HopGraph, hops: MetHops) -> list[int]:
        assert graph.edges is not None
        assert hops.edges is not None
        return [int(row) - 100 for row in graph.edges.rows_at(hops.edges)]

    def exists(hops: MetHops) -> Mask:
        return np.array([row not in missing for row in rows_of(graph, hops)], np.bool_)

    def allows(hops: MetHops) -> Mask:
        assert hops.owners is not None
        pairs = zip(hops.owners.tolist(), rows_of(graph, hops), strict=True)
        return np.array([pair not in forbidden for pair in pairs], np.bool_)

    graph = typed.graph(context, exists=exists, allows=allows)
    back = typed.graph(context, back=True, exists=exists, allows=allows)
    left = {
        owner: [
            hop for hop in typed.hops if int(hop.edge[1]) not in missing and (owner, int(hop.edge[1])) not in forbidden
        ]
        for owner in STARTS.tolist()
    }
    hops = HopRange(1, 9)
    expected = {o: reference.shortest(entity(o), left[o], 1, 9) for o in left}
    one = shortest_paths(graph, STARTS, hops, ANYWHERE, context)
    smallest = [as_written(o, those[0]) for o, found in expected.items() for those in found.values()]
    assert sorted(written(one, graph, context)) == sorted(smallest)
    ends = np.where(STARTS == 1, STARTS, (STARTS + 1) % len(STARTS))
    parts = paths_between(graph, back, STARTS, ends, hops, context)
    found = [p for part in parts for p in written(part.paths(context, first_only=False), graph, context)]
    between = [as_written(o, w) for o in left for w in expected[o].get(entity(int(ends[o])), [])]
    assert sorted(found) == sorted(between)


def test_work_is_what_is_looked_at_and_written() -> None:
    """A node's hops are looked at once for each start that gets there."""
    typed = Typed([("p", 0, 1, False), ("p", 0, 1, False), ("p", 1, 2, False), ("q", 0, 0, False)])
    context = Context()
    graph = typed.graph(context)
    search.search(graph, STARTS[:1], HopRange(1, 9), context)
    assert context.work.spent == 4
    paths = shortest_paths(graph, STARTS[:1], HopRange(1, 9), ANYWHERE, context)
    assert context.work.spent == 8
    paths.write_out(context)
    assert context.work.spent == 12, "three paths, one of them of two edges"
    context.work = TraversalWork(3)
    with pytest.raises(ResourceLimitError, match="traversal_work: actual 4, limit 3") as refused:
        search.search(graph, STARTS[:1], HopRange(1, 9), context)
    assert refused.value.resource == "traversal_work"


def test_paths_too_many_to_write_are_refused_before_any_is_made() -> None:
    """A chain of double edges has 2^60 paths."""
    space = RowSpace(np.arange(61))
    source = np.repeat(np.arange(60), 2)
    lists = of_edges(space, space, source, source + 1, np.arange(120), np.arange(120))
    context = Context()
    graph = HopGraph(NodeNumbers([space]), [Step(0, 0, 0, lists)], EdgeNumbers([0], [np.arange(120)]), context)
    found = all_shortest_paths(graph, np.array([0]), HopRange(60, 60), ANYWHERE, context)
    assert found.count()[2].tolist() == [2**60]
    with pytest.raises(ResourceLimitError, match="traversal_work"):
        found.paths(context, first_only=False)
    assert found.paths(context, first_only=True).write_out(context).edges.tolist() == list(range(0, 120, 2))


def test_a_long_trail_needs_no_deep_stack() -> None:
    size = 3_000
    space = RowSpace(np.arange(size))
    at = np.arange(size)
    lists = of_edges(space, space, at, (at + 1) % size, at, at)
    context = Context()
    graph = HopGraph(NodeNumbers([space]), [Step(0, 0, 0, lists)], EdgeNumbers([0], [at]), context)
    (trail,) = find_trails(graph, np.array([5]), HopRange(size, 2**62), ANYWHERE, context)
    assert trail.length == size
    assert trail.ends.tolist() == [5]


def test_a_search_that_is_cancelled_leaves_no_marks() -> None:
    typed = Typed([("p", 0, 1, False), ("p", 1, 2, False)])
    context = Context()
    graph = typed.graph(context)
    context.cancellation.cancel()
    finders: tuple[Callable[..., object], ...] = (shortest_paths, all_shortest_paths)
    for find in finders:
        with pytest.raises(QueryCancelledError):
            find(graph, STARTS, HopRange(1, 9), ANYWHERE, context)
    with pytest.raises(QueryCancelledError):
        search.search(graph, STARTS, HopRange(1, 9), context)
    assert not context.marks(25).any()
