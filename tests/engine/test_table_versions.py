"""`published_dataset_version`: the version of the graph in which a table last changed, on the line that is read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from omnigraph import Graph
from tests.support.costs import settle

SCHEMA = "node A { name: String @key }\nnode B { name: String @key }\nedge E: A -> B\n"
ADD = "query a($n: String) { insert A { name: $n } }\nquery b($n: String) { insert B { name: $n } }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "g", SCHEMA)


def add(graph: Graph, kind: str, name: str, branch: str = "main") -> None:
    graph.mutate(ADD, kind, {"n": name}, branch=branch)


def published(graph: Graph, branch: str | None = None, version: int | None = None) -> dict[str, int]:
    listing = graph.snapshot(branch, version=version).listing()
    return {f"{row.entity_kind}:{row.type_name}": row.published_dataset_version for row in listing.datasets}


def test_it_follows_the_table_and_not_the_graph(graph: Graph) -> None:
    assert published(graph) == {"edge:E": 1, "node:A": 1, "node:B": 1}
    add(graph, "a", "x")
    add(graph, "b", "y")
    add(graph, "b", "z")
    assert published(graph) == {"edge:E": 1, "node:A": 2, "node:B": 4}
    assert published(graph, version=3) == {"edge:E": 1, "node:A": 2, "node:B": 3}


def test_a_branch_counts_its_own_line(graph: Graph) -> None:
    add(graph, "a", "x")
    graph.create_branch("side")
    add(graph, "b", "y", "side")
    add(graph, "a", "z")
    assert published(graph, "side") == {"edge:E": 1, "node:A": 2, "node:B": 3}
    assert published(graph) == {"edge:E": 1, "node:A": 3, "node:B": 1}
    graph.merge("side")
    assert published(graph) == {"edge:E": 1, "node:A": 3, "node:B": 4}


def test_a_fast_forward_changes_what_the_target_did_not_have(graph: Graph) -> None:
    graph.create_branch("side")
    add(graph, "a", "x", "side")
    add(graph, "a", "y", "side")
    graph.merge("side")
    assert published(graph) == {"edge:E": 1, "node:A": 2, "node:B": 1}
    assert published(graph, "side") == {"edge:E": 1, "node:A": 3, "node:B": 1}


def test_a_rename_changes_no_table_and_a_new_type_is_one(graph: Graph) -> None:
    add(graph, "a", "x")
    renamed = SCHEMA.replace("node B {", 'node C @rename_from("B") {').replace("-> B", "-> C") + "node D { n: I32? }\n"
    graph.schema.apply(renamed)
    assert published(graph) == {"edge:E": 1, "node:A": 2, "node:C": 1, "node:D": 3}


def test_optimize_publishes_new_versions(graph: Graph) -> None:
    add(graph, "a", "x")
    graph.maintenance.optimize()
    assert published(graph)["node:A"] == 3


def test_a_diff_says_when_the_table_of_each_entity_last_changed(graph: Graph) -> None:
    add(graph, "a", "x")
    graph.create_branch("side")
    add(graph, "b", "y", "side")
    add(graph, "a", "z")
    found = {change.id: change.published_dataset_version for change in graph.diff("main", "side").changes}
    assert found == {"z": 3, "y": 3}
    preview = graph.preview_merge("side")
    assert {change.id: change.published_dataset_version for change in preview.changes} == {"y": 3}


# Entries of earlier releases


def forget(graph: Graph, versions: range) -> None:
    """Make entries look as they did before they had the member."""
    for version in versions:
        (path,) = Path(graph.uri).glob(f"__manifest/log/*/{version:020d}.json")
        entry = msgspec.json.decode(path.read_bytes())
        del entry["table_versions"]
        path.write_bytes(msgspec.json.encode(entry))


def test_what_old_entries_do_not_say_is_found_exactly(graph: Graph) -> None:
    for number in range(6):
        add(graph, "ab"[number in (2, 4)], str(number))
    now = published(graph)
    assert now == {"edge:E": 1, "node:A": 7, "node:B": 6}
    forget(graph, range(1, 8))
    assert published(Graph.open(graph.uri)) == now
    # The next commits say what they know and leave the rest to be found.
    opened = Graph.open(graph.uri)
    add(opened, "a", "new")
    assert opened.snapshot().entry.table_versions == {"node:A": 8}
    assert published(opened) == {**now, "node:A": 8}
    assert published(opened, version=5) == {"edge:E": 1, "node:A": 5, "node:B": 4}


def test_finding_it_reads_few_entries(graph: Graph) -> None:
    for number in range(40):
        add(graph, "a", str(number))
    forget(graph, range(1, 42))
    opened = Graph.open(graph.uri)
    state, counts = opened.snapshot(), opened._workspace.root.objects.counts
    before = counts.get("get", 0)
    assert state.table_versions() == {"edge:E": 1, "node:A": 41, "node:B": 1}
    assert counts["get"] - before <= 12, "two binary searches over 41 versions"


def test_reading_it_costs_nothing_when_entries_say_it(graph: Graph) -> None:
    add(graph, "a", "x")
    settle(graph)
    state = graph.snapshot()
    before = dict(graph._workspace.root.objects.counts)
    state.listing()
    assert dict(graph._workspace.root.objects.counts) == before
