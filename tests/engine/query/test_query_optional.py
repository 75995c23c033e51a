"""`optional`: a left join whose conditions decide what matches, and nulls that what is outside meets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph.graph import Graph
from tests.engine.query_graphs import library_graph

LOANS = "$r: Reader  optional { $r borrowed $b }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with library_graph(tmp_path_factory.mktemp("library") / "g") as made:
        yield made


def tuples(graph: Graph, text: str, **params: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in graph.query(text, params=params).rows()]


def pairs(graph: Graph, match: str) -> list[tuple[Any, ...]]:
    text = f"query q() {{ match {{ {match} }} return {{ $r.slug as r, $b.slug as b }} order {{ r, b }} }}"
    return tuples(graph, text)


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (LOANS, [("r1", "b1"), ("r1", "b2"), ("r2", "b2"), ("r3", None)]),
        ('$r: Reader  optional { $r borrowed $b  $b.status = "lost" }', [("r1", "b1"), ("r2", None), ("r3", None)]),
        (LOANS + '  $b.status = "lost"', [("r1", "b1")]),
        (LOANS + "  $b is null", [("r3", None)]),
        (LOANS + '  $b.status = "lost" or $b is null', [("r1", "b1"), ("r3", None)]),
        (LOANS + '  not ($b.status = "lost")', [("r1", "b2"), ("r2", "b2")]),
    ],
)
def test_what_is_inside_matches_and_what_is_outside_filters(graph: Graph, match: str, expected: list[Any]) -> None:
    assert pairs(graph, match) == expected


def test_a_block_after_another_begins_at_its_rows_and_at_its_nulls(graph: Graph) -> None:
    match = LOANS + "  optional { $b wroteBy $a }"
    text = f"query q() {{ match {{ {match} }} return {{ $r.slug as r, $b.slug as b, $a.slug as a }} order {{ r, b }} }}"
    expected = [("r1", "b1", "ann"), ("r1", "b2", "bob"), ("r2", "b2", "bob"), ("r3", None, None)]
    assert tuples(graph, text) == expected


def test_a_traversal_outside_from_a_null_has_no_match(graph: Graph) -> None:
    text = (
        f"query q() {{ match {{ {LOANS}  $b wroteBy $a }} return {{ $r.slug as r, $a.slug as a }} order {{ r, a }} }}"
    )
    assert tuples(graph, text) == [("r1", "ann"), ("r1", "bob"), ("r2", "bob")]


def test_every_part_of_a_null_is_null(graph: Graph) -> None:
    match = "$r: Reader  optional { $r $l:borrowed $b }"
    text = (
        f"query q() {{ match {{ {match} }} return {{ $r.slug as r, $b, $b.@id, $l.@src as s, $l.days as d, $b.tags as t"
    )
    rows = graph.query(text + " } order { r, d } }").rows()
    assert rows[-1] == {"r": "r3", "b": None, "b.@id": None, "s": None, "d": None, "t": None}
    assert [row["d"] for row in rows] == [1, 2, 5, None]


def test_counts_skip_nulls_and_count_rows(graph: Graph) -> None:
    text = f"query q() {{ match {{ {LOANS} }} return {{ $r.slug as r, count($b) as n, count(*) as rows, "
    text += "count(distinct $b) as d, collect($b.title) as t } order { r } }"
    expected = [("r1", 2, 2, 2, ["One", "Two"]), ("r2", 1, 1, 1, ["Two"]), ("r3", 0, 1, 0, [])]
    assert [(*row[:4], sorted(row[4])) for row in tuples(graph, text)] == expected


def test_nested_blocks_are_left_joins_of_left_joins(graph: Graph) -> None:
    match = '$r: Reader  optional { $r borrowed $b  optional { $b wroteBy $a  $a.name = "Ann" } }'
    text = f"query q() {{ match {{ {match} }} return {{ $r.slug as r, $b.slug as b, $a.slug as a }} order {{ r, b }} }}"
    assert tuples(graph, text) == [("r1", "b1", "ann"), ("r1", "b2", None), ("r2", "b2", None), ("r3", None, None)]


def test_a_block_of_only_optionals_joins_the_one_empty_row(graph: Graph) -> None:
    text = "query q($s: String) { match { optional { $b: Book { slug: $s } } } return { $b.title as t } }"
    assert tuples(graph, text, s="b1") == [("One",)]
    assert tuples(graph, text, s="no") == [(None,)]


def test_a_block_that_reads_nothing_outside_is_joined_to_every_row(graph: Graph) -> None:
    text = "query q($s: String) { match { $r: Reader  optional { $b: Book { slug: $s } } } "
    text += "return { $r.slug as r, $b.slug as b } order { r } }"
    assert tuples(graph, text, s="b1") == [("r1", "b1"), ("r2", "b1"), ("r3", "b1")]
    assert tuples(graph, text, s="no") == [("r1", None), ("r2", None), ("r3", None)]


def test_rows_keep_their_order(graph: Graph) -> None:
    text = "query q() { match { $r: Reader } return { $r } order { $r.slug desc } "
    text += "then match { optional { $r borrowed $b } } return { $r.slug as r, $b.slug as b } }"
    rows = tuples(graph, text)
    assert [r for r, _ in rows] == ["r3", "r2", "r1", "r1"]
    assert set(rows) == {("r3", None), ("r2", "b2"), ("r1", "b1"), ("r1", "b2")}


def test_equal_outer_rows_are_solved_once_and_all_extended(graph: Graph) -> None:
    match = "$r: Reader  $s: Reader  optional { $r borrowed $b }"
    text = (
        f"query q() {{ match {{ {match} }} return {{ $s.slug as s, $r.slug as r, $b.slug as b }} order {{ s, r, b }} }}"
    )
    result = graph.query(text)
    own = [("r1", "b1"), ("r1", "b2"), ("r2", "b2"), ("r3", None)]
    assert [tuple(row.values()) for row in result.rows()] == [(s, *pair) for s in ("r1", "r2", "r3") for pair in own]
    joined = next(entry for entry in _entries(result.profile) if entry.operator.startswith("OptionalJoin"))
    solved = next(entry for entry in _entries(result.profile) if entry.operator.startswith("Expand"))
    assert (joined.rows, solved.rows) == (12, 3)


def test_a_null_has_no_neighbours_within_several_hops(graph: Graph) -> None:
    match = '$b: Book { slug: "b3" }  optional { $r borrowed $b }  optional { $r follows{1,3} $f }'
    text = f"query q() {{ match {{ {match} }} return {{ $b.slug as b, $r.slug as r, $f.slug as f }} }}"
    assert tuples(graph, text) == [("b3", None, None)]


def _entries(profile: Any) -> Iterator[Any]:
    yield profile
    for below in profile.inputs:
        yield from _entries(below)
