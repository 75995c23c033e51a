"""Cleanup and a write that builds on main's past can't both win, wherever one of them is stopped.

Every operation is stopped before each of its requests to the store in turn, while others do all of their work. What
comes of it must be readable, or must have been refused with nothing left behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import BranchNotFoundError, ConflictError, HistoricalVersionReclaimedError
from omnigraph.storage.log.write_guard import GRACE, LONGEST_WRITE
from tests.support.log_entries import list_commits
from tests.support.preempt import DiedError, preempted

SCHEMA = """
node Person { name: String @key  nick: String? }
node Place { name: String @key }
edge Visited: Person -> Place
"""
WITHOUT_NICK = SCHEMA.replace("  nick: String?", "")
LAST_REQUEST = 80


def person(name: str) -> str:
    return f'{{"type": "Person", "data": {{"name": "{name}", "nick": "{name}"}}}}\n'


def place(name: str) -> str:
    return f'{{"type": "Place", "data": {{"name": "{name}"}}}}\n'


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """main with four versions, and a branch of its own commits beside it."""
    path = tmp_path_factory.mktemp("original") / "graph"
    with Graph.init(path, SCHEMA) as graph:
        graph.load(person("ann"), mode="append")
        graph.create_branch("side")
        graph.load(place("rome"), mode="append", branch="side")
        graph.load(person("bob"), mode="append")
        graph.load(person("cid"), mode="append")
    return path


Work = Callable[[Graph], object]


def fork_head(graph: Graph) -> None:
    graph.create_branch("new")


def fork_old_commit(graph: Graph) -> None:
    graph.create_branch("new", source=list_commits(graph).commits[1].commit.id)


def merge_main(graph: Graph) -> None:
    graph.merge("main", "side")


def load_on_new_branch(graph: Graph) -> None:
    graph.load(place("bonn"), mode="merge", branch="new", base="main")


def release(graph: Graph) -> None:
    graph.maintenance.cleanup(keep_versions=1)


def hard_drop(graph: Graph) -> None:
    graph.schema.apply(WITHOUT_NICK, allow_data_loss=True)


def supersede(graph: Graph) -> None:
    """Nothing of the head's table stays in the next version, so that a cleanup takes all of it."""
    graph.load(person("eve"), mode="overwrite")


ADOPTERS: list[Work] = [fork_head, fork_old_commit, merge_main, load_on_new_branch]
CLEANERS: list[Work] = [release, hard_drop]


def check(uri: Path) -> None:
    """Every live branch reads completely, and the graph goes on."""
    with Graph.open(uri) as graph:
        for branch in graph.list_branches():
            snapshot = graph.snapshot(branch)
            for type_key in snapshot.types():
                assert snapshot.scan(type_key).num_rows == snapshot.count(type_key), (branch, type_key)
        report = graph.maintenance.verify()
        assert report.clean, report.problems
        graph.maintenance.cleanup(keep_versions=1)
        assert graph.maintenance.verify().clean
        assert not list(Path(uri, "__manifest/reclaims").glob("*.below-*")), "a finished cleanup leaves no record"
        graph.load(place("oslo"), mode="merge")


def by_another(uri: Path, *works: Work) -> Callable[[], None]:
    def run() -> None:
        with Graph.open(uri) as other:
            for work in works:
                work(other)

    return run


@pytest.mark.parametrize("cleaner", CLEANERS, ids=lambda w: w.__name__)
@pytest.mark.parametrize("adopter", ADOPTERS, ids=lambda w: w.__name__)
def test_cleanup_at_every_request_of_a_write_that_builds_on_main(
    original: Path, tmp_path: Path, adopter: Work, cleaner: Work
) -> None:
    outcomes = set()
    for nth in range(1, LAST_REQUEST):
        uri = tmp_path / str(nth)
        shutil.copytree(original, uri)
        with Graph.open(uri) as graph:
            graph.snapshot("side"), graph.snapshot()
            with preempted(graph, nth, by_another(uri, supersede, cleaner)) as stopped:
                try:
                    adopter(graph)
                    outcomes.add("done")
                except (HistoricalVersionReclaimedError, ConflictError) as refused:
                    outcomes.add(type(refused).__name__)
        check(uri)
        shutil.rmtree(uri)
        if not stopped.happened:
            break
    else:
        raise AssertionError("the operation has more requests than this test looks at")
    assert "done" in outcomes


@pytest.mark.parametrize("adopter", ADOPTERS, ids=lambda w: w.__name__)
def test_a_write_that_builds_on_main_at_every_request_of_a_cleanup(
    original: Path, tmp_path: Path, adopter: Work
) -> None:
    for nth in range(1, LAST_REQUEST):
        uri = tmp_path / str(nth)
        shutil.copytree(original, uri)
        refused = []

        def adopt(uri: Path = uri, refused: list[str] = refused) -> None:
            try:
                by_another(uri, adopter)()
            except HistoricalVersionReclaimedError as error:
                refused.append(str(error))

        with Graph.open(uri) as graph, preempted(graph, nth, adopt) as stopped:
            release(graph)
        if not refused and stopped.happened:
            with Graph.open(uri) as graph:
                assert "new" in graph.list_branches() or adopter is merge_main
        check(uri)
        shutil.rmtree(uri)
        if not stopped.happened:
            return
    raise AssertionError("the cleanup has more requests than this test looks at")


@pytest.mark.parametrize("dies", [False, True], ids=["sleeps", "dies"])
def test_a_second_cleanup_finishes_one_that_sleeps_or_died(original: Path, tmp_path: Path, dies: bool) -> None:
    """The sleeper may wake up after others built on what was left; it must not delete what they use."""
    for nth in range(1, LAST_REQUEST):
        uri = tmp_path / str(nth)
        shutil.copytree(original, uri)
        forked: list[str] = []

        def others(uri: Path = uri, forked: list[str] = forked) -> None:
            with Graph.open(uri) as other:
                other.maintenance.cleanup(keep_versions=3)
                for entry in list_commits(other).commits:
                    try:
                        other.create_branch(f"at-{entry.version}", source=entry.commit.id)
                        forked.append(f"at-{entry.version}")
                    except HistoricalVersionReclaimedError:
                        continue

        with Graph.open(uri) as graph, preempted(graph, nth, others, dies=dies) as stopped:
            try:
                release(graph)
            except DiedError:
                assert dies
        with Graph.open(uri) as graph:
            assert set(forked) <= set(graph.list_branches())
        check(uri)
        shutil.rmtree(uri)
        if not stopped.happened:
            return
    raise AssertionError("the cleanup has more requests than this test looks at")


@pytest.mark.parametrize("stopped_is_the_fork", [True, False])
def test_a_branch_made_from_one_that_is_being_deleted_keeps_what_it_inherits(
    original: Path, tmp_path: Path, stopped_is_the_fork: bool
) -> None:
    """Either the deletion sees the child and is refused, or the child lives on with all of its history."""

    def fork(graph: Graph) -> None:
        graph.create_branch("child", source="side")

    def delete(graph: Graph) -> None:
        graph.delete_branch("side")

    stopped, other = (fork, delete) if stopped_is_the_fork else (delete, fork)
    outcomes = set()
    for nth in range(1, LAST_REQUEST):
        uri = tmp_path / str(nth)
        shutil.copytree(original, uri)
        with Graph.open(uri) as graph:
            graph.load(place("graz"), mode="append", branch="side")
        done = []

        def attempt(work: Work, graph: Graph, done: list[Work] = done) -> None:
            with contextlib.suppress(ConflictError, BranchNotFoundError):
                work(graph)
                done.append(work)

        def meanwhile(uri: Path = uri, attempt: Callable[..., None] = attempt) -> None:
            with Graph.open(uri) as another:
                attempt(other, another)

        with Graph.open(uri) as graph:
            graph.snapshot("side")
            with preempted(graph, nth, meanwhile) as preemption:
                attempt(stopped, graph)
            assert (fork in done) == ("child" in graph.list_branches())
            assert (delete in done) == ("side" not in graph.list_branches())
            outcomes.add(len(done))
        with Graph.open(uri) as graph:
            # As long after the deletion as the parent's data would be kept for its own sake.
            graph.maintenance.cleanup(keep_versions=1, grace=timedelta(0))
            if fork in done:
                found = [graph.snapshot("child", version=v).scan("node:Place").num_rows for v in (3, 4)]
                assert found == [1, 2]
        check(uri)
        shutil.rmtree(uri)
        if not preemption.happened:
            assert 2 in outcomes, "they met"
            return
    raise AssertionError("there are more requests than this test looks at")


def test_a_merge_that_dies_leaves_a_pin_that_expires(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = tmp_path / "graph"
    shutil.copytree(original, uri)

    def pins() -> list[Path]:
        return list((uri / "__manifest/pins").glob("*"))

    with Graph.open(uri) as graph:
        graph.snapshot(), graph.snapshot("side")
        with preempted(graph, 4, lambda: None, dies=True), pytest.raises(DiedError):
            merge_main(graph)
    assert len(pins()) == 1
    with Graph.open(uri) as graph:
        supersede(graph)
        release(graph)
        assert graph.snapshot(version=4).count("node:Person") == 3, "what is pinned is kept"
        assert len(pins()) == 1
        long_ago = pins()[0].stat().st_mtime - GRACE.total_seconds() - 60
        os.utime(pins()[0], (long_ago, long_ago))
        release(graph)
        assert not pins()
    check(uri)


def test_a_write_that_took_longer_than_it_may_is_refused(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a machine slept for days between staging and publishing: its files may be gone."""
    uri = tmp_path / "graph"
    shutil.copytree(original, uri)
    with Graph.open(uri) as graph:
        real = time.time

        def sleep_for_days(point: str) -> None:
            if point == "publish.before" and work is load_on_new_branch:
                return  # its log is written before anybody can find the branch
            if point in ("publish.before", "branch.create.before"):
                monkeypatch.setattr(time, "time", lambda: real() + LONGEST_WRITE.total_seconds() + 1)

        for work in (fork_head, merge_main, load_on_new_branch, supersede):
            head = graph.resolve_snapshot("side")
            graph._workspace.root.trace.observer = sleep_for_days
            with pytest.raises(ConflictError, match=r"began 3\.5 days ago.*nothing was written"):
                work(graph)
            monkeypatch.setattr(time, "time", real)
            assert graph.list_branches() == ["main", "side"]
            assert graph.resolve_snapshot("side") == head
