"""Rows that agree in all that an aggregate reads become one: what comes out is what comes out of the single rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.api.queries import ReadPoint
from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.operators import expand
from omnigraph.engine.query.operators.grouping import groups_of, identity_codes
from omnigraph.engine.query.read import ReadOptions, run_query
from omnigraph.errors import ResourceLimitError
from omnigraph.graph import Graph
from omnigraph.language.query import ir
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.row_filter import TypeVisibility, for_actor, visibility_of
from tests.engine.query_graphs import edge, node

SCHEMA = """
node Person { slug: String @key  city: String?  age: I32?  score: F64?  tags: [String]? }
node Club { slug: String @key  city: String?  size: I32 }
edge Knows: Person -> Person
edge Joined: Person -> Club
"""
PEOPLE = 24
QUERIES = {
    "a key of the end, a mean of the start": "$a knows $b } return { $b.city as k, count($a) as n, avg($a.age) as m",
    "pairs": "$a knows $b } return { $a.city as k, $b.city as l, count(*) as n",
    "against the edges": "$b knows $a } return { $a.city as k, $b.age as l, count(*) as n",
    "either way": "$a <knows> $b } return { $a.city as k, $b.city as l, count(*) as n",
    "between two types": "$a joined $c } return { $a.city as k, $c.city as l, sum($c.size) as n",
    "a condition on the end": "$a knows $b  $b.age > 2 } return { $a.city as k, $b.city as l, count(*) as n",
    "a condition on both": "$a knows $b  $b.age > $a.age } return { $a.city as k, $b.city as l, count(*) as n",
    "values of values": '$a knows $b } return { coalesce(upper($a.city), "none") as k, $b.age % 2 as l, count(*) as n',
    "floats": "$a knows $b } return { $b.score as k, max($a.score) as n, min($a.score) as m",
    "floats that are added": "$a knows $b } return { $b.city as k, sum($a.score) as n, avg($a.score) as m",
    "exact numbers": "$a knows $b } return { $b.score as k, sum($a.age) as n, avg($a.age) as m",
    "middles": "$a knows $b } return { $a.city as k, percentile_disc($b.age, 0.4) as n, max($b.score) as m",
    "spread": "$a knows $b } return { $a.city as k, stdevp($b.age) as n, percentile_cont($b.age, 0.5) as m",
    "distinct": "$a knows $b } return { $a.city as k, count(distinct $b.city) as n, min($b.city) as m",
    "after another hop": "$a knows $b  $b knows $c } return { $b.city as k, $c.city as l, count(*) as n",
    "an optional count": "$a knows $b } return { $a.city as k, count($b.age) as n",
    "no key": "$a knows $b } return { avg($a.age) as k, max($b.city) as n",
    "an entity": "$a knows $b } return { $a.city as k, count(distinct $b) as n",
    "an id": "$a knows $b } return { $a.city as k, min($b.@id) as n",
    "a list": "$a knows $b } return { $a.city as k, $b.tags as l, count(*) as n",
    "all values": "$a knows $b } return { $a.city as k, collect($b.age) as n",
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Few cities, ages and scores, some of them null; both zeros."""
    chance = random.Random(3)
    names = [f"p{i}" for i in range(PEOPLE)]
    lines = [
        node(
            "Person",
            name,
            city=chance.choice(["rome", "oslo", None]),
            age=chance.choice([1, 2, 3, 4, None]),
            score=chance.choice([0.0, -0.0, 0.5, -1.5, None]),
            tags=chance.choice([["x"], ["x", "y"], None]),
        )
        for name in names
    ]
    lines += [node("Club", f"c{i}", city=chance.choice(["rome", None]), size=i % 3) for i in range(6)]
    lines += [edge("Knows", chance.choice(names), chance.choice(names)) for _ in range(160)]
    lines += [edge("Joined", chance.choice(names), f"c{chance.randrange(6)}") for _ in range(60)]
    with Graph.init(tmp_path_factory.mktemp("merged") / "g", SCHEMA) as made:
        made.load("\n".join(lines), mode="append")
        made.mutate('query q() { delete Person where slug = "p3" }')
        yield made


def rows_of(graph: Graph, text: str) -> list[tuple[Any, ...]]:
    rows = graph.query(f"query q() {{ match {{ $a: Person  {text} }} }}").rows()
    return sorted(tuple(map(repr, row.values())) for row in rows)


@pytest.mark.parametrize("mode", ["csr", "indexed"])
@pytest.mark.parametrize("query", QUERIES)
def test_merged_or_not_the_groups_are_the_same(
    stored: Graph, query: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MODE_VARIABLE, mode)
    expected = rows_of(stored, QUERIES[query])
    monkeypatch.setattr(expand, "_MERGED_AT_LEAST", 0)
    monkeypatch.setattr(expand, "_ALIKE", 1)
    for at_once, sampled in ((1 << 18, 1 << 12), (16, 1 << 12), (16, 3)):
        monkeypatch.setattr(expand, "HOPS_AT_ONCE", at_once)
        monkeypatch.setattr(expand, "_SAMPLED", sampled)
        assert rows_of(stored, QUERIES[query]) == expected


def test_a_restricted_reader_counts_what_is_visible(stored: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = stored.snapshot()
    person = snapshot.catalog.type_named("node:Person")
    adults = check_row_filter("age > 1", person, snapshot.catalog)
    visibility = visibility_of([TypeVisibility(person, for_actor(adults, "reader"))])
    text = f"query q() {{ match {{ $a: Person  {QUERIES['pairs']} }} }}"

    def rows() -> list[dict[str, Any]]:
        result = run_query(snapshot.restricted_to(visibility), ReadPoint("main"), (text, "q", {}))
        return sorted(result.rows(), key=repr)

    expected = rows()
    monkeypatch.setattr(expand, "_MERGED_AT_LEAST", 0)
    monkeypatch.setattr(expand, "_ALIKE", 1)
    assert rows() == expected


def test_as_many_rows_as_combinations_of_values_are_made(stored: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile tells how many rows left the traversal."""
    monkeypatch.setattr(expand, "_MERGED_AT_LEAST", 0)
    text = f"query q() {{ match {{ $a: Person  {QUERIES['pairs']} }} }}"
    result = stored.query(text, options=ReadOptions(profile=True))
    entries = [result.profile]
    for entry in entries:
        entries += entry.inputs
    (traversal,) = (entry for entry in entries if isinstance(entry.measured, ir.Expand))
    assert traversal.rows == len(result.rows())


def test_neighbours_that_are_merged_are_work_all_the_same(stored: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand, "_MERGED_AT_LEAST", 0)
    with pytest.raises(ResourceLimitError, match="traversal_work"):
        stored.query(
            f"query q() {{ match {{ $a: Person  {QUERIES['pairs']} }} }}", options=ReadOptions(traversal_work=50)
        )


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.sampled_from(["a", "b", "", None])), spare=st.booleans())
def test_values_of_a_dictionary_are_grouped_as_plain_ones(values: list[str | None], spare: bool) -> None:
    """Its entries may repeat, be null, or be used by no value."""
    plain = pa.array(values, pa.string())
    entries = ["b", "a", "", *(["a", None, "unused"] if spare else [])]
    at = [None if value is None else entries.index(value) for value in values]
    if spare:
        at = [4 if i is None else 3 if i == 1 and n % 2 else i for n, i in enumerate(at)]
    coded = pa.DictionaryArray.from_arrays(pa.array(at, pa.int32()), pa.array(entries, pa.string()))
    groups = [groups_of(identity_codes(each, MemoryBudget())).of_row.tolist() for each in (plain, coded)]
    assert groups[0] == groups[1]
