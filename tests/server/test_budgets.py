"""What actors may have under way beside their writes: nobody keeps the others from reading, streaming and following."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph import Graph
from omnigraph.errors import OmniGraphError, TooManyRequestsError, UnavailableError
from omnigraph.server.admission import Budgets, Cap, Turns
from omnigraph.server.settings import ServerLimits
from tests.server.running import RunningServer, running
from tests.server.sample import ADD, EVERYBODY, bearer, people
from tests.support.waiting import wait_until

TOKENS = {"ana": "t-ana", "bully": "t-bully", "rob": "t-rob"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with people(tmp_path_factory.mktemp("budgets") / "kb") as graph:
        yield graph


# Turns


async def settle() -> None:
    """Let everybody who can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def admit(turns: Turns, actor: str | None, count: int) -> list[asyncio.Task[None]]:
    """So many reads of an actor, as far as they come."""
    tasks = [asyncio.create_task(turns.take(actor)) for _ in range(count)]
    await settle()
    return tasks


def begun(tasks: list[asyncio.Task[None]]) -> int:
    return sum(task.done() for task in tasks)


def test_one_actor_never_has_all_threads_and_others_come_in_between() -> None:
    async def run() -> None:
        turns = Turns(ServerLimits(read_threads=4, actor_read_threads=100))
        bully = await admit(turns, "bully", 10)
        assert begun(bully) == 3
        assert begun(await admit(turns, "ana", 1)) == 1
        waiting = await admit(turns, "ana", 2)
        assert begun(waiting) == 0
        turns.give_back("bully")
        await settle()
        assert (begun(bully), begun(waiting)) == (4, 0), "the bully has waited longer"
        turns.give_back("bully")
        await settle()
        assert (begun(bully), begun(waiting)) == (4, 1), "and then the others have"
        for task in (*bully, *waiting):
            task.cancel()

    asyncio.run(run())


def test_where_nobody_has_a_name_everybody_shares_all_threads() -> None:
    async def run() -> None:
        turns = Turns(ServerLimits(read_threads=4, actor_read_threads=1, read_wait_seconds=0.01))
        assert begun(await admit(turns, None, 4)) == 4
        with pytest.raises(UnavailableError, match=r"4 are under way.*\(--read-threads\)") as refused:
            await turns.take(None)
        assert refused.value.retry_after > 0

    asyncio.run(run())


def test_a_read_that_waits_too_long_is_told_whose_limit_it_was() -> None:
    refusals: list[str] = []

    async def run() -> None:
        limits = ServerLimits(read_threads=4, actor_read_threads=2, read_wait_seconds=0.01)
        turns = Turns(limits, refusals.append)
        await admit(turns, "ana", 2)
        with pytest.raises(TooManyRequestsError, match="--actor-read-threads"):
            await turns.take("ana")
        await admit(turns, "rob", 2)
        with pytest.raises(UnavailableError, match="--read-threads"):
            await turns.take("eve")

    asyncio.run(run())
    assert refusals == [Cap.READ_THREADS] * 2


STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "end", "cancel", "leave"]), st.sampled_from(["a", "b", None]), st.booleans()),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(1, 4), st.integers(1, 4))
def test_no_turn_is_lost_whoever_ends_or_leaves(steps: list[Any], threads: int, share: int) -> None:
    """Whether or not those who wait have noticed what happened before, all turns are free in the end."""

    async def run() -> None:
        turns = Turns(ServerLimits(read_threads=threads, actor_read_threads=share))
        waiting: list[tuple[str | None, asyncio.Task[None], asyncio.Future[None]]] = []
        reading: list[str | None] = []

        async def look() -> None:
            await settle()
            assert turns._reading.total() <= threads
            for entry in [entry for entry in waiting if entry[1].done()]:
                waiting.remove(entry)
                if not entry[1].cancelled() and entry[1].exception() is None:
                    reading.append(entry[0])

        for what, actor, noticed in steps:
            if what == "take":
                gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                waiting.append((actor, asyncio.create_task(turns.take(actor, lambda gone=gone: gone)), gone))
            elif what == "end" and actor in reading:
                reading.remove(actor)
                turns.give_back(actor)
            elif what == "cancel" and waiting:
                waiting[0][1].cancel()
            elif what == "leave" and waiting and not waiting[-1][2].done():
                waiting[-1][2].set_result(None)
            if noticed:
                await look()
        await look()
        while reading:
            turns.give_back(reading.pop())
            await look()
        assert not waiting, "nobody waits while threads are free"
        assert not turns._waiting
        assert not turns._reading

    asyncio.run(run())


# Counts


def test_streams_of_an_actor_of_a_graph_and_of_a_worker() -> None:
    refusals: list[str] = []
    budgets = Budgets(ServerLimits(streams_per_graph=4, streams=6, actor_streams=4), refusals.append)
    with ExitStack() as open_streams:

        def refusal(actor: str | None, graph_id: str | None) -> OmniGraphError | None:
            try:
                open_streams.callback(budgets.open_stream(actor, graph_id))
            except OmniGraphError as error:
                return error
            return None

        assert [refusal("ana", "kb") for _ in range(3)] == [None] * 3
        assert isinstance(mine := refusal("ana", "kb"), TooManyRequestsError)
        assert "three quarters of --streams-per-graph 4" in str(mine)
        assert refusal("ana", None) is None, "the bytes of a blob take no slot of the graph"
        assert isinstance(mine := refusal("ana", "lab"), TooManyRequestsError)
        assert "--actor-streams" in str(mine)
        assert refusal("rob", "kb") is None
        assert isinstance(full := refusal("rob", "kb"), UnavailableError)
        assert "--streams-per-graph" in str(full)
        assert refusal("rob", "lab") is None
        assert isinstance(full := refusal("rob", None), UnavailableError)
        assert "--streams)" in str(full)
    assert not budgets._counts
    assert refusals == [Cap.STREAMS] * 4


def test_an_actor_that_is_gone_leaves_nothing_behind() -> None:
    budgets = Budgets(ServerLimits())
    for number in range(3):
        with budgets.read(f"actor {number}"), budgets.follow(f"actor {number}"), budgets.admit(f"actor {number}", 7):
            budgets.open_stream(f"actor {number}", "kb")()
    assert not budgets._counts


def test_long_writes_of_one_actor_leave_turns_for_others() -> None:
    turns, writing, go_on = Budgets(ServerLimits(write_threads=4)), list[str | None](), threading.Event()

    def begun() -> Counter[str | None]:
        return Counter(writing)

    def write(actor: str | None) -> None:
        with turns.turn(actor):
            writing.append(actor)
            go_on.wait()

    with ThreadPoolExecutor(20) as writers:
        try:
            for actor in ["bully"] * 8 + ["ana"]:
                writers.submit(write, actor)
            wait_until(lambda: begun() == {"bully": 3, "ana": 1}, "three of the one, and the other's")
        finally:
            go_on.set()
    assert begun() == {"bully": 8, "ana": 1}
    assert not turns._turns
    go_on.clear()
    with ThreadPoolExecutor(20) as writers:
        for _ in range(5):
            writers.submit(write, None)
        wait_until(lambda: begun()[None] == 4, "who has no name shares all turns")
        go_on.set()


# Over HTTP


@contextmanager
def held_reads(server: RunningServer) -> Iterator[ThreadPoolExecutor]:
    """Reads that are sent in this block begin and do not end before it."""
    go_on = threading.Event()
    server.recorder.go_on = go_on
    with ThreadPoolExecutor(40) as clients:
        try:
            yield clients
        finally:
            go_on.set()


def read(server: RunningServer, actor: str | None) -> httpx.Response:
    headers = {} if actor is None else bearer(TOKENS[actor])
    return httpx.post(f"{server.graph()}/query", json={"query": EVERYBODY}, headers=headers, timeout=600)


def test_a_flood_of_one_actor_does_not_keep_others_from_reading(graph: Graph) -> None:
    limits = ServerLimits(read_threads=4, actor_reads=8, read_wait_seconds=600, query_seconds=600)
    with running({"kb": graph}, tokens=TOKENS, limits=limits) as server, held_reads(server) as clients:
        flood: list[Future[httpx.Response]] = [clients.submit(read, server, "bully") for _ in range(12)]
        wait_until(lambda: sum(each.done() for each in flood) == 4, "what is over its budget is refused at once")
        for refused in (each.result() for each in flood if each.done()):
            assert (refused.status_code, refused.json()["type"]) == (429, "too_many_requests")
            assert int(refused.headers["retry-after"]) > 0
            assert "'bully'" in refused.json()["error"]
        server.recorder.go_on, go_on = None, server.recorder.go_on
        assert read(server, "ana").status_code == 200
        assert server.client.get("/healthz").status_code == 200
        assert go_on is not None
        go_on.set()
        assert sorted(each.result().status_code for each in flood) == [200] * 8 + [429] * 4


def test_a_full_pool_answers_503_and_the_server_still_tells_of_itself(graph: Graph) -> None:
    limits = ServerLimits(read_threads=2, read_wait_seconds=0.05, query_seconds=600)
    with running({"kb": graph}, limits=limits) as server, held_reads(server) as clients:
        held = [clients.submit(read, server, None) for _ in range(2)]
        wait_until(lambda: server.application._pools._turns._reading.total() == 2, "both are under way")
        refused = clients.submit(read, server, None).result()
        assert (refused.status_code, refused.json()["type"]) == (503, "unavailable")
        assert int(refused.headers["retry-after"]) > 0
        assert "(--read-threads)" in refused.json()["error"]
        assert server.recorder.failures == [], "a refusal is not a fault"
        with (
            omnigraph.connect(server.url, graph="kb", retries=False) as impatient,
            pytest.raises(UnavailableError, match="--read-threads"),
        ):
            impatient.query(EVERYBODY)
        go_on, server.recorder.go_on = server.recorder.go_on, None
        for path in ("healthz", "readyz", "metrics", "openapi.json", "graphs"):
            assert server.client.get(f"/{path}").status_code == 200
        with omnigraph.connect(server.url, graph="kb") as patient:
            waiting = clients.submit(patient.query, EVERYBODY)
            wait_until(lambda: server.recorder.begun["query"] >= 5, "it was sent")
            assert go_on is not None
            go_on.set()
            assert waiting.result().num_rows == 3
        assert [each.result().status_code for each in held] == [200, 200]


def test_feeds_of_an_actor_are_counted_and_keep_no_stream_from_anybody(tmp_path: Path) -> None:
    limits = ServerLimits(actor_feeds=2, feeds=3, streams_per_graph=1, streams=1, wait_ms=600_000)
    with (
        people(tmp_path / "followed") as graph,
        running({"kb": graph}, tokens=TOKENS, limits=limits) as server,
        ThreadPoolExecutor(8) as clients,
    ):

        def poll(actor: str, **parameters: Any) -> httpx.Response:
            url = f"{server.graph()}/changes"
            return httpx.get(url, params=parameters, headers=bearer(TOKENS[actor]), timeout=600)

        cursor = poll("bully").json()["cursor"]
        waits = {"cursor": cursor, "wait_ms": 600_000}
        waiting = [clients.submit(poll, "bully", **waits) for _ in range(2)]
        wait_until(lambda: server.feeds() == 2, "they wait")
        refused = poll("bully", **waits)
        assert (refused.status_code, refused.json()["type"]) == (429, "too_many_requests")
        assert int(refused.headers["retry-after"]) > 0
        assert "(--actor-feeds)" in refused.json()["error"]
        waiting.append(clients.submit(poll, "ana", **waits))
        wait_until(lambda: server.feeds() == 3, "another actor waits too")
        refused = poll("rob", **waits)
        assert (refused.status_code, refused.json()["type"]) == (503, "unavailable")
        assert poll("bully", cursor=cursor).status_code == 200, "it does not wait"
        graph.mutate(ADD, params={"name": "Zoe"})
        assert [len(each.result().json()["blocks"]) for each in waiting] == [1] * 3
