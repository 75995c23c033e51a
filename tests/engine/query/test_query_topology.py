"""The topology: stored once, mapped after a restart, derived from an older build, and never visible in an answer."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.read import ReadOptions
from omnigraph.engine.query.traversal import adjacency as layered
from omnigraph.engine.query.traversal.adjacency import Adjacency, LayeredAdjacency, Neighbours
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES, Shape, Topology, TopologyCache, TopologyKey
from omnigraph.engine.query.traversal.topology_build import build
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn
from omnigraph.errors import MergeConflictsError
from omnigraph.graph import Graph
from omnigraph.language.query.ir import Direction
from omnigraph.storage.models import TableState
from omnigraph.storage.tables.memory.row_space import GrownRowSpace, RowSpace
from omnigraph.storage.tables.staging import StagedTable, Staging
from tests.conftest import Place
from tests.engine.query_graphs import edge, node

SCHEMA = """
node Person { slug: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
"""
PAIRS = "query q() { match { $a: Person  $a knows $b } return { $a.slug as a, $b.slug as b } order { a, b } }"
RING = 1_000
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
    (file,) = Path(graph.uri.removeprefix("file://")).glob("topology/*/*/out.targets.*")
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
        cache.get(graph._workspace.root, key)
    assert [cache.peek(key) is not None for key in keys] == [False, False, True]


def key_of(snapshot: Snapshot, shape: Shape = Shape.NEIGHBOURS) -> TopologyKey:
    people = snapshot.table("node:Person").state
    return TopologyKey(snapshot.entry.graph_id, shape, snapshot.table("edge:Knows").state, people, people)


def listed(adjacency: Neighbours, ids: dict[int, str]) -> list[tuple[str, str]]:
    nodes = adjacency.sources.rows
    counts, at = adjacency.entries(adjacency.sources.positions(nodes))
    sources = np.repeat(nodes, counts)
    ends = adjacency.ends.rows_at(adjacency.targets_at(at))
    return sorted((ids[int(a)], ids[int(b)]) for a, b in zip(sources, ends, strict=True))


CHANGES = (
    "edges",
    "edges",
    "node",
    "both",
    "update",
    "delete edge",
    "delete node",
    "move",
    "renew",
    "optimize",
    "merge",
)


@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 2**32), st.booleans()), min_size=3, max_size=10),
    st.booleans(),
)
def test_what_is_derived_equals_what_is_built(steps: list[tuple[str, int, bool]], by_writer: bool) -> None:
    """After any history of commits, read after each of them or after several, on two branches that have diverged, by
    the handle that has made the commits or by another."""
    cache = TopologyCache()
    with tempfile.TemporaryDirectory() as folder, Graph.init(Path(folder) / "g", SCHEMA) as graph:
        graph.load("\n".join(node("Person", f"p{i}") for i in range(5)), mode="append")
        graph.create_branch("side")
        with contextlib.nullcontext(graph) if by_writer else Graph.open(graph.uri) as reader:

            def compare(branch: str = "main") -> None:
                snapshot = reader.snapshot(branch)
                assert_built_alike(cache.get(reader._workspace.root, key_of(snapshot))[0], snapshot)

            compare()
            for number, (kind, seed, read) in enumerate(steps):
                random_ = random.Random(seed)
                branch = random_.choice(("main", "main", "side"))
                change(graph, branch, kind, random_, number)
                if read:
                    compare(branch)
            compare("main")
            compare("side")


def change(graph: Graph, branch: str, kind: str, random_: random.Random, step: int) -> None:
    names = [row["id"] for row in graph.snapshot(branch).scan("node:Person", ["id"]).to_pylist()]
    if kind == "optimize":
        graph.maintenance.optimize(branch=branch)
    elif kind == "merge":
        with contextlib.suppress(MergeConflictsError):
            graph.merge("side", "main")
    elif kind == "node" or not names:
        graph.load(node("Person", f"n{step}"), mode="append", branch=branch)
    elif kind in ("edges", "move"):
        ends = [(random_.choice(names), random_.choice(names)) for _ in range(4)]
        named = [f"e{random_.randint(0, 5)}" for _ in ends] if kind == "move" else [f"s{step}-{i}" for i in range(4)]
        lines = {n: edge("Knows", a, b, id=n, since=i) for i, (n, (a, b)) in enumerate(zip(named, ends, strict=True))}
        graph.load("\n".join(lines.values()), mode="merge", branch=branch)
    elif kind == "both":
        fresh = f"b{step}"
        ends = [(fresh, random_.choice(names)), (random_.choice(names), fresh), (fresh, fresh)]
        lines = [node("Person", fresh), *(edge("Knows", a, b, since=i) for i, (a, b) in enumerate(ends))]
        graph.load("\n".join(lines), mode="append", branch=branch)
    elif kind == "update":
        graph.load(node("Person", random_.choice(names), age=step), mode="merge", branch=branch)
    elif kind == "renew":
        # Nodes of the same ids under new row ids, and some of them gone; edges as their ends allow.
        kept = random_.sample(names, max(1, len(names) - 1))
        lines = [node("Person", name, age=step) for name in kept]
        lines += [edge("Knows", random_.choice(kept), random_.choice(kept), since=i) for i in range(3)]
        graph.load("\n".join(lines), mode="overwrite", branch=branch)
    elif kind == "delete edge":
        graph.mutate("query q($n: I32) { delete Knows where since = $n }", params={"n": step % 4}, branch=branch)
    else:
        gone = {"s": random_.choice(names)}
        graph.mutate("query q($s: String) { delete Person where slug = $s }", params=gone, branch=branch)


def assert_built_alike(topology: Topology, snapshot: Snapshot) -> None:
    people = snapshot.table("node:Person")
    read = people.read(["id"], row_ids=True).to_pylist()
    ids = {row["_rowid"]: row["id"] for row in read}
    fresh = build(snapshot.table("edge:Knows"), people, people, one_type=True, with_edges=False, check=lambda: None)
    assert listed(topology.out, ids) == listed(fresh.out, ids)
    assert listed(topology.back, ids) == listed(fresh.back, ids)
    whole = Topology(topology.key, fresh).towards(Direction.BOTH)
    assert listed(topology.towards(Direction.BOTH), ids) == listed(whole, ids)


COMMITS = {
    "an edge": lambda g: g.load(edge("Knows", "p1", "p3"), mode="append"),
    "an edge again": lambda g: g.load(edge("Knows", "p1", "p2", since=7), mode="append"),
    "a node": lambda g: g.load(node("Person", "new"), mode="append"),
    "a node and its edge": lambda g: g.load("\n".join((node("Person", "x"), edge("Knows", "p4", "x"))), mode="append"),
    "an update of a node": lambda g: g.load(node("Person", "p2", age=3), mode="merge"),
    "an update of an edge": lambda g: g.load(edge("Knows", "p5", "p6", id="e5", since=9), mode="merge"),
    "an edge moved": lambda g: g.load(edge("Knows", "p5", "p9", id="e5"), mode="merge"),
    "an edge gone": lambda g: g.mutate("query q() { delete Knows where since = 5 }"),
    "a node gone": lambda g: g.mutate('query q() { delete Person where slug = "p5" }'),
}


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Graph]:
    """Stops in a ring, in one fragment and with indexes."""
    lines = [node("Person", f"p{i}") for i in range(RING)]
    lines += [edge("Knows", f"p{i}", f"p{(i + 1) % RING}", id=f"e{i}", since=i) for i in range(RING)]
    with Graph.init(tmp_path / "g", SCHEMA) as made:
        made.load("\n".join(lines), mode="append")
        made.maintenance.optimize()
        yield made


@pytest.mark.parametrize("commit", COMMITS)
def test_the_next_reader_pays_for_the_commit_and_not_for_the_graph(ring: Graph, commit: str) -> None:
    """No row is read and no array copied but those of the change, commit after commit."""
    later = edge("Knows", "p7", "p1"), node("Person", "late"), edge("Knows", "late", "p1")
    cache = TopologyCache()
    first, _ = cache.get(ring._workspace.root, key_of(ring.snapshot()))
    assert isinstance(first.out, Adjacency)
    assert isinstance(first.back, Adjacency)
    for line in (None, *later):
        if line is None:
            COMMITS[commit](ring)
        else:
            ring.load(line, mode="append")
        snapshot = ring.snapshot()
        nearest = cache.nearest(ring._workspace.root, key_of(snapshot))
        assert nearest is not None
        assert nearest[1] <= 6, "a few rows of the tables that the commit touched"
        topology, origin_ = cache.get(ring._workspace.root, key_of(snapshot))
        assert "older build" in origin_
        for way, base in ((topology.out, first.out), (topology.back, first.back)):
            assert isinstance(way, LayeredAdjacency)
            assert way.base.targets is base.targets
            assert way.base.offsets is base.offsets
            assert _early(way.sources) is base.sources
            assert way.layer.nbytes < base.targets.nbytes / 4
        assert_built_alike(topology, snapshot)


def _early(space: RowSpace) -> RowSpace:
    return space.early if isinstance(space, GrownRowSpace) else space


@pytest.mark.parametrize("commit", COMMITS)
def test_left_to_itself_a_reader_derives_what_is_near_instead_of_looking_up(
    ring: Graph, commit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs(ring)
    monkeypatch.delenv(MODE_VARIABLE)
    COMMITS[commit](ring)
    text = 'query q() { match { $a: Person { slug: "p1" }  $a knows{1,3} $b } return { $b.slug as b } }'
    assert "older build" in origin(ring, text)


def test_memory_is_charged_once_for_what_topologies_share(ring: Graph) -> None:
    first, _ = TopologyCache().get(ring._workspace.root, key_of(ring.snapshot()))
    cache = TopologyCache(budget=2 * first.nbytes)
    keys = []
    for i in range(30):
        ring.load(edge("Knows", f"p{i}", f"p{i + 9}"), mode="append")
        keys.append(cache.get(ring._workspace.root, key_of(ring.snapshot()))[0].key)
    held = [key for key in keys if cache.peek(key) is not None]
    assert held == keys[-8:], "a long-running reader does not pile up one topology per commit"


def test_a_layer_that_has_grown_becomes_a_topology_of_its_own(ring: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layered, "_SMALLEST_FOLDED", 0)
    monkeypatch.setattr(layered, "_LARGEST_LAYER", 8)
    monkeypatch.setattr(layered, "_LARGEST_SHARE", RING)
    cache = TopologyCache()
    kinds = []
    for i in range(9):
        ring.load("\n".join((node("Person", f"q{i}"), edge("Knows", f"q{i}", f"p{i}"))), mode="append")
        snapshot = ring.snapshot()
        topology, _ = cache.get(ring._workspace.root, key_of(snapshot))
        kinds.append(type(topology.out) is LayeredAdjacency)
        assert_built_alike(topology, snapshot)
    assert kinds == [False, True, True, False, True, True, False, True, True]


def test_a_node_of_the_same_id_takes_over_the_edges_that_stayed(ring: Graph) -> None:
    """Nothing that users can do leaves edges without their node; a table says what it says all the same."""
    cache = TopologyCache()
    cache.get(ring._workspace.root, key_of(ring.snapshot()))
    removed = ring.snapshot().table("node:Person").read(filter="id = 'p5'")

    def publish(stage: Callable[[Staging, TableState], StagedTable]) -> Topology:
        def prepare(txn: WriteTxn) -> PublishPlan:
            return PublishPlan(staged={"node:Person": stage(txn.root.staging, txn.state("node:Person"))})

        ring._workspace.commit("main", prepare, Intent(kind="load"))
        snapshot = ring.snapshot()
        topology, origin_ = cache.get(ring._workspace.root, key_of(snapshot))
        assert "older build" in origin_
        assert_built_alike(topology, snapshot)
        return topology

    gone = publish(lambda staging, state: staging.delete(state, ["p5"]))
    assert gone.dangling
    back = publish(lambda staging, state: staging.append(state, removed))
    assert int(back.out.all_counts().sum()) == RING


def test_it_is_stored_and_found_again_in_an_object_store(remote_place: Place) -> None:
    lines = [node("Person", name) for name in "ab"] + [edge("Knows", "a", "b")]
    with Graph.init(remote_place.uri, SCHEMA) as graph:
        graph.load("\n".join(lines), mode="append")
        assert origin(graph) == "built"
        PROCESS_TOPOLOGIES.clear()
        assert origin(graph) == "from the store"
        assert pairs(graph) == ["ab"]


def test_what_lookups_cost_is_added_up_over_commits(graph: Graph) -> None:
    """Else a reader between two commits would look edges up for ever."""
    PROCESS_TOPOLOGIES.clear()
    spent = []
    for commit in range(3):
        graph.load(node("Person", f"later-{commit}"), mode="merge")
        spent.append(PROCESS_TOPOLOGIES.spend(key_of(graph.snapshot()), 0.001))
    assert spent == pytest.approx([0.001, 0.002, 0.003])
