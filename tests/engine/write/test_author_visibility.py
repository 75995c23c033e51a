"""Restricted writes: an invisible row does not exist, is never touched, and is never left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.errors import ConstraintError, OmniGraphError, PolicyError
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.row_filter import TypeVisibility, for_actor, visibility_of

SCHEMA = """
node Person { name: String @key  region: String  mail: String? @unique  salary: I32? }
node Note { title: String @key  text: String? }
edge Knows: Person -> Person { since: I32? }
"""
RECORDS = """
{"type": "Person", "data": {"name": "ada", "region": "eu", "mail": "ada@x", "salary": 1}}
{"type": "Person", "data": {"name": "bob", "region": "us", "mail": "bob@x", "salary": 2}}
{"type": "Person", "data": {"name": "cy", "region": "eu", "mail": "cy@x", "salary": 3}}
{"type": "Note", "data": {"title": "n"}}
{"edge": "Knows", "from": "ada", "to": "cy", "data": {"id": "k1"}}
{"edge": "Knows", "from": "ada", "to": "bob", "data": {"id": "k2"}}
"""


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load(RECORDS, mode="append")
        yield graph


def restricted(graph: Graph, *, masked: frozenset[str] = frozenset()) -> Graph:
    person = graph.catalog.type_named("node:Person")
    rows = for_actor(check_row_filter('region = "eu"', person, graph.catalog), "ana")
    return graph._restricted_to(visibility_of([TypeVisibility(person, rows, masked)]))


def people(graph: Graph) -> dict[str, str]:
    text = "query q() { match { $p: Person } return { $p.name as name, $p.region as region } order { name } }"
    return {row["name"]: row["region"] for row in graph.query(text)}


def change(graph: Graph, statement: str) -> object:
    return graph.mutate(f"query q() {{ {statement} }}", actor="ana")


def test_updates_and_deletes_touch_what_is_visible(whole: Graph) -> None:
    graph = restricted(whole)
    assert change(graph, 'update Person set { salary: 9 } where region != "xx"').affected_nodes == 2  # type: ignore[attr-defined]
    salaries = whole.query("query q() { match { $p: Person } return { $p.name as n, $p.salary as s } order { n } }")
    assert [row["s"] for row in salaries] == [9, 2, 9]
    assert change(graph, 'delete Person where name = "bob"').affected_nodes == 0  # type: ignore[attr-defined]
    assert change(graph, 'delete Person where name = "cy"').affected_nodes == 1  # type: ignore[attr-defined]
    assert people(whole) == {"ada": "eu", "bob": "us"}
    assert people(graph) == {"ada": "eu"}


REFUSED: dict[str, tuple[Callable[[Graph], object], type[OmniGraphError], str]] = {
    "a row that would not be seen": (
        lambda g: change(g, 'insert Person { name: "di", region: "us" }'), PolicyError, "could not see yourself"),
    "a row that leaves sight": (
        lambda g: change(g, 'update Person set { region: "us" } where name = "ada"'), PolicyError, "could not see"),
    "an upsert of an unseen row": (
        lambda g: change(g, 'insert Person { name: "bob", region: "eu" }'), PolicyError, "that you do not see"),
    "values that an unseen row has already": (
        lambda g: change(g, " ".join(
            f'upsert Person {{ name: "bob", region: "us", {given} }}' for given in ("salary: 2", 'mail: "bob@x"'))),
        PolicyError, "that you do not see"),
    "a load over an unseen row": (
        lambda g: g.load('{"type":"Person","data":{"name":"bob","region":"eu"}}', mode="merge", actor="ana"),
        PolicyError, "that you do not see"),
    "a deletion that takes an unseen edge along": (
        lambda g: change(g, 'delete Person where name = "ada"'), PolicyError, "that you do not see"),
    "an overwrite": (
        lambda g: g.load('{"type":"Note","data":{"title":"m"}}', mode="overwrite", actor="ana"),
        PolicyError, "overwrite"),
    "a merge": (lambda g: g.merge("side", "main", actor="ana"), PolicyError, "needs a rule without rows and hide"),
    "a schema change": (
        lambda g: g.schema.apply(SCHEMA + "node X { a: String @key }", actor="ana"), PolicyError, "needs a rule"),
    "a baseline": (lambda g: g.changes.baseline(open("/dev/null", "wb")), PolicyError, "needs a rule"),  # noqa: SIM115
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_done_in_part_is_refused_whole(whole: Graph, name: str) -> None:
    work, error, words = REFUSED[name]
    whole.create_branch("side")
    before = whole.resolve_snapshot()
    with pytest.raises(error, match=words) as raised:
        work(restricted(whole))
    assert "bob" not in str(raised.value)
    assert whole.resolve_snapshot() == before


def test_an_edge_to_what_is_not_visible_ends_nowhere(whole: Graph) -> None:
    messages = []
    for target in ("bob", "nobody"):
        with pytest.raises(ConstraintError) as raised:
            change(restricted(whole), f'insert Knows {{ from: "ada", to: "{target}" }}')
        messages.append(str(raised.value).replace(target, "x"))
    assert messages[0] == messages[1]


def test_a_unique_value_that_is_taken_by_who_is_not_visible_tells_nothing_of_them(whole: Graph) -> None:
    with pytest.raises(ConstraintError, match="unique violation") as raised:
        change(restricted(whole), 'insert Person { name: "di", region: "eu", mail: "bob@x" }')
    assert "'bob'" not in str(raised.value)
    assert raised.value.entity_id is None


def test_masked_properties_can_be_neither_named_nor_overwritten(whole: Graph) -> None:
    graph = restricted(whole, masked=frozenset({"salary"}))
    for statement in (
        'update Person set { salary: 5 } where name = "ada"',
        'update Person set { mail: "z" } where salary = 1',
        "delete Person where salary = 1",
    ):
        with pytest.raises(PolicyError, match=r"'Person.salary' is hidden"):
            change(graph, statement)
    with pytest.raises(PolicyError, match="not write whole rows"):
        change(graph, 'insert Person { name: "ada", region: "eu" }')
    with pytest.raises(PolicyError, match="not write whole rows"):
        graph.load('{"type":"Person","data":{"name":"ada","region":"eu"}}', mode="merge", actor="ana")
    change(graph, 'update Person set { mail: "new@x" } where name = "ada"')
    kept = whole.query('query q() { match { $p: Person { name: "ada" } } return { $p.salary as s, $p.mail as m } }')
    assert kept.rows() == [{"s": 1, "m": "new@x"}]


def test_what_is_not_restricted_is_written_as_ever(whole: Graph) -> None:
    graph = restricted(whole)
    change(graph, 'insert Note { title: "mine" }')
    change(graph, 'insert Person { name: "di", region: "eu", mail: "di@x" } insert Knows { from: "di", to: "ada" }')
    assert people(graph) == {"ada": "eu", "cy": "eu", "di": "eu"}
