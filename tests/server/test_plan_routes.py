"""What can be seen before it is done, and histories with what commits did: reads of a branch like any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph import Graph
from tests.server.running import RunningServer, running
from tests.server.sample import AGE, EVERYBODY, SCHEMA, Rules, bearer, people

TOKENS = {"ana": "of-ana", "eve": "of-eve"}
WIDER = SCHEMA.replace("email: String?", "email: String?  nick: String?")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with people(tmp_path_factory.mktemp("plans") / "kb") as graph:
        graph.create_branch("side")
        graph.mutate(AGE, params={"name": "Ada", "age": 1}, branch="side")
        yield graph


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[RunningServer]:
    gates = {"kb": Rules({"ana": ["read@main"]})}
    with running({"kb": graph}, tokens=TOKENS, gates=gates) as server:
        yield server


def calls(graph: Graph, branch: str) -> dict[str, tuple[str, str, Any]]:
    commit = graph.resolve_snapshot(branch)
    return {
        "explain": ("POST", "query/explain", {"query": EVERYBODY, "branch": branch}),
        "profile": ("POST", "query/profile", {"query": EVERYBODY, "branch": branch}),
        "planSchema": ("POST", "schema/plan", {"schema_source": WIDER, "branch": branch}),
        "getHistory": ("GET", f"history?branch={branch}&limit=2", None),
        "getCommitSummary": ("GET", f"commits/{commit}/summary", None),
    }


@pytest.mark.parametrize("operation", ["explain", "profile", "planSchema", "getHistory", "getCommitSummary"])
def test_whoever_may_read_a_branch_may_look_ahead_and_back_on_it(
    server: RunningServer, graph: Graph, operation: str
) -> None:
    def status(branch: str, token: str) -> int:
        method, path, body = calls(graph, branch)[operation]
        return server.client.request(method, f"/graphs/kb/{path}", json=body, headers=bearer(token)).status_code

    assert [status("main", "of-ana"), status("side", "of-ana"), status("main", "of-eve")] == [200, 403, 403]


def test_a_preview_needs_both_branches(server: RunningServer, graph: Graph) -> None:
    body = {"source": "side", "target": "main"}
    asked = server.client.post("/graphs/kb/branches/merge/preview", json=body, headers=bearer("of-ana"))
    assert asked.status_code == 403
    with running({"kb": graph}) as open_server:
        shown = open_server.client.post("/graphs/kb/branches/merge/preview", json=body).json()
        assert (shown["outcome"], [change["id"] for change in shown["changes"]]) == ("fast_forward", ["Ada"])
    assert graph.entity("Person", "Ada")["age"] == 36  # type: ignore[index]


def test_a_schema_is_applied_to_the_branch_that_is_named(server: RunningServer, graph: Graph) -> None:
    graph.create_branch("wider")
    gates = {"kb": Rules({"ana": ["schema_apply>wider"]})}
    with running({"kb": graph}, tokens=TOKENS, gates=gates) as other:

        def apply(branch: str | None) -> int:
            body = {"schema_source": WIDER, "branch": branch}
            return other.client.post("/graphs/kb/schema/apply", json=body, headers=bearer("of-ana")).status_code

        assert [apply(None), apply("main"), apply(" wider ")] == [403, 403, 200]
    assert (graph.schema.show("wider"), graph.schema.show()) == (WIDER, SCHEMA)


def test_a_refusal_before_the_body_arrives_whole(server: RunningServer) -> None:
    """Many small loads by somebody who may not: each is told so, and none is cut off."""
    headers = {**bearer("of-eve"), "Content-Type": "application/x-ndjson"}
    for _ in range(20):
        refused = server.client.post("/graphs/kb/load/ndjson", content=iter([b"{}\n"] * 50), headers=headers)
        assert refused.status_code == 403


def test_a_plan_names_the_stored_queries_that_it_breaks(graph: Graph) -> None:
    reads = {"scores": "$p.score as score", "names": "$p.name as name"}
    stored = "\n".join(
        f"query {name}() {{ match {{ $p: Person }} return {{ {shown} }} }}" for name, shown in reads.items()
    )
    without_score = SCHEMA.replace("  score: F64?\n", "")
    with running({"kb": graph}, queries=stored) as server:
        plan = server.client.post("/graphs/kb/schema/plan", json={"schema_source": without_score}).json()
    assert [(each["kind"], each["name"]) for each in plan["breaks"]] == [("stored_query", "scores")]
    assert [step["kind"] for step in plan["steps"]] == ["drop_property"]
    assert plan["steps"][0]["effect"] == {"metadata_only": True}
