"""What lint says of every feature of the query language: kinds of columns, types that are read, types that change."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from omnigraph.api import wire
from omnigraph.language.lint import SchemaSource, lint_queries
from omnigraph.language.schema.compile import compile_schema
from tests.support.feature_queries import SCHEMA, STORED, STORED_TEXT, WRITES, Example, Write, label


@cache
def operations() -> dict[str, Any]:
    """The descriptors by the names of the queries."""
    source = SchemaSource("file", "features.pg")
    report = lint_queries(compile_schema(SCHEMA), STORED_TEXT, query_path="features.gq", schema_source=source)
    results = wire.to_builtins(report)["results"]
    assert {result["status"] for result in results} == {"ok"}
    return {result["name"]: result["operation"] for result in results}


def type_keys(touched: list[dict[str, str]]) -> list[str]:
    return sorted(f"{each['kind']}:{each['type_name']}" for each in touched)


@pytest.mark.parametrize("example", STORED, ids=label)
def test_the_descriptor_of_a_read(example: Example) -> None:
    operation = operations()[example.name]
    assert {column["name"]: column["kind"] for column in operation["result"]} == example.kinds
    assert list(example.kinds) == list(example.rows[0])
    assert type_keys(operation["reads"]) == example.reads.split()
    assert operation["writes"] == []


@pytest.mark.parametrize("write", WRITES, ids=label)
def test_the_descriptor_of_a_write(write: Write) -> None:
    operation = operations()[write.name]
    assert operation.get("result", []) == []
    assert type_keys(operation["reads"]) == write.reads.split()
    assert type_keys(operation["writes"]) == write.writes.split()


@pytest.mark.parametrize("example", STORED, ids=label)
def test_a_column_that_may_be_null_is_nullable(example: Example) -> None:
    nullable = {column["name"] for column in operations()[example.name]["result"] if column["nullable"]}
    assert nullable >= {name for row in example.rows for name, value in row.items() if value is None}


NESTED: list[tuple[str, str, dict[str, Any]]] = [
    ("objects", "r", {"type_names": ["Reader"], "nullable": False}),
    ("objects", "loan", {"type_names": ["Borrowed"], "nullable": False}),
    (
        "objects",
        "authors",
        {
            "item_kind": "object",
            "item": {"name": "item", "kind": "object", "type_names": ["Author"], "nullable": True},
            "nullable": False,
        },
    ),
    (
        "objects",
        "facts",
        {
            "fields": [
                {"name": "author", "kind": "object", "type_names": ["Author"], "nullable": False},
                {"name": "days", "kind": "int", "nullable": True},
            ],
            "nullable": False,
        },
    ),
    ("lost_books", "loan", {"type_names": ["Borrowed"], "nullable": True}),
    ("named", "x", {"type_names": ["Author", "Reader"], "nullable": False}),
    ("collected", "names", {"item_kind": "string", "nullable": False}),
    ("ways", "way", {"nullable": False}),
    ("calculated", "tags", {"item_kind": "string", "nullable": True}),
]


@pytest.mark.parametrize(("query", "column", "shape"), NESTED)
def test_the_shape_of_an_object_a_list_and_a_record(query: str, column: str, shape: dict[str, Any]) -> None:
    found = next(each for each in operations()[query]["result"] if each["name"] == column)
    assert {name: value for name, value in found.items() if name not in ("name", "kind")} == shape
