"""Compiling files: picking a query, laziness, the cache."""

from __future__ import annotations

import pytest

from omnigraph.api.governance import QueryLimits
from omnigraph.errors import BadRequestError, CompileError
from omnigraph.language.query import compile as compiling
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.compile import compile_queries, compile_text
from omnigraph.language.schema.compile import compile_schema

from .query_archive import SCHEMA, catalog

TWO = """
query first() @description("what") @instruction("how") { match { $p: Paper } return { $p } }
query second($d: String) { delete Paper where doi = $d }
"""


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    compiling._cache.clear()


def test_a_query_is_picked_by_name() -> None:
    compiled = compile_queries(TWO, catalog())
    assert compiled.query("second").is_mutation
    assert not compiled.query("first").is_mutation
    assert (compiled.query("first").description, compiled.query("first").instruction) == ("what", "how")


def test_the_only_query_needs_no_name() -> None:
    assert compile_queries(TWO.splitlines()[1], catalog()).query().name == "first"


def test_the_first_of_two_equal_names_wins() -> None:
    text = TWO + 'query first() { delete Paper where doi = "x" }'
    assert not compile_queries(text, catalog()).query("first").is_mutation


PICKING = [
    (TWO, None, "multiple queries"),
    (TWO, "third", "query 'third' not found"),
    ("", None, "holds no query"),
    ("", "x", "query 'x' not found"),
]


@pytest.mark.parametrize(("text", "name", "message"), PICKING)
def test_picking_fails(text: str, name: str | None, message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        compile_queries(text, catalog()).query(name)


def test_a_broken_query_does_not_stop_its_neighbours() -> None:
    compiled = compile_queries(TWO + "query third() { match { $b: Book } return { $b } }", catalog())
    assert compiled.query("first").plan
    with pytest.raises(CompileError) as caught:
        _ = compiled.query("third").plan
    assert caught.value.code == "T1"


def test_findings_carry_the_path() -> None:
    with pytest.raises(CompileError, match=r"^lib\.gq:1:1: Q001: expected a statement"):
        compile_queries("nonsense", catalog(), "lib.gq")


def test_the_same_text_under_the_same_schema_is_compiled_once() -> None:
    first = compile_queries(TWO, catalog())
    assert compile_queries(TWO, compile_schema(SCHEMA)) is first
    assert first.query("first").plan is compile_queries(TWO, catalog()).query("first").plan


def test_another_schema_or_text_is_compiled_anew() -> None:
    first = compile_queries(TWO, catalog())
    assert compile_queries(TWO + " ", catalog()) is not first
    assert compile_queries(TWO, compile_schema(SCHEMA + "node Extra { x: String }")) is not first


def test_the_cache_is_bounded_and_forgets_the_oldest() -> None:
    first = compile_queries(TWO, catalog())
    for i in range(compiling.CACHE_SIZE):
        compile_queries(f"// {i}", catalog())
    assert len(compiling._cache) == compiling.CACHE_SIZE
    assert compile_queries(TWO, catalog()) is not first


def test_the_cache_holds_so_much_text_and_no_more() -> None:
    """A server compiles what its callers send: many long texts must not fill its memory."""
    long = compiling.CACHE_CHARACTERS // 4
    for i in range(6):
        compile_queries(f"// {i}".ljust(long), catalog())
    assert long < compiling._cache.characters <= compiling.CACHE_CHARACTERS
    kept = compile_queries("// 5".ljust(long), catalog())
    assert compile_queries("// 5".ljust(long), catalog()) is kept
    larger = QueryLimits(bytes=2 * compiling.CACHE_CHARACTERS)
    compile_queries("// all".ljust(compiling.CACHE_CHARACTERS + 1), catalog(), limits=larger)
    assert compile_queries("// 5".ljust(long), catalog()) is kept, "one that fills the memory alone is not remembered"


# ---- statements -----------------------------------------------------------------------------------------


def test_a_text_may_be_a_statement_about_branches() -> None:
    compiled = compile_text("branch create try from main", catalog())
    assert compiled.queries == ()
    assert compiled.is_statement
    assert isinstance(compiled.branch, ast.BranchCreate)
    assert compiled.branch.name.text == "try"


def test_a_query_that_is_to_be_explained_is_a_compiled_query() -> None:
    compiled = compile_text("explain query q() { match { $p: Paper } return { $p.doi } }", catalog())
    assert compiled.is_statement
    assert compiled.explained is not None
    assert compiled.explained.read_plan.name == "q"


def test_nothing_but_reads_can_be_explained() -> None:
    compiled = compile_text('explain query q() { delete Paper where doi = "x" }', catalog())
    assert compiled.explained is not None
    with pytest.raises(BadRequestError, match="contains mutations"):
        _ = compiled.explained.read_plan


def test_queries_are_no_statement() -> None:
    compiled = compile_text(TWO, catalog())
    assert (compiled.is_statement, len(compiled.queries)) == (False, 2)
    assert compile_queries(TWO, catalog()) is compiled


@pytest.mark.parametrize("text", ["branch list", "explain query q() { match { $p: Paper } return { $p.doi } }"])
def test_a_statement_is_never_a_file_of_queries(text: str) -> None:
    with pytest.raises(CompileError, match="a statement is not a query") as caught:
        compile_queries(text, catalog())
    assert caught.value.code == "Q004"
