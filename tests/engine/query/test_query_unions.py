"""`union`: the rows of several chains, once each or all of them, and what can be done with the whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph.engine.query import run
from omnigraph.engine.query.read import ReadOptions
from omnigraph.graph import Graph
from tests.engine.query_graphs import library_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with library_graph(tmp_path_factory.mktemp("library") / "g") as made:
        yield made


def tuples(graph: Graph, body: str, **params: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in graph.query(f"query q() {{ {body} }}", params=params).rows()]


BOOKS = 'match { $b: Book  $b.title != "Two" } return { $b.title as t }'
LOANS = "match { $r: Reader  $r borrowed $b } return { $b.title as t }"


def test_union_removes_duplicates_and_union_all_does_not(graph: Graph) -> None:
    assert sorted(tuples(graph, f"{BOOKS} union all {LOANS}")) == [("One",), ("One",), ("Three",), ("Two",), ("Two",)]
    assert sorted(tuples(graph, f"{BOOKS} union {LOANS}")) == [("One",), ("Three",), ("Two",)]


def test_unions_are_left_associative(graph: Graph) -> None:
    assert len(tuples(graph, f"{BOOKS} union {LOANS} union all {LOANS}")) == 6
    assert len(tuples(graph, f"{BOOKS} union all {LOANS} union {LOANS}")) == 3
    assert len(tuples(graph, f"{BOOKS} union all {{ {LOANS} union {LOANS} }}")) == 4
    assert tuples(graph, f"{{ {BOOKS} union all {LOANS} }} then return {{ count(*) as n }}") == [(5,)]


def test_order_and_limit_belong_to_their_part(graph: Graph) -> None:
    last = LOANS + " order { t desc } limit 1"
    assert sorted(tuples(graph, f"{BOOKS} union all {last}")) == [("One",), ("Three",), ("Two",)]
    whole = f"{{ {BOOKS} union {LOANS} }} then return {{ $t }} order {{ t desc }} limit 2 offset 1"
    assert tuples(graph, whole) == [("Three",), ("One",)]


def test_numbers_widen_and_nulls_are_one_value(graph: Graph) -> None:
    body = "match { $b: Book } return { $b.pages as n } union match { $b: Book } return { $b.price as n }"
    assert sorted(tuples(graph, body), key=lambda row: row[0] or 0) == [(None,), (0.5,), (1.5,), (100.0,), (300.0,)]
    assert sorted(tuples(graph, "return { 1 as x } union return { 1.0 as x }")) == [(1.0,)]
    assert tuples(graph, "return { null as x } union return { null as x }") == [(None,)]
    assert sorted(tuples(graph, "return { [1] as x } union all return { [1.0, 2.5] as x }")) == [
        ([1.0],),
        ([1.0, 2.5],),
    ]


def test_entities_of_several_types_go_by_identity(graph: Graph) -> None:
    body = " union ".join(f"match {{ $x: {name} }} return {{ $x }}" for name in ("Author", "Reader", "Author"))
    rows = [row[0] for row in tuples(graph, body)]
    assert sorted((row["@type"], row["@id"]) for row in rows) == [
        ("Author", "ann"),
        ("Author", "bob"),
        ("Reader", "r1"),
        ("Reader", "r2"),
        ("Reader", "r3"),
    ]
    named = f'{{ {body} }} then match {{ $x.name = "Ann" or $x.name = "Rob" }} '
    named += "return { $x.@type as t, $x.name } order { t }"
    assert tuples(graph, named) == [("Author", "Ann"), ("Reader", "Rob")]
    walked = f"{{ {body} }} then match {{ $b wroteBy $x }} return {{ $x.slug, count($b) as n }} order {{ n }}"
    assert tuples(graph, walked) == [("bob", 1), ("ann", 2)]


def test_aggregates_may_be_parts(graph: Graph) -> None:
    body = 'match { $b: Book } return { "books" as kind, count($b) as n } union all '
    body += 'match { $r: Reader } return { "readers" as kind, count($r) as n }'
    assert tuples(graph, body) == [("books", 3), ("readers", 3)]


def test_paths_and_lists_are_equal_by_content(graph: Graph) -> None:
    path = 'match { $a: Reader { slug: "r1" }  path $p: shortest $a follows{1,2} $b } return { $p }'
    assert len(tuples(graph, f"{path} union {path}")) == 2
    assert len(tuples(graph, f"{path} union all {path}")) == 4


def test_parts_stream_one_after_the_other(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_FIRST_PIECE", 1)
    monkeypatch.setattr(run, "_PIECE", 1)
    text = f"query q() {{ {{ {BOOKS} union all {LOANS} }} then return {{ lower($t) as t }} limit 1 }}"
    result = graph.query(text, options=ReadOptions(profile=True))
    assert len(result.rows()) == 1
    operators = [line.strip() for line in result.profile.lines()]
    assert any("Scan $b: Book" in line for line in operators)
    assert not any("Scan $r: Reader" in line for line in operators), "the first part was enough"


def test_many_parts_need_no_deep_stack(graph: Graph) -> None:
    alternating = " union ".join(f"return {{ {i} as x }} union all return {{ {i} as x }}" for i in range(90))
    assert len(tuples(graph, alternating)) == 91
    assert len(tuples(graph, " union all ".join(["return { 1 as x }"] * 150))) == 150
