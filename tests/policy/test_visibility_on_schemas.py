"""Rules on states whose schema is another than the one they were checked against: older ones, and those of branches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.errors import PolicyError

RULES = """
version: 1
groups: {eu: [ana], staff: [lea]}
rules:
  - id: eu
    allow: {actors: {group: eu}, actions: [read, change], ROWS}
  - id: all
    allow: {actors: {group: staff}, actions: [read, change]}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "g"


def names(graph: Graph, type_name: str, **state: object) -> list[str]:
    text = f"query q() {{ match {{ $x: {type_name} }} return {{ $x.name as n }} order {{ n }} }}"
    return [row["n"] for row in graph.query(text, **state)]


def opened(place: Path, actor: str, rows: str) -> Graph:
    rules = place.parent / f"{actor}.yaml"
    rules.write_text(RULES.replace("ROWS", rows))
    return omnigraph.open(place, policy=rules, actor=actor)


def test_branches_that_gave_one_number_to_two_things_are_told_apart(place: Path) -> None:
    """Properties and types are found by their ids through renames, and two branches may give out the same ones."""
    person, alpha = "node Person { name: String @key  NEW: String? }", "node Alpha { name: String @key  open: Bool }"
    beta = "node Beta { name: String @key  open: Bool  kind: String? }"
    with omnigraph.init(place, "node Person { name: String @key }") as graph:
        graph.create_branch("side")
        for branch, new, types in (("main", "region", f"{alpha} {beta}"), ("side", "colour", beta)):
            graph.schema.apply(person.replace("NEW", new), branch=branch)
            graph.schema.apply(f"{person.replace('NEW', new)} {types}", branch=branch)
        graph.load('{"type": "Person", "data": {"name": "bob", "colour": "eu"}}', mode="append", branch="side")
        graph.load('{"type": "Beta", "data": {"name": "x", "open": true, "kind": "y"}}', mode="append", branch="side")
    rows = 'rows: {Person: region = "eu", Alpha: open = true, Beta: kind = "x"}'
    with opened(place, "ana", rows) as ana, opened(place, "lea", rows) as lea:
        assert names(lea, "Person", branch="side") == ["bob"]
        assert names(ana, "Person", branch="side") == [], "colour is not region"
        assert names(lea, "Beta", branch="side") == ["x"]
        assert names(ana, "Beta", branch="side") == [], "what Alpha shows is not what Beta shows"


def test_a_rename_on_a_branch_opens_nothing(place: Path) -> None:
    with omnigraph.init(place, "node Person { name: String @key  region: String }") as graph:
        graph.load('{"type": "Person", "data": {"name": "bob", "region": "us"}}', mode="append")
        graph.load('{"type": "Person", "data": {"name": "eva", "region": "eu"}}', mode="append")
        graph.create_branch("side")
        renamed = 'node Human @rename_from("Person") { name: String @key  area: String @rename_from("region") }'
        graph.schema.apply(renamed, branch="side")
    with opened(place, "ana", 'rows: {Person: region = "eu"}') as ana:
        assert names(ana, "Person") == names(ana, "Human", branch="side") == ["eva"]


@pytest.fixture
def forgotten(place: Path) -> Iterator[int]:
    """The version of a state with a type and a property that the schema has dropped since."""
    with omnigraph.init(
        place,
        "node Person { name: String @key  region: String  ssn: String? } node Vault { name: String @key } "
        "edge Opens: Person -> Vault",
    ) as graph:
        graph.load(
            """
            {"type": "Person", "data": {"name": "eva", "region": "eu", "ssn": "123"}}
            {"type": "Vault", "data": {"name": "gold"}}
            {"edge": "Opens", "from": "eva", "to": "gold", "data": {"id": "o"}}
            """,
            mode="append",
        )
        version = graph.version_of()
        graph.schema.apply("node Person { name: String @key  region: String }")
        yield version


def test_what_the_schema_has_dropped_is_not_shown_to_who_sees_a_part(place: Path, forgotten: int) -> None:
    """Rules can't name it any more, neither to show it nor to hide it."""
    rows = 'rows: {Person: region = "eu"}'
    ssn = "query q() { match { $p: Person } return { $p.ssn as s } }"
    with opened(place, "ana", rows) as ana, opened(place, "lea", rows) as lea:
        assert lea.query(ssn, version=forgotten).rows() == [{"s": "123"}]
        with pytest.raises(PolicyError, match=r"'Person.ssn' is hidden"):
            ana.query(ssn, version=forgotten)
        shown = ana.entity("node:Person", "eva", version=forgotten)
        assert shown is not None
        assert shown["ssn"] is None
        assert names(lea, "Vault", version=forgotten) == ["gold"]
        assert names(ana, "Vault", version=forgotten) == []
        assert ana.entity("edge:Opens", "o", version=forgotten) is None
        told = {row.type_name: row.entity_count for row in ana.listing(version=forgotten).datasets}
        assert told == {"Person": 1, "Vault": 0, "Opens": 0}
        assert names(ana, "Person", version=forgotten) == ["eva"]


def test_what_the_schema_gets_later_is_shown_until_a_rule_names_it(place: Path) -> None:
    with (
        omnigraph.init(place, "node Person { name: String @key  region: String }") as graph,
        opened(place, "ana", 'rows: {Person: region = "eu"}') as ana,
    ):
        graph.schema.apply("node Person { name: String @key  region: String } node Note { name: String @key }")
        graph.load('{"type": "Note", "data": {"name": "n"}}', mode="append")
        assert names(ana, "Note") == ["n"]


def test_a_vector_that_a_later_schema_makes_of_what_is_masked_is_masked(place: Path) -> None:
    schema = "node Person { name: String @key  ssn: String?  VECTOR }"
    with (
        omnigraph.init(place, schema.replace("VECTOR", "")) as graph,
        opened(place, "ana", "hide: {Person: [ssn]}") as ana,
    ):
        graph.schema.apply(schema.replace("VECTOR", "made: Vector(2)? @embed(ssn)  other: Vector(2)?"))
        record = {"name": "eva", "ssn": "1", "made": [1, 2], "other": [1, 2]}
        graph.load(json.dumps({"type": "Person", "data": record}), mode="append")
        near = (
            "query q() { match { $p: Person } return { $p.name as n } order { nearest($p.NAME, [1.0, 2.0]) } limit 1 }"
        )
        assert ana.query(near.replace("NAME", "other")).rows() == [{"n": "eva"}]
        with pytest.raises(PolicyError, match=r"'Person.made' is hidden"):
            ana.query(near.replace("NAME", "made"))


@pytest.mark.parametrize(
    ("rows", "before", "after"),
    [
        ("level is null", ["bob", "eva"], ["bob"]),
        ("level is not null", [], ["eva"]),
        ("not (level = 1)", [], ["eva"]),
        ("coalesce(level, 2) = 2", ["bob", "eva"], ["bob", "eva"]),
        ('level in [2] or name = "bob"', ["bob"], ["bob", "eva"]),
    ],
)
def test_a_property_is_null_in_states_before_it_was_there(
    place: Path, rows: str, before: list[str], after: list[str]
) -> None:
    with omnigraph.init(place, "node Person { name: String @key }") as graph:
        graph.load(
            '{"type": "Person", "data": {"name": "eva"}}\n{"type": "Person", "data": {"name": "bob"}}', mode="append"
        )
        early = graph.version_of()
        graph.schema.apply("node Person { name: String @key  level: I32? }")
        graph.mutate('query q() { update Person set { level: 2 } where name = "eva" }')
    with opened(place, "ana", f"rows: {{Person: {json.dumps(rows)}}}") as ana:
        assert names(ana, "Person", version=early) == before
        assert [n for n in ("bob", "eva") if ana.entity("node:Person", n, version=early) is not None] == before
        assert names(ana, "Person") == after
