"""Types of values: truth and nulls, lists, calculations, functions, `case`, aggregates and the keys of `order`."""

from __future__ import annotations

import pytest

from omnigraph.errors import CompileError
from omnigraph.language.query import ir
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.functions import FORMS, FUNCTIONS, NAMES, signatures_of
from omnigraph.language.query.value_types import ListType, NullType, display, list_of
from omnigraph.language.schema.compile import compile_schema

from .query_archive import compiled, findings, read

ANY = "$a: Person  $p: Paper"
WALK = "$a: Person  path $w: trails $a knows $b"


def type_of(expression: str, match: str = ANY, params: str = "") -> str:
    """The type of a value, as a column shows it."""
    body = compiled(read(match, f"{expression} as it", params=params)).resolved.body
    return display(body.columns[0].type)  # type: ignore[union-attr]


def only_finding(query: str) -> tuple[str, str]:
    (finding,) = findings(query)
    return finding.code, finding.message


TYPES = [
    # Truth is nullable if an operand is; tests for null are not.
    ("$a.name = $a.handle", "Bool"),
    ("$a.age = 3", "Bool?"),
    ("$a.age = 3 and true", "Bool?"),
    ("true or false", "Bool"),
    ("not ($a.age > 3)", "Bool?"),
    ("$a.age is null", "Bool"),
    ("$a is not null", "Bool"),
    ("$a.age in [1, 2]", "Bool?"),
    ("$p.title contains \"x\"", "Bool"),
    ('search($p.title, "x")', "Bool"),
    # Literals and lists.
    ("null", "String?"),
    ("[]", "[String]"),
    ("[null]", "[String]"),
    ("[1, 2.5]", "[F64]"),
    ("[$a.age, 3]", "[I64]"),
    ("[[1], []]", "[[I64]]"),
    ("[$a]", "[node Person]"),
    ("-9223372036854775808", "I64"),
    ("- $a.age", "I64?"),
    # Arithmetic: integers give I64, a float F64; + joins.
    ("$a.age + 1", "I64?"),
    ("1 / 2", "I64"),
    ("1 / 2.0", "F64"),
    ("$a.age % $p.price", "F64?"),
    ('$a.name + "!"', "String"),
    ("$p.ratings + [1.5]", "[F64]?"),
    ("$p.ratings + []", "[I32]?"),
    ("1 + null", "I64?"),
    # Case: branches widen, null fits.
    ("case when $a.age > 3 then 1 when true then 2.5 end", "F64?"),
    ("case when true then 1 else 2 end", "I64"),
    ("case $p.state when \"draft\" then $p.ratings else [] end", "[I32]?"),
    ("case when true then $a else null end", "node Person?"),
    # Functions.
    ("lower($p.state)", "String"),
    ("abs($a.age)", "I64?"),
    ("abs(-1.5)", "F64"),
    ("round(1)", "F64"),
    ("to_int(\"3\")", "I64?"),
    ("to_int(3)", "I64"),
    ("size($a.aliases)", "I64?"),
    ("split($a.name, \" \")", "[String]"),
    ("coalesce($a.age, 0)", "I64"),
    ("coalesce($a.age, null)", "I32?"),
    ("nullif($a.age, 0)", "I32?"),
    ("date($a.born)", "Date?"),
    ("add_days($a.seen, 1)", "DateTime?"),
    ("days_between($a.born, now())", "I64?"),
    ("head($a.aliases)", "String?"),
    ("item([1, 2], 0)", "I64?"),
    ("slice([1, 2], 0, 1)", "[I64]"),
    ("range(1, 3)", "[I64]"),
    ("reverse($a.aliases)", "[String]?"),
    ("keys($a)", "[String]"),
    ("contains($p.title, \"x\")", "Bool"),
    ("pi()", "F64"),
    # List forms.
    ("map($x in [1, 2] where $x > 1 : $x * 1.5)", "[F64]"),
    ("map($x in $a.aliases : size($x))", "[I64]?"),
    ("any($x in $a.aliases : $x = \"b\")", "Bool?"),
    ("all($x in [1, 2] : true)", "Bool"),
    ("reduce($sum = 0, $x in [1.5] : $sum + $x)", "F64?"),
    ("reduce($all = [], $x in [1] : $all + [$x])", "[I64]"),
    # Records.
    ("record(n: 1, name: $a.name)", "record(n: I64, name: String)"),
    ("field(record(n: 1), \"n\")", "I64"),
    # Aggregates.
    ("count(*)", "I64"),
    ("count(distinct $a)", "I64"),
    ("sum($p.pages)", "I64?"),
    ("sum($p.price)", "F64?"),
    ("avg($p.pages)", "F64?"),
    ("min($p.added)", "DateTime?"),
    ("max($a.active)", "Bool?"),
    ("min($p.state)", "enum(draft, final, withdrawn)?"),
    ("collect($a.age)", "[I32]"),
    ("collect($a)", "[node Person]"),
    ("stdev($p.pages)", "F64?"),
    ("percentile_cont($p.pages, 0.5)", "F64?"),
    ("percentile_disc($p.pages, 0.5)", "I32?"),
    ("sum($p.pages) / count(*)", "I64?"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), TYPES)
def test_types(expression: str, expected: str) -> None:
    assert type_of(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$w", "path"),
        ("length($w)", "I64"),
        ("nodes($w)", "[node Person]"),
        ("edges($w)", "[edge Knows]"),
        ("start($w)", "node Person"),
        ("map($n in nodes($w) : $n.age)", "[I32]"),
        ("all($e in edges($w) : $e.since > date(\"2020-01-01\"))", "Bool?"),
        ("$w is null", "Bool"),
        ("count($w)", "I64"),
        ("collect($w)", "[path]"),
    ],
)  # fmt: skip
def test_types_of_paths(expression: str, expected: str) -> None:
    assert type_of(expression, WALK) == expected


REJECTED = [
    # T41: what is true or false.
    ("T41", read(f"{ANY} $a.age"), "a filter needs a Bool but got I32?"),
    ("T41", read(f"{ANY} $a.active and $a.age"), "'and' needs a Bool but got I32?"),
    ("T41", read(f"{ANY} $a or true"), "'or' needs a Bool but got node 'Person'"),
    ("T41", read(f'{ANY} not "x"'), "'not' needs a Bool but got String"),
    # T53: items of a list.
    ("T53", read(ANY, '[1, "a"] as x'), "mixes I64 and String"),
    ("T53", read(ANY, "[1, [2]] as x"), "mixes I64 and [I64]"),
    # T101: comparisons with null.
    ("T101", read(f"{ANY} $a.age = null"), "is null"),
    ("T101", read(f"{ANY} (null) != $a.age"), "is null"),
    ("T101", read(f"{ANY} null in $a.aliases"), "is null"),
    ("T101", read(f"{ANY} $a.age in null"), "is null"),
    ("T101", read(ANY, "case $a.age when null then 1 end as x"), "is null"),
    # T7: lists and `in`.
    ("T7", read(f"{ANY} $a.age in 3"), "`in` needs a list on the right"),
    ("T7", read(f"{ANY} $a in $p"), "`in` needs a list on the right"),
    ("T7", read(f'{ANY} $a.age in ["x"]'), "cannot compare I32? with the items of [String]"),
    ("T7", read(f"{ANY} $a in [$p]"), "cannot compare node 'Person' with the items of [node Paper]"),
    ("T7", read(ANY, "record(n: 1) = record(n: 1) as x"), "can't be compared"),
    # T8: aggregates of the right kind.
    ("T8", read(ANY, "sum($p.title)"), "requires a numeric type"),
    ("T8", read(ANY, "avg($p.ratings)"), "requires a numeric type"),
    ("T8", read(ANY, "max($p.vec)"), "requires a type that has an order"),
    ("T8", read(ANY, "sum($a)"), "but got node 'Person'"),
    ("T8", read(ANY, "min($a) as first"), "but got node 'Person'"),
    ("T8", read(ANY, "stdev($p.title)"), "requires a numeric type"),
    ("T8", read(ANY, "sum(count($p)) as n"), "can't stand in an aggregate"),
    # T9: grouping.
    ("T9", read(ANY, "$a.name, sum($p.pages) + $a.age as n"), "constants and grouping keys"),
    ("T9", read(ANY, "$a, count(*) + $a.age as n"), "constants and grouping keys"),
    # T25, T36, T43: columns.
    ("T25", read(ANY, "1 as x, 2 as x"), "two columns are called 'x'"),
    ("T25", read(ANY, "1, 2"), "two columns are called 'literal'"),
    ("T25", read(ANY, "$p.doi, $p.doi"), "two columns are called 'p.doi'"),
    ("T25", read(ANY, "$p.pages, sum($p.pages)"), "an aggregate without a name has that of its argument"),
    ("T25", read(ANY, "$p, count($p)"), "two columns are called 'p'"),
    ("T25", read(ANY, '$p.doi as "p.title", $p.title'), "two columns are called 'p.title'"),
    ("T36", read(ANY, "$p.doi as d, d as e"), "'d' is the name of an output column"),
    ("T36", read(ANY, "nothing"), "'nothing' is the name of an output column"),
    ("T43", read(ANY, "$a.age + 1"), "needs a name"),
    ("T43", read(ANY, "lower($a.name)"), "needs a name"),
    ("T43", read(ANY, "$a.age > 3"), "needs a name"),
    ("T43", read(ANY, "case when true then 1 end"), "needs a name"),
    ("T43", read(ANY, "count { $a wrote $_ }"), "needs a name"),
    ("T43", read(ANY, "sum($a.age + 1)"), "needs a name"),
    # T42: what is ordered by.
    ("T42", read(ANY, "$p.doi as doi", "order { dio }"), "no output column 'dio'"),
    ("T42", read(ANY, "$p.title", "order { title }"), "no output column 'title'"),
    ("T42", read(ANY, "$p.doi", "order { $p.keywords }"), "'$p.keywords': a [String]? has no order"),
    ("T42", read(ANY, "$p.vec as v", "order { v }"), "a Vector(4)? has no order"),
    ("T42", read(ANY, "record(n: 1) as r", "order { r }"), "has no order"),
    ("T42", read(ANY, "$p.doi", "order { count($p) }"), "can't stand in order"),
    ("T42", read(ANY, "count($p) as n", "order { $p.doi }"), "beside an aggregate only what is returned"),
    ("T42", read(ANY, "$p.doi, count($a) as n", "order { n + $p.pages }"), "'n + $p.pages'"),
    ("T42", read(ANY, "$p.doi, count($a) as n", "order { sum($p.pages) }"), "can't stand in order"),
    ("T42", read(ANY, "$p.doi", 'order { $p.doi, bm25($p.title, "x") }'), "must be the first sort key"),
    ("T42", read(ANY, "$p.doi", 'order { bm25($p.title, "x") * 2 }'), "bm25() can't stand in order"),
    ("T42", f"query q() {{ match {{ {ANY} }} return distinct {{ $p.doi as d }} order {{ $p.title }} }}", "distinct"),
    # T102: calls and calculations.
    ("T102", read(ANY, "lowre($a.name) as x"), "there is no function 'lowre'; there is lower(s: String) -> String"),
    ("T102", read(ANY, "lower($a.age) as x"), "lower(I32?) fits no signature: lower(s: String) -> String"),
    ("T102", read(ANY, "lower() as x"), "fits no signature"),
    ("T102", read(ANY, "abs(1, 2) as x"), "abs(x: integer) -> I64 or abs(x: number) -> F64"),
    ("T102", read(ANY, "substring($a.name) as x"), "substring(s: String, start: integer[, n: integer])"),
    ("T102", read(ANY, "lower(s: $a.name) as x"), "have no names"),
    ("T102", read(ANY, 'year("2024-01-31") as x'), "year(d: Date | DateTime)"),
    ("T102", read(ANY, 'contains($a.aliases, "x") as x'), "contains(s: String, t: String)"),
    ("T102", read(ANY, 'matches($a.name, "(") as x'), "is not a regular expression"),
    ("T102", read(ANY, "keys(3) as x"), "keys(x: node or edge)"),
    ("T102", read(ANY, "nullif($a.age, \"x\") as x"), "fits no signature"),
    ("T102", read(ANY, "coalesce($a.age, \"x\") as x"), "fits no signature"),
    ("T102", read(ANY, "$a.age + $a.name as x"), "'+' takes no I32? and String"),
    ("T102", read(ANY, "$a.name - 1 as x"), "'-' takes no String and I64"),
    ("T102", read(ANY, "$a.born + 1 as x"), "'+' takes no Date? and I64"),
    ("T102", read(ANY, "-$a.name as x"), "unary '-' takes a number"),
    ("T102", read(ANY, "$a + 1 as x"), "'+' takes no node 'Person' and I64"),
    ("T102", read(ANY, 'case when true then 1 else "x" end as x'), "the branches of a case need one type"),
    ("T102", read(ANY, "case when $a.age then 1 end as x"), "'when' needs a Bool"),
    ("T102", read(ANY, 'case $a.age when "x" then 1 end as x'), "can't equal String"),
    ("T102", read(ANY, "map($x in 3 : $x) as x"), "map() goes through a list"),
    ("T102", read(ANY, "any($x in [1] : $x) as x"), "any() needs a Bool"),
    ("T102", read(ANY, 'reduce($s = 0, $x in ["a"] : $s + size($x) = 1) as x'), "goes on with Bool"),
    ("T102", read(ANY, "record(1) as x"), "every value of a record has a name"),
    ("T102", read(ANY, "record(n: 1, n: 2) as x"), "one field 'n'"),
    ("T102", read(ANY, "field(3, \"n\") as x"), "field() takes a record"),
    ("T102", read(ANY, "field(record(n: 1), \"m\") as x"), "no field 'm'"),
    ("T102", read(ANY, "percentile_cont($p.pages) as x"), "takes two arguments"),
    ("T102", read(ANY, "percentile_cont($p.pages, 1.5) as x"), "0..1"),
    ("T102", read(ANY, "percentile_cont($p.pages, $p.price) as x"), "a number literal or a parameter"),
    ("T102", read(ANY, "sum($p.pages, 1) as x"), "takes one argument"),
    ("T102", read(ANY, "stdevp(distinct $p.pages) as x"), "takes no distinct"),
    # T100: the body of a list form is evaluated per item.
    ("T100", read(ANY, "map($x in [1] : count(*)) as x"), "can't stand in the body of map()"),
    ("T100", read(ANY, "map($x in [1] : exists { $a wrote $_ }) as x"), "can't stand in the body of map()"),
    ("T100", read(ANY, 'any($x in [1] : search($p.title, "x")) as x'), "can't stand in the body of any()"),
    ("T50", read(ANY, "reduce($x = 0, $x in [1] : $x) as x"), "can't be the item and the result so far"),
    # T108: paths are no numbers.
    ("T108", read(WALK, "$w = $w as x"), "a path can't be compared"),
    ("T108", read(WALK, "$w", "order { $w }"), "a path has no order"),
    ("T108", read(WALK, "$w + 1 as x"), "can't be calculated with"),
    ("T108", read(WALK, "$w.length as x"), "is a path and has no properties"),
    ("T108", read(WALK, "$w.@id as x"), "not a node or edge"),
    ("T108", read(WALK, "lower($w) as x"), "fits no signature"),
    ("T108", read(WALK, "max($w) as x"), "requires a type that has an order"),
    ("T108", read(WALK, "path($a, $b) as x"), "does not go on"),
    ("T108", read("$a $e:knows $b", "path($e, $b) as x"), "does not go on"),
    ("T108", read("$a $e:knows $b", "path($a, $e) as x"), "ends with a node"),
    ("T108", read("$a $e:wrote $p  $q: Slot", "path($q, $e, $p) as x"), "does not go on"),
    ("T108", read(ANY, "path($a.name) as x"), "made of nodes, edges and paths"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "query", "message"), REJECTED)
def test_rejected(code: str, query: str, message: str) -> None:
    problem, *_ = findings(query)
    assert problem.code == code, problem.message
    assert message in problem.message
    assert problem.suggestion, problem.message


ACCEPTED = [
    read(f"{ANY} not ($a.age > 30) or $a.age is null"),
    read(f"{ANY} $a.age in []  $a.age in [1, 2.5, null]  $a.name in $a.aliases  $a.age in $q", params="$q: [I64]?"),
    read("$a: Person  $b: Person  $a = $b  $a != $b  $a in [$b]"),
    read(f"{ANY} null"),
    read(f"{ANY} true"),
    # An expression beside aggregates is made of constants and keys.
    read(ANY, "$a.age, sum($p.pages) / count(*) + $a.age * $n as x", params="$n: I32"),
    read(ANY, "$a.age + 1 as next, count(*) * ($a.age + 1) as x"),
    read(ANY, "1 as one, now(), count(*), $a"),
    read(ANY, "map($x in [1] : $x) as list, count(*) as n"),
    # Order: by what is returned, and by anything else of the row.
    read(ANY, "$p.doi as doi", "order { doi, $p.title desc nulls last, lower($p.title), $p.@id, $a, 3 }"),
    read(ANY, "$a.name, count($p) as n", "order { count($p) desc, n + 1, $a.name, n }"),
    read(ANY, "$a, count($p) as n", "order { a, n }"),
    read(ANY, "count { $a wrote $_ } as n", "order { count { $a wrote $_ } desc, exists { $a knows $_ } }"),
    f"query q() {{ match {{ {ANY} }} return distinct {{ lower($p.title) as t }} order {{ lower($p.title), t }} }}",
    f"query q($q: Vector(4)) {{ match {{ {ANY} }} return distinct {{ $p }} order {{ nearest($p.vec, $q) }} limit 3 }}",
    read(ANY, "$p.doi as \"the DOI\", $p.title as \"p.title\""),
]  # fmt: skip


@pytest.mark.parametrize("query", ACCEPTED)
def test_accepted(query: str) -> None:
    assert findings(query) == ()


def test_a_folded_number_is_a_constant() -> None:
    body = compiled(read(ANY, "-3 as a, [1, -2] as b, - 2.5 as c")).resolved.body
    values = [projection.value for projection in body.chains[0].stages[0].projections]  # type: ignore[union-attr]
    assert values == [ir.Constant(-3, ir.I64), ir.Constant((1, -2), list_of(ir.I64)), ir.Constant(-2.5, ir.F64)]


def test_every_function_shows_its_signatures() -> None:
    assert {*FUNCTIONS, *FORMS} == NAMES
    assert FUNCTIONS.keys().isdisjoint(FORMS)
    for name in NAMES:
        assert all(text.startswith(f"{name}(") for text in signatures_of(name))


def test_null_fits_every_argument_of_every_function() -> None:
    for function in FUNCTIONS.values():
        for signature in function.signatures:
            assert function.result([NullType()] * signature.required) is not None, signature.text
            assert not signature.takes([NullType()] * (len(signature.kinds) + 1)) or signature.is_variadic


def test_a_list_of_nulls_fits_every_list() -> None:
    assert FUNCTIONS["size"].result([ListType(NullType())]) == ir.I64


def test_nested_reductions_are_not_checked_over_and_over() -> None:
    """Each of them widens its accumulator, so each body is checked twice; 40 levels would take for ever."""
    body = "1.5"
    for level in range(40):
        body = f"reduce($s{level} = 0, $x{level} in [1] : $s{level} + {body})"
    (finding,) = findings(read(ANY, f"{body} as x"))
    assert finding.code == "T102"


def test_the_quoted_edge_is_named_where_in_was_meant_as_one() -> None:
    catalog = compile_schema("node City { name: String @key }  edge In: City -> City")
    query = compile_queries("query q() { match { $i: City  $i in $b } return { $b } }", catalog).query()
    with pytest.raises(CompileError) as error:
        _ = query.resolved
    (finding,) = error.value.diagnostics
    assert (finding.code, finding.message) == ("T7", "`in` needs a list on the right")
    assert finding.suggestion == 'the edge In is written with quotes: $i "in" $b'
