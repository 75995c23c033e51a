"""A small town for tests of history: people, places, who knows whom and who lives where.

Helpers write one entity per call on any branch, so that a test of a merge reads as what each side did.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omnigraph import Graph
from tests.engine.museum import edge, node

SCHEMA = """
node Person {
  name: String @key
  email: String? @unique
  age: I32?
  height: F64?
  tags: [String]?
  vec: Vector(2)?
  photo: Blob?
  @range(age, 0..150)
}
node Place { name: String @key  kind: enum(house, shop)? }
edge Knows: Person -> Person { since: I32? }
edge Lives: Person -> Place @card(0..1) {}
"""

PERSON, PLACE, KNOWS, LIVES = "node:Person", "node:Place", "edge:Knows", "edge:Lives"


def new_town(root: Path | str, *records: str) -> Graph:
    graph = Graph.init(root, SCHEMA)
    put(graph, "main", *records)
    return graph


def person(name: str, **data: object) -> str:
    return node("Person", name=name, **data)


def place(name: str, **data: object) -> str:
    return node("Place", name=name, **data)


def knows(entity_id: str, source: str, target: str, **data: object) -> str:
    return edge("Knows", source, target, id=entity_id, **data)


def lives(entity_id: str, source: str, target: str) -> str:
    return edge("Lives", source, target, id=entity_id)


def put(graph: Graph, branch: str, *records: str) -> str | None:
    """Upsert these entities as one commit; its id, or that of the head where it has them already."""
    if not records:
        return None
    graph.load("\n".join(records), mode="merge", branch=branch)
    return graph.snapshot(branch).commit_id


def drop(graph: Graph, branch: str, type_name: str, name: str) -> None:
    """Delete a node by its key, with its edges."""
    source = f"query gone($n: String) {{ delete {type_name} where name = $n }}"
    graph.mutate(source, "gone", {"n": name}, branch=branch)


def drop_edges(graph: Graph, branch: str, type_name: str, source: str) -> None:
    text = f"query gone($s: String) {{ delete {type_name} where from = $s }}"
    graph.mutate(text, "gone", {"s": source}, branch=branch)


def content(graph: Graph, branch: str = "main") -> dict[tuple[str, str], dict[str, Any]]:
    """The whole graph as its export says it, by type and id."""
    entities = {}
    for line in graph.export(branch=branch):
        record = json.loads(line)
        data = record.pop("data")
        key = (record.get("type") or record["edge"], data.pop("id"))
        entities[key] = {**record, **data}
    return entities


def names(graph: Graph, branch: str = "main") -> set[str]:
    return {entity_id for _, entity_id in content(graph, branch)}
