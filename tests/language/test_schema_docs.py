"""The user guide of the schema language says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.language.schema.compile import accept_schema, compile_schema
from omnigraph.language.schema.formatter import format_schema
from omnigraph.language.schema.migration import evolve

GUIDE = (Path(__file__).parents[2] / "docs" / "user" / "schema-language.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("schema", blocks("pg"))
def test_every_schema_compiles_and_is_in_canonical_layout(schema: str) -> None:
    compile_schema(schema)
    assert format_schema(schema) == schema


@pytest.mark.parametrize("program", blocks("python"))
def test_every_python_example_runs(program: str) -> None:
    exec(compile(program, "schema-language.md", "exec"), {})


def test_the_composite_key_example() -> None:
    (copy,) = [schema for schema in blocks("pg") if "node Copy" in schema]
    assert accept_schema(copy).nodes["Copy"].key == ("copy_no", "isbn")


def test_the_rename_example_moves_no_data() -> None:
    (renamed,) = [schema for schema in blocks("pg") if "node Patron" in schema]
    accepted = accept_schema("node Reader { card: String @key  name: String  email: String? @unique }")
    plan, catalog = evolve(accepted, renamed)
    assert plan.supported
    assert {type(step).__name__ for step in plan.steps} == {"RenameType", "RenameProperty"}
    assert catalog.nodes["Patron"].table_incarnation == accepted.nodes["Reader"].table_incarnation
    assert catalog.nodes["Patron"].properties["full_name"].column == "name"
