"""What a query may use: memory, time, and how results too large for memory leave in pieces."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from omnigraph.engine.graph import Graph
from omnigraph.engine.publish import Intent, PublishPlan, WriteTxn
from omnigraph.engine.query.limits import Cancellation
from omnigraph.engine.query.project import BATCH_ROWS
from omnigraph.engine.query.read import ReadOptions
from omnigraph.errors import QueryCancelledError, ResourceLimitError

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
        made.commit("main", prepare, Intent(kind="load"))
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


def test_a_profile_tells_rows_time_and_requests(graph: Graph) -> None:
    text = "query q() { match { $i: Item  $i.n > 0  $i next $j } return { count($j) as n } }"
    profile = graph.query(text, options=ReadOptions(profile=True)).profile
    (aggregate,) = profile.inputs
    (expand,) = aggregate.inputs
    (scan,) = expand.inputs
    assert [aggregate.rows, expand.rows, scan.rows] == [1, ITEMS - 2, ITEMS - 1]
    assert aggregate.seconds >= expand.seconds >= scan.seconds > 0
    assert aggregate.requests >= scan.requests >= 1
    assert any("Next" in note for note in expand.notes)
    assert scan.notes == ["filter: `n` > 0", "n: no index"]
    assert aggregate.to_json_dict()["inputs"][0]["inputs"][0]["operator"] == "Scan $i: Item where $i.n > 0"


def test_an_explanation_shows_the_plan_without_running_it(graph: Graph) -> None:
    text = 'query q() { match { $i: Item { slug: "x" }  $i next $j  $j.n > 3 } return { $j.n } order { $j.n } limit 2 }'
    assert graph.explain(text) == [
        "Project j.n",
        "  Limit 2",
        "    Sort by $j.n, $i.id, $j.id",
        "      Expand $i -[Next]-> $j where $j.n > 3",
        "          neighbours: lookups or topology, by cost",
        "        Scan $i: Item where $i.slug = 'x'",
        "            in the scan: `slug` = 'x'",
    ]
