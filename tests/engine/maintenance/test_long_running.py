"""A process that runs for long: what it holds stops growing, however many commits, branches and reads go by."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.storage.cache import RecentlyUsed
from tests.support.processes import Process

SCHEMA = """
node Person { slug: String @key }
edge Knows: Person -> Person
"""
PEOPLE, FRIENDS = 3_000, 8


def town(place: Path) -> Graph:
    graph = Graph.init(place, SCHEMA)
    lines = [json.dumps({"type": "Person", "data": {"slug": f"p{i}"}}) for i in range(PEOPLE)]
    lines += [
        json.dumps({"edge": "Knows", "from": f"p{i}", "to": f"p{(i * 7 + k * 31) % PEOPLE}"})
        for i in range(PEOPLE)
        for k in range(FRIENDS)
    ]
    graph.load("\n".join(lines), mode="append")
    return graph


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_memory_does_not_grow_with_the_number_of_commits(tmp_path: Path) -> None:
    town(tmp_path / "graph").close()
    told = Process("tests.engine.long_runner", str(tmp_path / "graph"), "commit", "60").acknowledged()
    commits, memory, tables, topologies = zip(*((int(word) for word in line) for line in told), strict=True)
    assert max(topologies) <= 8
    # Two tables, of which one is written to.
    assert max(tables) <= 2 * 16
    assert tables[-1] == tables[-5]
    # A topology of this graph takes about 400 KiB, a held version of a table about 20.
    grown = (memory[-1] - memory[3]) / (commits[-1] - commits[3])
    assert grown < 100, f"{grown:.0f} KiB per commit: {memory}"


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_threads_do_not_grow_with_the_number_of_tables(tmp_path: Path) -> None:
    """Sixteen tables are swept at once; each of them used to delete its files with ten threads of its own."""
    types = 10
    schema = "\n".join(f"node N{k} {{ slug: String @key }}\nedge E{k}: N{k} -> N{k}" for k in range(types))
    with Graph.init(tmp_path / "graph", schema) as graph:
        for i in range(4):
            nodes = [json.dumps({"type": f"N{k}", "data": {"slug": f"{i}"}}) for k in range(types)]
            edges = [json.dumps({"edge": f"E{k}", "from": f"{i}", "to": f"{i}"}) for k in range(types)]
            graph.load("\n".join(nodes + edges), mode="append")
    ((threads, of_store),) = Process(
        "tests.engine.long_runner", str(tmp_path / "graph"), "maintenance", "1"
    ).acknowledged()
    # The busier the machine, the more requests of the sixteen overlap. With ten threads each they were 160 and more.
    assert int(threads) < 150
    assert int(of_store) < 100


def test_what_a_handle_remembers_of_branches_is_bounded(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "graph", SCHEMA) as graph:
        root = graph._workspace.root
        memories = [
            (owner, name)
            for owner in (root, root.log, root.branches, root.writer_queue, root.external)
            for name, value in vars(owner).items()
            if isinstance(value, dict | list | set)
        ]
        for i in range(3):
            graph.create_branch(f"b{i}")
            graph.load(json.dumps({"type": "Person", "data": {"slug": f"p{i}"}}), mode="append", branch=f"b{i}")
            graph.delete_branch(f"b{i}")
        assert [(type(owner).__name__, name) for owner, name in memories if getattr(owner, name)] == []


def test_the_least_recently_used_value_goes_first() -> None:
    memory: RecentlyUsed[str, int] = RecentlyUsed(2)
    memory["a"] = 1
    memory["b"] = 2
    assert memory.get("a") == 1
    memory["c"] = 3
    assert [memory.get(key) for key in "abc"] == [1, None, 3]
    assert (memory.pop("a"), memory.pop("a"), memory.get("c")) == (1, None, 3)
