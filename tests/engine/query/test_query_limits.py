"""What a query may use: memory, time, and how results too large for memory leave in pieces."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from omnigraph.api import wire
from omnigraph.engine.query import run
from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.limits import Cancellation
from omnigraph.engine.query.operators import expand
from omnigraph.engine.query.operators.projection import BATCH_ROWS
from omnigraph.engine.query.read import ReadOptions
from omnigraph.engine.query.traversal import intersection, search
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES
from omnigraph.engine.query.values import predicates
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn
from omnigraph.errors import BadRequestError, QueryCancelledError, ResourceLimitError
from omnigraph.graph import Graph
from omnigraph.storage.tables.memory.columns import COLUMNS
from omnigraph.storage.topology import TopologyFiles
from tests.support.waiting import GIVE_UP

SCHEMA = "node Item { slug: String @key  n: I32 }\nedge Next: Item -> Item"
ITEMS = 150_000
ALL = "query q() { match { $i: Item } return { $i.slug as s, $i.n as n } }"
PAIRS = "query q() { match { $i: Item  $j: Item } return { $i.slug, $j.slug } }"
STEPS = "query q() { match { $i: Item  $i next $j } return { $i.n as n, $j.n as m } }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Items 0, 1, 2…, each followed by the next one."""
    names = [f"i{i:06d}" for i in range(ITEMS)]
    items = pa.table({"id": names, "n": pa.array(range(ITEMS), pa.int32()), "slug": names})
    steps = pa.table({"id": names[1:], "src": names[:-1], "dst": names[1:]})

    def prepare(txn: WriteTxn) -> PublishPlan:
        rows = {"node:Item": items, "edge:Next": steps}
        jobs = {key: _appending(txn, table) for key, table in rows.items()}
        return PublishPlan(staged=txn.stage(jobs))  # type: ignore[arg-type]

    def _appending(txn: WriteTxn, table: pa.Table) -> object:
        def stage(state: object) -> object:
            schema = txn.root.reader.open(state).schema  # type: ignore[arg-type]
            return txn.root.staging.append(state, table.select(schema.names).cast(schema))  # type: ignore[arg-type]

        return stage

    with Graph.init(tmp_path_factory.mktemp("items") / "g", SCHEMA) as made:
        made._workspace.commit("main", prepare, Intent(kind="load"))
        yield made


def test_a_query_that_would_outgrow_its_memory_says_so(graph: Graph) -> None:
    with pytest.raises(ResourceLimitError, match="add a limit") as raised:
        graph.query(PAIRS)
    assert raised.value.resource == "query_memory_bytes"
    assert raised.value.actual > raised.value.limit


def test_the_bound_is_the_callers_choice(graph: Graph) -> None:
    assert graph.query(ALL).num_rows == ITEMS
    with pytest.raises(ResourceLimitError):
        graph.query(ALL, options=ReadOptions(memory_bytes=1 << 20))


def test_counting_what_can_not_be_held_is_fine(graph: Graph) -> None:
    text = "query q() { match { $i: Item  $j: Item } return { count($j) as n } }"
    assert graph.query(text).rows() == [{"n": ITEMS * ITEMS}]


def test_a_limit_stops_early(graph: Graph) -> None:
    """The cross product is never made, the expansion never finished."""
    few = ReadOptions(memory_bytes=8 << 20)
    text = "query q() { match { $i: Item  $i next $j } return { $j.n as m } limit 3 }"
    assert [row["m"] for row in graph.query(text, options=few).rows()] == [1, 2, 3]


@pytest.mark.parametrize(("text", "expected"), [(ALL, ITEMS), (STEPS, ITEMS - 1)])
def test_a_stream_gives_everything_in_bounded_pieces(graph: Graph, text: str, expected: int) -> None:
    stream = graph.stream(text)
    sizes = [len(batch) for batch in stream]
    assert sum(sizes) == expected
    assert max(sizes) <= BATCH_ROWS
    assert graph.stream(text).reader().read_all() == graph.query(text).to_arrow()


def test_a_stream_holds_less_than_its_result(graph: Graph) -> None:
    """Six columns of output over one stored column."""
    text = f"query q() {{ match {{ $i: Item }} return {{ {', '.join(f'$i.slug as c{i}' for i in range(6))} }} }}"
    few = ReadOptions(memory_bytes=6 << 20)
    with pytest.raises(ResourceLimitError):
        graph.query(text, options=few)
    assert sum(len(batch) for batch in graph.stream(text, options=few)) == ITEMS


def test_a_cancelled_query_ends(graph: Graph) -> None:
    cancellation = Cancellation()
    stream = graph.stream(ALL, options=ReadOptions(cancellation=cancellation))
    batches = iter(stream)
    next(batches)
    cancellation.cancel()
    with pytest.raises(QueryCancelledError):
        next(batches)


def test_time_runs_out(graph: Graph) -> None:
    with pytest.raises(QueryCancelledError, match="within 0 seconds"):
        graph.query(ALL, options=ReadOptions(cancellation=Cancellation(timeout=0)))


class Stuck:
    """An embedding client that does not answer until it is let go, as a step of a query that asks nobody."""

    model = "stuck"

    def __init__(self, asked: Callable[[], None] = lambda: None) -> None:
        self._asked = asked
        self.was_asked = False
        self.may_answer = threading.Event()
        self.answered = threading.Event()

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        self.was_asked = True
        self._asked()
        assert self.may_answer.wait(GIVE_UP)
        self.answered.set()
        return np.full(dimension, dimension**-0.5, np.float32)


NEAREST = 'query q() { match { $p: Spot } return { $p.slug as s } order { nearest($p.at, "x") } limit 1 }'


@pytest.fixture(scope="module")
def spots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with Graph.init(tmp_path_factory.mktemp("spots") / "g", "node Spot { slug: String @key  at: Vector(2) }") as made:
        made.load('{"type":"Spot","data":{"slug":"a","at":[1,0]}}', mode="append")
        yield made


@pytest.mark.parametrize("by", ["the clock", "its caller"])
def test_whoever_may_end_a_query_does_not_wait_for_the_step_that_runs(spots: Graph, by: str) -> None:
    cancellation = Cancellation(timeout=0.05 if by == "the clock" else None)
    stuck = Stuck(cancellation.cancel if by == "its caller" else lambda: None)
    with pytest.raises(QueryCancelledError):
        spots.query(NEAREST, options=ReadOptions(cancellation=cancellation, embedder=stuck))
    assert not stuck.answered.is_set(), "the query was over before its step was"
    stuck.may_answer.set()
    for thread in _query_threads():
        thread.join(GIVE_UP)
    assert stuck.answered.is_set() == stuck.was_asked
    assert _query_threads() == [], "the step ends by itself and leaves nothing behind"


def _query_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "omnigraph-query"]


def test_errors_and_results_pass_through_to_the_caller_who_waits(spots: Graph) -> None:
    patient = ReadOptions(cancellation=Cancellation(timeout=600), embedder=(ready := Stuck()))
    ready.may_answer.set()
    assert spots.query(NEAREST, options=patient).rows() == [{"s": "a"}]
    with pytest.raises(BadRequestError, match="embedding client"):
        spots.query(NEAREST, options=ReadOptions(cancellation=Cancellation(timeout=600)))


class Counting(Cancellation):
    """Knows how often it was asked, and may say no from some question on."""

    def __init__(self, no_from: int | None = None) -> None:
        super().__init__()
        self.asked = 0
        self._no_from = no_from

    def check(self) -> None:
        self.asked += 1
        if self._no_from is not None and self.asked >= self._no_from:
            self.cancel()
        super().check()


class CountingWork(Counting):
    """Leaves out the questions of the caller who waits: how many those are depends on who is quicker."""

    def check(self) -> None:
        if threading.current_thread() is threading.main_thread():
            Cancellation.check(self)
        else:
            super().check()


LONG = {
    "closing": "query q() { match { $i: Item  $i next $j  $i next $j  $i next $j } return { count($i) as n } }",
    "meeting": "query q() { match { $i: Item  $i next $j  $i next $j } return { count($i) as n } }",
    "comparing": "query q() { match { $i: Item  $i next $j  $i.slug starts_with $j.slug } return { count($i) as n } }",
    "searching": "query q() { match { $i: Item  $i.n < 3000  $i next{1,3} $j } return { count($j.n) as n } }",
    "counting": "query q() { match { $i: Item  $i.n < 3000  $i next{1,3} $j } return { count($j) as n } }",
    "streaming": STEPS,
}


@pytest.mark.parametrize("kind", LONG)
def test_long_steps_ask_often_whether_to_go_on(graph: Graph, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work between two questions is bounded in rows: twice as small pieces, about twice as many questions."""
    monkeypatch.setenv(MODE_VARIABLE, "csr")

    def asked(rows: int) -> int:
        monkeypatch.setattr(expand, "_ROWS_PER_CHECK", rows)
        monkeypatch.setattr(intersection, "_PAIRS_PER_CHECK", rows)
        monkeypatch.setattr(predicates, "_ROWS_PER_CHECK", rows)
        monkeypatch.setattr(search, "VISITED_BYTES", ITEMS * rows // 50)
        monkeypatch.setattr(run, "_PIECE", rows)
        counting = CountingWork()
        sum(len(batch) for batch in graph.stream(LONG[kind], options=ReadOptions(cancellation=counting)))
        return counting.asked

    asked(10_000)
    # Reading asks too, as often each time.
    few, more, many = asked(20_000), asked(10_000), asked(5_000)
    assert more - few > 5
    assert many - more > 1.5 * (more - few)


@pytest.mark.parametrize("kind", LONG)
def test_every_question_can_end_the_query(graph: Graph, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODE_VARIABLE, "csr")
    for number in range(1, 8):
        counting = Counting(no_from=number)
        with pytest.raises(QueryCancelledError):
            graph.query(LONG[kind], options=ReadOptions(cancellation=counting))


def test_a_topology_that_was_begun_is_finished_for_those_who_come_later(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a query whose limit is shorter than the build could never succeed, however often it is tried."""

    class Impatient(Cancellation):
        def check_at_exit(self) -> None:
            self.cancel()
            super().check_at_exit()

    monkeypatch.setenv(MODE_VARIABLE, "csr")
    PROCESS_TOPOLOGIES.clear()
    for folder in TopologyFiles(graph._workspace.root.objects).folders(
        graph.snapshot().table("edge:Next").state.table_id
    ):
        TopologyFiles(graph._workspace.root.objects).remove(folder)
    with pytest.raises(QueryCancelledError):
        graph.query(STEPS, options=ReadOptions(cancellation=Impatient()))
    for thread in _query_threads():
        thread.join(GIVE_UP)
    profile = graph.query(STEPS, options=ReadOptions(profile=True)).profile
    assert any("in memory" in line for line in profile.lines())


def test_a_profile_tells_rows_time_and_requests(graph: Graph) -> None:
    COLUMNS.clear()
    text = "query q() { match { $i: Item  $i.n > 0  $i next $j } return { count($j) as n } }"
    profile = graph.query(text, options=ReadOptions(profile=True)).profile
    (aggregate,) = profile.inputs
    (expand,) = aggregate.inputs
    (scan,) = expand.inputs
    assert [aggregate.rows, expand.rows, scan.rows] == [1, ITEMS - 2, ITEMS - 1]
    assert aggregate.seconds >= expand.seconds >= scan.seconds > 0
    assert aggregate.requests >= scan.requests >= 1
    assert any("Next" in note for note in expand.notes)
    assert scan.notes == ["in memory: n compared"]
    assert wire.to_builtins(aggregate.report)["inputs"][0]["inputs"][0]["operator"] == "Scan $i: Item where $i.n > 0"


def test_an_explanation_shows_the_plan_without_running_it(graph: Graph) -> None:
    PROCESS_TOPOLOGIES.clear()
    text = 'query q() { match { $i: Item { slug: "x" }  $i next $j  $j.n > 3 } return { $j.n } order { $j.n } limit 2 }'
    lines = graph.explain(text)
    way = lines.pop(4).strip()
    assert lines == [
        "Project j.n  (about 1 row)",
        "  Limit 2  (about 1 row)",
        "    Sort by $j.n, $i.@id, $j.@id  (about 1 row)",
        "      Expand $i -[Next]-> $j where $j.n > 3  (about 1 row)",
        '        Scan $i: Item where $i.slug = "x"  (about 1 row)',
        "            in the scan: `slug` = 'x'",
    ]
    weighed = (
        r"neighbours: about \S+ ms by lookup, \S+ ms by topology, made once lookups have cost as much, 0.0 ms so far"
    )
    assert re.fullmatch(weighed, way)


def test_an_explanation_says_where_neighbours_come_from(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "query q() { match { $i: Item  $i next $j  $j next $k  $k next $i } return { count($k) as n } }"
    graph.query(text)
    details = [line.strip() for line in graph.explain(text) if not line.lstrip().startswith(("Scan", "Expand"))]
    assert details[2:] == [
        "neighbours: topology in memory",
        "together with the traversal to $k: common neighbours of two nodes",
        "neighbours: topology in memory",
        "neighbours: topology in memory",
    ]
    monkeypatch.setenv(MODE_VARIABLE, "indexed")
    assert "neighbours: indexed" in [line.strip() for line in graph.explain(text)]
