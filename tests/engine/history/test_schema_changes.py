"""Commits that change the schema, as the feed tells them: records of types, then the entities that changed besides.

`test_feed_laws` proves that records and changes add up to the graph; here is which records there are, and what scopes,
pages, cursors and cleanup make of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from omnigraph import Graph
from omnigraph.api import schema as api_schema
from omnigraph.api import wire
from omnigraph.api.history import ChangePoll, ChangeRecord, ChangeScope, SchemaChange
from omnigraph.engine.history.changes import FeedCursor, unseal
from omnigraph.engine.history.schema_changes import subject_of
from omnigraph.errors import BadRequestError, ChangeCursorRejectedError, ChangeFeedGapError
from tests.conftest import Place
from tests.engine.town import SCHEMA, knows, new_town, person, place, put
from tests.support.costs import settled
from tests.support.s3 import S3Server

WITH_NICKNAME = SCHEMA.replace("age: I32?", "age: I32?\n  nickname: String?")
WITHOUT_HEIGHT = SCHEMA.replace("  height: F64?\n", "")
WITH_SPOTS = SCHEMA.replace("node Place {", 'node Spot @rename_from("Place") {').replace("-> Place", "-> Spot")
SPOTS = SCHEMA.replace("Place", "Spot")
WITH_SIZE = SCHEMA.replace("height: F64?", 'size: F64? @rename_from("height")')
WITHOUT_PLACES = "\n".join(line for line in SCHEMA.splitlines() if "Place" not in line)


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Graph]:
    graph = new_town(tmp_path / "town", person("ada", age=1), person("bob"), place("inn"), knows("k", "ada", "bob"))
    yield graph
    graph.close()


def last_records(graph: Graph, **options: Any) -> list[tuple[str, str, list[str]]]:
    page = graph.changes.page(graph.resolve_snapshot(), **options)
    return [(each.type_name, each.change.value, [step.kind for step in each.steps]) for each in page.schema_changes]


def poll_types(scope: str, **position: Any) -> dict[str, Any]:
    return {"scope": ChangeScope.of(types=[scope]), **position}


def told(poll: ChangePoll) -> list[list[tuple[str, str]]]:
    """Per commit, what happened to what."""
    return [
        [(each.change.value if isinstance(each, SchemaChange) else each.op.value, each.type_name) for each in block]
        for block in poll.blocks
    ]


@pytest.mark.parametrize(
    ("schema", "records"),
    [
        (WITH_NICKNAME, [("Person", "changed", ["add_property"])]),
        (WITHOUT_HEIGHT, [("Person", "changed", ["drop_property"])]),
        (
            WITH_SIZE,
            [("Person", "changed", ["rename_property"])],
        ),
        (SCHEMA.replace("enum(house, shop)", "enum(house, shop, barn)"), [("Place", "rules", ["extend_enum"])]),
        (WITH_SPOTS, [("Spot", "renamed", ["rename_type"])]),
        (SCHEMA + "\nnode Pet { name: String @key }\n", [("Pet", "added", ["add_type"])]),
        (WITHOUT_PLACES, [("Place", "dropped", ["drop_type"]), ("Lives", "dropped", ["drop_type"])]),
        (SCHEMA.replace("age: I32?", "age: I32? @index"), []),
        (SCHEMA.replace("node Place {", 'node Place @description("where one lives") {'), []),
        (
            WITH_SIZE.replace("age: I32?", "age: I32? @index"),
            [("Person", "changed", ["rename_property", "add_constraint"])],
        ),
    ],
    ids=str,
)
def test_a_record_says_what_readers_of_images_have_to_know(
    town: Graph, schema: str, records: list[tuple[str, str, list[str]]]
) -> None:
    town.schema.apply(schema)
    assert last_records(town) == records
    assert town.changes.page(town.resolve_snapshot()).changes == ()


def test_a_record_in_full(town: Graph) -> None:
    before = town.snapshot().entry
    town.schema.apply(WITHOUT_PLACES)
    commit = town.resolve_snapshot()
    place_record, _ = wire.to_builtins(town.changes.page(commit))["schema_changes"]
    assert place_record == {
        "op": "schema_change",
        "kind": "node",
        "type": {"id": before.tables["node:Place"].table_id, "name": "Place"},
        "change": "dropped",
        "entities": 1,
        "steps": [{"kind": "drop_type", "type_kind": "node", "name": "Place", "mode": "soft"}],
        "schema_before": before.schema,
        "schema_after": town.snapshot().entry.schema,
    }


def test_names_before_and_after(town: Graph) -> None:
    town.schema.apply(WITH_SPOTS + "\nnode Pet { name: String @key }\n")
    records = town.changes.page(town.resolve_snapshot()).schema_changes
    assert [(each.name_before, each.name_after) for each in records] == [("Place", "Spot"), (None, "Pet")]
    town.schema.apply(SPOTS)
    (dropped,) = town.changes.page(town.resolve_snapshot()).schema_changes
    assert (dropped.name_before, dropped.name_after, dropped.op) == ("Pet", None, "schema_change")


def test_every_step_says_which_type_it_is_about() -> None:
    """A new kind of step has to, or no record would have it."""
    for step in get_args(api_schema.SchemaStep):
        assert {"type_name", "to_name", "name", "entity"} & set(step.__struct_fields__), step
    blocked = api_schema.UnsupportedChange("node:Book.pages", "no")
    assert subject_of(blocked) == ("node", "Book")


def test_everything_that_a_commit_changed_begins_with_the_schema(town: Graph) -> None:
    town.create_branch("side")
    town.schema.apply(WITH_NICKNAME, branch="side")
    put(town, "side", person("ada", age=1, nickname="a"), person("bob"))
    town.merge("side")
    record, update = town.changes.of(town.resolve_snapshot())
    assert isinstance(record, SchemaChange)
    assert isinstance(update, ChangeRecord)
    assert (update.id, update.op) == ("ada", "update")
    assert update.before is not None
    assert update.after is not None
    assert ("nickname" in update.before.properties, update.after.properties["nickname"]) == (False, "a")


def test_a_diff_lists_the_entities_that_records_stand_for(town: Graph) -> None:
    put(town, "main", person("ada", age=1, height=1.7))
    before = town.resolve_snapshot()
    town.schema.apply(
        WITHOUT_HEIGHT.replace("node Place", "node Site").replace("Lives: Person -> Place", "At: Person -> Site")
    )
    assert town.changes.page(town.resolve_snapshot()).changes == ()
    changes = town.diff(before, "main").changes
    assert [(each.type_name, each.id, each.op.value) for each in changes] == [
        ("Person", "ada", "update"),
        ("Place", "inn", "delete"),
    ]


def test_a_type_that_was_dropped_and_declared_anew_in_one_commit_is_two_types(town: Graph) -> None:
    put(town, "main", place("mill", kind="shop"))
    town.create_branch("side")
    town.schema.apply(WITHOUT_PLACES, branch="side")
    town.schema.apply(SCHEMA, branch="side")
    put(town, "side", place("inn"))
    cursor = town.changes.poll().cursor
    assert town.merge("side").outcome == "fast_forward"
    poll = town.changes.poll(cursor=cursor, scope=ChangeScope())
    kinds = [("dropped", "Place"), ("dropped", "Lives"), ("added", "Place"), ("added", "Lives"), ("insert", "Place")]
    assert told(poll) == [kinds]
    dropped, _, added, _, insert = poll.blocks[0]
    assert (dropped.type.id == added.type.id, added.type.id == insert.type.id) == (False, True)


def test_a_wider_number_is_the_same_number(town: Graph) -> None:
    """Equality of values is that of their JSON."""
    import pyarrow as pa

    from omnigraph.engine.rows.columns import equal_values

    whole = pa.array([1, -1, None, 2**31 - 1], pa.int32())
    assert equal_values(whole, pa.array([1, -1, None, 5], pa.int64())).tolist() == [True, True, True, False]
    assert equal_values(pa.array([2**64 - 1], pa.uint64()), pa.array([-1], pa.int64())).tolist() == [False]
    halves = pa.array([0.5, 0.1], pa.float32())
    assert equal_values(halves, pa.array([0.5, 0.1], pa.float64())).tolist() == [True, False]
    lists = pa.array([[1, 2], [3]], pa.list_(pa.int32()))
    assert equal_values(lists, pa.array([[1, 2], [4]], pa.list_(pa.int64()))).tolist() == [True, False]
    assert equal_values(pa.array([1, 2], pa.int32()), pa.array([1, 2.5], pa.float64())).tolist() == [True, False]
    assert equal_values(pa.array([1], pa.int64()), pa.array([1.0], pa.float64())).tolist() == [False]
    assert equal_values(pa.array([1], pa.int32()), pa.array(["1"])).tolist() == [False]


# Scopes


def test_a_feed_goes_on_past_a_change_of_a_type_that_it_is_not_about(town: Graph) -> None:
    cursor = town.changes.poll(**poll_types("Place")).cursor
    town.schema.apply(WITH_NICKNAME)
    put(town, "main", place("lab"))
    poll = town.changes.poll(**poll_types("Place", cursor=cursor))
    assert (told(poll), poll.caught_up) == ([[], [("insert", "Place")]], True)
    edges = ChangeScope.of(kinds=["edge"])
    assert told(town.changes.poll(start="beginning", scope=edges)) == [[("insert", "Knows")], [], []]


def test_operations_select_entities_and_never_records(town: Graph) -> None:
    town.schema.apply(WITH_NICKNAME)
    scope = ChangeScope.of(ops=["delete"])
    assert last_records(town, scope=scope) == [("Person", "changed", ["add_property"])]


def test_a_feed_follows_its_type_through_renames(town: Graph) -> None:
    cursor = town.changes.poll(**poll_types("Place")).cursor
    town.schema.apply(WITH_SPOTS)
    first = town.changes.poll(**poll_types("Place", cursor=cursor))
    put(town, "main", '{"type": "Spot", "data": {"name": "mill"}}', person("cy"))
    town.schema.apply(SPOTS.replace("node Spot {", 'node Site @rename_from("Spot") {').replace("-> Spot", "-> Site"))
    second = town.changes.poll(**poll_types("Place", cursor=first.cursor), max_commits=1)
    third = town.changes.poll(**poll_types("Place", cursor=second.cursor))
    assert [told(poll) for poll in (first, second, third)] == [
        [[("renamed", "Spot")]],
        [[("insert", "Spot")]],
        [[("renamed", "Site")]],
    ]


def test_a_type_that_gets_a_name_of_the_scope_joins_with_all_its_entities(town: Graph) -> None:
    put(town, "main", place("mill"))
    scope = ChangeScope.of(types=["Person", "Spot"])
    with pytest.raises(BadRequestError, match="no type 'Spot'"):
        town.changes.poll(scope=scope)
    start = town.resolve_snapshot()
    town.schema.apply(WITH_SPOTS)
    first = town.changes.poll(start=f"after:{start}", scope=scope, max_changes=1)
    second = town.changes.poll(page_token=first.next_page_token, scope=scope, max_changes=1)
    assert [told(first), told(second)] == [[[("added", "Spot"), ("insert", "Spot")]], [[("insert", "Spot")]]]
    # For who looks at one commit, nothing came: the type was renamed.
    assert last_records(town, scope=ChangeScope.of(types=["Spot"])) == [("Spot", "renamed", ["rename_type"])]
    assert last_records(town, scope=ChangeScope.of(types=["Place"])) == [("Spot", "renamed", ["rename_type"])]


def test_a_commit_is_asked_for_by_the_names_of_its_time_or_of_today(town: Graph) -> None:
    commit = put(town, "main", place("mill"))
    assert commit is not None
    town.schema.apply(WITH_SPOTS)
    for name in ("Place", "Spot"):
        assert [each.type_name for each in town.changes.of(commit, scope=ChangeScope.of(types=[name]))] == ["Place"]
    with pytest.raises(BadRequestError, match="no type 'Site'"):
        town.changes.page(commit, scope=ChangeScope.of(types=["Site"]))


def test_a_feed_outlives_its_type(town: Graph) -> None:
    cursor = town.changes.poll(**poll_types("Place")).cursor
    town.schema.apply(WITHOUT_PLACES)
    first = town.changes.poll(**poll_types("Place", cursor=cursor))
    put(town, "main", person("cy"))
    town.schema.apply(SCHEMA)
    put(town, "main", place("lab"))
    second = town.changes.poll(**poll_types("Place", cursor=first.cursor))
    assert told(first) == [[("dropped", "Place")]]
    assert told(second) == [[], [("added", "Place")], [("insert", "Place")]]


# Pages, cursors and cleanup


def test_records_come_with_the_first_page_of_their_commit(town: Graph) -> None:
    town.create_branch("side")
    town.schema.apply(WITH_NICKNAME, branch="side")
    put(town, "side", *(person(f"p{i}", nickname="x") for i in range(3)))
    town.merge("side")
    commit, pages, token = town.resolve_snapshot(), [], None
    while token is not None or not pages:
        pages.append(town.changes.page(commit, page_token=token, max_changes=1))
        token = pages[-1].next_page_token
    assert [(len(page.schema_changes), len(page.changes)) for page in pages] == [(1, 1), (0, 1), (0, 1)]
    parent = town.snapshot(snapshot=commit).entry.commit.parents[0].commit_id
    start = town.changes.poll(start=f"after:{parent}", max_changes=2)
    rest = town.changes.poll(page_token=start.next_page_token)
    assert [told(start), told(rest)] == [
        [[("changed", "Person")] + [("insert", "Person")] * 2],
        [[("insert", "Person")]],
    ]
    assert start.followed_by(rest).blocks == town.changes.poll(start=f"after:{parent}").blocks
    with pytest.raises(ChangeCursorRejectedError, match="scope"):
        town.changes.page(commit, page_token=pages[0].next_page_token, scope=ChangeScope.of(types=["Person"]))


def test_a_small_page_still_has_its_records(town: Graph) -> None:
    town.schema.apply(WITH_NICKNAME)
    put(town, "main", person("cy"))
    poll = town.changes.poll(start=f"after:{town.snapshot(version=2).commit_id}", max_bytes=1)
    assert (told(poll), poll.caught_up) == ([[("changed", "Person")]], False)
    assert told(town.changes.poll(cursor=poll.cursor, max_bytes=1)) == [[("insert", "Person")]]


def test_a_cursor_has_the_form_it_always_had_until_a_type_is_renamed(town: Graph) -> None:
    cursor = town.changes.poll(**poll_types("Place")).cursor
    town.schema.apply(WITH_SPOTS)
    renamed = town.changes.poll(**poll_types("Place", cursor=cursor)).cursor
    types = [unseal(each or "", FeedCursor).types for each in (cursor, renamed)]
    assert types == [(), (town.catalog.type_named("Spot").id,)]


def test_what_cleanup_reclaimed_before_a_schema_change_is_a_gap(town: Graph, tmp_path: Path) -> None:
    cursor = town.changes.poll().cursor
    put(town, "main", person("cy"))
    before = town.snapshot()
    town.schema.apply(WITH_NICKNAME)
    state = before.entry.tables["node:Person"]
    (tmp_path / "town" / state.path / "_versions" / f"d{state.version}.manifest").unlink()
    with Graph.open(tmp_path / "town") as fresh:
        for commit in (before.commit_id, fresh.resolve_snapshot()):
            with pytest.raises(ChangeFeedGapError) as caught:
                fresh.changes.page(commit)
            assert caught.value.first_unreadable_commit_id == commit
        with pytest.raises(ChangeFeedGapError):
            fresh.changes.poll(cursor=cursor)
        assert last_records(fresh, scope=ChangeScope.of(types=["Place"])) == []


def test_a_dropped_type_needs_no_data_of_the_past(town: Graph) -> None:
    """Also when the drop has purged it."""
    cursor = town.changes.poll(**poll_types("Place")).cursor
    town.schema.apply(WITHOUT_PLACES, allow_data_loss=True)
    assert told(town.changes.poll(**poll_types("Place", cursor=cursor))) == [[("dropped", "Place")]]


POLL_REQUESTS, SCOPED_POLL_REQUESTS = 36, 22
"""Of a fresh handle, for three commits that each wrote two small types, or one that is selected."""


def test_a_feed_without_schema_changes_costs_what_it_did(s3_server: S3Server, s3_place: Place) -> None:
    scopes = {None: POLL_REQUESTS, "Person": SCOPED_POLL_REQUESTS, "Place": SCOPED_POLL_REQUESTS}
    with new_town(s3_place.uri, person("ada"), place("inn")) as graph:
        cursor = {name: graph.changes.poll(scope=ChangeScope.of(types=name and [name])).cursor for name in scopes}
        for number in range(3):
            put(graph, "main", person(f"p{number}"), place(f"q{number}"))
        settled(graph, s3_server, lambda: None)
    for name, most in scopes.items():
        with Graph.open(s3_place.uri) as graph:
            scope = ChangeScope.of(types=name and [name])
            log = settled(graph, s3_server, lambda g=graph, s=scope, n=name: g.changes.poll(cursor=cursor[n], scope=s))
            assert len(log) <= most, log.lines()


def test_a_schema_change_that_moves_no_data_costs_the_same_at_any_size(s3_server: S3Server, s3_place: Place) -> None:
    costs = []
    for rows in (10, 3_000):
        with new_town(f"{s3_place.uri}/{rows}", *(person(f"p{i}", height=i / 100) for i in range(rows))) as graph:
            cursor = graph.changes.poll().cursor
            graph.schema.apply(WITHOUT_HEIGHT)
            settled(graph, s3_server, lambda: None)
        with Graph.open(f"{s3_place.uri}/{rows}") as graph:
            costs.append(len(settled(graph, s3_server, lambda g=graph, c=cursor: g.changes.poll(cursor=c))))
    assert costs[0] == costs[1], costs
