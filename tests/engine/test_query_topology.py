"""The topology: stored once, mapped after a restart, derived from an older build, and never visible in an answer."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from omnigraph.engine.graph import Graph
from omnigraph.engine.query.adjacency import Adjacency
from omnigraph.engine.query.read import ReadOptions
from omnigraph.engine.query.topology import PROCESS_TOPOLOGIES, Shape, Topology, TopologyCache, TopologyKey
from omnigraph.engine.query.topology_build import built
from omnigraph.engine.query.traversal_mode import MODE_VARIABLE
from omnigraph.engine.snapshot import Snapshot
from tests.conftest import Place
from tests.engine.query_graphs import edge, node

SCHEMA = """
node Person { slug: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
"""
PAIRS = "query q() { match { $a: Person  $a knows $b } return { $a.slug as a, $b.slug as b } order { a, b } }"
EDGES = "query q() { match { $a: Person  $a $k:knows $b } return { $a.slug as a, $k.since as s } order { a, s } }"


@pytest.fixture(autouse=True)
def csr(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(MODE_VARIABLE, "csr")
    PROCESS_TOPOLOGIES.clear()
    yield
    PROCESS_TOPOLOGIES.clear()


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    lines = [node("Person", name) for name in "abc"]
    lines += [edge("Knows", "a", "b", since=1), edge("Knows", "a", "b", since=2), edge("Knows", "b", "c", since=3)]
    with Graph.init(tmp_path / "g", SCHEMA) as made:
        made.load("\n".join(lines), mode="append")
        yield made


def pairs(graph: Graph, branch: str = "main") -> list[str]:
    return [row["a"] + row["b"] for row in graph.query(PAIRS, branch=branch).rows()]


def origin(graph: Graph, text: str = PAIRS, branch: str = "main") -> str:
    """Where the topology of a query came from, by its profile."""
    result = graph.query(text, branch=branch, options=ReadOptions(profile=True))
    notes = [line for line in result.profile.lines() if "topology of" in line]
    return notes[0].split("(")[1].split(")")[0]


@pytest.mark.parametrize("text", [PAIRS, EDGES])
def test_it_is_built_once_then_held_then_mapped_after_a_restart(graph: Graph, text: str) -> None:
    expected = graph.query(text).rows()
    PROCESS_TOPOLOGIES.clear()
    shutil.rmtree(Path(graph.uri.removeprefix("file://")) / "topology")
    assert [origin(graph, text), origin(graph, text)] == ["built", "in memory"]
    PROCESS_TOPOLOGIES.clear()
    assert origin(graph, text) == "from the store"
    assert graph.query(text).rows() == expected


def test_a_damaged_file_is_built_again(graph: Graph) -> None:
    pairs(graph)
    PROCESS_TOPOLOGIES.clear()
    (file,) = Path(graph.uri.removeprefix("file://")).glob("topology/*/*/out.targets")
    file.write_bytes(b"123")
    assert pairs(graph) == ["ab", "bc"]


def test_branches_at_the_same_versions_share_it(graph: Graph) -> None:
    pairs(graph)
    graph.create_branch("side")
    assert origin(graph, branch="side") == "in memory"


def test_new_edges_ride_on_the_older_build(graph: Graph) -> None:
    pairs(graph)
    graph.load("\n".join((node("Person", "d"), edge("Knows", "c", "d"), edge("Knows", "a", "c"))), mode="append")
    assert origin(graph) == "from an older build and the rows changed since"
    assert pairs(graph) == ["ab", "ac", "bc", "cd"]


def test_one_of_two_parallel_edges_may_go(graph: Graph) -> None:
    pairs(graph)
    graph.mutate("query q() { delete Knows where since = 1 }")
    assert pairs(graph) == ["ab", "bc"]
    graph.mutate("query q() { delete Knows where since = 2 }")
    assert pairs(graph) == ["bc"]


def test_a_deleted_node_takes_its_edges_along(graph: Graph) -> None:
    pairs(graph)
    before = graph.resolve_snapshot()
    graph.mutate('query q() { delete Person where slug = "b" }')
    assert pairs(graph) == []
    assert len(graph.query(PAIRS, snapshot=before).rows()) == 2


def test_branches_may_give_one_row_id_to_different_nodes(graph: Graph) -> None:
    graph.create_branch("side")
    graph.load("\n".join((node("Person", "m"), edge("Knows", "a", "m"))), mode="append")
    graph.load("\n".join((node("Person", "s"), edge("Knows", "s", "b"))), mode="append", branch="side")
    for branch, expected in (("main", ["ab", "am", "bc"]), ("side", ["ab", "bc", "sb"]), ("main", ["ab", "am", "bc"])):
        assert pairs(graph, branch) == expected


def test_the_least_recently_used_leaves_first(graph: Graph) -> None:
    snapshots = [graph.snapshot()]
    for name in "de":
        graph.load(edge("Knows", "a", "a", since=ord(name)), mode="append")
        snapshots.append(graph.snapshot())
    keys = [key_of(s) for s in snapshots]
    cache = TopologyCache(budget=1)
    for key in keys:
        cache.get(graph.root, key)
    assert [cache.held(key) is not None for key in keys] == [False, False, True]


def key_of(snapshot: Snapshot, shape: Shape = Shape.NEIGHBOURS) -> TopologyKey:
    people = snapshot.table("node:Person").state
    return TopologyKey(snapshot.entry.graph_id, shape, snapshot.table("edge:Knows").state, people, people)


def listed(adjacency: Adjacency, ids: dict[int, str]) -> list[tuple[str, str]]:
    nodes = adjacency.sources.rows
    counts, at = adjacency.entries(nodes)
    sources = np.repeat(nodes, counts)
    ends = adjacency.rows_at(at)
    return sorted((ids[int(a)], ids[int(b)]) for a, b in zip(sources, ends, strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_what_is_derived_equals_what_is_built(tmp_path: Path, seed: int) -> None:
    """After any history of writes, on two branches that have diverged."""
    random_ = random.Random(seed)
    cache = TopologyCache()
    with Graph.init(tmp_path / "g", SCHEMA) as graph:
        people = [f"p{i}" for i in range(5)]
        graph.load("\n".join(node("Person", p) for p in people), mode="append")
        graph.create_branch("side")
        origins = []
        for step in range(10):
            branch = random_.choice(("main", "main", "side"))
            change(graph, branch, random_, step)
            snapshot = graph.snapshot(branch)
            derived, origin_ = cache.get(graph.root, key_of(snapshot))
            origins.append(origin_)
            assert_built_alike(derived, snapshot)
        assert any("older" in o for o in origins)


def change(graph: Graph, branch: str, random_: random.Random, step: int) -> None:
    names = [row["id"] for row in graph.snapshot(branch).scan("node:Person", ["id"]).to_pylist()]
    kind = random_.choice(("edges", "edges", "node", "update", "delete edge", "delete node", "move"))
    if kind in ("edges", "move") and names:
        ends = [(random_.choice(names), random_.choice(names)) for _ in range(4)]
        named = [f"e{random_.randint(0, 5)}" for _ in ends] if kind == "move" else [f"s{step}-{i}" for i in range(4)]
        lines = {n: edge("Knows", a, b, id=n, since=i) for i, (n, (a, b)) in enumerate(zip(named, ends, strict=True))}
        graph.load("\n".join(lines.values()), mode="merge", branch=branch)
    elif kind == "node":
        graph.load(node("Person", f"n{step}"), mode="append", branch=branch)
    elif kind == "update" and names:
        graph.load(node("Person", random_.choice(names), age=step), mode="merge", branch=branch)
    elif kind == "delete edge":
        graph.mutate("query q($n: I32) { delete Knows where since = $n }", params={"n": step % 4}, branch=branch)
    elif names:
        gone = {"s": random_.choice(names)}
        graph.mutate("query q($s: String) { delete Person where slug = $s }", params=gone, branch=branch)


def assert_built_alike(topology: Topology, snapshot: Snapshot) -> None:
    people = snapshot.table("node:Person")
    read = people.read(["id"], row_ids=True).to_pylist()
    ids = {row["_rowid"]: row["id"] for row in read}
    fresh = built(snapshot.table("edge:Knows"), people, people, one_type=True, with_edges=False)
    assert listed(topology.out, ids) == listed(fresh.out, ids)
    assert listed(topology.back, ids) == listed(fresh.back, ids)


def test_it_is_stored_and_found_again_in_an_object_store(remote_place: Place) -> None:
    lines = [node("Person", name) for name in "ab"] + [edge("Knows", "a", "b")]
    with Graph.init(remote_place.uri, SCHEMA) as graph:
        graph.load("\n".join(lines), mode="append")
        assert origin(graph) == "built"
        PROCESS_TOPOLOGIES.clear()
        assert origin(graph) == "from the store"
        assert pairs(graph) == ["ab"]
