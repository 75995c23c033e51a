"""What every route has in common when it says no: rules that deny, budgets that are spent, history and sources that
are gone."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import omnigraph
from omnigraph import AllowedBase, ExternalBlobPolicy, Graph
from omnigraph.api.enums import PolicyAction
from omnigraph.api.service.routes import ROUTES, Route
from omnigraph.server.admission import Budgets
from omnigraph.server.settings import ServerLimits
from tests.conftest import Place
from tests.server.running import RunningServer, running
from tests.server.sample import ADD, EVERYBODY, EVERYTHING, SCHEMA, Rules, bearer, people, person

BODIES: dict[str, Any] = {
    "query": {"query": EVERYBODY},
    "read": {"query_source": EVERYBODY},
    "explain": {"query": EVERYBODY},
    "profile": {"query": EVERYBODY},
    "mutate": {"query": ADD, "params": {"name": "New"}},
    "change": {"query": ADD, "params": {"name": "New"}},
    "mutate_if_graph_commit": {"query": ADD, "params": {"name": "New"}},
    "invoke_query": {"params": {"name": "New"}},
    "invoke_query_if_graph_commit": {"params": {"name": "New"}},
    "applySchema": {"schema_source": SCHEMA},
    "planSchema": {"schema_source": SCHEMA},
    "load": {"data": person("New"), "mode": "merge"},
    "ingest": {"data": person("New")},
    "createBranch": {"name": "new"},
    "mergeBranches": {"source": "side"},
    "previewMerge": {"source": "side"},
}
QUERIES = {
    "getBlob": "entity=node&type=Person&id=Ada&property=photo",
    "getEntity": "entity=node&type=Person&id=Ada",
    "diff": "from=main&to=side",
    "countEntities": "type=Person",
    "loadNdjson": "mode=merge",
    "loadRows": "mode=merge&type=Person",
}
OF_GRAPH = [route for route in ROUTES if route.of_graph and route.operation_id != "mcp"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with people(tmp_path_factory.mktemp("refusals") / "kb") as graph:
        graph.create_branch("side")
        yield graph


def asked(server: RunningServer, route: Route, graph: Graph, token: str) -> httpx.Response:
    """A request that is in order, for the one reason that it may still be refused for."""
    path = route.full_path.format(graph_id="kb", commit_id=graph.resolve_snapshot(), name="add", branch="side")
    headers = bearer(token)
    if route.if_commit:
        headers["Omnigraph-If-Graph-Commit"] = graph.resolve_snapshot()
    sent: dict[str, Any] = {}
    if route.operation_id in ("loadNdjson", "loadRows"):
        headers["Content-Type"] = "application/x-ndjson"
        sent["content"] = person("New") if route.operation_id == "loadNdjson" else '{"name": "New"}'
    elif route.method == "POST":
        sent["json"] = BODIES.get(route.operation_id, {})
    query = QUERIES.get(route.operation_id, "")
    return server.client.request(route.method, f"{path}?{query}", headers=headers, **sent)


@pytest.fixture(scope="module")
def ruled(graph: Graph) -> Iterator[RunningServer]:
    """Eve has a token, and no rule is about her. Bob may do everything, and his budget is spent."""
    rules = Rules({"bob": EVERYTHING, "eve": []})
    with (
        running(
            {"kb": graph},
            tokens={"bob": "b", "eve": "e"},
            gates={"kb": rules},
            queries="\n".join([EVERYBODY, ADD]),
            budgets=Budgets(ServerLimits(actor_requests=0)),
        ) as server,
    ):
        yield server


@pytest.mark.parametrize("route", OF_GRAPH, ids=lambda route: route.operation_id)
def test_whom_no_rule_allows_is_refused_by_every_route(ruled: RunningServer, graph: Graph, route: Route) -> None:
    before = graph.resolve_snapshot(), graph.list_branches()
    refused = asked(ruled, route, graph, "e")
    if route.operation_id.startswith("invoke_query"):
        # Who may not call stored queries does not learn which there are.
        assert (refused.status_code, refused.json()["error"]) == (404, "stored query not found")
    elif route.operation_id == "getCommitChanges":
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found"), "as if the commit were unknown"
    else:
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), refused.text
        assert "policy denied action '" in refused.json()["error"]
    assert before == (graph.resolve_snapshot(), graph.list_branches())


def of_branch(server: RunningServer, name: str) -> Iterator[httpx.Response]:
    """What somebody without any rule is told of a branch, by each route that takes its name."""
    url, headers = server.graph(), bearer("e")
    for path in ("snapshot", "schema", "commits", "history", "changes"):
        yield server.client.get(f"{url}/{path}", params={"branch": name}, headers=headers)
    for path in (f"entity?{QUERIES['getEntity']}&branch={name}", f"diff?from={name}&to=main"):
        yield server.client.get(f"{url}/{path}", headers=headers)
    for operation in ("query", "read", "mutate", "load", "planSchema", "applySchema"):
        route = next(route for route in OF_GRAPH if route.operation_id == operation)
        path = route.full_path.replace("{graph_id}", "kb")
        yield server.client.post(path, json={**BODIES[operation], "branch": name}, headers=headers)
    for path, body in (
        ("export", {"branch": name}),
        ("changes/baseline", {"branch": name}),
        ("branches", {"name": "new", "from": name}),
        ("branches/merge", {"source": name}),
        ("branches/merge/preview", {"source": name}),
    ):
        yield server.client.post(f"{url}/{path}", json=body, headers=headers)
    yield server.client.delete(f"{url}/branches/{name}", headers=headers)


def test_whether_a_branch_exists_is_not_told_to_strangers(ruled: RunningServer) -> None:
    for there, absent in zip(of_branch(ruled, "side"), of_branch(ruled, "nope"), strict=True):
        assert there.status_code == absent.status_code == 403, (there.url, there.text, absent.text)
        assert there.text.replace("side", "nope") == absent.text


WRITES = [route for route in OF_GRAPH if route.writes or route.operation_id == "invoke_query"]


@pytest.mark.parametrize("route", WRITES, ids=lambda route: route.operation_id)
def test_whose_budget_is_spent_writes_nothing(ruled: RunningServer, graph: Graph, route: Route) -> None:
    before = graph.resolve_snapshot(), graph.list_branches()
    refused = asked(ruled, route, graph, "b")
    assert (refused.status_code, refused.headers.get("retry-after")) == (429, "60"), refused.text
    assert refused.json()["code"] == "too_many_requests"
    assert "in-flight count cap 0" in refused.json()["error"]
    assert before == (graph.resolve_snapshot(), graph.list_branches())


READS = [route for route in OF_GRAPH if route not in WRITES]


@pytest.mark.parametrize("route", READS, ids=lambda route: route.operation_id)
def test_reads_are_not_counted_among_writes(ruled: RunningServer, graph: Graph, route: Route) -> None:
    assert asked(ruled, route, graph, "b").status_code == 200


@pytest.fixture(scope="module")
def spent(graph: Graph) -> Iterator[RunningServer]:
    """Nobody may have a read under way."""
    rules = Rules({"bob": EVERYTHING})
    limits = ServerLimits(actor_reads=0)
    with running(
        {"kb": graph}, tokens={"bob": "b"}, gates={"kb": rules}, queries="\n".join([EVERYBODY, ADD]), limits=limits
    ) as server:
        yield server


@pytest.mark.parametrize("route", READS, ids=lambda route: route.operation_id)
def test_whose_reads_are_spent_reads_nothing(spent: RunningServer, graph: Graph, route: Route) -> None:
    refused = asked(spent, route, graph, "b")
    assert refused.status_code == 429, refused.text
    assert int(refused.headers["retry-after"]) > 0
    assert (refused.json()["code"], refused.json()["type"]) == ("too_many_requests", "too_many_requests")
    assert "reads of actor 'bob'" in refused.json()["error"]
    assert "(--actor-reads)" in refused.json()["error"]


def test_the_contract_says_which_routes_are_counted() -> None:
    counted = {PolicyAction.CHANGE, PolicyAction.SCHEMA_APPLY, PolicyAction.BRANCH_CREATE, PolicyAction.BRANCH_DELETE}
    changing = {route.operation_id for route in OF_GRAPH if route.action in {*counted, PolicyAction.BRANCH_MERGE}}
    assert {route.operation_id for route in WRITES} == changing | {"invoke_query", "invoke_query_if_graph_commit"}


def test_a_write_over_the_budget_of_bytes(graph: Graph) -> None:
    with running({"kb": graph}, budgets=Budgets(ServerLimits(actor_bytes=300))) as server:
        branch = server.client.post("/graphs/kb/branches", json={"name": "cheap"})
        assert branch.status_code == 200, "an operation on branches counts 256"
        for tag in ("x" * 300, "日" * 100):
            data = json.dumps({"type": "Person", "data": {"name": "New", "tags": [tag]}}, ensure_ascii=False)
            refused = server.client.post("/graphs/kb/load", json={"data": data})
            assert refused.status_code == 429
            assert "byte budget" in refused.json()["error"]


def test_writes_that_wait_for_others_are_under_way(graph: Graph) -> None:
    """An actor is refused at its cap, not made to wait for a thread, and another one is not refused."""
    inside, go = threading.Semaphore(0), threading.Event()

    class Held(Budgets):
        @contextmanager
        def admit(self, actor: str | None, size: int) -> Iterator[None]:
            with super().admit(actor, size):
                inside.release()
                go.wait()
                yield

    tokens, limits = {"ana": "t-ana", "rob": "t-rob"}, ServerLimits(actor_requests=2, write_threads=1)
    rules = Rules(dict.fromkeys(tokens, EVERYTHING))
    with (
        running(
            {"kb": graph},
            tokens=tokens,
            gates={"kb": rules},
            budgets=Held(limits),
            limits=limits,
        ) as server,
        ThreadPoolExecutor() as clients,
    ):

        def load(actor: str) -> int:
            body = {"data": person(f"Of {actor}"), "mode": "merge"}
            return httpx.post(
                f"{server.graph()}/load", json=body, headers=bearer(tokens[actor]), timeout=120
            ).status_code

        try:
            under_way = [clients.submit(load, actor) for actor in ("ana", "ana", "rob")]
            for _ in under_way:
                assert inside.acquire(timeout=120), "each of them is counted, whoever else waits"
            assert load("ana") == 429
        finally:
            go.set()
        assert [write.result() for write in under_way] == [200, 200, 200]


def test_changes_that_were_reclaimed_are_gone(tmp_path: Path) -> None:
    with people(tmp_path / "kb") as graph:
        graph.load(person("One"), mode="merge")
        gone = graph.snapshot()
        graph.load(person("Two"), mode="merge")
        table = gone.entry.tables["node:Person"]
    (tmp_path / "kb" / table.path / "_versions" / f"d{table.version}.manifest").unlink()
    with Graph.open(tmp_path / "kb") as graph, running({"kb": graph}) as server:
        for path in (
            f"changes?start=after:{gone.entry.commit.parents[0].commit_id}",
            f"commits/{gone.commit_id}/changes",
        ):
            answer = server.client.get(f"/graphs/kb/{path}")
            assert answer.status_code == 410, answer.text
            assert "code" not in answer.json()
            assert answer.json()["change_feed_gap"]["first_unreadable_commit_id"] == gone.commit_id


def test_a_source_that_can_not_be_read_is_named(tmp_path: Path, s3_place: Place) -> None:
    base = f"{s3_place.uri}/photos/"
    omnigraph.init(tmp_path / "kb", SCHEMA).close()
    policy = ExternalBlobPolicy([AllowedBase(base, "server_safe")])
    with omnigraph.open(tmp_path / "kb", external_blobs=policy) as graph, running({"kb": graph}) as server:
        missing = server.client.post(
            "/graphs/kb/load", json={"data": json.dumps({"type": "Person", "data": {"name": "A", "photo": f"{base}a"}})}
        )
        assert missing.status_code == 424, missing.text
        answer = missing.json()
        assert "code" not in answer
        assert answer["external_blob_source"]["uri"] == f"{base}a"
        assert graph.snapshot().version == 1


# Paths of the server's machine


def broken_requests(url: str) -> Iterator[httpx.Request]:
    """Requests that fail, each in a way of its own."""
    for path in ("query", "mutate", "load", "schema/apply", "branches", "branches/merge", "export", "changes/baseline"):
        yield httpx.Request("POST", f"{url}/{path}", json={"query": "query {", "data": "{", "schema_source": "node {"})
        yield httpx.Request("POST", f"{url}/{path}", content=b"{", headers={"Content-Type": "application/json"})
        yield httpx.Request("POST", f"{url}/{path}", json={**BODIES["query"], "branch": "none", "source": "none"})
    lines = {"Content-Type": "application/x-ndjson"}
    for record in ("{", person("Zed", age="old"), person("Zed", photo="file:///etc/hostname"), '{"type": "None"}'):
        yield httpx.Request("POST", f"{url}/load/ndjson?mode=append", content=record, headers=lines)
        yield httpx.Request("POST", f"{url}/load", json={"data": record})
    for path in ("blob?entity=node&type=None&id=x&property=y", "changes?cursor=x", "commits/none", "none", "entity"):
        yield httpx.Request("GET", f"{url}/{path}")


def test_no_answer_has_a_path_of_the_machine(tmp_path: Path) -> None:
    """Neither in what succeeds nor in what fails, also when files are gone or damaged."""
    place = tmp_path / "kb"
    planted = str(tmp_path)
    seen: dict[str, int] = {}

    def look(name: str, answer: httpx.Response) -> None:
        seen[name] = answer.status_code
        shown = f"{dict(answer.headers)} {answer.text}"
        for path in (planted, tempfile.gettempdir() + "/"):
            assert path not in shown, (name, shown)

    with people(place) as graph, running({"kb": graph}, queries="\n".join([EVERYBODY, ADD])) as server:
        graph.create_branch("side")
        for route in ROUTES:
            look(route.operation_id, asked(server, route, graph, "none"))
        created = server.client.post("/graphs/kb/branches", json={"name": "again"})
        listed = server.client.get("/graphs").json()
        for request in broken_requests(server.graph()):
            look(f"{request.method} {request.url} {request.content!r}", server.client.send(request))
    assert created.json()["uri"] == listed["graphs"][0]["uri"] == "/graphs/kb"
    assert seen["load"] == seen["applySchema"] == seen["createBranch"] == seen["listGraphs"] == 200, seen
    for damaged in [*place.glob("nodes/*/_versions/*"), *place.glob("nodes/*/data/*"), *place.glob("schemas/*")]:
        damaged.write_bytes(b"")
    with Graph.open(place) as graph, running({"kb": graph}, queries="") as server:
        for state in ("damaged", "gone"):
            for route in READS:
                look(f"{state} {route.operation_id}", asked(server, route, graph, "none"))
            shutil.rmtree(place, ignore_errors=True)
    assert seen["damaged query"] == 500
