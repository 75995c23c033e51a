"""Walks and paths on real graphs, by plans made by hand: every row is that of the reference, whatever its neighbours
come from."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.bindings import Bindings
from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.operators import walks
from omnigraph.engine.query.traversal import search, trails
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES
from omnigraph.language.query import ir
from omnigraph.language.query.ir import Direction
from omnigraph.language.query.syntax import PathMode
from tests.engine import walk_reference as reference
from tests.engine.query_graphs import edge
from tests.engine.visibilities import visibility_on
from tests.engine.walk_graphs import (
    ENDS,
    NO_INPUT,
    NODES,
    Running,
    Travel,
    holds,
    number_of,
    path_plan,
    steps_of,
    travel_graph,
    walk_of,
)
from tests.engine.walk_reference import Entity, Hop, Walked

GRAPHS = 6
MODES = ("indexed", "csr")
HOPS = [(0, 0), (0, 1), (0, ir.UNBOUNDED), (1, 1), (1, 2), (1, ir.UNBOUNDED), (2, 2), (2, 4), (2, 1)]
TRAIL_HOPS = [(0, 0), (0, 1), (1, 1), (1, 2), (2, 3), (3, 3), (2, 1)]
SOURCES = [("Person",), ("Place", "Person"), ("Thing", "Person", "Place"), ("Place",)]
VISIBLE = {"Person": ("age", 1), "Knows": ("w", 1), "Visits": ("w", 2)}
CONDITIONS = ("none", "edge", "node", "outer", "edge and outer")


class Drawn(NamedTuple):
    """A walk, and how it is asked for."""

    graph: int
    steps: tuple[tuple[str, Direction], ...]
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    condition: str
    closing: bool
    restricted: bool = False
    mode: str = "csr"
    small: bool = False
    seed: int = 0

    def some(self, hops: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """A few of these bounds."""
        return random.Random(self.seed).sample(hops, 3)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Travel]]:
    made = [travel_graph(tmp_path_factory.mktemp("travel") / "g", seed) for seed in range(GRAPHS)]
    yield made
    for travel in made:
        travel.graph.close()


@st.composite
def drawn_walks(draw: Any) -> Drawn:
    names = draw(st.lists(st.sampled_from(sorted(ENDS)), min_size=1, max_size=4, unique=True))
    steps = tuple((name, draw(st.sampled_from(list(Direction)))) for name in names)
    return Drawn(
        draw(st.integers(0, GRAPHS - 1)),
        steps,
        draw(st.sampled_from(SOURCES)),
        draw(st.sampled_from([("Person",), ("Place", "Person"), ("Thing", "Place", "Person")])),
        draw(st.sampled_from(CONDITIONS)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from(MODES)),
        draw(st.booleans()),
        draw(st.integers(0, 2**16)),
    )


class Case:
    """A drawn walk on its graph, with the rows that it extends."""

    def __init__(self, graphs: list[Travel], drawn: Drawn, hops: tuple[int, int]) -> None:
        self.travel, self.drawn, self.hops = graphs[drawn.graph], drawn, hops
        catalog = self.travel.graph.catalog
        self.steps = steps_of(catalog, *drawn.steps)
        plain = walk_of(catalog, self.steps, hops, sources=drawn.sources, destinations=drawn.destinations)
        self.walk = walk_of(
            catalog,
            self.steps,
            hops,
            sources=drawn.sources,
            destinations=drawn.destinations,
            each=self._each(plain),
        )
        starts = [None, *filter(self.sees, self._nodes(drawn.sources))]
        ends = [None, *filter(self.sees, self._nodes(drawn.destinations))]
        self.pairs: list[tuple[Entity | None, Entity | None]]
        self.pairs = list(itertools.product(starts, ends)) if drawn.closing else [(start, None) for start in starts]

    @staticmethod
    def _nodes(types: tuple[str, ...]) -> list[Entity]:
        return [(type_name, slug) for type_name in types for slug in NODES[type_name]]

    def _each(self, plain: ir.Walk) -> ir.Each | None:
        tests: list[ir.Predicate] = []
        edge = number_of("e", plain.edge_members, "w")
        if "edge" in self.drawn.condition:
            tests.append(ir.Compare(edge, ir.Operator.GREATER_OR_EQUAL, ir.Constant(2, ir.I64)))
        if "node" in self.drawn.condition:
            node = number_of("n", plain.arrivals, "age")
            tests.append(ir.Compare(node, ir.Operator.GREATER_OR_EQUAL, ir.Constant(2, ir.I64)))
        if "outer" in self.drawn.condition:
            person = self.travel.graph.catalog.nodes["Person"]
            own = ir.PropertyValue("o", person, person.properties["age"])
            tests.append(ir.Compare(edge, ir.Operator.GREATER_OR_EQUAL, own))
        return ir.Each("e", "n", tuple(tests)) if tests else None

    def sees(self, entity: Entity) -> bool:
        """Whether the reader sees an entity, without its ends."""
        values = self.travel.properties[entity]
        if not self.drawn.restricted or entity[0] not in VISIBLE:
            return True
        name, least = VISIBLE[entity[0]]
        return holds(values, name, least)

    def running(self) -> Running:
        if not self.drawn.restricted:
            return Running(self.travel.graph.snapshot())
        catalog = self.travel.graph.catalog
        types = [type_ for type_ in (*catalog.nodes.values(), *catalog.edges.values()) if type_.name in VISIBLE]
        filters = {t.type_key: "{} >= {}".format(*VISIBLE[t.name]) for t in types}
        visibility = visibility_on(catalog, {key: (text, lambda _: True) for key, text in filters.items()})
        return Running(self.travel.graph.snapshot(), visibility=visibility)

    def hops_for(self, other: Entity) -> list[Hop]:
        """The hops that exist for a row with this other node."""
        properties, found = self.travel.properties, []
        for hop in self.travel.hops(self.steps):
            edge, arrival = properties[hop.edge], properties[hop.end]
            ok = all(map(self.sees, hop))
            ok &= "edge" not in self.drawn.condition or holds(edge, "w", 2)
            ok &= "node" not in self.drawn.condition or holds(arrival, "age", 2)
            ok &= "outer" not in self.drawn.condition or holds(edge, "w", properties[other]["age"])
            if ok:
                found.append(hop)
        return found

    def rows(self, running: Running) -> Bindings:
        """Every pair, with a changing other person beside it, numbered."""
        catalog, people = running.catalog, self._nodes(("Person",))
        self.others = [people[number % len(people)] for number in range(len(self.pairs))]
        bound: dict[str, Any] = {"a": (self.walk.source_members, [start for start, _ in self.pairs])}
        bound["o"] = ([catalog.nodes["Person"]], self.others)
        if self.drawn.closing:
            bound["b"] = (self.walk.destination_members, [end for _, end in self.pairs])
        rows = running.rows(**bound)
        return rows.binding({"#row": np.arange(rows.length)})

    def wanted(self, row: int, end: Entity) -> bool:
        """Whether a row takes this end."""
        return end[0] in self.drawn.destinations and (not self.drawn.closing or self.pairs[row][1] == end)


@contextmanager
def batches(drawn: Drawn) -> Iterator[None]:
    """The source of neighbours that was drawn, and perhaps batches so small that every search needs several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODE_VARIABLE, drawn.mode)
        if drawn.small:
            patch.setattr(search, "HOPS_AT_ONCE", 2)
            patch.setattr(search, "VISITED_BYTES", 16)
            patch.setattr(walks, "_STATES_AT_ONCE", 16)
            patch.setattr(walks, "_ENDS_PER_START", 0)
            patch.setattr(walks, "_NUMBERS_PER_PIECE", 8)
            patch.setattr(trails, "TRAILS_AT_ONCE", 3)
        yield


@settings(max_examples=40, deadline=None)
@given(drawn_walks())
def test_nodes_within_hops(graphs: list[Travel], drawn: Drawn) -> None:
    for hops in drawn.some(HOPS):
        case = Case(graphs, drawn, hops)
        running = case.running()
        rows = case.rows(running)
        expected = sorted(
            (row, end)
            for row, (start, _) in enumerate(case.pairs)
            if start is not None
            for end in reference.within(start, case.hops_for(case.others[row]), *hops)
            if case.wanted(row, end)
        )
        plan = ir.ExpandWalk(NO_INPUT, case.walk, None, drawn.closing)
        with batches(drawn):
            found = running.expand(plan, rows, {"#row", "b"})
            counted = running.expand(plan, rows, {"#row"}, counts_only=True)
        numbers = found.rows["#row"].tolist()
        assert numbers == sorted(numbers)
        ends = running.entities(found, "b", case.walk.destination_members)
        assert sorted(zip(numbers, ends, strict=True)) == expected
        assert weights_by_row(counted) == Counter(row for row, _ in expected)
        assert running.context.budget.held == sum(held_values(running))


def held_values(running: Running) -> list[int]:
    """What properties keep until the end of a query."""
    properties = running.context.properties
    return [part.values.nbytes for part in (*properties._whole.values(), *properties._partial.values())]


def weights_by_row(rows: Bindings) -> Counter[int]:
    weights = np.ones(rows.length, np.int64) if rows.weights is None else rows.weights
    found: Counter[int] = Counter()
    for row, weight in zip(rows.rows["#row"].tolist(), weights.tolist(), strict=True):
        found[row] += weight
    return found


@settings(max_examples=40, deadline=None)
@given(drawn_walks())
def test_bound_edges(graphs: list[Travel], drawn: Drawn) -> None:
    case = Case(graphs, drawn, (1, 1))
    running = case.running()
    rows = case.rows(running)
    expected = [
        (row, hop.edge, hop.end)
        for row, (start, _) in enumerate(case.pairs)
        if start is not None
        for hop in reference.hops_from(start, case.hops_for(case.others[row]))
        if case.wanted(row, hop.end)
    ]
    plan = ir.ExpandWalk(NO_INPUT, case.walk, "f", drawn.closing)
    with batches(drawn):
        found = running.expand(plan, rows, {"#row", "b", "f"})
        counted = running.expand(plan, rows, {"#row"}, counts_only=True)
    edges = running.entities(found, "f", case.walk.edge_members)
    ends = running.entities(found, "b", case.walk.destination_members)
    assert list(zip(found.rows["#row"].tolist(), edges, ends, strict=True)) == expected, "by edge type and id"
    assert weights_by_row(counted) == Counter(row for row, *_ in expected)


def chosen_walks(mode: PathMode, case: Case) -> list[tuple[int, Walked]]:
    """The walks of every row, as the language defines them."""
    found = []
    for row, (start, _) in enumerate(case.pairs):
        if start is None:
            continue
        hops = case.hops_for(case.others[row])
        if mode is PathMode.TRAILS:
            those = reference.trails(start, hops, *case.hops)
        else:
            reached = reference.shortest(start, hops, *case.hops).values()
            those = [walked for ways in reached for walked in (ways[:1] if mode is PathMode.SHORTEST else ways)]
        found += [(row, walked) for walked in those if case.wanted(row, walked[-1].end if walked else start)]
    return found


@pytest.mark.parametrize("mode", list(PathMode))
@settings(max_examples=40, deadline=None)
@given(drawn_walks())
def test_paths(graphs: list[Travel], mode: PathMode, drawn: Drawn) -> None:
    for hops in drawn.some(TRAIL_HOPS if mode is PathMode.TRAILS else HOPS):
        case = Case(graphs, drawn, hops)
        running = case.running()
        rows = case.rows(running)
        expected = chosen_walks(mode, case)
        plan = path_plan(case.walk, mode, closing=drawn.closing)
        with batches(drawn):
            pieces = running.find_paths(plan, rows, {"#row", "b", "p"})
            unread = running.find_paths(plan, rows, {"#row"})
            counted = [
                running.find_paths(plan, rows, needed, counts_only=True)
                for needed in ({"#row"}, {"#row", "b"}, {"#row", "b", "p"})
            ]
        found, written = [], []
        for piece in pieces:
            ends = running.entities(piece, "b", case.walk.destination_members)
            for row, end, path in zip(piece.rows["#row"].tolist(), ends, running.paths(piece, plan), strict=True):
                assert path[0][-1] == end
                found.append((row, *path))
        assert [row for row, *_ in found] == sorted(row for row, *_ in found)
        for row, walked in expected:
            start = case.pairs[row][0]
            assert start is not None
            written.append((row, reference.nodes_of(start, walked), reference.edges_of(walked)))
        assert sorted(found) == sorted(written)
        numbers = Counter(row for row, _ in expected)
        assert sum(map(weights_by_row, unread), Counter()) == numbers
        assert [weights_by_row(piece) for (piece,) in counted] == [numbers] * 3


def test_a_walk_uses_topologies_that_lie_over_older_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODE_VARIABLE, "csr")
    travel = travel_graph(tmp_path / "g", 1)
    drawn = Drawn(0, (("Knows", Direction.BOTH), ("Visits", Direction.BOTH)), ("Person",), ("Person",), "none", False)
    PROCESS_TOPOLOGIES.clear()
    for number in range(3):
        case = Case([travel], drawn, (1, ir.UNBOUNDED))
        running = Running(travel.graph.snapshot())
        found = running.expand(ir.ExpandWalk(NO_INPUT, case.walk), case.rows(running), {"#row", "b"})
        ends = running.entities(found, "b", case.walk.destination_members)
        expected = [
            (row, end)
            for row, (start, _) in enumerate(case.pairs)
            if start is not None
            for end in reference.within(start, case.hops_for(case.others[row]), 1, ir.UNBOUNDED)
            if case.wanted(row, end)
        ]
        assert sorted(zip(found.rows["#row"].tolist(), ends, strict=True)) == sorted(expected)
        name, ends_ = ("Knows", f"late{number}"), (("Person", "ann"), ("Person", NODES["Person"][number]))
        travel.graph.load(edge("Knows", ends_[0][1], ends_[1][1], id=name[1]), mode="append")
        travel.edges[name] = ends_
        travel.properties[name] = {"w": None}
    travel.graph.close()
