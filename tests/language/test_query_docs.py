"""The user guide of the query language says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.formatter import format_queries
from omnigraph.language.query.functions import FORMS, FUNCTIONS
from omnigraph.language.schema.compile import compile_schema

from .test_query_typecheck import EVERY_CODE

DOCS = Path(__file__).parents[2] / "docs" / "user"
GUIDE = (DOCS / "query-language.md").read_text(encoding="utf-8")
PAGES = ("query-language.md", "coming-from-cypher.md", "coming-from-sql.md")
SCHEMA_GUIDE = (DOCS / "schema-language.md").read_text(encoding="utf-8")


def blocks(guide: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", guide, re.DOTALL)


QUERIES = [queries for page in PAGES for queries in blocks((DOCS / page).read_text(encoding="utf-8"), "gq")]


@pytest.mark.parametrize("queries", QUERIES)
def test_every_query_compiles_against_the_library_schema(queries: str) -> None:
    catalog = compile_schema(blocks(SCHEMA_GUIDE, "pg")[0])
    for query in compile_queries(queries, catalog).queries:
        assert query.plan


@pytest.mark.parametrize("queries", QUERIES)
def test_every_query_is_in_canonical_layout(queries: str) -> None:
    assert format_queries(queries) == queries


@pytest.mark.parametrize("program", blocks(GUIDE, "python"))
def test_every_python_example_runs(program: str) -> None:
    exec(compile(program, "query-language.md", "exec"), {})


def test_every_code_is_explained() -> None:
    explained = set(re.findall(r"^\| (T\d+) \|", GUIDE, re.MULTILINE))
    assert explained == EVERY_CODE


def test_every_function_is_explained() -> None:
    section = GUIDE.partition("\n## Functions\n")[2].partition("\n## ")[0]
    assert (FUNCTIONS.keys() | FORMS.keys()) <= set(re.findall(r"\w+", section))
