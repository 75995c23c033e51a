"""Writers in different processes take turns when they keep meeting, and nobody's answer depends on it."""

from __future__ import annotations

import threading
import time

import pytest

from omnigraph import Graph
from omnigraph.engine.publish import Intent, PublishPlan, WriteTxn
from omnigraph.errors import ReadSetChangedError, StorageError, StorageErrorKind
from omnigraph.storage import floor as floors
from omnigraph.storage.floor import FloorTurn, queue_folder
from tests.conftest import Place
from tests.support.processes import Process, start_together
from tests.support.tables import PEOPLE, append_one, ids, new_graph, nodes
from tests.support.waiting import wait_until

A_MOMENT = 0.005  # tickets of one millisecond have no order


def in_a_minute() -> float:
    return time.monotonic() + 60


def turn_of(graph: Graph) -> FloorTurn:
    return graph.root.floor.of("main")


def waiting(graph: Graph) -> list[str]:
    return graph.root.floor.queue("main")


def is_first(graph: Graph) -> bool:
    return any(ticket.endswith(graph.root.floor._name) for ticket in waiting(graph)[:1])


def test_a_slow_writer_gets_its_turn_among_fast_ones(local_place: Place) -> None:
    """Each of its attempts takes as long as five of theirs: in races alone it would never win one."""
    graph = new_graph(local_place.uri)
    fast = [Process("tests.storage.writer", local_place.uri, "append", f"w{i}", "100000") for i in range(2)]
    start_together(fast)
    attempts = 0

    def prepare(txn: WriteTxn) -> PublishPlan:
        nonlocal attempts
        attempts += 1
        staged = txn.stage({PEOPLE: lambda state: txn.root.staging.append(state, nodes({"slow": 1}))})
        seen = graph.snapshot().version
        wait_until(lambda: graph.snapshot().version > seen + 5 or is_first(graph), "the others write, or wait for us")
        return PublishPlan(staged)

    wait_until(lambda: graph.snapshot().version >= 20, "the others write")
    published = graph.commit("main", prepare, Intent(kind="load"))
    assert published is not None
    wait_until(lambda: graph.snapshot().version > published.version + 10, "the others go on")
    for process in fast:
        process.kill()
        process.acknowledged()
    assert attempts < 10
    assert "slow" in ids(graph)
    assert graph.verify().clean


def test_a_writer_alone_never_queues(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    for i in range(9):
        append_one(graph, f"a{i}")
    assert not turn_of(graph).contended
    assert waiting(graph) == []


def test_turns_are_taken_in_the_order_of_coming(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "SHORTEST_PATIENCE", 600.0)
    monkeypatch.setattr(floors, "LONGEST_PATIENCE", 600.0)
    graph = new_graph(place.uri)
    spoke: list[int] = []

    def speak(number: int, handle: Graph) -> None:
        with turn_of(handle) as turn:
            turn.take(in_a_minute())
            spoke.append(number)

    threads = [threading.Thread(target=speak, args=(i, Graph.open(place.uri))) for i in range(4)]
    with turn_of(graph) as turn:
        turn.take(in_a_minute())
        for number, thread in enumerate(threads):
            time.sleep(A_MOMENT)
            thread.start()
            wait_until(lambda number=number: len(waiting(graph)) == number + 2, "it stands in the queue")
        assert spoke == []
    for thread in threads:
        thread.join()
    assert spoke == [0, 1, 2, 3]


def test_who_always_wins_hears_of_those_who_wait(local_place: Place) -> None:
    graph, other = new_graph(local_place.uri), Graph.open(local_place.uri)
    with turn_of(other) as turn:
        turn.take(in_a_minute())
        for i in range(4):
            append_one(graph, f"a{i}")
        wait_until(lambda: turn_of(graph).contended, "the writer knows that somebody waits")
    other.close()
    append_one(graph, "a4")
    graph.close()
    assert waiting(graph) == [], "everybody gave the floor back"


def test_the_dead_are_put_out_of_the_queue_and_the_living_keep_their_place(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "SHORTEST_PATIENCE", 0.2)
    graph = new_graph(local_place.uri)
    for _ in range(3):
        graph.root.objects.put(graph.root.floor.new_ticket("main").replace("-500-", "-1-"), b"")
    graph.root.objects.put(f"{queue_folder('main')}/0 is no ticket", b"")
    time.sleep(A_MOMENT)
    with turn_of(graph) as turn:
        turn.take(in_a_minute())
        assert waiting(graph) == [turn._ticket]
        with turn_of(Graph.open(local_place.uri)) as behind:
            behind.take(time.monotonic())
            graph.root.objects.delete(str(behind._ticket))
            behind._stand_in_queue(str(behind._ticket), time.monotonic() + 0.05)
            assert waiting(graph) == [turn._ticket, behind._ticket]


def test_who_needs_longer_than_others_wait_queues_again_and_says_so(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    with turn_of(graph) as turn:
        turn.take(in_a_minute())
        turn.take(in_a_minute())
        (first,) = waiting(graph)
        graph.root.objects.delete(first)
        turn.tried(7.0)
        turn.take(in_a_minute())
        (second,) = waiting(graph)
        assert second > first
        assert "-7000-" in second


def test_a_refused_strict_write_queues_when_it_is_tried_again(local_place: Place) -> None:
    graph, other = new_graph(local_place.uri), Graph.open(local_place.uri)
    txn = graph.begin("main", Intent(kind="mutate"))
    staged = txn.stage({PEOPLE: lambda state: graph.root.staging.append(state, nodes({"ann": 1}))})
    append_one(other, "bob")
    with pytest.raises(ReadSetChangedError):
        graph.publish(txn, PublishPlan(staged, strict=True))
    assert turn_of(graph).contended


def test_a_store_that_refuses_the_queue_does_not_refuse_the_write(local_place: Place) -> None:
    graph = new_graph(local_place.uri)

    class NoQueues:
        def before(self, kind: str, path: str) -> None:
            if "/queues/" in path:
                raise StorageError(StorageErrorKind.CONFIGURATION, "access denied")

        def after(self, kind: str, path: str) -> None: ...

    graph.root.objects.interceptor = NoQueues()
    graph.root.floor.saw_others("main")
    append_one(graph, "ann")
    assert ids(graph) == ["ann"]
