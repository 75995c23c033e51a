"""Types of whole reads: stages joined by `then`, `unwind`, `distinct`, `union`, `limit` and `offset`."""

from __future__ import annotations

import pytest

from omnigraph.language.query import ir, resolved
from omnigraph.language.query.value_types import display

from .query_archive import compiled, findings


def query(body: str, params: str = "") -> str:
    return f"query q({params}) {{ {body} }}"


def checked(body: str, params: str = "") -> resolved.Read:
    read = compiled(query(body, params)).resolved.body
    assert isinstance(read, resolved.Read)
    return read


def columns(body: str, params: str = "") -> dict[str, str]:
    return {column.name: display(column.type) for column in checked(body, params).columns}


LOANS = "match { $a: Person  $a knows $b } return { $a, count($b) as friends, $a.name }"


COLUMNS = [
    # Entities stay entities, everything else becomes a value.
    (f"{LOANS} then match {{ $friends > 3  $a wrote $p }} return {{ $a.age, $friends, $p }}",
     {"a.age": "I32?", "friends": "I64", "p": "node Paper"}),
    (f"{LOANS} then return {{ sum($friends) as all, collect($a.name) as names }}",
     {"all": "I64?", "names": "[String]"}),
    ("return { 1 + 1 as two }", {"two": "I64"}),
    ("return { null as nothing } then return { $nothing }", {"nothing": "String?"}),
    ("match { $a: Person } return { record(n: 1, who: $a) as r } then return { $r.n, $r.who as who }",
     {"r.n": "I64", "who": "node Person"}),
    ("match { path $w: trails $a knows $b } return { $w } then return { length($w) as n, start($w) as s }",
     {"n": "I64", "s": "node Person"}),
    ("match { $a: Person } return { collect($a) as c } then return { head($c) as a } then return { $a.name as name }",
     {"name": "String?"}),
    ("match { optional { $a: Person } } return { $a } then match { $a wrote $p } return { $a.name as n, $p }",
     {"n": "String?", "p": "node Paper"}),
    ('match { $p: Paper } return { bm25($p.title, "x") as s, $p } order { s desc } then match { $s > 1 } return { $s }',
     {"s": "F64"}),
    # A bare parameter stays the parameter.
    ("match { $a: Person } return { $a, $q } then return { $q, $a.name }", {"q": "I32", "a.name": "String"}),
    # Unwound items may be null.
    ("unwind $list as $x return { $x }", {"x": "String?"}),
    ("unwind [1, 2.5] as $x return { $x * 2 as y }", {"y": "F64?"}),
    ("unwind [[1], []] as $x unwind $x as $y return { $y }", {"y": "I64?"}),
    ("unwind null as $x return { $x }", {"x": "String?"}),
    ("match { path $w: trails $a knows $b } return { $w } then unwind nodes($w) as $n return { $n.name as name }",
     {"name": "String?"}),
    # Parts of a union agree: numbers widen, nullability and node types unite.
    ("match { $p: Paper } return { $p.pages as n } union match { $p: Paper } return { $p.price as n }", {"n": "F64?"}),
    ("match { $x: Paper } return { $x } union all match { $x: Person } return { $x }", {"x": "node Paper | Person"}),
    ("return { 1 as n } union return { null as n } union all return { 2 as n }", {"n": "I64?"}),
    ("{ match { $x: Paper } return { $x } union match { $x: Person } return { $x } } then return { $x.@type as kind }",
     {"kind": "String"}),
    ("match { $a: Person } return { $a.@id, $a.@type as \"the type\" }", {"a.@id": "String", "the type": "String"}),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), COLUMNS)
def test_columns(body: str, expected: dict[str, str]) -> None:
    assert columns(body, "$q: I32, $list: [String]") == expected


REJECTED = [
    # T103, T104: what the stage before did not hand on.
    ("T103", f"{LOANS} then return {{ $name }}", "column 'a.name' of the stage before has no name"),
    ("T103", "match { $a: Person } return { $a.name } then return { $a.name as n }", "column 'a.name'"),
    ("T103", "match { $a: Person } return { count(*) } then return { $count + 1 as n }", "column 'count'"),
    ("T104", 'match { $a: Person } return { $a.age as "the age" } then return { $a.age as n }', "'$a'"),
    ("T104", f"{LOANS} then return {{ $b.name as n }}", "the stage before does not return '$b'"),
    ("T104", f"{LOANS} then match {{ $b.age > 3 }} return {{ $a }}", "'$b'"),
    ("T104", "match { $a: Person } return { $a.age as n } then return { count($a) as m }", "'$a'"),
    ("T104", "unwind [1] as $x return { 1 as one } then return { $x }", "'$x'"),
    # T6: it never was there.
    ("T6", f"{LOANS} then return {{ $c }}", "'$c' is not bound"),
    ("T6", "match { $a: Person } return { $a.age as n } then return { $n.x as m }", "a value of type I32?"),
    ("T6", "match { $a: Person } return { record(n: 1) as r } then return { $r.m as m }", "has no field 'm'"),
    # T50: a name is one thing.
    ("T50", "match { $a: Person } return { $a.age as q } then return { $q }", "'$q' is a parameter"),
    ("T50", "unwind [1] as $q return { 1 as one }", "already in use"),
    ("T50", f"{LOANS} then match {{ $friends: Person }} return {{ $a }}", "bound to a value of type I64"),
    ("T50", f"{LOANS} then match {{ $a knows $friends }} return {{ $a }}", "can't be an endpoint"),
    ("T50", f"{LOANS} then unwind [1] as $friends return {{ $a }}", "already in use"),
    ("T49", "unwind [1] as $__x return { 1 as one }", "begins with '__'"),
    # T111: unwind takes a list.
    ("T111", "unwind 3 as $x return { $x }", "takes a list but got I64"),
    ("T111", "unwind $q as $x return { $x }", "takes a list but got I32"),
    ("T100", "unwind [count(*)] as $x return { $x }", "can't stand in unwind"),
    ("T100", "unwind [1] as $_ return { 1 as one }", "never binds"),
    # T106: parts of a union.
    ("T106", "return { 1 as n } union return { 1 as m }", "different columns: n and m"),
    ("T106", "return { 1 as n, 2 as m } union return { 2 as m, 1 as n }", "different columns"),
    ("T106", "return { 1 as n } union return { 1 as n, 2 as m }", "different columns"),
    ("T106", 'return { 1 as n } union all return { "x" as n }', "column 'n' is I64 in one part and String in another"),
    ("T106", "match { $a $e:knows $b } return { $e as x } union match { $x: Person } return { $x }", "column 'x'"),
    ("T106", "return { [1] as n } union return { 1 as n }", "column 'n'"),
    # T110: numbers of rows.
    ("T110", "match { $a: Person } return { $a } limit $z", "'$z' is neither"),
    ("T110", "match { $a: Person } return { $a } limit $maybe", "but $maybe has type I64?"),
    ("T110", "match { $a: Person } return { $a } offset $text", "but $text has type String"),
    ("T110", "match { $a: Person } return { $a } limit $a", "'$a' is neither"),
    ("T3", "match { $a: Person } return { $a } limit 9223372036854775808", "beyond the range"),
    # Each stage has its own rules.
    ("T25", "match { $a: Person } return { $a, $a.name as a } then return { $a }", "two columns are called 'a'"),
    ("T9", f"{LOANS} then return {{ $a, count(*) + $friends as n }}", "grouping keys"),
    ("T17", 'match { $p: Paper } return { $p } order { nearest($p.vec, "x") } then return { $p } limit 1', "a limit"),
    ("T42", f"{LOANS} order {{ $b.age }} then return {{ $a }}", "beside an aggregate"),
    ("T1", f"{LOANS} then match {{ $x: Book }} return {{ $x }}", "unknown node type"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "body", "message"), REJECTED)
def test_rejected(code: str, body: str, message: str) -> None:
    problem, *_ = findings(query(body, "$q: I32, $maybe: I64?, $text: String"))
    assert (problem.code, message in problem.message) == (code, True), problem.message
    assert problem.suggestion, problem.message


ACCEPTED = [
    f"{LOANS} order {{ friends desc }} limit $n then match {{ $friends > 3  $a wrote $p }} return {{ $a }} offset $n",
    f"{LOANS} then match {{ $b: Person  $a knows $b }} return {{ $b }}",
    f"{LOANS} then match {{ $a: Person {{ age: $friends }}  exists {{ $a wrote $_  $friends > 1 }} }} return {{ $a }}",
    "unwind $ids as $i match { $p: Paper { doi: $i } } return { $p.title }",
    "match { $a: Person } return { $a.name as name } union return { \"x\" as name } then return { $name }",
    "{ return { 1 as m } union all return { 2 as m } } then return { $m } order { m } limit 0",
    'match { $p: Paper } return { $p } then return { $p.doi } order { bm25($p.title, "x") }',
    "match { $a: Person } return { $a } then match { optional { $a wrote $p } } return { $a, count($p) as n }",
]  # fmt: skip


@pytest.mark.parametrize("body", ACCEPTED)
def test_accepted(body: str) -> None:
    assert findings(query(body, "$n: I64, $ids: [String]")) == ()


def test_a_stage_gets_the_columns_of_the_one_before() -> None:
    (chain,) = checked(f"{LOANS} then match {{ $a wrote $p }} return {{ $p }}").chains
    first, second = chain.stages
    assert [projection.variable for projection in first.projections] == ["a", "friends", None]
    assert list(second.imported) == ["a", "friends"]
    assert list(second.variables) == ["a", "friends", "p"]


def test_limits_are_literals_or_parameters() -> None:
    (chain,) = checked("match { $a: Person } return { $a } limit $n offset 3", "$n: I64").chains
    (stage,) = chain.stages
    assert (stage.limit, stage.offset) == (ir.ParameterValue("n", ir.I64), 3)


def test_a_rank_call_silences_the_keys_after_it() -> None:
    ranked = 'match { $p: Paper } return { $p.doi as doi, bm25($p.title, "x") as s }'
    (chain,) = checked(f'{ranked} order {{ bm25($p.title, "x"), $p.doi }}').chains
    assert (chain.stages[0].sort, isinstance(chain.stages[0].ranking, ir.Bm25Rank)) == ((), True)
    (chain,) = checked(f"{ranked} order {{ s desc, doi }}").chains
    assert [key.value for key in chain.stages[0].sort] == [resolved.OutputName(1), resolved.OutputName(0)]
    assert isinstance(chain.stages[0].ranking, ir.Bm25Rank)
    (chain,) = checked(f"{ranked} order {{ s, doi }}").chains
    assert chain.stages[0].ranking is None


def test_a_column_inside_a_sort_key_is_an_output() -> None:
    (chain,) = checked(f"{LOANS} order {{ friends * 2 }}").chains
    (key,) = chain.stages[0].sort
    assert isinstance(key.value, ir.Arithmetic)
    assert key.value.left == ir.OutputValue(1, ir.I64)
