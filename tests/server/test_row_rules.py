"""Rules for rows and properties over HTTP: whatever a narrowed actor asks for, the rest of the graph is not there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.api.service.routes import ROUTES
from omnigraph.policy.gate import PolicyGate, load_gate
from tests.server.running import RunningServer, running
from tests.server.sample import bearer, ndjson

SCHEMA = """
node Person {
    name: String @key
    region: String @index
    bio: String? @index
    mail: String? @unique
    pay: String?
    vec: Vector(2)? @index
    photo: Blob?
}
edge Knows: Person -> Person { note: String? }
"""
# Everything that must never be told has this word in it.
WORD = "hush"
RULES = """
version: 1
groups: {eu: [ana], staff: [lea]}
rules:
  - id: eu
    allow:
      actors: {group: eu}
      actions: [read, export, change]
      rows: {Person: region = "eu"}
      hide: {Person: [pay, photo]}
  - id: eu-works
    allow: {actors: {group: eu}, actions: [invoke_query, branch_create, branch_merge, schema_apply]}
  - id: all
    allow: {actors: {group: staff}, actions: [read, export, change, invoke_query, branch_create, branch_merge, admin]}
"""
STORED = """
query everybody() { match { $p: Person } return { $p.name as name, $p.bio as bio } order { name } }
"""


def person(name: str, **data: Any) -> str:
    return json.dumps({"type": "Person", "data": {"name": name, **data}})


def edge(id_: str, source: str, target: str, note: str) -> str:
    return json.dumps({"edge": "Knows", "from": source, "to": target, "data": {"id": id_, "note": note}})


HIDDEN = [
    person(f"{WORD}-{i}", region="us", bio=f"ocean {WORD}", mail=f"{WORD}{i}@x", pay=WORD, vec=[1, i]) for i in range(7)
]
SHOWN = [
    person(f"p{i}", region="eu", bio="ocean lake", mail=f"p{i}@x", pay=f"{WORD}-pay", vec=[i, 1]) for i in range(3)
]
EDGES = [edge("e1", "p0", "p1", "open"), *(edge(f"{WORD}-e{i}", "p0", f"{WORD}-{i}", WORD) for i in range(4))]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """People of two regions; then one moves into sight and one out of it, and two branches that can't be merged."""
    with omnigraph.init(tmp_path_factory.mktemp("rules") / "kb", SCHEMA) as graph:
        graph.load("\n".join([*HIDDEN, *SHOWN, *EDGES]), mode="append")
        graph.maintenance.ensure_indices()
        graph.create_branch("side")
        for branch, bio in (("main", "one"), ("side", "two")):
            text = f'query q() {{ update Person set {{ bio: "{WORD} {bio}" }} where name = "{WORD}-6" }}'
            graph.mutate(text, branch=branch)
        yield graph


@pytest.fixture(scope="module")
def smaller(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A graph that holds only what is seen."""
    with omnigraph.init(tmp_path_factory.mktemp("smaller") / "kb", SCHEMA) as made:
        made.load("\n".join([*SHOWN, EDGES[0]]), mode="append")
        made.maintenance.ensure_indices()
        yield made


@pytest.fixture(scope="module")
def gate(graph: Graph) -> PolicyGate:
    return load_gate(RULES, "graph", "rules", "kb").bind_schema(graph.catalog)


@pytest.fixture(scope="module")
def server(graph: Graph, gate: PolicyGate) -> Iterator[RunningServer]:
    tokens = {"ana": "t-ana", "lea": "t-lea", "eve": "t-eve"}
    with running({"kb": graph}, tokens=tokens, gates={"kb": gate}, queries=STORED) as server:
        yield server
        assert not server.recorder.failures


@pytest.fixture(scope="module")
def ana(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.graph(), headers=bearer("t-ana"), timeout=120) as client:
        yield client


def asked(text: str, **more: Any) -> dict[str, Any]:
    return {"query": text, **more}


def _commits(graph: Graph) -> list[str]:
    return [commit.id for commit in graph.commits().commits]


PERSON = {"entity": "node", "type": "Person"}
SEARCH = 'query q() { match { $p: Person  search($p.bio, "hush") } return { $p.bio as x } }'
DELETE = 'query q() { delete Person where region = "us" }'
NDJSON = {"Content-Type": "application/x-ndjson"}
ALL = "query q() { match { $p: Person } return { $p.name as n, $p.bio as b, $p.mail as m } }"
Ask = Callable[[httpx.Client, Graph], list[httpx.Response]]
# Every operation on a graph, as somebody would use it who looks for more than there is.
SWEEP: dict[str, Ask] = {
    "getSnapshot": lambda c, g: [c.get("/snapshot"), c.get("/snapshot", params={"version": 2})],
    "getIndexStatus": lambda c, g: [c.get("/indexes")],
    "getBlob": lambda c, g: [c.get("/blob", params={**PERSON, "id": "p0", "property": "photo"})],
    "getEntity": lambda c, g: [c.get("/entity", params={**PERSON, "id": f"p{i}"}) for i in (0, 9)],
    "countEntities": lambda c, g: [c.get("/count", params={"type": name}) for name in ("Person", "Knows", WORD[:-1])],
    "query": lambda c, g: [
        c.post("/query", json=asked(ALL)),
        *(c.post("/query", json=asked(ALL, snapshot=commit)) for commit in _commits(g)),
        c.post("/query", json=asked(ALL), headers={"Accept": "application/x-ndjson"}),
        c.post("/query", json=asked("query q() { match { $p: Person } return { $p.pay as x } }")),
        c.post("/query", json=asked("query q() { match { $p: Person  $p knows $q } return { $q.name as x } }")),
        c.post("/query", json=asked(SEARCH)),
    ],
    "explain": lambda c, g: [c.post("/query/explain", json=asked(ALL))],
    "profile": lambda c, g: [c.post("/query/profile", json=asked(ALL))],
    "read": lambda c, g: [c.post("/read", json={"query_source": ALL})],
    "export": lambda c, g: [c.post("/export", json={}), c.post("/export", json={"branch": "side"})],
    "getSchema": lambda c, g: [c.get("/schema")],
    "planSchema": lambda c, g: [c.post("/schema/plan", json={"schema_source": SCHEMA})],
    "listBranches": lambda c, g: [c.get("/branches")],
    "listCommits": lambda c, g: [c.get("/commits")],
    "getCommit": lambda c, g: [c.get(f"/commits/{commit}") for commit in _commits(g)],
    "getCommitSummary": lambda c, g: [c.get(f"/commits/{commit}/summary") for commit in _commits(g)],
    "getHistory": lambda c, g: [c.get("/history")],
    "getCommitChanges": lambda c, g: [c.get(f"/commits/{id_}/changes", params={"limit": 2}) for id_ in _commits(g)],
    "pollChanges": lambda c, g: [
        c.get("/changes", params={"start": "beginning"}),
        c.get("/changes", params={"start": "beginning", "branch": "side", "limit": 1}),
    ],
    "captureChangeBaseline": lambda c, g: [c.post("/changes/baseline", json={})],
    "diff": lambda c, g: [
        c.get("/diff", params={"from": "main", "to": "side"}),
        c.get("/diff", params={"from": _commits(g)[-1], "to": "main"}),
    ],
    "previewMerge": lambda c, g: [c.post("/branches/merge/preview", json={"source": "side"})],
    "list_queries": lambda c, g: [c.get("/queries")],
    "listPipelines": lambda c, g: [c.get("/pipelines")],
    "mutate": lambda c, g: [
        c.post("/mutate", json=asked('query q() { update Person set { bio: "x" } where region = "us" }')),
        c.post("/mutate", json=asked('query q() { insert Person { name: "z", region: "eu", mail: "p0@x" } }')),
        c.post("/mutate", json=asked('query q() { delete Person where name = "p0" }')),
        c.post("/mutate", json=asked('query q() { update Person set { region: "us" } where name = "p0" }')),
    ],
    "change": lambda c, g: [c.post("/change", json={"query_source": DELETE})],
    "mutate_if_graph_commit": lambda c, g: [
        c.post(
            "/mutate/if-graph-commit",
            json=asked(DELETE),
            headers={"Omnigraph-If-Graph-Commit": _commits(g)[1]},
        )
    ],
    "invoke_query": lambda c, g: [c.post("/queries/everybody", json={})],
    "invoke_query_if_graph_commit": lambda c, g: [c.post("/queries/everybody/if-graph-commit", json={})],
    "applySchema": lambda c, g: [c.post("/schema/apply", json={"schema_source": "node Broken {"})],
    "load": lambda c, g: [c.post("/load", json={"data": person("p9", region="us"), "mode": "merge"})],
    "loadNdjson": lambda c, g: [
        c.post("/load/ndjson", params={"mode": mode}, content=person("p9", region="eu"), headers=NDJSON)
        for mode in ("overwrite", "append")
    ],
    "loadRows": lambda c, g: [
        c.post("/load/rows", params={"type": "Person", "mode": mode}, content=row, headers=NDJSON)
        for mode in ("overwrite", "append", "merge")
        for row in ('{"name": "p9", "region": "eu"}', f'{{"name": "{WORD[:-1]}", "region": "us"}}')
    ],
    "ingest": lambda c, g: [c.post("/ingest", json={"data": person("p9", region="us"), "mode": "merge"})],
    "createBranch": lambda c, g: [c.post("/branches", json={"name": "main", "from": "main"})],
    "deleteBranch": lambda c, g: [c.delete("/branches/side")],
    "mergeBranches": lambda c, g: [c.post("/branches/merge", json={"source": "side", "target": "main"})],
    "mcp": lambda c, g: [],  # has tests of its own: it does what these operations do
}  # fmt: skip


def test_no_operation_on_a_graph_is_left_out() -> None:
    assert {route.operation_id for route in ROUTES if route.of_graph} == SWEEP.keys()


@pytest.mark.parametrize("operation", SWEEP)
def test_nothing_of_the_rest_is_told_by(operation: str, ana: httpx.Client, graph: Graph) -> None:
    before = graph.resolve_snapshot()
    for answer in SWEEP[operation](ana, graph):
        assert answer.status_code != 401
        assert answer.status_code < 500, answer.text
        told = answer.text + str(dict(answer.headers))
        # What somebody searched for may come back in what is said about the search.
        assert WORD not in told, (answer.request.url, answer.request.content, told)
    assert graph.resolve_snapshot() in (before, _commits(graph)[0])


def rows(client: httpx.Client, text: str) -> Any:
    answer = client.post("/query", json=asked(text))
    assert answer.status_code == 200, answer.text
    return answer.json()["rows"]


COUNTING = [
    "query q() { match { $p: Person } return { count($p) as n, max($p.name) as m, min($p.name) as l } }",
    "query q() { match { $p: Person  not { $p knows $q } } return { $p.name as n } order { n } }",
    "query q() { match { $p: Person  $p knows $q } return { $p.name as n, count($q) as c } order { n } }",
    "query q() { match { $p: Person } return { $p.name as n } order { n desc } limit 2 }",
    'query q() { match { $p: Person } return { $p.name as n } order { bm25($p.bio, "ocean") } limit 4 }',
    "query q() { match { $p: Person } return { $p.name as n } order { nearest($p.vec, [1.0, 3.0]) } limit 4 }",
    "query q() { match { $p: Person } return { $p.region as r, count($p) as n } order { r } }",
]


@pytest.mark.parametrize("text", COUNTING)
def test_counts_orders_and_ranks_are_those_of_the_smaller_graph(ana: httpx.Client, smaller: Graph, text: str) -> None:
    assert rows(ana, text) == smaller.query(text).rows()


def test_counts_of_types_are_those_of_the_smaller_graph(ana: httpx.Client, smaller: Graph) -> None:
    for name in ("Person", "Knows"):
        told = ana.get("/count", params={"type": name}).json()
        assert told["entity_count"] == smaller.at().count(name), name


def test_what_is_masked_is_as_absent_as_what_never_was(ana: httpx.Client) -> None:
    answers = []
    for id_ in (f"{WORD}-1", "never-1"):
        found = ana.get("/entity", params={**PERSON, "id": id_})
        blob = ana.get("/blob", params={**PERSON, "id": id_, "property": "photo"})
        end = ana.post("/mutate", json=asked(f'query q() {{ insert Knows {{ from: "p0", to: "{id_}" }} }}'))
        update = ana.post(
            "/mutate", json=asked(f'query q() {{ update Person set {{ bio: "x" }} where name = "{id_}" }}')
        )
        texts = [answer.json()["error"].replace(id_, "x") for answer in (found, blob, end)]
        answers.append(([a.status_code for a in (found, blob, end, update)], texts, update.json()["affected_nodes"]))
    assert answers[0] == answers[1]
    assert answers[0][0] == [404, 404, 400, 200]


def test_a_value_that_somebody_invisible_has_is_taken_without_saying_by_whom(ana: httpx.Client) -> None:
    text = f'query q() {{ insert Person {{ name: "new", region: "eu", mail: "{WORD}1@x" }} }}'
    whole_rows = ana.post("/mutate", json=asked(text))
    assert whole_rows.status_code == 403, "some properties are hidden, so no whole row can be written"
    update = ana.post(
        "/mutate", json=asked(f'query q() {{ update Person set {{ mail: "{WORD}1@x" }} where name = "p1" }}')
    )
    assert update.status_code == 400
    assert f"{WORD}-1" not in update.text
    assert "unique violation on node:Person.mail; nothing was written" in update.json()["error"]


def test_conflicts_of_a_merge_are_listed_for_those_who_see_both_branches(
    server: RunningServer, ana: httpx.Client
) -> None:
    merge = {"source": "side", "target": "main"}
    restricted = ana.post("/branches/merge", json=merge)
    assert restricted.status_code == 409
    assert "not listed because you do not see all of both branches" in restricted.json()["error"]
    assert "merge_conflicts" not in restricted.json()
    listed = server.client.post("/graphs/kb/branches/merge", json=merge, headers=bearer("t-lea"))
    assert [conflict["entity_id"] for conflict in listed.json()["merge_conflicts"]] == [f"{WORD}-6"]


def test_a_page_of_the_feed_tells_no_more_than_what_was_visible(ana: httpx.Client, graph: Graph) -> None:
    visible, token = [], None
    while True:
        parameters = {"page_token": token} if token else {"start": "beginning"}
        page = ana.get("/changes", params={**parameters, "limit": 1}).json()
        visible += [change["id"] for block in page["blocks"] for change in block["changes"]]
        if (token := page.get("next_page_token")) is None:
            break
    assert visible[:3] == ["p0", "p1", "p2"]
    first = ana.get(f"/commits/{_commits(graph)[-2]}/changes", params={"limit": 2}).json()
    foreign = httpx.get(
        f"{ana.base_url}commits/{_commits(graph)[-2]}/changes",
        params={"page_token": first["next_page_token"]},
        headers=bearer("t-lea"),
    )
    assert foreign.status_code == 400, "what one actor has paged is no page of another's"


def test_a_tag_says_what_was_visible_and_not_who_asked(server: RunningServer, ana: httpx.Client, graph: Graph) -> None:
    body = asked(ALL, snapshot=_commits(graph)[-2])
    tag = ana.post("/query", json=body).headers["etag"]
    assert ana.post("/query", json=body, headers={"If-None-Match": tag}).status_code == 304
    other = server.client.post("/graphs/kb/query", json=body, headers={**bearer("t-lea"), "If-None-Match": tag})
    assert other.status_code == 200


def test_a_denial_explains_itself_to_those_who_may_read_the_rules(server: RunningServer) -> None:
    bodies = {}
    for actor in ("ana", "lea", "eve"):
        answer = server.client.request("DELETE", "/graphs/kb/branches/side", headers=bearer(f"t-{actor}"))
        assert answer.status_code == 403
        bodies[actor] = answer.json()
    assert bodies["ana"] == {
        "error": "policy denied action 'branch_delete' targeting branch 'side' for actor 'ana'",
        "code": "forbidden",
        "type": "policy",
    }
    assert bodies["lea"]["fields"]["reasons"][0].startswith("nearest rule 'all': action 'branch_delete' is not listed")
    assert "fields" not in bodies["eve"]


def test_an_export_is_what_is_visible_and_can_be_loaded(ana: httpx.Client) -> None:
    lines = ndjson(ana.post("/export", json={}).content)
    assert sorted(line["data"]["id"] for line in lines)[:4] == ["e1", "p0", "p1", "p2"]
    assert all(line["data"].get("pay") is None for line in lines)
