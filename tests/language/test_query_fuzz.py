"""Arbitrary text gets an answer or a `CompileError`, and never takes more than about linear time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import CompileError
from omnigraph.language.query.compile import compile_queries, compile_text
from omnigraph.language.query.formatter import format_queries
from omnigraph.language.query.parser import parse_queries

from .growth import assert_about_linear
from .query_archive import catalog, read
from .query_programs import programs

_FRAGMENTS = st.sampled_from(
    [
        "query", "q", "(", ")", "{", "}", "[", "]", ",", ":", ".", "?", "$a", "$_", "$", "Paper", "match", "return",
        "not", "order", "limit", "as", "contains", "now", "nearest", "count", "rrf", "bm25", "search", "insert",
        "update", "set", "where", "delete", "<", ">", "=", "!=", ">=", "1", "1.5", '"', '"x"', "\\", "//", "/*",
        "*/", "\n", " ", "@", "@description", "true", "date", "-", "é", "\x00", "\ud800", "query q() { match {",
        "} return { $a } }",
    ]
)  # fmt: skip


def survives(text: str) -> None:
    for step in (parse_queries, format_queries):
        with suppress(CompileError):
            step(text)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    survives(text)


@settings(max_examples=300, deadline=None)
@given(st.lists(_FRAGMENTS, max_size=40).map(" ".join))
def test_any_heap_of_tokens(text: str) -> None:
    survives(text)


@settings(max_examples=100, deadline=None)
@given(programs(), st.data())
def test_a_program_with_a_hole(program: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(program)))
    end = data.draw(st.integers(start, min(len(program), start + 10)))
    survives(program[:start] + data.draw(_FRAGMENTS) + program[end:])


@settings(max_examples=100, deadline=None)
@given(programs())
def test_any_program_gets_through_the_checker(program: str) -> None:
    for query in compile_text(program, catalog()).queries:
        with suppress(CompileError):
            _ = query.operation
            _ = query.plan


def compile_all(text: str) -> None:
    for query in compile_queries(text, catalog()).queries:
        with suppress(CompileError):
            _ = query.plan


GROWING: list[tuple[str, Callable[[str], object], Callable[[int], str]]] = [
    ("queries", parse_queries, lambda n: (read("$p: Paper { doi: \"x\" }") + "\n") * n),
    ("broken queries", parse_queries, lambda n: "query a( { match { $b: } }\n" * n),
    ("heads only", parse_queries, lambda n: "query a(" * n),
    ("unclosed string of escapes", parse_queries, lambda n: '"' + '\\"' * n * 20),
    ("unclosed strings", parse_queries, lambda n: read('$b.x = "') * n),
    ("unclosed comments", parse_queries, lambda n: "/* " * n * 20),
    ("stars", parse_queries, lambda n: "/*" + "*" * n * 20),
    ("comments", format_queries, lambda n: "// c\n" * n * 5),
    ("comments in a block", format_queries, lambda n: read("$p: Paper\n" + "// c\n $p.doi = 1\n" * n * 2)),
    ("blanks", parse_queries, lambda n: " " * n * 50),
    ("digits", parse_queries, lambda n: read("$b.x = " + "9" * n * 50)),
    ("open braces", parse_queries, lambda n: "{" * n * 20),
    ("nested lists", parse_queries, lambda n: read("$b.x = " + "[" * n * 10)),
    ("clauses", compile_all, lambda n: read("$p: Paper " + "$p.pages > 3 " * n)),
    ("chain", compile_all, lambda n: read("$v0: Paper " + " ".join(f"$v{i} cites $v{i + 1}" for i in range(n)))),
    ("star", compile_all, lambda n: read("$v: Paper " + " ".join(f"$v cites $x{i}" for i in range(n)))),
    ("groups", compile_all, lambda n: read(" ".join(f"$v{i}: Paper" for i in range(n)))),
    ("negations", compile_all, lambda n: read("$p: Paper " + "not { $p cites $_ } " * n)),
    ("type errors", compile_all, lambda n: read(" ".join(f"$v{i}: Papr $w{i}.x = 1" for i in range(n)))),
    ("columns", compile_all, lambda n: read("$p: Paper", ", ".join(f"$p.pages as c{i}" for i in range(n)))),
]  # fmt: skip


@pytest.mark.parametrize(("action", "grow"), [case[1:] for case in GROWING], ids=[case[0] for case in GROWING])
def test_time_grows_about_linearly(action: Callable[[str], object], grow: Callable[[int], str]) -> None:
    parse_queries("")  # the grammar is built once, and not on our time
    assert_about_linear(action, grow, 40)
