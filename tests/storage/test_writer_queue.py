"""Writers in different processes queue when they keep losing to each other, and no answer depends on it."""

from __future__ import annotations

import threading
import time

import pytest

from omnigraph import Graph
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn
from omnigraph.errors import ReadSetChangedError, StorageError, StorageErrorKind
from omnigraph.storage.log import writer_queue
from omnigraph.storage.log.writer_queue import QueueTicket, queue_folder
from tests.conftest import Place
from tests.support.processes import Process, start_together
from tests.support.tables import PEOPLE, append_one, ids, new_graph, nodes
from tests.support.waiting import GIVE_UP, wait_until

A_MOMENT = 0.005  # tickets of one millisecond have no order


def in_the_end() -> float:
    return time.monotonic() + GIVE_UP


def place_of(graph: Graph) -> QueueTicket:
    return QueueTicket(graph._workspace.root.writer_queue, "main")


def waiting(graph: Graph) -> list[str]:
    return graph._workspace.root.writer_queue.tickets("main")


def is_first(graph: Graph) -> bool:
    return any(ticket.endswith(graph._workspace.root.writer_queue._name) for ticket in waiting(graph)[:1])


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
    published = graph._workspace.commit("main", prepare, Intent(kind="load"))
    assert published is not None
    wait_until(lambda: graph.snapshot().version > published.version + 10, "the others go on")
    for process in fast:
        process.kill()
        process.acknowledged()
    assert attempts < 10
    assert "slow" in ids(graph)
    assert graph.maintenance.verify().clean


def test_a_writer_alone_never_queues(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    for i in range(9):
        append_one(graph, f"a{i}")
    assert not place_of(graph).is_contended
    assert waiting(graph) == []


def test_turns_are_taken_in_the_order_of_coming(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_queue, "SHORTEST_LEASE", 600.0)
    monkeypatch.setattr(writer_queue, "LONGEST_LEASE", 600.0)
    graph = new_graph(place.uri)
    spoke: list[int] = []

    def speak(number: int, handle: Graph) -> None:
        with place_of(handle) as mine:
            mine.wait(in_the_end())
            spoke.append(number)

    threads = [threading.Thread(target=speak, args=(i, Graph.open(place.uri))) for i in range(4)]
    with place_of(graph) as mine:
        mine.wait(in_the_end())
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
    with place_of(other) as mine:
        mine.wait(in_the_end())
        for i in range(4):
            append_one(graph, f"a{i}")
        wait_until(lambda: place_of(graph).is_contended, "the writer knows that somebody waits")
    other.close()
    append_one(graph, "a4")
    graph.close()
    assert waiting(graph) == [], "every ticket is gone"


def test_the_dead_are_put_out_of_the_queue_and_the_living_keep_their_place(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_queue, "SHORTEST_LEASE", 0.2)
    graph = new_graph(local_place.uri)
    for _ in range(3):
        graph._workspace.root.objects.put(
            graph._workspace.root.writer_queue.new_ticket("main").replace("-500-", "-1-"), b""
        )
    graph._workspace.root.objects.put(f"{queue_folder('main')}/0 is no ticket", b"")
    time.sleep(A_MOMENT)
    with place_of(graph) as mine:
        mine.wait(in_the_end())
        assert waiting(graph) == [mine._ticket]
        with place_of(Graph.open(local_place.uri)) as behind:
            behind.wait(time.monotonic())
            graph._workspace.root.objects.delete(str(behind._ticket))
            behind._wait_behind_others(str(behind._ticket), time.monotonic() + 0.05)
            assert waiting(graph) == [mine._ticket, behind._ticket]


def test_who_needs_longer_than_others_wait_queues_again_and_says_so(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    with place_of(graph) as mine:
        mine.wait(in_the_end())
        mine.wait(in_the_end())
        (first,) = waiting(graph)
        graph._workspace.root.objects.delete(first)
        mine.record_attempt(7.0)
        mine.wait(in_the_end())
        (second,) = waiting(graph)
        assert second != first
        assert "-7000-" in second


def test_a_refused_strict_write_queues_when_it_is_tried_again(local_place: Place) -> None:
    graph, other = new_graph(local_place.uri), Graph.open(local_place.uri)
    txn = graph._workspace.begin("main", Intent(kind="mutate"))
    staged = txn.stage({PEOPLE: lambda state: graph._workspace.root.staging.append(state, nodes({"ann": 1}))})
    append_one(other, "bob")
    with pytest.raises(ReadSetChangedError):
        graph._workspace.publish(txn, PublishPlan(staged, strict=True))
    assert place_of(graph).is_contended


def test_a_store_that_refuses_the_queue_does_not_refuse_the_write(local_place: Place) -> None:
    graph = new_graph(local_place.uri)

    class NoQueues:
        def before(self, kind: str, path: str) -> None:
            if "/queues/" in path:
                raise StorageError(StorageErrorKind.CONFIGURATION, "access denied")

        def after(self, kind: str, path: str) -> None: ...

    graph._workspace.root.objects.interceptor = NoQueues()
    graph._workspace.root.writer_queue.saw_others("main")
    append_one(graph, "ann")
    assert ids(graph) == ["ann"]
