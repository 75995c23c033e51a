"""A small graph to be served, the queries that tests run on it, and rules for those who ask."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest, Decision

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  born: Date?
  seen: DateTime?
  score: F64?
  tags: [String]?
  mood: Vector(2)?
  photo: Blob?
  email: String?
  @unique(email)
  @range(age, 0..150)
}
node Note { text: String }
edge Knows: Person -> Person @card(0..3) { since: Date? }
"""

EVERYBODY = "query everybody() { match { $p: Person } return { $p.name as name, $p.age as age } order { name asc } }"
BY_AGE = "query by_age($age: I32) { match { $p: Person { age: $age } } return { $p.name as name } order { name asc } }"
ADD = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"
AGE = "query set_age($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
DROP = "query drop($name: String) { delete Person where name = $name }"

PHOTO = bytes(range(256)) * 5


def person(name: str, **data: Any) -> str:
    return json.dumps({"type": "Person", "data": {"name": name, **data}})


def knows(source: str, target: str, **data: Any) -> str:
    return json.dumps({"edge": "Knows", "from": source, "to": target, "data": data})


def blob(data: bytes) -> str:
    return "base64:" + base64.b64encode(data).decode()


PEOPLE = (
    person(
        "Ada",
        age=36,
        born="1815-12-10",
        seen="2024-05-06T07:08:09.010Z",
        score=1.5,
        tags=["a", 'b"c'],
        photo=blob(PHOTO),
    ),
    person('Bob, or "Rob"\nSmith', age=36, mood=[0.25, -1.0]),
    person("Cy", score=float("1e300"), photo=blob(b"")),
)


def people(root: Path) -> Graph:
    """A graph with three people, one edge and two commits after the first."""
    graph = Graph.init(root, SCHEMA)
    graph.load("\n".join(PEOPLE), mode="merge")
    graph.load(knows("Ada", "Cy", since="2020-01-02"), mode="merge")
    return graph


class Rules:
    """A gate for tests: what is listed for an actor is allowed. An entry is an action, or `action@branch` for the
    branch, `action>branch` for the target branch."""

    def __init__(self, allowed: dict[str, Iterable[str]]) -> None:
        self._allowed = {actor: frozenset(entries) for actor, entries in allowed.items()}

    def decide(self, actor: str | None, request: AccessRequest) -> Decision:
        action = request.action
        ways = {str(action), f"{action}@{request.branch}", f"{action}>{request.target_branch}"}
        if actor is not None and ways & self._allowed.get(actor, frozenset()):
            return Decision(True, f"policy allowed action '{action}' for actor '{actor}'", "listed")
        return Decision(False, f"policy denied action '{action}' for actor '{actor}'")


EVERYTHING = tuple(PolicyAction)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def ndjson(text: bytes | str) -> list[dict[str, Any]]:
    data = text if isinstance(text, bytes) else text.encode()
    assert data.endswith(b"\n") or not data, "the last line ends too"
    return [json.loads(line) for line in data.splitlines()]
