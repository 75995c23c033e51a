"""History: listing, lookup by id, version and time, ancestry, merge bases, branches from any commit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pytest

from omnigraph import Graph
from omnigraph.engine.write.publish import Intent, PublishPlan
from omnigraph.errors import BadRequestError, BranchNotFoundError, ConflictError, NotFoundError
from omnigraph.storage.identifiers import (
    new_commit_id,
    new_table_id,
    new_ulid,
    quoted_branch,
    version_in,
)
from omnigraph.storage.models import LogEntry
from tests.conftest import Place
from tests.support.log_entries import get_commit, list_commits, merge_base
from tests.support.tables import append_one, ids, new_graph


@pytest.fixture
def graph(local_place: Place) -> Graph:
    graph = new_graph(local_place.uri)
    for name in ("a", "b", "c"):
        append_one(graph, name, actor=f"author-{name}")
    return graph


def moment(entry: LogEntry) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=entry.commit.published_at)


def test_commits_are_listed_newest_first_in_pages(graph: Graph) -> None:
    first = list_commits(graph, limit=3)
    assert [(e.version, e.commit.actor) for e in first.commits] == [(4, "author-c"), (3, "author-b"), (2, "author-a")]
    second = list_commits(graph, limit=3, before=first.next_version)
    assert [(e.version, e.commit.kind) for e in second.commits] == [(1, "init")]
    assert second.next_version is None
    with pytest.raises(BadRequestError):
        list_commits(graph, limit=0)


def test_a_branch_lists_its_inherited_history(graph: Graph) -> None:
    graph.create_branch("side")
    append_one(graph, "on-side", "side")
    append_one(graph, "on-main")
    assert [e.branch for e in list_commits(graph, "side").commits] == ["side", "main", "main", "main", "main"]
    assert [e.version for e in list_commits(graph, "side").commits] == [5, 4, 3, 2, 1]
    assert get_commit(graph, graph.snapshot("side").commit_id).branch == "side"


def test_time_travel_by_commit_version_and_moment(graph: Graph) -> None:
    states = [["a"], ["a", "b"], ["a", "b", "c"]]
    for version, expected in enumerate(states, start=2):
        at_version = graph.snapshot(version=version)
        assert sorted(at_version.scan("node:Person")["id"].to_pylist()) == expected
        assert graph.snapshot(snapshot=at_version.commit_id).entry == at_version.entry
        assert graph.snapshot(at=moment(at_version.entry)).entry == at_version.entry
        just_before = graph.snapshot(at=moment(at_version.entry) - timedelta(microseconds=1))
        assert just_before.version == version - 1
    assert graph.snapshot(at=datetime.now(UTC) + timedelta(days=1)).version == 4
    with pytest.raises(NotFoundError, match="no commit that old"):
        graph.snapshot(at=datetime(2000, 1, 1, tzinfo=UTC))
    with pytest.raises(BadRequestError, match="time zone"):
        graph.snapshot(at=datetime(2000, 1, 1))


def test_times_rise_with_versions_whatever_the_clock_does(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.engine.write.publish.now_micros", lambda: 1_000)
    append_one(graph, "from-a-machine-in-1970")
    times = [e.commit.published_at for e in list_commits(graph).commits]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times)


def test_a_snapshot_stays_where_it_is(graph: Graph) -> None:
    pinned = graph.snapshot()
    append_one(graph, "later")
    assert pinned.count("node:Person") == 3
    assert sorted(pinned.scan("node:Person")["id"].to_pylist()) == ["a", "b", "c"]


def test_handles_see_each_others_commits_at_the_next_read(graph: Graph) -> None:
    other = Graph.open(graph.uri)
    assert len(ids(other)) == 3
    append_one(graph, "d")
    assert ids(other) == ["a", "b", "c", "d"]


def test_a_branch_from_any_commit(graph: Graph) -> None:
    old = graph.snapshot(version=2)
    graph.create_branch("from-old", source=old.commit_id)
    assert ids(graph, branch="from-old") == ["a"]
    append_one(graph, "x", "from-old")
    assert graph.snapshot("from-old").version == 3
    graph.create_branch("deeper", source="from-old")
    append_one(graph, "y", "deeper")
    assert ids(Graph.open(graph.uri), branch="deeper") == ["a", "x", "y"]
    assert [e.branch for e in list_commits(graph, "deeper").commits] == ["deeper", "from-old", "main", "main"]


def test_a_fresh_branch_shares_its_head_commit(graph: Graph) -> None:
    graph.create_branch("side")
    assert graph.snapshot("side").entry == graph.snapshot().entry
    graph.create_branch("of-side", source="side")
    assert graph.snapshot("of-side").commit_id == graph.snapshot().commit_id


def test_a_deleted_branch_takes_its_commits_along(graph: Graph) -> None:
    graph.create_branch("side")
    own = append_one(graph, "x", "side").commit_id
    graph.delete_branch("side")
    for attempt in (lambda: get_commit(graph, own), lambda: Graph.open(graph.uri).snapshot(snapshot=own)):
        with pytest.raises(NotFoundError):
            attempt()
    graph.create_branch("side")
    assert ids(graph, branch="side") == ["a", "b", "c"]
    with pytest.raises(NotFoundError):
        get_commit(graph, own)


def test_an_old_handle_follows_a_recreated_branch(graph: Graph) -> None:
    other = Graph.open(graph.uri)
    graph.create_branch("side")
    append_one(other, "x", "side")
    graph.delete_branch("side")
    with pytest.raises(BranchNotFoundError):
        other.snapshot("side")
    graph.create_branch("side")
    append_one(graph, "y", "side")
    assert ids(other, branch="side") == ["a", "b", "c", "y"]


def test_a_branch_others_were_made_from_can_not_be_deleted(graph: Graph) -> None:
    graph.create_branch("parent")
    graph.create_branch("child", source="parent")
    with pytest.raises(ConflictError, match="still depends on it"):
        graph.delete_branch("parent")
    graph.delete_branch("child")
    graph.delete_branch("parent")
    assert graph.list_branches() == ["main"]


def test_live_branches_are_never_path_ancestors_of_each_other(graph: Graph) -> None:
    graph.create_branch("review")
    with pytest.raises(ConflictError):
        graph.create_branch("review/may")
    graph.delete_branch("review")
    graph.create_branch("review/may")
    graph.create_branch("review/june")
    graph.create_branch("main/is/exempt")
    with pytest.raises(ConflictError):
        graph.create_branch("review")
    graph.delete_branch("review/may")
    graph.delete_branch("review/june")
    graph.create_branch("review")
    assert Graph.open(graph.uri).list_branches() == ["main", "main/is/exempt", "review"]


def test_names_differing_in_case_are_different_branches(graph: Graph) -> None:
    graph.create_branch("Release")
    graph.create_branch("release")
    append_one(graph, "x", "Release")
    assert ids(graph, branch="release") == ["a", "b", "c"]
    assert quoted_branch("Release").lower() != quoted_branch("release").lower()
    assert unquote(quoted_branch("A/b.C-_9")) == "A/b.C-_9"


def publish_merge(graph: Graph, source: str, target: str) -> None:
    txn = graph._workspace.begin(target, Intent(kind="merge"))
    graph._workspace.publish(txn, PublishPlan(staged={}, merged=graph.snapshot(source).entry.link))


def test_merge_base_of_diverged_branches_is_the_fork_point(graph: Graph) -> None:
    graph.create_branch("side")
    append_one(graph, "x", "side")
    append_one(graph, "y", "side")
    append_one(graph, "z")
    base = merge_base(graph, "side", "main")
    assert base is not None
    assert base.version == 4
    assert base.branch == "main"


def test_merge_base_follows_both_parents(graph: Graph) -> None:
    graph.create_branch("side")
    append_one(graph, "x", "side")
    publish_merge(graph, "side", "main")
    append_one(graph, "y", "side")
    base = merge_base(graph, "side", "main")
    assert base is not None
    assert (base.branch, base.version) == ("side", 5)
    assert merge_base(graph, "main", "main") == graph.snapshot().entry


def test_merge_base_prefers_the_smallest_sum_of_distances(graph: Graph) -> None:
    graph.create_branch("left")
    graph.create_branch("right")
    for name in ("l1", "l2"):
        append_one(graph, name, "left")
    publish_merge(graph, "left", "right")
    for name in ("r1", "r2", "r3"):
        append_one(graph, name, "right")
    append_one(graph, "l3", "left")
    base = merge_base(graph, "left", "right")
    assert base is not None
    assert (base.branch, base.version) == ("left", 6)


def test_a_commit_id_says_its_version() -> None:
    for version in (1, 2, 1_000, 2**36 - 1):
        assert version_in(new_commit_id(version)) == version
    assert version_in("not a commit") is None
    assert len(new_ulid()) == 26
    assert new_commit_id(5) != new_commit_id(5)


def test_table_ids_are_of_one_length_new_for_every_life_and_never_differ_in_case_only() -> None:
    ids = [new_table_id(name) for name in ("Aa", "AA", "AA", "ThisIsQuiteALongTypeName")]
    assert len({len(i) for i in ids}) == 1
    assert len({i.lower() for i in ids}) == 4
