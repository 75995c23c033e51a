"""Streams survive what kills them: every change arrives once, and a micro-batch is one commit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.engine.write.publish import Intent, PublishPlan
from omnigraph.storage.models import IDEMPOTENCY_WINDOW
from tests.engine.stored import rows
from tests.pipeline.following import NOTES, follow
from tests.pipeline.library import book, library, reader
from tests.support.log_entries import list_commits
from tests.support.processes import REPOSITORY
from tests.support.waiting import wait_until

READERS = ["ann", "bob", "cid", "dan"]


def stream_until_killed(graph: Graph, notes: Graph, checkpoint: Path, commits: int) -> None:
    """A process of its own, killed with everything it started as soon as it has made some commits."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.following", graph.uri, notes.uri, str(checkpoint)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"},
        start_new_session=True,
    )
    try:
        wait_until(lambda: notes.snapshot().version > commits or process.poll() is not None, "the stream commits")
        assert notes.snapshot().version > commits, process.communicate()[1].decode()[-4000:]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def versions(checkpoint: Path) -> list[int]:
    """Where each micro-batch ended, in order, as Spark keeps it."""
    files = sorted((f for f in (checkpoint / "offsets").iterdir() if f.name.isdecimal()), key=lambda f: int(f.name))
    return [json.loads(file.read_text().splitlines()[-1])["version"] for file in files]


def forget_that_the_last_batch_was_done(checkpoint: Path, made: int) -> None:
    """A death between our commit and Spark's note of it. The kill may have hit just that, or a little later."""
    done = checkpoint / "commits"
    for file in [done / f"{made - 1}", done / f".{made - 1}.crc"]:
        file.unlink(missing_ok=True)


def test_a_stream_that_was_killed_goes_on_where_it_was_and_repeats_nothing(tmp_path: Path, spark: SparkSession) -> None:
    graph = library(tmp_path / "graph")
    for name in READERS[:3]:
        graph.load(json.dumps(reader(name)), mode="append")
    graph.load(json.dumps(book("1")), mode="append")

    before = 1 + 3
    while before == 1 + 3:  # once more if it was through before it could be killed
        place = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        notes, checkpoint = Graph.init(place / "notes", NOTES), place / "stream"
        stream_until_killed(graph, notes, checkpoint, 1)
        before = notes.snapshot().version
    forget_that_the_last_batch_was_done(checkpoint, before - 1)
    # Meanwhile others write so much that the branch has forgotten the keys of the stream.
    for number in range(IDEMPOTENCY_WINDOW + 1):
        intent = Intent(kind="load", idempotency_key=f"other {number}")
        notes._workspace.commit("main", lambda txn: PublishPlan(staged={}), intent)
    for name in READERS[3:]:
        graph.load(json.dumps(reader(name)), mode="append")

    follow(spark, graph.uri, notes.uri, str(checkpoint))

    assert sorted(note["text"] for note in rows(notes, "node:Note").values()) == READERS
    commits = list_commits(notes, limit=200).commits
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    batches = [entry.recent_keys[-1].key for entry in reversed(commits) if entry.commit.kind == "pipeline"]
    # A micro-batch per commit of the library; the one that brought a book had nothing to write.
    assert batches == [f"stream:{query}:{batch}" for batch in (0, 1, 2, 4)]
    assert versions(checkpoint) == [2, 3, 4, 5, 6]
    assert notes.maintenance.verify().clean
