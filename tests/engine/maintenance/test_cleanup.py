"""Cleanup: what a policy releases goes, what any retained snapshot names stays, and nothing else is ever touched."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import lance
import pytest

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.api.maintenance import Retention, duration
from omnigraph.engine.maintenance import cleanup as cleaning
from omnigraph.engine.maintenance.cleanup import cleanup
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn, publish
from omnigraph.errors import BadRequestError, ConflictError, HistoricalVersionReclaimedError, StorageError
from omnigraph.storage.log.write_guard import GRACE
from omnigraph.storage.models import TableState
from tests.conftest import Place
from tests.engine.library import SCHEMA, blob, book, load, loan, reader
from tests.engine.maintenance.test_cleanup_clock import turn_clock
from tests.support.costs import settle
from tests.support.disks import small_disk
from tests.support.tables import PEOPLE, append_one, ids, new_graph, nodes

NO_GRACE = timedelta(0)


def release(graph: Graph, keep: int = 1, *, grace: timedelta = GRACE) -> cleaning.CleanupReport:
    """A cleanup that nobody else can run into, so that it need not wait."""
    return cleanup(graph._workspace, Retention(keep_versions=keep), grace=grace)


def grown(uri: str, commits: int = 5) -> Graph:
    graph = new_graph(uri)
    for i in range(commits):
        append_one(graph, f"p{i}")
    return graph


def files(graph: Graph) -> dict[str, int]:
    """The sizes of all files of the graph, once the hint of the last commit is written in the background."""
    settle(graph)
    root = Path(graph.uri)
    return {str(p.relative_to(root)): p.stat().st_size for p in root.rglob("*") if p.is_file()}


def readable(graph: Graph) -> list[int]:
    """The versions of main whose tables all open and read, as a fresh handle sees them."""
    fresh, found = Graph.open(graph.uri), []
    for version in range(1, fresh.snapshot().version + 1):
        try:
            snapshot = fresh.snapshot(version=version)
            for type_key in snapshot.types():
                assert snapshot.scan(type_key).num_rows == snapshot.count(type_key)
        except HistoricalVersionReclaimedError:
            continue
        found.append(version)
    return found


def test_the_records_of_released_writes_go_with_them(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "graph"), commits=8)
    release(graph, keep=2)
    based_on = [name.rsplit("/", 1)[-1].split("-")[0] for name in files(graph) if "/_transactions/" in name]
    # Of eight: the one that made the newest version, and one of a fold, whose base was never published.
    assert len([version for version in based_on if int(version) > 1]) <= 2
    append_one(graph, "after")
    assert len(ids(graph)) == 9


@pytest.mark.parametrize(
    ("keep", "left"),
    [(0, [6]), (1, [6]), (2, [5, 6]), (4, [3, 4, 5, 6]), (6, [1, 2, 3, 4, 5, 6]), (99, list(range(1, 7)))],
)
def test_the_newest_versions_are_kept(tmp_path: Path, keep: int, left: list[int]) -> None:
    graph = grown(str(tmp_path / "g"))
    release(graph, keep)
    # Version 1 holds nothing but the empty tables every dataset is born with, which are never deleted.
    assert readable(graph) == sorted({1, *left})
    assert graph.maintenance.verify().clean
    append_one(graph, "after")
    assert len(ids(graph)) == 6


def test_versions_of_a_recent_time_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as turned:
        turn_clock(turned, -timedelta(minutes=50))
        graph = grown(str(tmp_path / "g"), 3)
    for name in ("late", "later"):
        append_one(graph, name)
    cleanup(graph._workspace, Retention(older_than=timedelta(minutes=25)))
    # Version 4 was the state of the graph at the beginning of the retained time.
    assert readable(graph) == [1, 4, 5, 6]


def test_a_version_goes_only_if_it_fails_both_tests(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"))
    cleanup(graph._workspace, Retention(keep_versions=2, older_than=timedelta(days=1)))
    assert readable(graph) == [1, 2, 3, 4, 5, 6]
    cleanup(graph._workspace, Retention(keep_versions=3, older_than=NO_GRACE))
    assert readable(graph) == [1, 4, 5, 6]


def test_a_policy_is_required(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"), 1)
    with pytest.raises(BadRequestError, match=r"keep.*older"):
        graph.maintenance.cleanup()
    with pytest.raises(BadRequestError):
        graph.maintenance.cleanup(keep_versions=-1)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), (90, 90), ("15m", 900), ("2h", 7200), ("7d", 604800), ("1w", 604800), ("0", 0)]
)
def test_durations(text: str | int, seconds: int) -> None:
    assert duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "-1", "3x", "1.5h", "d", "7 days"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadRequestError):
        duration(text)


def test_the_wire_form(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"))
    report = graph.maintenance.cleanup(keep_versions=2, older_than="0s")
    told = wire.to_builtins(report)
    assert list(told) == ["uri", "keep_versions", "older_than_secs", "datasets"]
    assert (told["keep_versions"], told["older_than_secs"]) == (2, 0)
    assert [row["type_key"] for row in told["datasets"]] == ["edge:Knows", "node:Person", "node:Place"]
    person = told["datasets"][1]
    assert list(person) == ["type_key", "bytes_removed", "old_versions_removed", "error"]
    assert (person["old_versions_removed"], person["error"]) == (3, None)


def test_a_dry_run_counts_what_a_real_run_then_removes(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"))
    before = files(graph)
    told = graph.maintenance.cleanup(keep_versions=1, dry_run=True)
    assert files(graph) == before
    done = release(graph)
    assert told.datasets == done.datasets
    assert done.bytes_removed == sum(before.values()) - sum(files(graph).values()) > 0


def test_heads_private_history_and_fork_points_of_live_branches_are_pinned(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"), 3)
    graph.create_branch("old", source=graph.snapshot(version=2).commit_id)
    graph.create_branch("side")
    for i in range(3):
        append_one(graph, f"s{i}", "side")
    for i in range(3):
        append_one(graph, f"m{i}")
    release(graph, grace=NO_GRACE)
    assert readable(graph) == [1, 2, 4, 7]
    fresh = Graph.open(graph.uri)
    assert [ids(fresh, branch=b) for b in ("old", "side")] == [["p0"], ["p0", "p1", "p2", "s0", "s1", "s2"]]
    for version in (5, 6, 7):
        assert fresh.snapshot("side", version=version).scan(PEOPLE).num_rows == version - 1
    append_one(fresh, "more", "old")


def test_what_a_deleted_branch_leaves_waits_for_the_grace_period(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"), 1)
    graph.create_branch("side")
    append_one(graph, "s", "side")
    graph.delete_branch("side")
    before = files(graph)
    release(graph)
    assert files(graph) == before
    assert release(graph, grace=NO_GRACE).bytes_removed > 0
    assert ids(Graph.open(graph.uri)) == ["p0"]


def test_writes_in_flight_are_safe_within_the_grace_period(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"), 2)
    txn = graph._workspace.begin("main", Intent(kind="load"))
    staged = txn.stage({PEOPLE: lambda s: graph._workspace.root.staging.append(s, nodes({"late": 1}))})
    release(graph)
    graph._workspace.publish(txn, PublishPlan(staged))
    assert ids(Graph.open(graph.uri)) == ["late", "p0", "p1"]
    assert graph.maintenance.verify().clean


def test_staged_leavings_go_after_the_grace_period(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"), 1)
    state = graph.snapshot().entry.tables[PEOPLE]
    graph._workspace.root.staging.append(state, nodes({"never": 1}))
    before = files(graph)
    release(graph)
    assert files(graph) == before
    release(graph, grace=NO_GRACE)
    assert sorted(f for f in files(graph) if "/data/" in f) == sorted(
        f"{state.path}/{name}" for name in graph._workspace.root.reader.open(state).files() if name.startswith("data/")
    )


def test_large_blobs_live_exactly_as_long_as_their_rows(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", SCHEMA)
    large, huge = b"l" * 100_000, b"h" * 5_000_000
    load(graph, [book("a", cover=blob(large)), book("b", cover=blob(huge)), book("c", cover=blob(b"small"))])
    load(graph, [book("b", cover=blob(b"replaced"))])
    graph.maintenance.optimize()
    release(graph, grace=NO_GRACE)
    fresh = Graph.open(graph.uri)
    values = {i: fresh.read_blob("node", "Book", i, "cover").content for i in "abc"}
    read = {i: value.read() for i, value in values.items()}  # type: ignore[union-attr]
    assert read == {"a": large, "b": b"replaced", "c": b"small"}
    assert sum(size for name, size in files(graph).items() if name.endswith(".blob")) < 1_000_000


def test_indexes_of_retained_versions_stay_usable_and_old_ones_go(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", SCHEMA)
    load(graph, [book(f"b{i}", pages=i) for i in range(5)])
    graph.maintenance.optimize()
    load(graph, [book("b0", pages=99)])
    graph.maintenance.optimize()
    before = {name.split("/_indices/")[1][:36] for name in files(graph) if "/_indices/" in name}
    release(graph, grace=NO_GRACE)
    after = {name.split("/_indices/")[1][:36] for name in files(graph) if "/_indices/" in name}
    assert after < before
    table = Graph.open(graph.uri).snapshot().table("node:Book")
    assert table.read(["id"], filter="pages = 99").column("id").to_pylist() == ["b0"]
    assert all(any(folder.iterdir()) for folder in Path(graph.uri).glob("*/*/_indices/*")), "no empty folder is left"


def test_a_dropped_type_goes_with_the_history_that_had_it(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", SCHEMA)
    load(graph, [book("a"), reader("r"), loan("r", "a")])
    graph.schema.apply(SCHEMA.replace("edge Borrowed: Reader -> Book { on: DateTime?  note: String? }", ""))
    assert any(name.startswith("edges/") and "/data/" in name for name in files(graph))
    release(graph)
    assert not any(name.startswith("edges/") and "/data/" in name for name in files(graph))
    release(graph, grace=NO_GRACE)
    assert not any(name.startswith("edges/") for name in files(graph))
    assert graph.maintenance.verify().clean


def test_nothing_outside_the_layout_of_a_table_is_touched(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"))
    table = Path(graph.uri) / graph.snapshot().entry.tables[PEOPLE].path
    strangers = [
        Path(graph.uri) / "README",
        Path(graph.uri) / "nodes" / "notes.txt",
        table / "mine.txt",
        table / "data" / "report.parquet",
        table / "_versions" / "note.manifest",
        table / "_indices" / "short" / "x",
    ]
    for path in strangers:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("keep me")
    others = {name for name in files(graph) if name.startswith(("__manifest/", "schemas/"))}
    release(graph, grace=NO_GRACE)
    assert all(path.read_text() == "keep me" for path in strangers)
    assert others <= set(files(graph))


def test_what_another_tool_attached_is_not_ours_to_delete(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"), 2)
    uri = f"{graph.uri}/{graph.snapshot().entry.tables[PEOPLE].path}"
    lance.write_dataset(nodes({"foreign": 7}), uri, mode="append")
    release(graph, grace=NO_GRACE)
    assert lance.dataset(uri).to_table().column("id").to_pylist() == ["foreign"]


def test_an_unreadable_head_stops_everything(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"))
    graph.create_branch("side")
    append_one(graph, "s", "side")
    state = graph.snapshot("side").entry.tables[PEOPLE]
    os.remove(Path(graph.uri) / state.path / "_versions" / f"d{state.version}.manifest")
    before = files(graph)
    with pytest.raises(ConflictError, match="nothing was removed"):
        release(Graph.open(graph.uri), grace=NO_GRACE)
    assert files(graph) == before


def test_a_table_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", SCHEMA)
    for i in range(3):
        load(graph, [book(f"b{i}"), reader(f"r{i}")])
    damaged: TableState = graph.snapshot(version=3).entry.tables["node:Book"]
    manifest = Path(graph.uri) / damaged.path / "_versions" / f"d{damaged.version}.manifest"
    manifest.write_bytes(b"\0" * 200)
    before = {name for name in files(graph) if name.startswith(damaged.path)}
    report = release(Graph.open(graph.uri), keep=2, grace=NO_GRACE)
    rows = {row.type_key: row for row in report.datasets}
    assert rows["node:Book"].error is not None
    assert before <= set(files(graph))
    assert rows["node:Reader"].error is None
    assert rows["node:Reader"].old_versions_removed >= 1


def test_a_cleanup_that_was_interrupted_is_finished_by_the_next(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"))

    class StopHereError(Exception):
        pass

    def stop(point: str) -> None:
        if point == "cleanup.delete.after":
            raise StopHereError

    graph._workspace.root.trace.observer = stop
    with pytest.raises(StopHereError):
        release(graph)
    graph._workspace.root.trace.observer = None
    assert graph.maintenance.verify().clean
    # Manifests went first, so nothing that still opens has lost a file.
    assert readable(graph) == [1, 6]
    release(graph, grace=NO_GRACE)
    assert graph.maintenance.verify().clean
    reference = grown(str(tmp_path / "other"))
    release(reference, grace=NO_GRACE)
    kinds = [sorted(Path(n).suffix for n in files(g) if "/data/" in n) for g in (graph, reference)]
    assert kinds[0] == kinds[1]


def test_a_branch_can_not_be_made_of_history_that_is_going(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"))
    old = graph.snapshot(version=3)
    refused: list[str] = []

    def fork(point: str) -> None:
        if point == "cleanup.record.after":
            other = Graph.open(graph.uri)
            with pytest.raises(HistoricalVersionReclaimedError):
                other.create_branch("late", source=old.commit_id)
            refused.append(point)

    graph._workspace.root.trace.observer = fork
    release(graph)
    assert refused
    assert graph.list_branches() == ["main"]
    with pytest.raises(HistoricalVersionReclaimedError):
        graph.create_branch("later", source=graph.snapshot(version=2).commit_id)
    assert graph.list_branches() == ["main"]
    assert not [name for name in files(graph) if "/reclaims/" in name]


def test_an_open_snapshot_fails_loudly_when_its_files_go(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", SCHEMA)
    load(graph, [book("a")])
    held = Graph.open(graph.uri).snapshot()
    assert held.scan("node:Book", ["id"]).num_rows == 1
    graph.load(book("b"), mode="overwrite")
    release(graph)
    with pytest.raises(HistoricalVersionReclaimedError):
        held.scan("node:Book", ["id", "title"])
    with pytest.raises(HistoricalVersionReclaimedError):
        list(held.table("node:Book").batches(["title"]))


def test_cleanup_on_any_store(place: Place) -> None:
    graph = grown(place.uri)
    report = graph.maintenance.cleanup(keep_versions=2)
    assert report.versions_removed == 3
    assert readable(graph) == [1, 5, 6]
    assert graph.maintenance.verify().clean
    assert ids(Graph.open(place.uri)) == [f"p{i}" for i in range(5)]
    with pytest.raises(HistoricalVersionReclaimedError):
        Graph.open(place.uri).snapshot(version=3).scan(PEOPLE)


def test_a_store_that_refuses_deletes_is_reported_per_table(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"))

    class NoDeletes:
        def before(self, kind: str, path: str) -> None:
            if kind == "delete" and path.startswith("nodes/"):
                raise OSError("the store says no")

        def after(self, kind: str, path: str) -> None:
            pass

    graph._workspace.root.objects.interceptor = NoDeletes()
    report = release(graph)
    assert {row.type_key: row.error is not None for row in report.datasets}[PEOPLE]
    graph._workspace.root.objects.interceptor = None
    assert readable(graph) == [1, 2, 3, 4, 5, 6]
    assert release(graph).versions_removed == 4


def test_a_write_whose_captured_head_is_released_goes_on_from_the_new_one(tmp_path: Path) -> None:
    graph = grown(str(tmp_path / "g"), 1)
    other, prepared = Graph.open(graph.uri), []

    def overtake() -> None:
        """As another process would: it replaces everything, then cleans up."""
        txn = other._workspace.begin("main", Intent(kind="load"))
        staged = txn.stage({PEOPLE: lambda s: other._workspace.root.staging.overwrite(s, nodes({"new": 1}))})
        publish(txn, PublishPlan(staged))
        release(other)

    def prepare(txn: WriteTxn) -> PublishPlan:
        prepared.append(txn.base.version)
        if len(prepared) == 1:
            overtake()
        assert txn.snapshot.scan(PEOPLE).num_rows == 1
        return PublishPlan(txn.stage({PEOPLE: lambda s: txn.root.staging.delete(s, ["new"])}))

    published = graph._workspace.commit("main", prepare, Intent(kind="mutate"))
    assert prepared == [2, 3]
    assert published is not None
    assert published.version == 4
    assert ids(Graph.open(graph.uri)) == []


def test_a_full_disk_can_be_cleaned(tmp_path: Path) -> None:
    """Cleanup writes names without content first, and there is room for those where no byte is left."""
    with small_disk(tmp_path / "disk") as disk:
        with new_graph(str(disk.root / "g")) as graph:
            for i in range(4):
                txn = graph._workspace.begin("main", Intent(kind="load"))
                rows = nodes({f"{i}-{row}": row for row in range(5_000)})
                staged = txn.stage(
                    {PEOPLE: lambda state, rows=rows: graph._workspace.root.staging.overwrite(state, rows)}
                )
                graph._workspace.publish(txn, PublishPlan(staged))
        disk.fill()
        with Graph.open(graph.uri) as graph:
            with pytest.raises(StorageError, match="the disk is full"):
                append_one(graph, "late")
            assert graph.maintenance.cleanup(keep_versions=1).versions_removed == 3
            append_one(graph, "late")
            assert graph.maintenance.verify().clean
