"""`optimize` renews the topologies that readers use, and forgets those that are behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.engine.maintenance import optimize
from omnigraph.engine.maintenance.optimize import KEPT_BUILDS
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES

SCHEMA = "node Stop { name: String @key }  edge Track: Stop -> Stop  edge Unused: Stop -> Stop"
REACH = (
    'query reach() { match { $a: Stop { name: "s0" }  $a track{1,9} $b } return { $b.name as name } order { name } }'
)


def stops(numbers: range) -> str:
    return "".join(f'{{"type":"Stop","data":{{"name":"s{i}"}}}}\n' for i in numbers)


def tracks(numbers: range) -> str:
    return "".join(f'{{"edge":"Track","from":"s{i}","to":"s{i + 1}"}}\n' for i in numbers)


def stored_builds(graph: Graph) -> set[str]:
    return {
        o.path.split("/")[2]
        for o in graph._workspace.root.objects.below("topology")
        if o.path.endswith("topology.json")
    }


def reached(graph: Graph) -> list[str]:
    return [row["name"] for row in graph.query(REACH, "reach").rows()]


def test_a_large_edge_type_is_ready_for_its_first_traversal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimize, "_FEWEST_EDGES", 5)
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    graph.load(stops(range(10)) + tracks(range(6)), mode="append")
    graph.maintenance.maintain()
    graph.maintenance.optimize(types=["edge:Track"])
    assert stored_builds(graph) == set(), "only what nobody limited builds what nobody asked for"
    graph.maintenance.optimize()
    assert len(stored_builds(graph)) == 1, "the other edge type has no edges"
    PROCESS_TOPOLOGIES.clear()
    profile = Graph.open(graph.uri).query(REACH, "reach").profile
    assert any("from the store" in line for line in profile.lines())


def test_a_used_topology_is_ready_after_optimize_and_old_builds_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    graph.load(stops(range(10)) + tracks(range(3)), mode="append")
    graph.maintenance.optimize()
    assert stored_builds(graph) == set(), "nobody traversed anything yet"
    assert reached(graph) == ["s1", "s2", "s3"]
    assert len(stored_builds(graph)) == 1

    for last in range(3, 8):
        graph.load(tracks(range(last, last + 1)), mode="append")
        before = stored_builds(graph)
        graph.maintenance.optimize()
        assert stored_builds(graph) - before, "the state after optimize has its own build"
        assert len(stored_builds(graph)) <= KEPT_BUILDS

    PROCESS_TOPOLOGIES.clear()
    profile = graph.query(REACH, "reach").profile
    assert any("from the store" in line for line in profile.lines())
    assert reached(Graph.open(graph.uri)) == [f"s{i}" for i in range(1, 9)]
