"""The highlighting of the editors: every capture of a sample, and what the editors need to know of the language."""

from __future__ import annotations

import hashlib
import re

import pytest
from tree_sitter import MIN_COMPATIBLE_LANGUAGE_VERSION, QueryCursor

from omnigraph.language.types import SCALAR_NAMES

from .grammars import EDITORS, LANGUAGES, folder, language, parser, query

SCHEMA = """
// a library
node Book @label("B") implements Titled {
    isbn: String @key @check(isbn, "^[0-9]+$")
    status: enum(kept, lent)?
    pages: I32
    @range(pages, 1..5000)
}
edge WroteBy: Book -> Author @card(0..5) { @key(@src, @dst) }
"""
SCHEMA_CAPTURES = [
    ("// a library", "comment"),
    ("node", "keyword"),
    ("Book", "type.definition"),
    ("@label", "attribute"),
    ('"B"', "string"),
    ("implements", "keyword"),
    ("Titled", "type"),
    ("isbn", "property"),
    ("String", "type.builtin"),
    ("@key", "attribute"),
    ("@check", "attribute"),
    ("isbn", "property"),
    ('"^[0-9]+$"', "string.regexp"),
    ("status", "property"),
    ("enum", "type.builtin"),
    ("kept", "constant"),
    ("lent", "constant"),
    ("?", "operator"),
    ("pages", "property"),
    ("I32", "type.builtin"),
    ("@range", "attribute"),
    ("pages", "property"),
    ("1", "number"),
    ("..", "operator"),
    ("5000", "number"),
    ("edge", "keyword"),
    ("WroteBy", "type.definition"),
    ("Book", "type"),
    ("->", "operator"),
    ("Author", "type"),
    ("@card", "attribute"),
    ("0", "number"),
    ("..", "operator"),
    ("5", "number"),
    ("@key", "attribute"),
    ("@src", "variable.builtin"),
    ("@dst", "variable.builtin"),
]

QUERY = r"""
query busy($least: I64) @description("say \"hi\"") {
    match { $r: Reader { status: "in" }  $r $l:borrowed $b  $r "in" $c  count { $b a $_ } >= 1.5 }
    return { $r.@id as key, lower($b.title), case when true then null end, sum(distinct optional) }
    order { key desc }
}
"""
QUERY_CAPTURES = [
    ("query", "keyword"),
    ("busy", "function"),
    ("$least", "variable.parameter"),
    ("I64", "type.builtin"),
    ("@description", "attribute"),
    (r'"say \"hi\""', "string"),
    (r"\"", "string.escape"),
    (r"\"", "string.escape"),
    ("match", "keyword"),
    ("$r", "variable"),
    ("Reader", "type"),
    ("status", "property"),
    ('"in"', "string"),
    ("$r", "variable"),
    ("$l", "variable"),
    ("borrowed", "function.method"),
    ("$b", "variable"),
    ("$r", "variable"),
    ('"in"', "function.method"),
    ("$c", "variable"),
    ("count", "function.builtin"),
    ("$b", "variable"),
    ("a", "function.method"),
    ("$_", "variable"),
    (">=", "operator"),
    ("1.5", "number.float"),
    ("return", "keyword"),
    ("$r", "variable"),
    ("@id", "variable.builtin"),
    ("as", "keyword"),
    ("key", "variable"),
    ("lower", "function.call"),
    ("$b", "variable"),
    ("title", "property"),
    ("case", "keyword.conditional"),
    ("when", "keyword.conditional"),
    ("true", "boolean"),
    ("then", "keyword.conditional"),
    ("null", "constant.builtin"),
    ("end", "keyword.conditional"),
    ("sum", "function.builtin"),
    ("distinct", "keyword"),
    ("optional", "variable"),
    ("order", "keyword"),
    ("key", "variable"),
    ("desc", "keyword"),
]


def captures(name: str, file: str, text: str) -> list[tuple[str, str]]:
    """Each captured part of a text with its last capture, as editors show it, but for punctuation."""
    last: dict[tuple[int, int], str] = {}
    matches = QueryCursor(query(name, file)).matches(parser(name).parse(text.encode()).root_node)
    for _, named in sorted(matches, key=lambda match: match[0]):
        for capture, nodes in named.items():
            last |= {(node.start_byte, node.end_byte): capture for node in nodes}
    ordered = sorted(last.items(), key=lambda item: (item[0][0], -item[0][1]))
    return [(text[start:end], shown) for (start, end), shown in ordered if not shown.startswith("punctuation")]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("pg", SCHEMA, SCHEMA_CAPTURES), ("gq", QUERY, QUERY_CAPTURES)],
    ids=LANGUAGES,
)
def test_highlights(name: str, text: str, expected: list[tuple[str, str]]) -> None:
    assert captures(name, "highlights", text) == expected


def test_default_values_are_highlighted() -> None:
    default = '[kept, -1, true, "x"]'
    assert captures("pg", "highlights", f"node A {{ p: [String] = {default} }}")[4:] == [
        ("=", "operator"),
        ("kept", "constant"),
        ("-1", "number"),
        ("true", "boolean"),
        ('"x"', "string"),
    ]


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_token_of_the_examples_is_highlighted(name: str) -> None:
    for path in sorted((EDITORS.parent / "examples").rglob(f"*.{name}")):
        text = path.read_bytes()
        root = parser(name).parse(text).root_node
        marked: set[int] = set()
        for nodes in QueryCursor(query(name, "highlights")).captures(root).values():
            marked.update(*(range(node.start_byte, node.end_byte) for node in nodes))
        plain = [number for number, byte in enumerate(text) if number not in marked and not chr(byte).isspace()]
        assert plain == [], f"{path}: {text[plain[0] :][:20]!r}"


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_types_of_the_language_are_the_highlighted_ones(name: str) -> None:
    text = (folder(name) / "queries" / "highlights.scm").read_text("utf-8")
    (listed,) = re.findall(r"#any-of\? @type\.builtin([^)]*)\)", text)
    assert set(re.findall(r'"(\w+)"', listed)) == {*SCALAR_NAMES, "Vector"}


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize("file", ["folds", "indents"])
def test_the_other_queries_fit_the_grammar(name: str, file: str) -> None:
    assert captures(name, file, {"pg": SCHEMA, "gq": QUERY}[name])


@pytest.mark.parametrize("name", LANGUAGES)
def test_an_error_costs_little(name: str) -> None:
    """While somebody types, what comes behind keeps its colours."""
    text = {"pg": SCHEMA.replace("@range(pages, 1..5000)", "@range(pages, "), "gq": QUERY.replace("as key", "as")}[name]
    shown = captures(name, "highlights", text)
    expected = {"pg": SCHEMA_CAPTURES, "gq": QUERY_CAPTURES}[name]
    assert shown[-8:] == expected[-8:]


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_format_is_one_that_editors_read(name: str) -> None:
    assert MIN_COMPATIBLE_LANGUAGE_VERSION <= language(name).abi_version <= 15


@pytest.mark.parametrize("name", LANGUAGES)
def test_what_is_generated_was_generated_from_these_sources(name: str) -> None:
    lines = (folder(name) / "generated.sha256").read_text("utf-8").splitlines()
    recorded = {file: digest for digest, file in (line.split("  ") for line in lines)}
    actual = {file: hashlib.sha256((folder(name) / file).read_bytes()).hexdigest() for file in recorded}
    assert actual == recorded, "run editors/generate.py (docs/dev/editors.md)"
    assert {"grammar.js", "src/parser.c", f"tree-sitter-omnigraph_{name}.wasm"} <= recorded.keys()
