"""Ladybug and Kuzu, which it continues, in the graph benchmarks: one interface, two modules.

Both have a hash index on the key and an adjacency of their own; every text is prepared once per connection. Paths of
variable length are asked for as plain walks, `*1..n`, of which the distinct ends are counted, and as shortest paths, a
breadth-first search, which is cheaper for many hops.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from benchmarks.contest import THREADS
from benchmarks.graph_systems import KNOWS, PEOPLE, OneProcess, Params, Rows

WALKED = "MATCH (a:Person {{slug: $k}})-[:Knows*1..{most}]->(b:Person) WHERE b.slug <> $k"
SHORTEST = "MATCH (a:Person {{slug: $k}})-[:Knows* SHORTEST 1..{most}]->(b:Person) WHERE b.slug <> $k"
WAY = "by shortest paths"

TEXTS = {
    "person": "MATCH (p:Person {slug: $k}) RETURN p.age, p.city",
    "mail": "MATCH (p:Person {mail: $m}) RETURN p.slug",
    "in_city": "MATCH (p:Person) WHERE p.city = $c AND p.age > $a"
    " RETURN p.slug, p.age ORDER BY p.age DESC, p.slug LIMIT 10",
    "older": "MATCH (p:Person) WHERE p.age > $a RETURN p.slug, p.age ORDER BY p.age DESC, p.slug LIMIT 10",
    "count_older": "MATCH (p:Person) WHERE p.age >= $a RETURN count(*)",
    "cities": "MATCH (p:Person) RETURN p.city, count(*), avg(p.age)",
    "friends_by_city": "MATCH (a:Person)-[:Knows]->(b:Person) RETURN b.city, count(*), avg(a.age)",
    "city_pairs": "MATCH (a:Person)-[:Knows]->(b:Person)"
    " RETURN a.city, b.city, count(*) AS n ORDER BY n DESC, a.city, b.city LIMIT 20",
    "friends": f"{WALKED.format(most=2)} RETURN DISTINCT b.slug, b.age",
    f"friends {WAY}": f"{SHORTEST.format(most=2)} RETURN DISTINCT b.slug, b.age",
    "paths": "MATCH (:Person)-[:Knows]->(:Person)-[:Knows]->(:Person) RETURN count(*)",
    "degrees": "MATCH (:Person)-[:Knows]->(b:Person) RETURN b.slug, count(*) AS n ORDER BY n DESC, b.slug LIMIT 10",
    "triangles": "MATCH (a:Person)-[:Knows]->(b:Person)-[:Knows]->(c:Person)-[:Knows]->(a) RETURN count(*)",
    "everybody": "MATCH (p:Person) RETURN p.slug, p.mail, p.age, p.city",
    "befriend": "MATCH (a:Person {slug: $k}), (b:Person {slug: $o}) CREATE (a)-[:Knows]->(b)",
    "age": "MATCH (p:Person {slug: $k}) SET p.age = $a",
    "remove": "MATCH (p:Person {slug: $k}) DETACH DELETE p",
    "insert": "UNWIND $people AS p CREATE (:Person {slug: p.slug, mail: p.mail, age: p.age, city: p.city})",
    "update": "UNWIND $people AS n MATCH (p:Person {slug: n.slug}) SET p.mail = n.mail, p.age = n.age, p.city = n.city",
}
for most in (1, 2, 3, 4):
    TEXTS[f"hops{most}"] = f"{WALKED.format(most=most)} RETURN count(DISTINCT b.number)"
    TEXTS[f"hops{most} {WAY}"] = f"{SHORTEST.format(most=most)} RETURN count(DISTINCT b.number)"


class CypherSession:
    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.prepared: dict[str, Any] = {}

    def result(self, name: str, params: Params) -> Any:
        if name not in self.prepared:
            self.prepared[name] = self.connection.prepare(TEXTS[name])
        return self.connection.execute(self.prepared[name], dict(params))

    def rows(self, name: str, params: Params) -> Rows:
        rows: Rows = self.result(name, params).get_all()
        return rows

    def close(self) -> None:
        self.connection.close()


class Ladybug(OneProcess):
    name = "ladybug"
    module = "ladybug"
    PROGRAM = """
import ladybug
rows = ladybug.Connection(ladybug.Database(store)).execute(text, params).get_all()
"""
    session: CypherSession

    @classmethod
    def text(cls, name: str) -> str:
        return TEXTS[name]

    @classmethod
    def other_ways(cls, call: str, arguments: Sequence[Any]) -> dict[str, Sequence[Any]]:
        name = f"{arguments[0]} {WAY}" if call == "read" else ""
        return {WAY.removeprefix("by "): (name, *arguments[1:])} if name in TEXTS else {}

    def create(self) -> None:
        self.open()
        people = "slug STRING PRIMARY KEY, mail STRING, age INT32, city STRING, number INT64"
        self.session.connection.execute(f"CREATE NODE TABLE Person({people})")
        self.session.connection.execute("CREATE REL TABLE Knows(FROM Person TO Person)")

    def load_people(self) -> None:
        columns = "slug, mail, age, city, number"
        self.session.connection.execute(f'COPY Person FROM (LOAD FROM "{self.data / PEOPLE}" RETURN {columns})')

    def load_edges(self) -> None:
        text = f'COPY Knows FROM (LOAD FROM "{self.data / KNOWS}" RETURN source_slug, target_slug)'
        self.session.connection.execute(text)
        self.session.connection.execute("CHECKPOINT")

    def connect(self) -> None:
        self.library = importlib.import_module(self.module)
        self.database = self.library.Database(str(self.folder))

    def disconnect(self) -> None:
        self.database.close()

    def new_session(self) -> CypherSession:
        return CypherSession(self.library.Connection(self.database, num_threads=THREADS))

    def arrow_size(self, name: str) -> int:
        return int(self.session.result(name, {}).get_as_arrow().num_rows)

    def insert_people(self, people: Sequence[Params]) -> None:
        self.session.rows("insert", {"people": people})

    def update_people(self, people: Sequence[Params]) -> None:
        self.session.rows("update", {"people": people})


class Kuzu(Ladybug):
    name = "kuzu"
    module = "kuzu"
    PROGRAM = Ladybug.PROGRAM.replace("ladybug", "kuzu")
