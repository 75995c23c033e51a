"""What plans of several steps mean, over the graph of `test_query_semantics`: conditions, blocks, optional blocks,
walks and paths, stages, unions, and that neither the order of clauses nor where a condition is tested shows."""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import pytest

from omnigraph.errors import CompileError

from .plans import check_plan
from .query_archive import compiled, read
from .random_queries import random_match, random_query
from .test_query_semantics import answers, run, shown


def rows(body: str, given: dict[str, object] | None = None, parameters: str = "") -> list[Any]:
    """The rows of a query in their order."""
    return shown(run(f"query q({parameters}) {{ {body} }}", given), ordered=True)


# ---- conditions -----------------------------------------------------------------------------------------

CONDITIONS = [
    ("not ($x.age > 30)", ["a", "b"]),
    ("not ($x.age > 30) or $x.age is null", ["a", "b", "c"]),
    ("$x.age is not null and $x.karma is null", ["b"]),
    ("$x.age in [20, 40]", ["b", "d"]),
    ("not ($x.age in [20, 40])", ["a"]),
    ("not ($x.age in [20, null])", []),
    ("not ($x.age in [])", ["a", "b", "d"]),
    ("$x.age + 10 = 40 or $x.age % 20 = 0", ["a", "b", "d"]),
    ("case when $x.age > 25 then true when $x.age is null then true else false end", ["a", "c", "d"]),
    ("coalesce($x.age, 99) > 35", ["c", "d"]),
    ('lower($x.name) in ["ada", "di"]', ["a", "d"]),
    ('any($n in $x.aliases : $n = "y")', ["a"]),
    ('$x.@id = "b"', ["b"]),
]


@pytest.mark.parametrize(("condition", "expected"), CONDITIONS)
def test_conditions(condition: str, expected: list[str]) -> None:
    assert answers(f"$x: Person  {condition}", "$x") == expected


def test_entities_are_compared_by_identity() -> None:
    assert answers("$x: Person  $x knows $y  $x = $y", "$x") == ["d"]
    pairs = answers("$p: Paper  $x wrote $p  $y wrote $p  $x != $y", "$x, $y")
    assert pairs == [("a", "b"), ("b", "a")]


# ---- blocks ---------------------------------------------------------------------------------------------

BLOCKS = [
    ("$x: Person  exists { $x wrote $_ }", "$x", ["a", "b", "d"]),
    ("$x: Person  exists { $x wrote $_ } or $x.age is null", "$x", ["a", "b", "c", "d"]),
    ("$x: Person  not exists { $x wrote $p  $p.pages > 10 }", "$x", ["c", "d"]),
    ("$x: Person  count { $x wrote $_ } > 1", "$x", ["a"]),
    ("$x: Person", "$x, count { $x wrote $_ } as n", [("a", 2), ("b", 1), ("c", 0), ("d", 1)]),
    ("$x: Person", "$x, count { $x $w:wrote $_ } as n", [("a", 3), ("b", 1), ("c", 0), ("d", 1)]),
    ("$x: Person", "$x, sum($p.pages) { $x wrote $p } as n", [("a", 30), ("b", 20), ("c", None), ("d", None)]),
    (
        "$x: Person",
        "$x, collect($p.doi) { $x wrote $p } as l",
        [("a", ["p1", "p2"]), ("b", ["p2"]), ("c", []), ("d", ["p3"])],
    ),
    ("$x: Person  sum($p.pages) { $x wrote $p } > 0", "$x", ["a", "b"]),
    (
        "$x: Person",
        "$x, count { $x wrote $p  exists { $p cites $q  $q.pages > $p.pages } } as n",
        [("a", 1), ("b", 0), ("c", 0), ("d", 0)],
    ),
    ("$x: Person  $p: Paper  exists { $x wrote $p }", "$x, $p", [("a", "p1"), ("a", "p2"), ("b", "p2"), ("d", "p3")]),
    ("$x: Person", "exists { $x wrote $_ } as w, sum(count { $x knows $_ }) as n", [(False, 2), (True, 3)]),
]


@pytest.mark.parametrize(("match", "returns", "expected"), BLOCKS)
def test_blocks(match: str, returns: str, expected: list[Any]) -> None:
    assert answers(match, returns) == expected


# ---- optional -------------------------------------------------------------------------------------------

OPTIONAL = [
    ("optional { $x wrote $p }", "$x, $p", [("a", "p1"), ("a", "p2"), ("b", "p2"), ("c", None), ("d", "p3")]),
    ('optional { $x wrote $p  $p.state = "final" }', "$x, $p", [("a", "p1"), ("b", None), ("c", None), ("d", None)]),
    ('optional { $x wrote $p }  $p.state = "final"', "$x, $p", [("a", "p1")]),
    ("optional { $x wrote $p }  $p is null", "$x", ["c"]),
    ("optional { $x wrote $p }  optional { $p cites $q }", "$x, $q",
     [("a", "p2"), ("a", "p3"), ("b", "p3"), ("c", None), ("d", "p1")]),
    ("optional { $x wrote $p  $p.pages > 10 }  optional { $y wrote $p  $y != $x }", "$x, $y",
     [("a", "b"), ("b", "a"), ("c", None), ("d", None)]),
    ("optional { $x wrote $p }  $p: Paper { state: \"draft\" }", "$x", ["a", "b"]),
    ("optional { $x wrote $p }  $p cites $q  $q.pages is null", "$x, $q", [("a", "p3"), ("b", "p3")]),
    ("optional { $x wrote $p }  not { $p cites $q  $q.pages > 10 }", "$x, $p",
     [("a", "p2"), ("b", "p2"), ("c", None), ("d", "p3")]),
    ("optional { $x wrote $p  optional { $p cites $q  $q.pages = 20 } }", "$x, $p, $q",
     [("a", "p1", "p2"), ("a", "p2", None), ("b", "p2", None), ("c", None, None), ("d", "p3", None)]),
    ("optional { $x $w:wrote $p }  $w.note = \"first\"", "$x, $p", [("a", "p1"), ("b", "p2")]),
]  # fmt: skip


@pytest.mark.parametrize(("clauses", "returns", "expected"), OPTIONAL)
def test_optional(clauses: str, returns: str, expected: list[Any]) -> None:
    assert answers(f"$x: Person  {clauses}", returns) == expected


def test_counts_skip_what_an_optional_block_left_out() -> None:
    assert answers("$x: Person  optional { $x wrote $p }", "count(*) as n, count($p) as m") == [(5, 4)]


def test_optional_blocks_alone_extend_the_empty_row() -> None:
    assert answers('optional { $x: Person { handle: "z" } }', "$x") == [None]
    assert answers('optional { $x: Person { handle: "a" } }  optional { $y: Person { handle: "z" } }', "$x, $y") == [
        ("a", None)
    ]


# ---- walks and paths ------------------------------------------------------------------------------------

HOPS = [
    ("a", "$x knows{1,3} $y", ["b", "c", "d"]),
    ("a", "$x knows{2,3} $y", ["c", "d"]),
    ("a", "$x knows{4,4} $y", []),
    ("d", "$x knows{1,1} $y", ["d"]),
    ("d", "$x knows{2,2} $y", []),
    ("d", "$x knows{0,2} $y", ["d"]),
    ("a", "$x knows{0,1} $y", ["a", "b"]),
    ("a", "$x knows{1,} $y", ["b", "c", "d"]),
    ("a", "$x (wrote | memo) $y", ["p1", "p2"]),
    ("a", "$x $e:(wrote | memo) $y", ["p1", "p1", "p2"]),
    ("a", "$x * $y  $y: Paper", ["p1", "p2"]),
    ("a", '$x knows{1,} $y each $_ $n { $n.handle != "c" }', ["b"]),
    ("a", '$x knows{1,} $y  $y.handle != "c"', ["b", "d"]),
    ("d", '$y knows{1,} $x each $_ $n { $n.handle != "b" }', ["b", "c", "d"]),
    ("a", "$x knows{1,} $y each $_ $n { $n.age > $x.age }", []),
    ("b", "$x knows{1,2} $y each $_ $n { $n.age is null or $n.age > $x.age }", ["a", "c", "d"]),
]


@pytest.mark.parametrize(("start", "traversal", "expected"), HOPS)
def test_hops(start: str, traversal: str, expected: list[str]) -> None:
    assert answers(f'$x: Person {{ handle: "{start}" }}  {traversal}', "$y") == expected


PATHS = [
    ("a", "path $p: shortest $x knows $y", "d", ["0:a>b 1:b>c 3:c>d"]),
    ("a", "path $p: all_shortest $x knows $y", "d", ["0:a>b 1:b>c 3:c>d", "5:a>b 1:b>c 3:c>d"]),
    ("a", "path $p: trails $x knows{1,2} $y", None, ["0:a>b", "0:a>b 1:b>c", "5:a>b", "5:a>b 1:b>c"]),
    ("a", "path $p: trails $x knows{4,4} $y", None,
     ["0:a>b 1:b>c 2:c>a 5:a>b", "0:a>b 1:b>c 3:c>d 4:d>d", "5:a>b 1:b>c 2:c>a 0:a>b", "5:a>b 1:b>c 3:c>d 4:d>d"]),
    ("a", "path $p: trails $x knows{5,} $y", None, []),
    ("a", "path $p: shortest $x knows{0,} $y", "a", [""]),
    ("a", "path $p: shortest $x knows{1,} $y", "a", []),
    ("d", "path $p: shortest $x knows{1,} $y", "d", ["4:d>d"]),
    ("a", "path $p: shortest $y knows $x", "b", ["1:b>c 2:c>a"]),
    ("a", "path $p: shortest $y knows $x", "d", []),
    ("a", "path $p: shortest $x <knows> $y", "d", ["2:c>a 3:c>d"]),
]  # fmt: skip


@pytest.mark.parametrize(("start", "path", "end", "expected"), PATHS)
def test_paths(start: str, path: str, end: str | None, expected: list[str]) -> None:
    pins = f'$x: Person {{ handle: "{start}" }}' + ("" if end is None else f'  $y: Person {{ handle: "{end}" }}')
    assert answers(f"{pins}  {path}", "$p") == sorted(expected, key=repr)
    assert answers(f"{path}  {pins}", "$p") == sorted(expected, key=repr)


def test_paths_are_values() -> None:
    walk = '$x: Person { handle: "a" }  path $p: shortest $x knows $y'
    returns = "length($p) as n, map($n in nodes($p) : $n.name) as names, size(edges($p)) as edges, start($p).@id as s"
    assert answers(walk, returns.rpartition(",")[0]) == [
        (1, ["Ada", "Bo"], 1),
        (2, ["Ada", "Bo", "Cy"], 2),
        (3, ["Ada", "Bo", "Cy", "Di"], 3),
    ]
    assert answers("$x: Person  $x $w:wrote $y", "path($x, $w, $y) as p") == ["w1", "w2", "w3", "w4", "w5"]


# ---- several types --------------------------------------------------------------------------------------

TYPES = [
    ('$x: (Person | Paper)  $x.@type = "Person"', "$x", ["a", "b", "c", "d"]),
    (
        "$x: (Person | Paper)  $x.age? > 20 or $x.pages? > 10",
        "$x.@type as t, $x.@id as i",
        [("Paper", "p2"), ("Person", "a"), ("Person", "d")],
    ),
    ("$x: *  $x.name? is null", "$x", ["p1", "p2", "p3", "p4"]),
    ("$x: (Person | Paper)  $x: Paper { pages: 5 }", "$x", ["p4"]),
    ("$x: (Person | Paper)  not { $x: Paper }", "$x", ["a", "b", "c", "d"]),
    (
        "$x: (Person | Paper)  $x (wrote | cites) $p",
        "$x, $p",
        [("a", "p1"), ("a", "p2"), ("b", "p2"), ("d", "p3"), ("p1", "p2"), ("p2", "p3"), ("p3", "p1")],
    ),
    ('$x: Person { handle: "b" }  $x * $y  $y: *', "$y", ["c", "p2"]),
    (
        "$x: (Person | Paper)  $x (wrote | cites){2,2} $p",
        "$x, $p",
        [("a", "p3"), ("b", "p3"), ("d", "p1"), ("p1", "p3"), ("p2", "p1"), ("p3", "p2")],
    ),
]


@pytest.mark.parametrize(("match", "returns", "expected"), TYPES)
def test_variables_of_several_types(match: str, returns: str, expected: list[Any]) -> None:
    assert answers(match, returns) == expected


# ---- stages ---------------------------------------------------------------------------------------------

STAGES = [
    (
        (
            "match { $x: Person  $x wrote $p } return { $x, count($p) as n } order { n desc } limit 2 "
            "then match { $n > 1  $x knows $y } return { $x.name as name, $n as n, collect($y.name) as f }"
        ),
        [("Ada", 2, ["Bo"])],
    ),
    (
        (
            "match { $x: Person } return { $x } order { $x.age desc } limit 2 "
            "then match { $x knows $y } return { $y.name as y }"
        ),
        ["Di", "Bo"],
    ),
    (
        "match { $x: Person } return { $x, $x.age as age } order { age desc } then return { collect($age) as ages }",
        [[40, 30, 20]],
    ),
    ("unwind [3, null, 1] as $i return { $i, $i + 1 as j }", [(3, 4), (None, None), (1, 2)]),
    ("unwind [1, 2] as $i unwind [10, 20] as $k match { $i = 1 or $k = 20 } return { $i + $k as s }", [11, 21, 22]),
    (
        'unwind ["b", "z", "a"] as $h match { $x: Person { handle: $h } } return { $h, $x.name as n }',
        [("b", "Bo"), ("a", "Ada")],
    ),
    ("return { 1 + 1 as two }", [2]),
    ("match { $x: Person } return { $x.name as n } order { n } limit 2 offset 1", ["Bo", "Cy"]),
    ("match { $x: Person } return { $x.name as n } order { n } offset 9", []),
    ("match { $x: Person } return { $x.name as n } order { n } limit $most offset $skip", ["Di"]),
    ("match { $x: Person } return { $x.age as age } order { age desc nulls first } limit 2", [None, 40]),
    ("match { $x: Person } return { $x.age as age } order { age nulls last } limit 1", [20]),
    (
        "match { $x: Person  $x wrote $p } return distinct { $p.state as s } order { s }",
        ["draft", "final", "withdrawn"],
    ),
    (
        (
            "match { $x: Person  $x $w:wrote $p } "
            "return distinct { $w.note as n, $x.age > 25 as old } order { n, old } limit 3"
        ),
        [(None, True), ("again", True), ("first", False)],
    ),
    (
        (
            "match { $p: Paper } "
            "return { $p.state as s, sum($p.pages) / count(*) as mean, count(*) + 1 as n } order { mean desc, n }"
        ),
        [("draft", 20, 2), ("final", 7, 3), ("withdrawn", None, 2)],
    ),
    (
        (
            "match { $x: Person  $x $w:wrote $p } "
            "return { count(distinct $p) as n, count($p) as m, size(collect(distinct $w.note)) as l }"
        ),
        [(3, 5, 3)],
    ),
    (
        (
            "match { $x: Person  optional { $x wrote $p } } return { $x, $p } then match { $p: Paper { pages: 20 } } "
            "return { $x.name as n } order { n }"
        ),
        ["Ada", "Bo"],
    ),
    (
        (
            "match { $p: Paper } return { $p, nearest($p.vec, [0, 0, 0, 0]) as d } order { d } limit 2 "
            "then match { $p cites $q } return { $q.doi as q, $d as d }"
        ),
        [("p2", 0.0), ("p3", 1.0)],
    ),
    (
        (
            "match { $x: Person  $x wrote $p } return { $x, $p } then return { $x.handle as h, $p.doi as d } "
            "order { nearest($p.vec, [2, 0, 0, 0]) } limit 2"
        ),
        [("d", "p3"), ("a", "p2")],
    ),
    (
        (
            "match { $x: Person } return { $x } order { $x.age desc } limit 2 "
            "then match { $p: Paper  $p.pages < $x.age } "
            'return { $x.handle as h, $p.doi as d } order { bm25($p.title, "graph") } limit 3'
        ),
        [("d", "p1"), ("a", "p1"), ("d", "p2")],
    ),
    (
        (
            "match { $x: Person } return { $x.name as name, exists { $x wrote $_ } as w } "
            "order { exists { $x wrote $_ }, name } limit 2"
        ),
        [("Cy", False), ("Ada", True)],
    ),
    ("match { $x: Person } return { $x.karma as k } order { abs($x.age - 35), k desc } limit 2", [2.5, 2.0]),
]


@pytest.mark.parametrize(("body", "expected"), STAGES)
def test_stages(body: str, expected: list[Any]) -> None:
    parameters = "$most: I64, $skip: I64" if "$most" in body else ""
    assert rows(body, {"most": 1, "skip": 3} if parameters else None, parameters) == expected


UNIONS = [
    (
        (
            'match { $x: Person { handle: "a" } } return { $x.name as n } '
            "union all match { $x: Person } return { $x.name as n }"
        ),
        ["Ada", "Ada", "Bo", "Cy", "Di"],
    ),
    (
        (
            'match { $x: Person { handle: "a" } } return { $x.name as n } '
            "union match { $x: Person } return { $x.name as n }"
        ),
        ["Ada", "Bo", "Cy", "Di"],
    ),
    ("return { 1 as n } union all return { 1 as n } union return { 1.0 as n } union all return { 1 as n }", [1.0, 1.0]),
    (
        (
            "{ match { $x: Person } return { $x as e } union match { $p: Paper } return { $p as e } } "
            "then match { $e: Person  $e wrote $q } return distinct { $e.@id as i } order { i }"
        ),
        ["a", "b", "d"],
    ),
]


@pytest.mark.parametrize(("body", "expected"), UNIONS)
def test_unions(body: str, expected: list[Any]) -> None:
    assert rows(body) == expected


# ---- laws -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(150))
def test_the_order_of_clauses_does_not_show(seed: int) -> None:
    """Wherever all orders of some clauses typecheck: a variable gets its type from the first clause that has one."""
    clauses = ["$a: Person", *random_match(random.Random(seed), has_order=False)]
    outcomes = []
    for order in list(permutations(clauses))[:24]:
        query = read("  ".join(order), "$a.@id as id")
        try:
            outcomes.append(answers("  ".join(order), "$a.@id as id"))
            check_plan(compiled(query).read_plan.root)
        except CompileError:
            continue
    assert all(outcome == outcomes[0] for outcome in outcomes)


@pytest.mark.parametrize("seed", range(150))
def test_where_a_condition_is_tested_does_not_show(seed: int) -> None:
    """A condition of a later stage may move into an earlier one, but not past a limit, even one that cuts nothing."""
    first, second = random_query(random.Random(seed))
    try:
        moved = rows(f"{first} then {second}")
    except CompileError:
        return
    assert sorted(moved, key=repr) == sorted(rows(f"{first} limit 100000 then {second}"), key=repr)
