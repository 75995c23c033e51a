"""History for a restricted reader: a difference is that of two graphs with the visible rows, a feed adds up to it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.api.enums import Operation
from omnigraph.api.history import ChangeRecord, ChangeScope, EntityImage
from omnigraph.api.schema import AddProperty
from omnigraph.engine.export import export_lines
from omnigraph.engine.history.changes import CommitPosition, diff_page, unseal
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import ChangeCursorRejectedError, PolicyError
from omnigraph.language.query.row_filter import EVERY_ROW, NO_ROW, TypeVisibility, visibility_of
from tests.engine.query_graphs import SOCIAL, social_graph
from tests.engine.visibilities import Chosen, drawn_filters, drawn_masks, visibility_on

GRAPHS = 4
EVOLVED = SOCIAL.replace("  score: F64?\n", "  extra: I32?\n")
Entities = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Graph]]:
    """Random histories: loads, an update of a person, at times a deletion, then changes on a branch, and on another one
    that lost a property which filters look at."""
    folder: Path = tmp_path_factory.mktemp("histories")
    made = [social_graph(folder / str(seed), seed) for seed in range(GRAPHS)]
    for seed, graph in enumerate(made):
        graph.create_branch("side")
        age = "query q($a: I32) { update Person set { age: $a } where age < 3 }"
        graph.mutate(age, params={"a": seed + 1}, branch="side")
        graph.mutate("query q() { update City set { people: 0 } where people > 0 }", branch="side")
        graph.mutate('query q() { update Person set { age: 0  nick: "ann" } where age > 1 }')
        graph.maintenance.optimize("side")
        graph.create_branch("evolved", source="side")
        graph.schema.apply(EVOLVED, branch="evolved")
        graph.mutate("query q() { update Person set { extra: 1 } where age < 5 }", branch="evolved")
    yield made
    for graph in made:
        graph.close()


def entities(state: Snapshot) -> Entities:
    """The entities of an export under the visibility, by kind and type, and id."""
    found: Entities = {}
    for line in map(json.loads, export_lines(state)):
        kind = f"edge:{line['edge']}" if "edge" in line else f"node:{line['type']}"
        # A property that a state does not have is null there.
        line["data"] = {name: value for name, value in line["data"].items() if value is not None}
        found[kind, line["data"]["id"]] = line
    return found


def expected(before: Entities, after: Entities) -> dict[tuple[str, str], Operation]:
    changed = dict.fromkeys(after.keys() - before.keys(), Operation.INSERT)
    changed |= dict.fromkeys(before.keys() - after.keys(), Operation.DELETE)
    return changed | {key: Operation.UPDATE for key in before.keys() & after.keys() if before[key] != after[key]}


def told(before: Snapshot, after: Snapshot) -> dict[tuple[str, str], Operation]:
    changes = diff_page(before, after, ChangeScope(), None, 8192).changes
    found = {(f"{c.kind}:{c.type_name}", c.id): c.op for c in changes}
    assert len(found) == len(changes)
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.integers(0, GRAPHS - 1), drawn_filters(), drawn_masks(), st.booleans())
def test_a_difference_is_that_of_what_is_visible(
    graphs: list[Graph], data: Any, which: int, chosen: Chosen, masked: dict[str, list[str]], one_sided: bool
) -> None:
    graph = graphs[which]
    made = visibility_on(graph.catalog, chosen, masked)
    states = []
    for side in ("before", "after"):
        branch = data.draw(st.sampled_from(["main", "side", "evolved"]), label=side)
        newest = graph.version_of(branch)
        states.append(graph.snapshot(branch, version=data.draw(st.integers(1, newest))))
    # On two branches different rules may hold.
    before, after = states[0] if one_sided else states[0].restricted_to(made), states[1].restricted_to(made)
    assert told(before, after) == expected(entities(before), entities(after))


def image(line: dict[str, Any]) -> dict[str, Any]:
    """A line of an export as a change shows it."""
    ends = {"endpoints": {"from": line["from"], "to": line["to"]}} if "edge" in line else {}
    return {"properties": {name: value for name, value in line["data"].items() if name != "id"}, **ends}


def without_nulls(shown: EntityImage) -> dict[str, Any]:
    told: dict[str, Any] = wire.to_builtins(shown)
    return {**told, "properties": {name: value for name, value in told["properties"].items() if value is not None}}


@settings(max_examples=7, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, GRAPHS - 1), drawn_filters(), drawn_masks(), st.sampled_from([2, 8192]))
def test_a_feed_leads_from_one_visible_state_to_the_next(
    graphs: list[Graph], which: int, chosen: Chosen, masked: dict[str, list[str]], page: int
) -> None:
    """Every block holds exactly what changed for its reader, with what its reader sees of it, however it is paged."""
    whole = graphs[which]
    visibility = visibility_on(whole.catalog, chosen, masked)
    graph = whole._restricted_to(visibility)
    commits: dict[str, list[ChangeRecord]] = {}
    start: dict[str, Any] = {"start": "beginning"}
    while True:
        poll = graph.changes.poll(branch="side", max_changes=page, **start)
        for block in poll.blocks:
            commits.setdefault(block.cause.graph_commit_id, []).extend(block.changes)
        if poll.next_page_token is not None:
            start = {"page_token": poll.next_page_token}
        elif poll.caught_up:
            break
        else:
            start = {"cursor": poll.cursor}
    states = [entities(graph.snapshot("side", version=v)) for v in range(1, graph.version_of("side") + 1)]
    assert len(commits) == len(states) - 1
    for (before, after), records in zip(pairwise(states), commits.values(), strict=True):
        keys = [(f"{r.kind}:{r.type.name}", r.id) for r in records]
        assert dict(zip(keys, (r.op for r in records), strict=True)) == expected(before, after)
        for key, record in zip(keys, records, strict=True):
            for shown, side in ((record.before, before), (record.after, after)):
                assert (shown and without_nulls(shown)) == (image(side[key]) if key in side else None)


SCHEMA = """
node Person { name: String @key  region: String  salary: I32?  until: DateTime? }
node Vault { code: String @key }
edge Knows: Person -> Person
"""
RECORDS = """
{"type": "Person", "data": {"name": "ada", "region": "eu", "salary": 1}}
{"type": "Person", "data": {"name": "bob", "region": "us", "salary": 2}}
{"type": "Vault", "data": {"code": "v"}}
{"edge": "Knows", "from": "ada", "to": "bob", "data": {"id": "k"}}
"""


@pytest.fixture
def staff(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load(RECORDS, mode="append")
        yield graph


def restricted_to(graph: Graph, rows: str = 'region = "eu"', *masked: str) -> Graph:
    """The graph for somebody who sees some people, and no vault."""
    catalog = graph.catalog
    shown: Chosen = {"node:Person": (rows, bool), "node:Vault": ("false", bool)}
    return graph._restricted_to(visibility_on(catalog, shown, {"node:Person": list(masked)} if masked else {}))


def last_changes(graph: Graph) -> list[tuple[str, str]]:
    return [(change.id, change.op) for change in graph.changes.of(graph.resolve_snapshot())]


def test_who_comes_into_view_is_inserted_with_its_edges_and_who_leaves_is_deleted(staff: Graph) -> None:
    visible = restricted_to(staff)
    staff.mutate('query q() { update Person set { region: "eu" } where name = "bob" }')
    assert last_changes(visible) == [("bob", "insert"), ("k", "insert")]
    assert last_changes(staff) == [("bob", "update")]
    staff.mutate('query q() { update Person set { region: "us" } where name = "ada" }')
    assert last_changes(visible) == [("ada", "delete"), ("k", "delete")]


def test_a_change_of_what_is_masked_is_none_unless_it_brings_the_row_into_view(staff: Graph) -> None:
    staff.mutate('query q() { update Person set { salary: 7 } where name = "ada" }')
    assert last_changes(restricted_to(staff, 'region = "eu"', "salary")) == []
    by_salary = restricted_to(staff, "salary > 5", "salary")
    assert last_changes(by_salary) == [("ada", "insert")]
    (record,) = by_salary.changes.of(staff.resolve_snapshot())
    assert record.after is not None
    assert record.after.properties["salary"] is None


def test_who_is_not_visible_leaves_no_trace_in_counts(staff: Graph) -> None:
    visible = restricted_to(staff)
    staff.mutate('query q() { insert Person { name: "cy", region: "us" } insert Person { name: "di", region: "eu" } }')
    newest, first, *_ = visible.commit_history().commits
    assert wire.to_builtins(newest)["changes"] == {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}}
    assert wire.to_builtins(first)["changes"] == {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}}
    counts = {row.type_name: row.entity_count for row in visible.snapshot().listing().datasets}
    assert counts == {"Person": 2, "Vault": 0, "Knows": 0}
    assert [visible.snapshot().count(name) for name in ("Person", "Vault", "Knows")] == [2, 0, 0]
    with pytest.raises(PolicyError, match="needs a rule without rows and hide"):
        visible.snapshot().count("Person", "region = 'us'")


def test_what_was_worked_out_for_one_reader_is_not_shown_to_another(staff: Graph) -> None:
    """A handle remembers comparisons for the pages of a large commit: by what their reader sees."""
    commit = staff.resolve_snapshot()
    assert len(list(staff.changes.of(commit))) == 4
    visible = restricted_to(staff)
    assert len(list(visible.changes.of(commit))) == 1
    assert len(list(staff.changes.of(commit))) == 4
    token = staff.changes.page(commit, max_changes=1).next_page_token
    with pytest.raises(ChangeCursorRejectedError):
        visible.changes.page(commit, page_token=token)
    token = staff.changes.poll(start="beginning", max_changes=1).next_page_token
    with pytest.raises(ChangeCursorRejectedError):
        visible.changes.poll(page_token=token)


def test_a_page_token_counts_what_was_visible_and_nothing_else(staff: Graph) -> None:
    more = "\n".join(json.dumps({"type": "Person", "data": {"name": f"p{i}", "region": "us"}}) for i in range(50))
    mine = "\n".join(json.dumps({"type": "Person", "data": {"name": f"q{i}", "region": "eu"}}) for i in range(3))
    staff.load(f"{more}\n{mine}", mode="append")
    page = restricted_to(staff).changes.page(staff.resolve_snapshot(), max_changes=2)
    assert [change.id for change in page.changes] == ["q0", "q1"]
    assert unseal(page.next_page_token or "", CommitPosition).delivered == 2


def test_a_cursor_stays_good_when_rules_change(staff: Graph) -> None:
    cursor = restricted_to(staff).changes.poll(start="now").cursor
    staff.mutate('query q() { insert Person { name: "cy", region: "us" } }')
    poll = restricted_to(staff, 'region = "us"').changes.poll(cursor=cursor)
    assert [change.id for block in poll.blocks for change in block.changes] == ["cy"]


def test_rules_hold_for_states_from_before_they_were_made(staff: Graph) -> None:
    """Also where a property had another name then."""
    old = staff.version_of()
    renamed = SCHEMA.replace("region: String", 'area: String @rename_from("region")')
    staff.schema.apply(renamed)
    visible = restricted_to(staff, 'area = "eu"')
    assert visible.entity("node:Person", "bob", version=old) is None
    assert visible.entity("node:Person", "ada", version=old) is not None
    differences = visible.diff(visible.snapshot(version=1), visible.snapshot(version=old)).changes
    assert [(change.id, change.op) for change in differences] == [("ada", "insert")]
    assert visible.diff(visible.snapshot(version=old), visible.snapshot()).changes == ()


def dropped_types(graph: Graph, commit: str) -> list[tuple[str, str, int | None]]:
    page = graph.changes.page(commit)
    assert page.changes == ()
    return [(change.type_name, change.change, change.entities) for change in page.schema_changes]


def test_a_dropped_type_is_only_recorded_for_those_who_saw_some_of_it(staff: Graph) -> None:
    staff.schema.apply(SCHEMA.replace("node Vault { code: String @key }\n", ""))
    commit = staff.resolve_snapshot()
    vaults = staff.snapshot(version=2).count("node:Vault")
    assert dropped_types(staff, commit) == [("Vault", "dropped", vaults)]
    person, past = staff.catalog.type_named("node:Person"), staff.snapshot(version=2).catalog
    masked = TypeVisibility(person, EVERY_ROW, frozenset({"salary"}))
    assert dropped_types(staff._restricted_to(visibility_of([masked])), commit) == [("Vault", "dropped", None)]
    without_vaults = visibility_of([TypeVisibility(past.type_named("node:Vault"), NO_ROW), masked])
    assert dropped_types(staff._restricted_to(without_vaults), commit) == []


@pytest.mark.parametrize(
    ("schema", "steps"),
    [
        (SCHEMA.replace("salary: I32?", 'pay: I32? @rename_from("salary")'), None),
        (SCHEMA.replace("salary: I32?", 'pay: I32? @rename_from("salary")  grade: I32?'), ["grade"]),
    ],
    ids=["nothing else", "and another property"],
)
def test_a_masked_property_is_not_named(staff: Graph, schema: str, steps: list[str] | None) -> None:
    staff.schema.apply(schema)
    person = staff.catalog.type_named("node:Person")
    masked = visibility_of([TypeVisibility(person, EVERY_ROW, frozenset({"pay"}))], staff.catalog)
    changes = staff._restricted_to(masked).changes.page(staff.resolve_snapshot()).schema_changes
    names = [[step.property_name for step in change.steps if isinstance(step, AddProperty)] for change in changes]
    assert names == ([] if steps is None else [steps])
    assert b"salary" not in wire.encode(changes)
    assert b"pay" not in wire.encode(changes)
    assert b"salary" in wire.encode(staff.changes.page(staff.resolve_snapshot()))


def test_the_clock_is_read_once_per_difference(staff: Graph) -> None:
    """What a rule with now() shows is never remembered for the next reader of the same commit."""
    staff.mutate('query q() { update Person set { until: datetime("2031-01-01T00:00:00Z") } where name = "ada" }')
    visible = restricted_to(staff, "until > now()")
    assert last_changes(visible) == [("ada", "insert")]
    assert len(visible._workspace.comparisons) == 0


WHOLE: dict[str, Callable[[Graph], object]] = {
    "a merge": lambda g: g.merge("side", "main", actor="ana"),
    "the preview of a merge": lambda g: g.preview_merge("side"),
    "a schema change": lambda g: g.schema.apply(SCHEMA + "node X { a: String @key }", actor="ana"),
    "a baseline": lambda g: g.changes.baseline(io.BytesIO()),
}


@pytest.mark.parametrize("what", WHOLE)
def test_what_is_about_everything_takes_somebody_who_sees_everything(staff: Graph, what: str) -> None:
    staff.create_branch("side")
    before = staff.resolve_snapshot()
    with pytest.raises(PolicyError, match=f"policy: {what} needs a rule without rows and hide"):
        WHOLE[what](restricted_to(staff))
    assert staff.resolve_snapshot() == before
