"""The `.pg` grammar: what parses, to which tree, and what each syntax error says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.errors import CompileError
from omnigraph.language.schema import syntax as ast
from omnigraph.language.schema.compile import compile_schema
from omnigraph.language.schema.parser import parse_schema
from omnigraph.language.source import Name

from .growth import assert_about_linear


def only_node(text: str) -> ast.Node:
    (declaration,) = parse_schema(text).declarations
    assert isinstance(declaration, ast.Node)
    return declaration


def only_edge(text: str) -> ast.Edge:
    (declaration,) = parse_schema(text).declarations
    assert isinstance(declaration, ast.Edge)
    return declaration


def errors_of(text: str) -> list[str]:
    with pytest.raises(CompileError) as caught:
        parse_schema(text)
    return [d.message for d in caught.value.diagnostics]


@pytest.mark.parametrize("text", ["", "  \n\t\r\n", "// nothing", "/* nothing */", "/**/ // a\n/***/"])
def test_a_file_without_declarations_is_valid(text: str) -> None:
    assert parse_schema(text).declarations == ()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("String", ast.Type("String")),
        ("I32?", ast.Type("I32", nullable=True)),
        ("[Date]", ast.Type("list", item=ast.Type("Date"))),
        ("[ U64 ]?", ast.Type("list", item=ast.Type("U64"), nullable=True)),
        ("Vector(4)?", ast.Type("Vector", (Name("4"),), nullable=True)),
        ("enum(b, a-1, 2_x)", ast.Type("enum", (Name("b"), Name("a-1"), Name("2_x")))),
    ],
)
def test_types(written: str, expected: ast.Type) -> None:
    assert only_node(f"node A {{ p: {written} }}").members == (ast.Property(Name("p"), expected),)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("@x", ast.Annotation("x")),
        ("@x(name)", ast.Annotation("x", ast.Value("name", "name"))),
        ('@x("a \\"b\\" \\\\ \\n\\r\\t")', ast.Annotation("x", ast.Value("string", 'a "b" \\ \n\r\t'))),
        ("@x(007)", ast.Annotation("x", ast.Value("number", "007"))),
        ("@x(1.50)", ast.Annotation("x", ast.Value("number", "1.50"))),
        ("@x(true)", ast.Annotation("x", ast.Value("bool", "true"))),
        ("@x(truely)", ast.Annotation("x", ast.Value("name", "truely"))),
        (
            '@x("s", a=1, b="t", c=false)',
            ast.Annotation(
                "x",
                ast.Value("string", "s"),
                (("a", ast.Value("number", "1")), ("b", ast.Value("string", "t")), ("c", ast.Value("bool", "false"))),
            ),
        ),
    ],
)
def test_annotations(written: str, expected: ast.Annotation) -> None:
    assert only_node(f"node A {written} {{}}").annotations == (expected,)
    (prop,) = only_node(f"node A {{ p: I32 {written} }}").members
    assert isinstance(prop, ast.Property)
    assert prop.annotations == (expected,)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("@key(a)", ast.ColumnsRule("key", (Name("a"),))),
        ("@unique(a, b)", ast.ColumnsRule("unique", (Name("a"), Name("b")))),
        ("@index (a)", ast.ColumnsRule("index", (Name("a"),))),
        ("@range(a, 1..5)", ast.RangeRule(Name("a"), "1", "5")),
        ("@range(a, -1.5..)", ast.RangeRule(Name("a"), "-1.5", None)),
        ("@range(a, ..-2)", ast.RangeRule(Name("a"), None, "-2")),
        ("@range(a, 1.0..2.5)", ast.RangeRule(Name("a"), "1.0", "2.5")),
        ('@check(a, "^x$")', ast.CheckRule(Name("a"), "^x$")),
    ],
)
def test_body_rules(written: str, expected: object) -> None:
    assert only_node(f"node A {{ {written} }}").members == (expected,)


def test_a_rule_name_before_a_parenthesis_is_a_body_rule_even_beside_a_property() -> None:
    prop, rule = only_node("node A { isbn: String @unique(isbn) }").members
    assert prop == ast.Property(Name("isbn"), ast.Type("String"))
    assert rule == ast.ColumnsRule("unique", (Name("isbn"),))


def test_keywords_are_contextual() -> None:
    properties = "node: I32 @y implements: I32 edge: I32 enum: enum(enum, true) true: Bool interface: I32"
    members = only_node(f"node A @x implements I {{ {properties} }}").members
    assert [m.name.text for m in members if isinstance(m, ast.Property)] == [
        "node",
        "implements",
        "edge",
        "enum",
        "true",
        "interface",
    ]


def test_an_annotation_called_like_a_keyword_is_no_declaration() -> None:
    members = only_node("node A { x: I32 @node y: I32 @edge\n_node: I32 }").members
    assert [m.name.text for m in members if isinstance(m, ast.Property)] == ["x", "y", "_node"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("edge E: A -> B", ast.Edge(Name("E"), Name("A"), Name("B"))),
        ("edge E: A -> B {}", ast.Edge(Name("E"), Name("A"), Name("B"), members=())),
        ("edge E: A->B @card(1..)", ast.Edge(Name("E"), Name("A"), Name("B"), ast.Cardinality(1, None))),
        (
            "edge E:A->B@card(0..5)@x{p:I32}",
            ast.Edge(
                Name("E"),
                Name("A"),
                Name("B"),
                ast.Cardinality(0, 5),
                (ast.Annotation("x"),),
                (ast.Property(Name("p"), ast.Type("I32")),),
            ),
        ),
    ],
)
def test_edges(text: str, expected: ast.Edge) -> None:
    assert only_edge(text) == expected


def test_interfaces_and_implements() -> None:
    schema = parse_schema("interface I { p: I32 } node A @x implements I, J {}")
    assert schema.declarations == (
        ast.Interface(Name("I"), (ast.Property(Name("p"), ast.Type("I32")),)),
        ast.Node(Name("A"), (ast.Annotation("x"),), (Name("I"), Name("J"))),
    )


def test_comments_stand_anywhere_between_tokens_and_not_in_strings() -> None:
    text = 'node /* a */ A // b\n{ p /* c */ : String @d("// no /* comment */") /* x * / ** */ }'
    assert only_node(text) == only_node('node A { p: String @d("// no /* comment */") }')


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("nod A {}", "expected a declaration"),
        ('"stray" node A {}', "expected a declaration"),
        ("node a {}", "expected a type name"),
        ("node A { x String }", "expected ':'"),
        ("node A { x: string }", "expected a type"),
        ("node A { x: I32", "never closed"),
        ("node A {} }", "expected the end of the declaration"),
        ("node A { # no\n }", "unexpected '#'"),
        ("node A impl B {}", "expected 'implements'"),
        ("node A implements B @x {}", "unexpected '@x'"),
        ("interface I @x {}", "unexpected '@x'"),
        ("interface I { @key(a) }", "unexpected '@key'"),
        ('node A { p: String @unique("x") }', "expected property name in constraint"),
        ("node A { @key() }", "expected property name in constraint"),
        ("node A { @key(a,) }", "expected property name in constraint"),
        ("node A { @range(a) }", "@range takes a property and bounds"),
        ("node A { @range(a, 5) }", "@range takes a property and bounds"),
        ('node A { @range(a, "x") }', "@range takes a property and bounds"),
        ("node A { @range(a, ..) }", "@range takes a property and bounds"),
        ("node A { @check(a) }", "@check takes a property and a regular expression"),
        ("node A { @check(a, 1..2) }", "@check takes a property and a regular expression"),
        ("edge E: A -> B @card(5)", "@card takes bounds"),
        ("edge E: A -> B @card(99999999999999999999..)", "too large"),
        ("edge E: A -> B @x @card(0..5)", "@card must be the first thing after the target type"),
        ("node A { p: I32 @card(0..) }", "@card must be the first thing after the target type"),
        ("node A @range(a, 1..2) {}", "@range with arguments is a body rule"),
        ("node A @key(a, b) {}", "@key with arguments is a body rule"),
        ("edge E A -> B", "expected ':'"),
        ("edge E: A B", "expected '->'"),
        ("node A { p: enum() }", "expected an enum value"),
        ('node A { p: enum("x") }', "expected an enum value"),
        ('node A @d("x) {}', "the string is never closed"),
        ("node A {} /* x", "the comment is never closed"),
        ("/* x", "the comment is never closed"),
        (r'node A @d("\q") {}', "unsupported escape sequence '\\q'"),
        (r'node A { @check(a, "\d") }', "unsupported escape sequence '\\d'"),
        ("node A @d(-1) {}", "unexpected '-'"),
        ('node A @d("\ud800") {}', "not valid Unicode"),
        ("node A @d(1, 2) {}", "expected an argument name"),
    ],
)
def test_syntax_errors_say_what_is_expected(text: str, fragment: str) -> None:
    (message,) = errors_of(text)
    assert fragment in message


def test_every_broken_declaration_is_reported_and_positions_are_exact() -> None:
    text = 'node A { x: }\n\nnode B { ok: I32 }\n\tedge E: B -> B @card(1)\nnode C { "\u00e9" }'
    with pytest.raises(CompileError) as caught:
        parse_schema(text, "library.pg")
    found = caught.value.diagnostics
    assert [(d.span.line, d.span.column) for d in found if d.span] == [(1, 13), (4, 17), (5, 10)]
    assert found[1].span is not None
    assert text.encode()[found[1].span.start : found[1].span.end].startswith(b"@card(1")
    assert found[1].source_line == "\tedge E: B -> B @card(1)"
    assert "library.pg:4:17: parse error:" in str(caught.value)


def test_byte_spans_count_bytes_and_columns_count_characters() -> None:
    text = 'node A @d("\u00e9\u00e9") { x: }'
    with pytest.raises(CompileError) as caught:
        parse_schema(text)
    span = caught.value.span
    assert span is not None
    assert text.encode()[span.start : span.end] == b"}"
    assert text[span.column - 1] == "}"


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("nodes A {}", "did you mean 'node'?"),
        ("node book {}", "did you mean 'Book'?"),
        ("node A { p: string }", "did you mean 'String'?"),
        ("node A implement B {}", "did you mean 'implements'?"),
    ],
)
def test_near_names_are_suggested(text: str, suggestion: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse_schema(text)
    assert caught.value.diagnostics[0].suggestion == suggestion


@pytest.mark.parametrize(
    ("size", "hostile"),
    [
        (2_000, lambda n: 'node A { x: String @d("' + '\\"' * n),
        (2_000, lambda n: "/*" * n),
        (2_000, lambda n: "node A {} " + "/*" * n),
        (2_000, lambda n: "node A { x: " + "[" * n),
        (500, lambda n: "node A { x: I32 " + "@a" * n + " }"),
        (200, lambda n: "node A {\n" * n),
        (200, lambda n: "node A { x: I32 } " * n),
        (500, lambda n: "edge " * n),
        (2_000, lambda n: "@" * n),
        (2_000, lambda n: "node A { " + "@range(" * n),
        (2_000, lambda n: "node A { @range(" + " " * n + "x" * n),
        (200, lambda n: "node A { x: }\n" * n),
    ],
)
def test_no_input_is_slower_than_about_linear(size: int, hostile: Callable[[int], str]) -> None:
    parse_schema("node A {}")
    assert_about_linear(parse_schema, hostile, size)


def test_a_deep_tree_is_refused_before_anything_recurses() -> None:
    (message,) = errors_of("node A { x: " + "[" * 5_000 + "I32" + "]" * 5_000 + " }")
    assert "a list holds scalars only" in message


def test_garbage_ends_with_a_readable_number_of_findings() -> None:
    text = "".join(f"node N{i} {{ x: }}\n" for i in range(1_000))
    with pytest.raises(CompileError) as caught:
        parse_schema(text)
    assert len(caught.value.diagnostics) == 200
    assert caught.value.span is not None
    assert caught.value.span.line == 1


def test_a_line_that_fills_screens_is_not_repeated_in_the_message() -> None:
    with pytest.raises(CompileError) as caught:
        parse_schema("node A { x: } " + "/* long */" * 1_000)
    assert len(str(caught.value)) < 500


def test_many_unknown_names_among_many_known_ones_stay_cheap() -> None:
    def schema(types: int) -> str:
        nodes = "".join(f"node Type{i:05} {{}}\n" for i in range(types))
        return nodes + "".join(f"edge Edge{i:05}: Type{i:05} -> Typo{i:05}\n" for i in range(types))

    assert_about_linear(compile_schema, schema, 300)
