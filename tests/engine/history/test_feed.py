"""Exact changes of commits and the feed of a branch: order, paging, cursors, cuts, gaps, baselines.

Commits that change the schema are in `test_schema_changes`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.api.history import ChangePoll, ChangeScope
from omnigraph.errors import (
    BadRequestError,
    ChangeCursorRejectedError,
    ChangeFeedGapError,
    CommitHasNoParentError,
    NotFoundError,
    ResourceLimitError,
)
from tests.engine.town import drop, knows, new_town, person, place, put


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Graph]:
    graph = new_town(tmp_path / "town", person("ada", age=1), person("bob"), knows("k", "ada", "bob"))
    yield graph
    graph.close()


def ids(poll: ChangePoll) -> list[list[str]]:
    return [[change.id for change in block.changes] for block in poll.blocks]


def poll_all(graph: Graph, start: str = "beginning", **options: Any) -> list[str]:
    found, poll = [], graph.changes.poll(start=start, **options)
    while True:
        found += [change for block in ids(poll) for change in block]
        if poll.next_page_token is not None:
            poll = graph.changes.poll(page_token=poll.next_page_token, **options)
        elif poll.caught_up:
            return found
        else:
            poll = graph.changes.poll(cursor=poll.cursor, **options)


# Changes of one commit


def test_images_before_and_after(town: Graph) -> None:
    put(town, "main", person("ada", age=2, photo="base64:AAE="), person("cy"))
    town.mutate('query q() { delete Person where name = "bob" }', "q", actor="mia")
    update = wire.to_builtins(town.changes.page(town.snapshot(version=3).commit_id))
    person_id = town.snapshot().entry.tables["node:Person"].table_id
    assert update["changes"][0] == {
        "kind": "node",
        "type": {"id": person_id, "name": "Person"},
        "id": "ada",
        "op": "update",
        "before": {"properties": _person("ada", age=1)},
        "after": {"properties": _person("ada", age=2, photo="base64:AAE=")},
    }
    assert update["changes"][1].keys() == {"kind", "type", "id", "op", "after"}
    removal = wire.to_builtins(town.changes.page(town.snapshot().commit_id))
    assert [(c["kind"], c["id"], c["op"]) for c in removal["changes"]] == [
        ("node", "bob", "delete"),
        ("edge", "k", "delete"),
    ]
    assert removal["changes"][1]["before"] == {"properties": {"since": None}, "endpoints": {"from": "ada", "to": "bob"}}
    assert "after" not in removal["changes"][1]
    cause = removal["cause"]
    assert cause["graph_commit_id"] == town.snapshot().commit_id
    assert cause["parent_commit_id"] == town.snapshot(version=3).commit_id
    assert (cause["actor_id"], cause["authored_branch"]) == ("mia", "main")
    assert "next_page_token" not in removal


def _person(name: str, **values: Any) -> dict[str, Any]:
    absent = dict.fromkeys(("age", "email", "height", "photo", "tags", "vec"))
    return {**absent, "name": name, **values}


def test_a_merge_commit_shows_what_its_target_gained(town: Graph) -> None:
    town.create_branch("side")
    put(town, "side", person("cy"))
    put(town, "main", person("dan"))
    commit = town.merge("side").commit
    assert commit is not None
    page = town.changes.page(commit.graph_commit_id)
    assert [c.id for c in page.block.changes] == ["cy"]
    assert page.block.cause.merged_parent_commit_id == town.snapshot("side").commit_id


def test_pages_reproduce_the_whole_sequence(town: Graph) -> None:
    put(
        town,
        "main",
        *(person(f"p{i}") for i in range(10)),
        *(place(f"q{i}") for i in range(5)),
        knows("k", "bob", "ada"),
    )
    commit = town.snapshot().commit_id
    whole = [(c.kind, c.id) for c in town.changes.of(commit)]
    for size in (1, 3, 7, 16):
        token, pages = None, []
        while True:
            page = town.changes.page(commit, page_token=token, max_changes=size)
            pages.append([(c.kind, c.id) for c in page.block.changes])
            token = page.next_page_token
            if token is None:
                break
        assert all(len(p) == size for p in pages[:-1])
        assert [c for p in pages for c in p] == whole
    assert [kind for kind, _ in whole] == ["node"] * 15 + ["edge"]


def test_an_oversized_change_comes_alone(town: Graph) -> None:
    put(town, "main", person("big", tags=["x" * 5_000]), person("c"), person("d"))
    page = town.changes.page(town.snapshot().commit_id, max_bytes=600)
    assert [c.id for c in page.block.changes] == ["big"]
    rest = town.changes.page(town.snapshot().commit_id, max_bytes=600, page_token=page.next_page_token)
    assert [c.id for c in rest.block.changes] == ["c", "d"]


def test_a_commit_that_changes_no_value_is_an_empty_block(town: Graph) -> None:
    receipt = town.mutate('query again() { insert Person { name: "ada", age: 1 } }')
    page = town.changes.page(receipt.commit.id)
    assert (page.block.changes, page.next_page_token) == ((), None)


def test_limits_are_checked_before_anything_is_read(town: Graph) -> None:
    commit = town.snapshot().commit_id
    for options in ({"max_changes": 0}, {"max_bytes": 0}):
        with pytest.raises(BadRequestError):
            town.changes.page(commit, **options)
    for options, resource in (
        ({"max_changes": 8_193}, "commit_changes_page_changes"),
        ({"max_bytes": (32 << 20) + 1}, "commit_changes_page_bytes"),
    ):
        with pytest.raises(ResourceLimitError) as caught:
            town.changes.page(commit, **options)
        assert caught.value.resource == resource
    with pytest.raises(ResourceLimitError, match="change_feed_commits_per_poll"):
        town.changes.poll(max_commits=513)


def test_the_first_commit_and_unknown_commits_have_no_changes(town: Graph) -> None:
    with pytest.raises(CommitHasNoParentError) as caught:
        town.changes.page(town.snapshot(version=1).commit_id)
    assert caught.value.graph_commit_id == town.snapshot(version=1).commit_id
    with pytest.raises(NotFoundError):
        town.changes.page("01ARZ3NDEKTSV4RRFFQ69G5FAV")


# The feed


def test_beginning_replays_everything_with_inherited_commits_under_their_own_cause(town: Graph) -> None:
    town.create_branch("side")
    put(town, "side", person("cy"))
    poll = town.changes.poll(branch="side", start="beginning")
    assert ids(poll) == [["ada", "bob", "k"], ["cy"]]
    assert [block.cause.authored_branch for block in poll.blocks] == ["main", "side"]
    assert poll.caught_up is True


def test_now_is_the_default_and_replays_nothing(town: Graph) -> None:
    poll = town.changes.poll()
    assert (poll.blocks, poll.caught_up) == ((), True)
    put(town, "main", person("cy"))
    following = town.changes.poll(cursor=poll.cursor)
    assert ids(following) == [["cy"]]
    assert ids(town.changes.poll(cursor=poll.cursor)) == [["cy"]]
    assert ids(town.changes.poll(cursor=following.cursor)) == []


def test_after_a_commit_of_the_line(town: Graph) -> None:
    at = town.snapshot().commit_id
    put(town, "main", person("cy"))
    assert ids(town.changes.poll(start=f"after:{at}")) == [["cy"]]
    town.create_branch("side")
    foreign = put(town, "side", person("dan"))
    with pytest.raises(ChangeCursorRejectedError, match="first-parent history"):
        town.changes.poll(start=f"after:{foreign}")


def test_only_one_position_and_a_known_one(town: Graph) -> None:
    with pytest.raises(BadRequestError):
        town.changes.poll(start="now", cursor="x")
    with pytest.raises(BadRequestError, match="unknown start 'tomorrow'"):
        town.changes.poll(start="tomorrow")


def test_a_page_token_resumes_at_the_cut_of_its_poll(town: Graph) -> None:
    put(town, "main", *(person(f"p{i}") for i in range(4)))
    first = town.changes.poll(start="beginning", max_changes=5)
    assert ids(first) == [["ada", "bob", "k"], ["p0", "p1"]]
    assert (first.cursor, first.caught_up) == (None, None)
    put(town, "main", person("late"))
    second = town.changes.poll(page_token=first.next_page_token, max_changes=5)
    assert ids(second) == [["p2", "p3"]]
    assert second.blocks[0].cause == first.blocks[1].cause
    assert second.caught_up is False
    assert ids(town.changes.poll(cursor=second.cursor)) == [["late"]]


def test_a_commit_that_does_not_fit_a_filled_page_waits_for_the_next_poll(town: Graph) -> None:
    put(town, "main", person("big", tags=["x" * 3_000]))
    put(town, "main", person("huge", tags=["x" * 3_000]))
    poll = town.changes.poll(start=f"after:{town.snapshot(version=2).commit_id}", max_bytes=1_000)
    assert ids(poll) == [["big"]]
    assert (poll.next_page_token, poll.caught_up) == (None, False)
    assert ids(town.changes.poll(cursor=poll.cursor, max_bytes=1_000)) == [["huge"]]


def test_a_poll_examines_so_many_commits_and_no_more(town: Graph) -> None:
    for i in range(4):
        put(town, "main", person(f"p{i}"))
    poll = town.changes.poll(start="beginning", max_commits=2, scope=ChangeScope.of(types=["Place"]))
    assert ids(poll) == [[], []]
    assert poll.caught_up is False


def test_filters_select_changes_and_never_commits(town: Graph) -> None:
    put(town, "main", place("inn"))
    drop(town, "main", "Person", "bob")
    scope = ChangeScope.of(kinds=["node"], ops=["insert"])
    assert ids(town.changes.poll(start="beginning", scope=scope)) == [["ada", "bob"], ["inn"], []]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_any_page_size_delivers_the_same_sequence(town: Graph, size: int) -> None:
    put(town, "main", person("ada", age=3), person("cy"))
    drop(town, "main", "Person", "bob")
    assert poll_all(town, max_changes=size) == poll_all(town)


def test_cursors_work_from_another_process_with_another_limit(town: Graph, tmp_path: Path) -> None:
    cursor = town.changes.poll().cursor
    put(town, "main", person("cy"), person("dan"))
    with Graph.open(tmp_path / "town") as other:
        assert ids(other.changes.poll(cursor=cursor, max_changes=8_000)) == [["cy", "dan"]]


def test_tokens_are_bound_to_what_they_were_made_for(town: Graph, tmp_path: Path) -> None:
    town.create_branch("side")
    cursor = town.changes.poll(branch="side").cursor
    assert cursor is not None
    scope = ChangeScope.of(kinds=["node"])
    rejections = [
        ("different branch,", {"branch": "main", "cursor": cursor}),
        ("different filter scope", {"branch": "side", "cursor": cursor, "scope": scope}),
        ("checksum", {"branch": "side", "cursor": ("B" if cursor[0] == "A" else "A") + cursor[1:]}),
        ("encoding", {"branch": "side", "cursor": "not a token"}),
        ("encoding", {"branch": "side", "cursor": "x" * 5_000}),
        ("a feed cursor, not a feed page token", {"branch": "side", "page_token": cursor}),
    ]
    for reason, options in rejections:
        with pytest.raises(ChangeCursorRejectedError, match=reason) as caught:
            town.changes.poll(**options)  # type: ignore[arg-type]
        assert str(caught.value).startswith("change cursor rejected:")
    with new_town(tmp_path / "other") as other:
        other.create_branch("side")
        with pytest.raises(ChangeCursorRejectedError, match="different graph"):
            other.changes.poll(branch="side", cursor=cursor)
    town.delete_branch("side")
    town.create_branch("side")
    with pytest.raises(ChangeCursorRejectedError, match="different branch incarnation"):
        town.changes.poll(branch="side", cursor=cursor)


def test_commit_page_tokens_are_bound_to_their_commit_and_scope(town: Graph) -> None:
    commit = town.snapshot().commit_id
    token = town.changes.page(commit, max_changes=1).next_page_token
    following = put(town, "main", person("cy"), person("dan"))
    assert following is not None
    with pytest.raises(ChangeCursorRejectedError, match="does not match this graph and commit"):
        town.changes.page(following, page_token=token)
    with pytest.raises(ChangeCursorRejectedError, match="different filter scope"):
        town.changes.page(commit, page_token=token, scope=ChangeScope.of(kinds=["node"]))


def test_equal_scopes_share_their_tokens(town: Graph) -> None:
    cursor = town.changes.poll(scope=ChangeScope.of(types=["Person", "Place"])).cursor
    town.changes.poll(cursor=cursor, scope=ChangeScope.of(types=["Place", "Person", "Place"], kinds=["edge", "node"]))
    cursor = town.changes.poll(scope=ChangeScope.of(ops=["insert", "update", "delete"])).cursor
    town.changes.poll(cursor=cursor)


def test_long_ids_do_not_make_tokens_longer(town: Graph) -> None:
    put(town, "main", person("x" * 3_000), person("y" * 3_000))
    token = town.changes.page(town.snapshot().commit_id, max_changes=1).next_page_token
    assert token is not None
    assert len(token) < 400


def test_reclaimed_history_is_a_gap_that_names_the_commit_and_echoes_the_cursor(town: Graph, tmp_path: Path) -> None:
    cursor = town.changes.poll().cursor
    put(town, "main", person("cy"))
    gone = town.snapshot()
    put(town, "main", person("dan"))
    state = gone.entry.tables["node:Person"]
    manifest = tmp_path / "town" / state.path / "_versions" / f"d{state.version}.manifest"
    manifest.unlink()
    with Graph.open(tmp_path / "town") as fresh:
        poll = fresh.changes.poll(start="beginning")
        assert ids(poll) == [["ada", "bob", "k"]]
        with pytest.raises(ChangeFeedGapError) as caught:
            fresh.changes.poll(cursor=cursor)
        assert (caught.value.first_unreadable_commit_id, caught.value.cursor) == (gone.commit_id, cursor)
        with pytest.raises(ChangeFeedGapError) as caught:
            fresh.changes.page(gone.commit_id)
        assert caught.value.cursor is None
        with pytest.raises(ChangeFeedGapError):
            fresh.diff(gone.commit_id, "main")
        assert fresh.commit_history().commits[1].changes is not None


# Baselines


def test_a_baseline_is_the_export_of_a_head_and_the_cursor_that_continues_it(town: Graph) -> None:
    buffer = io.BytesIO()
    baseline = town.changes.baseline(buffer)
    assert buffer.getvalue().decode() == "".join(town.export())
    assert baseline.snapshot_commit_id == town.snapshot().commit_id
    put(town, "main", person("cy"))
    assert ids(town.changes.poll(cursor=baseline.resume_cursor)) == [["cy"]]


def test_a_baseline_takes_the_types_of_its_scope_and_binds_the_rest(town: Graph) -> None:
    buffer = io.BytesIO()
    scope = ChangeScope.of(kinds=["node"], types=["Person"], ops=["delete"])
    baseline = town.changes.baseline(buffer, scope=scope)
    assert buffer.getvalue().count(b'"Person"') == 2
    assert b'"edge"' not in buffer.getvalue()
    town.changes.poll(cursor=baseline.resume_cursor, scope=scope)
    with pytest.raises(ChangeCursorRejectedError, match="scope"):
        town.changes.poll(cursor=baseline.resume_cursor)


def test_a_failed_write_gives_no_cursor(town: Graph) -> None:
    class Full:
        def write(self, data: bytes, /) -> None:
            raise OSError(28, "no space left")

    with pytest.raises(OSError, match="no space left"):
        town.changes.baseline(Full())
