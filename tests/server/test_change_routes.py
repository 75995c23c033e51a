"""Changes over HTTP: of a commit, of a branch as a feed, those who wait for them, and baselines to begin with."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from omnigraph import Graph
from omnigraph.server.handlers import changes
from omnigraph.server.settings import ServerLimits
from tests.server import raw
from tests.server.running import RunningServer, faultless, running
from tests.server.sample import SCHEMA, Rules, bearer, ndjson, people, person
from tests.support.servers import WITHOUT_TLS
from tests.support.waiting import wait_until

EVENTS = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with people(tmp_path_factory.mktemp("changes") / "kb") as graph:
        yield graph


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[RunningServer]:
    with faultless({"kb": graph}) as server:
        yield server


@pytest.fixture(scope="module")
def history(graph: Graph) -> list[str]:
    return [commit.id for commit in reversed(graph.commits().commits)]


def poll(server: RunningServer, **parameters: Any) -> Any:
    answer = server.client.get("/graphs/kb/changes", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


# The changes of a commit


def test_what_a_commit_changed(server: RunningServer, history: list[str]) -> None:
    told = server.client.get(f"/graphs/kb/commits/{history[2]}/changes").json()
    assert told["cause"]["graph_commit_id"] == history[2]
    assert told["cause"]["parent_commit_id"] == history[1]
    assert told["cause"]["authored_branch"] == "main"
    [change] = told["changes"]
    assert (change["kind"], change["type"]["name"], change["op"]) == ("edge", "Knows", "insert")
    assert change["after"] == {"properties": {"since": 18263}, "endpoints": {"from": "Ada", "to": "Cy"}}
    assert "before" not in change
    assert "next_page_token" not in told


def test_images_before_and_after(server: RunningServer, graph: Graph, branch: str) -> None:
    graph.load(person("Ada", age=37), mode="merge", branch=branch)
    [updated] = server.client.get(f"/graphs/kb/commits/{graph.resolve_snapshot(branch)}/changes").json()["changes"]
    assert (updated["before"]["properties"]["age"], updated["after"]["properties"]["age"]) == (36, 37)
    assert "endpoints" not in updated["after"]


def test_the_changes_of_a_commit_in_pages(server: RunningServer, history: list[str]) -> None:
    url, found, token = f"/graphs/kb/commits/{history[1]}/changes", [], {}
    while True:
        page = server.client.get(url, params={"limit": 1, **token}).json()
        found += page["changes"]
        if "next_page_token" not in page:
            break
        token = {"page_token": page["next_page_token"]}
    assert found == server.client.get(url).json()["changes"]
    assert len(found) == 3


def test_changes_are_filtered(server: RunningServer, history: list[str]) -> None:
    url = f"/graphs/kb/commits/{history[1]}/changes"
    assert server.client.get(f"{url}?kind=edge").json()["changes"] == []
    assert len(server.client.get(f"{url}?kind=node&type=Person&type=Note&op=insert&op=insert").json()["changes"]) == 3


def test_the_first_commit_has_no_changes(server: RunningServer, history: list[str]) -> None:
    answer = server.client.get(f"/graphs/kb/commits/{history[0]}/changes")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    refusal = answer.json()["change_diff_refusal"]
    assert refusal == {"reason": "parentless_commit", "graph_commit_id": history[0]}


def test_a_commit_that_changed_the_schema(tmp_path: Any) -> None:
    with people(tmp_path / "kb") as graph, running({"kb": graph}) as server:
        graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  nick: String?"))
        answer = server.client.get(f"/graphs/kb/commits/{graph.resolve_snapshot('main')}/changes")
    assert (answer.status_code, answer.json()["changes"]) == (200, [])
    (change,) = answer.json()["schema_changes"]
    assert (change["op"], change["change"], change["type"]["name"]) == ("schema_change", "changed", "Person")
    assert [(step["kind"], step["property_name"]) for step in change["steps"]] == [("add_property", "nick")]


def test_an_unknown_commit(server: RunningServer) -> None:
    answer = server.client.get("/graphs/kb/commits/none/changes")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


# The feed


def test_the_feed_from_its_beginning(server: RunningServer, history: list[str]) -> None:
    told = poll(server, start="beginning")
    assert [block["cause"]["graph_commit_id"] for block in told["blocks"]] == history[1:]
    assert [len(block["changes"]) for block in told["blocks"]] == [3, 1]
    assert told["caught_up"] is True
    assert poll(server, cursor=told["cursor"])["blocks"] == []


def test_without_a_start_the_feed_begins_now(server: RunningServer, graph: Graph, branch: str) -> None:
    told = poll(server, branch=branch)
    assert told["blocks"] == []
    graph.load(person("Next"), mode="merge", branch=branch)
    [block] = poll(server, branch=branch, cursor=told["cursor"])["blocks"]
    assert [change["id"] for change in block["changes"]] == ["Next"]
    assert block["cause"]["authored_branch"] == branch


def test_the_feed_after_a_commit(server: RunningServer, history: list[str]) -> None:
    told = poll(server, start=f"after:{history[1]}")
    assert [block["cause"]["graph_commit_id"] for block in told["blocks"]] == history[2:]


def test_a_commit_is_split_over_pages(server: RunningServer) -> None:
    whole, blocks, token = poll(server, start="beginning"), [], {"start": "beginning"}
    while True:
        page = poll(server, limit=2, **token)
        blocks += page["blocks"]
        assert ("cursor" in page) == ("caught_up" in page) == ("next_page_token" not in page)
        if page.get("caught_up"):
            break
        token = {"page_token": page["next_page_token"]} if "next_page_token" in page else {"cursor": page["cursor"]}
    assert [b["cause"] for b in blocks[:2]] == [whole["blocks"][0]["cause"]] * 2
    flat = [change for block in blocks for change in block["changes"]]
    assert flat == [change for block in whole["blocks"] for change in block["changes"]]


def test_a_filtered_commit_still_advances(server: RunningServer, history: list[str]) -> None:
    told = poll(server, start="beginning", kind="edge")
    assert [len(block["changes"]) for block in told["blocks"]] == [0, 1]


@pytest.mark.parametrize(
    ("query", "status", "fragment"),
    [
        ("unknown=1", 400, "unknown"),
        ("branch=main&branch=main", 400, "branch"),
        ("limit=1&limit=1", 400, "limit"),
        ("limit=0", 400, "limit"),
        ("limit=-1", 400, "limit"),
        ("limit=ten", 400, "limit"),
        ("limit=1.5", 400, "limit"),
        ("limit=8193", 413, "commit_changes_page_changes"),
        ("kind=vertex", 400, "vertex"),
        ("op=upsert", 400, "upsert"),
        ("wait_ms=-1", 400, "wait_ms"),
        ("wait_ms=soon", 400, "wait_ms"),
        ("start=now&cursor=x", 400, "at most one of start, cursor and page_token"),
        ("start=now&page_token=x", 400, "at most one of start, cursor and page_token"),
        ("cursor=x&page_token=x", 400, "at most one of start, cursor and page_token"),
        ("start=yesterday", 400, "yesterday"),
        ("start=after:none", 400, "commit 'none' is not in the first-parent history"),
        ("branch=none", 404, "branch 'none' not found"),
        ("cursor=x", 400, "change cursor rejected: "),
        ("page_token=x", 400, "change cursor rejected: "),
        ("cursor=" + "A" * 5000, 400, "change cursor rejected: "),
        ("cursor=%00", 400, "change cursor rejected: "),
    ],
)
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_polls_that_can_not_be(server: RunningServer, accept: str, query: str, status: int, fragment: str) -> None:
    answer = server.client.get(f"/graphs/kb/changes?{query}", headers={"Accept": accept})
    assert answer.status_code == status, answer.text
    assert fragment in answer.json()["error"]
    assert set(answer.json()) <= {"error", "code", "type", "fields", "resource_limit"}


def test_the_query_string_of_a_commits_changes_is_strict(server: RunningServer, history: list[str]) -> None:
    for query in ("branch=main", "page_token=x&page_token=y", "limit=0", "page_token=x"):
        assert server.client.get(f"/graphs/kb/commits/{history[1]}/changes?{query}").status_code == 400, query


def test_a_cursor_belongs_to_its_question(server: RunningServer, graph: Graph, branch: str) -> None:
    cursor = poll(server, branch=branch, kind=["node", "edge"], op="insert")["cursor"]
    same = {"branch": branch, "op": ["insert", "insert"], "limit": 5, "cursor": cursor}
    assert poll(server, **same)["blocks"] == []
    altered = cursor[:-2] + ("AA" if not cursor.endswith("AA") else "BB")
    graph.delete_branch(branch)
    graph.create_branch(branch)
    others: list[dict[str, Any]] = [
        same,  # the branch is another one of the same name
        {**same, "branch": "main"},
        {**same, "op": "delete"},
        {**same, "cursor": altered},
        {**same, "cursor": cursor[:-4]},
        {"branch": branch, "op": "insert", "page_token": cursor},
    ]
    for other in others:
        answer = server.client.get("/graphs/kb/changes", params=other)
        assert answer.status_code == 400, other
        assert answer.json()["error"].startswith("change cursor rejected: ")


def test_a_cursor_belongs_to_its_graph(server: RunningServer, tmp_path: Any) -> None:
    cursor = poll(server)["cursor"]
    with people(tmp_path / "other") as other, running({"kb": other}) as elsewhere:
        answer = elsewhere.client.get("/graphs/kb/changes", params={"cursor": cursor})
    assert answer.json()["error"].startswith("change cursor rejected: ")


# Waiting


def waiters(server: RunningServer) -> int:
    waits = server.application._feeds._waits.copy().values()
    return sum(watched.waiters for each in waits for watched in each._watched.copy().values())


def test_a_poll_that_waits_ends_with_a_write(server: RunningServer, graph: Graph, branch: str) -> None:
    cursor = poll(server, branch=branch)["cursor"]
    answers: list[Any] = []
    waiting = threading.Thread(
        target=lambda: answers.append(poll(server, branch=branch, cursor=cursor, wait_ms=60_000))
    )
    waiting.start()
    wait_until(lambda: waiters(server) == 1, "a poll waits")
    graph.load(person("Awaited"), mode="merge", branch=branch)
    waiting.join()
    [block] = answers[0]["blocks"]
    assert [change["id"] for change in block["changes"]] == ["Awaited"]
    wait_until(lambda: waiters(server) == 0, "nobody waits any more")


def test_a_wait_ends_with_nothing_when_its_time_is_over(server: RunningServer) -> None:
    told = poll(server, wait_ms=1)
    assert (told["blocks"], told["caught_up"]) == ([], True)


def test_what_is_there_is_not_waited_for(server: RunningServer) -> None:
    assert len(poll(server, start="beginning", wait_ms=60_000)["blocks"]) == 2


def test_a_client_that_leaves_waits_no_longer(server: RunningServer, branch: str) -> None:
    with raw.connected(server) as connection:
        connection.sendall(raw.head("GET", f"/graphs/kb/changes?branch={branch}&wait_ms=60000"))
        wait_until(lambda: waiters(server) == 1, "a poll waits")
    wait_until(lambda: waiters(server) == 0, "the server notices")


# Server-sent events


class Events:
    """The events of a stream, one at a time."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def next(self) -> dict[str, str]:
        event: dict[str, str] = {}
        for line in self._lines:
            if not line:
                if event:
                    return event
            elif not line.startswith(":"):
                name, _, value = line.partition(": ")
                event[name] = value
        return event


@contextmanager
def events(server: RunningServer, query: str, **headers: str) -> Iterator[Events]:
    with httpx.stream(
        "GET",
        f"{server.graph()}/changes?{query}",
        headers={**EVENTS, **headers},
        timeout=120,
        verify=WITHOUT_TLS,
    ) as response:
        assert response.status_code == 200
        yield Events(response)


def test_events_follow_a_branch(server: RunningServer, graph: Graph, branch: str) -> None:
    with events(server, f"branch={branch}") as stream:
        assert stream.response.headers["content-type"] == "text/event-stream"
        assert stream.response.headers["cache-control"] == "no-store"
        first = stream.next()
        assert (first["event"], json.loads(first["data"])["blocks"]) == ("changes", [])
        for name in ("One", "Two"):
            graph.load(person(name), mode="merge", branch=branch)
            event = stream.next()
            told = json.loads(event["data"])
            assert event["id"] == told["cursor"]
            assert [change["id"] for block in told["blocks"] for change in block["changes"]] == [name]
    wait_until(lambda: server.recorder.count(server.recorder.metrics.streams) == 0, "the slot is given back")


def test_events_go_on_over_a_schema_change(server: RunningServer, graph: Graph, branch: str) -> None:
    with events(server, f"branch={branch}&type=Person") as stream:
        stream.next()
        graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  nick: String?"), branch=branch)
        (block,) = json.loads(stream.next()["data"])["blocks"]
        assert [(each["op"], each["type"]["name"]) for each in block["schema_changes"]] == [("schema_change", "Person")]
        graph.load(person("Later"), mode="merge", branch=branch)
        (block,) = json.loads(stream.next()["data"])["blocks"]
        assert list(block) == ["cause", "changes"]
        assert block["changes"][0]["after"]["properties"]["nick"] is None


def test_a_stream_goes_on_where_a_client_was(server: RunningServer, graph: Graph, branch: str) -> None:
    with events(server, f"branch={branch}") as stream:
        last = stream.next()["id"]
    graph.load(person("Missed"), mode="merge", branch=branch)
    with events(server, f"branch={branch}&start=now", **{"Last-Event-ID": last}) as stream:
        told = json.loads(stream.next()["data"])
    assert [change["id"] for block in told["blocks"] for change in block["changes"]] == ["Missed"]


def test_pages_inside_a_commit_have_no_id(server: RunningServer, history: list[str]) -> None:
    """A client that loses the connection there gets the whole commit again."""
    found: list[str] = []
    with events(server, "start=beginning&limit=2") as stream:
        while len(found) < 4:
            event = stream.next()
            told = json.loads(event["data"])
            assert ("id" in event) == ("cursor" in told)
            found += [change["id"] for block in told["blocks"] for change in block["changes"]]
    assert found[:3] == sorted(found[:3])


def test_an_event_id_that_nobody_gave(server: RunningServer) -> None:
    answer = server.client.get("/graphs/kb/changes", headers={**EVENTS, "Last-Event-ID": "nonsense"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("change cursor rejected: ")


def test_a_stream_that_can_not_go_on_says_why(server: RunningServer, graph: Graph, branch: str) -> None:
    with events(server, f"branch={branch}") as stream:
        stream.next()
        graph.delete_branch(branch)
        event = stream.next()
        assert stream.next() == {}, "and it ends"
    assert event["event"] == "error"
    assert json.loads(event["data"])["error"].startswith(f"branch '{branch}' not found")


def test_a_client_that_leaves_gives_its_slot_back(graph: Graph, branch: str) -> None:
    with running({"kb": graph}, limits=ServerLimits(feeds=1)) as server:
        with events(server, f"branch={branch}") as stream:
            stream.next()
            for path, headers in (("changes", EVENTS), ("changes?wait_ms=1", {})):
                refused = server.client.get(f"/graphs/kb/{path}", headers=headers)
                assert (refused.status_code, refused.json()["type"]) == (503, "unavailable")
                assert int(refused.headers["retry-after"]) > 0
                assert "(--feeds)" in refused.json()["error"]
            assert server.client.get("/graphs/kb/changes").status_code == 200, "it does not wait"
        wait_until(lambda: server.feeds() == 0, "the slot is given back")
        with events(server, f"branch={branch}") as stream:
            assert stream.next()["event"] == "changes"


def test_a_client_that_asked_for_more_and_left_gives_its_slot_back(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "HEARTBEAT_SECONDS", 0.02)
    with running({"kb": graph}) as server:
        with raw.connected(server) as connection:
            connection.sendall(raw.head("GET", "/graphs/kb/changes", EVENTS) + raw.head("GET", "/healthz"))
            wait_until(lambda: server.feeds() == 1, "the stream is open")
        wait_until(lambda: server.feeds() == 0, "the slot is given back")
        assert not server.recorder.failures, "to leave is no fault"


def test_those_who_wait_move_to_a_state_that_is_served_later(graph: Graph, branch: str) -> None:
    """Else an endless stream would see by rules that were replaced long ago."""
    with running({"kb": graph}) as server:
        cursor = poll(server, branch=branch)["cursor"]
        answers: list[Any] = []
        waiting = threading.Thread(
            target=lambda: answers.append(poll(server, branch=branch, cursor=cursor, wait_ms=60_000))
        )
        with events(server, f"branch={branch}") as stream:
            last = stream.next()["id"]
            waiting.start()
            wait_until(lambda: waiters(server) == 2, "a poll and a stream wait")
            states = server.services.states
            served = states.serving.graph("kb")
            ruled = replace(served, graph=served.graph._with_gate(Rules({})))
            states.replace(replace(states.serving, graphs={"kb": ruled}))
            assert stream.next() == {}, "it ends as a whole answer"
        waiting.join()
        assert (answers[0]["blocks"], answers[0]["cursor"]) == ([], cursor)
        again = server.client.get(f"/graphs/kb/changes?branch={branch}", headers={**EVENTS, "Last-Event-ID": last})
        assert again.status_code == 403


# Who may follow


@pytest.mark.parametrize("query", ["", "wait_ms=1", "start=beginning"])
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_nothing_is_told_to_those_who_may_not_read(graph: Graph, accept: str, query: str) -> None:
    """Not even whether a branch exists, and whether there is room for a stream."""
    limits = ServerLimits(streams_per_graph=0, feeds=0)
    headers = {**bearer("t"), "Accept": accept}
    with running({"kb": graph}, tokens={"rob": "t"}, gates={"kb": Rules({})}, limits=limits) as server:
        answers = [
            server.client.get(f"/graphs/kb/changes?branch={name}&{query}", headers=headers) for name in ("main", "none")
        ]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert answers[0].json() == answers[1].json()


def test_a_long_stream_is_asked_about_once(graph: Graph, branch: str) -> None:
    with (
        running({"kb": graph}, tokens={"ana": "t"}) as server,
        events(server, f"branch={branch}", **bearer("t")) as got,
    ):
        got.next()
        graph.load(person("Asked"), mode="merge", branch=branch)
        got.next()
        assert [request.branch for _, request, _ in server.recorder.decisions] == [branch]


# Baselines


def test_a_baseline_continues_in_the_feed(server: RunningServer, graph: Graph, branch: str) -> None:
    answer = server.client.post("/graphs/kb/changes/baseline", json={"branch": branch})
    assert answer.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    *lines, last = ndjson(answer.content)
    exported = server.client.post("/graphs/kb/export", json={"branch": branch})
    assert lines == ndjson(exported.content)
    assert (
        last["baseline"]["snapshot_commit_id"] == graph.resolve_snapshot(branch) == answer.headers["omnigraph-commit"]
    )
    graph.load(person("After"), mode="merge", branch=branch)
    [block] = poll(server, branch=branch, cursor=last["baseline"]["resume_cursor"])["blocks"]
    assert [change["id"] for change in block["changes"]] == ["After"]


def test_a_baseline_of_some_types_binds_its_cursor_to_them(server: RunningServer, branch: str) -> None:
    body = {"branch": branch, "kind": ["node"], "type": ["Person"], "op": ["delete"]}
    *lines, last = ndjson(server.client.post("/graphs/kb/changes/baseline", json=body).content)
    assert {line["type"] for line in lines} == {"Person"}, "operations select no rows of a state"
    cursor = last["baseline"]["resume_cursor"]
    assert poll(server, branch=branch, cursor=cursor, kind="node", type="Person", op="delete")["caught_up"]
    refused = server.client.get("/graphs/kb/changes", params={"branch": branch, "cursor": cursor})
    assert refused.json()["error"].startswith("change cursor rejected: ")


@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        ({"branch": "none"}, {404}),
        ({"branch": ""}, {400}),
        ({"kind": ["vertex"]}, {400, 422}),
        ({"kind": "node"}, {400, 422}),
        ({"op": None}, {400, 422}),
    ],
)
def test_baselines_that_can_not_be(server: RunningServer, body: dict[str, Any], statuses: set[int]) -> None:
    assert server.client.post("/graphs/kb/changes/baseline", json=body).status_code in statuses
