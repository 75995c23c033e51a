"""Small data for an example, twice: as a graph of ours and as tables of SQLite, which answers the same questions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph import Graph

EXAMPLES = Path(__file__).parents[2] / "examples"

Record = Mapping[str, Any]


@dataclass
class Tables:
    """The rows of node types by name, and of edge types with `src` and `dst`, which are keys of nodes."""

    nodes: dict[str, list[Record]] = field(default_factory=dict)
    edges: dict[str, list[Record]] = field(default_factory=dict)

    def add_node(self, type_: str, **properties: Any) -> None:
        self.nodes.setdefault(type_, []).append(properties)

    def add_edge(self, type_: str, src: int, dst: int, **properties: Any) -> None:
        self.edges.setdefault(type_, []).append({"src": src, "dst": dst, **properties})

    def load(self, graph: Graph) -> None:
        """All of it in one commit."""
        records: list[Record] = []
        for type_, rows in self.nodes.items():
            records += ({"type": type_, "data": row} for row in rows)
        for type_, rows in self.edges.items():
            for row in rows:
                data = {name: value for name, value in row.items() if name not in ("src", "dst")}
                records.append({"edge": type_, "from": row["src"], "to": row["dst"], "data": data})
        graph.load("\n".join(map(json.dumps, records)), mode="append")

    def database(self) -> sqlite3.Connection:
        """A table for each type; lists are texts, joined by a comma. Times are ISO texts, which compare like times."""
        connection = sqlite3.connect(":memory:")
        connection.row_factory = sqlite3.Row
        for type_, rows in (*self.nodes.items(), *self.edges.items()):
            columns = list(rows[0])
            connection.execute(f"create table {type_} ({', '.join(columns)})")
            values = ([_plain(row[column]) for column in columns] for row in rows)
            connection.executemany(f"insert into {type_} values ({', '.join('?' * len(columns))})", values)
        return connection


def _plain(value: Any) -> Any:
    return ",".join(value) if isinstance(value, list) else value


def rows_of(cursor: Iterable[sqlite3.Row]) -> list[dict[str, Any]]:
    return [dict(row) for row in cursor]
