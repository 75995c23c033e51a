"""Restricted reads against the reference evaluator on a graph that holds only the visible rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.api.queries import ReadPoint
from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.read import run_query
from omnigraph.engine.query.traversal import edge_visibility
from omnigraph.engine.shared_memory import SHARED_MEMORY
from omnigraph.graph import Graph
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.params import bind_parameters
from tests.engine.query.test_query_differential import _comparable, _rendered, queries
from tests.engine.query_graphs import social_graph
from tests.engine.visibilities import Chosen, drawn_filters, visibility_on, visible
from tests.support.reference import ReferenceGraph

GRAPHS = 4


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Graph, ReferenceGraph]]]:
    folder: Path = tmp_path_factory.mktemp("lenses")
    made = [social_graph(folder / str(seed), seed) for seed in range(GRAPHS)]
    yield [(graph, ReferenceGraph.of(graph.snapshot())) for graph in made]
    for graph in made:
        graph.close()


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, GRAPHS - 1), drawn_filters(), queries())
def test_a_restricted_answer_is_the_answer_of_a_graph_without_the_rest(
    graphs: list[tuple[Graph, ReferenceGraph]],
    which: int,
    chosen: Chosen,
    drawn: tuple[str, dict[str, Any], bool],
) -> None:
    graph, reference = graphs[which]
    text, values, ordered = drawn
    plan = compile_queries(text, graph.catalog).query("q").read_plan
    bound = bind_parameters(plan.parameters, values, now_millis=1_800_000_000_000)
    expected = visible(reference, chosen, graph.catalog).rows(plan, bound)
    state = graph.snapshot().restricted_to(visibility_on(graph.catalog, chosen))
    for mode in ("indexed", "csr", "auto"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(MODE_VARIABLE, mode)
            # Rows are looked at one by one, or all that are seen are found first.
            patch.setattr(edge_visibility, "_FIND", -math.inf if mode == "auto" else math.inf)
            SHARED_MEMORY.clear()
            result = run_query(state, ReadPoint("main"), (text, "q", values))
        columns = [_rendered(result, i) for i in range(len(result.columns))]
        found = [list(row) for row in zip(*columns, strict=True)]
        assert _comparable(found, ordered) == _comparable(expected, ordered), (mode, chosen, text)
