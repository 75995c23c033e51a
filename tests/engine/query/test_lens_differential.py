"""Reads through a lens against the reference evaluator on a graph that holds only what is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.api.query import ReadTarget
from omnigraph.engine.query.read import run_query
from omnigraph.engine.query.traversal.mode import MODE_VARIABLE
from omnigraph.graph import Graph
from omnigraph.language.query.check.rows import check_row_filter, for_actor
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.lens import Lens, TypeLens, narrowed
from omnigraph.language.query.params import bind_parameters
from tests.engine.query.test_query_differential import _comparable, _rendered, queries
from tests.engine.query_graphs import social_graph
from tests.support.reference import ReferenceGraph

GRAPHS = 4
ACTOR = "ann"
Entity = dict[str, Any]
Shown = Callable[[Entity], bool]


def _at_least(name: str, least: float) -> Shown:
    return lambda entity: entity[name] is not None and entity[name] >= least


FILTERS: dict[str, list[tuple[str, Shown]]] = {
    "node:Person": [
        ("age >= 2", _at_least("age", 2)),
        ("age >= 2 or slug = $actor", lambda e: (e["age"] or -1) >= 2 or e["slug"] == ACTOR),
        (
            "(active = true and age >= 0) or nick = $actor",
            lambda e: (bool(e["active"]) and (e["age"] is not None and e["age"] >= 0)) or e["nick"] == ACTOR,
        ),
        ("age >= score", lambda e: e["age"] is not None and e["score"] is not None and e["age"] >= e["score"]),
        ("false", lambda e: False),
    ],
    "node:City": [
        ("people >= 1", _at_least("people", 1)),
        ('name != "a"', lambda e: e["name"] is not None and e["name"] != "a"),
    ],
    "edge:Knows": [
        ("since >= 1", _at_least("since", 1)),
        ("note = $actor or since >= 0", lambda e: e["note"] == ACTOR or (e["since"] is not None and e["since"] >= 0)),
    ],
    "edge:Near": [("km >= 1", _at_least("km", 1))],
}


@st.composite
def lenses(draw: Any) -> dict[str, tuple[str, Shown]]:
    chosen = {}
    for type_key, filters in FILTERS.items():
        if draw(st.booleans()):
            chosen[type_key] = draw(st.sampled_from(filters))
    return chosen


def lens_of(graph: Graph, chosen: dict[str, tuple[str, Shown]]) -> Lens:
    catalog = graph.catalog
    made = []
    for type_key, (text, _) in chosen.items():
        type_ = catalog.type_named(type_key)
        made.append(TypeLens(type_, for_actor(check_row_filter(text, type_, catalog), ACTOR)))
    return narrowed(made)


def visible(reference: ReferenceGraph, chosen: dict[str, tuple[str, Shown]], graph: Graph) -> ReferenceGraph:
    """The graph with nothing in it that is not seen."""
    kept = {
        key: [e for e in entities if key not in chosen or chosen[key][1](e)]
        for key, entities in reference.entities.items()
    }
    ids = {key: {e["id"] for e in entities} for key, entities in kept.items()}
    for edge in graph.catalog.edges.values():
        ends = ids[f"node:{edge.from_type}"], ids[f"node:{edge.to_type}"]
        kept[edge.type_key] = [e for e in kept[edge.type_key] if e["src"] in ends[0] and e["dst"] in ends[1]]
    return ReferenceGraph(kept)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Graph, ReferenceGraph]]]:
    folder: Path = tmp_path_factory.mktemp("lenses")
    made = [social_graph(folder / str(seed), seed) for seed in range(GRAPHS)]
    yield [(graph, ReferenceGraph.of(graph.snapshot())) for graph in made]
    for graph in made:
        graph.close()


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, GRAPHS - 1), lenses(), queries())
def test_a_narrowed_answer_is_the_answer_of_a_graph_without_the_rest(
    graphs: list[tuple[Graph, ReferenceGraph]],
    which: int,
    chosen: dict[str, tuple[str, Shown]],
    drawn: tuple[str, dict[str, Any], bool],
) -> None:
    graph, reference = graphs[which]
    text, values, ordered = drawn
    plan = compile_queries(text, graph.catalog).query("q").read_plan
    bound = bind_parameters(plan.parameters, values, now_millis=1_800_000_000_000)
    expected = visible(reference, chosen, graph).rows(plan, bound)
    state = graph.snapshot().through(lens_of(graph, chosen))
    for mode in ("indexed", "csr", "auto"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(MODE_VARIABLE, mode)
            result = run_query(state, ReadTarget("main", None), (text, "q", values))
        columns = [_rendered(result, i) for i in range(len(result.columns))]
        found = [list(row) for row in zip(*columns, strict=True)]
        assert _comparable(found, ordered) == _comparable(expected, ordered), (mode, chosen, text)
