"""Updates of edges: by condition and from a feed. An edge gets other properties and never other ends."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import BadRequestError, CompileError, ConstraintError, ReadSetChangedError
from omnigraph.storage.log.tracing import Trace
from tests.engine.stored import everything, rows
from tests.engine.write.lending import SCHEMA, START, affected, column, run
from tests.engine.writer import OtherProcess


@pytest.fixture
def trace() -> Trace:
    return Trace()


@pytest.fixture
def graph(tmp_path: Path, trace: Trace) -> Iterator[Graph]:
    with Graph.init(tmp_path / uuid.uuid4().hex, SCHEMA, trace=trace) as graph:
        graph.load(START, mode="append")
        yield graph


@pytest.mark.parametrize(
    ("where", "changed"),
    [
        ('from = "r1"', {"l1", "l2"}),
        ('@src = "r1" and to = "b2"', {"l2"}),
        ('@dst != "b2"', {"l1"}),
        ('@id = "l3"', {"l3"}),
        ('@id in ["l3", "l1", "x"]', {"l1", "l3"}),
        ("times > 1", {"l2"}),
        ("not (times > 1)", {"l1"}),
        ("times is null", {"l3"}),
        ('times = 1 or from = "r2"', {"l1", "l3"}),
        ("on is not null", set()),
        ("coalesce(times, 0) % 2 = 0", {"l2", "l3"}),
        ("true", {"l1", "l2", "l3"}),
    ],
)
def test_the_edges_that_satisfy_a_condition_change(graph: Graph, where: str, changed: set[str]) -> None:
    before = rows(graph, "edge:Borrowed")
    receipt = run(graph, f'update Borrowed set {{ on: date("2031-05-04") }} where {where}')
    assert affected(receipt) == (0, len(changed))
    assert rows(graph, "edge:Borrowed") == {
        edge_id: {**row, "on": date(2031, 5, 4)} if edge_id in changed else row for edge_id, row in before.items()
    }


def test_a_value_may_be_calculated_from_the_edge(graph: Graph) -> None:
    receipt = run(graph, "update Borrowed set { times: times + 1 } where true")
    assert affected(receipt) == (0, 3)
    assert column(graph, "edge:Borrowed", "times") == {"l1": 2, "l2": 3, "l3": None}
    run(graph, "update Follows set { label: @src + to_string(weight) } where weight < 1")
    assert column(graph, "edge:Follows", "label") == {"f1": "r10.5", "f2": None}


def test_later_statements_see_the_edge_as_it_became(graph: Graph) -> None:
    receipt = run(
        graph,
        """insert Borrowed { from: "r3", to: "b3", times: 5 }
           update Borrowed set { times: times * 2 } where times >= 2
           update Borrowed set { times: times + 1 } where times >= 4""",
    )
    assert affected(receipt) == (0, 1 + 2 + 2)
    assert Counter(column(graph, "edge:Borrowed", "times").values()) == {1: 1, 5: 1, None: 1, 11: 1}


def test_edges_of_a_feed_change(graph: Graph) -> None:
    receipt = run(
        graph,
        """match { $r: Reader  $r $l:borrowed $b }
           update $l set { times: coalesce($l.times, 0) + coalesce($b.pages, 0) }""",
    )
    assert affected(receipt) == (0, 3)
    assert column(graph, "edge:Borrowed", "times") == {"l1": 101, "l2": 202, "l3": 200}


@pytest.mark.parametrize(
    "body",
    [
        'update Borrowed set { from: "r2" } where times = 1',
        'update Borrowed set { to: "b2" } where times = 1',
        'update Borrowed set { @src: "b2" } where times = 1',
        'match { $r: Reader  $r $l:borrowed $b } update $l set { to: "b2" }',
    ],
)
def test_ends_are_never_assigned(graph: Graph, body: str) -> None:
    with pytest.raises(CompileError):
        run(graph, body)


# Rules


def test_a_unique_rule_over_ends_and_a_property_holds(graph: Graph) -> None:
    run(
        graph, 'insert Follows { from: "r1", to: "r2", label: "a" } insert Follows { from: "r1", to: "r2", label: "b" }'
    )
    before = everything(graph)
    with pytest.raises(ConstraintError, match="@unique violation on Follows"):
        run(graph, 'update Follows set { label: "a" } where label = "b"')
    with pytest.raises(ConstraintError, match="@unique violation on Follows"):
        run(graph, 'update Follows set { label: "c" } where label is not null')
    assert everything(graph) == before
    run(graph, 'update Follows set { label: "c" } where label = "b"')


def test_updates_count_no_edge_twice(graph: Graph) -> None:
    """r1 has two of at most three edges, and still has two."""
    run(graph, 'insert Borrowed { from: "r1", to: "b3" }')
    assert affected(run(graph, 'update Borrowed set { times: 9 } where from = "r1"')) == (0, 3)
    run(graph, 'update Borrowed set { times: 8 } where from = "r1" insert Borrowed { from: "r2", to: "b1" }')
    before = everything(graph)
    with pytest.raises(BadRequestError, match="source 'r1' has 4 edges"):
        run(graph, 'update Borrowed set { times: 7 } where from = "r1" insert Borrowed { from: "r1", to: "b1" }')
    assert everything(graph) == before


# Other writers


@pytest.fixture(scope="module")
def other() -> Iterator[OtherProcess]:
    process = OtherProcess()
    yield process
    process.close()


@pytest.mark.parametrize(
    "theirs",
    [
        'delete Book where isbn = "b2"',
        'update Borrowed set { times: 4 } where @id = "l3"',
        'insert Borrowed { from: "r3", to: "b3" }',
    ],
)
def test_an_edge_that_changed_or_went_meanwhile_is_a_conflict(
    graph: Graph, trace: Trace, other: OtherProcess, theirs: str
) -> None:
    passed: Counter[str] = Counter()

    def observe(point: str) -> None:
        passed[point] += 1
        if point == "publish.before" and passed[point] == 1:
            assert other.do(graph.uri, "mutate", f"query it() {{ {theirs} }}").get("commit")

    trace.observer = observe
    with pytest.raises(ReadSetChangedError):
        run(graph, 'update Borrowed set { times: 3 } where @id = "l2"')
    trace.observer = None
    assert column(graph, "edge:Borrowed", "times").get("l2", 2) == 2
    assert graph.maintenance.verify().clean


def test_the_change_of_an_edge_is_an_update(graph: Graph) -> None:
    run(graph, 'update Borrowed set { times: 3 } where @id = "l2"')
    assert [(change.id, change.op) for change in graph.changes.of(graph.resolve_snapshot())] == [("l2", "update")]
