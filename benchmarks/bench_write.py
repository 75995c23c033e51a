"""Writes against Kuzu, DuckDB and SQLite: small commits, many inserts in one transaction, types with many properties.

    python -m benchmarks write [--scale 1] [--rounds 5] [--json FILE]

Scale 1 begins with 20,000 rows, and has a type with 5,000 properties. Systems that are not installed are left out
(`pip install kuzu duckdb`). All of them commit durably. Each inserts many rows the way its authors recommend: SQLite
with `executemany`, DuckDB from an Arrow table, Kuzu with `UNWIND`. Ours is shown twice: one mutation with a statement
per row, and `load`, which is what many rows are for.
"""

from __future__ import annotations

import io
import itertools
import json
import sqlite3
from pathlib import Path
from typing import Any

from benchmarks.contest import Contender, NotOfferedError, Report, all_running, arguments, installed, machine, workplace

ROWS_AT_SCALE_1, PROPERTIES_AT_SCALE_1, WIDE_ROWS = 20_000, 5_000, 20
COMMITS = 10
INSERTS_AT_SCALE_1 = (400, 2_000)


class WriteSystem(Contender):
    """`rows` are (slug, name, age). The wide type has a key and that many integers."""

    def sized(self) -> tuple[int, int]:
        found = json.loads((self.folder.parent / "sizes.json").read_text())
        return int(found["rows"]), int(found["properties"])

    def insert(self, rows: list[tuple[str, str, int]]) -> None:
        """All of them in one transaction."""
        raise NotImplementedError

    def commits(self, rows: list[tuple[str, str, int]]) -> None:
        """Each in a transaction of its own."""
        for row in rows:
            self.insert([row])

    def build_wide(self) -> None:
        """A type with many properties, and a few rows of it."""
        raise NotImplementedError

    def update_wide(self, row: int, column: int, value: int) -> None:
        """One property of one row."""
        raise NotImplementedError

    def read_wide(self, row: int) -> int:
        """One whole row, as Python values; the answer is the sum of its numbers."""
        raise NotImplementedError

    def export_wide(self) -> int:
        """Every row, as JSON text; the answer is how many there are."""
        raise NotImplementedError


def base_rows(count: int) -> list[tuple[str, str, int]]:
    return [(f"base-{i:07d}", f"name {i}", i % 90) for i in range(count)]


def wide_rows(properties: int) -> list[dict[str, Any]]:
    return [{"slug": f"w{r}"} | {f"p{i}": (r + i) % 1000 for i in range(properties)} for r in range(WIDE_ROWS)]


class OmniGraph(WriteSystem):
    name = "omnigraph"

    def build(self) -> None:
        import omnigraph

        rows, properties = self.sized()
        wide = "\n".join(f"    p{i}: I32?" for i in range(properties))
        schema = (
            f"node Person {{ slug: String @key  name: String  age: I32 }}\nnode Wide {{ slug: String @key\n{wide}\n}}"
        )
        with omnigraph.init(self.folder, schema) as graph:
            self.graph = graph
            self._load(base_rows(rows))
            graph.maintenance.optimize()

    def open(self) -> None:
        import omnigraph

        self.graph = omnigraph.open(self.folder)

    def close(self) -> None:
        self.graph.close()

    def _load(self, rows: list[tuple[str, str, int]]) -> None:
        data = ({"slug": slug, "name": name, "age": age} for slug, name, age in rows)
        text = "\n".join(json.dumps({"type": "Person", "data": row}) for row in data)
        self.graph.load(text, mode="append")

    def insert(self, rows: list[tuple[str, str, int]]) -> None:
        statements = "\n".join(f'insert Person {{ slug: "{s}", name: "{n}", age: {a} }}' for s, n, a in rows)
        self.graph.mutate(f"query many() {{ {statements} }}", "many")

    def commits(self, rows: list[tuple[str, str, int]]) -> None:
        text = "query one($s: String, $n: String, $a: I32) { insert Person { slug: $s, name: $n, age: $a } }"
        for slug, name, age in rows:
            self.graph.mutate(text, "one", {"s": slug, "n": name, "a": age})

    def build_wide(self) -> None:
        _, properties = self.sized()
        text = "\n".join(json.dumps({"type": "Wide", "data": row}) for row in wide_rows(properties))
        self.graph.load(text, mode="append")

    def update_wide(self, row: int, column: int, value: int) -> None:
        text = f"query change($s: String, $v: I32) {{ update Wide set {{ p{column}: $v }} where slug = $s }}"
        self.graph.mutate(text, "change", {"s": f"w{row}", "v": value})

    def read_wide(self, row: int) -> int:
        found = self.graph.entity("node:Wide", f"w{row}")
        assert found is not None
        return sum(value for value in found.values() if isinstance(value, int))

    def export_wide(self) -> int:
        written = io.BytesIO()
        self.graph.export_to(written, types=["Wide"])
        return written.getvalue().count(b"\n")


class OmniGraphLoad(OmniGraph):
    name = "omnigraph, load"

    def insert(self, rows: list[tuple[str, str, int]]) -> None:
        self._load(rows)

    def commits(self, rows: list[tuple[str, str, int]]) -> None:
        for row in rows:
            self._load([row])


class Sqlite(WriteSystem):
    name = "sqlite"

    def build(self) -> None:
        rows, _ = self.sized()
        with sqlite3.connect(self.folder) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE person(slug TEXT PRIMARY KEY, name TEXT, age INTEGER) WITHOUT ROWID")
            connection.executemany("INSERT INTO person VALUES (?, ?, ?)", base_rows(rows))

    def open(self) -> None:
        self.connection = sqlite3.connect(self.folder)
        # In WAL mode the default, NORMAL, may lose the last commits in a power cut.
        self.connection.execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        self.connection.close()

    def insert(self, rows: list[tuple[str, str, int]]) -> None:
        with self.connection:
            self.connection.executemany("INSERT INTO person VALUES (?, ?, ?)", rows)

    def _refuse_wide(self, *_: int) -> Any:
        raise NotOfferedError("a table has at most 2,000 columns")

    build_wide = update_wide = read_wide = export_wide = _refuse_wide


class DuckDb(WriteSystem):
    name = "duckdb"
    module = "duckdb"

    def build(self) -> None:
        import duckdb

        rows, properties = self.sized()
        with duckdb.connect(str(self.folder)) as self.connection:
            self.connection.execute("CREATE TABLE person(slug VARCHAR PRIMARY KEY, name VARCHAR, age INTEGER)")
            wide = ", ".join(f"p{i} INTEGER" for i in range(properties))
            self.connection.execute(f"CREATE TABLE wide(slug VARCHAR PRIMARY KEY, {wide})")
            self.insert(base_rows(rows))

    def open(self) -> None:
        import duckdb

        self.connection = duckdb.connect(str(self.folder))

    def close(self) -> None:
        self.connection.close()

    def insert(self, rows: list[tuple[str, str, int]]) -> None:
        if len(rows) == 1:
            self.connection.execute("INSERT INTO person VALUES (?, ?, ?)", rows[0])
            return
        import pyarrow as pa

        given = pa.table(dict(zip(("slug", "name", "age"), map(list, zip(*rows, strict=True)), strict=True)))
        self.connection.register("given", given)
        self.connection.execute("INSERT INTO person SELECT * FROM given")
        self.connection.unregister("given")

    def build_wide(self) -> None:
        import pyarrow as pa

        _, properties = self.sized()
        self.connection.register("given", pa.Table.from_pylist(wide_rows(properties)))
        self.connection.execute("INSERT INTO wide SELECT * FROM given")
        self.connection.unregister("given")

    def update_wide(self, row: int, column: int, value: int) -> None:
        self.connection.execute(f"UPDATE wide SET p{column} = ? WHERE slug = ?", [value, f"w{row}"])

    def read_wide(self, row: int) -> int:
        (found,) = self.connection.execute("SELECT * FROM wide WHERE slug = ?", [f"w{row}"]).fetchall()
        return sum(found[1:])

    def export_wide(self) -> int:
        rows = self.connection.execute("SELECT to_json(wide) FROM wide").fetchall()
        return len("\n".join(row[0] for row in rows).split("\n"))


class Kuzu(WriteSystem):
    name = "kuzu"
    module = "kuzu"

    def build(self) -> None:
        import kuzu

        rows, properties = self.sized()
        self.database = kuzu.Database(str(self.folder))
        self.connection = kuzu.Connection(self.database)
        self.connection.execute("CREATE NODE TABLE Person(slug STRING PRIMARY KEY, name STRING, age INT64)")
        wide = ", ".join(f"p{i} INT64" for i in range(properties))
        self.connection.execute(f"CREATE NODE TABLE Wide(slug STRING PRIMARY KEY, {wide})")
        self.insert(base_rows(rows))
        self.close()

    def open(self) -> None:
        import kuzu

        self.database = kuzu.Database(str(self.folder))
        self.connection = kuzu.Connection(self.database)

    def close(self) -> None:
        self.connection.close()
        self.database.close()

    def insert(self, rows: list[tuple[str, str, int]]) -> None:
        given = [{"slug": slug, "name": name, "age": age} for slug, name, age in rows]
        text = "UNWIND $rows AS r CREATE (:Person {slug: r.slug, name: r.name, age: r.age})"
        self.connection.execute(text, {"rows": given})

    def build_wide(self) -> None:
        import pyarrow as pa

        _, properties = self.sized()
        given = pa.Table.from_pylist(wide_rows(properties))
        self.connection.execute("COPY Wide FROM $given", {"given": given})

    def update_wide(self, row: int, column: int, value: int) -> None:
        self.connection.execute(f"MATCH (w:Wide {{slug: $s}}) SET w.p{column} = $v", {"s": f"w{row}", "v": value})

    def read_wide(self, row: int) -> int:
        found = self.connection.execute("MATCH (w:Wide {slug: $s}) RETURN w.*", {"s": f"w{row}"}).get_all()
        return sum(value for value in found[0] if isinstance(value, int))

    def export_wide(self) -> int:
        found = self.connection.execute("MATCH (w:Wide) RETURN w.*").get_all()
        return len("\n".join(json.dumps(row) for row in found).split("\n"))


SYSTEMS: tuple[type[WriteSystem], ...] = (OmniGraph, OmniGraphLoad, Kuzu, DuckDb, Sqlite)


def compare(report: Report, chosen: list[type[WriteSystem]], folder: Path, properties: int, inserts: list[int]) -> None:
    fresh = itertools.count()

    def rows(count: int) -> list[tuple[str, str, int]]:
        return [(f"new-{next(fresh):07d}", "a name", 42) for _ in range(count)]

    with all_running(chosen, folder) as systems:
        report.heading("one table")
        each = [(rows(COMMITS),) for _ in range(report.rounds + 1)]
        report.compare("commit of one row", systems, "commits", each, COMMITS)
        for count in inserts:
            many = [(rows(count),) for _ in range(report.rounds + 1)]
            report.compare(f"{count} inserts in one transaction", systems, "insert", many)
        report.heading(f"a type with {properties} properties, {WIDE_ROWS} rows")
        plainly = [system for system in systems if system.name != OmniGraphLoad.name]
        for system in plainly:
            report.add("loading it", system.name, [system.ask("build_wide")])
        changes = [(i % WIDE_ROWS, i * 97 % properties, i) for i in range(report.rounds + 1)]
        report.compare("update of one property", plainly, "update_wide", changes)
        report.compare("one whole row", plainly, "read_wide", [(i % WIDE_ROWS,) for i in range(report.rounds + 1)])
        report.compare("all rows as JSON", plainly, "export_wide", [()])


def main() -> None:
    options = arguments(__doc__ or "", rounds=5).parse_args()
    with workplace(options.folder) as folder:
        chosen = installed(SYSTEMS)
        sizes = {
            "rows": round(ROWS_AT_SCALE_1 * options.scale),
            "properties": min(round(PROPERTIES_AT_SCALE_1 * options.scale), PROPERTIES_AT_SCALE_1),
        }
        (folder / "sizes.json").write_text(json.dumps(sizes))
        print(f"{machine()}; {sizes['rows']} rows to begin with; medians of {options.rounds} rounds")
        report = Report(options.rounds)
        report.build(chosen, folder)
        inserts = [max(1, round(count * min(options.scale, 1))) for count in INSERTS_AT_SCALE_1]
        compare(report, chosen, folder, sizes["properties"], inserts)
        if options.json:
            report.save(options.json)


if __name__ == "__main__":
    main()
