"""Types with thousands of properties cost in proportion to them, and no step has a cliff."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.language.schema.compile import accept_schema, declare_schema
from omnigraph.language.schema.migration import evolve
from tests.language.growth import ALLOWED

SMALL = 510
KINDS = ["String?", "I64?", "F64?", "Date?", "[String]?"]
VALUES: list[Any] = ["x", 1, 1.5, 7, ["a"]]


def schema(count: int, extra: str = "") -> str:
    members = "\n".join(f"p{i}: {KINDS[i % len(KINDS)]}" for i in range(count))
    return f"node Wide {{ k: String @key\n{members}\n{extra} }}"


def record(key: str, count: int) -> str:
    return json.dumps({"type": "Wide", "data": {"k": key, **{f"p{i}": VALUES[i % len(KINDS)] for i in range(count)}}})


def new_graph(path: Path, count: int) -> Graph:
    graph = Graph.init(path, schema(count))
    graph.load(f"{record('a', count)}\n{record('b', count)}", mode="append")
    graph.create_branch("side")
    graph.mutate('query it() { update Wide set { p1: 5 } where k = "b" }', branch="side")
    return graph


def update(graph: Graph, number: int) -> None:
    graph.mutate(f'query it() {{ update Wide set {{ p1: {number} }} where k = "a" }}')


def export(graph: Graph, _: int) -> None:
    assert sum(1 for _ in graph.export()) == 2


def diff(graph: Graph, _: int) -> None:
    graph.diff("main", "side")


def entity(graph: Graph, _: int) -> None:
    assert graph.entity("node:Wide", "a") is not None


def least(action: Callable[[int], object]) -> float:
    """The processor time of an action when nothing disturbs it."""
    best = float("inf")
    for attempt in range(2):
        started = time.process_time()
        action(attempt)
        best = min(best, time.process_time() - started)
    return best


def test_nothing_costs_the_square_of_the_properties(tmp_path: Path) -> None:
    with new_graph(tmp_path / "small", SMALL) as small, new_graph(tmp_path / "large", 4 * SMALL) as large:
        actions = (update, export, entity, diff)
        before = {action.__name__: least(partial(action, small)) for action in actions}
        after = {action.__name__: least(partial(action, large)) for action in actions}
    assert sum(after.values()) < 9 * sum(before.values()), (before, after)


def test_a_wide_type_keeps_its_values_through_writes_schema_changes_and_merges(tmp_path: Path) -> None:
    count = SMALL
    with new_graph(tmp_path / "graph", count) as graph:
        graph.schema.apply(schema(count, "later: I64?"))
        graph.mutate('query it() { update Wide set { p0: "y", later: 3 } where k = "a" }')
        graph.schema.apply(schema(count, "later: I64?"), branch="side")
        graph.merge("side", "main")
        expected = {f"p{i}": VALUES[i % len(KINDS)] for i in range(count)}
        assert graph.entity("node:Wide", "a") == {"id": "a", "k": "a", **expected, "p0": "y", "later": 3}
        assert graph.entity("node:Wide", "b") == {"id": "b", "k": "b", **expected, "p1": 5, "later": None}
        (row,) = graph.query('query it() { match { $w: Wide { k: "b" } } return { $w.p1, $w.later } }').rows()
        assert list(row.values()) == [5, None]


@pytest.mark.parametrize("marks", ["", "@index", "@unique", '@rename_from("old{i}")'])
def test_planning_a_schema_of_many_properties_is_about_linear(marks: str) -> None:
    def planning(count: int) -> float:
        old = "old" if "rename" in marks else "p" if marks else "gone"
        accepted = accept_schema(node_with(count, old, ""))
        declared = declare_schema(node_with(count, "p", marks))
        return least(lambda _: evolve(accepted, declared))

    assert planning(1_200) < ALLOWED * planning(150)


def node_with(count: int, name: str, marks: str) -> str:
    members = "\n".join(f"{name}{i}: I64? {marks.format(i=i)}" for i in range(count))
    return f"node Wide {{ k: String @key\n{members}\n}}"
