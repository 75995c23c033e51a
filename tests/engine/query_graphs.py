"""Small graphs with a history, for tests of the read runtime: several commits, updates, deletes, partial indexes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn
from omnigraph.graph import Graph
from tests.support.lance_tables import build_index

SOCIAL = """
node Person {
  slug: String @key
  age: I32?
  score: F64?
  nick: String?
  tags: [String]?
  luck: [I32]?
  active: Bool?
  born: Date?
  seen: DateTime?
  big: I64?
  ratio: F32?
  count: U64?
  mood: enum(calm, wild)?
}
node City { slug: String @key  people: I64?  name: String? }
edge Knows: Person -> Person { since: I32?  note: String? }
edge Lives: Person -> City
edge Near: City -> City { km: F64? }
"""

MIXED = (
    SOCIAL
    + """
interface Titled { name: String?  rank: I32? }
node Club implements Titled { name: String?  rank: I32?  slug: String @key  motto: String? @index  vec: Vector(2)? }
node Band implements Titled { name: String?  rank: I32?  slug: String @key  tags: [String]?  age: F64? }
edge Likes: Person -> Person { since: I32? }
edge Visits: Person -> City { since: I64?  km: F32? }
edge Member: Person -> Club { since: I32?  @key(@src, @dst) }
edge Hosts: City -> Club { km: F64? }
edge Plays: Band -> Club
edge Rates: Person -> Titled { since: I32? }
edge Backs: Titled -> Titled { since: I32? }
"""
)

LIBRARY = """
interface Named { name: String? }
node Author implements Named { name: String?  slug: String @key  born: Date? }
node Book {
  slug: String @key
  title: String
  pages: I32?
  price: F64?
  status: enum(kept, lent, lost)?
  tags: [String]?
  bought: DateTime?
  cover: Blob?
  vec: Vector(2)?
}
node Reader implements Named { name: String?  slug: String @key  age: I32?  adult: Bool? }
edge WroteBy: Book -> Author
edge Borrowed: Reader -> Book { on: Date?  days: I32? }
edge Follows: Reader -> Reader { since: I32? }
"""

NAMES = ("ann", "bob", "cay", "dee", "eve", "fay", "gus", "hal")
TOWNS = ("ulm", "bonn", "kiel", "ann")  # a town may have the id of a person
WORDS = ("", "a", "ab", "b%", "Ab", "_b", "it's", "é", "z\\", "ann")
MOTTOS = ("zorb", "quix zorb", "blem quix", "vint")
WHOLE = (-3, 0, 1, 2, 5, 2**31 - 1)
BIG = (-(2**63), -1, 0, 7, 2**53, 2**53 + 1, 2**63 - 1)
EXACT = (-1.5, -0.0, 0.0, 0.25, 2.0, 2.5, 9007199254740992.0)
DAYS = (-1, 0, 18_000, 19_844)
INSTANTS = (-1, 0, 1_714_557_600_123)


def node(type_name: str, slug: str, **data: Any) -> str:
    return json.dumps({"type": type_name, "data": {"slug": slug, **data}})


def edge(type_name: str, source: str, target: str, **data: Any) -> str:
    return json.dumps({"edge": type_name, "from": source, "to": target, "data": data})


def person(slug: str, random_: random.Random) -> str:
    def maybe(*values: Any) -> Any:
        return None if random_.random() < 0.3 else random_.choice(values)

    data = {
        "age": maybe(*WHOLE),
        "score": maybe(*EXACT),
        "nick": maybe(*WORDS),
        "tags": maybe([], random_.sample(WORDS, 2), [random_.choice(WORDS)]),
        "luck": maybe([], random_.sample(WHOLE, 3)),
        "active": maybe(True, False),
        "born": maybe(*DAYS),
        "seen": maybe(*INSTANTS),
        "big": maybe(*BIG),
        "ratio": maybe(0.1, -0.5, 2.0, 0.0),
        "count": maybe(0, 3, 2**63, 2**64 - 1),
        "mood": maybe("calm", "wild"),
    }
    return node("Person", slug, **data)


def social_graph(
    path: Path, seed: int, read: Callable[[Graph], None] = lambda graph: None, schema: str = SOCIAL
) -> Graph:
    """A random graph that was loaded in pieces, updated, thinned out and indexed in part; `read` after each commit."""
    random_ = random.Random(seed)
    graph = Graph.init(path, schema)
    people = random_.sample(NAMES, random_.randint(3, 7))
    towns = random_.sample(TOWNS, random_.randint(1, 3))
    lines = [person(slug, random_) for slug in people]
    lines += [node("City", t, people=random_.choice((None, *BIG)), name=random_.choice(WORDS)) for t in towns]
    graph.load("\n".join(lines), mode="append")
    read(graph)
    serial = 0
    for _ in range(random_.randint(1, 3)):
        lines = []
        for _ in range(random_.randint(1, 8)):
            serial += 1
            # Ids descend, so that their order is never the order in which edges were stored.
            name = f"e{99 - serial:02d}"
            kind = random_.random()
            if kind < 0.6:
                ends = (random_.choice(people), random_.choice(people))
                values = {"since": random_.choice((None, 1, 2)), "note": random_.choice((None, *WORDS))}
                lines.append(edge("Knows", *ends, id=name, **values))
            elif kind < 0.8:
                lines.append(edge("Lives", random_.choice(people), random_.choice(towns), id=name))
            else:
                ends = (random_.choice(towns), random_.choice(towns))
                lines.append(edge("Near", *ends, id=name, km=random_.choice((None, 1.0, 2.5))))
        graph.load("\n".join(lines), mode="append")
        if random_.random() < 0.5:
            build_indexes(graph)
        read(graph)
    graph.load(person(people[0], random_), mode="merge")
    read(graph)
    if random_.random() < 0.5:
        gone = "query q($s: String) { delete Person where slug = $s }"
        graph.mutate(gone, params={"s": people[-1]})
        read(graph)
    return graph


def mixed_graph(path: Path, seed: int, read: Callable[[Graph], None] = lambda graph: None) -> Graph:
    """A social graph with clubs, bands and more edges. Some of it was written on a branch and merged, and every other
    graph is optimized in the end."""
    random_ = random.Random(seed)
    graph = social_graph(path, seed, read, MIXED)
    scan = lambda key: graph.snapshot().scan(key, ["id"]).column(0).to_pylist()  # noqa: E731
    people, towns = scan("node:Person"), scan("node:City")
    clubs, bands = ["zoo", "ann", "ulm"], ["ann", "duo"]

    def maybe(*values: Any) -> Any:
        return None if random_.random() < 0.3 else random_.choice(values)

    lines = [
        node(
            "Club",
            slug,
            name=maybe(*WORDS),
            rank=maybe(1, 2, 5),
            motto=maybe(*MOTTOS),
            vec=maybe([0.0, 1.0], [2.0, 2.0]),
        )
        for slug in clubs
    ]
    lines += [node("Band", slug, name=maybe(*WORDS), rank=maybe(1, 2), tags=maybe([], ["a", "ann"])) for slug in bands]
    graph.load("\n".join(lines), mode="append")
    ends = {"Likes": (people, people), "Visits": (people, towns), "Hosts": (towns, clubs), "Plays": (bands, clubs)}
    values = {"Likes": lambda: {"since": maybe(1, 2)}, "Hosts": lambda: {"km": maybe(1.0, 2.5)}}
    values["Visits"] = lambda: {"since": maybe(1, 2**40), "km": maybe(0.5, 0.1)}

    def more(count: int, prefix: str) -> str:
        made = []
        for number in range(count):
            kind = random_.choice(list(ends))
            source, target = map(random_.choice, ends[kind])
            made.append(edge(kind, source, target, id=f"{prefix}{99 - number}", **values.get(kind, dict)()))
        members = {(random_.choice(people), random_.choice(clubs)) for _ in range(2)}
        return "\n".join([*made, *(edge("Member", *pair, since=maybe(1, 2)) for pair in sorted(members))])

    graph.load(more(8, "f"), mode="merge")
    read(graph)
    graph.create_branch("side")
    graph.load(more(4, "g"), mode="merge", branch="side")
    graph.load(person(people[-1], random_), mode="merge", branch="side")
    graph.load(node("Club", "zoo", rank=7), mode="merge")
    graph.merge("side", "main")
    read(graph)
    _add_edges_to_titled(graph, random.Random(seed), people, {"Club": clubs, "Band": bands}, read)
    if seed % 2:
        graph.maintenance.optimize()
    return graph


def _add_edges_to_titled(
    graph: Graph,
    random_: random.Random,
    people: list[str],
    titled: dict[str, list[str]],
    read: Callable[[Graph], None],
) -> None:
    """Edges with an interface at an end. A club has the id of a band."""

    def end(name: str) -> dict[str, str]:
        type_name = random_.choice(list(titled))
        return {name: random_.choice(titled[type_name]), f"{name}_type": type_name}

    def record(kind: str, number: int) -> str:
        source = {"from": random_.choice(people)} if kind == "Rates" else end("from")
        data = {"id": f"t{99 - number}", "since": random_.choice((None, 1, 2))}
        return json.dumps({"edge": kind, **source, **end("to"), "data": data})

    for first in (0, 10):
        kinds = random_.choices(("Rates", "Backs"), (2, 3), k=random_.randint(2, 8))
        graph.load("\n".join(record(kind, first + number) for number, kind in enumerate(kinds)), mode="append")
        read(graph)
    if random_.random() < 0.5:
        graph.mutate("query m() { delete Rates where since = 1 }")
        graph.mutate('query m() { delete Backs where to = "duo" }')
        read(graph)
        # A node that goes, and comes back without its edges.
        graph.mutate('query m() { delete Club where slug = "ann" }')
        graph.load(node("Club", "ann", name="Ab", rank=2), mode="append")
        read(graph)


def library_graph(path: Path) -> Graph:
    """Three readers: r1 has borrowed b1, which is lost, and b2, which is lent; r2 has borrowed b2; r3 nothing. b3 was
    never borrowed. r1 follows r2 twice."""
    graph = Graph.init(path, LIBRARY)
    lines = [
        node("Author", "ann", name="Ann", born="1950-01-02"),
        node("Author", "bob", name="Bob"),
        node("Book", "b1", title="One", pages=100, price=1.5, status="lost", tags=["x", "y"], vec=[0.0, 1.0]),
        node("Book", "b2", title="Two", status="lent", tags=[], bought="2020-01-01T00:00:00Z", cover="base64:aGk="),
        node("Book", "b3", title="Three", pages=300, price=0.5, vec=[1.0, 1.0]),
        node("Reader", "r1", name="Rita", age=30, adult=True),
        node("Reader", "r2", name="Rob", adult=False),
        node("Reader", "r3", name="Rex", age=17),
        edge("WroteBy", "b1", "ann", id="w1"),
        edge("WroteBy", "b2", "bob", id="w2"),
        edge("WroteBy", "b3", "ann", id="w3"),
        edge("Borrowed", "r1", "b1", id="l1", on="2024-01-01", days=1),
        edge("Borrowed", "r1", "b2", id="l2", on="2024-02-01", days=2),
        edge("Borrowed", "r2", "b2", id="l3", days=5),
        edge("Follows", "r1", "r2", id="e1", since=1),
        edge("Follows", "r2", "r3", id="e2", since=2),
        edge("Follows", "r3", "r1", id="e3", since=3),
        edge("Follows", "r1", "r2", id="e6", since=6),
    ]
    graph.load("\n".join(lines), mode="append")
    return graph


def build_indexes(graph: Graph) -> None:
    """Ordered indexes on every id and endpoint, covering what is stored now."""

    def prepare(txn: WriteTxn) -> PublishPlan:
        staged = {}
        for key, state in txn.base.tables.items():
            if not state.rows:
                continue
            for column in ("id", "src", "dst") if key.startswith("edge:") else ("id",):
                staged[key] = build_index(txn.root, state, column, "BTREE", f"{column}_btree")
                state = staged[key].state
        return PublishPlan(staged=staged)

    graph._workspace.commit("main", prepare, Intent(kind="index"))
