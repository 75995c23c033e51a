"""The endpoint inside an HTTP server: limits, records and failures are those of every other route."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.mcp.connections import MountedEndpoint
from omnigraph.mcp.graph import Terms
from omnigraph.mcp.tools import TOOLS
from omnigraph.server.mcp_mount import load_endpoint
from omnigraph.server.settings import AgentSettings, ServerLimits
from tests.mcp_server.conftest import record
from tests.server.running import RunningServer, running
from tests.server.sample import EVERYTHING, Rules, bearer

SLUGS = "query slugs() { match { $a: Author } return { $a.slug as slug } }"
HEADERS = {"Accept": "application/json, text/event-stream"}


def endpoint() -> MountedEndpoint:
    return MountedEndpoint(Terms(allow_main=True))


def called(server: RunningServer, tool: str, path: str = "/mcp", headers: Any = (), **arguments: Any) -> Any:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    return server.client.post(path, json=call, headers={**HEADERS, **dict(headers)})


def members(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()["result"]["structuredContent"]
    return found


def test_a_read_that_takes_too_long_is_ended(library: omnigraph.Graph) -> None:
    library.load("\n".join(record("Author", slug=f"s{n}", name="x") for n in range(300)), mode="merge")
    every = (
        "query every() { match { $a: Author $b: Author $c: Author $a.name = $b.name $b.name = $c.name } "
        "return { $a.slug as a, $b.slug as b, $c.slug as c } }"
    )
    with running({"kb": library}, agents=endpoint, limits=ServerLimits(query_seconds=0.05)) as server:
        error = members(called(server, "query", query=every))
    assert "query seconds" in error["error"]
    assert error["resource_limit"]["resource"] == "query seconds"


def test_requests_are_recorded_with_their_actor_and_graph(library: omnigraph.Graph) -> None:
    gates = {"kb": Rules({"ana": EVERYTHING, "bob": ["read"]})}
    add = {"query": 'query add() { insert Author { slug: "a", name: "A" } }', "branch": "main"}
    with running({"kb": library}, tokens={"ana": "t-ana", "bob": "t-bob"}, gates=gates, agents=endpoint) as server:
        assert members(called(server, "mutate", headers=bearer("t-ana"), **add))["actor_id"] == "ana"
        denied = members(called(server, "mutate", headers=bearer("t-bob"), **add))
    assert denied["error"] == "policy denied action 'change' for actor 'bob'"
    assert [(r.operation_id, r.status, r.graph_id, r.actor) for r in server.recorder.records] == [
        ("mcpOfServer", 200, "kb", "ana"),
        ("mcpOfServer", 200, "kb", "bob"),
    ]
    assert server.recorder.count(server.recorder.metrics.commits) == 1
    assert [decision.allowed for _, request, decision in server.recorder.decisions] == [True, False]


def test_a_branch_is_read_to_its_end_by_who_may_read_that_branch_alone(library: omnigraph.Graph) -> None:
    """Its commits may all have been made on main, which is closed to this actor."""
    library.load("\n".join(record("Author", slug=f"s{n:03}", name="x" * 50) for n in range(60)), mode="merge")
    library.create_branch("work")
    gates = {"kb": Rules({"bob": ["read@work", "read@None"]})}
    short = lambda: MountedEndpoint(Terms(max_tokens=300))  # noqa: E731
    names = {"query": "query n() { match { $a: Author } return { $a.slug as slug, $a.name as name } }"}
    with running({"kb": library}, tokens={"bob": "t-bob"}, gates=gates, agents=short) as server:
        bob = bearer("t-bob")
        assert members(called(server, "query", headers=bob, **names))["code"] == "forbidden"
        page = members(called(server, "query", headers=bob, branch="work", **names))
        slugs = [row["slug"] for row in page["rows"]]
        while "continuation" in page:
            asked = {**names, "branch": "work", "continuation": page["continuation"]}
            page = members(called(server, "query", headers=bob, **asked))
            slugs += [row["slug"] for row in page["rows"]]
        around = members(called(server, "neighbours", headers=bob, type="Author", id="lem", branch="work"))
    assert len(slugs) == len(set(slugs)) == 62
    assert len(around["neighbours"]) == 3


def test_a_server_may_offer_agents_nothing_that_writes(library: omnigraph.Graph) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    with running({"kb": library}, agents=lambda: load_endpoint(AgentSettings(read_only=True))) as server:
        offered = server.client.post("/mcp", json=listing, headers=HEADERS).json()["result"]["tools"]
        refused = members(called(server, "branch_create", name="work"))
    assert {tool["name"] for tool in offered} == {tool.name for tool in TOOLS.values() if not tool.writes}
    assert "read-only" in refused["error"]


def test_a_server_of_several_graphs_asks_which(library: omnigraph.Graph, tmp_path: Path) -> None:
    with (
        omnigraph.init(str(tmp_path / "lab"), "node Author { slug: String @key }") as lab,
        running({"kb": library, "lab": lab}, agents=endpoint) as server,
    ):
        refused = called(server, "query", query=SLUGS)
        assert refused.status_code == 400
        assert "/graphs/<id>/mcp" in refused.json()["error"]
        assert len(members(called(server, "query", "/graphs/kb/mcp", query=SLUGS))["rows"]) == 2
        assert members(called(server, "query", headers={"Omnigraph-Graph": "lab"}, query=SLUGS))["rows"] == []


def test_pages_from_elsewhere_are_kept_out(library: omnigraph.Graph) -> None:
    """Even of an open server, which a page can reach by a name of its own that leads here."""
    app = "https://app.example.org"
    with running({"kb": library}, agents=endpoint, origins=(app,)) as server:
        assert called(server, "branches", headers={"Origin": "http://["}).status_code == 403
        refused = called(server, "branches", headers={"Origin": "https://evil.example"})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert "--allow-origin https://evil.example" in refused.json()["error"]
        for origin in (app, "http://localhost:6274", "http://127.0.0.1:9"):
            assert called(server, "branches", headers={"Origin": origin}).status_code == 200
        asked = {"Origin": app, "Access-Control-Request-Method": "POST"}
        asked["Access-Control-Request-Headers"] = "authorization, content-type, mcp-protocol-version"
        assert server.client.options("/mcp", headers=asked).status_code == 200


def test_what_breaks_inside_is_logged_and_not_told(library: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    with running({"kb": library}, agents=endpoint) as server:
        monkeypatch.setattr(type(library), "list_branches", lambda self: 1 / 0)
        error = members(called(server, "branches"))
    assert error["code"] == "internal"
    assert error["error"].startswith("internal error; the server's log has the cause under request id")
    assert [type(failure) for failure in server.recorder.failures] == [ZeroDivisionError]


def test_a_server_without_an_endpoint_says_so(library: omnigraph.Graph) -> None:
    with running({"kb": library}) as server:
        answer = called(server, "branches")
    assert answer.status_code == 404
    assert "without an endpoint for agents" in answer.json()["error"]


def test_a_server_whose_endpoint_is_not_installed_says_what_is_missing(library: omnigraph.Graph) -> None:
    def missing() -> MountedEndpoint:
        raise omnigraph.NotFoundError("this server has no mcp, which agents need: install omnigraph[mcp]")

    with running({"kb": library}, agents=missing) as server:
        for _ in range(2):
            answer = called(server, "branches")
            assert answer.status_code == 404
            assert "install omnigraph[mcp]" in answer.json()["error"]
        assert server.client.get("/graphs/kb/branches").status_code == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"jsonrpc": "2.0"}', b"\xff", json.dumps([1] * 100).encode()])
def test_what_is_no_message_is_refused(library: omnigraph.Graph, body: bytes) -> None:
    with running({"kb": library}, agents=endpoint) as server:
        answer = server.client.post("/mcp", content=body, headers={**HEADERS, "Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in (-32700, -32600, -32602)


def test_integers_that_parsers_round_are_texts(library: omnigraph.Graph) -> None:
    library.schema.apply(library.schema.show() + "\nnode Count { name: String @key  n: I64 }")
    library.load("\n".join([record("Count", name="a", n=2**53 + 1), record("Count", name="b", n=5)]), mode="merge")
    counts = "query counts() { match { $c: Count } return { $c.n as n } order { n } }"
    with running({"kb": library}, agents=endpoint) as server:
        assert members(called(server, "query", query=counts))["rows"] == [{"n": 5}, {"n": "9007199254740993"}]
