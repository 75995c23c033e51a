"""`omnigraph.open(..., policy=, actor=)`: a handle does what the rules allow to its actor, and nothing else."""

from __future__ import annotations

import io
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.api.graph import ChangesArea, GraphApi, MaintenanceArea, SchemaArea
from omnigraph.errors import BadRequestError, BranchNotFoundError, CompileError, NotFoundError, PolicyError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "policy"
SCHEMA = (EXAMPLE / "schema.pg").read_text("utf-8")
RULES = EXAMPLE / "team.policy.yaml"
NOTES = "query q() { match { $n: Note } return { $n.slug as slug } order { slug } }"
NEW = 'query q() { insert Note { slug: "new", title: "New", owner: "x", public: true } }'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made") / "g"
    with omnigraph.init(place, SCHEMA) as graph:
        graph.load((EXAMPLE / "records.ndjson").read_text("utf-8"), mode="append")
        graph.create_branch("work")
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A graph of its own."""
    return Path(shutil.copytree(made, tmp_path / "g"))


@contextmanager
def opened(place: Path, actor: str, policy: Path = RULES) -> Iterator[Graph]:
    with omnigraph.open(place, policy=policy, actor=actor) as graph:
        yield graph


def test_each_actor_sees_what_its_rules_show(made: Path) -> None:
    visible = {}
    for actor in ("ana", "agent-research", "agent-review"):
        with opened(made, actor) as graph:
            entity = graph.entity("node:Person", "lea")
            assert entity is not None
            visible[actor] = (
                [row["slug"] for row in graph.query(NOTES)],
                entity["email"] is None,
                entity["salary"] is None,
            )
    assert visible == {
        "ana": (["pay", "roadmap", "sources"], False, False),
        "agent-research": (["roadmap", "sources"], True, True),
        "agent-review": (["pay", "roadmap", "sources"], False, True),
    }


def test_a_branch_is_read_by_whoever_may_read_it(made: Path) -> None:
    with opened(made, "agent-intake") as graph:
        assert len(graph.query(NOTES, branch="work")) == 3
        for read in (
            lambda: graph.query(NOTES),
            lambda: graph.query(NOTES, branch=" main "),
            lambda: graph.snapshot("main"),
            lambda: graph.snapshot(version=1),
            lambda: graph.diff("main", "work"),
            lambda: graph.diff("work", "main"),
            lambda: graph.branch("main"),
            graph.list_branches,
        ):
            with pytest.raises(PolicyError, match="policy denied action 'read'"):
                read()


def test_a_commit_is_governed_by_the_branch_it_was_made_on(made: Path) -> None:
    with omnigraph.open(made) as whole:
        commit = whole.resolve_snapshot("work")
    with opened(made, "agent-intake") as graph, pytest.raises(PolicyError, match="on branch 'main'"):
        graph.query(NOTES, snapshot=commit)


def test_whether_a_branch_exists_is_told_to_those_who_may_read_it(made: Path) -> None:
    with opened(made, "stranger") as graph, pytest.raises(PolicyError, match="unknown actor 'stranger'"):
        graph.query(NOTES, branch="nowhere")
    with opened(made, "ana") as graph, pytest.raises(BranchNotFoundError):
        graph.query(NOTES, branch="nowhere")


def test_writes_go_by_the_name_of_the_actor_and_no_other(place: Path) -> None:
    with opened(place, "ana") as graph:
        graph.mutate(NEW, branch="work")
        assert graph.commits("work").commits[0].actor_id == "ana"
        with pytest.raises(PolicyError, match="acts for 'ana' and can't write for 'bob'"):
            graph.mutate(NEW, branch="work", actor="bob")
        with pytest.raises(PolicyError, match="policy denied action 'change' on branch 'main'"):
            graph.mutate(NEW)
        assert graph.branch("mine", create=True).name == "mine"
        with pytest.raises(PolicyError, match="branch_merge"):
            graph.merge("work")
    with opened(place, "lea") as graph:
        assert graph.merge("work").actor_id == "lea"


def test_what_is_visible_when_writing_is_what_the_rules_for_writing_show(place: Path) -> None:
    with opened(place, "agent-intake") as graph:
        assert graph.branch("inbox", create=True).mutate(NEW).affected_nodes == 1
        graph.mutate(NEW, branch="work")
        with pytest.raises(PolicyError, match=r"'Person.salary' is hidden"):
            graph.mutate('query q() { update Person set { salary: 1 } where name = "ana" }', branch="work")


def test_taking_everything_out_is_not_reading_it(made: Path) -> None:
    with opened(made, "agent-review") as graph:
        state = graph.snapshot()
        for export in (
            lambda: list(graph.export()),
            lambda: graph.export_to(io.BytesIO()),
            lambda: graph.export_files("nowhere"),
            lambda: list(state.export()),
            lambda: graph.changes.baseline(io.BytesIO()),
        ):
            with pytest.raises(PolicyError, match="policy denied action 'export' on branch 'main'"):
                export()
    with opened(made, "bob") as graph:
        assert len(list(graph.export())) == len(list(graph.snapshot().export())) == 9
        assert len(list(graph.export(snapshot=graph.resolve_snapshot()))) == 9


def test_a_feed_and_a_diff_show_what_their_reader_sees(place: Path) -> None:
    with omnigraph.open(place) as whole:
        whole.mutate(NEW.replace("public: true", "public: false"))
        whole.mutate('query q() { update Note set { public: true } where slug = "pay" }')
    with opened(place, "agent-research") as graph:
        feed = graph.changes.poll(start="beginning")
        assert [[change.id for change in block.changes] for block in feed.blocks[1:]] == [[], ["pay", "lea-pay"]]
        changes = graph.diff(graph.snapshot(version=2), "main").changes
        assert [(change.id, change.op) for change in changes] == [("lea-pay", "insert"), ("pay", "insert")]
        with pytest.raises(PolicyError, match="the preview of a merge needs a rule without rows and hide"):
            graph.preview_merge("work")


# What a stranger tries. Every method of the contract is here, so that one that is added is thought about.
CALLS: dict[str, Callable[[Graph], object]] = {
    "query": lambda g: g.query(NOTES),
    "stream": lambda g: list(g.stream(NOTES)),
    "explain": lambda g: g.explain(NOTES),
    "profile": lambda g: g.profile(NOTES),
    "count": lambda g: g.count("Person"),
    "snapshot": lambda g: g.snapshot(),
    "at": lambda g: g.at(1),
    "branch": lambda g: g.branch("work"),
    "stored_queries": lambda g: g.stored_queries(),
    "changes.follow": lambda g: next(g.changes.follow()),
    "entity": lambda g: g.entity("node:Person", "ana"),
    "read_blob": lambda g: g.read_blob("node", "Person", "ana", "photo"),
    "export": lambda g: list(g.export()),
    "export_to": lambda g: g.export_to(io.BytesIO()),
    "export_files": lambda g: g.export_files("nowhere"),
    "mutate": lambda g: g.mutate(NEW),
    "load": lambda g: g.load("", mode="merge"),
    "load_lenient": lambda g: g.load_lenient("", mode="merge"),
    "create_branch": lambda g: g.create_branch("x"),
    "list_branches": lambda g: g.list_branches(),
    "delete_branch": lambda g: g.delete_branch("work"),
    "merge": lambda g: g.merge("work"),
    "preview_merge": lambda g: g.preview_merge("work"),
    "listing": lambda g: g.listing(),
    "resolve_snapshot": lambda g: g.resolve_snapshot(),
    "version_of": lambda g: g.version_of(),
    "commits": lambda g: g.commits(),
    "commit_history": lambda g: g.commit_history(),
    "describe_commit": lambda g: g.describe_commit(_commit(g)),
    "diff": lambda g: g.diff("main", "work"),
    "changes.page": lambda g: g.changes.page(_commit(g)),
    "changes.of": lambda g: list(g.changes.of(_commit(g))),
    "changes.poll": lambda g: g.changes.poll(start="beginning"),
    "changes.baseline": lambda g: g.changes.baseline(io.BytesIO()),
    "schema.show": lambda g: g.schema.show(),
    "schema.plan": lambda g: g.schema.plan(SCHEMA),
    "schema.apply": lambda g: g.schema.apply(SCHEMA),
    "maintenance.ensure_indices": lambda g: g.maintenance.ensure_indices(),
    "maintenance.optimize": lambda g: g.maintenance.optimize(),
    "maintenance.cleanup": lambda g: g.maintenance.cleanup(keep_versions=1),
    "maintenance.verify": lambda g: g.maintenance.verify(),
    "maintenance.repair": lambda g: g.maintenance.repair(),
    "maintenance.maintain": lambda g: g.maintenance.maintain(),
    "maintenance.index_status": lambda g: g.maintenance.index_status(),
}
MORE: dict[str, Callable[[Graph], object]] = {
    "catalog": lambda g: g.catalog,
    "load a file": lambda g: g.load(EXAMPLE / "records.ndjson", mode="merge"),
}
HARMLESS = {"close", "uri", "schema", "changes", "maintenance", "invoke"}
"""The last one says that there is no such query, whatever there is."""


def _commit(graph: Graph) -> str:
    with omnigraph.open(graph.uri) as whole:
        return whole.resolve_snapshot()


def test_the_calls_of_a_stranger_are_all_that_there_is() -> None:
    public = {name for name in dir(GraphApi) if not name.startswith("_")}
    areas = {"schema": SchemaArea, "changes": ChangesArea, "maintenance": MaintenanceArea}
    public |= {f"{area}.{name}" for area, kind in areas.items() for name in dir(kind) if not name.startswith("_")}
    assert public - HARMLESS == CALLS.keys()


@pytest.fixture(scope="module")
def stranger(made: Path) -> Iterator[Graph]:
    with opened(made, "stranger") as graph:
        yield graph


@pytest.mark.parametrize("name", CALLS | MORE)
def test_a_stranger_gets_nothing(stranger: Graph, name: str) -> None:
    with pytest.raises(PolicyError, match="unknown actor 'stranger'"):
        (CALLS | MORE)[name](stranger)


def test_a_stranger_is_told_of_no_stored_query(stranger: Graph) -> None:
    offering = stranger.with_queries(omnigraph.queries(NOTES))
    for name in ("q", "never"):
        with pytest.raises(omnigraph.NotFoundError, match="stored query not found"):
            offering.invoke(name)


def test_upkeep_takes_an_admin_who_is_also_told_why_not(place: Path, tmp_path: Path) -> None:
    rules = tmp_path / "r.yaml"
    rules.write_text(
        "version: 1\ngroups: {ops: [oli], staff: [oli, ana]}\nprotected_branches: [main]\nrules:\n"
        "  - {id: ops, allow: {actors: {group: ops}, actions: [admin]}}\n"
        "  - {id: write, allow: {actors: {group: staff}, actions: [change], branch_scope: unprotected}}\n"
    )
    with opened(place, "oli", rules) as graph:
        assert graph.maintenance.verify().clean
        graph.maintenance.optimize()
        with pytest.raises(PolicyError) as denied:
            graph.mutate(NEW)
        assert denied.value.reasons == (
            "nearest rule 'write': branch_scope is 'unprotected', and branch 'main' is protected",
        )
    with opened(place, "ana", rules) as graph:
        with pytest.raises(PolicyError) as denied:
            graph.mutate(NEW)
        assert denied.value.reasons == ()
        with pytest.raises(PolicyError, match="policy denied action 'admin'"):
            graph.maintenance.optimize()


def test_every_decision_is_noted_once_without_a_word_of_any_row(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(place, "ana") as graph, caplog.at_level(logging.INFO, "omnigraph.policy"):
        graph.query(NOTES)
        graph.mutate(NEW, branch="work")
        with pytest.raises(PolicyError):
            graph.mutate(NEW)
    lines: list[Any] = [record.fields for record in caplog.records]  # type: ignore[attr-defined]
    told = [(line["actor"], line["action"], line["branch"], line["allowed"], line["rule"]) for line in lines]
    assert told == [
        ("ana", "read", "main", True, "staff-read"),
        ("ana", "change", "work", True, "editors-write"),
        ("ana", "change", "main", False, None),
    ]
    assert not {"roadmap", "new"} & set(json.dumps(lines).split('"'))


def test_rules_that_can_not_be_kept_open_nothing(made: Path, tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="actor="):
        omnigraph.open(made, policy=RULES)
    with pytest.raises(BadRequestError, match="can't read the policy"):
        omnigraph.open(made, policy=tmp_path / "none.yaml", actor="ana")
    other = tmp_path / "other.yaml"
    other.write_text(RULES.read_text("utf-8").replace("region =", "area ="))
    with pytest.raises(CompileError, match="area"):
        omnigraph.open(made, policy=other, actor="ana")


def test_an_actor_without_rules_only_signs(place: Path) -> None:
    with omnigraph.open(place, actor="zoe") as graph:
        graph.mutate(NEW)
        assert graph.commits().commits[0].actor_id == "zoe"
        assert len(graph.query(NOTES)) == 4
        with pytest.raises(NotFoundError):
            graph.query(NOTES, snapshot="01HZZZZZZZ0000000000000000")
