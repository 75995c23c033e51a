"""A handle beside somebody else's cleanup: its branches go on, what it pinned is gone by name, nothing fails raw."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.api.maintenance import Retention
from omnigraph.engine.maintenance.cleanup import cleanup
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import (
    ChangeFeedGapError,
    HistoricalVersionReclaimedError,
    OmniGraphError,
)
from omnigraph.storage.tables.indexes import index_coverage
from omnigraph.storage.tables.memory.columns import COLUMNS
from tests.engine.library import SCHEMA, blob, book, load, loan, reader
from tests.engine.maintenance.test_damage import READS, outcomes

BOOKS = "node:Book"
GONE = (HistoricalVersionReclaimedError, ChangeFeedGapError)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    books = [book(f"b{i}", mood=[float(i), 0.0, 1.0], cover=blob(bytes(80_000))) for i in range(1, 6)]
    load(graph, [*books, reader("r1", name="Ann"), loan("r1", "b1")])
    graph.maintenance.optimize()
    graph.create_branch("side")
    load(graph, [book("side")], branch="side")
    load(graph, [book("b9")])
    return graph


def move_on(uri: str) -> None:
    """Somebody else rewrites every table of main and releases all that was before."""
    other = Graph.open(uri)
    new = [book("moved"), reader("moved", name="Moved"), loan("moved", "moved")]
    other.load("\n".join([*other.export(), *new]), mode="overwrite")
    cleanup(other._workspace, Retention(keep_versions=1))
    other.close()


def reads_of(state: Snapshot) -> dict[str, Callable[[], object]]:
    reads: dict[str, Callable[[], object]] = {name: lambda q=q: state.query(q).rows() for name, q in READS.items()}
    return {
        **reads,
        "count": lambda: state.count(BOOKS, "title = 'x'"),
        "scan of a column": lambda: state.scan(BOOKS, ["title"]),
        "entity": lambda: state.entity(BOOKS, "b1"),
        "coverage": lambda: index_coverage(state.table(BOOKS), state.catalog.nodes["Book"].properties["title"].column),
    }


@pytest.mark.parametrize("used", ["never", "opened", "read"])
def test_a_branch_goes_on_and_a_pinned_state_is_gone_by_name(graph: Graph, used: str) -> None:
    graph = Graph.open(graph.uri)
    pinned = graph.snapshot()
    if used == "opened":
        for version in range(1, pinned.version + 1):
            for type_key in pinned.types():
                graph.snapshot(version=version).table(type_key)
    if used == "read":
        for read in reads_of(pinned).values():
            read()
        list(graph.changes.poll(start="beginning").blocks)
    move_on(graph.uri)
    PROCESS_TOPOLOGIES.clear()
    COLUMNS.clear()
    ended = {}
    for name, read in reads_of(pinned).items():
        try:
            read()
            ended[name] = "answered"
        except OmniGraphError as error:
            ended[name] = type(error).__name__
    assert set(ended.values()) <= {"answered", "HistoricalVersionReclaimedError"}, ended
    answered = {name for name, how in ended.items() if how == "answered"}
    assert answered <= {"never": set(), "opened": {"coverage"}, "read": ended.keys()}[used]
    for gone in (
        lambda: graph.diff(pinned, "main"),
        lambda: graph.changes.poll(start="beginning"),
        lambda: graph.changes.page(pinned.commit_id),
        lambda: graph.query(READS["scan"], snapshot=pinned.commit_id),
        lambda: list(graph.export(snapshot=pinned.commit_id)),
    ):
        try:
            gone()
        except GONE:
            continue
        assert used != "never", "only a handle that has it open can be answered"
    failed = {name: error for name, error in outcomes(graph).items() if error is not None}
    assert failed.keys() <= {"diff", "poll", "merge"}, failed
    assert all(isinstance(error, GONE) for error in failed.values()), failed


@pytest.mark.parametrize(
    "read",
    [
        *(lambda graph, q=q: graph.query(q).rows() for q in READS.values()),
        lambda graph: graph.entity(BOOKS, "b1"),
        lambda graph: graph.diff("side", "main"),
    ],
    ids=[*READS, "entity", "diff"],
)
def test_a_read_of_a_branch_follows_it_to_its_new_head(graph: Graph, read: Callable[[Graph], object]) -> None:
    """Somebody else moves the branch and cleans up in the moment between finding its head and reading it."""
    reading = Graph.open(graph.uri)
    head = graph.snapshot().version
    looks = itertools.count()

    class MovesOnOnce:
        def before(self, kind: str, path: str) -> None: ...

        def after(self, kind: str, path: str) -> None:
            if path.endswith(f"{head + 1:020d}.json") and next(looks) == 0:
                reading._workspace.root.objects.interceptor = None
                move_on(graph.uri)

    reading._workspace.root.objects.interceptor = MovesOnOnce()
    read(reading)
    assert reading.snapshot().version == head + 1, "the branch has not moved: the test proves nothing"
