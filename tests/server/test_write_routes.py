"""Writing over HTTP: mutations and their preconditions, stored queries, loads, branches and schemas."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from omnigraph import Graph
from tests.server.running import RunningServer, faultless, running
from tests.server.sample import (
    ADD,
    AGE,
    DROP,
    EVERYBODY,
    EVERYTHING,
    SCHEMA,
    Rules,
    bearer,
    knows,
    people,
    person,
)

IF = "Omnigraph-If-Graph-Commit"
NDJSON = {"Content-Type": "application/x-ndjson"}
TWO_KINDS = "query both($name: String) { insert Person { name: $name }  delete Person where name = $name }"
QUERIES = "\n".join([EVERYBODY, ADD, AGE])


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with people(tmp_path_factory.mktemp("writes") / "kb") as graph:
        yield graph


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[RunningServer]:
    with faultless({"kb": graph}, queries=QUERIES) as server:
        yield server


def post(server: RunningServer, path: str, body: Any, headers: Any = None) -> httpx.Response:
    return server.client.post(f"/graphs/kb/{path}", json=body, headers=headers)


def names(graph: Graph, branch: str) -> set[str]:
    return {row["name"] for row in graph.query(EVERYBODY, branch=branch)}


def add(name: str, branch: str, **more: Any) -> dict[str, Any]:
    return {"query": ADD, "params": {"name": name, "age": 1}, "branch": branch, **more}


# Mutations


@pytest.mark.parametrize("path", ["mutate", "change"])
@pytest.mark.parametrize(("source", "name"), [("query", "name"), ("query_source", "query_name")])
def test_a_mutation_is_one_commit(
    server: RunningServer, graph: Graph, branch: str, path: str, source: str, name: str
) -> None:
    body = {source: f"{ADD}\n{DROP}", name: "add", "params": {"name": "New"}, "branch": f" {branch} "}
    answer = post(server, path, body)
    told = answer.json()
    commit = told.pop("commit")
    assert told == {"branch": branch, "query_name": "add", "affected_nodes": 1, "affected_edges": 0, "actor_id": None}
    assert commit["graph_commit_id"] == graph.resolve_snapshot(branch) == answer.headers["omnigraph-commit"]
    assert commit["graph_branch"] == branch


def test_a_mutation_that_matches_nothing_makes_no_commit(server: RunningServer, graph: Graph, branch: str) -> None:
    before = graph.resolve_snapshot(branch)
    answer = post(server, "mutate", {"query": DROP, "params": {"name": "nobody"}, "branch": branch})
    assert answer.json()["commit"] is None
    assert "omnigraph-commit" not in answer.headers
    assert graph.resolve_snapshot(branch) == before


def test_deleting_a_node_takes_its_edges(server: RunningServer, branch: str) -> None:
    told = post(server, "mutate", {"query": DROP, "params": {"name": "Ada"}, "branch": branch}).json()
    assert (told["affected_nodes"], told["affected_edges"]) == (1, 1)


@pytest.mark.parametrize(
    ("body", "status", "fragment"),
    [
        ({"query": EVERYBODY}, 400, ""),
        ({"query": "nonsense"}, 400, ""),
        ({"query": f"{ADD}\n{DROP}"}, 400, "multiple queries"),
        ({"query": ADD, "params": {"age": 1}}, 400, "parameter 'name' not provided"),
        ({"query": ADD, "params": {"name": 5}}, 400, "param 'name':"),
        ({"query": ADD, "params": {"name": "x", "age": 151}}, 400, "@range"),
        ({"query": TWO_KINDS, "params": {"name": "x"}}, 400, ""),
        ({"query": ADD, "params": {"name": "x"}, "branch": "none"}, 404, "branch 'none' not found"),
        ({"query": ADD, "params": {"name": "x"}, "branch": ""}, 400, "blank"),
        ({"name": "add"}, 422, "query"),
        ({"query": ADD, "query_source": ADD}, 422, "not both"),
        ({"query": ADD, "params": "x"}, 400, "params must be a JSON object"),
    ],
)
@pytest.mark.parametrize("path", ["mutate", "change"])
def test_mutations_that_can_not_run(
    server: RunningServer, graph: Graph, path: str, body: dict[str, Any], status: int, fragment: str
) -> None:
    before = graph.resolve_snapshot("main")
    answer = post(server, path, body)
    assert answer.status_code == status, answer.text
    assert fragment in answer.json()["error"]
    assert graph.resolve_snapshot("main") == before


# Preconditions


@pytest.mark.parametrize("path", ["mutate/if-graph-commit", "queries/add/if-graph-commit"])
def test_a_write_at_an_expected_commit(server: RunningServer, graph: Graph, branch: str, path: str) -> None:
    body = {"params": {"name": "Once"}, "branch": branch, **({"query": ADD} if path.startswith("mutate") else {})}
    head = graph.resolve_snapshot(branch)
    written = post(server, path, body, {IF: head})
    assert written.status_code == 200
    again = post(server, path, body, {IF: head})
    assert again.status_code == 412
    told = again.json()
    assert told["precondition_failure"] == {"expected": head, "actual": graph.resolve_snapshot(branch)}
    assert "code" not in told
    assert graph.resolve_snapshot(branch) == written.json()["commit"]["graph_commit_id"]


@pytest.mark.parametrize("value", [None, "", "*", "W/abc", '"abc"', "a,b", 'W/"abc"', "a,"])
@pytest.mark.parametrize("path", ["mutate/if-graph-commit", "queries/add/if-graph-commit"])
def test_a_precondition_is_one_commit_id(server: RunningServer, path: str, value: str | None) -> None:
    headers = {} if value is None else {IF: value}
    answer = post(server, path, {"query": ADD, "params": {"name": "x"}}, headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert IF in answer.json()["error"]


def test_a_precondition_is_given_once(server: RunningServer, graph: Graph) -> None:
    head = graph.resolve_snapshot("main")
    answer = post(server, "mutate/if-graph-commit", {"query": ADD, "params": {"name": "x"}}, [(IF, head), (IF, head)])
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "successor"),
    [
        ("mutate", {"query": ADD, "params": {"name": "x"}}, "mutate/if-graph-commit"),
        ("change", {"query": ADD, "params": {"name": "x"}}, "mutate/if-graph-commit"),
        ("queries/add", {"params": {"name": "x"}}, "queries/add/if-graph-commit"),
        ("queries/everybody", {}, "queries/everybody/if-graph-commit"),
    ],
)
def test_a_precondition_is_never_ignored(
    server: RunningServer, graph: Graph, path: str, body: dict[str, Any], successor: str
) -> None:
    answer = post(server, path, body, {IF: graph.resolve_snapshot("main")})
    assert answer.status_code == 400
    assert successor in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("load", {"data": person("Unconditional")}),
        ("ingest", {"data": person("Unconditional")}),
        ("branches", {"name": "unconditional"}),
        ("branches/merge", {"source": "main", "target": "main"}),
        ("schema/apply", {"schema_source": SCHEMA}),
    ],
)
def test_a_write_without_preconditions_refuses_them(
    server: RunningServer, graph: Graph, path: str, body: dict[str, Any]
) -> None:
    answer = post(server, path, body, {IF: graph.resolve_snapshot("main")})
    assert answer.status_code == 400
    assert f"{IF} is not checked here; leave it out" in answer.json()["error"]


def test_of_many_writes_at_one_commit_one_happens(server: RunningServer, graph: Graph, branch: str) -> None:
    head = graph.resolve_snapshot(branch)
    statuses: list[int] = []

    def write(number: int) -> None:
        answer = httpx.post(
            f"{server.graph()}/mutate/if-graph-commit", json=add(f"P{number}", branch), headers={IF: head}, timeout=120
        )
        statuses.append(answer.status_code)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + [412] * 5
    assert len(names(graph, branch)) == 4


def test_a_branch_without_commits_of_its_own_has_the_inherited_head(
    server: RunningServer, graph: Graph, branch: str
) -> None:
    headers = {IF: graph.resolve_snapshot("main")}
    assert post(server, "mutate/if-graph-commit", add("Inherited", branch), headers).status_code == 200


# Stored queries


def test_a_stored_read_and_a_stored_mutation(server: RunningServer, branch: str) -> None:
    read = post(server, "queries/everybody", {"branch": branch}).json()
    written = post(server, "queries/add", {"params": {"name": "Stored"}, "branch": branch}).json()
    assert (read["query_name"], read["row_count"]) == ("everybody", 3)
    assert (written["query_name"], written["affected_nodes"]) == ("add", 1)


@pytest.mark.parametrize("content", [b"", b"null", b"{}", b" {} "])
def test_a_stored_query_needs_no_body_and_no_content_type(server: RunningServer, content: bytes) -> None:
    assert server.client.post("/graphs/kb/queries/everybody", content=content).status_code == 200


@pytest.mark.parametrize(
    ("name", "body", "status", "fragment"),
    [
        ("everybody", b"{", 400, "invalid stored-query invocation body"),
        ("everybody", b"[]", 400, "invalid stored-query invocation body"),
        ("everybody", b'{"expect_mutation": "yes"}', 400, "invalid stored-query invocation body"),
        ("everybody", b'{"params": []}', 400, "params must be a JSON object"),
        ("nobody", b"", 404, "stored query not found"),
        ("everybody", b'{"expect_mutation": true}', 400, "'everybody' is a read — use omnigraph query everybody"),
        ("add", b'{"expect_mutation": false}', 400, "'add' is a mutation — use omnigraph mutate add"),
        ("add", b'{"params": {"name": "x"}, "snapshot": "01H"}', 400, "snapshot"),
        ("add", b'{"params": {"name": "x"}, "version": 1}', 400, "mutation"),
        ("everybody", b'{"branch": "main", "snapshot": "x"}', 400, "branch or snapshot, not both"),
        ("add", b"{}", 400, "parameter 'name' not provided"),
    ],
)
def test_stored_queries_that_can_not_run(
    server: RunningServer, name: str, body: bytes, status: int, fragment: str
) -> None:
    answer = server.client.post(f"/graphs/kb/queries/{name}", content=body)
    assert answer.status_code == status
    assert fragment in answer.json()["error"]


def test_a_stored_read_has_no_precondition(server: RunningServer, graph: Graph) -> None:
    answer = post(server, "queries/everybody/if-graph-commit", {}, {IF: graph.resolve_snapshot("main")})
    assert (answer.status_code, "read" in answer.json()["error"]) == (400, True)


# Idempotency

KEYED: list[tuple[str, dict[str, Any]]] = [
    ("mutate", {"query": ADD, "params": {"name": "K"}}),
    ("queries/add", {"params": {"name": "K"}}),
    ("load", {"data": person("K")}),
]


@pytest.mark.parametrize(("path", "body"), KEYED)
def test_a_repeated_write_gets_the_first_receipt(
    server: RunningServer, graph: Graph, branch: str, path: str, body: dict[str, Any]
) -> None:
    key = {"Idempotency-Key": f"{path}-{branch}"}
    first = post(server, path, {**body, "branch": branch}, key)
    again = post(server, path, {**body, "branch": branch}, key)
    assert "replayed" not in first.json()
    assert again.json() == {**first.json(), "replayed": True}
    assert again.headers["omnigraph-commit"] == first.headers["omnigraph-commit"] == graph.resolve_snapshot(branch)


@pytest.mark.parametrize(("path", "body"), KEYED)
def test_a_repeat_is_answered_when_its_branch_was_deleted(
    server: RunningServer, graph: Graph, branch: str, path: str, body: dict[str, Any]
) -> None:
    graph.create_branch(f"{branch}-gone", source=branch)
    asked, key = {**body, "branch": f"{branch}-gone"}, {"Idempotency-Key": f"gone-{path}-{branch}"}
    first = post(server, path, asked, key)
    assert first.status_code == 200, first.text
    graph.merge(f"{branch}-gone", branch, delete_branch=True)
    assert post(server, path, asked, key).json() == {**first.json(), "replayed": True}
    other = post(server, path, asked, {"Idempotency-Key": f"new-{path}-{branch}"})
    assert (other.status_code, other.json()["type"]) == (404, "branch_not_found")


@pytest.mark.parametrize(("path", "body"), KEYED)
def test_a_key_belongs_to_one_request(server: RunningServer, branch: str, path: str, body: dict[str, Any]) -> None:
    key = {"Idempotency-Key": f"other-{path}-{branch}"}
    other = json.loads(json.dumps(body).replace("K", "L"))
    assert post(server, path, {**body, "branch": branch}, key).status_code == 200
    refused = post(server, path, {**other, "branch": branch}, key)
    assert (refused.status_code, refused.json()["type"]) == (409, "idempotency_key_reused")


WITHOUT_SCORE = SCHEMA.replace("  score: F64?\n", "")


def test_a_repeat_is_answered_whatever_became_of_the_schema(server: RunningServer, graph: Graph, branch: str) -> None:
    scored = "query scored($name: String) { insert Person { name: $name, score: 3.0 } }"
    asked: list[tuple[str, dict[str, Any]]] = [
        ("mutate", {"query": scored, "params": {"name": "K"}}),
        ("load", {"data": person("K", score=4)}),
        ("load", {"data": person("K", score=5), "grammar": "lenient"}),
        ("ingest", {"data": person("K", score=6)}),
        ("schema/apply", {"schema_source": SCHEMA + "node Extra { name: String @key }"}),
    ]

    def write(number: int) -> httpx.Response:
        path, body = asked[number]
        headers = {"Idempotency-Key": f"repeat-{number}-{branch}"}
        answer = post(server, path, {**body, "branch": branch}, headers)
        assert answer.status_code == 200, answer.text
        return answer

    def load_lines() -> list[dict[str, Any]]:
        bodies = {"ndjson?": person("K", score=7), "rows?type=Person&": json.dumps({"name": "K", "score": 8})}
        return [
            server.client.post(
                f"/graphs/kb/load/{path}branch={branch}",
                content=body,
                headers={**NDJSON, "Idempotency-Key": f"{path}-{branch}"},
            ).json()
            for path, body in bodies.items()
        ]

    first, lines = [write(number).json() for number in range(len(asked))], load_lines()
    graph.schema.apply(WITHOUT_SCORE.replace("edge Knows:", "edge Likes:"), branch=branch, allow_data_loss=True)
    head = graph.resolve_snapshot(branch)
    assert [write(number).json() for number in range(len(asked))] == [{**told, "replayed": True} for told in first]
    assert load_lines() == [{**told, "replayed": True} for told in lines]
    assert graph.resolve_snapshot(branch) == head


def test_a_repeat_is_answered_when_the_stored_query_is_gone(graph: Graph, branch: str) -> None:
    body, key = {"params": {"name": "Gone", "age": 3}, "branch": branch}, {"Idempotency-Key": f"gone-{branch}"}
    conditional = {"Idempotency-Key": f"if-{branch}", IF: graph.resolve_snapshot(branch)}
    with running({"kb": graph}, queries=f"{ADD}\n{AGE}") as before:
        told = post(before, "queries/add/if-graph-commit", body, conditional).json()
        aged = post(before, "queries/set_age", body, key).json()
    with running({"kb": graph}, queries=ADD.replace("query add", "query insert_one")) as after:
        assert post(after, "queries/add/if-graph-commit", body, conditional).json() == {**told, "replayed": True}
        assert post(after, "queries/set_age", body, key).json() == {**aged, "replayed": True}
        others = [
            post(after, "queries/set_age", {**body, "params": {"name": "Other"}}, key),
            post(after, "queries/set_age", {**body, "branch": "none"}, key),
            post(after, "queries/set_age", body, {"Idempotency-Key": "unused"}),
            post(after, "queries/set_age", body),
        ]
        assert [(answer.status_code, answer.json()["error"]) for answer in others] == [
            (404, "stored query not found")
        ] * 4
    changed = ADD.replace("query add", "query set_age").replace("age: $age", "score: 1.0")
    with running({"kb": graph}, queries=changed) as after:
        assert post(after, "queries/set_age", body, key).json() == {**aged, "replayed": True}, "another text"


def test_lines_are_loaded_once(server: RunningServer, graph: Graph, branch: str) -> None:
    headers = {**NDJSON, "Idempotency-Key": f"lines-{branch}"}
    url = f"/graphs/kb/load/ndjson?branch={branch}"
    first, again = (server.client.post(url, content=person("Line"), headers=headers).json() for _ in range(2))
    assert again == {**first, "replayed": True}


def test_a_merge_is_repeated(server: RunningServer, graph: Graph, branch: str) -> None:
    graph.load(person("Merged"), mode="merge", branch=branch)
    graph.create_branch(f"{branch}-target", source="main")
    body, key = {"source": branch, "target": f"{branch}-target"}, {"Idempotency-Key": f"merge-{branch}"}
    first, again = (post(server, "branches/merge", body, key) for _ in range(2))
    assert (first.json()["outcome"], again.json()) == ("fast_forward", {**first.json(), "replayed": True})


def test_branches_are_made_and_deleted_once(server: RunningServer, graph: Graph, branch: str) -> None:
    name = f"{branch}-keyed"
    made, ended = ({"Idempotency-Key": f"{verb}-{name}"} for verb in ("made", "ended"))
    url = f"/graphs/kb/branches/{name}"
    first, again = (post(server, "branches", {"name": f" {name} ", "from": branch}, made) for _ in range(2))
    assert first.json() == {"uri": "/graphs/kb", "from": branch, "name": name, "actor_id": None}
    assert (again.status_code, again.json()) == (200, {**first.json(), "replayed": True})
    others = [
        post(server, "branches", {"name": name}, made),
        server.client.delete(url, headers=made),
    ]
    assert {(other.status_code, other.json()["type"]) for other in others} == {(409, "idempotency_key_reused")}
    taken = post(server, "branches", {"name": name, "from": branch}, {"Idempotency-Key": "another"})
    assert (taken.status_code, taken.json()["type"]) == (409, "conflict")

    first, again = (server.client.delete(url, headers=ended) for _ in range(2))
    assert first.json() == {"uri": "/graphs/kb", "name": name, "actor_id": None}
    assert (again.status_code, again.json()) == (200, {**first.json(), "replayed": True})
    assert server.client.delete(url, headers={"Idempotency-Key": "another"}).status_code == 404
    assert post(server, "branches", {"name": name, "from": branch}, made).json()["replayed"] is True
    assert name not in graph.list_branches(), "a repeat does not bring it back"


def test_a_schema_is_applied_once(server: RunningServer, graph: Graph, branch: str) -> None:
    wider = SCHEMA.replace("node Note { text: String }", "node Note { text: String  author: String? }")
    body, key = {"schema_source": wider, "branch": branch}, {"Idempotency-Key": f"schema-{branch}"}
    first = post(server, "schema/apply", body, key)
    graph.load(person("Later"), mode="merge", branch=branch)
    head = graph.resolve_snapshot(branch)
    again = post(server, "schema/apply", body, key)
    assert again.json() == {**first.json(), "replayed": True}
    assert again.headers["omnigraph-commit"] == first.headers["omnigraph-commit"] != head
    refused = post(server, "schema/apply", {**body, "schema_source": SCHEMA}, key)
    assert (refused.status_code, refused.json()["type"]) == (409, "idempotency_key_reused")
    assert graph.resolve_snapshot(branch) == head


@pytest.mark.parametrize("verb", ["create", "delete"])
def test_of_many_requests_about_a_branch_with_one_key_one_is_carried_out(
    server: RunningServer, graph: Graph, branch: str, verb: str
) -> None:
    name, headers = f"{branch}-raced", {"Idempotency-Key": f"{verb}-{branch}"}
    if verb == "delete":
        graph.create_branch(name)
    answers: list[httpx.Response] = []

    def ask() -> None:
        if verb == "delete":
            answers.append(httpx.delete(f"{server.graph()}/branches/{name}", headers=headers, timeout=120))
        else:
            answers.append(httpx.post(f"{server.graph()}/branches", json={"name": name}, headers=headers, timeout=120))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 6
    assert sorted("replayed" in answer.json() for answer in answers) == [False] + [True] * 5
    assert (name in graph.list_branches()) == (verb == "create")


@pytest.mark.parametrize("key", ["", "x" * 257, "a\tb"])
def test_keys_that_are_none(server: RunningServer, key: str) -> None:
    answer = post(server, "mutate", add("x", "main"), {"Idempotency-Key": key.encode()})
    assert (answer.status_code, "Idempotency-Key" in answer.json()["error"]) == (400, True)


# Loads


LENIENT_LOADS: list[tuple[str, dict[str, str]]] = [("load", {"grammar": "lenient"}), ("ingest", {})]
STRICT_LOADS: list[tuple[str, dict[str, str]]] = [("load", {}), ("ingest", {"grammar": "strict"})]


@pytest.mark.parametrize(("path", "grammar"), [*STRICT_LOADS, *LENIENT_LOADS])
def test_a_whole_load(server: RunningServer, graph: Graph, branch: str, path: str, grammar: dict[str, str]) -> None:
    lenient = (path, grammar) in LENIENT_LOADS
    first = f"{person('A1', unknown=1, age='old')} {person('A2')}" if lenient else f"{person('A1')}\n{person('A2')}"
    data = f"{first}\n\n{knows('A1', 'A2')}"
    told = post(server, path, {"data": data, "branch": branch, "from": "main", **grammar}).json()
    commit = told.pop("commit")
    lost = {"values_nulled": 1, "values_dropped": 1} if lenient else {}
    no_others = {"updated": 0, "unchanged": 0, "deleted": 0}
    assert told == {
        **lost,
        "uri": "/graphs/kb",
        "branch": branch,
        "base_branch": "main",
        "branch_created": False,
        "mode": "merge",
        "nodes": [{"name": "Person", "entities_loaded": 2, "inserted": 2, **no_others}],
        "edges": [{"name": "Knows", "entities_loaded": 1, "inserted": 1, **no_others}],
        "total_entities": 3,
        "inserted": 3,
        **no_others,
        "actor_id": None,
    }
    assert commit["graph_commit_id"] == graph.resolve_snapshot(branch)


@pytest.mark.parametrize(("path", "grammar"), STRICT_LOADS)
@pytest.mark.parametrize(
    ("data", "mentions"),
    [
        (person("L1", age="old"), "line 1: node:Person: property 'age'"),
        (person("L1", agee=1), "line 1: node:Person: unknown"),
        (f"{person('L1')}\nnot a record", "line 2: invalid strict JSON"),
        ("not a record", "line 1: invalid strict JSON"),
    ],
)
def test_a_strict_load_refuses_what_it_would_lose(
    server: RunningServer, graph: Graph, branch: str, path: str, grammar: dict[str, str], data: str, mentions: str
) -> None:
    head = graph.resolve_snapshot(branch)
    refused = post(server, path, {"data": data, "branch": branch, **grammar})
    assert (refused.status_code, refused.json()["error"][: len(mentions)]) == (400, mentions)
    assert graph.resolve_snapshot(branch) == head


def test_a_grammar_that_does_not_exist(server: RunningServer, branch: str) -> None:
    refused = post(server, "load", {"data": person("L1"), "branch": branch, "grammar": "loose"})
    assert (refused.status_code, "grammar" in refused.json()["error"]) == (422, True)


def test_a_load_by_lines(server: RunningServer, graph: Graph, branch: str) -> None:
    lines = f"{person('A1')}\r\n\n  \n{person('A2')}\n{knows('A1', 'A2')}"
    answer = server.client.post(
        f"/graphs/kb/load/ndjson?branch={branch}&mode=append",
        content=lines,
        headers={"Content-Type": "Application/X-NDJSON; charset=utf-8"},
    )
    told = answer.json()
    assert (told["mode"], told["total_entities"], told["base_branch"]) == ("append", 3, None)
    assert "uri" not in told
    assert names(graph, branch) >= {"A1", "A2"}


def test_a_load_of_no_records_makes_no_commit(server: RunningServer, graph: Graph, branch: str) -> None:
    head = graph.resolve_snapshot(branch)
    before = server.recorder.count(server.recorder.metrics.commits)
    answers = [
        post(server, "load", {"data": "\n", "branch": branch}),
        post(server, "ingest", {"data": "", "branch": branch}),
        server.client.post(f"/graphs/kb/load/ndjson?branch={branch}", content="", headers=NDJSON),
        server.client.post(f"/graphs/kb/load/rows?type=Person&branch={branch}", content="", headers=NDJSON),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["commit"], answer.json()["total_entities"]) == (200, None, 0)
        assert "omnigraph-commit" not in answer.headers
    assert graph.resolve_snapshot(branch) == head
    assert server.recorder.count(server.recorder.metrics.commits) == before


@pytest.mark.parametrize("path", ["load", "load/ndjson"])
def test_a_load_makes_its_branch_with_its_commit_or_not_at_all(
    server: RunningServer, graph: Graph, branch: str, path: str
) -> None:
    new = f"{branch}-new"

    def load(data: str) -> httpx.Response:
        if path == "load":
            return post(server, path, {"data": data, "branch": new, "from": " main "})
        return server.client.post(f"/graphs/kb/load/ndjson?branch={new}&from=%20main%20", content=data, headers=NDJSON)

    refused = load(person("X", age=-1))
    assert refused.status_code == 400
    assert new not in graph.list_branches()
    told = load(person("X")).json()
    assert (told["branch_created"], told["base_branch"], told["branch"]) == (True, "main", new)
    assert "X" in names(graph, new)


@pytest.mark.parametrize("path", ["load", "ingest", "load/ndjson"])
def test_a_load_into_a_missing_branch(server: RunningServer, path: str) -> None:
    if path == "load/ndjson":
        answer = server.client.post(f"/graphs/kb/{path}?branch=none", content=person("X"), headers=NDJSON)
    else:
        answer = post(server, path, {"data": person("X"), "branch": "none"})
    assert answer.status_code == 404
    assert answer.json()["error"] == "branch 'none' not found; pass `from` to create it"


def test_a_load_from_a_missing_base(server: RunningServer, graph: Graph) -> None:
    answer = post(server, "load", {"data": person("X"), "branch": "from-none", "from": "none"})
    assert answer.status_code == 404
    assert "from-none" not in graph.list_branches()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"data": person("Ada"), "mode": "append"}, 409),
        ({"data": person("X"), "mode": "replace"}, 422),
        ({"data": person("X"), "branch": "a b", "from": "main"}, 400),
        ({"data": "{"}, 400),
        ({"data": knows("Ada", "nobody")}, 400),
        ({"data": person("X", email="e") + person("Y", email="e")}, 400),
        ({"data": "".join(knows("Ada", name) for name in ("Ada", "Cy", "Cy", "Cy"))}, 400),
    ],
)
def test_loads_that_are_refused_whole(server: RunningServer, graph: Graph, body: dict[str, Any], status: int) -> None:
    before = graph.resolve_snapshot("main")
    answer = post(server, "load", body)
    assert answer.status_code == status, answer.text
    assert graph.resolve_snapshot("main") == before
    if status == 409:
        assert answer.json()["key_conflict"] == {"entity_kind": "node", "type_name": "Person", "entity_id": "Ada"}


RESERVED = [
    *("_tombstone", "_rowid", "_rowaddr", "_rowoffset"),
    *("_row_created_at_version", "_row_last_updated_at_version"),
]
GRAMMAR = [
    ("{", "invalid strict JSON"),
    ("[1]", ""),
    ("nonsense", "invalid strict JSON"),
    ('{"type":"Person","data":{"name":"x"}} {"type":"Note"}', "invalid strict JSON"),
    ('{"type":"Person","data":{"name":"x","age":NaN}}', "invalid strict JSON"),
    ('{"type":"Person","type":"Person","data":{"name":"x"}}', "duplicate JSON member"),
    ('{"type":"Person","data":{"name":"x","name":"y"}}', "duplicate JSON member"),
    ('{"type":"Person","data":{"name":"x","tags":[{"a":1,"a":2}]}}', "duplicate JSON member"),
    ('{"data":{"name":"x"}}', "exactly one of 'type' or 'edge'"),
    ('{"type":"Person","edge":"Knows","data":{}}', "exactly one of 'type' or 'edge'"),
    ('{"type":"Person","data":{"name":"x"},"extra":1}', "unknown top-level graph batch field"),
    ('{"type":"Person","from":"Ada","data":{"name":"x"}}', "unknown top-level graph batch field"),
    ('{"type":5,"data":{}}', "must be a string"),
    ('{"edge":[],"from":"Ada","to":"Cy"}', "must be a string"),
    ('{"edge":"Knows","from":1,"to":"Cy"}', "must be a string"),
    ('{"edge":"Knows","from":"Ada"}', ""),
    ('{"type":"Person","data":[]}', "must be an object"),
    ('{"type":"Nothing","data":{}}', "Nothing"),
    ('{"type":"Person","data":{"name":"x","agee":1}}', "unknown input field"),
    *((json.dumps({"type": "Person", "data": {"name": "x", name: 1}}), "reserved physical state") for name in RESERVED),
    ('{"edge":"Knows","from":"Ada","to":"Cy","data":{"src":"Ada"}}', "reserved structural state"),
    ('{"edge":"Knows","from":"Ada","to":"Cy","data":{"dst":"Ada"}}', "reserved structural state"),
    ('{"type":"Person","data":{"name":"x","id":5}}', "must be a string"),
    ('{"type":"Person","data":{"name":"x","id":"y"}}', "canonical"),
    ('{"type":"Person","data":{"age":1}}', "name"),
    ('{"type":"Person","data":{"name":"x","age":"old"}}', "age"),
]


@pytest.mark.parametrize(("line", "fragment"), GRAMMAR)
def test_the_strict_grammar_names_the_line(server: RunningServer, graph: Graph, line: str, fragment: str) -> None:
    before = graph.resolve_snapshot("main")
    content = f"{person('Fine')}\n\n{line}\n{person('Later')}\n"
    answer = server.client.post("/graphs/kb/load/ndjson", content=content, headers=NDJSON)
    told = answer.json()
    assert (answer.status_code, told["code"]) == (400, "bad_request"), told
    assert "line 3" in told["error"]
    assert fragment in told["error"]
    assert graph.resolve_snapshot("main") == before


@pytest.mark.parametrize("content", [b"\xff\xfe", person("x").encode() + b"\n\xe9\n"])
def test_lines_are_utf8(server: RunningServer, content: bytes) -> None:
    assert server.client.post("/graphs/kb/load/ndjson", content=content, headers=NDJSON).status_code == 400


@pytest.mark.parametrize("query", ["mode=replace", "branch=", "branch=main&branch=main", "from=%20&branch=x"])
def test_bad_parameters_of_a_load(server: RunningServer, query: str) -> None:
    answer = server.client.post(f"/graphs/kb/load/ndjson?{query}", content=b"", headers=NDJSON)
    assert answer.status_code == 400


# Branches


def test_a_branch_is_created_and_deleted(server: RunningServer, graph: Graph) -> None:
    created = post(server, "branches", {"name": " made ", "from": "main"})
    assert created.json() == {"uri": "/graphs/kb", "from": "main", "name": "made", "actor_id": None}
    assert "made" in graph.list_branches()
    deleted = server.client.delete("/graphs/kb/branches/made")
    assert deleted.json() == {"uri": "/graphs/kb", "name": "made", "actor_id": None}
    assert "made" not in graph.list_branches()


def test_a_branch_from_a_past_commit(server: RunningServer, graph: Graph) -> None:
    first = graph.commits().commits[-1].id
    assert post(server, "branches", {"name": "past", "from": first}).status_code == 200
    assert names(graph, "past") == set()


@pytest.mark.parametrize(
    ("name", "source", "status"),
    [
        ("main", None, 400),
        ("", None, 400),
        ("a b", None, 400),
        ("a//b", None, 400),
        ("../up", None, 400),
        ("__internal", None, 400),
        ("new", "none", 404),
        ("taken", None, 409),
        ("taken/below", None, 409),
    ],
)
def test_branches_that_can_not_be(
    server: RunningServer, graph: Graph, name: str, source: str | None, status: int
) -> None:
    if "taken" not in graph.list_branches():
        graph.create_branch("taken")
    answer = post(server, "branches", {"name": name, "from": source})
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(("name", "status"), [("main", 400), ("none", 404), ("%20main%20", 400)])
def test_branches_that_can_not_be_deleted(server: RunningServer, name: str, status: int) -> None:
    assert server.client.delete(f"/graphs/kb/branches/{name}").status_code == status


def test_a_merge(server: RunningServer, graph: Graph, branch: str) -> None:
    target = f"{branch}-target"
    graph.create_branch(target)
    nothing = post(server, "branches/merge", {"source": branch, "target": target})
    graph.load(person("Forward"), mode="merge", branch=branch)
    forward = post(server, "branches/merge", {"source": f" {branch} ", "target": target})
    graph.load(person("Source"), mode="merge", branch=branch)
    graph.load(person("Target"), mode="merge", branch=target)
    merged = post(server, "branches/merge", {"source": branch, "target": target, "delete_branch": True})
    assert nothing.json() == {
        "source": branch,
        "target": target,
        "outcome": "already_up_to_date",
        "actor_id": None,
    }
    assert forward.json()["outcome"] == "fast_forward"
    assert (merged.json()["outcome"], merged.json()["branch_deleted"]) == ("merged", True)
    assert branch not in graph.list_branches()
    assert names(graph, target) >= {"Forward", "Source", "Target"}


def test_a_merge_with_conflicts_changes_nothing(server: RunningServer, graph: Graph, branch: str) -> None:
    target = f"{branch}-target"
    graph.create_branch(target)
    for age, side in enumerate((branch, target), 10):
        graph.load("\n".join(person(f"C{n}", age=age) for n in range(5)), mode="merge", branch=side)
    before = graph.resolve_snapshot(target)
    answer = post(server, "branches/merge", {"source": branch, "target": target, "delete_branch": True})
    told = answer.json()
    assert (answer.status_code, told["code"]) == (409, "conflict")
    assert len(told["merge_conflicts"]) == 5
    first = told["merge_conflicts"][0]
    assert (first["entity_kind"], first["type_name"], first["kind"]) == ("node", "Person", "divergent_insert")
    assert first["properties"] == [{"property": "age", "base": None, "ours": 11, "theirs": 10}]
    assert "; and 2 more" in told["error"]
    assert graph.resolve_snapshot(target) == before
    assert branch in graph.list_branches()


def test_conflicts_are_decided_beforehand(server: RunningServer, graph: Graph, branch: str) -> None:
    target = f"{branch}-target"
    graph.create_branch(target)
    for age, side in enumerate((branch, target), 10):
        graph.load(person("C", age=age), mode="merge", branch=side)
    body = {"source": branch, "target": target, "resolutions": {"kinds": {"divergent_insert": "theirs"}}}
    assert post(server, "branches/merge", body).json()["outcome"] == "merged"
    assert {row["name"]: row["age"] for row in graph.query(EVERYBODY, branch=target)}["C"] == 10


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"source": "none"}, 404),
        ({"source": "main", "target": "none"}, 404),
        ({"source": " "}, 400),
        ({"target": "main"}, 422),
        ({"source": "main", "delete_branch": None}, 422),
        ({"source": "main", "resolutions": {"kinds": {"sorcery": "ours"}}}, 422),
    ],
)
def test_merges_that_can_not_be(server: RunningServer, body: dict[str, Any], status: int) -> None:
    assert post(server, "branches/merge", body).status_code == status


# Schemas


def test_a_schema_is_applied(server: RunningServer, tmp_path: Any) -> None:
    with people(tmp_path / "own") as graph, running({"kb": graph}) as own:
        wider = SCHEMA.replace("node Note { text: String }", "node Note { text: String  author: String? }")
        applied = post(own, "schema/apply", {"schema_source": wider})
        broken = post(own, "schema/apply", {"schema_source": "node {"})
        unsupported = post(own, "schema/apply", {"schema_source": wider.replace("age: I32?", "age: String?")})
        assert applied.status_code == 200, applied.text
        assert applied.json()["applied"] is True
        assert own.client.get("/graphs/kb/schema").json() == {"schema_source": wider}
        assert (broken.status_code, unsupported.status_code) == (400, 400)


def test_the_schema_of_a_cluster_is_applied_by_the_cluster(graph: Graph) -> None:
    rules = Rules({"ana": EVERYTHING, "rob": ["read"]})
    with running(
        {"kb": graph}, tokens={"ana": "t1", "rob": "t2"}, gates={"kb": rules}, owned_by_cluster=True
    ) as server:
        body = {"schema_source": SCHEMA}
        owned = post(server, "schema/apply", body, bearer("t1"))
        denied = post(server, "schema/apply", body, bearer("t2"))
    assert owned.status_code == 409
    assert "omnigraph cluster apply" in owned.json()["error"]
    assert denied.status_code == 403


# Who may write

WRITES: list[tuple[str, str, Any, str]] = [
    ("POST", "mutate", {"query": ADD, "params": {"name": "x"}}, "change"),
    ("POST", "change", {"query": ADD, "params": {"name": "x"}}, "change"),
    ("POST", "mutate/if-graph-commit", {"query": ADD, "params": {"name": "x"}}, "change"),
    ("POST", "load", {"data": person("x")}, "change"),
    ("POST", "ingest", {"data": person("x")}, "change"),
    ("POST", "schema/apply", {"schema_source": SCHEMA}, "schema_apply"),
    ("POST", "branches", {"name": "x"}, "branch_create"),
    ("DELETE", "branches/x", None, "branch_delete"),
    ("POST", "branches/merge", {"source": "main"}, "branch_merge"),
    ("POST", "export", {}, "export"),
    ("POST", "changes/baseline", {}, "export"),
]


@pytest.fixture(scope="module")
def denying(graph: Graph) -> Iterator[RunningServer]:
    with running({"kb": graph}, tokens={"ana": "t"}, queries=QUERIES) as server:
        yield server


@pytest.mark.parametrize(("method", "path", "body", "action"), WRITES)
def test_without_rules_a_token_only_reads(
    denying: RunningServer, graph: Graph, method: str, path: str, body: Any, action: str
) -> None:
    before = graph.list_branches(), graph.resolve_snapshot("main")
    headers = {**bearer("t"), **({IF: "01H"} if path.endswith("commit") else {})}
    answer = denying.client.request(method, f"/graphs/kb/{path}", json=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert "default-deny" in answer.json()["error"]
    assert f"policy denied action '{action}'" in answer.json()["error"]
    assert (graph.list_branches(), graph.resolve_snapshot("main")) == before


def test_whoever_may_not_invoke_learns_nothing_of_the_queries(denying: RunningServer) -> None:
    answers = [
        denying.client.post(f"/graphs/kb/queries/{name}{form}", headers={**bearer("t"), IF: "01H"})
        for name in ("everybody", "add", "nobody")
        for form in ("", "/if-graph-commit")
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].json()["error"] == "stored query not found"


def test_invoking_needs_the_right_to_do_it_too(graph: Graph, branch: str) -> None:
    rules = Rules({"ana": ["invoke_query", "read"], "rob": ["invoke_query", f"change@{branch}"]})
    with running({"kb": graph}, tokens={"ana": "t1", "rob": "t2"}, gates={"kb": rules}, queries=QUERIES) as server:
        body = {"params": {"name": "x"}, "branch": branch}
        statuses = {
            "ana reads": post(server, "queries/everybody", {}, bearer("t1")).status_code,
            "ana writes": post(server, "queries/add", body, bearer("t1")).status_code,
            "rob reads": post(server, "queries/everybody", {}, bearer("t2")).status_code,
            "rob writes": post(server, "queries/add", body, bearer("t2")).status_code,
            "rob writes to main": post(server, "queries/add", {**body, "branch": "main"}, bearer("t2")).status_code,
        }
    assert list(statuses.values()) == [200, 403, 403, 200, 403], statuses


def test_what_a_load_that_makes_a_branch_asks_for(graph: Graph, branch: str) -> None:
    new = f"{branch}-asked"
    rules = Rules({"ana": [f"branch_create>{new}", f"change@{new}"], "rob": [f"change@{new}"]})
    body = {"data": person("x"), "branch": f" {new} ", "from": " main "}
    with running({"kb": graph}, tokens={"ana": "t1", "rob": "t2"}, gates={"kb": rules}) as server:
        denied = post(server, "load", body, bearer("t2"))
        server.recorder.decisions.clear()
        allowed = post(server, "load", body, bearer("t1"))
        asked = [(r.action, r.branch, r.target_branch) for _, r, _ in server.recorder.decisions]
        existing = post(server, "load", body, bearer("t2"))
    assert (denied.status_code, allowed.status_code, existing.status_code) == (403, 200, 200)
    assert asked == [("branch_create", "main", new), ("change", new, None)]
    assert (existing.json()["base_branch"], existing.json()["branch_created"]) == ("main", False)


def test_a_branch_that_is_deleted_meanwhile_is_not_made_again_without_leave(graph: Graph, branch: str) -> None:
    """Rob may change the branch and not make it; it is deleted after he was asked, while his body comes."""
    rules = Rules({"rob": [f"change@{branch}"]})
    with running({"kb": graph}, tokens={"rob": "t"}, gates={"kb": rules}) as server:

        def body() -> Iterator[bytes]:
            yield person("First").encode() + b"\n"
            while not server.recorder.decisions:
                yield b"\n"
            graph.delete_branch(branch)
            yield person("Last").encode() + b"\n"

        url = f"{server.graph()}/load/ndjson?branch={branch}&from=main"
        answer = httpx.post(url, content=body(), headers={**NDJSON, **bearer("t")}, timeout=120)
    assert (answer.status_code, branch in graph.list_branches()) == (404, False)


def test_a_merge_whose_deletion_is_denied_is_still_a_merge(graph: Graph, branch: str) -> None:
    graph.load(person("Kept"), mode="merge", branch=branch)
    graph.create_branch(f"{branch}-target")
    body = {"source": branch, "target": f"{branch}-target", "delete_branch": True}
    rules = Rules({"ana": ["branch_merge"]})
    with running({"kb": graph}, tokens={"ana": "t"}, gates={"kb": rules}) as server:
        told = post(server, "branches/merge", body, bearer("t")).json()
        asked = [(r.action, r.branch, r.target_branch) for _, r, _ in server.recorder.decisions]
    assert (told["outcome"], told["actor_id"], told["branch_deleted"]) == ("fast_forward", "ana", False)
    assert "policy denied action 'branch_delete'" in told["branch_delete_error"]
    assert asked == [("branch_merge", branch, f"{branch}-target"), ("branch_delete", None, branch)]
    assert branch in graph.list_branches()


def test_commits_and_conflicts_are_counted(graph: Graph, branch: str) -> None:
    with running({"kb": graph}) as server:
        key = {"Idempotency-Key": f"counted-{branch}"}
        for _ in range(2):
            post(server, "mutate", add("Counted", branch), key)
        post(server, "mutate/if-graph-commit", add("Never", branch), {IF: graph.commits().commits[-1].id})
        assert (
            server.recorder.count(server.recorder.metrics.commits),
            server.recorder.count(server.recorder.metrics.conflicts),
        ) == (1, 1)
