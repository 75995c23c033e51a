"""A write that breaks off anywhere has happened completely or not at all, and the next one finds a sound graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.storage.log.tracing import Trace
from tests.engine.museum import SCHEMA, edge, lines, node
from tests.engine.stored import everything

VASE = '["1","w"]'
START = lines(
    node("Curator", badge="k1", name="a"),
    node("Exhibit", accession=1, wing="w", photo="base64:aGk="),
    edge("Guards", "k1", VASE, id="g1"),
)


class BrokenOffError(Exception):
    """Stands for a process that ends here."""


WRITES: dict[str, Callable[[Graph], object]] = {
    "load": lambda graph: graph.load(
        lines(
            node("Curator", badge="k2", name="b"), edge("Guards", "k2", VASE, id="g2"), node("Memo", id="m", text="t")
        ),
        mode="merge",
    ),
    "load onto a new branch": lambda graph: graph.load(
        lines(node("Memo", id="m", text="t")), mode="append", branch="side", base="main"
    ),
    "update by load": lambda graph: graph.load(
        lines(node("Curator", badge="k1", email="e"), node("Exhibit", accession=1, wing="w", title="x")),
        mode="update",
    ),
    "insert and update": lambda graph: graph.mutate(
        """query it() { insert Curator { badge: "k2", name: "b" } insert Guards { from: "k2", to: "[\\"1\\",\\"w\\"]" }
                        update Exhibit set { title: "x" } where wing = "w" }"""
    ),
    "delete with cascade": lambda graph: graph.mutate('query it() { delete Exhibit where wing = "w" }'),
}


def start(path: Path) -> tuple[Graph, Trace]:
    trace = Trace()
    graph = Graph.init(path, SCHEMA, trace=trace)
    graph.load(START, mode="append")
    return graph, trace


def points_of(path: Path, write: Callable[[Graph], object]) -> list[str]:
    """The durable steps that a write passes when nothing goes wrong."""
    graph, trace = start(path)
    passed: list[str] = []
    trace.observer = passed.append
    write(graph)
    return passed


def branches(graph: Graph) -> dict[str, object]:
    return {branch: everything(graph, branch) for branch in graph.list_branches()}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_that_breaks_off_is_whole_or_absent(tmp_path: Path, write: Callable[[Graph], object]) -> None:
    points = points_of(tmp_path / "clean", write)
    assert {"stage.before", "stage.commit.after", "publish.before", "publish.after"} <= set(points)
    for number in range(len(points)):
        graph, trace = start(tmp_path / f"broken-{number}")
        before, passed = branches(graph), 0

        def break_off(_: str, at: int = number) -> None:
            nonlocal passed
            passed += 1
            if passed == at + 1:
                raise BrokenOffError

        trace.observer = break_off
        with pytest.raises(BrokenOffError):
            write(graph)
        trace.observer = None
        after = branches(Graph.open(graph.uri))
        happened = after != before
        done = "branch.create.claimed" if "branch.create.claimed" in points else "publish.after"
        assert happened == (points.index(done) <= number), (points[number], number)
        assert graph.maintenance.verify().clean
        graph.load(lines(node("Memo", id="next", text="t")), mode="append")
        assert "next" in everything(graph)["node:Memo"]
