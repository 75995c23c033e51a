"""Reading the past and reading beside writers: every read sees exactly one state."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from omnigraph.api import wire
from omnigraph.engine.query.read import ReadOptions
from omnigraph.errors import BadRequestError, NotFoundError, OmniGraphError
from omnigraph.graph import Graph
from omnigraph.language.catalog import Catalog, NodeType, Property
from omnigraph.language.types import PropertyType, Scalar
from tests.engine.query_graphs import edge, node
from tests.support.waiting import GIVE_UP

SCHEMA = """
node Person { slug: String @key  age: I32?  born: Date?  seen: DateTime?  tags: [Date]?  face: Blob? }
edge Knows: Person -> Person { since: I32? }
"""
AGES = "query q() { match { $p: Person } return { $p.slug as s, $p.age as a } order { s } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "g", SCHEMA) as made:
        made.load(node("Person", "ann", age=1), mode="append")
        yield made


def ages(graph: Graph, **state: Any) -> list[tuple[str, int | None]]:
    return [(row["s"], row["a"]) for row in graph.query(AGES, **state).rows()]


def test_every_way_of_naming_a_state(graph: Graph) -> None:
    first = graph.snapshot()
    between = datetime.now(UTC)
    graph.create_branch("side")
    graph.load(node("Person", "ann", age=2), mode="merge")
    graph.load(node("Person", "bob"), mode="append", branch="side")
    old = [("ann", 1)]
    assert ages(graph) == [("ann", 2)]
    assert ages(graph, branch="side") == [("ann", 1), ("bob", None)]
    assert ages(graph, snapshot=first.commit_id) == old
    assert ages(graph, version=first.version) == old
    assert ages(graph, branch="side", version=first.version) == old
    assert ages(graph, at=between) == old
    assert [row["a"] for row in graph.query(AGES, version=first.version).rows()] == [1]
    assert [row["a"] for row in first.query(AGES).rows()] == [1]


def test_a_result_names_the_commit_it_saw(graph: Graph) -> None:
    pinned = graph.resolve_snapshot()
    graph.load(node("Person", "bob"), mode="append")
    now, then = graph.query(AGES), graph.query(AGES, snapshot=pinned)
    assert now.graph_commit_id == graph.resolve_snapshot() != pinned
    assert (then.graph_commit_id, then.target.branch, then.target.snapshot) == (pinned, None, pinned)
    assert graph.version_of(snapshot=pinned) == graph.version_of() - 1


def test_at_most_one_way_is_given(graph: Graph) -> None:
    with pytest.raises(BadRequestError, match="at most one"):
        graph.query(AGES, version=1, at=datetime.now(UTC))


@pytest.mark.parametrize("state", [{"version": 99}, {"branch": "nowhere"}, {"snapshot": "0" * 26}])
def test_a_state_that_never_was(graph: Graph, state: dict[str, Any]) -> None:
    with pytest.raises(OmniGraphError) as raised:
        graph.query(AGES, **state)
    assert isinstance(raised.value, NotFoundError | BadRequestError)


def test_an_entity_now_and_then(graph: Graph) -> None:
    version = graph.version_of()
    full = {
        "age": 2,
        "born": "1970-01-02",
        "seen": "1970-01-01T00:00:01Z",
        "tags": ["1970-01-03"],
        "face": "base64:aGk=",
    }
    graph.load(node("Person", "ann", **full), mode="merge")
    graph.load(edge("Knows", "ann", "ann", id="k1"), mode="append")
    assert graph.entity("node:Person", "ann") == {
        "id": "ann",
        "slug": "ann",
        "age": 2,
        "born": 1,
        "seen": 1000,
        "tags": [2],
        "face": "base64:aGk=",
    }
    then = graph.entity("node:Person", "ann", version=version)
    assert then is not None
    assert (then["age"], then["born"], then["face"]) == (1, None, None)
    assert graph.entity("edge:Knows", "k1") == {"id": "k1", "src": "ann", "dst": "ann", "since": None}
    assert graph.entity("node:Person", "nobody") is None
    for unknown in ("node:Persn", "Persn"):
        with pytest.raises(BadRequestError, match=f"the graph has no type '{unknown}'; did you mean 'Person'"):
            graph.entity(unknown, "ann")


def with_property(catalog: Catalog, name: str) -> Catalog:
    """The catalog after a property was declared on Person."""
    person = catalog.nodes["Person"]
    later = Property(name=name, id=catalog.next_id, type=PropertyType(Scalar.STRING, nullable=True), column=name)
    changed: NodeType = msgspec.structs.replace(person, property_list=(*person.property_list, later))
    return Catalog({**catalog.nodes, "Person": changed}, catalog.edges, catalog.interfaces, catalog.next_id + 1)


def test_a_property_declared_later_reads_as_null_and_is_noted(graph: Graph) -> None:
    options = ReadOptions(catalog=with_property(graph.catalog, "mood"))
    text = "query q() { match { $p: Person } return { $p.mood as m, $p.age as a } order { $p.mood } }"
    result = graph.query(text, options=options)
    assert result.rows() == [{"m": None, "a": 1}]
    assert any("Person.mood does not exist at this snapshot" in line for line in result.profile.lines())
    filtered = 'query q() { match { $p: Person  $p.mood != "x" } return { $p.age } }'
    assert graph.query(filtered, options=options).rows() == []


def test_a_later_name_of_a_type_finds_its_old_data(graph: Graph) -> None:
    catalog = graph.catalog
    human = msgspec.structs.replace(catalog.nodes["Person"], name="Human")
    renamed = Catalog({"Human": human}, {}, {}, catalog.next_id)
    text = "query q() { match { $p: Human } return { $p.slug as s } }"
    assert graph.query(text, options=ReadOptions(catalog=renamed)).rows() == [{"s": "ann"}]
    fresh = Catalog({"Human": msgspec.structs.replace(human, id=999)}, {}, {}, 1000)
    with pytest.raises(BadRequestError, match="does not exist at this snapshot"):
        graph.query(text, options=ReadOptions(catalog=fresh))


def test_readers_beside_writers_never_see_half_a_commit(graph: Graph) -> None:
    """Each commit adds one person and one edge from it to itself; a reader must find equally many of both."""
    stop = threading.Event()
    failures: list[str] = []

    def write() -> None:
        for i in range(12):
            graph.load("\n".join((node("Person", f"p{i}"), edge("Knows", f"p{i}", f"p{i}"))), mode="append")
        stop.set()

    def read() -> None:
        loops = "query q() { match { $p: Person  $p knows $p } return { count($p) as n } }"
        while not stop.is_set():
            snapshot = graph.snapshot()
            people, selves = snapshot.count("node:Person"), snapshot.query(loops).rows()[0]["n"]
            if people != selves + 1:
                failures.append(f"{people} people, {selves} loops")

    threads = [threading.Thread(target=t) for t in (write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GIVE_UP)
    assert failures == []


def test_a_snapshot_lists_its_tables(graph: Graph) -> None:
    graph.load(node("Person", "bob"), mode="append")
    listing = wire.to_builtins(graph.snapshot().listing())
    assert (listing["graph_branch"], listing["graph_manifest_version"]) == ("main", graph.version_of())
    assert [(d["entity_kind"], d["type_name"], d["entity_count"]) for d in listing["datasets"]] == [
        ("edge", "Knows", 0),
        ("node", "Person", 2),
    ]
