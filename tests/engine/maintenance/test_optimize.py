"""Optimize: few fragments and whole indexes in one commit that changes no content, beside writers of any kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.api.maintenance import MaintenancePolicy, Retention
from omnigraph.engine.maintenance import optimize as optimizing
from omnigraph.engine.maintenance.declared_indexes import declared_indexes
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import BadRequestError
from omnigraph.storage.tables.indexes import covered_fragments
from omnigraph.storage.tables.maintenance import FULL_FRAGMENT_ROWS, FragmentFill, fragments_to_compact
from tests.engine.library import SCHEMA, blob, book, content, load, loan, reader
from tests.support.lance_tables import lance_of
from tests.support.log_entries import get_commit


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    for i in range(4):
        load(graph, [book(f"b{i}", pages=i, tags=["t"], mood=[i, 0, 1]), reader(f"r{i}"), loan(f"r{i}", f"b{i}")])
    return graph


def fragment_count(graph: Graph, type_key: str = "node:Book") -> int:
    return graph.snapshot().entry.tables[type_key].fragments


def indexes_are_whole(graph: Graph, type_key: str = "node:Book") -> bool:
    table = graph.snapshot().table(type_key)
    fragments = {f.fragment_id for f in lance_of(table).get_fragments()}
    return all(covered == fragments for covered in covered_fragments(table).values())


def test_one_commit_with_the_same_content(graph: Graph) -> None:
    before = {key: content(graph, key) for key in graph.snapshot().types()}
    version = graph.snapshot().version
    report = graph.maintenance.optimize(actor="ann")
    assert report.commit is not None
    assert report.commit.version == graph.snapshot().version == version + 1
    published = get_commit(graph, report.commit.id).commit
    assert (published.kind, report.commit.actor_id, published.actor) == ("optimize", "ann", "ann")
    assert {key: content(graph, key) for key in graph.snapshot().types()} == before
    assert [fragment_count(graph, key) for key in graph.snapshot().types()] == [1, 1, 1]
    assert indexes_are_whole(graph)
    assert len(published.changes) == 3
    assert all((c.inserted, c.updated, c.deleted) == (0, 0, 0) for c in published.changes.values())


def test_a_tidy_graph_gets_no_commit(graph: Graph) -> None:
    graph.maintenance.optimize()
    before = graph.snapshot().commit_id
    again = graph.maintenance.optimize()
    assert again.commit is None
    assert graph.snapshot().commit_id == before
    assert not any(row.committed for row in again.datasets)


def test_the_wire_form(graph: Graph) -> None:
    told = wire.to_builtins(graph.maintenance.optimize())
    assert list(told) == ["uri", "datasets"]
    assert [row["type_key"] for row in told["datasets"]] == ["edge:Borrowed", "node:Book", "node:Reader", "__manifest"]
    assert told["datasets"][1] == {
        "type_key": "node:Book",
        "fragments_removed": 4,
        "fragments_added": 1,
        "committed": True,
        "skipped": None,
        "published_dataset_version": None,
        "lance_head_version": None,
        "pending_indexes": [],
    }


def test_after_more_writes_it_takes_one_run_to_be_tidy_again(graph: Graph) -> None:
    graph.maintenance.optimize()
    load(graph, [book("b9", pages=9), book("b0", pages=100)])
    graph.mutate('query gone() { delete Book where isbn = "b1" }', "gone")
    graph.maintenance.optimize()
    assert fragment_count(graph) == 1
    assert indexes_are_whole(graph)
    assert graph.maintenance.optimize().commit is None
    table = graph.snapshot().table("node:Book")
    assert table.read(["id"], filter="pages >= 9").column("id").to_pylist().sort() == ["b0", "b9"].sort()


def test_history_stays_readable(graph: Graph) -> None:
    before = graph.snapshot().version
    graph.maintenance.optimize()
    assert sorted(content(graph, "node:Book", version=before)) == ["b0", "b1", "b2", "b3"]


def test_only_some_types(graph: Graph) -> None:
    report = graph.maintenance.optimize(types=["node:Book"])
    assert [row.type_key for row in report.datasets] == ["node:Book"]
    assert fragment_count(graph, "node:Reader") == 4
    with pytest.raises(BadRequestError, match="unknown type"):
        graph.maintenance.optimize(types=["node:Nobody"])


def test_progress_is_told_per_table(graph: Graph) -> None:
    told: list[tuple[str, int, int]] = []
    graph.maintenance.optimize(progress=lambda key, done, of: told.append((key, done, of)))
    assert told[0] == ("tables", 0, 3)
    assert sorted(key for key, _, _ in told[1:]) == ["edge:Borrowed", "node:Book", "node:Reader"]
    assert [(done, of) for _, done, of in told[1:]] == [(1, 3), (2, 3), (3, 3)]


def test_repair_and_cleanup_tell_how_far_they_are(graph: Graph) -> None:
    told: list[tuple[str, int, int]] = []
    graph.maintenance.repair(progress=lambda *step: told.append(step))
    assert told[:2] == [("reading logs", 0, 1), ("reading logs", 1, 1)]
    assert told[2] == ("checking tables", 0, 3)
    assert sorted(what for what, _, _ in told[3:]) == [
        f"checking {key} on branch main" for key in ("edge:Borrowed", "node:Book", "node:Reader")
    ]
    graph.maintenance.optimize()
    told.clear()
    report = graph.maintenance.cleanup(keep_versions=1, progress=lambda *step: told.append(step))
    assert report.versions_removed > 0
    assert list(dict.fromkeys(what for what, _, _ in told)) == [
        "listing tables",
        "marking tables",
        "looking again",
        "removing files",
    ]
    for what in ("listing tables", "removing files"):
        *_, (_, done, of) = [step for step in told if step[0] == what]
        assert 0 < done == of


def test_blobs_are_unaffected(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", SCHEMA)
    values = {"null": None, "empty": b"", "small": b"s", "large": b"l" * 100_000}
    for isbn, value in values.items():
        load(graph, [book(isbn, **({} if value is None else {"cover": blob(value)}))])
    graph.maintenance.optimize()
    for isbn, value in values.items():
        if value is not None:
            found = graph.read_blob("node", "Book", isbn, "cover").content
            assert found.read() == value  # type: ignore[union-attr]
    cells = graph.snapshot().scan("node:Book", ["isbn", "cover"]).to_pylist()
    assert [c["isbn"] for c in cells if c["cover"] is None] == ["null"]


@pytest.mark.parametrize("kind", ["append", "update", "delete", "replace"])
def test_a_writer_that_overtakes_loses_nothing_and_costs_no_second_optimize(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The writer commits after the files were written and before the publish."""
    other = Graph.open(graph.uri)
    writes = {
        "append": lambda: load(other, [book("new", pages=50)], "append"),
        "update": lambda: load(other, [book("b2", pages=77)]),
        "delete": lambda: other.mutate('query gone() { delete Book where isbn = "b3" }', "gone"),
        "replace": lambda: load(other, [book("only"), reader("r"), loan("r", "only")], "overwrite"),
    }
    pending = [kind]
    original = Workspace.publish

    def overtaken(*arguments):  # type: ignore[no-untyped-def]
        if pending:
            writes[pending.pop()]()
        return original(*arguments)

    monkeypatch.setattr(Workspace, "publish", overtaken)
    report = graph.maintenance.optimize()
    expected = {
        "append": {"b0": 0, "b1": 1, "b2": 2, "b3": 3, "new": 50},
        "update": {"b0": 0, "b1": 1, "b2": 77, "b3": 3},
        "delete": {"b0": 0, "b1": 1, "b2": 2},
        "replace": {"only": None},
    }[kind]
    assert {isbn: row["pages"] for isbn, row in content(graph, "node:Book").items()} == expected
    assert report.commit is not None
    assert {row.type_key: row.committed for row in report.datasets}["node:Book"]
    for isbn, pages in expected.items():
        if pages is not None:
            rows = graph.snapshot().table("node:Book").read(["id"], filter=f"pages = {pages}")
            assert rows.column("id").to_pylist() == [isbn]
    assert graph.maintenance.verify().clean


def test_replaying_on_an_appended_version_writes_no_data_again(graph: Graph) -> None:
    root, type_ = graph._workspace.root, graph.catalog.nodes["Book"]
    work = root.table_maintenance.optimize(graph.snapshot().entry.tables["node:Book"], declared_indexes(type_))
    load(graph, [book("new", pages=50)], "append")
    replayed = root.table_maintenance.replay(work, graph.snapshot().entry.tables["node:Book"])
    assert replayed is not None
    table = root.reader.open(replayed.staged.state)
    made = {name for name in root.reader.open(work.staged.state).files() if not name.startswith("_versions/")}
    assert made <= table.files()
    assert sorted(table.read(["id"]).column("id").to_pylist()) == ["b0", "b1", "b2", "b3", "new"]
    assert table.read(["id"], filter="pages = 50").num_rows == 1


def test_work_that_never_gets_through_is_left_for_the_next_run(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Graph.open(graph.uri)
    turns = iter(range(100))
    original = Workspace.publish

    def always_overtaken(*arguments):  # type: ignore[no-untyped-def]
        load(other, [book("b0", pages=100 + next(turns))])
        return original(*arguments)

    monkeypatch.setattr(optimizing, "_ROUNDS", 2)
    monkeypatch.setattr(Workspace, "publish", always_overtaken)
    report = graph.maintenance.optimize()
    rows = {row.type_key: row for row in report.datasets}
    assert not rows["node:Book"].committed
    assert rows["node:Reader"].committed
    assert content(graph, "node:Book")["b0"]["pages"] == 101


def test_any_branch(graph: Graph) -> None:
    graph.create_branch("side")
    graph.maintenance.optimize("side")
    assert graph.snapshot("side").entry.tables["node:Book"].fragments == 1
    assert fragment_count(graph) == 4


@pytest.mark.parametrize(
    ("fills", "chosen"),
    [
        ([], set()),
        ([FragmentFill(0, 10, 0, 1, 100)], set()),
        ([FragmentFill(0, 10, 5, 1, 100)], {0}),
        ([FragmentFill(0, 10, 0, 4, 100)], {0}),
        ([FragmentFill(0, 10, 0, 1, 100), FragmentFill(1, 10, 0, 1, 100)], {0, 1}),
        ([FragmentFill(0, FULL_FRAGMENT_ROWS, 0, 1, 100), FragmentFill(1, 10, 0, 1, 100)], set()),
        ([FragmentFill(0, FULL_FRAGMENT_ROWS, FULL_FRAGMENT_ROWS, 1, 100), FragmentFill(1, 10, 0, 1, 100)], {0, 1}),
    ],
)
def test_what_is_worth_compacting(fills: list[FragmentFill], chosen: set[int]) -> None:
    assert fragments_to_compact(fills) == chosen


def test_maintenance_acts_only_past_a_threshold(graph: Graph) -> None:
    idle = graph.maintenance.maintain(MaintenancePolicy(small_fragments=4, uncovered_rows=4, deleted_share=0.5))
    assert (idle.reasons, idle.optimized, idle.cleaned) == ({}, None, None)
    busy = graph.maintenance.maintain(MaintenancePolicy(small_fragments=3, uncovered_rows=100))
    assert busy.reasons.keys() == {"edge:Borrowed", "node:Book", "node:Reader"}
    assert fragment_count(graph) == 1
    load(graph, [book("b9")])
    uncovered = graph.maintenance.maintain(MaintenancePolicy(uncovered_rows=0))
    assert uncovered.reasons == {"node:Book": "1 row outside an index"}
    graph.mutate("query gone() { delete Book where pages = 1 }", "gone")
    policy = MaintenancePolicy(deleted_share=0.1, retention=Retention(keep_versions=1), released_versions=1)
    worn = graph.maintenance.maintain(policy)
    assert worn.reasons == {"node:Book": "1 deleted rows beside 4", "edge:Borrowed": "1 deleted rows beside 3"}
    assert worn.cleaned is not None
    assert worn.cleaned.versions_removed > 0
