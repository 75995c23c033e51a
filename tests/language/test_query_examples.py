"""The example schema and its queries: they compile, run through lint, and stand in their canonical layout."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from omnigraph.language.catalog import Catalog
from omnigraph.language.lint import SchemaSource, lint_queries
from omnigraph.language.query import ir
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.formatter import format_queries
from omnigraph.language.schema.compile import compile_schema

EXAMPLES = Path(__file__).parents[2] / "examples" / "supply_chain"
FILES = sorted((EXAMPLES / "queries").glob("*.gq"))


@cache
def catalog() -> Catalog:
    return compile_schema((EXAMPLES / "schema.pg").read_text("utf-8"), "schema.pg")


def test_the_schema_is_of_a_realistic_size() -> None:
    assert (len(catalog().nodes), len(catalog().edges), len(catalog().interfaces)) == (23, 35, 3)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_query_compiles_and_can_run(file: Path) -> None:
    compiled = compile_queries(file.read_text("utf-8"), catalog(), file.name)
    for query in compiled.queries:
        assert isinstance(query.plan, ir.WritePlan if query.is_mutation else ir.ReadPlan)


def test_there_are_more_than_a_hundred_queries_with_names_of_their_own() -> None:
    names = [q.name for f in FILES for q in compile_queries(f.read_text("utf-8"), catalog()).queries]
    assert len(names) == len(set(names)) == 142


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_lint_finds_no_errors(file: Path) -> None:
    report = lint_queries(
        catalog(),
        file.read_text("utf-8"),
        query_path=file.name,
        schema_source=SchemaSource("file", "schema.pg"),
    )
    assert report.exit_code == 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_files_are_in_canonical_layout(file: Path) -> None:
    text = file.read_text("utf-8")
    assert format_queries(text) == text


def test_the_queries_use_every_construct() -> None:
    """Each kind of syntax node, value, operator and write occurs somewhere; only statements are no part of a file."""
    seen: set[str] = set()
    for file in FILES:
        for query in compile_queries(file.read_text("utf-8"), catalog()).queries:
            _collect(query.syntax, seen)
            _collect(query.plan, seen)
    everything = {
        name
        for module in (ast, ir)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and hasattr(kind, "__struct_fields__") and kind.__module__.startswith(module.__name__)
    }
    statements = {kind.__name__ for kind in get_args(ast.TextStatement)}
    assert everything - seen == {"QueryFile", *statements}


def _collect(value: object, seen: set[str]) -> None:
    fields: tuple[str, ...] = getattr(value, "__struct_fields__", ())
    if fields:
        module = type(value).__module__
        if module != ast.__name__ and not module.startswith(ir.__name__):
            return
        seen.add(type(value).__name__)
        for name in fields:
            _collect(getattr(value, name), seen)
    elif isinstance(value, tuple):
        for item in value:
            _collect(item, seen)
