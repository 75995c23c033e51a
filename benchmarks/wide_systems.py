"""Types with thousands of properties: the systems of `bench_write` for them.

Each writes the rows the way its authors recommend: DuckDB from an Arrow table, Ladybug and Kuzu by `COPY`, OmniGraph by
`load`.
"""

from __future__ import annotations

import importlib
import io
import json
from typing import Any

from benchmarks.contest import Contender, NotOfferedError, Ours, SqliteLibrary

WIDE_ROWS = 20
SIZES = "sizes.json"


class WideSystem(Contender):
    """A type with a key and that many integers."""

    reason = ""
    """Why a system can't have it."""

    def properties(self) -> int:
        return int(json.loads((self.folder.parent / SIZES).read_text())["properties"])

    def rows(self) -> list[dict[str, Any]]:
        count = self.properties()
        return [{"slug": f"w{r}"} | {f"p{i}": (r + i) % 1000 for i in range(count)} for r in range(WIDE_ROWS)]

    def load_wide(self) -> None:
        """A few rows."""
        raise NotOfferedError(self.reason)

    def update_wide(self, row: int, column: int, value: int) -> None:
        """One property of one row."""
        raise NotOfferedError(self.reason)

    def read_wide(self, row: int) -> int:
        """One whole row, as Python values; the answer is the sum of its numbers."""
        raise NotOfferedError(self.reason)

    def export_wide(self) -> int:
        """Every row, as JSON text; the answer is how many there are."""
        raise NotOfferedError(self.reason)


class OmniGraph(Ours, WideSystem):
    def build(self) -> None:
        import omnigraph

        properties = "\n".join(f"    p{i}: I32?" for i in range(self.properties()))
        omnigraph.init(self.folder, f"node Wide {{ slug: String @key\n{properties}\n}}").close()

    def open(self) -> None:
        import omnigraph

        self.graph = omnigraph.open(self.folder)

    def close(self) -> None:
        self.graph.close()

    def load_wide(self) -> None:
        self.graph.load(self.rows(), type="Wide", mode="append")

    def update_wide(self, row: int, column: int, value: int) -> None:
        text = f"query change($s: String, $v: I32) {{ update Wide set {{ p{column}: $v }} where slug = $s }}"
        self.graph.mutate(text, "change", {"s": f"w{row}", "v": value})

    def read_wide(self, row: int) -> int:
        entity = self.graph.entity("node:Wide", f"w{row}")
        assert entity is not None
        return sum(value for value in entity.values() if isinstance(value, int))

    def export_wide(self) -> int:
        written = io.BytesIO()
        self.graph.export_to(written, types=["Wide"])
        return written.getvalue().count(b"\n")


class Ladybug(WideSystem):
    name = "ladybug"
    module = "ladybug"

    def build(self) -> None:
        self.open()
        properties = ", ".join(f"p{i} INT64" for i in range(self.properties()))
        self.connection.execute(f"CREATE NODE TABLE Wide(slug STRING PRIMARY KEY, {properties})")
        self.close()

    def open(self) -> None:
        library = importlib.import_module(self.module)
        self.database = library.Database(str(self.folder))
        self.connection = library.Connection(self.database)

    def close(self) -> None:
        self.connection.close()
        self.database.close()

    def load_wide(self) -> None:
        import pyarrow as pa

        self.connection.execute("COPY Wide FROM $rows", {"rows": pa.Table.from_pylist(self.rows())})

    def update_wide(self, row: int, column: int, value: int) -> None:
        self.connection.execute(f"MATCH (w:Wide {{slug: $s}}) SET w.p{column} = $v", {"s": f"w{row}", "v": value})

    def read_wide(self, row: int) -> int:
        (values,) = self.connection.execute("MATCH (w:Wide {slug: $s}) RETURN w.*", {"s": f"w{row}"}).get_all()
        return sum(value for value in values if isinstance(value, int))

    def export_wide(self) -> int:
        rows = self.connection.execute("MATCH (w:Wide) RETURN w.*").get_all()
        return len("\n".join(json.dumps(row) for row in rows).split("\n"))


class Kuzu(Ladybug):
    name = "kuzu"
    module = "kuzu"


class DuckDb(WideSystem):
    name = "duckdb"
    module = "duckdb"

    def build(self) -> None:
        self.open()
        properties = ", ".join(f"p{i} INTEGER" for i in range(self.properties()))
        self.connection.execute(f"CREATE TABLE wide(slug VARCHAR PRIMARY KEY, {properties})")
        self.close()

    def open(self) -> None:
        import duckdb

        self.connection = duckdb.connect(str(self.folder))

    def close(self) -> None:
        self.connection.close()

    def load_wide(self) -> None:
        import pyarrow as pa

        self.connection.register("rows", pa.Table.from_pylist(self.rows()))
        self.connection.execute("INSERT INTO wide SELECT * FROM rows")
        self.connection.unregister("rows")

    def update_wide(self, row: int, column: int, value: int) -> None:
        self.connection.execute(f"UPDATE wide SET p{column} = ? WHERE slug = ?", [value, f"w{row}"])

    def read_wide(self, row: int) -> int:
        (values,) = self.connection.execute("SELECT * FROM wide WHERE slug = ?", [f"w{row}"]).fetchall()
        return sum(values[1:])

    def export_wide(self) -> int:
        rows = self.connection.execute("SELECT to_json(wide) FROM wide").fetchall()
        return len("\n".join(row[0] for row in rows).split("\n"))


class Sqlite(SqliteLibrary, WideSystem):
    reason = "a table has at most 2,000 columns"


SYSTEMS: tuple[type[WideSystem], ...] = (OmniGraph, Ladybug, Kuzu, DuckDb, Sqlite)
