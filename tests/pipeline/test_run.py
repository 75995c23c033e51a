"""Runs on a local session: what each mode does, what happens to bad rows, and that one run is one commit or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.api.service.pipeline import StageEvent
from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy, Scope
from omnigraph.errors import BadRequestError, CommitOutcomeUnknownError, ReadSetChangedError, RowsRejectedError
from omnigraph.pipeline import explain, read_pipeline, run
from tests.engine.stored import rows
from tests.pipeline.library import book, csv, edge, library, ndjson, quarantine, reader, records, rejected_rows
from tests.storage.test_faults import LosesAnswers, publishes
from tests.support.lance_tables import lance_of
from tests.support.log_entries import list_commits


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return library(tmp_path / "graph")


MAPPED = """\
version: 1
name: mapped
mode: merge
sources:
  people: {format: csv, path: people/*.csv, options: {header: true}}
  books: {format: parquet, path: books}
  loans: {format: json, path: loans.ndjson}
  recent: {sql: "select * from loans where day >= '2026-01-01'"}
nodes:
  Reader: {from: people, select: {name: full_name, age: age, email: mail}, where: "full_name is distinct from 'skip'"}
  Book: {from: books, select: {isbn: cast(number as string), title: title, printed: printed}}
edges:
  Borrowed: {from: recent, src: who, dst: isbn, select: {on: day}}
"""


def mapped_inputs(directory: Path, spark: SparkSession) -> None:
    csv(directory / "people/a.csv", "full_name,age,mail", "ann,3,a@x", "bob,4,", "skip,,")
    csv(directory / "people/b.csv", "full_name,age,mail", "cid,,c@x")
    books = "(1, 'Solaris', date '1961-01-01'), (2, 'Roadside Picnic', null)"
    frame = spark.sql(f"select * from values {books} as t(number, title, printed)")
    frame.write.parquet(str(directory / "books"))
    ndjson(
        directory / "loans.ndjson",
        [
            {"who": "ann", "isbn": 1, "day": "2026-01-02"},
            {"who": "bob", "isbn": 2, "day": "2025-01-02"},
            {"who": "cid", "isbn": 2, "day": "2026-03-04"},
        ],
    )


def test_sources_of_several_formats_become_one_commit(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    mapped_inputs(tmp_path, spark)
    events: list[StageEvent] = []
    pipeline = read_pipeline(MAPPED + "index: true\n", directory=str(tmp_path))
    report = run(pipeline, graph=graph, spark=spark, actor="nightly", progress=events.append)
    assert set(rows(graph, "node:Reader")) == {"ann", "bob", "cid"}
    assert rows(graph, "node:Book")["1"]["title"] == "Solaris"
    assert {(e["src"], e["dst"]) for e in rows(graph, "edge:Borrowed").values()} == {("ann", "1"), ("cid", "2")}
    commits = list_commits(graph).commits
    assert len(commits) == 2
    assert (commits[0].commit.kind, commits[0].commit.actor) == ("pipeline", "nightly")
    assert commits[0].commit.details["pipeline.run_id"] == report.run_id
    assert commits[0].commit.changes["node:Reader"].inserted == 3
    counts = {t.type_key: (t.read, t.accepted, t.rejected, t.inserted) for t in report.types}
    assert counts["node:Reader"] == (3, 3, 0, 3)
    assert {"read", "write", "check", "index", "publish"} <= {e.stage for e in events if e.seconds is not None}
    indexes = {i.name for i in lance_of(graph.snapshot().table("node:Book")).describe_indices()}
    assert {"id_btree", "title_full_text"} <= indexes
    assert graph.maintenance.verify().clean
    assert json.loads(json.dumps(wire.to_builtins(report)))["commit_id"] == report.commit_id
    assert any(report.commit_id and report.commit_id in line for line in report.lines())


def test_a_repeated_run_is_recognised_and_new_input_is_not(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    ndjson(tmp_path / "a.ndjson", [reader("ann")])
    first = run(records(tmp_path), graph=graph, spark=spark)
    again = run(records(tmp_path), graph=graph, spark=spark)
    assert (again.replayed, again.commit_id) == (True, first.commit_id)
    assert [t.inserted for t in again.types] == [1]
    forced = run(records(tmp_path), graph=graph, spark=spark, force=True)
    assert not forced.replayed
    ndjson(tmp_path / "b.ndjson", [reader("bob")])
    assert not run(records(tmp_path), graph=graph, spark=spark).replayed
    assert set(rows(graph, "node:Reader")) == {"ann", "bob"}


def test_a_merge_replaces_stored_rows_and_takes_the_last_of_an_id(
    tmp_path: Path, graph: Graph, spark: SparkSession
) -> None:
    graph.load("\n".join(json.dumps(r) for r in [reader("ann", age=1), reader("bob", age=2)]), mode="append")
    ndjson(tmp_path / "a.ndjson", [reader("ann", age=3), reader("cid", age=5), reader("ann", age=4)])
    report = run(records(tmp_path), graph=graph, spark=spark)
    assert {name: row["age"] for name, row in rows(graph, "node:Reader").items()} == {"ann": 4, "bob": 2, "cid": 5}
    (counts,) = report.types
    assert (counts.read, counts.superseded, counts.inserted, counts.updated) == (3, 1, 1, 1)


def test_an_overwrite_replaces_the_types_it_brings(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    graph.load("\n".join(json.dumps(r) for r in [reader("ann"), reader("bob"), book("1")]), mode="append")
    ndjson(tmp_path / "a.ndjson", [reader("cid")])
    run(records(tmp_path, "overwrite"), graph=graph, spark=spark)
    assert set(rows(graph, "node:Reader")) == {"cid"}
    assert set(rows(graph, "node:Book")) == {"1"}


def test_an_overwrite_that_orphans_a_stored_edge_is_refused(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    stored = [reader("ann"), book("1"), edge("Likes", "ann", "1")]
    graph.load("\n".join(json.dumps(r) for r in stored), mode="append")
    ndjson(tmp_path / "a.ndjson", [reader("cid")])
    with pytest.raises(BadRequestError, match="would be orphaned: src 'ann' not found in Reader"):
        run(records(tmp_path, "overwrite"), graph=graph, spark=spark)
    assert set(rows(graph, "node:Reader")) == {"ann"}


STORED = [reader("ann", email="a@x"), book("1"), book("2"), book("3")]
REFUSALS: list[tuple[str, list[Any], str, str]] = [
    ("append", [reader("ann")], "node:Reader already holds the id 'ann'", "id"),
    (
        *("append", [reader("bob"), reader("bob")]),
        *("@unique violation on Reader.name: value 'bob' held by 'bob' and 'bob'", "key"),
    ),
    (
        *("merge", [reader("bob", email="a@x")]),
        *("@unique violation on Reader.email: value 'a@x' held by 'ann' and 'bob'", "unique"),
    ),
    ("merge", [edge("Likes", "zed", "1")], "edge Likes: src 'zed' not found in Reader", "endpoint"),
    ("merge", [edge("Likes", "ann", "9")], "edge Likes: dst '9' not found in Book", "endpoint"),
    ("merge", [edge("Borrowed", "ann", i) for i in "123"], "source 'ann' has 3 edges (max 2)", "cardinality"),
    ("merge", [reader("bob", age=151)], "@range violation on Reader.age: value 151 > max 150", "range"),
    ("merge", ["nonsense"], "invalid strict JSON: JSON is malformed", "record"),
]


@pytest.mark.parametrize(("mode", "given", "reason", "rule"), REFUSALS, ids=[r[2][:40] for r in REFUSALS])
def test_a_bad_row_fails_the_run_with_its_place_and_reason(
    tmp_path: Path, graph: Graph, spark: SparkSession, mode: str, given: list[Any], reason: str, rule: str
) -> None:
    graph.load("\n".join(map(json.dumps, STORED)), mode="append")
    head = graph.snapshot().commit_id
    file = ndjson(tmp_path / "in/a.ndjson", [*given, ""])
    with pytest.raises(RowsRejectedError) as raised:
        run(records(tmp_path / "in", mode), graph=graph, spark=spark)
    assert raised.value.total == 1
    assert raised.value.samples[0].startswith(f"{file}, line {len(given)}: ")
    assert reason in raised.value.samples[0]
    assert (raised.value.rule, raised.value.line) == (rule, len(given))
    assert graph.snapshot().commit_id == head
    assert graph.maintenance.verify().clean


def test_bad_rows_go_to_the_quarantine_and_the_rest_is_loaded(
    tmp_path: Path, graph: Graph, spark: SparkSession
) -> None:
    csv(tmp_path / "people/a.csv", "full_name,age,mail", "ann,3,a@x", "bob,old,b@x", "cid,4,a@x", "dan,1,2,3", ",5,")
    ndjson(tmp_path / "books.ndjson", [book("1")])
    ndjson(tmp_path / "loans.ndjson", [{"who": w, "isbn": "1"} for w in ("ann", "cid", "zed")])
    text = f"""\
version: 1
mode: append
sources:
  people: {{format: csv, path: people/*.csv, options: {{header: true}}}}
  books: {{format: graph, path: books.ndjson}}
  loans: {{format: json, path: loans.ndjson}}
nodes:
  Reader: {{from: people, select: {{name: full_name, age: age, email: mail}}}}
edges:
  Borrowed: {{from: loans, src: who, dst: isbn}}
quality: {{{quarantine(tmp_path)}}}
"""
    report = run(read_pipeline(text, directory=str(tmp_path)), graph=graph, spark=spark)
    assert set(rows(graph, "node:Reader")) == {"ann"}
    assert [e["src"] for e in rows(graph, "edge:Borrowed").values()] == ["ann"]
    assert report.quarantine is not None
    kept = rejected_rows(report.quarantine)
    assert [(Path(r["file"]).name, r["row"], r["reason"]) for r in kept] == [
        ("loans.ndjson", 2, "edge Borrowed: src 'cid' not found in Reader"),
        ("loans.ndjson", 3, "edge Borrowed: src 'zed' not found in Reader"),
        ("a.csv", 2, "property 'age': expects I32, got a string"),
        ("a.csv", 3, "@unique violation on Reader.email: value 'a@x' held by 'ann' and 'cid'"),
        ("a.csv", 4, "the record is malformed: it has 4 values where its file has 3 columns"),
        ("a.csv", 5, "non-nullable property 'name' has null value, and it is part of the @key"),
    ]
    assert json.loads(kept[2]["record"]) == reader("bob", age="old", email="b@x")
    assert report.rejected == 6


def test_more_bad_rows_than_allowed_fail_the_run(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    ndjson(tmp_path / "in/a.ndjson", [reader("ann"), "x", "y"])
    with pytest.raises(BadRequestError, match="rejected"):
        run(records(tmp_path / "in", quality=quarantine(tmp_path, most=1)), graph=graph, spark=spark)
    assert graph.snapshot().count("node:Reader") == 0
    assert data_files(graph) == []


def data_files(graph: Graph) -> list[str]:
    return [stored.path for stored in graph._workspace.root.objects.below("nodes") if "/data/" in stored.path]


def test_a_dry_run_reports_what_would_change_and_changes_nothing(
    tmp_path: Path, graph: Graph, spark: SparkSession
) -> None:
    ndjson(tmp_path / "a.ndjson", [reader("ann"), "nonsense"])
    judged = quarantine(tmp_path / "bad", most=1)
    report = run(records(tmp_path, quality=judged), graph=graph, spark=spark, dry_run=True)
    assert (report.dry_run, report.commit_id, report.rejected, report.quarantine) == (True, None, 1, None)
    assert [sample.row for sample in report.samples] == [2]
    assert {t.type_key: t.inserted for t in report.types if t.inserted} == {"node:Reader": 1}
    assert graph.snapshot().version == 1
    assert data_files(graph) == []
    assert not (tmp_path / "bad").exists()
    ndjson(tmp_path / "a.ndjson", [reader("ann")])
    plan = explain(records(tmp_path), graph=graph, spark=spark)
    assert plan.steps[-1] == "publish one commit on main (merge)"
    assert not run(records(tmp_path), graph=graph, spark=spark).replayed


def test_a_missing_branch_comes_into_being_with_the_run(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    ndjson(tmp_path / "a/a.ndjson", ["nonsense"])
    target = {"branch": "ingest/nightly", "from": "main"}
    with pytest.raises(RowsRejectedError):
        run(records(tmp_path / "a", **target), graph=graph, spark=spark)
    assert graph.list_branches() == ["main"]
    ndjson(tmp_path / "a/a.ndjson", [reader("ann")])
    report = run(records(tmp_path / "a", **target), graph=graph, spark=spark)
    assert report.branch_created
    assert set(rows(graph, "node:Reader", "ingest/nightly")) == {"ann"}
    assert graph.snapshot().count("node:Reader") == 0


class MovedBranch:
    """Another writer that commits once, when the run has checked its rows and is about to publish."""

    def __init__(self, graph: Graph, *given: dict[str, Any]) -> None:
        self.graph = graph
        self.given = given

    def __call__(self, event: StageEvent) -> None:
        if event.stage == "check" and event.seconds is not None and self.given:
            self.graph.load("\n".join(map(json.dumps, self.given)), mode="merge")
            self.given = ()


def test_a_run_follows_a_branch_that_moved_elsewhere(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    ndjson(tmp_path / "a.ndjson", [reader("ann")])
    run(records(tmp_path), graph=graph, spark=spark, progress=MovedBranch(graph, book("1")))
    assert set(rows(graph, "node:Reader")) == {"ann"}
    assert set(rows(graph, "node:Book")) == {"1"}


def test_a_run_is_judged_again_when_its_own_types_moved(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    ndjson(tmp_path / "a.ndjson", [reader("ann", email="a@x")])
    moved = MovedBranch(graph, reader("bob", email="a@x"))
    with pytest.raises(RowsRejectedError, match="held by 'bob' and 'ann'"):
        run(records(tmp_path), graph=graph, spark=spark, progress=moved)
    assert set(rows(graph, "node:Reader")) == {"bob"}


def test_after_a_publish_was_tried_a_run_takes_nothing_back(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    """Who lost a race, or never heard of the outcome, leaves its files to cleanup: an entry may name them."""
    ndjson(tmp_path / "a/a.ndjson", [reader("ann")])
    with pytest.raises(RowsRejectedError, match="ann"):
        run(records(tmp_path / "a", "append"), graph=graph, spark=spark, progress=MovedBranch(graph, reader("ann")))
    assert len(data_files(graph)) == 2
    ndjson(tmp_path / "b/b.ndjson", [reader("bob")])
    graph._workspace.root.objects.interceptor = LosesAnswers(publishes, times=100)
    with pytest.raises(CommitOutcomeUnknownError):
        run(records(tmp_path / "b"), graph=graph, spark=spark)
    graph._workspace.root.objects.interceptor = None
    assert set(rows(graph, "node:Reader")) == {"ann", "bob"}
    assert graph.maintenance.verify().clean


def test_a_strict_run_never_rebases_itself(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    ndjson(tmp_path / "a.ndjson", [reader("ann")])
    with pytest.raises(ReadSetChangedError):
        run(records(tmp_path, "overwrite"), graph=graph, spark=spark, progress=MovedBranch(graph, reader("bob")))
    assert set(rows(graph, "node:Reader")) == {"bob"}


WRONG = [
    ("sources: {a: {format: csv, path: nowhere.csv}}\nnodes: {Reader: {from: a, select: {name: n}}}", "source 'a'"),
    ("sources: {a: {sql: select 1 as n}}\nnodes: {Reader: {from: a, select: {name: m}}}", "node:Reader.name: 'm'"),
    ("sources: {a: {sql: select * from b}}\nnodes: {Reader: {from: a, select: {name: n}}}", "source 'a'"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=["no file", "no column", "no table"])
def test_what_spark_refuses_is_told_in_one_line(
    tmp_path: Path, graph: Graph, spark: SparkSession, text: str, message: str
) -> None:
    with pytest.raises(BadRequestError, match=message) as raised:
        run(read_pipeline(f"version: 1\n{text}", directory=str(tmp_path)), graph=graph, spark=spark)
    assert "\n" not in str(raised.value)


def test_external_blobs_are_judged_like_those_of_a_load(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "photo.bin").write_bytes(b"pixels")
    schema = "node Picture { name: String @key  photo: Blob? }"
    given = [
        {"type": "Picture", "data": {"name": "inline", "photo": "base64:aGk="}},
        {"type": "Picture", "data": {"name": "outside", "photo": f"file://{tmp_path}/photo.bin"}},
    ]
    ndjson(tmp_path / "in/a.ndjson", given)
    denying = Graph.init(tmp_path / "denying", schema)
    with pytest.raises(RowsRejectedError, match="is not admitted"):
        run(records(tmp_path / "in"), graph=denying, spark=spark)
    admitting = Graph.init(tmp_path / "admitting", schema).with_external_blobs(
        ExternalBlobPolicy.allow(AllowedBase(f"file://{tmp_path}", Scope.EMBEDDED_ONLY))
    )
    run(records(tmp_path / "in"), graph=admitting, spark=spark)
    stored = rows(admitting, "node:Picture")
    assert {name: row["photo"] for name, row in stored.items()} == {"inline": b"hi", "outside": b"pixels"}
