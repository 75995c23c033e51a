"""Streams survive what kills or stops them: every change arrives once, and a micro-batch is one commit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from omnigraph import Graph
from omnigraph.engine.write.publish import Intent, PublishPlan
from omnigraph.errors import BadRequestError, ChangeSchemaBoundaryError
from omnigraph.pipeline.spark.datasource import CommitRange, OmnigraphDataSource
from omnigraph.storage.models import IDEMPOTENCY_WINDOW
from tests.engine.stored import rows
from tests.pipeline.following import NOTES, follow
from tests.pipeline.library import SCHEMA, book, library, reader
from tests.support.log_entries import list_commits
from tests.support.processes import REPOSITORY
from tests.support.waiting import wait_until

WIDER = SCHEMA.replace("age: I32?", "age: I32?  nick: String?")
READERS = ["ann", "bob", "cid", "dan"]


def changes_between(graph: Graph, first: int, **options: str) -> list[tuple[str, str, str]]:
    """What a stream with these options delivers of the commits from a version on, as a task of Spark reads it."""
    stream = OmnigraphDataSource({"graph": graph.uri, **options}).streamReader(StructType())
    rows_read = stream.read(CommitRange(first, graph.snapshot().version))
    return [(row[4], row[6], row[7]) for row in rows_read]


def test_a_stream_stops_at_a_schema_change_and_goes_on_when_it_was_accepted(tmp_path: Path) -> None:
    graph = library(tmp_path / "graph")
    graph.load(json.dumps(reader("ann")), mode="append")
    graph.schema.apply(WIDER)
    commit = graph.resolve_snapshot()
    graph.load(json.dumps(book("1")), mode="append")
    graph.load(json.dumps(reader("bob", nick="b")), mode="append")
    remedy = f"add property 'Reader.nick'.*schemaChanges=until:{commit}"
    with pytest.raises(ChangeSchemaBoundaryError, match=f"commit {commit} changed the schema of Reader; .*{remedy}"):
        changes_between(graph, 2)
    assert changes_between(graph, 2, types="Book") == [("insert", "Book", "1")]
    everything = [("insert", "Reader", "ann"), ("insert", "Book", "1"), ("insert", "Reader", "bob")]
    assert changes_between(graph, 2, schemaChanges=f"until:{commit}") == everything
    assert changes_between(graph, 2, schemaChanges="ignore") == everything
    for option, message in (("maybe", "stop, ignore or until"), ("until:nothing", "not a commit id")):
        with pytest.raises(BadRequestError, match=message):
            changes_between(graph, 2, schemaChanges=option)


def test_a_stream_of_some_types_finds_them_by_the_names_of_today(tmp_path: Path) -> None:
    """A batch that is repeated under a new name has the commits before the rename too. Rules and new types, and types
    that are gone, stop nothing."""
    graph = library(tmp_path / "graph")
    graph.load(json.dumps(reader("ann")), mode="append")
    members = SCHEMA.replace("Reader", "Member")
    graph.schema.apply(members.replace("node Member {", 'node Member @rename_from("Reader") {'))
    commit = graph.resolve_snapshot()
    graph.schema.apply(members + "node Shelf { name: String @key }")
    graph.load(json.dumps({"type": "Member", "data": {"name": "bob"}}), mode="append")
    with pytest.raises(ChangeSchemaBoundaryError, match="rename node type 'Reader' -> 'Member'"):
        changes_between(graph, 2, types="Reader")
    accepted = {"schemaChanges": f"until:{commit}"}
    inserts = [("insert", "Reader", "ann"), ("insert", "Member", "bob")]
    assert changes_between(graph, 2, types="Member", **accepted) == inserts
    assert changes_between(graph, 2, types="Reader", **accepted) == inserts[:1]


def test_a_query_that_was_stopped_by_a_schema_change_goes_on_from_its_checkpoint(
    tmp_path: Path, spark: SparkSession
) -> None:
    graph, notes, checkpoint = library(tmp_path / "graph"), Graph.init(tmp_path / "notes", NOTES), tmp_path / "stream"
    graph.load(json.dumps(reader("ann")), mode="append")
    graph.schema.apply(WIDER)
    commit = graph.resolve_snapshot()
    graph.load(json.dumps(reader("bob")), mode="append")
    with pytest.raises(StreamingQueryException, match=f"schemaChanges=until:{commit}"):
        follow(spark, graph.uri, notes.uri, str(checkpoint))
    assert versions(checkpoint) == [2, 3]
    follow(spark, graph.uri, notes.uri, str(checkpoint), schemaChanges=f"until:{commit}")
    assert sorted(note["text"] for note in rows(notes, "node:Note").values()) == ["ann", "bob"]


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
