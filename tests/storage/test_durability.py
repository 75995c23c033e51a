"""A local disk: whole names only, nothing acknowledged that a power cut could take back, and no false failures."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn
from omnigraph.errors import (
    BranchNotFoundError,
    CommitOutcomeUnknownError,
    NotFoundError,
    StorageError,
    StorageErrorKind,
)
from omnigraph.storage.local_disk import LocalDisk
from omnigraph.storage.models import LogEntry
from tests.support.costs import settle
from tests.support.disks import FailingCalls, PowerCuts, path_of, small_disk
from tests.support.log_entries import get_commit, list_commits
from tests.support.tables import PEOPLE, append_one, ids, new_graph, nodes, remove_person


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = new_graph(str(tmp_path / "graph"))
    append_one(graph, "ann")
    graph.create_branch("side")
    return graph


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> FailingCalls:
    return FailingCalls(monkeypatch)


def state(graph: Graph) -> dict[str, list[str]]:
    return {branch: ids(graph, branch=branch) for branch in graph.list_branches()}


def files(graph: Graph) -> list[str]:
    return [str(path) for path in Path(graph.uri).rglob("*") if path.is_file()]


WRITES: dict[str, Callable[[Graph], object]] = {
    "append": lambda graph: append_one(graph, "bob"),
    "delete": lambda graph: remove_person(graph, "ann"),
    "first commit of a branch": lambda graph: append_one(graph, "bob", "side"),
    "branch": lambda graph: graph.create_branch("other/name"),
    "branch deletion": lambda graph: graph.delete_branch("side"),
}


# A power cut


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_power_cut_leaves_the_old_state_or_the_new_one(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Graph], object]
) -> None:
    settle(graph)
    before = state(graph)
    cuts = PowerCuts(Path(graph.uri), tmp_path / "cuts", monkeypatch)
    write(graph)
    monkeypatch.undo()
    acknowledged = len(cuts.survivors)
    cuts.cut("after the answer")
    settle(graph)
    after = state(graph)
    assert before != after
    for number, (moment, survivor) in enumerate(cuts.survivors):
        found = Graph.open(survivor)
        assert found.maintenance.verify().problems == (), moment
        assert state(found) in ([before, after] if number < acknowledged else [after]), moment
        if number >= acknowledged - 2:  # around the last flush, where old and new meet
            append_one(found, "later")
        found.close()
    assert acknowledged > 3


def test_a_power_cut_during_init_leaves_no_graph_or_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "graph"
    root.mkdir()
    cuts = PowerCuts(root, tmp_path / "cuts", monkeypatch)
    new_graph(str(root))
    monkeypatch.undo()
    cuts.cut("after the answer")
    opened = 0
    for moment, survivor in cuts.survivors:
        try:
            found = Graph.open(survivor)
        except NotFoundError:
            continue
        assert found.maintenance.verify().problems == (), moment
        append_one(found, "ann")
        opened += 1
    assert opened >= 3, "before and after the last flush of the claim, and after the answer"
    assert opened < len(cuts.survivors)


def test_a_file_is_written_flushed_linked_and_its_name_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noted(name: str, call: Callable[..., object], path: Callable[..., str]) -> Callable[..., object]:
        def note(*arguments: object) -> object:
            where = os.path.relpath(path(*arguments), tmp_path).partition("#")[0]
            if not where.startswith(".."):  # other graphs of this process may still write their hints
                done.append(f"{name} {where}")
            return call(*arguments)

        return note

    disk = LocalDisk(str(tmp_path))
    for name in ("write", "fsync"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name), lambda fd, *_: path_of(fd)))
    monkeypatch.setattr(os, "link", noted("link", os.link, lambda _, target: target))
    assert disk.create("a/b/name", b"content")
    folders = ["fsync .", "fsync a"]
    assert done == ["write a/b/name", "fsync a/b/name", *folders, "link a/b/name", "fsync a/b"]
    done.clear()
    assert not disk.create("a/b/name", b"other"), "what stands there is on disk when that is said"
    assert done[-1] == "fsync a/b"


def test_what_refers_to_an_entry_waits_until_it_is_durable(graph: Graph, calls: FailingCalls) -> None:
    """Its writer was stopped between the link and the flush: a power cut could still take the entry away."""
    main = graph.snapshot().entry
    calls.fail("fsync", errno.EIO, lambda path: path.endswith(f"/log/{main.branch_id}"))
    with pytest.raises(CommitOutcomeUnknownError):
        append_one(graph, "bob", idempotency_key="once")
    other = Graph.open(graph.uri)
    assert ids(other) == ["ann", "bob"]
    for refers in (
        lambda: other.create_branch("other"),
        lambda: append_one(other, "bob", idempotency_key="once"),
        lambda: other.merge("main", "side"),
    ):
        with pytest.raises(StorageError) as unconfirmed:
            refers()
        assert unconfirmed.value.kind is StorageErrorKind.UNKNOWN
    calls.heal()
    assert append_one(other, "bob", idempotency_key="once").replayed
    assert other.list_branches() == ["main", "side"]


def test_what_a_repeat_about_a_branch_acknowledges_is_durable(graph: Graph, calls: FailingCalls) -> None:
    side = graph._workspace.head("side").ref

    def made(of: Graph) -> bool:
        return of.create_branch("other", idempotency_key="made").replayed

    def ended(of: Graph) -> bool:
        return of.delete_branch("side", idempotency_key="ended").replayed

    for write, folder in ((made, "/refs/other"), (ended, f"/log/{side.branch_id}")):
        calls.fail("fsync", errno.EIO, lambda path, folder=folder: path.endswith(folder))
        for handle in (graph, Graph.open(graph.uri)):
            with pytest.raises(StorageError) as unconfirmed:
                write(handle)
            assert unconfirmed.value.kind is StorageErrorKind.UNKNOWN
        calls.heal()
        assert write(Graph.open(graph.uri))


# Flushes that fail


def in_log(path: str) -> bool:
    return os.path.basename(os.path.dirname(path)) == "log"


def unfinished(path: str) -> bool:
    return "#" in path


def test_a_commit_that_the_disk_confirms_later_is_one_commit(graph: Graph, calls: FailingCalls) -> None:
    calls.fail("fsync", errno.EIO, in_log, times=2)
    published = append_one(graph, "bob")
    assert (published.version, ids(Graph.open(graph.uri))) == (3, ["ann", "bob"])
    assert [e.version for e in list_commits(graph).commits] == [3, 2, 1]


def test_a_commit_that_the_disk_never_confirms_is_open_and_named(graph: Graph, calls: FailingCalls) -> None:
    calls.fail("fsync", errno.EIO, in_log)
    with pytest.raises(CommitOutcomeUnknownError) as unknown:
        append_one(graph, "bob", idempotency_key="once")
    calls.heal()
    assert get_commit(graph, unknown.value.commit_id).version == 3
    assert append_one(graph, "bob", idempotency_key="once").replayed


def test_a_disk_that_turns_read_only_after_the_link_leaves_the_outcome_open(graph: Graph, calls: FailingCalls) -> None:
    """What a file system does when its journal fails: the flush fails once, and then everything is refused."""
    settle(graph)
    before = set(files(graph))

    def has_been_linked(_: str) -> bool:
        return any("/log/" in name or "/refs/other/" in name for name in {*files(graph)} - before if "#" not in name)

    calls.fail("fsync", errno.EIO, in_log, times=1)
    calls.fail("write", errno.EROFS, has_been_linked)
    with pytest.raises(CommitOutcomeUnknownError) as unknown:
        append_one(graph, "bob")
    calls.heal()
    assert get_commit(graph, unknown.value.commit_id).version == 3
    before = set(files(graph))
    calls.fail("fsync", errno.EIO, lambda path: path.endswith("/refs/other"), times=1)
    calls.fail("write", errno.EROFS, has_been_linked)
    with pytest.raises(StorageError) as open_:
        graph.create_branch("other")
    assert open_.value.kind is StorageErrorKind.UNKNOWN
    calls.heal()
    assert "other" in Graph.open(graph.uri).list_branches()


@pytest.mark.parametrize(
    ("call", "number", "where", "kind"),
    [
        ("fsync", errno.EIO, unfinished, StorageErrorKind.PERMANENT),
        ("fsync", errno.EIO, lambda path: path.endswith(".manifest"), StorageErrorKind.PERMANENT),
        ("fsync", errno.EIO, lambda path: path.endswith("/data"), StorageErrorKind.PERMANENT),
        ("fsync", errno.ENOSPC, unfinished, StorageErrorKind.FULL),
        ("write", errno.ENOSPC, unfinished, StorageErrorKind.FULL),
        ("write", errno.EDQUOT, unfinished, StorageErrorKind.FULL),
        ("write", errno.EACCES, unfinished, StorageErrorKind.CONFIGURATION),
        ("link", errno.EROFS, lambda _: True, StorageErrorKind.CONFIGURATION),
        ("link", errno.EPERM, lambda _: True, StorageErrorKind.CONFIGURATION),
        ("link", errno.ENOTSUP, lambda _: True, StorageErrorKind.CONFIGURATION),
    ],
)
def test_what_fails_before_the_link_has_not_happened(
    graph: Graph, calls: FailingCalls, call: str, number: int, where: Callable[[str], bool], kind: StorageErrorKind
) -> None:
    settle(graph)
    before = state(graph)
    calls.fail(call, number, where)
    with pytest.raises(StorageError) as failed:
        append_one(graph, "bob")
    assert failed.value.kind is kind
    assert not failed.value.may_have_happened
    calls.heal()
    assert state(Graph.open(graph.uri)) == before
    assert not [name for name in files(graph) if unfinished(name)]
    append_one(graph, "bob")
    assert graph.maintenance.verify().clean


def test_a_file_system_without_hard_links_is_refused_by_name(tmp_path: Path, calls: FailingCalls) -> None:
    calls.fail("link", errno.EPERM, lambda _: True)
    with pytest.raises(StorageError, match=r"refuses hard links.*put the graph on another file system") as refused:
        new_graph(str(tmp_path / "graph"))
    assert refused.value.kind is StorageErrorKind.CONFIGURATION
    assert list(tmp_path.iterdir()) == []


def test_a_branch_that_the_disk_confirms_later_is_made_once(graph: Graph, calls: FailingCalls) -> None:
    calls.fail("fsync", errno.EIO, lambda path: path.endswith("/refs/other"), times=1)
    graph.create_branch("other")
    assert state(Graph.open(graph.uri))["other"] == ["ann"]


def test_a_branch_that_the_disk_never_confirms_is_no_plain_failure(graph: Graph, calls: FailingCalls) -> None:
    calls.fail("fsync", errno.EIO, lambda path: path.endswith("/refs/other"))
    with pytest.raises(StorageError) as unknown:
        graph.create_branch("other")
    assert unknown.value.kind is StorageErrorKind.UNKNOWN
    calls.heal()
    assert state(Graph.open(graph.uri))["other"] == ["ann"]


def test_a_write_onto_a_new_branch_that_the_disk_never_confirms_names_its_commit(
    graph: Graph, calls: FailingCalls
) -> None:
    def prepare(txn: WriteTxn) -> PublishPlan:
        return PublishPlan(txn.stage({PEOPLE: lambda base: txn.root.staging.append(base, nodes({"bob": 1}))}))

    calls.fail("fsync", errno.EIO, lambda path: path.endswith("/refs/other"))
    with pytest.raises(CommitOutcomeUnknownError) as unknown:
        graph._workspace.commit_on_new_branch("other", "main", prepare, Intent(kind="load"))
    calls.heal()
    assert isinstance(get_commit(graph, unknown.value.commit_id), LogEntry)


def test_a_deletion_whose_last_mark_fails_is_a_deletion(graph: Graph, calls: FailingCalls) -> None:
    calls.fail("link", errno.ENOSPC, lambda path: path.endswith(".deleted"))
    graph.delete_branch("side")
    with pytest.raises(BranchNotFoundError):
        graph.snapshot("side")
    assert Graph.open(graph.uri).list_branches() == ["main"]


def test_a_deletion_that_the_disk_confirms_later_is_a_deletion(graph: Graph, calls: FailingCalls) -> None:
    calls.fail("fsync", errno.EIO, in_log, times=2)
    graph.delete_branch("side")
    assert Graph.open(graph.uri).list_branches() == ["main"]


def test_an_init_whose_claim_the_disk_never_confirms_removes_nothing(tmp_path: Path, calls: FailingCalls) -> None:
    """Perhaps the graph exists: taking its tables away would leave a graph without them."""
    made: list[str] = []

    def of_claim(path: str) -> bool:
        if path.endswith("graph.json"):
            made.append(path)
        return bool(made) and path.endswith("/__manifest")

    calls.fail("link", errno.EIO, lambda path: of_claim(path) and False)
    calls.fail("fsync", errno.EIO, of_claim)
    with pytest.raises(StorageError) as unknown:
        new_graph(str(tmp_path / "graph"))
    assert unknown.value.kind is StorageErrorKind.UNKNOWN
    calls.heal()
    graph = Graph.open(tmp_path / "graph")
    append_one(graph, "ann")
    assert graph.maintenance.verify().clean


# Temporary files


def test_unfinished_files_are_never_listed_and_are_swept_when_they_are_old(graph: Graph) -> None:
    settle(graph)
    entry = graph.snapshot().entry
    slot = Path(graph.uri) / f"__manifest/log/{entry.branch_id}/{entry.version + 1:020d}.json"
    ref = Path(graph.uri) / "__manifest/refs/dead/000001.json"
    ref.parent.mkdir()
    table = Path(graph.uri) / entry.tables[PEOPLE].path
    left = [Path(f"{slot}#123"), Path(f"{ref}#4"), Path(f"{table}/_versions/d1.manifest#1"), table / "data/.tmpAb3dEf"]
    for file in left:
        file.write_bytes(b"{")
    fresh = Graph.open(graph.uri)
    (Path(graph.uri) / f"__manifest/hints/{entry.branch_id}").unlink()
    assert fresh.snapshot().version == entry.version
    assert fresh.list_branches() == ["main", "side"]
    assert fresh.maintenance.verify().clean
    fresh.maintenance.cleanup(keep_versions=100)
    assert all(file.exists() for file in left), "a write may be in flight"
    long_ago = (datetime.now(UTC) - timedelta(days=8)).timestamp()
    for file in left:
        os.utime(file, (long_ago, long_ago))
    fresh.maintenance.cleanup(keep_versions=100)
    assert not any(file.exists() for file in left)
    assert fresh.maintenance.verify().clean


def test_of_many_creates_of_one_name_one_wins(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path))
    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(lambda i: disk.create("deep/folder/name", b"%d" % i), range(32)))
    assert won.count(True) == 1
    assert (tmp_path / "deep/folder/name").read_bytes() == b"%d" % won.index(True)
    assert [path.name for path in (tmp_path / "deep/folder").iterdir()] == ["name"]


# A full disk


def refusal(write: Callable[[], object]) -> StorageError | None:
    """What a write ends with while the disk is full; None when there was room for it."""
    try:
        write()
    except StorageError as error:
        return error
    return None


def test_a_full_disk_is_said_to_be_full_and_harms_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        graph = new_graph(str(disk.root / "graph"))
        append_one(graph, "ann")
        settle(graph)
        disk.fill()
        refusals = [refusal(lambda: graph.create_branch("side"))]
        for _ in range(40):
            refusals.append(refusal(lambda: append_one(graph, "bob")))
            if refusals[-1] is None:
                break
            assert ids(graph) == ["ann"]
            disk.free(1 << 14)  # a page more than a refused write leaves behind, so that each gets further
        *refused, last = refusals
        assert last is None, "there was never room for one commit"
        assert len(refused) > 1
        assert {error.kind for error in refused if error} == {StorageErrorKind.FULL}
        assert all("free some space" in str(error) for error in refused)
        assert graph.list_branches() == ["main"]
        disk.free()
        append_one(graph, "cid")
        assert graph.maintenance.verify().clean
        graph.close()


def test_a_disk_that_became_read_only_is_a_matter_of_configuration(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        graph = new_graph(str(disk.root / "graph"))
        append_one(graph, "ann")
        settle(graph)
        disk.remount("ro")
        for attempt in (lambda: append_one(graph, "bob"), lambda: graph.create_branch("side")):
            with pytest.raises(StorageError, match="mount it writable") as refused:
                attempt()
            assert refused.value.kind is StorageErrorKind.CONFIGURATION
        assert ids(graph) == ["ann"]
        disk.remount("rw")
        append_one(graph, "bob")
        graph.close()
