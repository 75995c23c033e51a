"""Restricted writes do what they do on a graph with the visible rows only, or nothing at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.engine.export import export_lines
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import ConstraintError, EvaluationError, KeyConflictError, OmniGraphError, PolicyError
from omnigraph.graph import Graph
from omnigraph.language.query.row_filter import Visibility
from tests.engine.query_graphs import NAMES, SOCIAL, node, social_graph
from tests.engine.visibilities import FILTERS, visibility_on

Entities = dict[tuple[str, str], str]
BRANCHES = count()
# By type, which of its filters: rows by values, by two of them, none at all, and edges by their own or by their ends.
RULES: list[dict[str, int]] = [
    {"node:Person": 0},
    {"node:Person": 1, "edge:Knows": 0},
    {"node:Person": 3, "node:City": 0},
    {"node:Person": 4},
    {"node:Person": 7, "edge:Knows": 2},
    {"edge:Knows": 1, "node:City": 1},
]


@dataclass(frozen=True)
class Pair:
    """A graph with what a rule shows of it, and a graph made of that."""

    whole: Graph
    visibility: Visibility
    smaller: Graph


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pair]]:
    folder: Path = tmp_path_factory.mktemp("writes")
    made = []
    for number, rule in enumerate(RULES):
        whole = social_graph(folder / f"whole{number}", seed=number)
        visibility = visibility_on(whole.catalog, {key: FILTERS[key][which] for key, which in rule.items()})
        smaller = Graph.init(folder / f"smaller{number}", SOCIAL)
        smaller.load(b"\n".join(export_lines(whole.snapshot().restricted_to(visibility))), mode="append")
        made.append(Pair(whole, visibility, smaller))
    yield made
    for pair in made:
        pair.whole.close()
        pair.smaller.close()


def entities(state: Snapshot) -> Entities:
    """By type and id, without the ids that a write makes up."""
    found: Entities = {}
    for line in export_lines(state):
        record = json.loads(line)
        kind, id_ = record.get("edge") or record["type"], record["data"].pop("id")
        ends = f"{record.get('from')} to {record.get('to')} {record['data']}"
        found[kind, ends if len(id_) == 26 else id_] = json.dumps(record)
    return found


def people() -> st.SearchStrategy[str]:
    return st.sampled_from([*NAMES, "nobody"])


@st.composite
def writes(draw: Any) -> tuple[str, str]:
    """A mutation, or a load that may meet what is stored."""
    who, other, age = draw(people()), draw(people()), draw(st.sampled_from([0, 1, 2, 5]))
    where = draw(st.sampled_from([f"age >= {age}", f"age < {age}", f'slug = "{who}"', "active = true", 'nick = "ann"']))
    load = node("Person", who, age=age, active=True)
    statement = draw(
        st.sampled_from(
            [
                f"update Person set {{ age: {age} }} where {where}",
                f'update Person set {{ nick: "{other}" active: false }} where {where}',
                f"update City set {{ people: {age} }} where people >= 0",
                f"delete Person where {where}",
                f"delete Knows where since >= {age}",
                "delete City where people >= 1",
                f'insert Knows {{ from: "{who}", to: "{other}", since: {age} }}',
                f'insert Lives {{ from: "{who}", to: "ulm" }}',
                f'insert Person {{ slug: "{who}", age: {age}, active: true }}',
                f'insert new Person {{ slug: "{who}", age: {age}, active: true }}',
                f'upsert Person {{ slug: "{who}", age: {age} }} upsert Person {{ slug: "{other}", active: true }}',
                f"update Person set {{ age: 12 / (age - {age}), nick: slug }} where {where} and not (age = 7)",
                f'update Knows set {{ since: since + {age} }} where from = "{who}" or since is null',
                f"match {{ $p: Person  $p.age >= {age} }} update $p set {{ age: 12 / ($p.age - {age}) }}",
                "match { $p: Person  $p $k:knows $q } update $k set { note: $q.nick } upsert Person { slug: $q.slug }",
                f'unwind ["{who}", "{other}"] as $s insert new Person {{ slug: $s, age: {age}, active: true }}',
                "match { $p: Person  not { $p knows $_ } } insert Knows { from: $p, to: $p, since: $p.age }",
                "match { $p: Person  optional { $p lives $c } } insert Lives { from: $p, to: $c }",
                f"match {{ $p: Person  $p $k:knows $q  $q.age < {age} }} delete $k",
                f'match {{ $p: Person  path $w: shortest $p knows $q  $q.slug = "{who}" }} delete $p',
                (
                    f'insert Person {{ slug: "new", age: {age} }} insert Knows {{ from: "new", to: "{who}" }} '
                    f"update Person set {{ active: true }} where {where}"
                ),
                "",
                "update",
            ]
        )
    )
    return (statement, load) if statement in ("", "update") else (f"query q() {{ {statement} }}", "")


def written(graph: Graph, branch: str, write: tuple[str, str]) -> object:
    """What the author of a write is told, or why there is nothing to tell."""
    mutation, records = write
    try:
        if records:
            receipt = graph.load(records, mode=mutation or "merge", branch=branch)
            return receipt.inserted, receipt.updated, receipt.unchanged
        changed = graph.mutate(mutation, branch=branch)
        return changed.affected_nodes, changed.affected_edges
    except OmniGraphError as error:
        return error


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, len(RULES) - 1), writes())
def test_a_restricted_write_does_what_it_does_without_the_rest_or_nothing(
    pairs: list[Pair], which: int, write: tuple[str, str]
) -> None:
    pair, branch = pairs[which], f"b{next(BRANCHES)}"
    for graph in (pair.whole, pair.smaller):
        graph.create_branch(branch)
    before = entities(pair.whole.snapshot(branch))
    invisible = before.keys() - entities(pair.whole.snapshot(branch).restricted_to(pair.visibility)).keys()
    told, expected = (written(g, branch, write) for g in (pair.whole._restricted_to(pair.visibility), pair.smaller))
    after = entities(pair.whole.snapshot(branch))
    if isinstance(told, OmniGraphError):
        assert after == before, "what is refused leaves no trace"
        if not isinstance(told, PolicyError):
            # Also of an edge to a node that is not seen it is said that there is no such node.
            assert isinstance(told, ConstraintError | KeyConflictError | EvaluationError)
            assert str(told) == str(expected)
        return
    assert told == expected
    visible = entities(pair.whole.snapshot(branch).restricted_to(pair.visibility))
    assert visible == entities(pair.smaller.snapshot(branch))
    assert {key: after[key] for key in invisible} == {key: before[key] for key in invisible}
    assert after.keys() == visible.keys() | invisible
