"""Every feature of the query language over HTTP: in each format, as a stored query, by statements, and refused."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.server.settings import ServerLimits
from tests.server.running import RunningServer, faultless, running
from tests.server.sample import EVERYTHING, Rules, bearer, ndjson
from tests.support.feature_queries import (
    READS,
    REFUSALS,
    STORED,
    STORED_TEXT,
    WRITES,
    WRONG_READS,
    WRONG_WRITES,
    Example,
    Refusal,
    Write,
    cell_value,
    feature_graph,
    label,
    lasting,
    plain,
    statements,
)

FORMATS = ("application/json", "application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream")
JSON, NDJSON, CSV, ARROW = FORMATS


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with feature_graph(tmp_path_factory.mktemp("features") / "kb") as graph:
        yield graph


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[RunningServer]:
    with faultless({"kb": graph}, queries=STORED_TEXT) as server:
        yield server


def send(server: RunningServer, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    return server.client.post(f"/graphs/kb/{path}", json=body, headers=headers)


def rows_of(answer: httpx.Response, example: Example) -> list[dict[str, Any]]:
    """The rows of an answer in any format, as JSON has them."""
    assert answer.status_code == 200, answer.text
    match answer.headers["content-type"]:
        case "application/json":
            assert answer.json()["columns"] == list(example.rows[0])
            rows: list[dict[str, Any]] = answer.json()["rows"]
        case "application/x-ndjson":
            rows = ndjson(answer.content)
        case "text/csv":
            header, *lines = csv.reader(io.StringIO(answer.text, newline=""))
            assert header == list(example.rows[0])
            rows = [
                {name: cell_value(cell, row[name]) for name, cell in zip(header, line, strict=True)}
                for line, row in zip(lines, example.rows, strict=True)
            ]
        case _:
            rows = [plain(row) for row in pa.ipc.open_stream(answer.content).read_all().to_pylist()]
    return rows


@pytest.mark.parametrize("accept", FORMATS)
@pytest.mark.parametrize("example", READS, ids=label)
def test_a_feature_in_every_format(server: RunningServer, example: Example, accept: str) -> None:
    answer = send(server, "query", {"query": example.text, "params": example.params}, Accept=accept)
    assert answer.headers["content-type"] == accept
    assert rows_of(answer, example) == example.rows


@pytest.mark.parametrize("example", STORED, ids=label)
def test_a_feature_in_a_stored_query(server: RunningServer, example: Example) -> None:
    for accept in (JSON, ARROW):
        answer = send(server, f"queries/{example.name}", {"params": example.params}, Accept=accept)
        assert rows_of(answer, example) == example.rows


@pytest.mark.parametrize("write", WRITES, ids=label)
@pytest.mark.parametrize("way", ["mutate", "stored"])
def test_a_feature_of_writes(server: RunningServer, graph: Graph, write: Write, way: str) -> None:
    branch = f"{write.name}/{way}"
    graph.create_branch(branch)
    body = {"params": write.params, "branch": branch}
    if way == "mutate":
        answer = send(server, "mutate", {"query": write.text, **body})
    else:
        answer = send(server, f"queries/{write.name}", {**body, "expect_mutation": True})
    receipt = answer.json()
    assert (receipt["affected_nodes"], receipt["affected_edges"]) == write.counts, answer.text
    assert "outcome" not in receipt
    assert send(server, "query", {"query": write.shown_by, "branch": branch}).json()["rows"] == write.rows


def test_the_types_of_columns_travel_with_arrow(server: RunningServer) -> None:
    types = {}
    for name in ("objects", "ways", "collected"):
        stream = pa.ipc.open_stream(send(server, f"queries/{name}", _params(name), Accept=ARROW).content)
        types |= {field.name: field.metadata[b"omnigraph.type"].decode() for field in stream.schema}
    assert {name: types[name] for name in ("r", "loan", "authors", "facts", "way", "names", "rows")} == {
        "r": "node Reader",
        "loan": "edge Borrowed",
        "authors": "[node Author]",
        "facts": "record(author: node Author, days: I32?)",
        "way": "path",
        "names": "[String]",
        "rows": "I64",
    }


def _params(name: str) -> dict[str, Any]:
    return {"params": next(example.params for example in READS if example.name == name)}


# What can't be calculated


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_an_error_of_evaluation_is_a_400_with_its_rule(server: RunningServer, refusal: Refusal) -> None:
    for accept in FORMATS:
        answer = send(server, "mutate" if refusal.writes else "query", {"query": refusal.text}, Accept=accept)
        error = answer.json()
        assert (answer.status_code, error["code"]) == (400, "bad_request")
        assert (error["type"], error["fields"]) == (refusal.type, refusal.fields)
        assert f"in `{refusal.fields['expression']}`" in error["error"]


def test_an_error_of_evaluation_after_the_first_rows_ends_the_stream(graph: Graph) -> None:
    text = "query late() { unwind range(1, 99999) as $n return { $n as n, 7 / (99999 - $n) as x } }"
    received = bytearray()

    def read(answer: httpx.Response) -> None:
        for chunk in answer.iter_bytes():
            received.extend(chunk)

    with running({"kb": graph}) as server:
        stream = {"json": {"query": text}, "headers": {"Accept": NDJSON}}
        with (
            server.client.stream("POST", "/graphs/kb/query", **stream) as answer,
            pytest.raises(httpx.RemoteProtocolError),
        ):
            read(answer)
        whole = send(server, "query", {"query": text})
        assert not server.recorder.failures, "the mistake is the caller's"
    *rows, last = ndjson(bytes(received))
    assert rows[-1] == {"n": len(rows), "x": 7 // (99999 - len(rows))}
    assert last["error"] == whole.json()
    assert last["error"]["fields"]["rule"] == "division_by_zero"


FAR = "query far() { match { $a: Reader  $a follows{2,} $b } update $b set { age: 1 } }"


def test_the_work_of_paths_is_limited_by_the_request_and_the_server(graph: Graph) -> None:
    reached = next(example for example in READS if example.name == "reached")
    with running({"kb": graph}, limits=ServerLimits(traversal_work=1000), queries=reached.text) as server:
        enough = send(server, "query", {"query": reached.text, "traversal_work": 1000})
        little = send(server, "query", {"query": reached.text, "traversal_work": 2})
    with running({"kb": graph}, limits=ServerLimits(traversal_work=2), queries=reached.text) as server:
        stored = send(server, "queries/reached", {})
        written = send(server, "mutate", {"query": FAR})
    assert rows_of(enough, reached) == reached.rows
    for refused in (little, stored, written):
        assert refused.status_code == 413
        limit = refused.json()["resource_limit"]
        assert (limit["resource"], limit["limit"]) == ("traversal_work", 2)


# Statements


def test_statements_create_merge_and_delete_branches(server: RunningServer, graph: Graph) -> None:
    for path in ("mutate", "change"):
        for statement in statements(path):
            answer = send(server, path, {"query": statement.text, "branch": statement.branch})
            assert lasting(answer.json()) == statement.receipt, answer.text
            commit = answer.json()["commit"]
            assert answer.headers.get("omnigraph-commit") == (commit and commit["graph_commit_id"])
            listed = [{"name": name} for name in graph.list_branches()]
            assert send(server, "query", {"query": "branch list"}).json()["rows"] == listed


def test_a_merge_that_conflicts_is_the_same_error_as_that_of_the_route(server: RunningServer, graph: Graph) -> None:
    for branch, room in (("left", "L"), ("right", "R")):
        graph.create_branch(branch)
        graph.mutate(f'query q() {{ update Shelf set {{ room: "{room}" }} where id = "s1" }}', branch=branch)
    answer = send(server, "mutate", {"query": "branch merge left into right"})
    route = send(server, "branches/merge", {"source": "left", "target": "right"})
    assert (answer.status_code, answer.json()) == (409, route.json())
    assert answer.json()["merge_conflicts"]


def test_the_list_of_branches_in_every_format(server: RunningServer, graph: Graph) -> None:
    rows = [{"name": name} for name in graph.list_branches()]
    for accept in FORMATS:
        answer = send(server, "query", {"query": "branch list;"}, Accept=accept)
        assert rows_of(answer, Example("", "", rows)) == rows
        assert "omnigraph-commit" not in answer.headers
    whole = send(server, "query", {"query": "branch list"}).json()
    assert whole["target"] == {"branch": None, "snapshot": None}
    assert (whole["query_name"], "graph_commit_id" in whole) == ("branch list", False)


def test_a_plan_is_not_remembered_by_its_commit(server: RunningServer, graph: Graph) -> None:
    """A newer version of the program may plan otherwise."""
    body = {"query": READS[-1].text, "params": READS[-1].params, "snapshot": graph.resolve_snapshot()}
    answer = send(server, "query", body)
    assert rows_of(answer, READS[-1]) == READS[-1].rows
    assert (answer.json()["query_name"], "etag" in answer.headers) == ("plan", False)


@pytest.mark.parametrize(("body", "words"), WRONG_READS)
def test_a_statement_that_cannot_be_read(server: RunningServer, body: dict[str, Any], words: str) -> None:
    for accept in (JSON, NDJSON):
        answer = send(server, "query", body, Accept=accept)
        assert (answer.status_code, words in answer.json()["error"]) == (400, True), answer.text


@pytest.mark.parametrize(("body", "words"), WRONG_WRITES)
def test_a_statement_that_cannot_be_run(server: RunningServer, body: dict[str, Any], words: str) -> None:
    answer = send(server, "mutate", body)
    assert answer.status_code == (404 if "not found" in words else 400)
    assert words in answer.json()["error"]


def test_a_statement_takes_no_state_and_no_condition(server: RunningServer, graph: Graph) -> None:
    head = graph.resolve_snapshot()
    for state in ({"snapshot": head}, {"version": 1}, {"at": "2100-01-01T00:00:00Z"}):
        answer = send(server, "query", {"query": "branch list", **state})
        assert (answer.status_code, "stands alone" in answer.json()["error"]) == (400, True)
    conditional = {"Omnigraph-If-Graph-Commit": head}
    answer = send(server, "mutate/if-graph-commit", {"query": "branch create x"}, **conditional)
    assert (answer.status_code, "leave out a commit" in answer.json()["error"]) == (400, True)
    assert send(server, "mutate", {"query": "branch create x"}, **conditional).status_code == 400


def test_a_statement_is_repeated_safely(server: RunningServer) -> None:
    first, again = (
        send(server, "mutate", {"query": "branch create repeated"}, **{"Idempotency-Key": "once"}).json()
        for _ in range(2)
    )
    assert again == {**first, "replayed": True}


def test_a_policy_decides_statements_like_routes(graph: Graph) -> None:
    rules = Rules({"ana": EVERYTHING, "rob": ["read", "change"], "eve": []})
    tokens = {name: f"t-{name}" for name in ("ana", "rob", "eve")}
    with running({"kb": graph}, tokens=tokens, gates={"kb": rules}) as server:
        made = send(server, "mutate", {"query": "branch create governed"}, **bearer("t-ana"))
        denied = [
            send(server, "mutate", {"query": text}, **bearer("t-rob"))
            for text in ("branch create mine", "branch merge governed", "branch delete governed")
        ]
        routes = [
            send(server, "branches", {"name": "mine"}, **bearer("t-rob")),
            send(server, "branches/merge", {"source": "governed"}, **bearer("t-rob")),
            server.client.delete("/graphs/kb/branches/governed", headers=bearer("t-rob")),
        ]
        blind = [
            send(server, "query", {"query": text}, **bearer("t-eve"))
            for text in ("branch list", "explain query q() { return { 1 as n } }")
        ]
        listed = send(server, "query", {"query": "branch list"}, **bearer("t-rob")).json()["rows"]
    assert made.json()["actor_id"] == "ana"
    assert [answer.json() for answer in denied] == [answer.json() for answer in routes]
    assert {answer.status_code for answer in (*denied, *blind)} == {403}
    assert {"name": "governed"} in listed
    assert {"name": "mine"} not in listed
