"""Blocks as values: a pattern that is matched once per outer row, as a test or as an aggregate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.read import ReadOptions
from omnigraph.errors import ResourceLimitError
from omnigraph.graph import Graph
from tests.engine.query_graphs import edge, library_graph, node


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with library_graph(tmp_path_factory.mktemp("library") / "g") as made:
        yield made


def tuples(graph: Graph, text: str, **params: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in graph.query(text, params=params).rows()]


def readers(graph: Graph, match: str) -> list[str]:
    text = f"query q() {{ match {{ $r: Reader  {match} }} return {{ $r.slug as r }} order {{ r }} }}"
    return [row[0] for row in tuples(graph, text)]


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("exists { $r borrowed $_ }", ["r1", "r2"]),
        ("not { $r borrowed $_ }", ["r3"]),
        ('exists { $r borrowed $b  $b.status = "lost" } or $r.age is null', ["r1", "r2"]),
        ('not exists { $r borrowed $b  $b.status = "lost" }', ["r2", "r3"]),
        ("count { $r borrowed $_ } >= 1", ["r1", "r2"]),
        ("count { $r borrowed $_ } = 0", ["r3"]),
        ("count { $_ follows $r } = count { $r follows $_ }", ["r1", "r2", "r3"]),
        ("sum($l.days) { $r $l:borrowed $b } > 3", ["r2"]),
        ("sum($l.days) { $r $l:borrowed $b } is null", ["r3"]),
        ("not (sum($l.days) { $r $l:borrowed $b } > 3)", ["r1"]),
        ("max($b.pages) { $r borrowed $b } = 100", ["r1"]),
        ("exists { $r follows $f  not { $f borrowed $_ } }", ["r2"]),
        ("exists { $r follows $f  count { $f borrowed $_ } = 2 }", ["r3"]),
        ("exists { $r follows $f  optional { $f borrowed $b }  $b is null }", ["r2"]),
    ],
)
def test_blocks_stand_wherever_an_expression_may(graph: Graph, match: str, expected: list[str]) -> None:
    assert readers(graph, match) == expected


def test_blocks_are_values_of_columns(graph: Graph) -> None:
    text = """query q() { match { $r: Reader } return {
        $r.slug as r
        count { $r $l:borrowed $_ } as loans
        exists { $r borrowed $b  $b.status = "lost" } as loses
        avg($l.days) { $r $l:borrowed $_ } as mean
        collect($b.title) { $r borrowed $b } as titles
        count(distinct $b.status) { $r borrowed $b } as kinds
    } order { r } }"""
    assert tuples(graph, text) == [
        ("r1", 2, True, 1.5, ["One", "Two"], 2),
        ("r2", 1, False, 5.0, ["Two"], 1),
        ("r3", 0, False, None, [], 0),
    ]


def test_an_argument_may_mention_the_outer_row(graph: Graph) -> None:
    text = "query q() { match { $r: Reader } return { $r.slug as r, sum($r.age * $l.days) { $r $l:borrowed $_ } as s } "
    assert tuples(graph, text + "order { r } }") == [("r1", 90), ("r2", None), ("r3", None)]


def test_a_count_of_neighbours_counts_each_once_and_makes_no_row(graph: Graph) -> None:
    text = "query q() { match { $r: Reader } return { $r.slug as r, count { $r follows $_ } as n } order { r } }"
    result = graph.query(text)
    assert [tuple(row.values()) for row in result.rows()] == [("r1", 1), ("r2", 1), ("r3", 1)]
    edges = "query q() { match { $r: Reader } return { $r.slug as r, count { $r $e:follows $_ } as n } order { r } }"
    assert tuples(graph, edges) == [("r1", 2), ("r2", 1), ("r3", 1)]


def test_order_and_limit_come_after_blocks(graph: Graph) -> None:
    text = (
        "query q() { match { $r: Reader  exists { $r borrowed $_ } } return { $r.slug as r } order { r desc } limit 1 }"
    )
    assert tuples(graph, text) == [("r2",)]
    text = (
        "query q() { match { $r: Reader } return { $r.slug as r } order { count { $r borrowed $_ } desc, r } limit 2 }"
    )
    assert tuples(graph, text) == [("r1",), ("r2",)]


def test_blocks_read_values_of_earlier_stages(graph: Graph) -> None:
    text = 'query q() { unwind ["b1", "b3", "zz"] as $s return { $s, exists { $b: Book { slug: $s } } as stored } }'
    assert tuples(graph, text) == [("b1", True), ("b3", True), ("zz", False)]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Few groups, each with many members, all of which know a hub with many neighbours."""
    schema = "node P { slug: String @key  n: I32 }\nedge To: P -> P"
    lines = [node("P", f"p{i}", n=i % 5) for i in range(3_000)]
    lines += [edge("To", f"p{i}", "p0") for i in range(1, 3_000)] + [edge("To", "p0", f"p{i}") for i in range(1, 3_000)]
    with Graph.init(tmp_path_factory.mktemp("wide") / "g", schema) as made:
        made.load("\n".join(lines), mode="append")
        yield made


@pytest.mark.parametrize("mode", ["csr", "indexed"])
def test_a_block_is_solved_once_for_equal_outer_rows(wide: Graph, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row has the hub: without that, nine million neighbours would be looked at."""
    monkeypatch.setenv(MODE_VARIABLE, mode)
    text = (
        "query q() { match { $p: P  $p to $hub  $hub.n = 0  sum($x.n) { $hub to $x } > 0 } return { count($p) as c } }"
    )
    options = ReadOptions(memory_bytes=8 << 20)
    assert wide.query(text, options=options).rows() == [{"c": 2_999}]


def test_counted_neighbours_take_no_memory(wide: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODE_VARIABLE, "csr")
    text = "query q() { match { $p: P } return { count { $p to{1,2} $_ } as n } then return { sum($n) as s } }"
    assert wide.query(text, options=ReadOptions(memory_bytes=64 << 20)).rows() == [{"s": 2_999 + 2_999 * 2_999}]


def test_a_collected_block_counts_as_memory(wide: Graph) -> None:
    text = "query q() { match { $p: P  $p to $hub  $hub to $q } return { collect($x.slug) { $q to{1,2} $x } as l } }"
    with pytest.raises(ResourceLimitError, match="query_memory_bytes"):
        wide.query(text, options=ReadOptions(memory_bytes=32 << 20))
