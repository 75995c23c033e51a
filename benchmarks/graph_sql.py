"""DuckDB and SQLite in the graph benchmarks: people by number, friendships as pairs of numbers.

Both get native tables with indexes on the texts that are asked for and on both ends of the friendships. DuckDB has the
friendships in the order of their sources, so that its zone maps skip most row groups, and scans for everything else, as
its authors advise. SQLite has indexes for filters and their order too, and runs in WAL mode with synchronous commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest import THREADS, SqliteLibrary
from benchmarks.graph_systems import KNOWS, PEOPLE, GraphSystem, OneProcess, Params, Rows

TABLES = (
    "CREATE TABLE person(number INTEGER PRIMARY KEY{number}, slug VARCHAR, mail VARCHAR, age INTEGER, city VARCHAR)",
    "CREATE TABLE knows(source INTEGER NOT NULL, target INTEGER NOT NULL)",
)
KEY = "CREATE UNIQUE INDEX person_slug ON person(slug)"
MAIL = "CREATE INDEX person_mail ON person(mail)"
PROPERTIES = ("slug", "mail", "age", "city")
INSERT_ONE = "INSERT INTO person(slug, mail, age, city) VALUES ($slug, $mail, $age, $city)"


def reached(most: int, join: str) -> str:
    """Each level once, then all of them, each node once per level: less work than a recursive query."""
    levels = ["hop1 AS (SELECT DISTINCT target FROM knows WHERE source = (SELECT number FROM start))"]
    levels += [
        f"hop{n} AS (SELECT DISTINCT k.target FROM hop{n - 1} h {join} knows k ON k.source = h.target)"
        for n in range(2, most + 1)
    ]
    union = " UNION ".join(f"SELECT target FROM hop{n}" for n in range(1, most + 1))
    return (
        f"WITH start AS (SELECT number FROM person WHERE slug = $k), {', '.join(levels)}, "
        f"reached AS ({union} EXCEPT SELECT number FROM start)"
    )


def texts(join: str) -> dict[str, str]:
    """`join` joins two tables of which the first has few rows."""
    ends = "FROM knows k JOIN person a ON a.number = k.source JOIN person b ON b.number = k.target"
    top = "ORDER BY age DESC, slug LIMIT 10"
    number = "(SELECT number FROM person WHERE slug = $k)"
    return {
        "person": "SELECT age, city FROM person WHERE slug = $k",
        "mail": "SELECT slug FROM person WHERE mail = $m",
        "in_city": f"SELECT slug, age FROM person WHERE city = $c AND age > $a {top}",
        "older": f"SELECT slug, age FROM person WHERE age > $a {top}",
        "count_older": "SELECT count(*) FROM person WHERE age >= $a",
        "cities": "SELECT city, count(*), avg(age) FROM person GROUP BY city",
        "friends_by_city": f"SELECT b.city, count(*), avg(a.age) {ends} GROUP BY b.city",
        "city_pairs": f"SELECT a.city, b.city, count(*) AS n {ends} GROUP BY a.city, b.city"
        " ORDER BY n DESC, a.city, b.city LIMIT 20",
        **{f"hops{most}": f"{reached(most, join)} SELECT count(*) FROM reached" for most in (1, 2, 3, 4)},
        "friends": f"{reached(2, join)} SELECT p.slug, p.age FROM reached r {join} person p ON p.number = r.target",
        # By degrees: a join of all pairs would be ten times the work.
        "paths": "SELECT CAST(sum(a.n * b.n) AS BIGINT) FROM (SELECT target, count(*) n FROM knows GROUP BY target) a"
        " JOIN (SELECT source, count(*) n FROM knows GROUP BY source) b ON a.target = b.source",
        "degrees": "SELECT slug, n FROM (SELECT target, count(*) n FROM knows GROUP BY target) k"
        " JOIN person p ON p.number = k.target ORDER BY n DESC, slug LIMIT 10",
        "triangles": "SELECT count(*) FROM knows x JOIN knows y ON y.source = x.target"
        " JOIN knows z ON z.source = y.target AND z.target = x.source",
        "everybody": "SELECT slug, mail, age, city FROM person",
        "befriend": "INSERT INTO knows SELECT a.number, b.number FROM person a, person b"
        " WHERE a.slug = $k AND b.slug = $o",
        "age": "UPDATE person SET age = $a WHERE slug = $k",
        "remove edges": f"DELETE FROM knows WHERE source = {number} OR target = {number}",
        "remove": "DELETE FROM person WHERE slug = $k",
    }


class DuckDbSession:
    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor
        self.parsed: dict[str, Any] = {}

    def result(self, name: str, params: Params) -> Any:
        if name not in self.parsed:
            (self.parsed[name],) = self.cursor.extract_statements(DuckDb.TEXTS[name])
        return self.cursor.execute(self.parsed[name], dict(params))

    def rows(self, name: str, params: Params) -> Rows:
        if name == "remove":
            self.cursor.begin()
            self.result("remove edges", params)
            self.result("remove", params)
            self.cursor.commit()
            return []
        rows: Rows = self.result(name, params).fetchall()
        return rows

    def close(self) -> None:
        self.cursor.close()


class DuckDb(OneProcess):
    name = "duckdb"
    module = "duckdb"
    PROGRAM = """
import duckdb
rows = duckdb.connect(store).execute(text, params).fetchall()
"""
    TEXTS = texts("JOIN")
    INDEXES = (MAIL, "CREATE INDEX knows_source ON knows(source)", "CREATE INDEX knows_target ON knows(target)")
    session: DuckDbSession

    @classmethod
    def text(cls, name: str) -> str:
        return cls.TEXTS[name]

    def create(self) -> None:
        import pyarrow.parquet as pq

        self.open()
        self.connection.execute(f"CREATE SEQUENCE numbers START {pq.read_metadata(self.data / PEOPLE).num_rows}")
        for text in TABLES:
            self.connection.execute(text.format(number=" DEFAULT nextval('numbers')"))

    def load_people(self) -> None:
        columns = f"number, {', '.join(PROPERTIES)}"
        self.connection.execute(f"INSERT INTO person({columns}) SELECT {columns} FROM '{self.data / PEOPLE}'")

    def load_edges(self) -> None:
        self._load_ends(f"SELECT source_slug AS source, target_slug AS target FROM '{self.data / KNOWS}'")

    def load_json_edges(self, file: Path) -> None:
        self._load_ends(f"""SELECT "from" AS source, "to" AS target FROM '{file}'""")

    def _load_ends(self, ends: str) -> None:
        self.connection.execute(
            f"INSERT INTO knows SELECT a.number, b.number FROM ({ends}) k"
            " JOIN person a ON a.slug = k.source JOIN person b ON b.slug = k.target ORDER BY a.number"
        )

    def build_indexes(self) -> None:
        for text in (KEY, *self.INDEXES):
            self.connection.execute(text)
        self.connection.execute("CHECKPOINT")

    def connect(self) -> None:
        import duckdb

        self.connection = duckdb.connect(str(self.folder), config={"threads": THREADS})

    def disconnect(self) -> None:
        self.connection.close()

    def new_session(self) -> DuckDbSession:
        return DuckDbSession(self.connection.cursor())

    def arrow_size(self, name: str) -> int:
        return int(self.connection.sql(self.TEXTS[name]).to_arrow_table().num_rows)

    def insert_people(self, people: Sequence[Params]) -> None:
        if len(people) == 1:
            self.connection.execute(INSERT_ONE, people[0])
        else:
            names = ", ".join(PROPERTIES)
            self._from_rows(people, f"INSERT INTO person({names}) SELECT {names} FROM people")

    def update_people(self, people: Sequence[Params]) -> None:
        changes = ", ".join(f"{name} = n.{name}" for name in PROPERTIES[1:])
        self._from_rows(people, f"UPDATE person SET {changes} FROM people n WHERE n.slug = person.slug")

    def _from_rows(self, people: Sequence[Params], text: str) -> None:
        import pyarrow as pa

        self.connection.register("people", pa.Table.from_pylist(people))
        self.connection.execute(text)
        self.connection.unregister("people")


class SqliteSession:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.connection.execute("PRAGMA cache_size = -1000000")
        # In WAL mode the default, NORMAL, may lose the last commits in a power cut.
        self.connection.execute("PRAGMA synchronous = FULL")

    def rows(self, name: str, params: Params) -> Rows:
        if name == "remove":
            self.connection.execute("BEGIN")
            self.connection.execute(Sqlite.TEXTS["remove edges"], params)
            self.connection.execute(Sqlite.TEXTS["remove"], params)
            self.connection.execute("COMMIT")
            return []
        return self.connection.execute(Sqlite.TEXTS[name], params).fetchall()

    def close(self) -> None:
        self.connection.close()


class Sqlite(SqliteLibrary, GraphSystem):
    PROGRAM = """
import sqlite3
rows = sqlite3.connect(store).execute(text, params).fetchall()
"""
    # Its way of saying which side is looked up for each row of the other; it can't know how few rows a level has.
    TEXTS = texts("CROSS JOIN")
    # Those of the friendships have all that a traversal reads.
    INDEXES = (
        MAIL,
        "CREATE INDEX knows_source ON knows(source, target)",
        "CREATE INDEX knows_target ON knows(target, source)",
        "CREATE INDEX person_city ON person(city, age DESC, slug)",
        "CREATE INDEX person_age ON person(age DESC, slug)",
    )
    session: SqliteSession

    @classmethod
    def text(cls, name: str) -> str:
        return cls.TEXTS[name]

    def create(self) -> None:
        self.open()
        self.session.connection.execute("PRAGMA journal_mode = WAL")
        for text in TABLES:
            self.session.connection.execute(text.format(number=""))

    def load_people(self) -> None:
        import pyarrow.parquet as pq

        people = pq.read_table(self.data / PEOPLE, columns=["number", *PROPERTIES]).to_pydict()
        self._insert("person", zip(*people.values(), strict=True), 5)
        self.session.connection.execute(KEY)

    def load_edges(self) -> None:
        import pyarrow.parquet as pq

        numbers = dict(self.session.connection.execute("SELECT slug, number FROM person"))
        knows = pq.read_table(self.data / KNOWS, columns=["source_slug", "target_slug"]).to_pydict()
        pairs = zip(*([numbers[key] for key in keys] for keys in knows.values()), strict=True)
        self._insert("knows", pairs, 2)

    def build_indexes(self) -> None:
        for text in (*self.INDEXES, "ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"):
            self.session.connection.execute(text)

    def _insert(self, table: str, rows: Any, columns: int) -> None:
        self._many(f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})", rows)

    def _many(self, text: str, rows: Any) -> None:
        self.session.connection.execute("BEGIN")
        self.session.connection.executemany(text, rows)
        self.session.connection.execute("COMMIT")

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def new_session(self) -> SqliteSession:
        return SqliteSession(sqlite3.connect(self.folder, timeout=60, isolation_level=None, check_same_thread=False))

    def insert_people(self, people: Sequence[Params]) -> None:
        self._many(INSERT_ONE, people)

    def update_people(self, people: Sequence[Params]) -> None:
        self._many("UPDATE person SET mail = $mail, age = $age, city = $city WHERE slug = $slug", people)
