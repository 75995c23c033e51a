"""Real processes that really die: executors, Python workers, drivers. A run is one commit or none, never a mixture."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.pipeline import run
from tests.conftest import Place
from tests.engine.stored import everything, rows
from tests.pipeline.library import book, edge, library, ndjson, reader, records
from tests.support.processes import REPOSITORY

MANY = 40_000


def driver(uri: str, inputs: Path, master: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.driver", uri, str(inputs), master],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}", **environment},
    )


def reported(process: subprocess.Popen[str]) -> dict[str, object]:
    output, errors = process.communicate(timeout=280)
    assert process.returncode == 0, errors[-4000:]
    report: dict[str, object] = json.loads(output.splitlines()[-1])
    return report


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Processes that a process started, directly or not, with their command lines."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    queue = list(children.get(pid, ()))
    while queue:
        child = queue.pop()
        queue += children.get(child, ())
        try:
            yield child, (Path("/proc") / str(child) / "cmdline").read_text()
        except OSError:
            continue


def kill_when_writing(process: subprocess.Popen[str], graph: Path, *victims: str) -> None:
    """Kill a descendant of each kind, one after the other, each as soon as more data files were left behind."""
    before = set(graph.glob("nodes/*/data/*"))
    waiting = list(victims)
    while waiting:
        assert process.poll() is None, f"{waiting} outlived the run: {process.communicate()[1][-4000:]}"
        files = set(graph.glob("nodes/*/data/*"))
        found = [pid for pid, command in descendants(process.pid) if waiting[0] in command] if files - before else []
        if found:
            os.kill(found[0], signal.SIGKILL)
            before = files
            del waiting[0]
        time.sleep(0.005)


def many_readers(directory: Path, files: int = 6) -> set[str]:
    for number in range(files):
        names = range(number, MANY, files)
        ndjson(directory / f"{number}.ndjson", (reader(f"r{name:06d}", age=name % 90) for name in names))
    return {f"r{name:06d}" for name in range(MANY)}


def check_complete(graph: Graph, names: set[str]) -> None:
    stored = graph.snapshot().scan("node:Reader", ["id"]).column("id").to_pylist()
    assert len(stored) == len(names)
    assert set(stored) == names
    assert graph.snapshot().version == 2
    assert graph.verify().clean


@pytest.mark.timeout(400)
def test_workers_and_executors_killed_while_they_write_cost_time_and_nothing_else(tmp_path: Path) -> None:
    """Separate executor processes with eager speculation: files of lost and of needless attempts are never named."""
    graph = library(tmp_path / "graph")
    names = many_readers(tmp_path / "in")
    process = driver(graph.uri, tmp_path / "in", "local-cluster[2,1,1024]")
    kill_when_writing(process, tmp_path / "graph", "pyspark.daemon", "CoarseGrainedExecutorBackend")
    report = reported(process)
    assert report["version"] == 2
    check_complete(graph, names)


@pytest.mark.timeout(400)
def test_a_driver_killed_around_its_publish_leaves_one_commit_or_none(tmp_path: Path, spark: SparkSession) -> None:
    points = ["publish.before:1", "publish.after:1"]
    graphs = [library(tmp_path / point) for point in points]
    ndjson(tmp_path / "in/a.ndjson", [reader("ann"), book("1"), edge("Likes", "ann", "1")])
    started = [
        driver(graph.uri, tmp_path / "in", "local[1]", OMNIGRAPH_KILL_AT=point)
        for graph, point in zip(graphs, points, strict=True)
    ]
    for process in started:
        process.communicate(timeout=280)
        assert process.returncode == -signal.SIGKILL
    before, after = graphs
    assert (before.snapshot().version, after.snapshot().version) == (1, 2)
    assert before.verify().clean
    again = [run(records(tmp_path / "in"), graph=graph, spark=spark) for graph in graphs]
    assert [report.replayed for report in again] == [False, True]
    for graph in graphs:
        assert graph.snapshot().version == 2
        assert set(rows(graph, "node:Reader")) == {"ann"}
        assert [e["src"] for e in rows(graph, "edge:Likes").values()] == ["ann"]


def test_a_graph_in_an_object_store_is_a_target_like_any_other(
    s3_place: Place, tmp_path: Path, spark: SparkSession
) -> None:
    graph = library(s3_place.uri)
    stored = [reader("ann", age=1), reader("bob")]
    graph.load("\n".join(map(json.dumps, stored)), mode="append")
    ndjson(tmp_path / "a.ndjson", [reader("ann", age=2), book("1"), edge("Likes", "bob", "1")])
    run(records(tmp_path, index="true"), graph=graph, spark=spark)
    found = everything(graph)
    assert {name: row["age"] for name, row in found["node:Reader"].items()} == {"ann": 2, "bob": None}
    assert [e["src"] for e in found["edge:Likes"].values()] == ["bob"]
    assert graph.verify().clean
