"""The systems of `bench_query`, each used as its authors would have it used.

Every system gets the same people and friendships. Users know people by a text key (`slug`), so every question begins
with one; behind it each system is free to link rows by whatever it likes best. Kuzu has a hash index on the key and
its own adjacency; DuckDB and SQLite get native tables that are linked by integers, with indexes on both ends.
OmniGraph is used through its public API and its query language only. All of them commit durably.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.contest import Contender

PEOPLE, KNOWS = "people.parquet", "knows.parquet"
SECONDS_PER_COMMIT = 0.05
"""The pace of whoever writes beside a reader: the same for everybody, and one that everybody can keep."""

Edge = tuple[str, str]


class GraphSystem(Contender):
    """What is asked of every system. Answers are plain numbers and lists, equal for all of them."""

    @property
    def data(self) -> Path:
        return self.folder.parent

    def lookup(self, keys: list[str]) -> list[list[Any]]:
        """Two properties of each person, person by person."""
        return [self.person(key) for key in keys]

    def person(self, key: str) -> list[Any]:
        raise NotImplementedError

    def by_mail(self, mails: list[str]) -> list[str]:
        """The keys of the people who have these addresses: equality on an indexed text that is no key."""
        raise NotImplementedError

    def hops(self, keys: list[str], most: int) -> list[int]:
        """How many others each person reaches in one to `most` steps."""
        return [self.reached(key, most) for key in keys]

    def reached(self, key: str, most: int) -> int:
        raise NotImplementedError

    def friends_of_friends(self, key: str) -> int:
        """Key and age of everybody within two steps, as Python values; the answer is their number."""
        raise NotImplementedError

    def paths(self) -> int:
        """How many pairs of friendships follow each other, in the whole graph."""
        raise NotImplementedError

    def by_city(self) -> list[list[Any]]:
        """Per city, how many friendships lead to its people, and the average age of those who have them."""
        raise NotImplementedError

    def befriend(self, edges: list[Edge]) -> None:
        """Each edge as a commit of its own."""
        raise NotImplementedError

    # A writer beside the reader

    def begin_writing(self, edges: list[Edge]) -> None:
        """Commit an edge now and then until told to stop. In a process of its own, where a system allows two."""
        spawn = multiprocessing.get_context("spawn")
        self._stop: Any = spawn.Event()
        began = spawn.Event()
        self._writer: Any = spawn.Process(target=_write, args=(type(self), self.folder, edges, began, self._stop))
        self._writer.start()
        began.wait()

    def _write_in_a_thread(self, befriend: Callable[[list[Edge]], None], edges: list[Edge]) -> None:
        """For systems of which one process at a time may have the data open for writing."""
        self._stop = threading.Event()
        self._writer = threading.Thread(target=_write_until, args=(befriend, edges, self._stop))
        self._writer.start()

    def stop_writing(self) -> None:
        self._stop.set()
        self._writer.join()


def _write(system: type[GraphSystem], folder: Path, edges: list[Edge], began: Any, stop: Any) -> None:
    writer = system(folder)
    writer.open()
    writer.befriend(edges[:1])
    began.set()
    _write_until(writer.befriend, edges[1:], stop)
    writer.close()


def _write_until(befriend: Callable[[list[Edge]], None], edges: list[Edge], stop: Any) -> None:
    for edge in edges:
        if stop.wait(SECONDS_PER_COMMIT):
            return
        befriend([edge])


class OmniGraph(GraphSystem):
    name = "omnigraph"

    SCHEMA = """
    node Person { slug: String @key  mail: String @index  age: I32  city: String }
    edge Knows: Person -> Person
    """
    QUERIES = """
    query person($k: String) { match { $p: Person { slug: $k } } return { $p.age as age, $p.city as city } }
    query mail($m: String) { match { $p: Person { mail: $m } } return { $p.slug as slug } }
    query hops1($k: String) { match { $p: Person { slug: $k }  $p knows{1,1} $x } return { count($x) as n } }
    query hops2($k: String) { match { $p: Person { slug: $k }  $p knows{1,2} $x } return { count($x) as n } }
    query hops3($k: String) { match { $p: Person { slug: $k }  $p knows{1,3} $x } return { count($x) as n } }
    query hops4($k: String) { match { $p: Person { slug: $k }  $p knows{1,4} $x } return { count($x) as n } }
    query friends($k: String) {
        match { $p: Person { slug: $k }  $p knows{1,2} $x } return { $x.slug as slug, $x.age as age }
    }
    query paths() { match { $a: Person  $a knows $b  $b knows $c } return { count($c) as n } }
    query cities() {
        match { $a: Person  $a knows $b }
        return { $b.city as city, count($a) as n, avg($a.age) as age }
        order { city }
    }
    query befriend($a: String, $b: String) { insert Knows { from: $a, to: $b } }
    """

    def build(self) -> None:
        import pyarrow.parquet as pq

        import omnigraph

        graph = omnigraph.init(self.folder, self.SCHEMA)
        records = self.data / "records.ndjson"
        people = pq.read_table(self.data / PEOPLE).drop(["number"]).to_pylist()
        with records.open("w") as file:
            file.writelines(json.dumps({"type": "Person", "data": person}) + "\n" for person in people)
        graph.load(records, mode="append")
        knows = pq.read_table(self.data / KNOWS, columns=["source_slug", "target_slug"]).to_pydict()
        with records.open("w") as file:
            for source, target in zip(knows["source_slug"], knows["target_slug"], strict=True):
                file.write(json.dumps({"edge": "Knows", "from": source, "to": target}) + "\n")
        graph.load(records, mode="append")
        records.unlink()
        graph.maintenance.optimize()
        graph.close()

    def open(self) -> None:
        import omnigraph

        self.graph = omnigraph.open(self.folder)

    def close(self) -> None:
        self.graph.close()

    def _rows(self, name: str, **params: object) -> list[dict[str, Any]]:
        return self.graph.query(self.QUERIES, name, params).to_arrow().to_pylist()

    def person(self, key: str) -> list[Any]:
        (row,) = self._rows("person", k=key)
        return [row["age"], row["city"]]

    def by_mail(self, mails: list[str]) -> list[str]:
        return [row["slug"] for mail in mails for row in self._rows("mail", m=mail)]

    def reached(self, key: str, most: int) -> int:
        return int(self._rows(f"hops{most}", k=key)[0]["n"])

    def friends_of_friends(self, key: str) -> int:
        return len(self._rows("friends", k=key))

    def paths(self) -> int:
        return int(self._rows("paths")[0]["n"])

    def by_city(self) -> list[list[Any]]:
        return [[row["city"], row["n"], round(row["age"], 3)] for row in self._rows("cities")]

    def befriend(self, edges: list[Edge]) -> None:
        for a, b in edges:
            self.graph.mutate(self.QUERIES, "befriend", {"a": a, "b": b})


class Kuzu(GraphSystem):
    """Variable-length paths as plain walks, `*1..n`, of which the distinct ends are counted."""

    name = "kuzu"
    module = "kuzu"
    REACHED = "MATCH (a:Person {{slug: $k}})-[:Knows*1..{most}]->(b:Person) WHERE b.slug <> $k"

    def build(self) -> None:
        import kuzu

        connection = kuzu.Connection(kuzu.Database(str(self.folder)))
        connection.execute(
            "CREATE NODE TABLE Person(slug STRING PRIMARY KEY, mail STRING, age INT32, city STRING, number INT64)"
        )
        connection.execute("CREATE REL TABLE Knows(FROM Person TO Person)")
        connection.execute(f'COPY Person FROM (LOAD FROM "{self.data / PEOPLE}" RETURN slug, mail, age, city, number)')
        connection.execute(f'COPY Knows FROM (LOAD FROM "{self.data / KNOWS}" RETURN source_slug, target_slug)')

    def open(self) -> None:
        import kuzu

        self.database = kuzu.Database(str(self.folder))
        self.connection = kuzu.Connection(self.database)
        self.prepared: dict[str, Any] = {}

    def close(self) -> None:
        self.connection.close()
        self.database.close()

    def _rows(self, text: str, **params: object) -> list[list[Any]]:
        if text not in self.prepared:
            self.prepared[text] = self.connection.prepare(text)
        return self.connection.execute(self.prepared[text], params).get_all()

    def person(self, key: str) -> list[Any]:
        return list(self._rows("MATCH (p:Person {slug: $k}) RETURN p.age, p.city", k=key)[0])

    def by_mail(self, mails: list[str]) -> list[str]:
        """Kuzu has no secondary index; it scans the column."""
        return [row[0] for mail in mails for row in self._rows("MATCH (p:Person {mail: $m}) RETURN p.slug", m=mail)]

    def reached(self, key: str, most: int) -> int:
        return int(self._rows(f"{self.REACHED.format(most=most)} RETURN count(DISTINCT b.number)", k=key)[0][0])

    def friends_of_friends(self, key: str) -> int:
        return len(self._rows(f"{self.REACHED.format(most=2)} RETURN DISTINCT b.slug, b.age", k=key))

    def paths(self) -> int:
        return int(self._rows("MATCH (:Person)-[:Knows]->(:Person)-[:Knows]->(:Person) RETURN count(*)")[0][0])

    def by_city(self) -> list[list[Any]]:
        text = "MATCH (a:Person)-[:Knows]->(b:Person) RETURN b.city, count(*), avg(a.age) ORDER BY b.city"
        return [[city, n, round(age, 3)] for city, n, age in self._rows(text)]

    def befriend(self, edges: list[Edge]) -> None:
        text = "MATCH (a:Person {slug: $a}), (b:Person {slug: $b}) CREATE (a)-[:Knows]->(b)"
        for a, b in edges:
            self._rows(text, a=a, b=b)

    def begin_writing(self, edges: list[Edge]) -> None:
        import kuzu

        connection = kuzu.Connection(self.database)
        text = "MATCH (a:Person {slug: $a}), (b:Person {slug: $b}) CREATE (a)-[:Knows]->(b)"

        def befriend(some: list[Edge]) -> None:
            for a, b in some:
                connection.execute(text, {"a": a, "b": b})

        self._write_in_a_thread(befriend, edges)


class KuzuShortest(Kuzu):
    """The same over shortest paths, which Kuzu evaluates as a breadth-first search: cheaper for many hops."""

    name = "kuzu, shortest paths"
    REACHED = "MATCH (a:Person {{slug: $k}})-[:Knows* SHORTEST 1..{most}]->(b:Person) WHERE b.slug <> $k"


class Relational(GraphSystem):
    """What DuckDB and SQLite share: people by number, friendships as pairs of numbers, indexes on both ends."""

    TABLES = (
        "CREATE TABLE person(number INTEGER PRIMARY KEY, slug VARCHAR, mail VARCHAR, age INTEGER, city VARCHAR)",
        "CREATE TABLE knows(source INTEGER NOT NULL, target INTEGER NOT NULL)",
    )
    INDEXES = (
        "CREATE UNIQUE INDEX person_slug ON person(slug)",
        "CREATE INDEX person_mail ON person(mail)",
        "CREATE INDEX knows_source ON knows(source)",
        "CREATE INDEX knows_target ON knows(target)",
    )
    BEFRIEND = "INSERT INTO knows SELECT a.number, b.number FROM person a, person b WHERE a.slug = ? AND b.slug = ?"

    def _rows(self, text: str, *params: object) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def person(self, key: str) -> list[Any]:
        return list(self._rows("SELECT age, city FROM person WHERE slug = ?", key)[0])

    def by_mail(self, mails: list[str]) -> list[str]:
        return [row[0] for mail in mails for row in self._rows("SELECT slug FROM person WHERE mail = ?", mail)]

    JOIN = "JOIN"

    def _reached(self, most: int) -> str:
        """Each level once, then all of them, each node once per level: less work than a recursive query."""
        levels = ["hop1 AS (SELECT DISTINCT target FROM knows WHERE source = (SELECT number FROM start))"]
        levels += [
            f"hop{n} AS (SELECT DISTINCT k.target FROM hop{n - 1} h {self.JOIN} knows k ON k.source = h.target)"
            for n in range(2, most + 1)
        ]
        union = " UNION ".join(f"SELECT target FROM hop{n}" for n in range(1, most + 1))
        return (
            f"WITH start AS (SELECT number FROM person WHERE slug = ?), {', '.join(levels)}, "
            f"reached AS ({union} EXCEPT SELECT number FROM start)"
        )

    def reached(self, key: str, most: int) -> int:
        return int(self._rows(f"{self._reached(most)} SELECT count(*) FROM reached", key)[0][0])

    def friends_of_friends(self, key: str) -> int:
        text = f"{self._reached(2)} SELECT p.slug, p.age FROM reached r {self.JOIN} person p ON p.number = r.target"
        return len(self._rows(text, key))

    def paths(self) -> int:
        """By degrees: a join of all pairs would be ten times the work."""
        text = (
            "SELECT sum(a.n * b.n) FROM (SELECT target, count(*) n FROM knows GROUP BY target) a "
            "JOIN (SELECT source, count(*) n FROM knows GROUP BY source) b ON a.target = b.source"
        )
        return int(self._rows(text)[0][0])

    def by_city(self) -> list[list[Any]]:
        text = (
            "SELECT b.city, count(*), avg(a.age) FROM knows k JOIN person a ON a.number = k.source "
            "JOIN person b ON b.number = k.target GROUP BY b.city ORDER BY b.city"
        )
        return [[city, n, round(age, 3)] for city, n, age in self._rows(text)]

    def befriend(self, edges: list[Edge]) -> None:
        for edge in edges:
            self._rows(self.BEFRIEND, *edge)


class DuckDb(Relational):
    name = "duckdb"
    module = "duckdb"

    def build(self) -> None:
        import duckdb

        with duckdb.connect(str(self.folder)) as connection:
            for text in self.TABLES:
                connection.execute(text)
            columns = "number, slug, mail, age, city"
            connection.execute(f"INSERT INTO person SELECT {columns} FROM '{self.data / PEOPLE}'")
            # In the order of the sources: its zone maps then skip most row groups.
            connection.execute(f"INSERT INTO knows SELECT source, target FROM '{self.data / KNOWS}' ORDER BY source")
            for text in self.INDEXES:
                connection.execute(text)
            connection.execute("CHECKPOINT")

    def open(self) -> None:
        import duckdb

        self.connection = duckdb.connect(str(self.folder))

    def close(self) -> None:
        self.connection.close()

    def _rows(self, text: str, *params: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(text, params).fetchall()

    def begin_writing(self, edges: list[Edge]) -> None:
        cursor = self.connection.cursor()

        def befriend(some: list[Edge]) -> None:
            for edge in some:
                cursor.execute(self.BEFRIEND, edge)

        self._write_in_a_thread(befriend, edges)


class Sqlite(Relational):
    name = "sqlite"
    # Its way of saying which side is looked up for each row of the other; it can't know how few rows a level has.
    JOIN = "CROSS JOIN"

    def build(self) -> None:
        import pyarrow.parquet as pq

        with self._connected() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            for text in self.TABLES:
                connection.execute(text)
            people = pq.read_table(self.data / PEOPLE, columns=["number", "slug", "mail", "age", "city"]).to_pydict()
            connection.executemany("INSERT INTO person VALUES (?, ?, ?, ?, ?)", zip(*people.values(), strict=True))
            knows = pq.read_table(self.data / KNOWS, columns=["source", "target"]).to_pydict()
            connection.executemany("INSERT INTO knows VALUES (?, ?)", zip(*knows.values(), strict=True))
            for text in self.INDEXES:
                connection.execute(text)
            connection.execute("ANALYZE")

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self.folder)) as connection, connection:
            yield connection

    def open(self) -> None:
        self.connection = sqlite3.connect(self.folder, timeout=60)
        self.connection.execute("PRAGMA cache_size = -1000000")
        # In WAL mode the default, NORMAL, may lose the last commits in a power cut.
        self.connection.execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        self.connection.close()

    def _rows(self, text: str, *params: object) -> list[tuple[Any, ...]]:
        with self.connection:
            return self.connection.execute(text, params).fetchall()


SYSTEMS: tuple[type[GraphSystem], ...] = (OmniGraph, Kuzu, KuzuShortest, DuckDb, Sqlite)
