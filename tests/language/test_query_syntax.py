"""What the grammar of `.gq` accepts, how it reads ambiguous clauses, and what it says about broken text."""

from __future__ import annotations

import pytest

from omnigraph.errors import CompileError
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.parser import MAX_NESTING, parse_queries
from omnigraph.language.query.syntax import Comparison
from omnigraph.language.source import MOST_DIAGNOSTICS, Name

from .query_archive import read, write


def clause(text: str) -> ast.Clause:
    (query,) = parse_queries(read(text)).queries
    assert isinstance(query.body, ast.Read)
    (only,) = query.body.match.clauses
    return only


def expression(text: str) -> ast.Expression:
    (query,) = parse_queries(read("$b: Paper", text)).queries
    assert isinstance(query.body, ast.Read)
    (only,) = query.body.returns.projections
    return only.expression


def error_of(text: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        parse_queries(text)
    return caught.value


def var(name: str) -> ast.Variable:
    return ast.Variable(name)


def name(text: str) -> ast.Name:
    return Name(text)


def access(variable: str, prop: str) -> ast.PropertyAccess:
    return ast.PropertyAccess(var(variable), name(prop))


def text(value: str) -> ast.StringLiteral:
    return ast.StringLiteral(value)


def number(value: int) -> ast.IntegerLiteral:
    return ast.IntegerLiteral(value)


def traversal(
    source: str,
    edge: str,
    destination: str,
    *,
    undirected: bool = False,
    edge_variable: str | None = None,
    hops: ast.Hops | None = None,
) -> ast.Traversal:
    named = None if edge_variable is None else var(edge_variable)
    return ast.Traversal(var(source), name(edge), undirected, named, hops, var(destination))


CLAUSES = [
    ("$b: Paper", ast.Binding(var("b"), name("Paper"), ())),
    (
        '$b: Paper { doi: "x", pages: $n, }',
        ast.Binding(var("b"), name("Paper"), (ast.Pin(name("doi"), text("x")), ast.Pin(name("pages"), var("n")))),
    ),
    ("$a wrote $b", traversal("a", "wrote", "b")),
    ("$_ wrote $_", traversal("_", "wrote", "_")),
    ("$a <knows> $b", traversal("a", "knows", "b", undirected=True)),
    ("$a $e:wrote $b", traversal("a", "wrote", "b", edge_variable="e")),
    ("$a $e : < knows > $b", traversal("a", "knows", "b", undirected=True, edge_variable="e")),
    ("$a knows{1,3} $b", traversal("a", "knows", "b", hops=ast.Hops(1, 3))),
    ("$a <knows>{2,} $b", traversal("a", "knows", "b", undirected=True, hops=ast.Hops(2, None))),
    ("$b.pages >= 3", ast.Filter(access("b", "pages"), Comparison.GREATER_OR_EQUAL, number(3))),
    (
        '"abc" contains $b.title',
        ast.Filter(text("abc"), Comparison.CONTAINS, access("b", "title")),
    ),
    (
        'search($b.title, "x") = false',
        ast.Filter(
            ast.TextCall(ast.TextFunction.SEARCH, access("b", "title"), text("x"), None),
            Comparison.EQUAL,
            ast.BooleanLiteral(False),
        ),
    ),
    (
        "fuzzy($b.title, $q, 1)",
        ast.TextClause(ast.TextCall(ast.TextFunction.FUZZY, access("b", "title"), var("q"), number(1))),
    ),
    ("not { $a wrote $_ }", ast.Negation((traversal("a", "wrote", "_"),))),
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
    # Anything but a variable on the right leaves only the string predicate.
    ('$a contains "x"', ast.Filter),
    ("$a starts_with now()", ast.Filter),
    ("$a contains name", ast.Filter),
    # `<` is a comparison unless the angle closes.
    ("$a < b", ast.Filter),
    ("$a < $b", ast.Filter),
    ("$a < 3", ast.Filter),
    ("$a <b> $c", ast.Traversal),
    ("not = 3", ast.Filter),
]


@pytest.mark.parametrize(("written", "kind"), ORDERED_CHOICE)
def test_ordered_choice_between_traversal_and_filter(written: str, kind: type[ast.Clause]) -> None:
    assert type(clause(written)) is kind


def test_a_filter_that_compares_with_a_bare_name_ends_before_the_next_clause() -> None:
    (query,) = parse_queries(read("$a < b  $b: Paper")).queries
    assert isinstance(query.body, ast.Read)
    assert [type(c) for c in query.body.match.clauses] == [ast.Filter, ast.Binding]


KEYWORDS = [
    "query", "match", "return", "order", "limit", "insert", "update", "delete", "set", "where", "not", "as", "asc",
    "desc", "now", "count", "search", "date",
]  # fmt: skip


@pytest.mark.parametrize("word", KEYWORDS)
def test_a_keyword_names_whatever_a_name_may_name(word: str) -> None:
    program = (
        f"query {word}(${word}: String) {{ match {{ ${word}: Paper {{ {word}: ${word} }} ${word}.{word} = 1 }} "
        f"return {{ ${word}.{word} as {word}, 1 }} order {{ ${word}.{word} }} }}"
    )
    (query,) = parse_queries(program).queries
    assert query.name.text == word
    assert isinstance(query.body, ast.Read)
    assert query.body.returns.projections[0].alias == name(word)


@pytest.mark.parametrize("word", [*(w for w in KEYWORDS if w != "not"), "true", "contains", "starts_with"])
def test_an_edge_may_have_the_name_of_a_keyword(word: str) -> None:
    assert clause(f"$a {word} $b") == traversal("a", word, "b")
    assert clause(f"$a <{word}> $b") == traversal("a", word, "b", undirected=True)
    assert clause(f"$a $e:<{word}> $b") == traversal("a", word, "b", undirected=True, edge_variable="e")


def test_a_word_is_a_keyword_only_where_the_grammar_can_use_it() -> None:
    """A string in an assignment and one in a filter share a parser state; only the latter precedes `not`."""
    (query,) = parse_queries(write('insert A { a: "x" not: 1 as: 2 contains: 3 }')).queries
    assert isinstance(query.body, ast.Writes)
    (insert,) = query.body.statements
    assert isinstance(insert, ast.Insert)
    assert [assignment.property.text for assignment in insert.assignments] == ["a", "not", "as", "contains"]


def test_programs_can_be_kept_in_sets() -> None:
    assert len({parse_queries(write("delete A where b = 1")), parse_queries(write("delete  A where b = 1"))}) == 1


EXPRESSIONS = [
    ("now()", ast.Now()),
    ("now", ast.Alias("now")),
    ("count", ast.Alias("count")),
    ("datetime", ast.Alias("datetime")),
    ("true", ast.BooleanLiteral(True)),
    ("true_north", ast.Alias("true_north")),
    ("12", number(12)),
    ("007", number(7)),
    ("9223372036854775807", number(2**63 - 1)),
    ("0.50", ast.FloatLiteral("0.50")),
    (r'"a\"b\\\n\r\t"', text('a"b\\\n\r\t')),
    ('"raw\nnewline // not a comment"', text("raw\nnewline // not a comment")),
    ('date("2024-05-01")', ast.DateLiteral("2024-05-01")),
    ('datetime("x")', ast.DateTimeLiteral("x")),
    ("[]", ast.ListLiteral(())),
    ("[1, [2]]", ast.ListLiteral((number(1), ast.ListLiteral((number(2),))))),
    ("count($b)", ast.AggregateCall(ast.AggregateFunction.COUNT, var("b"))),
    ("nearest($b.vec, $q)", ast.NearestCall(access("b", "vec"), var("q"))),
    (
        "rrf(nearest($b.vec, $q), bm25($b.title, $t), 30)",
        ast.RrfCall(
            ast.NearestCall(access("b", "vec"), var("q")), ast.Bm25Call(access("b", "title"), var("t")), number(30)
        ),
    ),
]


@pytest.mark.parametrize(("written", "expected"), EXPRESSIONS)
def test_an_expression_reads_as(written: str, expected: ast.Expression) -> None:
    assert expression(written) == expected


def test_projections_and_assignments_need_no_commas() -> None:
    loose = parse_queries("query q() { match { $b: Paper } return { $b.doi as d $b.title 3 } }")
    assert loose == parse_queries("query q() { match { $b: Paper } return { $b.doi as d, $b.title, 3, } }")
    assert parse_queries(write('insert Paper { doi: "a" title: "b" }')) == parse_queries(
        write('insert Paper { doi: "a", title: "b", }')
    )


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


def test_a_place_covers_what_it_was_read_from() -> None:
    source = 'query q() { match { $b: Paper { doi: "x" } } return { count($b) } }'
    (query,) = parse_queries(source).queries
    assert isinstance(query.body, ast.Read)
    (binding,) = query.body.match.clauses
    (projection,) = query.body.returns.projections
    assert source[query.at.start : query.at.end] == source
    assert source[binding.at.start : binding.at.end] == '$b: Paper { doi: "x" }'
    assert source[projection.at.start : projection.at.end] == "count($b)"


# ---- broken text ----------------------------------------------------------------------------------------

SYNTAX_ERRORS = [
    ("garbage", "expected 'query'", None),
    ("g" * 500, "found 'gggg", None),
    ('query q() { delete A where b = "\ud800" }', "surrogate", None),
    ("query q() { }", "found '}'", None),
    ("query q() { match { } return { $b } }", "found '}'", None),
    (read("$b: Paper { }"), "found '}'", "leave them out"),
    (read("$b: paper"), "expected a type name", "capital letter"),
    (read("$b: Paper { doi: null }"), "found 'null'", "nullable parameter"),
    (read("$b.pages > -3"), "found '-'", "no negative literals"),
    (read("$b.pages > 3 and $b.pages < 5"), "found '$b'", "must all hold"),
    (read("$a contains $b.title"), "found '.'", "reads as a traversal"),
    (read("$a not $b"), "'not'", None),
    (read("$a not_linked $b"), "'not_linked'", None),
    (read("$a $e:not_linked $b"), "'not_linked'", None),
    (read("$b: Paper", "$b as"), "expected a name", None),
    (read("$b: Paper", "$b", "limit 3 order { $b.doi }"), "found 'order'", "before limit"),
    (read("$b: Paper", "$b", "order { nearest($b.vec, $q) desc } limit 3"), "found 'desc'", "no direction"),
    (read("$b: Paper", "$b", "limit $n"), "whole number", None),
    (read("$b: Paper", "rrf(search($b.title, $q), bm25($b.title, $q))"), "'bm25' or 'nearest'", None),
    (write("insert Paper { }"), "found '}'", "leave them out"),
    (write("update Paper set { pages: 1 }"), "expected", None),
    (write("delete Paper where title contains 3"), "comparison", "one comparison"),
    (write("delete Paper"), "'where'", None),
    (write("delete Paper where pages = 1 return { 1 }"), "found 'return'", None),
    ("query q($a: string) { delete Paper where doi = $a }", "a type name, found", "capital letter"),
    ("query q($a: [[String]]) { delete Paper where doi = $a }", "expected a type name", None),
    (read('$b.title = "\\q"'), "unsupported escape sequence", None),
    (read('$b.title = "open'), "string is not closed", None),
    (read("$b.title = 1 /* open"), "comment is not closed", None),
    (read("$b.pages = 9223372036854775808"), "64-bit", None),
    (read("$b.pages = " + "9" * 5000), "64-bit", None),
    (read("$b.pages = 'x'"), "found", "double quotes"),
    ("# note\n" + read("$b: Paper"), "found '#'", "//"),
    ('query q() @description("a") @description("b") { delete A where b = "x" }', "duplicate @description", None),
    ('query q() @owner("a") { delete Paper where doi = "x" }', "found '@owner'", None),
    (read("$b: Paper").replace("return", "retrun"), "found 'retrun'", "did you mean 'return'"),
    (read("$B: Paper"), "found '$'", None),
]  # fmt: skip


@pytest.mark.parametrize(("source", "message", "suggestion"), SYNTAX_ERRORS)
def test_a_syntax_error_says(source: str, message: str, suggestion: str | None) -> None:
    (finding,) = error_of(source).diagnostics
    assert finding.code == "parse error"
    assert message in finding.message
    assert finding.span is not None
    if suggestion is not None:
        assert suggestion in (finding.suggestion or "")


def test_an_error_points_at_the_offending_line() -> None:
    error = error_of("query q() {\n  match { $b: Paper }\n  retrun { $b }\n}")
    assert (error.span and (error.span.line, error.span.column)) == (3, 3)
    assert "  retrun { $b }\n" in str(error)
    assert "\n    ^^^^^^" in str(error)


def test_every_broken_query_of_a_file_is_reported_in_source_order() -> None:
    good = read("$b: Paper")
    broken = [
        "query a( { match { $b: Paper } return { $b } }",
        "query b() { match { $b: Paper { } } return { $b } }",
        "query c() { match { $b: Paper return { $b } }",
        "query d() { insert Paper { doi: } }",
    ]
    error = error_of("\n".join([broken[0], good, broken[1], broken[2], good, broken[3]]))
    assert [d.span and d.span.line for d in error.diagnostics] == [1, 3, 4, 6]


def test_a_file_of_garbage_has_a_bounded_number_of_findings() -> None:
    error = error_of("query a( {\n" * 1000)
    assert len(error.diagnostics) == MOST_DIAGNOSTICS
    assert len(error_of("g" * 5000).diagnostics[0].message) < 200


def test_a_missing_brace_does_not_hide_the_next_query() -> None:
    error = error_of("query a() { match { $b: Paper } return { $b }\n\nquery b() { match { } return { 1 } }")
    assert [d.span and d.span.line for d in error.diagnostics] == [3, 3]
    assert "found 'query'" in error.diagnostics[0].message


def test_a_query_may_mention_query_names_without_being_cut() -> None:
    source = "query q() { match { $b: Paper } return { query\nsearch($b.title, 1) } }"
    (query,) = parse_queries(source).queries
    assert isinstance(query.body, ast.Read)
    assert len(query.body.returns.projections) == 2


def test_nesting_is_bounded() -> None:
    deep = "not { " * MAX_NESTING + "$b: Paper" + " }" * MAX_NESTING
    assert "nested deeper" in error_of(read(deep)).diagnostics[0].message
    shallow = "not { " * (MAX_NESTING - 2) + "$b: Paper" + " }" * (MAX_NESTING - 2)
    assert parse_queries(read(shallow)).queries
