"""What plans mean, shown by running them over a small graph with the literal interpreter beside this file.

People a, b, c, d know each other: a→b twice, b→c, c→a, c→d, d→d. a wrote p1 twice and p2, b wrote p2, c wrote
nothing, d wrote p3. p1 cites p2, p2 cites p3, p3 cites p1.
"""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.language.query.params import bind_parameters
from tests.support.interpreter import Interpreter
from tests.support.toy_graph import Entity, Path, StoredEdge, ToyGraph

from .query_archive import compiled, read


def _edges(*ends: str, **properties: Any) -> list[StoredEdge]:
    return [StoredEdge(f"{i}:{pair}", *pair.split(">")) for i, pair in enumerate(ends)]


GRAPH = ToyGraph(
    nodes={
        "Person": {
            "a": {"handle": "a", "name": "Ada", "age": 30, "karma": 1.5, "aliases": ["x", "y"]},
            "b": {"handle": "b", "name": "Bo", "age": 20, "karma": None},
            "c": {"handle": "c", "name": "Cy", "age": None, "karma": 2.5},
            "d": {"handle": "d", "name": "Di", "age": 40, "karma": 2.0},
        },
        "Paper": {
            "p1": {
                "doi": "p1",
                "title": "graph theory",
                "state": "final",
                "pages": 10,
                "vec": [0.0, 0.0, 0.0, 0.0],
            },
            "p2": {
                "doi": "p2",
                "title": "graph stores",
                "state": "draft",
                "pages": 20,
                "vec": [1.0, 0.0, 0.0, 0.0],
            },
            "p3": {
                "doi": "p3",
                "title": "cooking",
                "state": "withdrawn",
                "pages": None,
                "vec": [2.0, 0.0, 0.0, 0.0],
            },
            "p4": {"doi": "p4", "title": "grph cooking", "state": "final", "pages": 5, "vec": None},
        },
        "Slot": {},
        "Note": {},
        "Memo": {},
    },
    edges={
        "Knows": _edges("a>b", "b>c", "c>a", "c>d", "d>d", "a>b"),
        "Wrote": [
            StoredEdge("w1", "a", "p1", {"note": "first", "share": 0.5}),
            StoredEdge("w2", "a", "p1", {"note": "again", "share": None}),
            StoredEdge("w3", "a", "p2", {"note": None}),
            StoredEdge("w4", "b", "p2", {"note": "first"}),
            StoredEdge("w5", "d", "p3", {"note": "sole"}),
        ],
        "Cites": _edges("p1>p2", "p2>p3", "p3>p1"),
        "Contains": [],
        "Reserved": [],
        "Memo": [],
    },
)


def run(query: str, given: dict[str, object] | None = None) -> list[tuple[Any, ...]]:
    plan = compiled(query).read_plan
    return Interpreter(GRAPH, bind_parameters(plan.parameters, given, now_millis=0)).run(plan)


def answers(match: str, returns: str, tail: str = "") -> list[Any]:
    """The rows of a read, sorted unless the query orders them; rows of one column as plain values."""
    return shown(run(read(match, returns, tail)), ordered=bool(tail))


def shown(rows: list[tuple[Any, ...]], *, ordered: bool = False) -> list[Any]:
    """Rows with entities by their ids and paths by those of their edges; rows of one column as plain values."""
    texts = [tuple(_plain(value) for value in row) for row in rows]
    plain = [row[0] if len(row) == 1 else row for row in texts]
    return plain if ordered else sorted(plain, key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Entity | Path) else value


HOPS = [
    ("a", "$x knows $y", ["b"]),
    ("a", "$x $f:knows $y", ["b", "b"]),
    ("a", "$x knows{1,3} $y", ["b", "c", "d"]),
    ("a", "$x knows{2,3} $y", ["c", "d"]),
    ("a", "$x knows{3,3} $y", ["d"]),
    ("a", "$x knows{4,4} $y", []),
    ("d", "$x knows $y", ["d"]),
    ("d", "$x knows{2,2} $y", []),
    ("c", "$x knows{1,5} $y", ["a", "b", "d"]),
    ("a", "$y knows $x", ["c"]),
    ("a", "$x <knows> $y", ["b", "c"]),
    ("b", "$x <knows>{2,2} $y", ["d"]),
    ("a", "$x $f:<knows> $y", ["b", "b", "c"]),
    ("d", "$x $f:<knows> $y", ["c", "d"]),
]


@pytest.mark.parametrize(("start", "traversal", "expected"), HOPS)
def test_hops(start: str, traversal: str, expected: list[str]) -> None:
    assert answers(f'$x: Person {{ handle: "{start}" }}  {traversal}', "$y") == expected


JOINS = [
    # Different endpoint types: parallel edges collapse unless the edge is bound.
    ("$x: Person  $x wrote $p", "$x, $p", [("a", "p1"), ("a", "p2"), ("b", "p2"), ("d", "p3")]),
    ("$x: Person  $x $w:wrote $p", "$x, $p", [("a", "p1"), ("a", "p1"), ("a", "p2"), ("b", "p2"), ("d", "p3")]),
    # The written order does not matter once a type is known.
    ("$p: Paper  $p wrote $x", "$x, $p", [("a", "p1"), ("a", "p2"), ("b", "p2"), ("d", "p3")]),
    ("$p: Paper  $x wrote $p", "$x, $p", [("a", "p1"), ("a", "p2"), ("b", "p2"), ("d", "p3")]),
    # A shared variable joins; fan-out multiplies; fan-in includes the start.
    ("$x: Person  $x wrote $p  $p cites $q", "$x, $q", [("a", "p2"), ("a", "p3"), ("b", "p3"), ("d", "p1")]),
    ('$x: Person { handle: "a" }  $x knows $y  $x wrote $p', "$y, $p", [("b", "p1"), ("b", "p2")]),
    ('$x: Person { handle: "a" }  $x wrote $p  $y: Person  $y wrote $p', "$y, $p",
     [("a", "p1"), ("a", "p2"), ("b", "p2")]),
    ('$x: Person { handle: "a" }  $x wrote $p  $y: Person  $y wrote $p  $y.handle != $x.handle', "$y", ["b"]),
    # Closing a cycle is a test; each one on its own.
    ("$x: Person  $x knows $y  $y knows $z  $z knows $x", "$x, $y, $z",
     [("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b"), ("d", "d", "d")]),
    ("$x: Person  $x knows $x", "$x", ["d"]),
    ("$x: Person  $x knows{1,3} $x", "$x", ["d"]),
    ("$x: Person  $y: Person  $x knows $y  $x <knows> $y  $y <knows>{1,1} $x", "$x, $y",
     [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "d")]),
    ("$x: Person  $y: Person  $x $k:knows $y", "$x, $y",
     [("a", "b"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "d")]),
    # Unconnected groups multiply, and `$_` connects nothing but multiplies.
    ('$x: Person { handle: "a" }  $p: Paper { state: "final" }', "$x, $p", [("a", "p1"), ("a", "p4")]),
    ('$x: Person { handle: "a" }  $x wrote $_', "$x", ["a", "a"]),
    ('$x: Person { handle: "a" }  $x wrote $_  $x wrote $_', "$x", ["a"] * 4),
    # A group without a binding scans the source of its first traversal.
    ("$x wrote $p", "$x, $p", [("a", "p1"), ("a", "p2"), ("b", "p2"), ("d", "p3")]),
    ("$_ wrote $p", "$p", ["p1", "p2", "p2", "p3"]),
    # Binding twice is a conjunction, wherever it stands.
    ('$p: Paper  $p: Paper { state: "final" }  $p: Paper { pages: 5 }', "$p", ["p4"]),
    ('$x: Person  $x wrote $p  $p: Paper { state: "draft" }', "$x", ["a", "b"]),
    # Pins on lists ask for membership.
    ('$x: Person { aliases: "y" }', "$x", ["a"]),
    # Edge properties.
    ('$x: Person  $x $w:wrote $p  $w.note = "first"', "$x, $p", [("a", "p1"), ("b", "p2")]),
    ("1 = 1", "3", [3]),
    ("1 = 2", "3", []),
]  # fmt: skip


@pytest.mark.parametrize(("match", "returns", "expected"), JOINS)
def test_joins(match: str, returns: str, expected: list[Any]) -> None:
    assert answers(match, returns) == sorted(expected, key=repr)


FILTERS = [
    ("$x.age > 20", ["a", "d"]),
    ("$x.age != 30", ["b", "d"]),
    ("$x.age = 30.0", ["a"]),
    ("$x.age = 29.5", []),
    ("$x.karma < $x.age", ["a", "d"]),
    ('$x.name contains "i"', ["d"]),
    ('"Ada Bo" contains $x.name', ["a", "b"]),
    ('$x.name starts_with "A"', ["a"]),
    ('$x.aliases contains "x"', ["a"]),
    ('$x.name < "C"', ["a", "b"]),
]


@pytest.mark.parametrize(("condition", "expected"), FILTERS)
def test_filters_and_the_null_rule(condition: str, expected: list[str]) -> None:
    assert answers(f"$x: Person  {condition}", "$x") == expected


NEGATIONS = [
    ("not { $x wrote $_ }", ["c"]),
    ("not { $_ knows $x }", []),
    ("not { $x <knows> $_ }", []),
    ("not { $x knows{2,2} $y }", ["d"]),
    ('not { $x wrote $p  $p.state = "draft" }', ["c", "d"]),
    ('not { $x wrote $p  $p: Paper { state: "draft" } }', ["c", "d"]),
    ('not { $p: Paper { state: "draft" }  $x wrote $p }', ["c", "d"]),
    ('not { $x $w:wrote $p  $w.note = "first" }', ["c", "d"]),
    ('not { $x wrote $p  not { $p.state = "draft" } }', ["b", "c"]),
    ("not { $x.age > 25 }", ["b", "c"]),
    ("not { $x: Person { age: 30 } }", ["b", "c", "d"]),
    ('not { $x wrote $p  search($p.title, "cooking") }', ["a", "b", "c"]),
]


@pytest.mark.parametrize(("negation", "expected"), NEGATIONS)
def test_negation(negation: str, expected: list[str]) -> None:
    assert answers(f"$x: Person  {negation}", "$x") == expected


def test_negation_sees_all_outer_variables() -> None:
    pairs = answers('$x: Person { handle: "b" }  $p: Paper  not { $x wrote $p }', "$x, $p")
    assert pairs == [("b", "p1"), ("b", "p3"), ("b", "p4")]


def test_a_negation_may_stand_before_what_it_speaks_of() -> None:
    late = answers('$x: Person { handle: "b" }  not { $x wrote $p }  $p: Paper', "$x, $p")
    assert late == [("b", "p1"), ("b", "p3"), ("b", "p4")]


def test_direction_inside_a_negation_is_resolved_as_outside() -> None:
    assert answers("$p: Paper  not { $p wrote $_ }", "$p") == ["p4"]
    assert answers("$p: Paper  not { $_ wrote $p }", "$p") == ["p4"]


def test_a_negation_without_connection_is_about_existence() -> None:
    assert answers('$x: Person  not { $p: Paper { state: "final" }  $p.pages > $x.age }', "$x") == [
        "a",
        "b",
        "c",
        "d",
    ]
    assert answers('$x: Person  not { $p: Paper { state: "final" }  $p.pages < $x.age }', "$x") == ["c"]


TEXT = [
    ('search($p.title, "graph")', ["p1", "p2"]),
    ('search($p.title, "graph") = false', ["p3", "p4"]),
    ('search($p.title, "graph") != true', ["p3", "p4"]),
    ('true = search($p.title, "graph")', ["p1", "p2"]),
    ('search($p.title, "graph")  match_text($p.title, "stores")', ["p2"]),
    ('fuzzy($p.title, "graph")', ["p1", "p2", "p4"]),
    ('fuzzy($p.title, "graph", 0)', ["p1", "p2"]),
]


@pytest.mark.parametrize(("clause", "expected"), TEXT)
def test_text_clauses_are_filters(clause: str, expected: list[str]) -> None:
    assert answers(f"$p: Paper  {clause}", "$p") == expected


def test_a_text_clause_on_a_reached_variable_filters() -> None:
    assert answers('$x: Person  $x wrote $p  search($p.title, "cooking")', "$x, $p") == [("d", "p3")]


# ---- order, limit, aggregates ---------------------------------------------------------------------------

ORDERS = [
    ("$x: Person", "$x", "order { $x.age }", ["c", "b", "a", "d"]),
    ("$x: Person", "$x", "order { $x.age desc }", ["d", "a", "b", "c"]),
    ("$x: Person", "$x, $x.age as years", "order { years desc } limit 1", [("d", 40)]),
    ("$x: Person", "$x as who", "order { who desc } limit 2", ["d", "c"]),
    ("$x: Person", "$x", "order { $x.age } limit 0", []),
    # The tie-break covers every variable, by the name of its id column.
    ("$b: Person  $a: Person { handle: \"a\" }", "$b", "order { $a.age desc }", ["a", "b", "c", "d"]),
    ("$x: Person  $x $w:wrote $p", "$p, $w.note", 'order { $x.handle } limit 3',
     [("p1", "first"), ("p1", "again"), ("p2", None)]),
]  # fmt: skip


@pytest.mark.parametrize(("match", "returns", "tail", "expected"), ORDERS)
def test_order(match: str, returns: str, tail: str, expected: list[Any]) -> None:
    assert answers(match, returns, tail) == expected


AGGREGATES = [
    (
        "$x: Person",
        "count($x), sum($x.age), avg($x.karma), min($x.name), max($x.name) as last",
        "",
        [(4, 90.0, 2.0, "Ada", "Di")],
    ),
    ("$x: Person  $x.age > 99", "count($x), sum($x.age)", "", [(0, None)]),
    ("$x: Person  $x.age > 99", "$x.name, count($x)", "", []),
    ("$x: Person", "count($x.age)", "", [3]),
    ("$x: Person  $x wrote $p", "$x, count($p) as n", "order { n desc }", [("a", 2), ("b", 1), ("d", 1)]),
    ("$p: Paper", "$p.state, count($p)", "order { $p.state }", [("draft", 1), ("final", 2), ("withdrawn", 1)]),
    ("$p: Paper", "$p.pages, count($p) as n", "order { n }", [(10, 1), (20, 1), (None, 1), (5, 1)]),
]


@pytest.mark.parametrize(("match", "returns", "tail", "expected"), AGGREGATES)
def test_aggregates(match: str, returns: str, tail: str, expected: list[Any]) -> None:
    assert answers(match, returns, tail) == (expected if tail else sorted(expected, key=repr))


# ---- ranking --------------------------------------------------------------------------------------------

NEAR = "order { nearest($p.vec, [0, 0, 0, 0]) }"
RANKINGS = [
    ("$p: Paper", "$p", f"{NEAR} limit 9", ["p1", "p2", "p3"]),
    ("$p: Paper", "$p", f"{NEAR} limit 2", ["p1", "p2"]),
    # Pins and filters on the ranked variable choose among all nodes…
    ('$p: Paper  $p.state != "final"', "$p", f"{NEAR} limit 1", ["p2"]),
    # …and so does what involves other variables.
    ("$p: Paper  $x wrote $p  $x.age < 30", "$p", f"{NEAR} limit 1", ["p2"]),
    ("$p: Paper  $x wrote $p", "$p, $x", f"{NEAR} limit 2", [("p1", "a"), ("p2", "a")]),
    ('$x: Person { handle: "b" }  $p: Paper', "$p", f"{NEAR} limit 2", ["p1", "p2"]),
    # A ranked variable that was reached ranks the rows.
    ("$x: Person  $x wrote $p", "$p, $x", f"{NEAR} limit 3", [("p1", "a"), ("p2", "a"), ("p2", "b")]),
    ("$p: Paper", "$p", 'order { bm25($p.title, "graph stores") }', ["p2", "p1"]),
    ("$p: Paper", "$p", 'order { bm25($p.title, "graph stores") desc, $p.title } limit 1', ["p2"]),
    # Scores are values.
    ("$p: Paper", "$p, nearest($p.vec, [0, 0, 0, 0]) as far", "order { far } limit 2", [("p1", 0.0), ("p2", 1.0)]),
    ("$p: Paper", "$p, nearest($p.vec, [0, 0, 0, 0]) as far", "order { far desc } limit 1", [("p3", 2.0)]),
    ("$p: Paper", '$p, bm25($p.title, "graph stores") as hit', "order { hit desc }", [("p2", 2.0), ("p1", 1.0)]),
    ("$p: Paper", '$p, bm25($p.title, "graph") as hit', "order { hit }",
     [("p3", None), ("p4", None), ("p1", 1.0), ("p2", 1.0)]),
    ("$p: Paper", '$p, search($p.title, "graph") as hit', "order { hit desc, $p.doi desc }",
     [("p2", True), ("p1", True), ("p4", False), ("p3", False)]),
    # The name of a score leaves room for further keys; a rank call does not.
    ("$p: Paper", '$p, bm25($p.title, "graph") as hit', "order { hit desc, $p.doi desc }",
     [("p2", 1.0), ("p1", 1.0)]),
    ("$p: Paper", '$p, bm25($p.title, "graph") as hit', 'order { bm25($p.title, "graph"), $p.doi desc }',
     [("p1", 1.0), ("p2", 1.0)]),
    # Facets of the best.
    ("$p: Paper", "$p.state, count($p)", f"{NEAR} limit 2", [("final", 1), ("draft", 1)]),
    ("$p: Paper  $x wrote $p  $x.age < 30", "$p, count($x)", f"{NEAR} limit 1", [("p2", 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("match", "returns", "tail", "expected"), RANKINGS)
def test_rankings(match: str, returns: str, tail: str, expected: list[Any]) -> None:
    assert answers(match, returns, tail) == expected


def test_fusion_adds_reciprocal_ranks() -> None:
    fused = 'rrf(nearest($p.vec, [0, 0, 0, 0]), bm25($p.title, "graph cooking"), 10)'
    rows = answers("$p: Paper", f"$p, {fused} as score", "order { score desc } limit 3")
    assert rows == [
        ("p1", pytest.approx(1 / 11 + 1 / 11)),
        ("p2", pytest.approx(1 / 12 + 1 / 12)),
        ("p3", pytest.approx(1 / 13 + 1 / 13)),
    ]
    assert answers("$p: Paper", "$p", f"order {{ {fused} }} limit 3") == ["p1", "p2", "p3"]


def test_a_fused_score_by_name_leaves_room_for_further_keys() -> None:
    fused = 'rrf(bm25($p.title, "graph"), bm25($p.title, "theory stores"))'
    rows = answers("$p: Paper", f"$p.doi as doi, {fused} as score", "order { score desc, doi desc } limit 2")
    assert [doi for doi, _ in rows] == ["p1", "p2"]
    alone = 'rrf(nearest($p.vec, [1, 0, 0, 0]), bm25($p.title, "theory"))'
    rows = answers("$p: Paper", f"$p.doi as doi, {alone} as score", "order { score desc, doi desc } limit 3")
    assert [doi for doi, _ in rows] == ["p1", "p2", "p3"]


def test_an_id_found_by_one_arm_only_keeps_its_single_score() -> None:
    fused = 'rrf(nearest($p.vec, [2, 0, 0, 0]), bm25($p.title, "grph"))'
    rows = answers("$p: Paper", f"$p, {fused} as score", f"order {{ {fused} }} limit 2")
    assert rows == [("p3", pytest.approx(1 / 61)), ("p4", pytest.approx(1 / 61))]


def test_parameters_and_now_reach_filters_pins_and_projections() -> None:
    query = read(
        "$x: Person { handle: $who }  $x.age > $old",
        "$x.name as name, $who, now() as at",
        params="$who: String, $old: I32?",
    )
    assert run(query, {"who": "a", "old": 3}) == [("Ada", "a", 0)]
    assert run(query, {"who": "a"}) == []
