"""A small library graph for maintenance tests: books with every kind of property, readers, and loans between them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from omnigraph import Graph
from omnigraph.engine.maintenance.declared_indexes import table_types

SCHEMA = """
node Book {
  isbn: String @key
  title: String @index
  pages: I32? @index
  genre: enum(novel, essay)? @index
  tags: [String]?
  cover: Blob?
  mood: Vector(3)? @index
  @index(tags)
}
node Reader { card: String @key  name: String?  born: Date? }
edge Borrowed: Reader -> Book { on: DateTime?  note: String? }
"""


def book(isbn: str, **properties: Any) -> str:
    return json.dumps({"type": "Book", "data": {"isbn": isbn, "title": f"title of {isbn}", **properties}})


def reader(card: str, **properties: Any) -> str:
    return json.dumps({"type": "Reader", "data": {"card": card, **properties}})


def loan(card: str, isbn: str, **properties: Any) -> str:
    return json.dumps({"edge": "Borrowed", "from": card, "to": isbn, "data": properties})


def blob(data: bytes) -> str:
    return "base64:" + base64.b64encode(data).decode()


def load(graph: Graph, lines: Iterable[str], mode: str = "merge", branch: str = "main") -> None:
    graph.load("\n".join(lines), mode=mode, branch=branch)


def content(
    graph: Graph, type_key: str, branch: str | None = None, *, version: int | None = None, snapshot: str | None = None
) -> dict[str, dict[str, Any]]:
    """Every entity of a type by id, properties by name, blobs left out."""
    state = graph.snapshot(branch, version=version, snapshot=snapshot)
    type_ = table_types(state.catalog)[type_key]
    names = {p.column: p.name for p in type_.property_list if not p.type.is_blob}
    rows = state.scan(type_key, [*type_.system_columns, *names]).to_pylist()
    return {row["id"]: {names.get(c, c): v for c, v in row.items() if c != "id"} for row in rows}
