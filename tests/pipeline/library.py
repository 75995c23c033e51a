"""A small library graph and short ways to write its inputs; every pipeline test starts from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.pipeline import Pipeline, read_pipeline

SCHEMA = """
node Reader {
  name: String @key
  age: I32?
  email: String? @unique
  @range(age, 0..150)
}
node Book {
  isbn: String @key
  title: String @index
  printed: Date?
  pages: U32?
  rating: F64?
}
edge Borrowed: Reader -> Book @card(0..2) { on: Date? }
edge Likes: Reader -> Book
"""


def library(uri: str | Path) -> Graph:
    return Graph.init(uri, SCHEMA)


def csv(path: Path, header: str, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def ndjson(path: Path, rows: Iterable[Mapping[str, Any] | str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def reader(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Reader", "data": {"name": name, **data}}


def book(isbn: str, title: str = "a book", **data: Any) -> dict[str, Any]:
    return {"type": "Book", "data": {"isbn": isbn, "title": title, **data}}


def edge(name: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": name, "from": source, "to": target, "data": data}


def records(directory: Path, mode: str = "merge", quality: str = "", **more: str) -> Pipeline:
    """A pipeline over graph records in `directory/*.ndjson`."""
    lines = ["version: 1", "name: records", f"mode: {mode}"]
    lines += [f"{name}: {value}" for name, value in more.items()]
    lines += [f"sources: {{records: {{format: graph, path: '{directory}/*.ndjson'}}}}"]
    if quality:
        lines.append(f"quality: {{{quality}}}")
    return read_pipeline("\n".join(lines), directory=str(directory))


def quarantine(directory: Path, most: int = 100, duplicates: str = "") -> str:
    more = f", duplicates: {duplicates}" if duplicates else ""
    return f"on_error: quarantine, quarantine: '{directory}/rejected', max_rejected: {most}{more}"


def rejected_rows(report_path: str) -> list[dict[str, Any]]:
    """What a run put into its quarantine, in a fixed order."""
    files = sorted(Path(report_path).glob("*.json"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted(rows, key=lambda row: (row.get("file", ""), row["row"], row["reason"]))
