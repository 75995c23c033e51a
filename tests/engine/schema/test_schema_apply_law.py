"""The law of evolution: after any sequence of schema changes, writes and optimizes, the content is the model's, and
every earlier commit still reads as it was, in its own schema."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from tests.engine.library import content

TYPES = {"I32?": lambda c: c.randrange(100), "String?": lambda c: f"s{c.randrange(100)}", "[String]?": lambda c: ["x"]}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "add", "drop", "rename", "rename_type", "optimize"]), st.integers(0, 2**16)
    ),
    min_size=4,
    max_size=14,
)


class Evolving:
    """One type that changes its name and its properties, beside a dictionary of what it should hold."""

    def __init__(self, uri: Path) -> None:
        self.name, self.properties, self.names_used = "T0", {"p0": "I32?"}, 1
        self.graph = Graph.init(uri, self.schema())
        self.rows: dict[str, dict[str, Any]] = {}
        self.past: list[tuple[int, str, dict[str, dict[str, Any]]]] = []

    def schema(self, **renamed: str) -> str:
        lines = [
            f"{name}: {kind}" + (f' @rename_from("{renamed[name]}")' if name in renamed else "")
            for name, kind in self.properties.items()
        ]
        hint = f' @rename_from("{renamed[self.name]}")' if self.name in renamed else ""
        return f"node {self.name}{hint} {{ key: String @key\n" + "\n".join(lines) + "\n}"

    def fresh(self) -> str:
        self.names_used += 1
        return f"p{self.names_used}"

    def do(self, step: str, seed: int) -> None:
        chance = random.Random(seed)
        if step == "write":
            self.write(chance)
        elif step == "add":
            # Now and then a name that was dropped before: its new life must not show old values.
            name = chance.choice([self.fresh(), f"p{chance.randrange(self.names_used + 1)}"])
            if name not in self.properties:
                self.properties[name] = chance.choice(sorted(TYPES))
                self.graph.schema.apply(self.schema())
                for row in self.rows.values():
                    row[name] = None
        elif step == "drop" and self.properties:
            name = chance.choice(sorted(self.properties))
            del self.properties[name]
            self.graph.schema.apply(self.schema())
            for row in self.rows.values():
                del row[name]
        elif step == "rename" and self.properties:
            old, new = chance.choice(sorted(self.properties)), self.fresh()
            self.properties = {new if n == old else n: kind for n, kind in self.properties.items()}
            self.graph.schema.apply(self.schema(**{new: old}))
            self.rows = {k: {new if n == old else n: v for n, v in row.items()} for k, row in self.rows.items()}
        elif step == "rename_type":
            old, self.name = self.name, f"T{seed}"
            if old != self.name:
                self.graph.schema.apply(self.schema(**{self.name: old}))
        elif step == "optimize":
            self.graph.maintenance.optimize()
        self.past.append((self.graph.snapshot().version, self.name, json.loads(json.dumps(self.rows))))

    def write(self, chance: random.Random) -> None:
        rows = {f"k{chance.randrange(6)}": self.values(chance) for _ in range(chance.randint(1, 3))}
        lines = [json.dumps({"type": self.name, "data": {"key": key, **row}}) for key, row in rows.items()]
        self.graph.load("\n".join(lines), mode="merge")
        self.rows |= {key: {"key": key, **row} for key, row in rows.items()}

    def values(self, chance: random.Random) -> dict[str, Any]:
        return {name: chance.choice([None, TYPES[kind](chance)]) for name, kind in self.properties.items()}

    def check(self) -> None:
        graph = Graph.open(self.graph.uri)
        for version, name, rows in self.past:
            assert content(graph, f"node:{name}", version=version) == rows
        assert graph.maintenance.verify().clean


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_content_follows_the_schema_and_the_past_keeps_its_own(steps: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        evolving = Evolving(Path(folder) / "graph")
        for step, seed in steps:
            evolving.do(step, seed)
        evolving.check()
