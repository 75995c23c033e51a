"""One record per rule that breaks it and nothing else, with what every path has to say about it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from omnigraph import Graph
from omnigraph.errors import ConstraintError

SCHEMA = """
node Person {
  key: String @key
  name: String
  age: I32?
  code: String?
  level: enum(low, high)?
  mail: String? @unique
  weight: F32? @unique
  height: F64? @unique
  born: Date? @unique
  seen: DateTime? @unique
  first: String?
  last: String?
  @range(age, 0..150)
  @check(code, "^[a-z]+$")
  @unique(first, last)
}
node Thing { text: String? }
edge Owns: Person -> Thing @card(0..1)
"""

SEEN = "2031-05-04T10:00:00.125Z"
STORED = [
    {"type": "Person", "data": {"key": "a", "name": "ann", "mail": "m", "weight": 0.1, "height": 1e22,
                                "born": "2031-05-04", "seen": SEEN, "first": "x", "last": "y"}},
    {"type": "Thing", "data": {"id": "t1"}},
    {"type": "Thing", "data": {"id": "t2"}},
    {"edge": "Owns", "from": "a", "to": "t1", "data": {"id": "o1"}},
]  # fmt: skip


@dataclass(frozen=True)
class Broken:
    """A record, the fields of the error, and the sentence. `again` follows where it takes two records."""

    rule: str
    record: dict[str, Any]
    property: str | None
    sentence: str
    by_mutation: bool = True
    again: list[dict[str, Any]] = field(default_factory=list)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [self.record, *self.again]

    @property
    def is_edge(self) -> bool:
        return "edge" in self.record

    @property
    def type_key(self) -> str:
        return f"edge:{self.record['edge']}" if self.is_edge else f"node:{self.record['type']}"

    @property
    def entity_id(self) -> str:
        data = self.record["data"]
        return str(data.get("id") or data["key"])

    @property
    def data(self) -> dict[str, Any]:
        return dict(self.record["data"])

    @property
    def line(self) -> int:
        return len(self.records)

    def __str__(self) -> str:
        return f"{self.rule}-{self.property}"


def person(key: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"key": key, "name": "n", **data}}


def owns(source: str, target: str, identity: str) -> dict[str, Any]:
    return {"edge": "Owns", "from": source, "to": target, "data": {"id": identity}}


def _unique(key: str, name: str, value: Any, shown: str) -> Broken:
    sentence = f"@unique violation on Person.{name}: value '{shown}' held by 'a' and '{key}'"
    return Broken("unique", person(key, **{name: value}), name, sentence)


BROKEN = [
    Broken("type", person("p1", age=2**40), "age", "property 'age': 1099511627776 is outside the range of I32"),
    Broken("required", person("p2") | {"data": {"key": "p2", "name": None}}, "name",
           "non-nullable property 'name' has null value"),
    Broken("range", person("p3", age=200), "age", "@range violation on Person.age: value 200 > max 150"),
    Broken("check", person("p4", code="X9"), "code",
           "@check violation on Person.code: value 'X9' does not match pattern '^[a-z]+$'"),
    Broken("enum", person("p5", level="mid"), "level",
           "invalid enum value 'mid' for Person.level (expected: high, low)"),
    _unique("p6", "mail", "m", "m"),
    # Arrow, Python and Spark write these in ways of their own.
    _unique("p7", "weight", 0.1, "0.1"),
    _unique("p8", "height", 1e22, "1e+22"),
    _unique("p9", "born", "2031-05-04", "2031-05-04"),
    _unique("q1", "seen", SEEN, SEEN),
    Broken("unique", person("q2", first="x", last="y"), None,
           "@unique violation on Person.(first, last): value '(x, y)' held by 'a' and 'q2'"),
    Broken("key", person("q3"), "key", "@unique violation on Person.key: value 'q3' held by 'q3' and 'q3'",
           by_mutation=False, again=[person("q3", age=1)]),
    Broken("endpoint", owns("nobody", "t1", "o2"), "src", "edge Owns: src 'nobody' not found in Person"),
    Broken("endpoint", owns("a2", "none", "o3"), "dst", "edge Owns: dst 'none' not found in Thing"),
    Broken("cardinality", owns("a", "t2", "o4"), "src", "@card violation on edge Owns: source 'a' has 2 edges (max 1)"),
]  # fmt: skip

# The owner of an edge whose thing is missing.
STORED.append(person("a2"))


def graph_of(uri: Any) -> Graph:
    graph = Graph.init(uri, SCHEMA)
    graph.load("\n".join(map(json.dumps, STORED)), mode="append")
    return graph


def mutation(broken: Broken) -> tuple[str, dict[str, Any]]:
    """A query that inserts the record, and its parameters."""
    if broken.is_edge:
        return (
            "query it($from: String, $to: String) { insert Owns { from: $from, to: $to } }",
            {"from": broken.record["from"], "to": broken.record["to"]},
        )
    # Parameters may be wider than the property.
    kinds = {"key": "String", "born": "Date?", "seen": "DateTime?", "age": "I64?", "weight": "F64?", "height": "F64?"}
    declared = ", ".join(f"${name}: {kinds.get(name, 'String?')}" for name in broken.data)
    assigned = ", ".join(f"{name}: ${name}" for name in broken.data)
    return f"query it({declared}) {{ insert Person {{ {assigned} }} }}", broken.data


def assert_tells(error: ConstraintError, broken: Broken, *, line: int | None, entity_id: str | None) -> None:
    """The sentence word for word behind the place, and the fields."""
    assert str(error).endswith(broken.sentence)
    fields = (error.rule, error.type_key, error.property, error.entity_id, error.line)
    assert fields == (broken.rule, broken.type_key, broken.property, entity_id, line)
