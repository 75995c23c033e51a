"""What a client does when answers are lost, cut, late or refused: nothing twice, nothing short, nothing made up."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any, cast

import httpx
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph.api.branches import BranchCreated, BranchDeleted
from omnigraph.api.service.routes import IDEMPOTENCY_HEADER, MIN_COMMIT_HEADER, route
from omnigraph.client.connection import Address, Reply, Request, Upload
from omnigraph.client.rows import BatchDecoder
from omnigraph.client.streams import BaselineLines, RecordLines
from omnigraph.client.transport import Attempts
from omnigraph.client.uploads import record_upload
from omnigraph.errors import (
    AnswerBrokenError,
    BadRequestError,
    OmniGraphError,
    PreconditionFailedError,
    ServerUnreachableError,
    TooManyRequestsError,
    UnexpectedAnswerError,
    WriteOutcomeUnknownError,
)
from tests.client.gateway import Gateway, gateway_to
from tests.client.three_graphs import Api, AwaitedGraph
from tests.server.running import RunningServer
from tests.server.sample import ADD, EVERYBODY, people, person
from tests.support.http_server import Answer, HttpServer
from tests.support.servers import served, with_force
from tests.support.waiting import wait_until

NOTES = "query notes() { match { $n: Note } return { $n.text as text } }"
TOKEN = "tok-planted-secret"


@pytest.fixture(scope="module")
def served_graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[omnigraph.Graph]:
    """As for the other tests, with notes of several megabytes."""
    with people(tmp_path_factory.mktemp("served") / "kb") as graph:
        graph.load([{"text": f"{n} " + "x" * 4000} for n in range(1000)], mode="append", type="Note")
        yield graph


@pytest.fixture(scope="module")
def gateway(server: RunningServer) -> Iterator[Gateway]:
    with gateway_to(server.url) as gateway:
        yield gateway


@pytest.fixture(params=["remote", "async"])
def through(request: pytest.FixtureRequest, gateway: Gateway) -> Iterator[Api]:
    """A client that reaches the server through the gateway."""
    gateway.lost = 0
    if request.param == "remote":
        with omnigraph.connect(gateway.url, graph="kb", timeout=30) as graph:
            yield graph
    else:
        awaited = AwaitedGraph(lambda: omnigraph.connect_async(gateway.url, graph="kb", timeout=30))
        yield cast(Any, awaited)
        awaited.close()


# Lost answers


@pytest.mark.parametrize("losses", [1, 3])
def test_a_write_whose_answer_is_lost_exists_once(
    through: Api, gateway: Gateway, served_graph: omnigraph.Graph, branch: str, losses: int
) -> None:
    before = served_graph.version_of(branch)
    gateway.lose = losses
    receipt = through.mutate(ADD, params={"name": "Once"}, branch=branch)
    assert (gateway.lost, receipt.replayed) == (losses, True)
    assert served_graph.version_of(branch) == before + 1
    assert receipt.commit is not None
    assert served_graph.resolve_snapshot(branch) == receipt.commit.id


def test_loads_and_merges_are_repeated_safely(
    through: Api, gateway: Gateway, served_graph: omnigraph.Graph, branch: str, tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(person("Filed"))
    for number, data in enumerate((person("Texted"), file)):
        gateway.lose = 1
        assert through.load(cast(Any, data), mode="append", branch=branch).replayed
        assert gateway.lost == number + 1
    gateway.lose = 1
    side = f"{branch}-side"
    served_graph.create_branch(side, source=branch)
    served_graph.mutate(ADD, params={"name": "Aside"}, branch=side)
    head = served_graph.version_of(branch)
    assert through.merge(side, branch).replayed
    assert served_graph.version_of(branch) == head + 1


def test_branches_and_schemas_are_repeated_safely(
    through: Api, gateway: Gateway, served_graph: omnigraph.Graph, branch: str
) -> None:
    side = f"{branch}-side"
    gateway.lose = 2
    created = through.create_branch(side, source=branch)
    assert created == BranchCreated(through.uri, branch, side, None, replayed=True)
    assert (gateway.lost, served_graph.resolve_snapshot(side)) == (2, served_graph.resolve_snapshot(branch))

    gateway.lose = 1
    wider = served_graph.schema.show(side).replace("email: String?", "email: String?  nick: String?")
    head = served_graph.version_of(side)
    applied = through.schema.apply(wider, branch=side)
    assert (applied.replayed, applied.graph_manifest_version) == (True, head + 1)
    assert [step.kind for step in applied.steps] == ["add_property"]
    assert (served_graph.version_of(side), served_graph.schema.show(side)) == (head + 1, wider)

    gateway.lose = 1
    assert through.delete_branch(side) == BranchDeleted(through.uri, side, None, replayed=True)
    assert side not in served_graph.list_branches()

    gateway.lose = 1
    served_graph.create_branch(side, source=branch)
    nothing = through.merge(side, branch, delete_branch=True)
    assert (nothing.outcome, nothing.branch_deleted, nothing.replayed) == ("already_up_to_date", True, True)
    assert side not in served_graph.list_branches()


def test_what_others_do_between_two_tries_is_left_alone(
    through: Api, gateway: Gateway, served_graph: omnigraph.Graph, branch: str
) -> None:
    """The answer to the first try is held back until somebody else has made a branch of the same name."""
    side = f"{branch}-side"
    served_graph.create_branch(side)
    with omnigraph.connect(gateway.url, graph="kb", retries=False) as once:
        for verb in ("delete_branch", "create_branch"):
            key = f"{verb} {side}"
            gateway.lose = 1
            with pytest.raises(WriteOutcomeUnknownError) as caught:
                getattr(once, verb)(side, idempotency_key=key)
            assert caught.value.idempotency_key == key
            if verb == "create_branch":
                served_graph.delete_branch(side)
            served_graph.create_branch(side, source=branch)
            served_graph.mutate(ADD, params={"name": verb}, branch=side)
            assert getattr(through, verb)(side, idempotency_key=key).replayed
            assert verb in [row["name"] for row in served_graph.query(EVERYBODY, branch=side)]
            served_graph.delete_branch(side)


def test_an_iterator_is_sent_once(through: Api, gateway: Gateway, served_graph: omnigraph.Graph, branch: str) -> None:
    gateway.lose = 1
    with pytest.raises(WriteOutcomeUnknownError) as caught:
        through.load(iter([person("Streamed")]), mode="append", branch=branch, idempotency_key=f"it {branch}")
    assert caught.value.idempotency_key == f"it {branch}"
    assert "repeat it with the same idempotency key" in str(caught.value)
    assert through.load(
        iter([person("Streamed")]), mode="append", branch=branch, idempotency_key=f"it {branch}"
    ).replayed


def test_reads_are_repeated(through: Api, gateway: Gateway) -> None:
    for read in (
        lambda: through.query(EVERYBODY).num_rows,
        lambda: len(list(through.stream(EVERYBODY))),
        lambda: len(through.list_branches()),
        lambda: len(through.read_blob("node", "Person", "Ada", "photo").read()),
    ):
        gateway.lose = 1
        assert read() > 0


def test_a_handle_that_does_not_repeat_says_what_its_first_attempt_met(gateway: Gateway, branch: str) -> None:
    with omnigraph.connect(gateway.url, graph="kb", retries=False) as graph:
        gateway.lose = 1
        with pytest.raises(ServerUnreachableError, match="can't reach"):
            graph.list_branches()
        gateway.lose = 1
        with pytest.raises(WriteOutcomeUnknownError, match="whether it happened is not known"):
            graph.mutate(ADD, params={"name": "x"}, branch=branch)


# Cut answers


@pytest.mark.parametrize("cut", [300, 100_000, 2_000_000])
def test_a_stream_that_breaks_off_is_no_result(through: Api, gateway: Gateway, cut: int) -> None:
    gateway.cut = cut
    with pytest.raises(AnswerBrokenError):
        for _ in through.stream(NOTES):
            pass
    gateway.cut = cut
    with pytest.raises(AnswerBrokenError) as caught:
        list(through.export())
    assert caught.value.received < 4_000_000
    gateway.cut = cut
    out = io.BytesIO()
    with pytest.raises(AnswerBrokenError):
        through.changes.baseline(out)
    assert out.getvalue().count(b"\n") < 1000


def test_a_server_that_is_killed_in_the_middle_leaves_no_short_result(tmp_path: Path) -> None:
    """More rows than the buffers of a connection hold, and nobody left to send the rest."""
    with people(tmp_path / "kb") as graph:
        graph.load([{"text": f"{n} " + "x" * 8000} for n in range(2500)], mode="append", type="Note")
    serving = served("serve", "--store", str(tmp_path / "kb"), "--unauthenticated", "--bind", "127.0.0.1:0")
    with serving as process, omnigraph.connect(process.url, graph="kb", retries=False) as remote:
        stream, lines = remote.stream(NOTES), remote.export()
        assert stream.columns == ["text"]
        assert next(lines)
        workers = process.workers()
        process.kill()
        for pid in workers:
            with_force(pid)
        with pytest.raises(AnswerBrokenError):
            list(stream)
        with pytest.raises(AnswerBrokenError):
            list(lines)
        with pytest.raises(ServerUnreachableError):
            remote.list_branches()


def test_a_whole_result_that_breaks_off_is_asked_for_again(through: Api, gateway: Gateway) -> None:
    gateway.cut = 500_000
    assert through.query(NOTES).num_rows == 1000
    assert gateway.lost == 1


def test_an_error_that_ends_a_stream_is_told(server: RunningServer) -> None:
    """The last line of a stream that failed on the server is its error, of its own class."""
    error = {"error": {"error": "no such page", "code": "conflict", "type": "write_expired", "fields": {"days": 1.5}}}
    lines = RecordLines()
    assert lines.feed(b'{"type":"A"}\n{"ty') == b'{"type":"A"}\n'
    with pytest.raises(omnigraph.ConflictError, match="no such page") as caught:
        lines.feed(b'pe":"B"}\n' + json.dumps(error, separators=(",", ":")).encode() + b"\n")
    assert caught.value.fields == {"days": 1.5}


@pytest.fixture(scope="module")
def arrow_stream(server: RunningServer) -> bytes:
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    return server.client.post("/graphs/kb/query", json={"query": NOTES}, headers=accept).content


def decoded(data: bytes, cuts: list[int]) -> pa.Table:
    decoder, batches = BatchDecoder(), []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        batches += decoder.feed(data[start:end])
    decoder.finish()
    return pa.Table.from_batches(batches, decoder.schema)


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, 2**32), max_size=12))
def test_an_arrow_stream_in_any_pieces_is_the_same(arrow_stream: bytes, cuts: list[int]) -> None:
    assert decoded(arrow_stream, cuts).equals(pa.ipc.open_stream(arrow_stream).read_all())


@settings(max_examples=40, deadline=None)
@given(end=st.integers(0, 2**32))
def test_an_arrow_stream_without_its_end_is_no_result(arrow_stream: bytes, end: int) -> None:
    with pytest.raises(AnswerBrokenError):
        decoded(arrow_stream[: end % len(arrow_stream)], [])


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 200), max_size=8), end=st.integers(0, 200))
def test_a_baseline_in_any_pieces_has_its_cursor_only_when_whole(cuts: list[int], end: int) -> None:
    data = b'{"type":"A"}\n{"type":"B"}\n{"baseline":{"snapshot_commit_id":"C","resume_cursor":"K"}}\n'
    end = min(end, len(data))
    lines, out = BaselineLines(), b""
    edges = sorted({0, end, *(min(cut, end) for cut in cuts)})
    for start, stop in itertools.pairwise(edges):
        out += lines.feed(data[start:stop])
    if end == len(data):
        assert (out, lines.baseline().resume_cursor) == (data[:26], "K")
    else:
        assert data[:26].startswith(out)
        with pytest.raises(AnswerBrokenError):
            lines.baseline()


# Late answers


def test_a_call_ends_when_its_time_is_over(gateway: Gateway, branch: str) -> None:
    gateway.held.clear()
    try:
        with omnigraph.connect(gateway.url, graph="kb", timeout=2) as graph:
            with pytest.raises(ServerUnreachableError):
                graph.list_branches()
            with pytest.raises(WriteOutcomeUnknownError):
                graph.mutate(ADD, params={"name": "Late"}, branch=branch)
    finally:
        gateway.held.set()


def test_an_answer_that_drips_ends_too() -> None:
    """Bytes that keep coming do not make a call last for ever."""
    dripping = threading.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not dripping.is_set():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with omnigraph.connect_async(url, graph="kb", timeout=2) as graph:
            with pytest.raises(AnswerBrokenError, match=r"not complete after 2 seconds"):
                await graph.list_branches()
        dripping.set()
        server.close()

    asyncio.run(main())


# Refusals


def answering(*answers: Answer) -> tuple[HttpServer, list[dict[str, Any]]]:
    """A server that gives these answers in turn, the last one for ever, and keeps the requests."""
    seen: list[dict[str, Any]] = []

    def application(environ: dict[str, Any]) -> Answer:
        seen.append(environ)
        return answers[min(len(seen), len(answers)) - 1]

    return HttpServer(application), seen


def told(status: str, body: dict[str, Any], **headers: str) -> Answer:
    data = json.dumps(body).encode()
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return status, [("Content-Length", str(len(data))), ("Content-Type", "application/json"), *named], data


BUSY = {"error": "too many", "code": "too_many_requests", "type": "too_many_requests", "fields": {"retry_after": 1}}
BRANCHES = told("200 OK", {"branches": ["main"]})
CREATED = told("200 OK", {"uri": "u", "from": "main", "name": "x", "actor_id": None})


def test_a_server_that_is_busy_is_asked_when_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    mine = threading.current_thread()
    sleep = time.sleep

    def wait(seconds: float) -> None:
        if threading.current_thread() is mine:
            waited.append(seconds)
        else:  # of another library
            sleep(seconds)

    monkeypatch.setattr("omnigraph.client.transport.time.sleep", wait)
    other, seen = answering(told("429 Busy", BUSY, Retry_After="7"), told("429 Busy", BUSY, Retry_After="7"), BRANCHES)
    with omnigraph.connect(f"http://127.0.0.1:{other.port}", graph="kb", timeout=60) as graph:
        assert graph.list_branches() == ["main"]
    other.close()
    assert (len(seen), waited) == (3, [7.0, 7.0])


def test_a_gateway_may_say_when_by_a_date(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("omnigraph.client.transport.time.sleep", waited.append)
    soon = formatdate(time.time() + 50, usegmt=True)
    other, seen = answering(("429 Slow down", [("Retry-After", soon), ("Content-Length", "0")], b""), BRANCHES)
    with omnigraph.connect(f"http://127.0.0.1:{other.port}", graph="kb", timeout=600) as graph:
        assert graph.list_branches() == ["main"]
    other.close()
    assert len(seen) == 2
    assert 0 < waited[0] <= 50


def test_a_refusal_that_did_nothing_lets_any_write_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.client.transport.time.sleep", lambda seconds: None)
    other, seen = answering(told("429 Busy", BUSY, Retry_After="1"), CREATED)
    with omnigraph.connect(f"http://127.0.0.1:{other.port}", graph="kb") as graph:
        assert graph.create_branch("x").name == "x"
    other.close()
    assert len(seen) == 2


def test_who_has_to_wait_for_longer_than_there_is_time_is_told_at_once() -> None:
    other, seen = answering(told("429 Busy", BUSY, Retry_After="60"))
    graph = omnigraph.connect(f"http://127.0.0.1:{other.port}", graph="kb", timeout=5)
    with graph, pytest.raises(TooManyRequestsError) as caught:
        graph.list_branches()
    other.close()
    assert (len(seen), caught.value.retry_after) == (1, 1)


def test_every_attempt_at_a_write_has_the_same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.client.transport.time.sleep", lambda seconds: None)
    unknown = {"error": "not confirmed", "code": "internal", "type": "commit_outcome_unknown",
               "fields": {"kind": "unknown", "commit_id": "C1"}}  # fmt: skip
    done = {"branch": "main", "query_name": "add", "affected_nodes": 1, "affected_edges": 0, "actor_id": None,
            "commit": None, "replayed": True}  # fmt: skip
    other, seen = answering(
        told("500 Odd", unknown), ("502 Bad Gateway", [("Content-Length", "0")], b""), told("200 OK", done)
    )
    with omnigraph.connect(f"http://127.0.0.1:{other.port}", graph="kb") as graph:
        assert graph.mutate(ADD, params={"name": "x"}).replayed
        first = {environ["HTTP_IDEMPOTENCY_KEY"] for environ in seen}
        graph.mutate(ADD, params={"name": "x"})
    other.close()
    assert len(first) == 1
    assert seen[-1]["HTTP_IDEMPOTENCY_KEY"] not in first, "a new call has a new key"


# The rules themselves, without a network

CLOCK = lambda: 0.0  # noqa: E731
DICE = lambda: 0.0  # noqa: E731
READING = Request(route("listBranches"), "http://h/branches")
KEYED = Request(route("mutate"), "http://h/mutate", b"{}", {IDEMPOTENCY_HEADER: "k"}, writes=True)
BEGUN = Request(
    route("loadNdjson"), "http://h/load/ndjson", record_upload(iter(())), {IDEMPOTENCY_HEADER: "k"}, writes=True
)
REFUSED, LOST = httpx.ConnectError("refused"), httpx.ReadError("reset")


def attempts(request: Request, **options: Any) -> Attempts:
    return Attempts(request, 60, clock=CLOCK, dice=DICE, **options)


@pytest.mark.parametrize(
    ("request_", "error", "outcome"),
    [
        (READING, REFUSED, None),
        (READING, LOST, None),
        (KEYED, REFUSED, None),
        (KEYED, LOST, None),
        (KEYED, httpx.PoolTimeout("full"), None),
        (BEGUN, REFUSED, ServerUnreachableError),
        (BEGUN, LOST, WriteOutcomeUnknownError),
        (BEGUN, httpx.ReadTimeout("late"), WriteOutcomeUnknownError),
    ],
)
def test_what_is_repeated_after_a_failure(
    request_: Request, error: Exception, outcome: type[OmniGraphError] | None
) -> None:
    if isinstance(request_.content, Upload):
        list(request_.content.pieces())
    if outcome is None:
        assert attempts(request_).after_failure(error) == 0.05
    else:
        with pytest.raises(outcome):
            attempts(request_).after_failure(error)
    with pytest.raises(OmniGraphError):
        attempts(request_, retries=False).after_failure(error)


def test_a_refusal_after_a_lost_answer_does_not_say_that_nothing_happened() -> None:
    """The first attempt may have committed: only an answer that looked the key up can tell."""
    for status in (401, 403, 404, 429, 500, 503):
        made = attempts(KEYED)
        made.after_failure(LOST)
        made.retries = False
        with pytest.raises(WriteOutcomeUnknownError, match="reset; then"):
            made.after_reply(Reply(status, {}, b'{"error":"no"}'))
    made = attempts(KEYED)
    made.after_failure(LOST)
    assert made.after_reply(Reply(409, {}, b'{"error":"no"}')) is None, "the key was looked up, and had written nothing"
    assert attempts(KEYED).after_reply(Reply(401, {}, b'{"error":"no"}')) is None, "nothing was lost before"


def test_attempts_come_to_an_end() -> None:
    made = attempts(READING)
    pauses = [made.after_failure(REFUSED) for _ in range(8)]
    with pytest.raises(ServerUnreachableError):
        made.after_failure(REFUSED)
    assert pauses == sorted(pauses)
    moments = iter([0.0, 59.99])
    late = Attempts(READING, 60, clock=lambda: next(moments), dice=DICE)
    with pytest.raises(ServerUnreachableError):
        late.after_failure(REFUSED)


def test_an_upload_that_was_begun_can_be_sent_again_only_if_it_is_all_there(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"{}\n" * 200_000)
    for data, again in ((b"{}", True), (file, True), (iter([b"{}"]), False), (["{}", b"\n"], True)):
        upload = record_upload(cast(Any, data))
        assert upload.can_be_sent
        pieces = list(upload.pieces())
        assert upload.can_be_sent is again
        assert max(map(len, pieces)) <= 256 << 10
    assert b"".join(record_upload(file).pieces()) == file.read_bytes()


# Reading what was written


def test_a_client_reads_what_it_wrote(through: Api, server: RunningServer, branch: str) -> None:
    through.mutate(ADD, params={"name": "Own"}, branch=branch)
    assert "Own" in [row["name"] for row in through.query(EVERYBODY, branch=f" {branch} ").rows()]
    assert through.query(EVERYBODY, branch=branch, version=2).num_rows == 3, "the past is not asked to be recent"
    assert through.entity("Person", "Own", branch=branch) is not None
    assert len(through.read_blob("node", "Person", "Ada", "photo", branch=branch).read()) == 1280


def test_a_branch_that_was_made_anew_is_told_once(
    through: Api, served_graph: omnigraph.Graph, branch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.client.transport._TO_CATCH_UP", 0.0)
    through.mutate(ADD, params={"name": "Gone"}, branch=branch)
    served_graph.delete_branch(branch)
    served_graph.create_branch(branch)
    served_graph.mutate(ADD, params={"name": "Other"}, branch=branch)
    with pytest.raises(PreconditionFailedError):
        through.query(EVERYBODY, branch=branch)
    assert through.query(EVERYBODY, branch=branch).num_rows == 4


def test_a_worker_that_lags_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(READING.route, READING.url, headers={MIN_COMMIT_HEADER: "C"})
    made = attempts(request)
    assert made.after_reply(Reply(412, {}, b'{"error":"not yet"}')) == 0.05
    assert made.after_reply(Reply(200, {}, b"")) is None
    assert attempts(READING).after_reply(Reply(412, {}, b'{"error":"no"}')) is None


# Feeds


def test_a_feed_goes_on_after_lost_connections(
    through: Api, gateway: Gateway, served_graph: omnigraph.Graph, branch: str
) -> None:
    start = f"after:{served_graph.resolve_snapshot(branch)}"
    served_graph.mutate(ADD, params={"name": "n0"}, branch=branch)
    feed = cast(Any, through).changes.follow(branch=branch, start=start)
    names = []
    for number in range(1, 4):
        poll = next(feed)
        names += [change.id for block in poll.blocks for change in block.changes]
        assert poll.cursor is not None
        served_graph.mutate(ADD, params={"name": f"n{number}"}, branch=branch)
        gateway.lose = 1
    assert names == ["n0", "n1", "n2"], "each once, and in order"
    later = cast(Any, through).changes.follow(branch=branch, cursor=poll.cursor)
    assert [change.id for change in next(later).blocks[0].changes] == ["n3"], "from where it was left"


def test_who_waits_for_a_change_gets_it_when_it_happens(
    server: RunningServer, served_graph: omnigraph.Graph, branch: str
) -> None:
    with omnigraph.connect(server.url, graph="kb", timeout=5) as graph:
        cursor = graph.changes.poll(branch=branch).cursor
        waiting = server.recorder.begun["pollChanges"]
        found: list[Any] = []
        waiter = threading.Thread(
            target=lambda: found.append(graph.changes.poll(branch=branch, cursor=cursor, wait_ms=60_000))
        )
        waiter.start()
        wait_until(lambda: server.recorder.begun["pollChanges"] > waiting, "the poll waits")
        served_graph.mutate(ADD, params={"name": "Now"}, branch=branch)
        waiter.join()
    assert found[0].blocks[0].changes[0].id == "Now"


# Memory


def test_an_export_is_never_held_whole(server: RunningServer) -> None:
    """What a writer gets at a time, and so what is held, is a chunk of the stream and not the stream."""
    sizes: list[int] = []

    class Counting:
        def write(self, data: bytes) -> None:
            sizes.append(len(data))

    with omnigraph.connect(server.url, graph="kb") as graph:
        assert graph.export_to(Counting()) > 1000
    assert sum(sizes) > 4_000_000
    assert max(sizes) < 200_000


def test_a_load_is_sent_while_it_is_read() -> None:
    """The second piece is made when the first has arrived, so no more than what is under way is ever held."""
    arrived = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def take() -> None:
        connection, _ = listener.accept()
        received = b""
        while b"Second" not in received:
            received += connection.recv(65536)
            if b"First" in received:
                arrived.set()
        connection.close()

    taker = threading.Thread(target=take)
    taker.start()

    def records() -> Iterator[str]:
        yield person("First") + "\n"
        wait_until(arrived.is_set, "the first piece has arrived")
        yield person("Second")

    graph = omnigraph.connect(f"http://127.0.0.1:{listener.getsockname()[1]}", graph="kb")
    with graph, pytest.raises(WriteOutcomeUnknownError):
        graph.load(records(), mode="append")
    taker.join()
    listener.close()


# Secrets


def test_a_token_is_never_shown_and_goes_to_one_host(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stranger, at_stranger = answering(BRANCHES)
    place = f"http://localhost:{stranger.port}/steal"
    moved: Answer = ("307 Temporary", [("Location", place), ("Content-Length", "0")], b"")
    echo = f'{{"oops": "{TOKEN}"}}'.encode()
    echoing: Answer = ("400 Odd", [("Content-Length", str(len(echo)))], echo)
    other, seen = answering(moved, echoing)
    shown = []
    with omnigraph.connect(f"http://127.0.0.1:{other.port}", graph="kb", token=TOKEN) as graph:
        shown += [repr(graph), str(vars(graph)), repr(graph._transport._settings)]
        for _ in range(2):
            with pytest.raises(UnexpectedAnswerError) as caught:
                graph.list_branches()
            shown += [str(caught.value), repr(caught.value), str(caught.value.fields)]
    with omnigraph.connect("http://127.0.0.1:9", graph="kb", token=TOKEN, retries=False) as graph:
        with pytest.raises(ServerUnreachableError) as unreachable:
            graph.list_branches()
        shown += [str(unreachable.value), str(unreachable.value.__cause__)]
    other.close()
    stranger.close()
    assert seen[0]["HTTP_AUTHORIZATION"] == f"Bearer {TOKEN}"
    assert at_stranger == [], "a redirect is not followed"
    assert TOKEN not in "".join([*shown, caplog.text])
    for bad in ("", "a\nb", "ü"):
        with pytest.raises(BadRequestError) as refused:
            omnigraph.connect("http://h", token=bad)
        assert not bad or bad not in str(refused.value)


# Addresses


@pytest.mark.parametrize(
    ("url", "graph", "uri"),
    [
        ("https://h", "kb", "https://h/graphs/kb"),
        ("https://h/", "a b", "https://h/graphs/a%20b"),
        ("https://h/base/graphs/kb/", None, "https://h/base/graphs/kb"),
        ("https://h/graphs/kb", "kb", "https://h/graphs/kb"),
        ("http://[::1]:8080/x", None, "http://[::1]:8080/x"),
    ],
)
def test_addresses(url: str, graph: str | None, uri: str) -> None:
    address = Address.parse(url, graph)
    assert address.uri == uri
    assert address.url(route("deleteBranch"), branch="a/b ü") == f"{uri}/branches/a%2Fb%20%C3%BC"
    assert address.url(route("listGraphs")).endswith("/graphs")


@pytest.mark.parametrize(
    ("url", "graph"),
    [("s3://b/g", None), ("h:8080", None), ("https://u:p@h", None), ("https://h/?x=1", None), ("https://h#x", None),
     ("https://h/graphs/a", "b"), ("http://", None)],
)  # fmt: skip
def test_addresses_that_are_none(url: str, graph: str | None) -> None:
    with pytest.raises(BadRequestError):
        omnigraph.connect(url, graph=graph)
