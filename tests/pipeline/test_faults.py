"""Real processes that really die: executors, Python workers, drivers. A run is one commit or none, never a mixture."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.pipeline import run
from tests.conftest import Place
from tests.engine.stored import everything, rows
from tests.pipeline.library import book, csv, edge, library, ndjson, reader, records, rejected_rows
from tests.support.processes import REPOSITORY
from tests.support.waiting import GIVE_UP, wait_until

MANY = 4_000


def driver(
    uri: str, inputs: Path, master: str, files: Sequence[Path] = (), **environment: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.driver", uri, str(inputs), master, *map(str, files)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}", **environment},
    )


def reported(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    output, errors = process.communicate(timeout=GIVE_UP)
    assert process.returncode == 0, errors[-4000:]
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


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


def kill_while_writing(process: subprocess.Popen[str], hold: Path) -> None:
    """Kill a Python worker and then an executor, each while a task of theirs has written files and told nobody."""
    killed: set[str] = set()

    def holding() -> set[str]:
        assert process.poll() is None, f"nobody was killed: {process.communicate()[1][-4000:]}"
        return {entry.name for entry in hold.iterdir()} - killed

    for victim in ("python worker", "executor"):
        wait_until(holding, "a task has written its files")
        task = holding().pop()
        os.kill(int(task) if victim == "python worker" else executor_of(task), signal.SIGKILL)
        killed.add(task)
    (hold / "go").touch()


def executor_of(pid: str) -> int:
    while "CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_text():
        pid = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return int(pid)


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
    assert graph.maintenance.verify().clean


def every_mode(directory: Path, graph: Path) -> list[Path]:
    """Pipelines of every mode over csv, columns and SQL of Parquet, and graph records, each with rows to refuse."""
    csv(directory / "readers.csv", "full_name,years", "ann,30", "bob,31", "cid,many", "dee,151")
    books = {"isbn": ["1", "2", "3"], "title": ["one", "two", None], "pages": [1, 2, 3]}
    pq.write_table(pa.table(books), directory / "books.parquet", row_group_size=1)
    loans = {"who": ["ann", "ann", "bob", "zed"], "isbn": ["1", "2", "2", "1"]}
    pq.write_table(pa.table(loans), directory / "loans.parquet")
    ndjson(directory / "again.ndjson", [reader("ann", age=1), reader("eve", email="e"), reader("fay", email="e")])
    ndjson(directory / "all.ndjson", [book("1", "one"), book("2"), book("9", "nine", rating=0.5)])
    shared = f"version: 1\ngraph: {graph}\nquality: {{on_error: quarantine, quarantine: rejected}}\n"
    texts = {
        "append": """
mode: append
sources:
  people: {format: csv, path: readers.csv, options: {header: true}}
  books: {format: parquet, path: books.parquet}
  loans: {format: parquet, path: loans.parquet}
nodes:
  Reader: {from: people, select: {name: full_name, age: years}}
  Book: {from: books, select: {isbn: isbn, title: title, pages: pages}}
edges:
  Borrowed: {from: loans, src: who, dst: isbn, where: "who <> 'nobody'"}
""",
        "merge": "mode: merge\nsources: {again: {format: graph, path: again.ndjson}}\n",
        "overwrite": "mode: overwrite\nsources: {all: {format: graph, path: all.ndjson}}\n",
    }
    for name, text in texts.items():
        (directory / f"{name}.yaml").write_text(f"name: {name}\n{shared}{text}")
    return [directory / f"{name}.yaml" for name in texts]


def contents(graph: Graph) -> dict[str, Any]:
    """The graph without the ids that runs make up."""
    found = everything(graph)
    edges = {key: sorted((e["src"], e["dst"]) for e in found[key].values()) for key in found if key.startswith("edge")}
    return found | edges


def told(report: dict[str, Any]) -> tuple[Any, ...]:
    refused = rejected_rows(report["quarantine"]) if report["rejected"] else []
    return report["types"], [(r["file"], r["row"], r["reason"]) for r in refused]


def test_executors_of_their_own_make_the_same_graph_though_some_are_killed(tmp_path: Path, spark: SparkSession) -> None:
    """Separate executor processes with eager speculation: files of lost and of needless attempts are never named."""
    graph = library(tmp_path / "graph")
    names = many_readers(tmp_path / "in")
    (tmp_path / "modes").mkdir()
    there, here = library(tmp_path / "there"), library(tmp_path / "here")
    files = every_mode(tmp_path / "modes", tmp_path / "there")
    hold = tmp_path / "hold"
    hold.mkdir()
    process = driver(graph.uri, tmp_path / "in", "local-cluster[2,1,1024]", files, OMNIGRAPH_TEST_HOLD=str(hold))
    kill_while_writing(process, hold)
    first, *reports = reported(process)
    assert first["version"] == 2
    check_complete(graph, names)

    assert [report["mode"] for report in reports] == ["append", "merge", "overwrite"]
    local = [wire.to_builtins(run(file, graph=here, spark=spark)) for file in files]
    assert [told(report) for report in reports] == [told(report) for report in local]
    assert all(report["rejected"] for report in reports[:2])
    assert contents(there) == contents(here)
    assert there.maintenance.verify().clean


def test_a_driver_killed_around_its_publish_leaves_one_commit_or_none(tmp_path: Path, spark: SparkSession) -> None:
    points = ["publish.before:1", "publish.after:1"]
    graphs = [library(tmp_path / point) for point in points]
    ndjson(tmp_path / "in/a.ndjson", [reader("ann"), book("1"), edge("Likes", "ann", "1")])
    started = [
        driver(graph.uri, tmp_path / "in", "local[1]", OMNIGRAPH_KILL_AT=point)
        for graph, point in zip(graphs, points, strict=True)
    ]
    for process in started:
        process.communicate(timeout=GIVE_UP)
        assert process.returncode == -signal.SIGKILL
    before, after = graphs
    assert (before.snapshot().version, after.snapshot().version) == (1, 2)
    assert before.maintenance.verify().clean
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
    assert graph.maintenance.verify().clean
