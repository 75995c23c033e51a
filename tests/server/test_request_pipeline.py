"""The way of a request: which stage answers first, who is asking, and what a body may be."""

from __future__ import annotations

import gzip
import json
import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest

from omnigraph import Graph
from omnigraph.api.governance import AccessRequest, Decision
from omnigraph.api.service.routes import ROUTES, Body, Route
from omnigraph.errors import HostNotAllowedError
from omnigraph.server.http.origins import Hosts
from omnigraph.server.settings import ServerLimits
from omnigraph.storage.tables.memory.columns import COLUMNS
from tests.server import raw
from tests.server.running import RunningServer, running
from tests.server.sample import ADD, BY_AGE, EVERYBODY, EVERYTHING, Rules, bearer, people, person
from tests.support.waiting import wait_until

TOKEN, READER = "token-of-ana-5f1c", "token-of-rob-77aa"
ANA, ROB = bearer(TOKEN), bearer(READER)
SMALL = 4_000
PHOTO_OF_ADA = "entity=node&type=Person&id=Ada&property=photo"
UNKNOWN_PATHS = [
    *("/", "/nope", "/query", "/branches", "/snapshot", "/runs", "/healthz/", "/graphs/", "/graphs/kb", "//healthz"),
    *(
        "/graphs/kb/",
        "/graphs/kb/query/",
        "/graphs/kb//query",
        "/graphs//query",
        "/graphs/kb/queries/",
        "/graphs/kb/%ff",
    ),
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with people(tmp_path_factory.mktemp("pipeline") / "kb") as graph:
        graph.create_branch("feature/x")
        yield graph


@pytest.fixture(scope="module")
def guarded(graph: Graph) -> Iterator[RunningServer]:
    """Ana may do everything, Rob may read. The other graph has no rules."""
    rules = Rules({"ana": EVERYTHING, "rob": ["read"]})
    limits = ServerLimits(body_bytes=SMALL, load_body_bytes=2 * SMALL, load_bytes=3 * SMALL)
    with running(
        {"kb": graph, "free": graph},
        tokens={"ana": TOKEN, "rob": READER},
        gates={"kb": rules},
        limits=limits,
        queries="\n".join([EVERYBODY, ADD]),
    ) as server:
        yield server


@pytest.fixture(scope="module")
def opened(graph: Graph) -> Iterator[RunningServer]:
    with running({"kb": graph}) as server:
        yield server


def concrete(route: Route) -> str:
    return route.full_path.format(graph_id="kb", commit_id="01H", name="nothing", branch="nobody")


# By which name


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.io"])
def test_an_open_server_is_not_called_by_the_name_of_somebody_else(opened: RunningServer, host: str) -> None:
    """A page whose name was pointed at this machine gets nothing, on no route."""
    for method, path in [(route.method, concrete(route)) for route in ROUTES] + [("GET", "/nope"), ("PUT", "/graphs")]:
        refused = opened.client.request(method, path, headers={"Host": host})
        assert (refused.status_code, refused.json()["type"]) == (421, "host_not_allowed"), path
        assert refused.json()["fields"] == {"host": host}
        assert "--allowed-host" in refused.json()["error"]


def test_with_tokens_any_name_will_do(guarded: RunningServer) -> None:
    assert guarded.client.get("/graphs/kb/schema", headers={**ANA, "Host": "evil.example"}).status_code == 200


def test_a_request_names_one_host_unless_it_is_very_old(opened: RunningServer) -> None:
    for version, hosts, status in (("1.0", "", 200), ("1.1", "", 400), ("1.1", "Host: localhost\r\n" * 2, 400)):
        with raw.connected(opened) as connection:
            connection.sendall(f"GET /healthz HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n".encode())
            assert raw.answer(connection)[0].status == status


@pytest.mark.parametrize(
    ("bind", "host", "is_allowed"),
    [
        ("127.0.0.1", "127.0.0.1:8080", True),
        ("127.0.0.1", "LocalHost", True),
        ("127.0.0.1", "localhost.:1", True),
        ("127.0.0.1", "[::1]:8080", True),
        ("127.0.0.1", "[::ffff:127.0.0.1]", True),
        ("127.0.0.1", "127.1.2.3", True),
        ("127.0.0.1", "graphs.example.org:443", True),
        ("127.0.0.1", "GRAPHS.example.org.", True),
        ("127.0.0.1", "[FD00:0::7]", True),
        ("127.0.0.1", "10.0.0.5", False),
        ("127.0.0.1", "example.org", False),
        ("127.0.0.1", "a.graphs.example.org", False),
        ("127.0.0.1", "localhost@evil.example", False),
        ("127.0.0.1", "localhost, evil.example", False),
        ("127.0.0.1", "localhost:80:80", False),
        ("127.0.0.1", "[localhost]", False),
        ("127.0.0.1", "", False),
        ("10.0.0.5", "10.0.0.5:80", True),
        ("10.0.0.5", "10.0.0.6", False),
        ("0.0.0.0", "10.0.0.5", True),
        ("0.0.0.0", "10.0.0.6", False),
        ("::", "10.0.0.5", True),
        ("node-7", "node-7:8080", True),
    ],
)
def test_the_names_of_a_server(bind: str, host: str, is_allowed: bool) -> None:
    """A server that listens at all addresses is called by the one that the connection came to."""
    hosts = Hosts(bind, ["Graphs.example.org", "fd00::7"])
    with nullcontext() if is_allowed else pytest.raises(HostNotAllowedError):
        hosts.refuse_others([host], {"server": ("::ffff:10.0.0.5" if bind == "::" else "10.0.0.5", 80)})


# Which path


@pytest.mark.parametrize("path", UNKNOWN_PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_an_unknown_path_is_404_without_a_question_who_asks(guarded: RunningServer, method: str, path: str) -> None:
    response = guarded.client.request(method, guarded.url + path)
    assert (response.status_code, response.headers["content-type"]) == (404, "application/json")
    assert response.json()["code"] == response.json()["type"] == "not_found"
    assert "/graphs/<id>/" in response.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/graphs/kb/branches/merge", "POST"),
        ("GET", "/graphs/kb/mutate", "POST"),
        ("PUT", "/graphs/kb/branches", "GET, HEAD, POST"),
        ("POST", "/graphs/kb/blob", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("PATCH", "/graphs/no_id!/load", "POST"),
        ("GET", "/graphs/kb/branches/main", "DELETE"),
    ],
)
def test_a_wrong_method_is_405_before_anybody_is_asked(
    guarded: RunningServer, method: str, path: str, allow: str
) -> None:
    response = guarded.client.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allow)
    assert response.json()["code"] == "method_not_allowed"


@pytest.mark.parametrize("route", [r for r in ROUTES if r.method == "GET"], ids=lambda r: r.operation_id)
def test_every_get_answers_head_alike_and_without_a_body(guarded: RunningServer, route: Route) -> None:
    asked = {"getBlob": f"?{PHOTO_OF_ADA}", "getEntity": f"?{PHOTO_OF_ADA}", "diff": "?from=main&to=main"}
    path = concrete(route) + asked.get(route.operation_id, "")
    got, headed = guarded.client.get(path, headers=ANA), guarded.client.head(path, headers=ANA)
    assert headed.content == b""
    assert headed.status_code == got.status_code
    for name in ("content-type", "content-length", "etag", "omnigraph-commit"):
        assert headed.headers.get(name) == got.headers.get(name)


def test_segments_are_decoded_one_by_one(guarded: RunningServer) -> None:
    missing = guarded.client.delete("/graphs/kb/branches/feature%2Fno%20x", headers=ANA)
    assert missing.json()["error"].startswith("branch 'feature/no x' not found")


def test_a_branch_with_a_slash_is_named_in_a_path(guarded: RunningServer) -> None:
    made = guarded.client.post("/graphs/kb/branches", json={"name": "topic/z"}, headers=ANA)
    deleted = guarded.client.delete("/graphs/kb/branches/topic%2Fz", headers=ANA)
    assert (made.status_code, deleted.status_code) == (200, 200)
    assert deleted.json()["name"] == "topic/z"


# Who asks


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_written_in_any_case(guarded: RunningServer, scheme: str) -> None:
    response = guarded.client.get("/graphs/kb/schema", headers={"Authorization": f"{scheme} {TOKEN}"})
    assert response.status_code == 200


@pytest.mark.parametrize("header", [None, "", "Bearer", "bearer", f"Basic {TOKEN}", TOKEN, f"Bearer\t{TOKEN}"])
def test_any_other_form_than_bearer_is_no_token(guarded: RunningServer, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    response = guarded.client.get("/graphs/kb/schema", headers=headers)
    assert response.status_code == 401
    assert response.json()["code"] == "unauthorized"
    assert "missing bearer token" in response.json()["error"]
    assert "www-authenticate" not in response.headers


def test_white_space_around_a_header_is_none_of_it(guarded: RunningServer) -> None:
    with raw.connected(guarded) as connection:
        connection.sendall(raw.head("GET", "/graphs/kb/schema", {"Authorization": f"  Bearer {TOKEN} \t"}))
        assert raw.answer(connection)[0].status == 200


@pytest.mark.parametrize("token", [f" {TOKEN}", "nobody", TOKEN.upper(), TOKEN[:-1], f"{TOKEN}, Bearer {READER}", "é"])
def test_a_token_that_nobody_has(guarded: RunningServer, token: str) -> None:
    response = guarded.client.get("/graphs/kb/schema", headers={"Authorization": f"Bearer {token}".encode()})
    assert response.status_code == 401
    assert "invalid bearer token" in response.json()["error"]


def test_two_authorizations_are_none(guarded: RunningServer) -> None:
    twice = [("Authorization", f"Bearer {READER}"), ("Authorization", f"Bearer {TOKEN}")]
    assert guarded.client.get("/graphs/kb/schema", headers=twice).status_code == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json"])
def test_what_everybody_may_see(guarded: RunningServer, path: str) -> None:
    assert guarded.client.get(path).status_code == 200
    assert guarded.client.get(path, headers=bearer("wrong")).status_code == 200


@pytest.mark.parametrize("route", [r for r in ROUTES if not r.public], ids=lambda r: r.operation_id)
def test_everything_else_asks_for_a_token_first(guarded: RunningServer, route: Route) -> None:
    """Before the graph is looked up, and before the body is read."""
    path = route.full_path.format(graph_id="no_such!", commit_id="01H", name="n", branch="b")
    response = guarded.client.request(route.method, path, content=b"{no json" if route.body != Body.NONE else None)
    assert response.status_code == 401


def test_the_actor_comes_from_the_token_alone(guarded: RunningServer, graph: Graph) -> None:
    claims = {"X-Actor-Id": "rob", "X-Forwarded-User": "rob"}
    body = {"query": ADD, "params": {"name": "Actor", "age": 1}, "actor": "rob", "actor_id": "rob"}
    written = guarded.client.post("/graphs/kb/mutate?actor=rob", json=body, headers={**ANA, **claims}).json()
    assert written["actor_id"] == written["commit"]["actor_id"] == "ana"
    assert graph.commits(limit=1).commits[0].actor_id == "ana"


def test_an_open_server_has_no_actors(opened: RunningServer) -> None:
    body = {"query": ADD, "params": {"name": "Nobody", "age": 1}}
    written = opened.client.post("/graphs/kb/mutate", json=body, headers=bearer("whatever")).json()
    assert written["actor_id"] is None


# Which graph, then what


@pytest.mark.parametrize("graph_id", ["no_such", "a.b", "x" * 65, "kb%2Fkb", "%20kb", "é"])
def test_what_can_be_no_graph_id(guarded: RunningServer, graph_id: str) -> None:
    response = guarded.client.get(f"/graphs/{graph_id}/schema", headers=ANA)
    assert (response.status_code, response.json()["code"]) == (400, "bad_request")


def test_a_graph_that_is_not_served(guarded: RunningServer) -> None:
    response = guarded.client.post("/graphs/other/query", content=b"{no json", headers=ANA)
    assert response.status_code == 404
    assert response.json() == {"error": "graph 'other' not found", "code": "not_found", "type": "not_found"}


def test_a_request_is_understood_before_its_actor_is_judged(guarded: RunningServer) -> None:
    wrong = guarded.client.post("/graphs/kb/mutate", json={"query": 1}, headers=ROB)
    right = guarded.client.post("/graphs/kb/mutate", json={"query": ADD}, headers=ROB)
    assert (wrong.status_code, right.status_code) == (422, 403)
    assert "policy denied action 'change'" in right.json()["error"]


def test_a_load_by_lines_is_judged_before_its_body_is_received(guarded: RunningServer) -> None:
    headers = {**ROB, "Content-Type": "application/x-ndjson", "Content-Length": 1000}
    with raw.connected(guarded) as connection:
        connection.sendall(raw.head("POST", "/graphs/kb/load/ndjson", headers))
        response, body = raw.answer(connection)
    assert response.status == 403
    assert json.loads(body)["code"] == "forbidden"


class Broken:
    def decide(self, actor: str | None, request: AccessRequest) -> Decision:
        raise RuntimeError("the rules of /etc/rules are torn")


def test_rules_that_cannot_be_evaluated_are_a_fault_and_no_denial(graph: Graph) -> None:
    with running({"kb": graph}, tokens={"ana": TOKEN}, gates={"kb": Broken()}) as server:
        response = server.client.get("/graphs/kb/schema", headers=ANA)
    assert response.status_code == 500
    assert response.json()["error"].startswith("policy:")
    assert "torn" not in response.text


# Bodies

JSON_ROUTES = [r for r in ROUTES if r.request is not None and not r.request_is_optional]


@pytest.mark.parametrize("route", JSON_ROUTES, ids=lambda r: r.operation_id)
@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b'{"query": "q", "params": ' + b'{"a":' * 600, "application/json", 400),
        (b"[]", "application/json", 422),
        (b"null", "application/json", 422),
        (b"{}", "application/json", 422),
        (b"{}", "text/plain", 415),
        (b"{}", None, 415),
        (b"{}", "application/x-www-form-urlencoded", 415),
        (b"{}", "application/problem+json; charset=utf-8", 422),
    ],
)
def test_bodies_that_cannot_be_decoded(
    guarded: RunningServer, route: Route, body: bytes, content_type: str | None, status: int
) -> None:
    given = {} if content_type is None else {"Content-Type": content_type}
    response = guarded.client.post(concrete(route), content=body, headers={**ANA, **given, **condition(route)})
    assert (response.status_code, response.json()["code"]) == (status, "bad_request")


def condition(route: Route) -> dict[str, str]:
    return {"Omnigraph-If-Graph-Commit": "01H"} if route.if_commit else {}


OPTIONAL = [r for r in ROUTES if r.request_is_optional]


@pytest.mark.parametrize("route", OPTIONAL, ids=lambda r: r.operation_id)
def test_an_optional_body_may_be_absent_but_not_nonsense(guarded: RunningServer, route: Route) -> None:
    path = concrete(route).replace("nothing", "everybody")
    for body in (b"", b"null", b" \n"):
        assert guarded.client.post(path, content=body, headers=ANA).status_code in (
            200,
            400 if route.if_commit else 200,
        )
    for body in (b"{", b"[]", b"7"):
        refused = guarded.client.post(path, content=body, headers={**ANA, **condition(route)})
        assert refused.status_code in (400, 422)


@pytest.mark.parametrize(
    ("path", "limit", "resource"),
    [
        ("/graphs/kb/query", SMALL, "request body bytes"),
        ("/graphs/kb/load", 2 * SMALL, "request body bytes"),
        ("/graphs/kb/ingest", 2 * SMALL, "request body bytes"),
        ("/graphs/kb/load/ndjson", 3 * SMALL, "graph_batch_request_bytes"),
    ],
)
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_a_body_beyond_its_ceiling(
    guarded: RunningServer, path: str, limit: int, resource: str, declared: bool
) -> None:
    media = "application/x-ndjson" if path.endswith("ndjson") else "application/json"
    body = b" " * (limit + 1)
    response = httpx.post(
        guarded.url + path, content=body if declared else iter([body]), headers={**ANA, "Content-Type": media}
    )
    assert response.status_code == 413
    told = response.json()
    assert told["resource_limit"]["resource"] == resource
    assert told["resource_limit"]["limit"] == limit
    assert f"resource limit exceeded for {resource}: actual " in told["error"]


def test_a_body_at_its_ceiling(guarded: RunningServer) -> None:
    body = json.dumps({"query": EVERYBODY}).encode().ljust(SMALL)
    headers = {**ANA, "Content-Type": "application/json"}
    assert guarded.client.post("/graphs/kb/query", content=body, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["query", "load", "load/ndjson", "export", "queries/add"])
def test_a_packed_body_is_not_unpacked(guarded: RunningServer, path: str) -> None:
    headers = {**ANA, "Content-Type": "application/json", "Content-Encoding": "gzip"}
    response = guarded.client.post(f"/graphs/kb/{path}", content=gzip.compress(b"{}"), headers=headers)
    assert (response.status_code, response.json()["code"]) == (415, "bad_request")
    assert "'gzip': send it without Content-Encoding" in response.json()["error"]


def test_who_waits_for_a_go_ahead_is_refused_without_one(guarded: RunningServer) -> None:
    expecting = {"Content-Length": 10, "Content-Type": "application/json", "Expect": "100-continue"}
    with raw.connected(guarded) as connection:
        connection.sendall(raw.head("POST", "/graphs/kb/query", expecting))
        refused = connection.recv(65536)
        assert refused.startswith(b"HTTP/1.1 401")
        assert b"connection: close" in refused
    with raw.connected(guarded) as connection:
        connection.sendall(raw.head("POST", "/graphs/kb/query", {**expecting, **ANA}))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b" " * 10)
        assert raw.answer(connection)[0].status == 400


@pytest.mark.parametrize("path", ["/graphs/kb/query", "/graphs/kb/load/ndjson"])
def test_a_body_that_does_not_come(graph: Graph, path: str) -> None:
    media = "application/x-ndjson" if path.endswith("ndjson") else "application/json"
    with running({"kb": graph}, limits=ServerLimits(body_seconds=0.05)) as server, raw.connected(server) as connection:
        connection.sendall(raw.head("POST", path, {"Content-Type": media, "Content-Length": 100}) + b"{")
        response, body = raw.answer(connection)
    assert response.status == 408
    assert json.loads(body)["code"] == "bad_request"


@pytest.mark.parametrize("media", [None, "application/json", "text/x-ndjson", "application/x-ndjsonx"])
def test_lines_have_their_media_type(guarded: RunningServer, media: str | None) -> None:
    headers = ANA if media is None else {**ANA, "Content-Type": media}
    assert guarded.client.post("/graphs/kb/load/ndjson", content=b"", headers=headers).status_code == 415


@pytest.mark.parametrize(
    "path",
    [
        "schema?branch=main&branch=main",
        "snapshot?branch=%ff",
        "commits?limit=0",
        "commits?limit=ten",
        "commits?limit=null",
        "commits?limit=1.0",
        "commits?limit=1e1",
        "commits?limit=",
        "snapshot?version=null",
        "snapshot?at=null",
        "snapshot?at=1700000000",
        "history?exact=null",
        "snapshot?version=0",
        "snapshot?at=yesterday",
        "snapshot?at=2024-01-01T00:00:00",
        "entity?entity=vertex&type=Person&id=Ada",
        "diff?from=main",
        "diff?from=main&to=main&branch=main",
        "changes?" + "&".join(f"type=t{n}" for n in range(1_001)),
        "snapshot?branch=",
        "snapshot?branch=%20",
    ],
)
def test_bad_query_strings(opened: RunningServer, path: str) -> None:
    with raw.connected(opened) as connection:
        connection.sendall(raw.head("GET", f"/graphs/kb/{path}", {}))
        response, body = raw.answer(connection)
    assert response.status == 400, body
    assert json.loads(body)["code"] == "bad_request"


@pytest.mark.parametrize("query", ["?", "?&&", "?unknown=1&unknown=2", "?branch=%20main%20", "?=", "?branch=main&%00"])
def test_harmless_query_strings(opened: RunningServer, query: str) -> None:
    assert opened.client.get(f"{opened.graph()}/schema{query}").status_code == 200


# What every answer says, and what none does


def test_a_request_has_an_id_that_its_caller_may_choose(guarded: RunningServer) -> None:
    given = guarded.client.get("/healthz", headers={"X-Request-Id": "mine.01:a-b"})
    made = [guarded.client.get("/healthz").headers["x-request-id"] for _ in range(2)]
    assert given.headers["x-request-id"] == "mine.01:a-b"
    assert made[0] != made[1]


@pytest.mark.parametrize("given", ["", "x" * 65, "two words", 'a"b', "é", "a\tb"])
def test_an_id_unfit_for_a_log_is_replaced(guarded: RunningServer, given: str) -> None:
    response = guarded.client.get("/healthz", headers={"X-Request-Id": given.encode()})
    assert response.headers["x-request-id"] not in ("", given)


@pytest.mark.parametrize("path", ["/healthz", "/nope", "/graphs/kb/mutate", "/graphs/kb/schema"])
def test_every_answer_has_an_id_and_is_not_to_be_guessed_at(guarded: RunningServer, path: str) -> None:
    headers = guarded.client.get(path).headers
    assert headers["x-request-id"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.fixture
def torn(tmp_path: Path) -> Iterator[RunningServer]:
    """The file of a table is gone."""
    people(tmp_path / "torn").close()
    with Graph.open(tmp_path / "torn") as graph, running({"kb": graph}) as server:
        for table in (tmp_path / "torn" / "nodes").iterdir():
            shutil.rmtree(table / "data", ignore_errors=True)
        COLUMNS.clear()
        yield server


@pytest.mark.parametrize(
    ("method", "path", "body", "sentence"),
    [
        ("POST", "query", {"query": EVERYBODY}, "internal error"),
        ("POST", "mutate", {"query": ADD, "params": {"name": "Ada"}}, "internal error"),
        ("POST", "export", {}, "internal error"),
        ("GET", "changes?start=beginning", None, "internal error while reading changes"),
        (
            "GET",
            "blob?entity=node&type=Person&id=Ada&property=photo",
            None,
            "Blob delivery failed before response headers",
        ),
    ],
)
def test_a_fault_tells_its_request_id_and_nothing_of_the_inside(
    torn: RunningServer, tmp_path: Path, method: str, path: str, body: Any, sentence: str
) -> None:
    response = torn.client.request(method, f"{torn.graph()}/{path}", json=body, headers={"X-Request-Id": "r-1"})
    assert response.status_code == 500, response.text
    told = response.json()
    assert told["error"].startswith(sentence)
    assert told["code"] == "internal"
    assert told["fields"]["request_id"] == "r-1"
    assert "r-1" in told["error"]
    for inner in (str(tmp_path), "Traceback", ".lance", "lance", "nodes/", ".py"):
        assert inner not in response.text
    assert len(torn.recorder.failures) == 1, "the log has the cause"


def test_a_damaged_manifest_is_a_fault_with_a_request_id(tmp_path: Path) -> None:
    """Without a digest in the log, as on an object store, Lance panics over it: no exception that a server catches."""
    people(tmp_path / "flipped").close()
    for entry in (tmp_path / "flipped" / "__manifest/log").rglob("*.json"):
        entry.write_text(re.sub(r',"manifest":"[0-9a-f]+"', "", entry.read_text()))
    with Graph.open(tmp_path / "flipped") as graph, running({"kb": graph}) as server:
        for manifest in (tmp_path / "flipped" / "nodes").rglob("*.manifest"):
            manifest.write_bytes(manifest.read_bytes().replace(b"string", b"suring"))
        for _ in range(2):
            response = server.client.post(
                f"{server.graph()}/query", json={"query": EVERYBODY}, headers={"X-Request-Id": "r-2"}
            )
            assert (response.status_code, response.json()["fields"]["request_id"]) == (500, "r-2")
        assert server.client.get(f"{server.graph()}/schema").status_code == 200


def test_secrets_stay_out_of_records_and_logs(guarded: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret, row, token = "parameter-9b1d", "row-5e2f", "tok-3c4d"
    guarded.recorder.records.clear()
    guarded.recorder.decisions.clear()
    calls = [
        guarded.client.post("/graphs/kb/query", json={"query": BY_AGE, "params": {"age": secret}}, headers=ANA),
        guarded.client.post("/graphs/kb/mutate", json={"query": ADD, "params": {"name": row}}, headers=ANA),
        guarded.client.post("/graphs/kb/load", json={"data": person(row, age=999)}, headers=ANA),
        guarded.client.get("/graphs/kb/schema", headers=bearer(token)),
        guarded.client.get(f"/graphs/kb/entity?entity=node&type=Person&id={row}", headers=ANA),
    ]
    assert [response.status_code for response in calls] == [400, 200, 400, 401, 200]
    wait_until(lambda: len(guarded.recorder.records) >= len(calls), "all are recorded")
    # The client's own log, and the access log, which only pytest listens to: the server switches it off.
    others = ("httpx", "httpcore", "uvicorn.access")
    logged = [record.getMessage() for record in caplog.records if not record.name.startswith(others)]
    told = repr(guarded.recorder) + "\n".join(logged)
    for hidden in (secret, row, token, TOKEN):
        assert hidden not in told
    assert token not in "".join(response.text for response in calls)


def test_what_is_recorded_of_a_request(guarded: RunningServer) -> None:
    guarded.client.post("/graphs/kb/query", json={"query": EVERYBODY}, headers={**ANA, "X-Request-Id": "recorded"})
    record = guarded.recorder.record_of("recorded")
    assert (record.operation_id, record.method, record.status) == ("query", "POST", 200)
    assert (record.graph_id, record.actor, record.broke_off) == ("kb", "ana", False)
    assert record.received_bytes > len(EVERYBODY)
    assert record.sent_bytes > 100


def test_every_decision_is_recorded(guarded: RunningServer) -> None:
    guarded.recorder.decisions.clear()
    guarded.client.post("/graphs/kb/branches", json={"name": "n", "from": " main "}, headers=ROB)
    [(actor, request, decision)] = guarded.recorder.decisions
    assert (actor, request.action, request.branch, request.target_branch) == ("rob", "branch_create", "main", "n")
    assert not decision.allowed


# Browsers


def test_pages_of_other_origins_are_kept_out(opened: RunningServer) -> None:
    asked = opened.client.get("/healthz", headers={"Origin": "https://page.example"})
    before = opened.client.options("/graphs/kb/query", headers={"Origin": "https://page.example"})
    assert not [name for name in asked.headers if name.startswith("access-control")]
    assert before.status_code == 405
    assert not [name for name in before.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["queries/add", "queries/add/if-graph-commit", "queries/nothing", "export"])
def test_a_page_can_not_ask_without_a_question_of_its_browser(guarded: RunningServer, path: str) -> None:
    """A browser sends a form or plain text of any page anywhere; for JSON it asks the server first."""
    page = {**ANA, "Origin": "https://page.example", "Content-Type": "text/plain"}
    refused = guarded.client.post(f"/graphs/kb/{path}", content=b"{}", headers=page)
    assert (refused.status_code, refused.json()["code"]) == (415, "bad_request")
    asked = guarded.client.post(f"/graphs/kb/{path}", json={}, headers={**ANA, "Origin": "https://page.example"})
    assert asked.status_code != 415
    program = guarded.client.post(f"/graphs/kb/{path}", content=b"{}", headers={**ANA, "Content-Type": "text/plain"})
    assert program.status_code == asked.status_code


def test_named_origins_are_let_in(graph: Graph) -> None:
    page, other = {"Origin": "https://page.example"}, {"Origin": "https://other.example"}
    ask = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, idempotency-key, if-none-match",
    }
    with running({"kb": graph}, origins=("https://page.example",)) as server:
        answered = server.client.get("/graphs/kb/snapshot", headers=page)
        stranger = server.client.get("/graphs/kb/snapshot", headers=other)
        allowed = server.client.options("/graphs/kb/query", headers={**page, **ask})
        refused = server.client.options("/graphs/kb/query", headers={**other, **ask})
        exported = server.client.post("/graphs/kb/export", headers=page)
    assert answered.headers["access-control-allow-origin"] == "https://page.example"
    assert "Omnigraph-Commit" in answered.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in stranger.headers
    assert allowed.status_code == 200
    assert (refused.status_code, exported.status_code) == (400, 200)


# Routes of the first API

OLD = [
    ("read", {"query_source": EVERYBODY}, "query"),
    ("change", {"query": ADD, "params": {"name": "Old", "age": 1}}, "mutate"),
    ("ingest", {"data": person("Older")}, "load"),
]


@pytest.mark.parametrize(("path", "body", "successor"), OLD)
def test_a_deprecated_route_names_its_successor(
    opened: RunningServer, path: str, body: dict[str, Any], successor: str
) -> None:
    old = opened.client.post(f"/graphs/kb/{path}", json=body)
    assert old.status_code == 200
    assert old.headers["deprecation"] == "true"
    assert old.headers["link"] == f'<{successor}>; rel="successor-version"'


@pytest.mark.parametrize(("path", "body", "successor"), OLD)
def test_only_successes_of_deprecated_routes_say_so(
    opened: RunningServer, path: str, body: dict[str, Any], successor: str
) -> None:
    failed = opened.client.post(f"/graphs/kb/{path}", json={})
    new = opened.client.post(f"/graphs/kb/{successor}", json={"query": EVERYBODY, "data": ""})
    assert failed.status_code == 422
    for response in (failed, new):
        assert "deprecation" not in response.headers
        assert "link" not in response.headers
