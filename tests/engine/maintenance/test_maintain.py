"""Maintenance keeps a busy graph bounded: look by look, or in the background, beside writers and each other."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph
from omnigraph import Graph, MaintenancePolicy, Retention
from omnigraph.api.maintenance import DEFAULT_POLICY
from omnigraph.engine.maintenance.maintainer import Maintainer, maintain
from omnigraph.errors import BadRequestError
from tests.support.waiting import GIVE_UP, wait_until

SCHEMA = "node Person { slug: String @key  name: String @index }"
BUSY = MaintenancePolicy(retention=Retention(keep_versions=5), released_versions=10, grace=timedelta(0))
OFTEN = timedelta(milliseconds=20)


def person(i: int | str) -> str:
    return json.dumps({"type": "Person", "data": {"slug": f"p{i}", "name": f"name {i}"}})


def grown(place: Path, commits: int) -> Graph:
    graph = Graph.init(place, SCHEMA)
    for i in range(commits):
        graph.load(person(i), mode="append")
    return graph


def table_files(graph: Graph) -> tuple[int, int]:
    """How many files the tables have, and their bytes. A commit also leaves one small log entry, for ever."""
    files = [p for p in (Path(graph.uri) / "nodes").rglob("*") if p.is_file()]
    return len(files), sum(p.stat().st_size for p in files)


def test_a_busy_graph_stays_bounded(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    seen = []
    for i in range(120):
        graph.load(person(i), mode="append")
        if i % 20 == 19:
            graph.maintenance.maintain(BUSY)
            seen.append(table_files(graph))
    files, sizes = zip(*seen, strict=True)
    # Five versions, each with a manifest, a record, and a handful of fragments; a hundred versions would be 400 files.
    assert max(files) < 45
    # The rows themselves grow, and nothing else does.
    assert sizes[-1] < sizes[1] + 5 * 100 * 120
    assert graph.maintenance.verify().clean
    assert graph.snapshot().count("node:Person") == 120


def test_history_goes_in_portions(tmp_path: Path) -> None:
    graph = grown(tmp_path / "graph", 14)
    assert graph.maintenance.maintain(BUSY).cleaned is None, (
        "15 versions: 5 stay, the first holds nothing, 10 are not there to go"
    )
    graph.load(person("a"), mode="append")
    released = graph.maintenance.maintain(BUSY).cleaned
    assert released is not None
    assert released.versions_removed >= 10
    assert graph.maintenance.maintain(BUSY).cleaned is None, "nothing is left to release"
    for i in range(10):
        assert graph.maintenance.maintain(BUSY).cleaned is None
        graph.load(person(f"b{i}"), mode="append")
    assert graph.maintenance.maintain(BUSY).cleaned is not None


def test_a_version_that_a_branch_holds_does_not_make_every_look_a_cleanup(tmp_path: Path) -> None:
    graph = grown(tmp_path / "graph", 10)
    graph.create_branch("held")
    for i in range(6):
        graph.load(person(f"a{i}"), mode="append")
    assert graph.maintenance.maintain(BUSY).cleaned is not None
    for i in range(9):
        graph.load(person(f"b{i}"), mode="append")
        assert graph.maintenance.maintain(BUSY).cleaned is None
    assert graph.snapshot("held").scan("node:Person").num_rows == 10


def test_by_default_no_recent_state_goes(tmp_path: Path) -> None:
    graph = grown(tmp_path / "graph", 12)
    retention = DEFAULT_POLICY.retention
    assert retention is not None
    assert (retention.keep_versions, retention.older_than) == (100, timedelta(days=7))
    maintain(graph._workspace, "main", MaintenancePolicy(released_versions=1), sweeps=True)
    for version in range(1, 14):
        assert graph.snapshot(version=version).scan("node:Person").num_rows == version - 1
    assert graph.maintenance.maintain(MaintenancePolicy(retention=None, released_versions=1)).cleaned is None


def test_in_the_background_beside_a_writer_and_another_maintainer(tmp_path: Path) -> None:
    grown(tmp_path / "graph", 1).close()
    written = 0
    with Graph.open(tmp_path / "graph") as graph, Graph.open(tmp_path / "graph") as other:
        # No grace period, as elsewhere here, would delete what the writer has in flight.
        policy = MaintenancePolicy(retention=Retention(keep_versions=5), released_versions=10, small_fragments=3)
        maintainers = [Maintainer(handle._workspace, policy, every=OFTEN).start() for handle in (graph, other)]
        while written < 400 and not all(m.last_cleanup for m in maintainers):
            graph.load(person(f"w{written}"), mode="append")
            written += 1
        wait_until(lambda: any(m.last_cleanup for m in maintainers), "a maintainer cleans up")
    assert [m.last_error for m in maintainers] == [None, None]
    fresh = Graph.open(tmp_path / "graph")
    assert fresh.maintenance.verify().clean
    assert fresh.snapshot().count("node:Person") == written + 1


def maintenance_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "omnigraph-maintain"]


def test_it_ends_with_the_graph(tmp_path: Path) -> None:
    grown(tmp_path / "graph", 1).close()
    with omnigraph.open(tmp_path / "graph", maintain=BUSY):
        assert len(maintenance_threads()) == 1
    assert maintenance_threads() == []
    with omnigraph.open(tmp_path / "graph"):
        assert maintenance_threads() == []
    omnigraph.open(tmp_path / "graph", maintain=True)
    for thread in maintenance_threads():  # nobody holds the graph, so nobody could close it
        thread.join(GIVE_UP)
        assert not thread.is_alive()


def test_what_fails_is_kept_and_tried_again(tmp_path: Path) -> None:
    graph = grown(tmp_path / "graph", 1)
    maintainer = Maintainer(graph._workspace, BUSY, every=OFTEN, branch="late").start()
    wait_until(lambda: maintainer.last_error, "the maintainer fails")
    assert maintainer.last_report is None
    assert "late" in str(maintainer.last_error)
    graph.create_branch("late")
    looks = maintainer.looks
    wait_until(lambda: maintainer.looks >= looks + 2, "the maintainer looks twice")
    assert maintainer.last_error is None
    assert maintainer.last_report is not None
    graph.close()


@pytest.mark.parametrize("every", [timedelta(0), timedelta(seconds=-1)])
def test_what_is_no_policy(tmp_path: Path, every: timedelta) -> None:
    graph = grown(tmp_path / "graph", 0)
    with pytest.raises(BadRequestError):
        Maintainer(graph._workspace, every=every)
    with pytest.raises(BadRequestError):
        MaintenancePolicy(released_versions=0)
