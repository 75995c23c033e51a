"""The cost contract: store requests and serial round trips are constants.

Counted at the S3 server itself, so nothing a library does on the side can hide.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph import Graph
from tests.conftest import Place
from tests.support.costs import settle, settled
from tests.support.log_entries import get_commit
from tests.support.s3 import RequestLog, S3Server
from tests.support.tables import PEOPLE, append, append_one, new_graph, nodes

APPEND_REQUESTS = 6
APPEND_ROUNDS = 5
FOLD_REQUESTS = 20
COLD_OPEN_REQUESTS = 7


def serial_rounds(server: S3Server, graph: Graph, work: Callable[[], object]) -> int:
    """How many answers `work` has to wait for, one after another. Nobody waits for what is done in the background."""
    with server.logged() as log, server.in_rounds():
        work()
    settle(graph)
    return log.serial_rounds("/hints/", "queues")


def append_costs(graph: Graph, server: S3Server, branch: str, label: str) -> list[RequestLog]:
    """Five commits in a row: at most one of them folds the table's tail, whatever depth they start at."""
    graph.snapshot(branch)
    settle(graph)
    return [settled(graph, server, lambda i=i: append_one(graph, f"{label}-{i}", branch)) for i in range(5)]


def test_an_append_commit_costs_the_same_at_any_depth_table_count_and_branch(
    s3_server: S3Server, s3_place: Place
) -> None:
    plain: dict[str, int] = {}
    folding: dict[str, int] = {}

    def measure(graph: Graph, branch: str, label: str) -> None:
        costs = sorted(len(log) for log in append_costs(graph, s3_server, branch, label))
        plain[label], folding[label] = costs[0], costs[-1]
        assert costs[:4] == [costs[0]] * 4, (label, costs)

    small = new_graph(f"{s3_place.uri}/small", extra_tables=2)
    append_one(small, "warm")
    measure(small, "main", "depth 1")
    deepen(small, 50)
    measure(small, "main", "depth 50")
    deepen(small, 300)
    measure(small, "main", "depth 300")
    small.create_branch("fresh")
    measure(small, "fresh", "a fresh branch at depth 300")

    wide = new_graph(f"{s3_place.uri}/wide", extra_tables=97)
    append_one(wide, "warm")
    measure(wide, "main", "100 tables")

    assert set(plain.values()) == {plain["depth 1"]}, plain
    assert plain["depth 1"] <= APPEND_REQUESTS
    assert max(folding.values()) <= FOLD_REQUESTS, folding


def deepen(graph: Graph, depth: int) -> None:
    while graph.snapshot().version < depth:
        append_one(graph, f"deep-{graph.snapshot().version}")


def test_an_append_commit_waits_for_at_most_five_answers(s3_server: S3Server, s3_place: Place) -> None:
    graph = new_graph(s3_place.uri)
    append_one(graph, "warm")
    settle(graph)
    names = (f"p{i}" for i in itertools.count())
    rounds = [serial_rounds(s3_server, graph, lambda: append_one(graph, next(names))) for _ in range(4)]
    assert max(rounds) == APPEND_ROUNDS, rounds


def test_the_first_write_of_a_handle_asks_its_store_what_it_can_be_trusted_with(
    s3_server: S3Server, s3_place: Place
) -> None:
    """Beside the staging, so nobody waits longer. Who only reads asks nothing."""
    first = new_graph(s3_place.uri)
    settled(first, s3_server, lambda: append_one(first, "warm"))
    graph = Graph.open(s3_place.uri)
    reading = settled(graph, s3_server, lambda: graph.snapshot().scan(PEOPLE))
    assert {request.method for request in reading.requests} <= {"GET", "HEAD"}
    with s3_server.logged() as log:
        rounds = serial_rounds(s3_server, graph, lambda: append_one(graph, "first"))
    settle(graph)
    assert [r.method for r in log.requests if r.path.endswith("/clock")] == ["PUT", "PUT", "HEAD"], log.lines()
    assert (len(log), rounds) == (APPEND_REQUESTS + 3, APPEND_ROUNDS), log.lines()
    second = settled(graph, s3_server, lambda: append_one(graph, "second"))
    assert len(second) == APPEND_REQUESTS, second.lines()


def test_a_multi_table_commit_stages_its_tables_in_parallel(s3_server: S3Server, s3_place: Place) -> None:
    graph = new_graph(s3_place.uri, extra_tables=6)
    keys = [PEOPLE, *(f"node:Extra{i}" for i in range(6))]
    append(graph, {key: nodes({"warm": 1}) for key in keys})
    settle(graph)
    seven = serial_rounds(s3_server, graph, lambda: append(graph, {key: nodes({"more": 1}) for key in keys}))
    assert seven <= APPEND_ROUNDS, "one after another the seven tables alone would be 21 rounds"


def test_a_warm_head_check_is_one_request(s3_server: S3Server, s3_place: Place) -> None:
    graph = new_graph(s3_place.uri)
    append_one(graph, "a")
    graph.create_branch("side")
    settle(graph)
    for branch in ("main", "side"):
        graph.snapshot(branch)
        with s3_server.logged() as log:
            graph.snapshot(branch)
        assert len(log) == 1, log.lines()


def test_a_handle_that_is_a_little_behind_catches_up_in_two_rounds(s3_server: S3Server, s3_place: Place) -> None:
    writer, reader = new_graph(s3_place.uri), Graph.open(s3_place.uri)
    reader.snapshot()
    for i in range(2):
        settled(writer, s3_server, lambda i=i: append_one(writer, f"a{i}"))
    with s3_server.logged() as log, s3_server.in_rounds():
        assert reader.snapshot().version == 3
    assert (len(log), log.serial_rounds()) == (3, 2), log.lines()


def test_a_commit_that_queues_costs_three_requests_more(s3_server: S3Server, s3_place: Place) -> None:
    graph = new_graph(s3_place.uri)
    append_one(graph, "warm")
    settle(graph)
    graph._workspace.root.writer_queue.saw_others("main")
    with s3_server.logged() as log:
        append_one(graph, "queued")
        graph.close()  # waits for what is done in the background
    queueing = [r.method for r in log.requests if "queues" in r.path + r.query or r.method == "POST"]
    assert queueing == ["PUT", "GET", "POST"], log.lines()
    assert len(log) == APPEND_REQUESTS + 3, log.lines()


@pytest.mark.parametrize(("extra_tables", "key"), [(0, None), (20, None), (0, "once")])
def test_creating_a_branch_is_a_pin_a_head_check_and_one_object(
    s3_server: S3Server, s3_place: Place, extra_tables: int, key: str | None
) -> None:
    graph = new_graph(s3_place.uri, extra_tables=extra_tables)
    append_one(graph, "a")
    settle(graph)
    with s3_server.logged() as log:
        graph.create_branch("side", idempotency_key=key)
        graph.close()  # the pin is removed in the background
    *waited_for, unpinned = log.requests
    kinds = [(r.method, r.path.split("/__manifest/")[1].split("/")[0]) for r in waited_for]
    assert kinds == [("PUT", "pins"), ("GET", "log"), ("PUT", "refs")]
    assert (unpinned.method, unpinned.query) == ("POST", "delete")


def test_creating_a_branch_from_a_named_one_needs_no_pin(s3_server: S3Server, s3_place: Place) -> None:
    graph = new_graph(s3_place.uri)
    graph.create_branch("side")
    append_one(graph, "a", "side")
    settle(graph)
    with s3_server.logged() as log:
        graph.create_branch("twig", source="side")
    assert [(r.method, r.status) for r in log.requests] == [("GET", 404), ("PUT", 200)]


def test_a_key_costs_no_request(s3_server: S3Server, s3_place: Place) -> None:
    """Of a branch that is made, deleted and made again through one handle."""
    graph = new_graph(s3_place.uri)
    graph.create_branch("source")
    settle(graph)

    def costs(name: str, *keys: str | None) -> list[list[str]]:
        first, second, third = keys
        logs = [
            settled(graph, s3_server, lambda: graph.create_branch(name, source="source", idempotency_key=first)),
            settled(graph, s3_server, lambda: graph.delete_branch(name, idempotency_key=second)),
            settled(graph, s3_server, lambda: graph.create_branch(name, source="source", idempotency_key=third)),
        ]
        graph.delete_branch(name)
        settle(graph)
        return [[r.method for r in log.requests if "/hints/" not in r.path] for log in logs]

    costs("warm", None, None, None)
    plain = costs("plain", None, None, None)
    assert plain[0] == ["GET", "PUT"]
    assert plain[2] == ["GET", "PUT", "GET", "PUT"], "the head of the source, a life that was, a list, the next life"
    assert costs("keyed", "made", "ended", "made again") == plain


@pytest.mark.parametrize("branch", ["main", "side"])
def test_a_cold_open_reaches_a_usable_snapshot_in_seven_requests(
    s3_server: S3Server, s3_place: Place, branch: str
) -> None:
    graph = new_graph(s3_place.uri)
    for i in range(3):
        append_one(graph, f"a{i}")
    graph.create_branch("side")
    settled(graph, s3_server, lambda: append_one(graph, "b", branch))
    with s3_server.logged() as log:
        snapshot = Graph.open(s3_place.uri).snapshot(branch)
        assert snapshot.schema_document.source == ""
    assert len(log) <= COLD_OPEN_REQUESTS, log.lines()
    assert snapshot.version == graph.snapshot(branch).version


@pytest.mark.parametrize("commits", [1, 2, 3, 4])
def test_a_cold_head_takes_three_rounds_whether_the_last_commit_wrote_a_hint_or_not(
    s3_server: S3Server, s3_place: Place, commits: int
) -> None:
    graph = new_graph(s3_place.uri)
    for i in range(commits):
        settled(graph, s3_server, lambda i=i: append_one(graph, f"a{i}"))
    with s3_server.logged() as log, s3_server.in_rounds():
        assert Graph.open(s3_place.uri).snapshot().version == 1 + commits
    assert log.serial_rounds() == 3, log.lines()


def test_a_handle_that_is_far_behind_lists_instead_of_probing(s3_server: S3Server, s3_place: Place) -> None:
    writer = new_graph(s3_place.uri)
    reader = Graph.open(s3_place.uri)
    reader.snapshot()
    for i in range(40):
        append_one(writer, f"a{i}")
    settle(writer)
    with s3_server.logged() as log:
        assert reader.snapshot().version == 41
    assert len(log) <= 5, log.lines()


@pytest.mark.parametrize("hint", [b"", b"nonsense", b"99999", b"1"])
def test_a_missing_or_wrong_hint_changes_only_the_cost(s3_server: S3Server, s3_place: Place, hint: bytes) -> None:
    graph = new_graph(s3_place.uri)
    for i in range(8):
        settled(graph, s3_server, lambda i=i: append_one(graph, f"a{i}"))
    branch_id = graph.snapshot().entry.branch_id
    graph._workspace.root.objects.put(f"__manifest/hints/{branch_id}", hint)
    assert Graph.open(s3_place.uri).snapshot().version == 9


def test_a_commit_is_found_by_id_without_walking_history(s3_server: S3Server, s3_place: Place) -> None:
    graph = new_graph(s3_place.uri)
    commits = [append_one(graph, f"a{i}").commit_id for i in range(30)]
    graph.create_branch("side")
    settle(graph)
    with s3_server.logged() as log:
        found = get_commit(Graph.open(s3_place.uri), commits[2])
    assert found.version == 4
    # graph.json, the list of refs, one ref, one log slot per line of history.
    assert len(log) <= 5, log.lines()


def test_rounds_tell_what_waits_for_what(s3_server: S3Server, s3_place: Place) -> None:
    """Of the way of counting itself."""
    graph = new_graph(s3_place.uri)
    settle(graph)
    objects = graph._workspace.root.objects
    with ThreadPoolExecutor(8) as workers, s3_server.logged() as log, s3_server.in_rounds():
        list(workers.map(objects.exists, [f"at once {i}" for i in range(8)]))
        for i in range(3):
            objects.exists(f"in turn {i}")
    assert [r.round for r in log.requests] == [1] * 8 + [2, 3, 4], log.lines()
