"""Rows that lack properties with defaults, in every form that a write takes, and what is stored of them.

A test of each way into a graph loads `ROWS` and compares the graph with `stored_rows`, whose values are all written.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph import Graph
from tests.engine.stored import everything

SCHEMA: Final = """
interface Counted { count: I64 = -3 }
node Item implements Counted {
    code: String @key
    title: String = "un\\"titled\\""
    big: U64 = 18446744073709551615
    price: F64? = 9.5
    ratio: F32 = 0.1
    on: Bool = true
    since: Date = "2024-02-29"
    seen: DateTime? = "2024-01-01T10:00:00.123+02:00"
    tags: [String] = ["new", "it's"]
    days: [Date]? = ["2024-01-01", "1969-12-31"]
    empty: [F64] = []
    status: enum(todo, done) = todo
    note: String?
    @range(count, -5..5)
}
edge Near: Item -> Item {
    weight: F64 = 1.5
    why: String? = "?"
    @key(@src, @dst)
}
"""

Row = dict[str, Any]
DEFAULTS: Final[Row] = {
    "count": -3,
    "title": 'un"titled"',
    "big": 2**64 - 1,
    "price": 9.5,
    "ratio": 0.1,
    "on": True,
    "since": "2024-02-29",
    "seen": "2024-01-01T08:00:00.123Z",
    "tags": ["new", "it's"],
    "days": ["2024-01-01", "1969-12-31"],
    "empty": [],
    "status": "todo",
    "note": None,
}
ROWS: Final[list[Row]] = [
    {"code": "bare"},
    {
        "code": "whole",
        "count": 1,
        "title": "t",
        "big": 2,
        "price": 3.5,
        "ratio": 0.5,
        "on": False,
        "since": "2020-01-02",
        "seen": "2020-01-02T03:04:05.000Z",
        "tags": ["a"],
        "days": ["2020-01-02"],
        "empty": [0.5],
        "status": "done",
        "note": "n",
    },
    {"code": "nulls", "price": None, "seen": None, "days": None, "note": None},
    {"code": "some", "count": 5, "tags": [], "status": "done", "since": "2020-01-02"},
]
EDGES: Final[list[Row]] = [
    {"from": "bare", "to": "whole"},
    {"from": "whole", "to": "nulls", "weight": 0.25, "why": None},
]

Load = Callable[[str, list[Row]], object]
"""Loads rows of a type, named first."""


def init(place: str | Path) -> Graph:
    return Graph.init(place, SCHEMA)


def load_by(load: Load, *, ragged: bool) -> None:
    """Everything; the rows together where each of them may lack members of its own (`ragged`), else one by one."""
    for type_name, rows in (("Item", ROWS), ("Near", EDGES)):
        for some in [rows] if ragged else [[row] for row in rows]:
            load(type_name, some)


def records(type_name: str, rows: list[Row]) -> str:
    """Rows as graph records."""
    return "".join(json.dumps(_record(type_name, row)) + "\n" for row in rows)


def _record(type_name: str, row: Row) -> Row:
    if type_name == "Item":
        return {"type": type_name, "data": row}
    data = {name: value for name, value in row.items() if name not in ("from", "to")}
    return {"edge": type_name, "from": row["from"], "to": row["to"], "data": data}


def table(rows: list[Row]) -> pa.Table:
    """Rows that all have the same members, as columns; a column of nulls has no other type."""
    return pa.table({name: pa.array([row[name] for row in rows]) for name in rows[0]})


def csv_text(rows: list[Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def ndjson(rows: list[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_files(folder: Path, rows: list[Row]) -> Iterator[Path]:
    """Files of rows that all have the same members, in every format."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.csv").write_text(csv_text(rows))
    yield folder / "rows.csv"
    pq.write_table(table(rows), folder / "rows.parquet")
    yield folder / "rows.parquet"
    (folder / "rows.ndjson").write_text(ndjson(rows))
    yield folder / "rows.ndjson"


_KINDS: Final[Mapping[str, str]] = {"big": "U64", "since": "Date", "seen": "DateTime", "days": "[Date]"}


def insert_text(type_name: str, row: Row) -> str:
    """A mutation that inserts a row."""
    return f"query add() {{ {insert_statement(type_name, row)} }}"


def insert_statement(type_name: str, row: Row) -> str:
    members = ", ".join(f"{name}: {_literal(name, value)}" for name, value in row.items())
    return f"insert {type_name} {{ {members} }}"


def _literal(name: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if name in ("since", "seen"):
        return f"{_KINDS[name].lower()}({json.dumps(value)})"
    if name == "days":
        return f"[{', '.join(f'date({json.dumps(day)})' for day in value)}]"
    return json.dumps(value)


def stored_rows(place: Path) -> dict[str, dict[str, Row]]:
    """What a graph holds into which the rows were loaded with every value written."""
    whole = [{**DEFAULTS, **row} for row in ROWS]
    edges = [{"weight": 1.5, "why": "?", **row} for row in EDGES]
    with init(place) as graph:
        graph.load(records("Item", whole) + records("Near", edges), mode="append")
        stored = everything(graph)
    assert [len(rows) for rows in stored.values()] == [len(EDGES), len(ROWS)]
    return stored
