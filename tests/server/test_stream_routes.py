"""Streams over HTTP: exports, those who read them slowly or not at all, and those that break off midway."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from omnigraph import Graph
from omnigraph.server.handlers.reads import stream_response
from omnigraph.server.http.call import HANDLERS
from omnigraph.server.settings import ServerLimits
from tests.server import raw
from tests.server.running import RunningServer, running
from tests.server.sample import EVERYBODY, Rules, bearer, ndjson, people, person
from tests.support.waiting import wait_until

LINES, LINE_BYTES = 4_000, 4_000
TOTAL = LINES * LINE_BYTES
"""More than the buffers of a connection hold, so that a client that does not read makes the server wait."""
NOTES = "query notes() { match { $n: Note } return { $n.text as text } }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with people(tmp_path_factory.mktemp("streams") / "kb") as graph:
        yield graph


@pytest.fixture(scope="module")
def large_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Notes of many megabytes, which an export writes before people."""
    root = tmp_path_factory.mktemp("large") / "kb"
    with people(root) as graph:
        graph.load([{"text": "x" * LINE_BYTES} for _ in range(LINES)], mode="append", type="Note")
    return root


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[RunningServer]:
    with running({"kb": graph}) as server:
        yield server
        assert not server.recorder.failures


@pytest.fixture(scope="module")
def large(large_root: Path) -> Iterator[RunningServer]:
    with Graph.open(large_root) as graph, running({"kb": graph}, limits=ServerLimits(streams_per_graph=1)) as server:
        yield server


def export(server: RunningServer, body: Any = None, headers: Any = None) -> Any:
    return server.client.post("/graphs/kb/export", json=body, headers=headers)


# Exports


def test_an_export_is_edges_then_nodes_by_type_and_id(server: RunningServer, graph: Graph) -> None:
    graph.load(json.dumps({"type": "Note", "data": {"text": "n"}}), mode="append")
    answer = export(server, {})
    assert answer.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert answer.headers["omnigraph-commit"] == graph.resolve_snapshot("main")
    lines = ndjson(answer.content)
    types = [line.get("edge") or line["type"] for line in lines]
    assert types == ["Knows", "Note", "Person", "Person", "Person"]
    assert list(lines[0]) == ["edge", "from", "to", "data"]
    assert [line["data"]["id"] for line in lines[2:]] == ["Ada", 'Bob, or "Rob"\nSmith', "Cy"]
    ada = lines[2]["data"]
    assert (ada["born"], ada["seen"], ada["email"]) == (-56270, 1714979289010, None)


def test_an_export_loads_again(server: RunningServer, tmp_path: Path) -> None:
    text = export(server).text
    with people(tmp_path / "copy") as copy, running({"kb": copy}) as other:
        for name in ("Ada", 'Bob, or "Rob"\nSmith', "Cy"):
            copy.mutate("query d($n: String) { delete Person where name = $n }", params={"n": name})
        loaded = other.client.post("/graphs/kb/load", json={"data": text})
        again = export(other).text
    assert loaded.status_code == 200, loaded.text
    assert again == text


def test_an_export_has_numbers_for_dates_unless_texts_are_asked_for(server: RunningServer, graph: Graph) -> None:
    asked = server.client.post("/graphs/kb/export?dates=iso")
    assert asked.text == export(server, {"dates": "iso"}).text == "".join(graph.export())
    assert export(server, {"dates": "epoch"}).text == export(server).text == "".join(graph.export(epoch=True))
    ada = next(line["data"] for line in ndjson(asked.content) if line["data"]["id"] == "Ada")
    assert (ada["born"], ada["seen"]) == ("1815-12-10", "2024-05-06T07:08:09.010Z")
    commit = {"snapshot": graph.resolve_snapshot("main")}
    tags = {
        export(server, commit).headers["etag"],
        server.client.post("/graphs/kb/export?dates=iso", json=commit).headers["etag"],
    }
    assert len(tags) == 2
    assert server.client.post("/graphs/kb/export?dates=roman").status_code == 400


def test_an_export_of_some_types(server: RunningServer) -> None:
    assert {line.get("type") for line in ndjson(export(server, {"type_names": ["Person"]}).content)} == {"Person"}
    assert len(ndjson(export(server, {"type_names": ["Knows"]}).content)) == 1


def test_an_export_of_the_past(server: RunningServer, graph: Graph) -> None:
    first = graph.commits().commits[-1].id
    answer = export(server, {"snapshot": first})
    assert (answer.status_code, answer.content) == (200, b"")
    assert export(server, {"version": 2}).text == export(server, {"snapshot": graph.commits().commits[-2].id}).text


def test_an_export_of_a_commit_has_a_tag(server: RunningServer, graph: Graph) -> None:
    newest, older = (commit.id for commit in graph.commits().commits[:2])
    tag = export(server, {"snapshot": newest}).headers["etag"]
    again = server.client.post("/graphs/kb/export", json={"snapshot": newest}, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["omnigraph-commit"]) == (304, b"", newest)
    assert export(server, {"snapshot": older}).headers["etag"] != tag
    assert "etag" not in export(server, {}).headers


@pytest.mark.parametrize(
    ("body", "status", "fragment"),
    [
        ({"types": ["Person"]}, 400, "invalid export request"),
        ({"branch": 5}, 400, "invalid export request"),
        ({"type_names": "Person"}, 400, "invalid export request"),
        ([], 400, "invalid export request"),
        ({"branch": "  "}, 400, "blank"),
        ({"branch": "none"}, 404, "branch 'none' not found"),
        ({"type_names": ["Nothing"]}, 400, "unknown export type 'Nothing'"),
        ({"branch": "main", "snapshot": "x"}, 400, "branch or snapshot, not both"),
    ],
)
def test_exports_that_can_not_be(server: RunningServer, body: Any, status: int, fragment: str) -> None:
    answer = export(server, body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert fragment in answer.json()["error"]
    wait_until(lambda: server.open_streams() == 0, "the slot is given back")


def test_an_export_has_a_right_of_its_own(graph: Graph) -> None:
    rules = Rules({"ana": ["export@main"], "rob": ["read"]})
    with running({"kb": graph}, tokens={"ana": "t1", "rob": "t2"}, gates={"kb": rules}) as server:
        assert export(server, {"branch": " main "}, bearer("t1")).status_code == 200
        assert export(server, {}, bearer("t2")).status_code == 403


# Clients that stop reading


@contextmanager
def paused(server: RunningServer, path: str = "export", **headers: str) -> Iterator[http.client.HTTPResponse]:
    """A stream of which its client has read the headers and nothing else."""
    body = json.dumps({"query": NOTES}) if path == "query" else "{}"
    told = {"Content-Type": "application/json", "Content-Length": len(body), **headers}
    with raw.connected(server, receive_buffer=16 << 10) as connection:
        connection.sendall(raw.head("POST", f"/graphs/kb/{path}", told) + body.encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        try:
            yield response
        finally:
            response.close()


def test_a_stream_is_of_one_state_and_holds_up_no_writer(large: RunningServer) -> None:
    with paused(large) as response:
        written = large.client.post("/graphs/kb/load", json={"data": person("Meanwhile")})
        branched = large.client.post("/graphs/kb/branches", json={"name": "meanwhile"})
        lines = ndjson(response.read())
    assert (written.status_code, branched.status_code) == (200, 200)
    assert len(lines) == LINES + 4
    assert "Meanwhile" not in [line["data"].get("name") for line in lines]


def test_there_are_so_many_streams_of_a_graph(large: RunningServer) -> None:
    """Another one is refused at once; everything else goes on."""
    with paused(large):
        for path, body in (("export", {}), ("changes/baseline", {}), ("query", {"query": NOTES})):
            refused = large.client.post(f"/graphs/kb/{path}", json=body, headers={"Accept": "application/x-ndjson"})
            assert (refused.status_code, refused.json()["type"]) == (503, "unavailable")
            assert int(refused.headers["retry-after"]) > 0
            assert "(--streams-per-graph)" in refused.json()["error"]
        for accepted in ("application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"):
            asked = {"json": {"query": EVERYBODY}, "headers": {"Accept": accepted}}
            small = large.client.post("/graphs/kb/query", **asked)
            assert (small.status_code, small.headers["content-length"]) == (200, str(len(small.content)))
    wait_until(lambda: large.open_streams() == 0, "the slot is given back")
    assert export(large, {"type_names": ["Person"]}).status_code == 200


@pytest.mark.parametrize("path", ["export", "query"])
def test_nothing_is_made_for_a_client_that_left(large: RunningServer, path: str) -> None:
    """What was sent is what the buffers of the connection took: the server waits for its client, and then stops."""
    with paused(large, path, Accept="application/x-ndjson", **{"X-Request-Id": f"left-{path}"}) as response:
        response.read(1_000)
        for _ in range(5):
            assert large.client.get("/healthz").status_code == 200
    wait_until(lambda: large.open_streams() == 0, "the slot is given back")
    record = large.recorder.record_of(f"left-{path}")
    assert record.broke_off
    assert record.sent_bytes < TOTAL / 2
    assert large.recorder.count(large.recorder.metrics.streams) == 0


def test_a_client_that_never_reads_is_given_up(large_root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Graph.open(large_root) as graph, running({"kb": graph}, limits=ServerLimits(send_seconds=0.05)) as server:
        with paused(server):
            wait_until(lambda: server.recorder.records, "the stream is over")
            wait_until(lambda: server.open_streams() == 0, "the slot is given back")
        assert server.recorder.records[0].broke_off
        assert server.recorder.records[0].sent_bytes < TOTAL / 2
    assert not [record for record in caplog.records if record.levelname == "ERROR"], "its client is to blame"


# Streams that break off


@pytest.fixture
def torn(large_root: Path, tmp_path: Path) -> Iterator[tuple[RunningServer, Path]]:
    """A graph of which a test removes what it likes."""
    shutil.copytree(large_root, tmp_path / "kb")
    with Graph.open(tmp_path / "kb") as graph, running({"kb": graph}) as server:
        yield server, tmp_path / "kb"


def remove_people(server: RunningServer, root: Path) -> None:
    listing = server.client.get("/graphs/kb/snapshot").json()["datasets"]
    table = next(dataset for dataset in listing if dataset["type_name"] == "Person")["dataset_path"]
    shutil.rmtree(root / table / "data")


@pytest.mark.parametrize("path", ["export", "changes/baseline"])
def test_a_stream_that_fails_midway_says_so_and_never_looks_complete(
    torn: tuple[RunningServer, Path], path: str
) -> None:
    server, root = torn
    with paused(server, path, **{"X-Request-Id": "torn-1"}) as response:
        remove_people(server, root)
        with pytest.raises(http.client.IncompleteRead) as cut:
            response.read()
    lines = ndjson(cut.value.partial)
    assert sum(line.get("type") == "Note" for line in lines) > LINES / 2
    told = lines[-1]["error"]
    assert (told["code"], told["fields"]["request_id"]) == ("internal", "torn-1")
    assert str(root) not in json.dumps(told)
    assert not [line for line in lines if "baseline" in line]
    wait_until(lambda: server.open_streams() == 0, "the slot is given back")
    record = server.recorder.record_of("torn-1")
    assert len(server.recorder.failures) == 1
    assert (record.status, record.broke_off) == (200, True)


def test_a_stream_that_stands_still_is_broken_off(large_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()

    def lines() -> Iterator[bytes]:
        yield b'{"type":"Note","data":{}}\n'
        stuck.wait()

    stand_still = lambda call: stream_response(call, lines(), "application/x-ndjson", {})  # noqa: E731
    monkeypatch.setitem(HANDLERS, "export", stand_still)
    with Graph.open(large_root) as graph, running({"kb": graph}, limits=ServerLimits(query_seconds=2)) as server:
        try:
            with paused(server) as response, pytest.raises(http.client.IncompleteRead) as cut:
                response.read()
        finally:
            stuck.set()
        first, last = ndjson(cut.value.partial)
        assert first == {"type": "Note", "data": {}}
        assert last["error"]["resource_limit"]["resource"] == "query seconds"
        wait_until(lambda: server.open_streams() == 0, "the slot is given back")


def test_a_stream_that_fails_at_once_is_an_error(torn: tuple[RunningServer, Path]) -> None:
    server, root = torn
    remove_people(server, root)
    answer = export(server, {"type_names": ["Person"]})
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    wait_until(lambda: server.open_streams() == 0, "the slot is given back")


def test_the_server_goes_on_after_a_broken_stream(torn: tuple[RunningServer, Path]) -> None:
    server, root = torn
    with paused(server) as response:
        remove_people(server, root)
        with pytest.raises(http.client.IncompleteRead):
            response.read()
    assert server.client.get("/healthz").status_code == 200
    assert export(server, {"type_names": ["Knows"]}).status_code == 200


def test_an_export_is_finished_on_the_graph_it_began_with(large_root: Path) -> None:
    closed: list[bool] = []
    graph = Graph.open(large_root)
    graph._workspace.root.on_close(lambda: closed.append(True))
    with running({"kb": graph}) as server:
        states = server.services.states
        with httpx.stream("POST", f"{server.graph()}/export", json={"type_names": ["Note"]}, timeout=120) as answer:
            pieces = answer.iter_bytes()
            size = len(next(pieces))
            states.replace(replace(states.serving, graphs={}))
            assert server.client.get("/graphs/kb/branches").status_code == 404
            assert not closed
            assert size + sum(map(len, pieces)) > TOTAL
        wait_until(lambda: closed, "the graph was closed behind its last stream")
