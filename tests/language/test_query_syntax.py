"""What the grammar of `.gq` accepts, how it reads ambiguous clauses, and what it says about broken text."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.errors import CompileError
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.parser import parse_queries, parse_row_filter
from omnigraph.language.query.syntax import AggregateFunction, ArithmeticOperator, Comparison, MetaField
from omnigraph.language.query.tree import MAX_NESTING
from omnigraph.language.source import MOST_DIAGNOSTICS, Name


def read(match: str, returns: str = "1 as one", tail: str = "", params: str = "") -> str:
    """A read query of these parts."""
    return f"query q({params}) {{ match {{ {match} }} return {{ {returns} }} {tail} }}"


def write(statements: str, params: str = "") -> str:
    return f"query q({params}) {{ {statements} }}"


def body(text: str) -> ast.Read | ast.Writes:
    (query,) = parse_queries(f"query q() {{ {text} }}").queries
    return query.body


def stage(text: str) -> ast.Stage:
    read = body(text)
    assert isinstance(read, ast.Read)
    ((only,),) = (chain.stages for chain in read.chains)
    return only


def clauses(text: str) -> tuple[ast.Clause, ...]:
    match = stage(f"match {{ {text} }} return {{ 1 }}").match
    assert match is not None
    return match.clauses


def clause(text: str) -> ast.Clause:
    (only,) = clauses(text)
    return only


def expression(text: str) -> ast.Expression:
    (only,) = stage(f"return {{ {text} }}").returns.projections
    return only.expression


def statements(text: str) -> tuple[ast.Statement, ...]:
    writes = body(text)
    assert isinstance(writes, ast.Writes)
    return writes.statements


def error_of(text: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        parse_queries(text)
    return caught.value


def var(name: str) -> ast.Variable:
    return ast.Variable(name)


def name(text: str) -> ast.Name:
    return Name(text)


def access(variable: str, prop: str, lenient: bool = False) -> ast.PropertyAccess:
    return ast.PropertyAccess(var(variable), name(prop), lenient)


def text(value: str) -> ast.StringLiteral:
    return ast.StringLiteral(value)


def number(value: int) -> ast.IntegerLiteral:
    return ast.IntegerLiteral(value)


def call(function: str, *arguments: ast.Expression) -> ast.Call:
    return ast.Call(name(function), tuple(ast.Argument(None, argument) for argument in arguments))


def compared(left: ast.Expression, operator: Comparison, right: ast.Expression) -> ast.Filter:
    return ast.Filter(ast.Compare(left, operator, right))


def selector(*edges: str, undirected: bool = False) -> ast.Selector:
    return ast.Selector(tuple(map(name, edges)), undirected)


def traversal(source: str, edges: str | ast.Selector, destination: str, **parts: Any) -> ast.Traversal:
    named = var(parts["edge"]) if "edge" in parts else None
    chosen = selector(edges) if isinstance(edges, str) else edges
    return ast.Traversal(var(source), chosen, named, parts.get("hops"), var(destination), parts.get("each"))


# ---- clauses --------------------------------------------------------------------------------------------

KNOWS = traversal("a", "knows", "b")
WROTE = traversal("a", "wrote", "_")
EITHER = selector("knows", undirected=True)

CLAUSES = [
    ("$b: Paper", ast.Binding(var("b"), (name("Paper"),), ())),
    (
        '$b: Paper { doi: "x", pages: $n + 1, }',
        ast.Binding(
            var("b"),
            (name("Paper"),),
            (
                ast.Pin(name("doi"), text("x")),
                ast.Pin(name("pages"), ast.Arithmetic(var("n"), ArithmeticOperator.ADD, number(1))),
            ),
        ),
    ),
    ("$b: (Paper | Note)", ast.Binding(var("b"), (name("Paper"), name("Note")), ())),
    ("$b: *", ast.Binding(var("b"), (), ())),
    ("$b: * { in: 3 }", ast.Binding(var("b"), (), (ast.Pin(name("in"), number(3)),))),
    ("$a knows $b", KNOWS),
    ("$_ wrote $_", traversal("_", "wrote", "_")),
    ("$a <knows> $b", traversal("a", EITHER, "b")),
    ("$a $e:wrote $b", traversal("a", "wrote", "b", edge="e")),
    ("$a $e : < knows > $b", traversal("a", EITHER, "b", edge="e")),
    ("$a knows{1,3} $b", traversal("a", "knows", "b", hops=ast.Hops(1, 3))),
    ("$a knows{0,2} $b", traversal("a", "knows", "b", hops=ast.Hops(0, 2))),
    ("$a <knows>{2,} $b", traversal("a", EITHER, "b", hops=ast.Hops(2, None))),
    # edge selections
    ('$a "in" $b', traversal("a", "in", "b")),
    ('$a "any text"{1,2} $b', traversal("a", "any text", "b", hops=ast.Hops(1, 2))),
    ("$a (wrote | knows) $b", traversal("a", selector("wrote", "knows"), "b")),
    ('$a (wrote|"in"|x){1,3} $b', traversal("a", selector("wrote", "in", "x"), "b", hops=ast.Hops(1, 3))),
    ("$a * $b", traversal("a", selector(), "b")),
    ("$a *{1,3} $b", traversal("a", selector(), "b", hops=ast.Hops(1, 3))),
    ("$a <x | y> $b", traversal("a", selector("x", "y", undirected=True), "b")),
    ('$a <"x"> $b', traversal("a", selector("x", undirected=True), "b")),
    ("$a <*> $b", traversal("a", selector(undirected=True), "b")),
    ("$a $e:(x | y) $b", traversal("a", selector("x", "y"), "b", edge="e")),
    ("$a $e:* $b", traversal("a", selector(), "b", edge="e")),
    ("$a $e:*{1,1} $b", traversal("a", selector(), "b", edge="e", hops=ast.Hops(1, 1))),
    ('$a $e:"in" $b', traversal("a", "in", "b", edge="e")),
    ("$a $e:<*> $b", traversal("a", selector(undirected=True), "b", edge="e")),
    # conditions on hops, paths, optional parts
    (
        "$a knows{1,} $b each $e $n { $e.on = 1  $n.age }",
        traversal(
            "a",
            "knows",
            "b",
            hops=ast.Hops(1, None),
            each=ast.Each(
                var("e"),
                var("n"),
                (compared(access("e", "on"), Comparison.EQUAL, number(1)), ast.Filter(access("n", "age"))),
            ),
        ),
    ),
    ("path $p: shortest $a knows $b", ast.Path(var("p"), ast.PathMode.SHORTEST, KNOWS)),
    (
        "path $p: all_shortest $a (x | y){2,3} $b",
        ast.Path(var("p"), ast.PathMode.ALL_SHORTEST, traversal("a", selector("x", "y"), "b", hops=ast.Hops(2, 3))),
    ),
    (
        "path $p: trails $a <*> $b each $_ $n { $n.x }",
        ast.Path(
            var("p"),
            ast.PathMode.TRAILS,
            traversal(
                "a",
                selector(undirected=True),
                "b",
                each=ast.Each(var("_"), var("n"), (ast.Filter(access("n", "x")),)),
            ),
        ),
    ),
    ("optional { $a wrote $_ }", ast.Optional((WROTE,))),
    ("not { $a wrote $_ }", ast.Negation((WROTE,))),
    # filters
    ("$b.pages >= 3", compared(access("b", "pages"), Comparison.GREATER_OR_EQUAL, number(3))),
    ("$flag", ast.Filter(var("flag"))),
    ('"abc" contains $b.title', compared(text("abc"), Comparison.CONTAINS, access("b", "title"))),
    (
        "fuzzy($b.title, $q, 1)",
        ast.Filter(ast.TextCall(ast.TextFunction.FUZZY, access("b", "title"), var("q"), number(1))),
    ),
    (
        "not { $a wrote $_ } or $a.age is null",
        ast.Filter(ast.Or((ast.Negation((WROTE,)), ast.IsNull(access("a", "age"), False)))),
    ),
    ("(not { $a wrote $_ })", ast.Filter(ast.Parentheses(ast.Negation((WROTE,))))),
    (
        "count { $a wrote $_ } >= $least",
        compared(
            ast.AggregateBlock(ast.AggregateCall(AggregateFunction.COUNT, None), (WROTE,)),
            Comparison.GREATER_OR_EQUAL,
            var("least"),
        ),
    ),
]


@pytest.mark.parametrize(("written", "expected"), CLAUSES)
def test_a_clause_reads_as(written: str, expected: ast.Clause) -> None:
    assert clause(written) == expected


ORDERED_CHOICE = [
    # A clause that can be a traversal is one.
    ("$a contains $b", ast.Traversal),
    ("$a starts_with $b", ast.Traversal),
    ("$a contains{1,2} $b", ast.Traversal),
    ("$a <contains> $b", ast.Traversal),
    # In parentheses it is an expression.
    ("($a contains $b)", ast.Filter),
    ("($a contains $b.title)", ast.Filter),
    ("($n * 2 > 10)", ast.Filter),
    # Anything but a variable on the right leaves only the string predicate.
    ('$a contains "x"', ast.Filter),
    ("$a starts_with now()", ast.Filter),
    ("$a contains name", ast.Filter),
    ("$a contains ($b)", ast.Filter),
    # `<` is a comparison unless the angle closes.
    ("$a < b", ast.Filter),
    ("$a < $b", ast.Filter),
    ("$a < 3", ast.Filter),
    ("$a <b> $c", ast.Traversal),
    ("$a.x < b", ast.Filter),
    # Only the star and a reserved word can't be mistaken for the name of an edge.
    ("$a + 2 > 10", ast.Filter),
    ("$a - 2 > 10", ast.Filter),
    ("$a / 2 > 10", ast.Filter),
    ("$a and $b", ast.Filter),
    ("$a in $b", ast.Filter),
    ("$a is not null", ast.Filter),
]


@pytest.mark.parametrize(("written", "kind"), ORDERED_CHOICE)
def test_ordered_choice_between_traversal_and_filter(written: str, kind: type[ast.Clause]) -> None:
    assert type(clause(written)) is kind


SEQUENCES: list[tuple[str, list[type]]] = [
    ("$a < b  $b: Paper", [ast.Filter, ast.Binding]),
    # A variable alone is a filter before another variable, unless that one names an edge.
    ("$flag  $b: Paper", [ast.Filter, ast.Binding]),
    ("$flag  $b: (Paper | Note)", [ast.Filter, ast.Binding]),
    ("$flag  $b: * { x: 1 }", [ast.Filter, ast.Binding]),
    ("$flag  $b: *", [ast.Filter, ast.Binding]),
    ("$flag  $b.x = 1", [ast.Filter, ast.Filter]),
    ("$flag  $other  $a knows $b", [ast.Filter, ast.Filter, ast.Traversal]),
    ("$flag  $a $e:* $b", [ast.Filter, ast.Traversal]),
    ("$flag  $a $e:(x | y) $b", [ast.Filter, ast.Traversal]),
    ("$flag  not $other", [ast.Filter, ast.Filter]),
    ("$flag  not { $a knows $b }", [ast.Filter, ast.Negation]),
    ("$flag  case when true then true end", [ast.Filter, ast.Filter]),
    # The longest expression is taken; a sign continues it.
    ("$a.x = 1  -$b.y < 3", []),
    ("$a.x  ($b.y)", [ast.Filter, ast.Filter]),
    ("$a.x  [1] = $b.y", [ast.Filter, ast.Filter]),
    ("$a knows $b  -$b.y < 3", [ast.Traversal, ast.Filter]),
    ("$a: *  ($b.y)", [ast.Binding, ast.Filter]),
    ("$a knows $b  optional { $a: A }  path $p: trails $a x $b", [ast.Traversal, ast.Optional, ast.Path]),
    ("$a.x  exists { $a: A }  count { $a: A } = 1", [ast.Filter, ast.Filter, ast.Filter]),
]


@pytest.mark.parametrize(("written", "kinds"), SEQUENCES)
def test_where_one_clause_ends_and_the_next_begins(written: str, kinds: list[type]) -> None:
    if not kinds:
        assert "comparisons do not chain" in error_of(read(written)).diagnostics[0].message
    else:
        assert [type(each) for each in clauses(written)] == kinds


# ---- words ----------------------------------------------------------------------------------------------

RESERVED = ["and", "or", "not", "is", "null", "in", "case"]
KEYWORDS = [
    "query", "match", "return", "order", "limit", "offset", "insert", "update", "upsert", "delete", "set", "where",
    "as", "asc", "desc", "now", "count", "sum", "collect", "search", "date", "nearest", "rrf", "then", "union", "all",
    "each", "optional", "path", "unwind", "distinct", "exists", "map", "any", "reduce", "record", "when", "else",
    "end", "nulls", "first", "new", "branch", "explain", "shortest", "contains", "starts_with", "nothing", "android",
]  # fmt: skip


@pytest.mark.parametrize("word", KEYWORDS)
def test_a_keyword_names_whatever_a_name_may_name(word: str) -> None:
    program = (
        f"query {word}(${word}: String) {{ match {{ {word} = 2 ${word}: Paper {{ {word}: ${word} }} "
        f"${word}.{word} = 1 }} return {{ ${word}.{word} as {word}, {word}, 1 }} order {{ ${word}.{word}, {word} }} }}"
    )
    (query,) = parse_queries(program).queries
    assert query.name.text == word
    assert isinstance(query.body, ast.Read)
    (chain,) = query.body.chains
    (only,) = chain.stages
    assert only.match is not None
    assert only.match.clauses[0] == compared(ast.Alias(word), Comparison.EQUAL, number(2))
    assert only.returns.projections[0].alias == name(word)
    assert only.returns.projections[1].expression == ast.Alias(word)
    assert only.order is not None
    assert only.order.keys[1].expression == ast.Alias(word)


@pytest.mark.parametrize("word", [*KEYWORDS, "true", "false"])
def test_an_edge_may_have_the_name_of_a_keyword(word: str) -> None:
    either = selector(word, undirected=True)
    assert clause(f"$a {word} $b") == traversal("a", word, "b")
    assert clause(f"$a {word}{{0,2}} $b") == traversal("a", word, "b", hops=ast.Hops(0, 2))
    assert clause(f"$a <{word}> $b") == traversal("a", either, "b")
    assert clause(f"$a $e:<{word}> $b") == traversal("a", either, "b", edge="e")
    assert clause(f"$a $e:{word}{{1,1}} $b") == traversal("a", word, "b", edge="e", hops=ast.Hops(1, 1))
    assert clause(f"$a ({word} | x) $b") == traversal("a", selector(word, "x"), "b")
    path = ast.Path(var("p"), ast.PathMode.TRAILS, traversal("a", word, "b"))
    assert clause(f"path $p: trails $a {word} $b") == path


@pytest.mark.parametrize("word", RESERVED)
def test_a_reserved_word_is_a_name_where_nothing_else_may_be(word: str) -> None:
    program = (
        f"query {word}(${word}: String) {{ match {{ $a: Paper {{ {word}: ${word} }} $a.{word} = 1 "
        f'$a "{word}" $b }} return {{ $a.{word} as "{word}", record({word}: 1) }} }}'
    )
    assert parse_queries(program).queries[0].name.text == word
    (insert,) = statements(f"insert A {{ a: 1 {word}: 2, b: c {word}: 3 }}")
    assert isinstance(insert, ast.Insert)
    assert [assigned.property.text for assigned in insert.assignments] == ["a", word, "b", word]


@pytest.mark.parametrize("word", RESERVED)
@pytest.mark.parametrize(
    "place", ["$b.x = {} + 1", "$a <{}> $b", "$a ({} | x) $b", "$a $e:{} $b", "path $p: trails $a {} $b"]
)
def test_a_reserved_word_is_no_operand_and_no_edge(word: str, place: str) -> None:
    if (word, place) != ("null", "$b.x = {} + 1"):
        (finding,) = error_of(read(place.format(word))).diagnostics
        assert finding.code == "Q001"


@pytest.mark.parametrize("word", RESERVED)
def test_a_reserved_word_is_no_alias(word: str) -> None:
    (finding,) = error_of(read("$b: Paper", f"$b as {word}")).diagnostics
    assert finding.suggestion == (
        f"'{word}' is a reserved word; the name of an edge, a column or a branch is written \"{word}\""
    )


def test_a_word_is_a_keyword_only_where_the_grammar_can_use_it() -> None:
    """What could go on an expression begins the next assignment before a colon."""
    words = ["as", "contains", "limit", "where", "then", "count", "path", "each", "end", "true"]
    (insert,) = statements("insert A { a: $x " + " ".join(f"{word}: b" for word in words) + " }")
    assert isinstance(insert, ast.Insert)
    assert [assignment.property.text for assignment in insert.assignments] == ["a", *words]


def test_programs_can_be_kept_in_sets() -> None:
    assert len({parse_queries(write("delete A where b = 1")), parse_queries(write("delete  A where b = 1"))}) == 1


# ---- expressions ----------------------------------------------------------------------------------------

A, B, C, D = map(ast.Alias, "abcd")
EQUALS = Comparison.EQUAL
PLUS, MINUS, TIMES, OVER, REST = ArithmeticOperator


def calc(left: ast.Expression, operator: ArithmeticOperator, right: ast.Expression) -> ast.Arithmetic:
    return ast.Arithmetic(left, operator, right)


PRECEDENCE: list[tuple[str, ast.Expression]] = [
    ("a or b and c", ast.Or((A, ast.And((B, C))))),
    ("a and b or c and d", ast.Or((ast.And((A, B)), ast.And((C, D))))),
    ("a and b and c", ast.And((A, B, C))),
    ("a and (b and c)", ast.And((A, ast.Parentheses(ast.And((B, C)))))),
    ("not a and b", ast.And((ast.Not(A), B))),
    ("not a = b", ast.Not(ast.Compare(A, EQUALS, B))),
    ("not a is null", ast.Not(ast.IsNull(A, False))),
    ("not not a", ast.Not(ast.Not(A))),
    ("a or not b in c", ast.Or((A, ast.Not(ast.In(B, C))))),
    ("a is not null and b", ast.And((ast.IsNull(A, True), B))),
    ("a + b = c * d", ast.Compare(calc(A, PLUS, B), EQUALS, calc(C, TIMES, D))),
    ("a + b in c", ast.In(calc(A, PLUS, B), C)),
    ("a + b is null", ast.IsNull(calc(A, PLUS, B), False)),
    ("a - b - c", calc(calc(A, MINUS, B), MINUS, C)),
    ("a - (b - c)", calc(A, MINUS, ast.Parentheses(calc(B, MINUS, C)))),
    ("a + b * c", calc(A, PLUS, calc(B, TIMES, C))),
    ("a / b % c * d", calc(calc(calc(A, OVER, B), REST, C), TIMES, D)),
    ("-a * b", calc(ast.Negative(A), TIMES, B)),
    ("a - -b", calc(A, MINUS, ast.Negative(B))),
    ("--a", ast.Negative(ast.Negative(A))),
    ("-9223372036854775808", ast.Negative(number(2**63))),
    ("a = -1", ast.Compare(A, EQUALS, ast.Negative(number(1)))),
    ("a = (b = c)", ast.Compare(A, EQUALS, ast.Parentheses(ast.Compare(B, EQUALS, C)))),
    ("((a))", ast.Parentheses(ast.Parentheses(A))),
]


@pytest.mark.parametrize(("written", "expected"), PRECEDENCE)
def test_operators_bind_as(written: str, expected: ast.Expression) -> None:
    assert expression(written) == expected
    assert parse_row_filter(written) == expected
    assert clause(f"({written})") == ast.Filter(ast.Parentheses(expected))


COUNT = AggregateFunction.COUNT
EXPRESSIONS: list[tuple[str, ast.Expression]] = [
    ("now()", ast.Now()),
    ("now", ast.Alias("now")),
    ("true", ast.BooleanLiteral(True)),
    ("true_north", ast.Alias("true_north")),
    ("null", ast.NullLiteral()),
    ("12", number(12)),
    ("007", number(7)),
    ("9223372036854775807", number(2**63 - 1)),
    ("0.50", ast.FloatLiteral("0.50")),
    ("2.5e-3", ast.FloatLiteral("2.5e-3")),
    ("1E5", ast.FloatLiteral("1E5")),
    (r'"a\"b\\\n\r\t"', text('a"b\\\n\r\t')),
    ('"raw\nnewline // not a comment"', text("raw\nnewline // not a comment")),
    ('date("2024-05-01")', ast.DateLiteral("2024-05-01")),
    ('datetime("x")', ast.DateTimeLiteral("x")),
    ("date($a.x)", call("date", access("a", "x"))),
    ('date("x", 1)', call("date", text("x"), number(1))),
    ("now(1)", call("now", number(1))),
    ("[]", ast.ListLiteral(())),
    ("[1, [$x, null]]", ast.ListLiteral((number(1), ast.ListLiteral((var("x"), ast.NullLiteral()))))),
    # entities
    ("$b.title", access("b", "title")),
    ("$b.in", access("b", "in")),
    ("$b.title?", access("b", "title", lenient=True)),
    ("$b.@id", ast.MetaAccess(var("b"), MetaField.ID)),
    ("$b.@type?", ast.MetaAccess(var("b"), MetaField.TYPE)),
    ("@src", ast.MetaAccess(None, MetaField.SRC)),
    # calls
    ("lower($b.title)", call("lower", access("b", "title"))),
    ("pi()", call("pi")),
    ("contains(a, b)", call("contains", A, B)),
    ("path($a, $e, $b)", call("path", var("a"), var("e"), var("b"))),
    (
        "record(name: a, in: b, 1)",
        ast.Call(
            name("record"),
            (ast.Argument(name("name"), A), ast.Argument(name("in"), B), ast.Argument(None, number(1))),
        ),
    ),
    (
        "case a when 1 then b when 2 then c else d end",
        ast.Case(A, (ast.CaseBranch(number(1), B), ast.CaseBranch(number(2), C)), D),
    ),
    ("case when a or b then c end", ast.Case(None, (ast.CaseBranch(ast.Or((A, B)), C),), None)),
    ("map($x in a : $x + 1)", ast.ListForm(ast.ListFunction.MAP, var("x"), A, None, calc(var("x"), PLUS, number(1)))),
    ("map($x in a where b : c)", ast.ListForm(ast.ListFunction.MAP, var("x"), A, B, C)),
    ("all($x in null : $x)", ast.ListForm(ast.ListFunction.ALL, var("x"), ast.NullLiteral(), None, var("x"))),
    ("single($x in lower(a) : b)", ast.ListForm(ast.ListFunction.SINGLE, var("x"), call("lower", A), None, B)),
    ("reduce($s = 0, $x in a : b)", ast.Reduce(var("s"), number(0), var("x"), A, B)),
    # aggregates and blocks
    ("count(*)", ast.AggregateCall(COUNT, None)),
    ("count($b)", ast.AggregateCall(COUNT, var("b"))),
    ("count(distinct $b)", ast.AggregateCall(COUNT, var("b"), distinct=True)),
    ("count(distinct)", ast.AggregateCall(COUNT, ast.Alias("distinct"))),
    ("collect(a + b)", ast.AggregateCall(AggregateFunction.COLLECT, calc(A, PLUS, B))),
    (
        "percentile_cont(a, 0.5)",
        ast.AggregateCall(AggregateFunction.PERCENTILE_CONT, A, fraction=ast.FloatLiteral("0.5")),
    ),
    ("sum(a) / count(*)", calc(ast.AggregateCall(AggregateFunction.SUM, A), OVER, ast.AggregateCall(COUNT, None))),
    ("count { $a knows $b }", ast.AggregateBlock(ast.AggregateCall(COUNT, None), (KNOWS,))),
    ("sum(a) { $a knows $b }", ast.AggregateBlock(ast.AggregateCall(AggregateFunction.SUM, A), (KNOWS,))),
    (
        "count(distinct a) { $a knows $b }",
        ast.AggregateBlock(ast.AggregateCall(COUNT, A, distinct=True), (KNOWS,)),
    ),
    ("exists { $a knows $b }", ast.ExistsBlock((KNOWS,))),
    ("not { $a knows $b } and a", ast.And((ast.Negation((KNOWS,)), A))),
    ("not not { $a knows $b }", ast.Not(ast.Negation((KNOWS,)))),
    # search
    ("nearest($b.vec, $q)", ast.NearestCall(access("b", "vec"), var("q"))),
    ("nearest($b.vec, $q, exact: true)", ast.NearestCall(access("b", "vec"), var("q"), exact=True)),
    ("nearest($b.vec, $q, exact: false)", ast.NearestCall(access("b", "vec"), var("q"), exact=False)),
    (
        "rrf(nearest($b.vec, $q), bm25($b.title, $t), 30)",
        ast.RrfCall(
            ast.NearestCall(access("b", "vec"), var("q")), ast.Bm25Call(access("b", "title"), var("t")), number(30)
        ),
    ),
    (
        "rrf(bm25($b.title, $t), bm25($b.x, $t))",
        ast.RrfCall(ast.Bm25Call(access("b", "title"), var("t")), ast.Bm25Call(access("b", "x"), var("t")), None),
    ),
]


@pytest.mark.parametrize(("written", "expected"), EXPRESSIONS)
def test_an_expression_reads_as(written: str, expected: ast.Expression) -> None:
    assert expression(written) == expected
    assert ast.bare(expression(f"(({written}))")) == expected


def test_projections_and_assignments_need_no_commas() -> None:
    loose = parse_queries("query q() { match { $b: Paper } return { $b.doi as d $b.title 3 } }")
    assert loose == parse_queries("query q() { match { $b: Paper } return { $b.doi as d, $b.title, 3, } }")
    assert parse_queries(write('insert Paper { doi: "a" title: "b" }')) == parse_queries(
        write('insert Paper { doi: "a", title: "b", }')
    )


# ---- reads ----------------------------------------------------------------------------------------------


def test_a_stage_has_these_parts() -> None:
    parsed = stage(
        "unwind $ids as $i unwind $i.tags as $t match { $b: Paper } "
        'return distinct { $b as "any text", $i as i } order { $b.x + 1 desc nulls last, i nulls first, i asc } '
        "limit $n offset 3"
    )
    assert parsed.unwinds == (ast.Unwind(var("ids"), var("i")), ast.Unwind(access("i", "tags"), var("t")))
    assert parsed.match == ast.Match((ast.Binding(var("b"), (name("Paper"),), ()),))
    projections = ast.Projection(var("b"), name("any text")), ast.Projection(var("i"), name("i"))
    assert parsed.returns == ast.Return(projections, distinct=True)
    assert parsed.order == ast.Order(
        (
            ast.SortKey(calc(access("b", "x"), PLUS, number(1)), "desc", "last"),
            ast.SortKey(ast.Alias("i"), None, "first"),
            ast.SortKey(ast.Alias("i"), "asc"),
        )
    )
    assert parsed.limit == ast.RowCount(var("n"))
    assert parsed.offset == ast.RowCount(number(3))


def test_limit_and_offset_come_in_either_order() -> None:
    assert stage("return { 1 } limit 2 offset $n") == stage("return { 1 } offset $n limit 2")
    assert stage("return { 1 } offset 2").limit is None


def test_stages_make_chains_and_chains_make_unions() -> None:
    parsed = body(
        "return { 1 as a } then match { $a > 0 } return { $a } union all return { 2 as a } union "
        "{ return { 3 as a } union return { 4 as a } } then return { $a }"
    )
    assert isinstance(parsed, ast.Read)
    assert parsed.keeps_all == (True, False)
    first, second, third = parsed.chains
    assert (len(first.stages), len(second.stages), len(third.stages)) == (2, 1, 1)
    assert (first.head, second.head) == (None, None)
    assert third.head is not None
    assert [len(chain.stages) for chain in third.head.chains] == [1, 1]


def test_a_read_in_braces_may_be_all_there_is() -> None:
    parsed = body("{ { return { 1 } } }")
    assert isinstance(parsed, ast.Read)
    (chain,) = parsed.chains
    assert chain.stages == ()
    assert chain.head is not None
    assert chain.head.chains[0].head == body("return { 1 }")


def test_comments_and_layout_do_not_matter() -> None:
    tight = parse_queries('query q($a:String){match{$b:Paper{doi:$a}$b.title="x"}return{$b}limit 3}')
    airy = """
    // a file
    query q ( $a : String ) /* about /* this */ {
        match { $b : Paper { doi : $a }   // the paper
                $b . title = "x" }
        return { $b }
        limit 3
    }
    """
    assert parse_queries(airy) == tight


def test_a_slash_divides_unless_it_begins_a_comment() -> None:
    assert expression("4 / 2") == calc(number(4), OVER, number(2))
    assert expression("4 // 2\n") == number(4)
    assert expression("4 /* 2 */ / 3") == calc(number(4), OVER, number(3))


# ---- writes ---------------------------------------------------------------------------------------------

SET = (ast.Assignment(name("a"), number(1)),)


def test_a_plain_write_reads_as() -> None:
    insert, insert_new, upsert, update, delete = statements(
        "insert A { a: 1 } insert new A { a: 1 } upsert A { a: 1 } "
        "update A set { a: 1 } where b = 1 and not c is null delete A where @src = $x"
    )
    assert insert == ast.Insert(name("A"), SET)
    assert insert_new == ast.Insert(name("A"), SET, ast.InsertMode.NEW)
    assert upsert == ast.Insert(name("A"), SET, ast.InsertMode.UPSERT)
    assert update == ast.Update(
        name("A"), SET, ast.And((ast.Compare(B, EQUALS, number(1)), ast.Not(ast.IsNull(C, False))))
    )
    assert delete == ast.Delete(name("A"), ast.Compare(ast.MetaAccess(None, MetaField.SRC), EQUALS, var("x")))


def test_writes_after_a_feed_run_for_its_rows() -> None:
    plain, of_match, of_list, of_stage = statements(
        "delete A where b = 1 match { $a: A } insert A { a: 1 } update $a set { a: 1 } delete $a "
        "unwind $l as $x unwind $x as $y match { $a: A } upsert A { a: 1 } "
        "match { $a: A } return { $a } then return { $a } then match { $a knows $b } delete $b"
    )
    assert isinstance(plain, ast.Delete)
    assert isinstance(of_match, ast.ForEachRow)
    assert of_match.feed == ast.Feed(None, (), ast.Match((ast.Binding(var("a"), (name("A"),), ()),)))
    assert of_match.statements == (
        ast.Insert(name("A"), SET),
        ast.UpdateVariable(var("a"), SET),
        ast.DeleteVariable(var("a")),
    )
    assert isinstance(of_list, ast.ForEachRow)
    assert [unwind.variable.name for unwind in of_list.feed.unwinds] == ["x", "y"]
    assert isinstance(of_stage, ast.ForEachRow)
    assert of_stage.feed.chain is not None
    assert len(of_stage.feed.chain.stages) == 2
    assert of_stage.feed.match == ast.Match((KNOWS,))


@pytest.mark.parametrize("feed", ["return { 1 as x } then", "{ return { 1 as x } } then", "unwind [1] as $x"])
def test_a_feed_needs_no_match(feed: str) -> None:
    (only,) = statements(f"{feed} insert A {{ a: $x }}")
    assert isinstance(only, ast.ForEachRow)
    assert only.feed.match is None


def test_the_checker_sees_what_a_feed_does_not_take() -> None:
    (only,) = statements("match { $a: A } update A set { a: 1 } where a = 1 delete A where a = 1")
    assert isinstance(only, ast.ForEachRow)
    assert [type(statement) for statement in only.statements] == [ast.Update, ast.Delete]


# ---- files and statements -------------------------------------------------------------------------------


def test_an_empty_file_holds_no_queries() -> None:
    assert parse_queries("") == parse_queries(" // nothing\n") == ast.QueryFile(())


def test_metadata_is_kept() -> None:
    (query,) = parse_queries(
        'query q() @instruction("how") @description("what") { match { $b: Paper } return { $b } }'
    ).queries
    assert (query.description, query.instruction) == ("what", "how")


def test_parameter_types() -> None:
    (query,) = parse_queries(
        "query q($a: String, $b: I32?, $c: [Date]?, $d: Vector(4)) { delete Paper where doi = $a }"
    ).queries
    assert [(p.name, p.type_name.text, p.is_list, p.dimension, p.nullable) for p in query.parameters] == [
        ("a", "String", False, None, False),
        ("b", "I32", False, None, True),
        ("c", "Date", True, None, True),
        ("d", "Vector", False, 4, False),
    ]


STATEMENTS: list[tuple[str, ast.TextStatement]] = [
    ("branch create work", ast.BranchCreate(name("work"), None)),
    ('branch create "a/b c" from Main;', ast.BranchCreate(name("a/b c"), name("Main"))),
    ("branch create from from create", ast.BranchCreate(name("from"), name("create"))),
    ('branch delete "in"', ast.BranchDelete(name("in"))),
    ("branch merge work", ast.BranchMerge(name("work"), None)),
    ("branch merge work into main ;", ast.BranchMerge(name("work"), name("main"))),
    ("branch list // all\n;", ast.BranchList()),
]


@pytest.mark.parametrize(("written", "expected"), STATEMENTS)
def test_a_text_may_be_a_statement(written: str, expected: ast.TextStatement) -> None:
    assert parse_queries(written) == ast.QueryFile((), expected)


def test_a_query_may_be_explained() -> None:
    query = read("$b: Paper", params="$a: String")
    assert parse_queries(f"explain\n{query};") == ast.QueryFile((), ast.Explain(parse_queries(query).queries[0]))


def test_a_place_covers_what_it_was_read_from() -> None:
    source = (
        'query q() { unwind $l as $x match { $b: Paper { doi: "x" } $a (x | y) $b each $e $n { $n.x } '
        "count { $a: A } + 1 > -2 not $a.x is not null } return { count( $b ) as n } "
        "order { $b.x desc nulls first } offset 3 limit $n then return { 1 } }"
    )
    (query,) = parse_queries(source).queries
    assert isinstance(query.body, ast.Read)
    (chain,) = query.body.chains
    first, second = chain.stages
    assert first.match is not None
    assert first.order is not None
    assert first.limit is not None
    binding, walk, test, negated = first.match.clauses
    assert isinstance(walk, ast.Traversal)
    assert walk.each is not None
    assert isinstance(test, ast.Filter)
    assert isinstance(test.condition, ast.Compare)

    def at(node: Any) -> str:
        return source[node.at.start : node.at.end]

    assert at(query) == source
    assert at(first) == source[12 : source.index(" then")]
    assert at(second) == "return { 1 }"
    assert at(first.unwinds[0]) == "unwind $l as $x"
    assert at(binding) == '$b: Paper { doi: "x" }'
    assert at(walk) == "$a (x | y) $b each $e $n { $n.x }"
    assert (at(walk.selector), at(walk.each)) == ("(x | y)", "each $e $n { $n.x }")
    assert at(test) == "count { $a: A } + 1 > -2"
    assert (at(test.condition.left), at(test.condition.right)) == ("count { $a: A } + 1", "-2")
    assert at(negated) == "not $a.x is not null"
    assert at(first.returns.projections[0]) == "count( $b ) as n"
    assert at(first.order.keys[0]) == "$b.x desc nulls first"
    assert (at(first.limit), at(first.limit.value)) == ("limit $n", "$n")


# ---- broken text ----------------------------------------------------------------------------------------

SYNTAX_ERRORS = [
    ("garbage", "Q001", "expected a statement, 'query' or the end of the file", None),
    ("g" * 500, "Q001", "found 'gggg", None),
    ('query q() { delete A where b = "\ud800" }', "Q001", "surrogate", None),
    ("query q() { match { } return { $b } }", "Q001", "found '}'", None),
    (read("$b: Paper { }"), "Q001", "found '}'", "leave them out"),
    (read("$b: paper"), "Q001", "expected '(', '*' or a type name", "capital letter"),
    (read("$b: (Paper)"), "Q001", "expected '|'", None),
    (read("$b.pages > "), "Q001", "expected an expression", None),
    (read("$b.pages = 3 = 4"), "Q001", "comparisons do not chain: '=' can't follow '='", "use parentheses"),
    (read("$b.pages in [3] is null"), "Q001", "comparisons do not chain: 'is' can't follow 'in'", None),
    (read("not { $a: A } = true"), "Q001", "'not { }' is not an operand of '='", None),
    (read("$a.x = -not { $a: A }"), "Q001", "expected an expression, found 'not'", None),
    (read("$a.x = 1 + not $a.y"), "Q001", "expected an expression, found 'not'", None),
    (read("not { $a: A } + 1"), "Q001", "'not { }' is not an operand of '+'", None),
    (read("$a.x = not $a.y"), "Q001", "found 'not'", None),
    (read("$a contains $b.title"), "Q001", "found '.'", "reads as a traversal"),
    (read("$n * 2 > 10"), "Q001", "expected '{' or a variable, found '2'", "in parentheses: ($n * …)"),
    (read("$flag lower($a.x) = 1"), "Q001", "found '('", "in parentheses: ($flag lower …)"),
    (read("$flag ($a.x = 1)"), "Q001", "found '$a'", "put the variable in parentheses"),
    (read("$a (x) $b"), "Q001", "expected '|'", None),
    (read("$a knows{3} $b"), "Q001", "expected ','", "{1,3}, or {3,} without an upper bound"),
    (read("$a knows{1,9223372036854775808} $b"), "Q005", "64-bit", None),
    (read("path $p: $a knows $b"), "Q001", "expected 'shortest', 'all_shortest' or 'trails'", None),
    (read("path $p: cheapest $a knows $b"), "Q001", "found 'cheapest'", "fewest hops"),
    (read("path $p: shortest $a $e:knows $b"), "Q001", "found '$e'", "edges($p)"),
    (read("$a knows $b each $e { $e.x }"), "Q001", "expected a variable", None),
    (read("any($x in $l where $x : $x)"), "Q001", "any takes no where", None),
    (read("any($x.tags)"), "Q001", "expected 'in'", None),
    (read("count(*) { $a: A } > 1"), "Q001", "count { … }", None),
    (read("sum(*) > 1"), "Q001", "expected", None),
    (read("sum { $a: A } > 1"), "Q001", "found '{'", None),
    (read("$b: Paper", "$b as"), "Q001", "expected a name or a string", None),
    (read("$b: Paper", "case when 1 then 2"), "Q001", "'else', 'end' or 'when'", None),
    (read("$b: Paper", "case end"), "Q001", "expected an operator, '(' or 'when'", None),
    (read("$b: Paper", "$b", "limit 3 order { $b.doi }"), "Q001", "found 'order'", "before limit"),
    (read("$b: Paper", "$b", "limit 3 limit 3"), "Q001", "found 'limit'", None),
    (read("$b: Paper", "$b", "order { nearest($b.vec, $q) desc } limit 3"), "Q001", "found 'desc'", "no direction"),
    (read("$b: Paper", "nearest($b.vec, $q, fast: true)"), "Q001", "nearest() has no option 'fast'", None),
    (read("$b: Paper", "nearest($b.vec, $q, exact: 1)"), "Q001", "found '1'", None),
    (read("$b: Paper", "$b", "limit 1 + 1"), "Q001", "found '+'", None),
    (read("$b: Paper", "$b", "order { $b.x nulls }"), "Q001", "expected 'first' or 'last'", None),
    (read("$b: Paper", "rrf(search($b.title, $q), bm25($b.title, $q))"), "Q001", "'bm25' or 'nearest'", None),
    (read("$b: Paper", "$b", "match { $b: Paper } return { $b }"), "Q001", "found 'match'", "joined by then"),
    (write("insert Paper { }"), "Q001", "found '}'", "leave them out"),
    (write("insert Paper { a = 1 }"), "Q001", "expected ':'", "assigned by a colon: a: …"),
    (write("update Paper set { pages: 1 }"), "Q001", "expected 'where'", None),
    (write("update $b set { pages: 1 }"), "Q001", "found '$b'", "needs a match before it"),
    (write("delete $b"), "Q001", "found '$b'", "needs a match before it"),
    (write("delete Paper"), "Q001", "'where'", None),
    (write("delete Paper where pages = 1 return { 1 }"), "Q001", "found '}'", "a query that writes returns nothing"),
    (write("unwind [1] as $x"), "Q001", "found '}'", None),
    ("query q($a: string) { delete Paper where doi = $a }", "Q001", "a type name, found", "capital letter"),
    ("query q($a: [[String]]) { delete Paper where doi = $a }", "Q001", "expected a type name", None),
    (read('$b.title = "\\q"'), "Q005", "unsupported escape sequence", None),
    (read('$b.title = "open'), "Q001", "string is not closed", None),
    (read("$b.title = 1 /* open"), "Q001", "comment is not closed", None),
    (read("$b.pages = " + "9" * 5000), "Q005", "64-bit", None),
    (read("$b.pages = 'x'"), "Q001", "found", "double quotes"),
    ("# note\n" + read("$b: Paper"), "Q001", "found '#'", "//"),
    ('query q() @description("a") @description("b") { delete A where b = 1 }', "Q005", "duplicate @description", None),
    ('query q() @owner("a") { delete Paper where doi = "x" }', "Q001", "found '@owner'", None),
    (read("$b: Paper").replace("return", "retrun"), "Q001", "found 'retrun'", "did you mean 'return'"),
    (read("$B: Paper"), "Q001", "found '$'", None),
    (read("$b.@name = 1"), "Q001", "found '@name'", None),
    # bodies and statements
    ("query q { return { 1 } }", "Q002", "found '{'", "query q() {"),
    ("query q() { }", "Q005", "found '}'", "a query reads or writes"),
    ("query q() { branch list }", "Q005", "found 'branch'", "a statement is a text of its own"),
    ("query q() { explain query r() { return { 1 } } }", "Q005", "found 'explain'", "a text of its own"),
    ("query q() { set timeout = 3 }", "Q005", "found 'set'", "a text of its own"),
    ("set timeout = 3", "Q003", "found 'set'", "`ReadOptions`"),
    ("reset all", "Q003", "found 'reset'", "omnigraph serve"),
    ("show limits", "Q003", "found 'show'", "changes no settings"),
    ("branch list " + read("$b: Paper"), "Q004", "found 'query'", "a text of its own"),
    (read("$b: Paper") + " branch list", "Q004", "found 'branch'", "a file without statements"),
    (read("$b: Paper") + "\nexplain " + read("$b: Paper"), "Q004", "found 'explain'", "a text of its own"),
    ("branch create a branch create b", "Q004", "found 'branch'", "a text of its own"),
    ("branch merge a query q() { return { 1 } }", "Q004", "found 'query'", "a text of its own"),
    ("branch list; branch list;", "Q004", "found 'branch'", "a text of its own"),
    ("branch list;;", "Q004", "found ';'", "a text of its own"),
    ("explain branch list", "Q001", "expected 'query'", None),
    ("branch create", "Q001", "a name or a string", None),
    ("branch create in", "Q001", "found 'in'", "written \"in\""),
    ("branch drop work", "Q001", "'create', 'delete', 'list' or 'merge'", None),
]  # fmt: skip


@pytest.mark.parametrize(("source", "code", "message", "suggestion"), SYNTAX_ERRORS)
def test_a_syntax_error_says(source: str, code: str, message: str, suggestion: str | None) -> None:
    (finding,) = error_of(source).diagnostics
    assert finding.code == code
    assert message in finding.message
    assert finding.span is not None
    if suggestion is not None:
        assert suggestion in (finding.suggestion or "")


def test_an_error_points_at_the_offending_line() -> None:
    error = error_of("query q() {\n  match { $b: Paper }\n  retrun { $b }\n}")
    assert (error.span and (error.span.line, error.span.column)) == (3, 3)
    assert "  retrun { $b }\n" in str(error)
    assert "\n    ^^^^^^" in str(error)


def test_an_error_lists_what_could_go_on() -> None:
    """Also where the parser has finished what was before."""
    (finding,) = error_of(read("$b.pages > 3,")).diagnostics
    assert finding.message == "expected a clause, an operator or '}', found ','"


def test_every_broken_query_of_a_file_is_reported_in_source_order() -> None:
    good = read("$b: Paper")
    broken = [
        "query a( { match { $b: Paper } return { $b } }",
        "query b() { match { $b: Paper { } } return { $b } }",
        "query c() { match { $b: Paper return { $b } }",
        "query d() { insert Paper { doi: } }",
        "query e { return { 1 } }",
    ]
    error = error_of("\n".join([broken[0], good, broken[1], broken[2], good, broken[3], broken[4]]))
    assert [(d.code, d.span and d.span.line) for d in error.diagnostics] == [
        ("Q001", 1), ("Q001", 3), ("Q001", 4), ("Q001", 6), ("Q002", 7),
    ]  # fmt: skip


def test_a_file_of_garbage_has_a_bounded_number_of_findings() -> None:
    error = error_of("query a( {\n" * 1000)
    assert len(error.diagnostics) == MOST_DIAGNOSTICS
    assert len(error_of("g" * 5000).diagnostics[0].message) < 200


def test_a_missing_brace_does_not_hide_the_next_query() -> None:
    error = error_of("query a() { match { $b: Paper } return { $b }\n\nquery b() { match { } return { 1 } }")
    assert [d.span and d.span.line for d in error.diagnostics] == [3, 3]
    assert "found 'query'" in error.diagnostics[0].message


def test_a_query_may_mention_query_names_without_being_cut() -> None:
    assert len(stage("match { $b: Paper } return { query\nsearch($b.title, 1) }").returns.projections) == 2


# ---- bounds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("not { ", " }"),
        ("(", ")"),
        ("exists { ", " }"),
        ("optional { ", " }"),
        ("lower(", ")"),
        ("count { 1 = ", " }"),
        ("case when true then 1 else ", " end"),
        ("case ", " when 1 then 1 end"),
    ],
)
def test_nesting_is_bounded(opening: str, closing: str) -> None:
    def nested(depth: int) -> str:
        return read(opening * depth + "$b.x" + closing * depth)

    (finding,) = error_of(nested(MAX_NESTING)).diagnostics
    what = "'case' is" if "case" in opening else "brackets are"
    assert (finding.code, finding.message) == ("Q005", f"{what} nested deeper than {MAX_NESTING} levels")
    assert "nested deeper" in error_of(nested(20_000)).diagnostics[0].message
    assert parse_queries(nested(MAX_NESTING - 2)).queries


@pytest.mark.parametrize(
    ("first", "more", "last"),
    [
        ("", "not ", "$b.x"),
        ("$b.x = ", "-", "1"),
        ("$b.x = 1", " + 1", ""),
        ("$b.x = 1", " * 2", ""),
        ("$b.x = 1", " - 1 / 2 % 3", ""),
    ],
)
def test_operators_within_operators_are_bounded(first: str, more: str, last: str) -> None:
    def nested(depth: int) -> str:
        return read(first + more * depth + last)

    (finding,) = error_of(nested(MAX_NESTING + 1)).diagnostics
    assert finding.code == "Q005"
    assert f"operators are nested deeper than {MAX_NESTING} levels" in finding.message
    assert "nested deeper" in error_of(nested(20_000)).diagnostics[0].message
    assert parse_queries(nested(MAX_NESTING // 3)).queries


def test_operators_count_through_brackets() -> None:
    deep = read("$b.x = " + "(" * 33 + "1" + " + 1 - 1)" * 33)
    assert "operators are nested deeper" in error_of(deep).diagnostics[0].message


def test_what_is_beside_each_other_is_not_nested() -> None:
    parts = 500
    assert isinstance(expression(" and ".join(["a"] * parts)), ast.And)
    assert isinstance(expression(" or ".join(["a and not b + 1 = -c"] * parts)), ast.Or)
    assert isinstance(expression("[" + ", ".join(["1 + 1"] * parts) + "]"), ast.ListLiteral)
    assert len(clauses("$a.x = 1 + 1  " * parts)) == parts
    read = body(" then ".join(["return { 1 + 1 as a }"] * parts))
    assert isinstance(read, ast.Read)
    assert len(read.chains[0].stages) == parts
    read = body(" union ".join(["return { 1 + 1 as a }"] * parts))
    assert isinstance(read, ast.Read)
    assert len(read.chains) == parts
