"""Reading over HTTP: queries in every format, the states they are of, and the listings."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.server.settings import ServerLimits
from tests.server.running import RunningServer, faultless, running
from tests.server.sample import ADD, BY_AGE, EVERYBODY, SCHEMA, Rules, bearer, ndjson, people, person

EVERY_TYPE = """query all() {
  match { $p: Person }
  return { $p.name as name, $p.age as age, $p.born as born, $p.seen as seen, $p.score as score, $p.tags as tags,
           $p.mood as mood }
  order { name asc }
}"""
ENDS = "query ends() { match { $a: Person  $a knows $b } return { $a.name as a, $b.name as b } }"
NOBODY = 'query nobody() { match { $p: Person { name: "nobody" } } return { $p.name as name } }'
COUNT = "query total() { match { $p: Person } return { count($p) as n } }"
CLOCK = "query clock() { match { $p: Person  $p.seen < %s } return { $p.name as name } }"
STORED = f"""query zeta($age: I32, $tags: [String]?, $v: Vector(2)?, $big: U64?, $day: Date?)
@description("By age") @instruction("Ask") {{
  match {{ $p: Person {{ age: $age }} }} return {{ $p.name as name }} order {{ name asc }}
}}
{ADD}
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with people(tmp_path_factory.mktemp("reads") / "kb") as graph:
        graph.create_branch("zeta")
        graph.create_branch("draft")
        graph.load(person("Drafted"), mode="merge", branch="draft")
        yield graph


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[RunningServer]:
    with faultless({"kb": graph}, queries=STORED) as server:
        yield server


@pytest.fixture(scope="module")
def history(graph: Graph) -> list[str]:
    """The commits of main, oldest first."""
    return [commit.id for commit in reversed(graph.commits().commits)]


def ask(server: RunningServer, body: dict[str, Any], accept: str | None = None, path: str = "query") -> httpx.Response:
    headers = {} if accept is None else {"Accept": accept}
    return server.client.post(f"/graphs/kb/{path}", json=body, headers=headers)


# Formats


@pytest.mark.parametrize(
    ("source", "params"),
    [
        (EVERY_TYPE, None),
        (EVERYBODY, {}),
        (BY_AGE, {"age": 36}),
        (BY_AGE, {"age": "36"}),
        (ENDS, None),
        (NOBODY, None),
        (COUNT, None),
    ],
)
def test_all_formats_and_the_engine_agree(
    server: RunningServer, graph: Graph, source: str, params: dict[str, Any] | None
) -> None:
    body = {"query": source, "params": params}
    expected = graph.query(source, params=params)
    whole = ask(server, body)
    lines = ask(server, body, "application/x-ndjson")
    table = ask(server, body, "text/csv")
    arrow = ask(server, body, "application/vnd.apache.arrow.stream")
    told = expected.read_output()
    assert whole.json()["rows"] == told.rows == ndjson(lines.content)
    assert whole.json()["columns"] == list(told.columns)
    assert pa.ipc.open_stream(arrow.content).read_all() == expected.to_arrow()
    header, *cells = csv.reader(io.StringIO(table.text, newline=""))
    assert header == list(told.columns)
    assert cells == [[as_text(row[column]) for column in header] for row in told.rows]
    assert [r.headers["content-type"] for r in (whole, lines, table, arrow)] == [
        "application/json",
        "application/x-ndjson",
        "text/csv",
        "application/vnd.apache.arrow.stream",
    ]


def as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_an_answer_to_a_query(server: RunningServer, graph: Graph) -> None:
    answer = ask(server, {"query": EVERYBODY})
    head = graph.resolve_snapshot("main")
    assert answer.json() == {
        "query_name": "everybody",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 3,
        "columns": ["name", "age"],
        "rows": [{"name": "Ada", "age": 36}, {"name": 'Bob, or "Rob"\nSmith', "age": 36}, {"name": "Cy", "age": None}],
        "graph_commit_id": head,
    }
    assert answer.headers["omnigraph-commit"] == head


def test_values_as_the_contract_writes_them(server: RunningServer) -> None:
    ada, bob, cy = ask(server, {"query": EVERY_TYPE}).json()["rows"]
    assert ada["born"] == "1815-12-10"
    assert ada["seen"] == "2024-05-06T07:08:09.010Z"
    assert ada["tags"] == ["a", 'b"c']
    assert bob["mood"] == [0.25, -1.0]
    assert (cy["score"], cy["mood"]) == (1e300, None)


def test_the_first_api_reads_the_same_without_the_commit(server: RunningServer) -> None:
    new, old = ask(server, {"query": BY_AGE, "params": {"age": 36}}).json(), None
    old = ask(server, {"query_source": BY_AGE, "query_name": "by_age", "params": {"age": 36}}, path="read").json()
    new.pop("graph_commit_id")
    assert old == new


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("*/*", "application/json"),
        ("text/html", "application/json"),
        ("text/*", "text/csv"),
        ("application/json;q=0.1, text/csv", "text/csv"),
        ("TEXT/CSV", "text/csv"),
        ("application/json, text/csv", "application/json"),
        ("text/csv;q=nonsense, application/x-ndjson;q=0.5", "application/x-ndjson"),
        (",;,", "application/json"),
    ],
)
def test_the_client_chooses_the_format(server: RunningServer, accept: str, chosen: str) -> None:
    assert ask(server, {"query": COUNT}, accept).headers["content-type"] == chosen


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson", "text/csv"])
@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        ({"query": "query"}, ""),
        ({"query": ""}, ""),
        ({"query": EVERYBODY.replace("age", "agee")}, "agee"),
        ({"query": EVERYBODY + "\n" + COUNT}, "multiple queries"),
        ({"query": EVERYBODY, "name": "other"}, "other"),
        ({"query": ADD, "params": {"name": "x"}}, "contains mutations"),
        ({"query": ADD, "params": {"name": "x"}}, "POST /mutate"),
        ({"query": BY_AGE, "params": []}, "params must be a JSON object"),
        ({"query": BY_AGE, "params": {"age": "ten"}}, "param 'age':"),
        ({"query": BY_AGE, "params": {"age": 2**31}}, "param 'age':"),
        ({"query": BY_AGE, "params": {"age": None}}, "param 'age':"),
        ({"query": BY_AGE, "params": {"age": 1, "more": {}}}, "more"),
        ({"query": BY_AGE}, "parameter 'age' not provided"),
    ],
)
def test_queries_that_can_not_run(server: RunningServer, body: dict[str, Any], fragment: str, accept: str) -> None:
    """However the rows are asked for, an error is JSON and has its status."""
    answer = ask(server, body, accept)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), answer.text
    assert answer.headers["content-type"] == "application/json"
    assert fragment in answer.json()["error"]


# States


def count(server: RunningServer, **point: Any) -> Any:
    answer = ask(server, {"query": COUNT, **point})
    return answer.json()["rows"][0]["n"] if answer.status_code == 200 else answer


def test_reads_of_the_past(server: RunningServer, graph: Graph, history: list[str]) -> None:
    assert count(server, snapshot=history[0]) == 0
    assert count(server, snapshot=f" {history[1]} ") == 3
    assert count(server, version=1) == 0
    assert count(server, branch=" draft ") == 4
    assert count(server, branch="draft", version=1) == 0
    assert count(server, at=(datetime.now(UTC) + timedelta(hours=1)).isoformat()) == 3


def test_the_target_tells_what_was_asked(server: RunningServer, history: list[str]) -> None:
    answer = ask(server, {"query": COUNT, "snapshot": history[1]}).json()
    assert answer["target"] == {"branch": None, "snapshot": history[1]}
    assert answer["graph_commit_id"] == history[1]


WRONG_POINTS: list[tuple[dict[str, Any], int, str]] = [
    ({"branch": "main", "snapshot": "x"}, 400, "branch or snapshot, not both"),
    ({"snapshot": "x", "version": 1}, 400, "snapshot"),
    ({"version": 1, "at": "2024-01-01T00:00:00Z"}, 400, "at most one"),
    ({"branch": " "}, 400, "blank"),
    ({"branch": "none"}, 404, "branch 'none' not found"),
    ({"branch": "a b"}, 404, "branch 'a b' not found"),
    ({"snapshot": "none"}, 404, "commit 'none' not found"),
    ({"snapshot": ""}, 404, "commit '' not found"),
    ({"version": 1_000_000}, 404, "no version"),
    ({"version": 10**18}, 404, "no version"),
    ({"at": "1999-01-01T00:00:00Z"}, 404, "no commit that old"),
    ({"at": "1999-01-01T00:00:00"}, 400, "time zone"),
]


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
@pytest.mark.parametrize(("point", "status", "fragment"), WRONG_POINTS)
def test_states_that_a_query_can_not_read(
    server: RunningServer, point: dict[str, Any], status: int, fragment: str, accept: str
) -> None:
    answer = ask(server, {"query": COUNT, **point}, accept)
    assert answer.status_code == status, answer.text
    assert fragment in answer.json()["error"]


@pytest.mark.parametrize("path", ["snapshot", "schema", "entity?entity=node&type=Person&id=Ada"])
@pytest.mark.parametrize(("point", "status", "fragment"), WRONG_POINTS)
def test_states_that_a_listing_can_not_read(
    server: RunningServer, path: str, point: dict[str, Any], status: int, fragment: str
) -> None:
    answer = server.client.get(f"/graphs/kb/{path}", params={**dict(httpx.URL(f"/{path}").params), **point})
    assert answer.status_code == status, answer.text
    assert fragment in answer.json()["error"]


# Caching and reading one's own writes

CACHED = [
    ("POST", "query", {"query": COUNT}),
    ("POST", "read", {"query_source": COUNT}),
    ("POST", "queries/zeta", {"params": {"age": 36}}),
]


@pytest.mark.parametrize("accept", ["application/json", "text/csv", "application/vnd.apache.arrow.stream"])
@pytest.mark.parametrize(("method", "path", "body"), CACHED)
def test_a_read_of_a_commit_has_a_tag(
    server: RunningServer, history: list[str], method: str, path: str, body: dict[str, Any], accept: str
) -> None:
    first = ask(server, {**body, "snapshot": history[1]}, accept, path=path)
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        headers = {"If-None-Match": known, "Accept": accept}
        again = server.client.post(f"/graphs/kb/{path}", json={**body, "snapshot": history[1]}, headers=headers)
        assert (again.status_code, again.content) == (304, b"")
        assert (again.headers["etag"], again.headers["omnigraph-commit"]) == (tag, history[1])
    other = ask(server, {**body, "snapshot": history[2]}, accept, path=path)
    assert other.headers["etag"] != tag
    assert "etag" not in ask(server, body, accept, path=path).headers


def test_another_version_of_the_program_gives_another_tag(
    server: RunningServer, graph: Graph, history: list[str]
) -> None:
    """What a query means may change with the program: a client must not keep what the old one sent."""
    body = {"query": COUNT, "snapshot": history[1]}
    tag = ask(server, body).headers["etag"]
    with running({"kb": graph}, version="99.0") as newer:
        again = newer.client.post("/graphs/kb/query", json=body, headers={"If-None-Match": tag})
        assert again.status_code == 200
        assert again.headers["etag"] != tag


@pytest.mark.parametrize("path", ["snapshot", "schema", "entity?entity=node&type=Person&id=Ada"])
def test_a_listing_of_a_commit_has_a_tag(server: RunningServer, history: list[str], path: str) -> None:
    url = f"/graphs/kb/{path}{'&' if '?' in path else '?'}snapshot={history[2]}"
    first = server.client.get(url)
    again = server.client.get(url, headers={"If-None-Match": first.headers["etag"]})
    stale = server.client.get(url, headers={"If-None-Match": '"other"'})
    assert (first.status_code, again.status_code, stale.status_code) == (200, 304, 200)


@pytest.mark.parametrize("now", ["now()", "now( )", "now ()", "now // it is\n()"])
def test_a_read_of_the_clock_has_no_tag(server: RunningServer, history: list[str], now: str) -> None:
    answer = ask(server, {"query": CLOCK % now, "snapshot": history[2]})
    assert answer.json()["row_count"] == 1
    assert "etag" not in answer.headers


def test_a_stored_query_that_changed_has_another_tag(graph: Graph, history: list[str]) -> None:
    texts = [COUNT, COUNT.replace("total() {", "total() { ").replace("as n", "as m")]
    tags = []
    for text in texts:
        with running({"kb": graph}, queries=text) as server:
            tags.append(ask(server, {"snapshot": history[1]}, path="queries/total").headers["etag"])
    assert tags[0] != tags[1]


def test_a_client_reads_no_state_from_before_its_own_write(server: RunningServer, graph: Graph) -> None:
    head, drafted = graph.resolve_snapshot("main"), graph.resolve_snapshot("draft")
    for accept in ("application/json", "application/x-ndjson"):
        headers = {"Accept": accept}
        own = server.client.post(
            "/graphs/kb/query", json={"query": COUNT}, headers={**headers, "Omnigraph-Min-Commit": head}
        )
        other = server.client.post(
            "/graphs/kb/query", json={"query": COUNT}, headers={**headers, "Omnigraph-Min-Commit": drafted}
        )
        nonsense = server.client.post(
            "/graphs/kb/query", json={"query": COUNT}, headers={**headers, "Omnigraph-Min-Commit": "nonsense"}
        )
        assert (own.status_code, other.status_code, nonsense.status_code) == (200, 412, 400)
        assert other.json()["precondition_failure"] == {"expected": drafted, "actual": head}
        assert "code" not in other.json()


# Limits


def test_more_rows_than_one_answer_may_have(graph: Graph) -> None:
    with running({"kb": graph}, limits=ServerLimits(result_rows=2)) as server:
        refused = ask(server, {"query": EVERYBODY})
        streamed = ask(server, {"query": EVERYBODY}, "application/x-ndjson")
        few = ask(server, {"query": COUNT})
    assert refused.status_code == 413
    assert refused.json()["resource_limit"] == {"resource": "query result rows", "limit": 2, "actual": 3}
    assert "--result-rows" in refused.json()["error"]
    assert len(ndjson(streamed.content)) == 3
    assert few.status_code == 200


def test_a_request_may_lower_the_traversal_work_and_not_raise_it(graph: Graph) -> None:
    with running({"kb": graph}, limits=ServerLimits(traversal_work=3)) as server:
        plain = ask(server, {"query": ENDS})
        lowered = ask(server, {"query": ENDS, "traversal_work": 0})
        raised = ask(server, {"query": ENDS.replace("knows $b", "<knows>{0,9} $b"), "traversal_work": 99})
        profiled = ask(server, {"query": ENDS, "traversal_work": 0}, path="query/profile")
        nonsense = ask(server, {"query": ENDS, "traversal_work": -1})
    assert plain.status_code == 200
    for refused, limit in ((lowered, 0), (profiled, 0), (raised, 3)):
        assert refused.status_code == 413
        limited = refused.json()["resource_limit"]
        assert (limited["resource"], limited["limit"]) == ("traversal_work", limit)
    assert nonsense.status_code == 422


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson", "text/csv"])
def test_a_query_without_time(graph: Graph, accept: str) -> None:
    with running({"kb": graph}, limits=ServerLimits(query_seconds=0)) as server:
        server.recorder.go_on = threading.Event()
        refused = ask(server, {"query": EVERYBODY}, accept)
        server.recorder.go_on.set()
    assert refused.status_code == 413
    assert refused.json()["resource_limit"]["resource"] == "query seconds"
    assert "--query-seconds" in refused.json()["error"]


# Listings


def test_the_tables_of_a_state(server: RunningServer, graph: Graph) -> None:
    listing = server.client.get("/graphs/kb/snapshot?branch=draft").json()
    assert listing["graph_branch"] == "draft"
    assert listing["internal_schema_version"] == 6
    shown = [(d["entity_kind"], d["type_name"], d["entity_count"]) for d in listing["datasets"]]
    assert shown == [("edge", "Knows", 1), ("node", "Note", 0), ("node", "Person", 4)]
    for dataset in listing["datasets"]:
        assert set(dataset) == {
            *("entity_kind", "type_name", "dataset_path", "published_dataset_version", "dataset_version_id"),
            *("native_dataset_branch", "entity_count"),
        }
        assert dataset["published_dataset_version"] <= listing["graph_manifest_version"]


def test_the_schema_is_told_verbatim(server: RunningServer, history: list[str]) -> None:
    assert server.client.get("/graphs/kb/schema").json() == {"schema_source": SCHEMA}
    assert server.client.get(f"/graphs/kb/schema?snapshot={history[0]}").json() == {"schema_source": SCHEMA}


def test_branches_are_sorted(server: RunningServer) -> None:
    assert server.client.get("/graphs/kb/branches").json() == {"branches": ["draft", "main", "zeta"]}


def test_commits_newest_first(server: RunningServer, history: list[str]) -> None:
    commits = server.client.get("/graphs/kb/commits").json()["commits"]
    assert [commit["graph_commit_id"] for commit in commits] == history[::-1]
    assert [commit["parent_commit_id"] for commit in commits] == [*history[-2::-1], None]
    assert commits[0]["graph_branch"] is None


def test_commits_of_a_branch_have_what_it_inherits(server: RunningServer, graph: Graph, history: list[str]) -> None:
    commits = server.client.get("/graphs/kb/commits?branch=draft").json()["commits"]
    assert [commit["graph_branch"] for commit in commits[:1]] == ["draft"]
    assert {commit["graph_commit_id"] for commit in commits} >= set(history)


def test_commits_in_pages(server: RunningServer, history: list[str]) -> None:
    found: list[str] = []
    before = ""
    while page := server.client.get(f"/graphs/kb/commits?limit=2{before}").json()["commits"]:
        assert len(page) <= 2
        found += [commit["graph_commit_id"] for commit in page]
        before = f"&before={page[-1]['graph_manifest_version']}"
        if page[-1]["graph_manifest_version"] == 1:
            break
    assert found == history[::-1]


def test_one_commit(server: RunningServer, history: list[str]) -> None:
    assert server.client.get(f"/graphs/kb/commits/{history[1]}").json()["graph_commit_id"] == history[1]
    missing = server.client.get("/graphs/kb/commits/none")
    assert missing.status_code == 404
    assert missing.json()["error"].startswith("commit 'none' not found")
    assert server.client.get("/graphs/kb/commits?branch=none").status_code == 404


def test_one_entity_in_the_form_of_an_export(server: RunningServer) -> None:
    found = server.client.get("/graphs/kb/entity?entity=node&type=Person&id=Ada").json()
    assert (found["id"], found["born"], found["score"]) == ("Ada", -56270, 1.5)
    assert found["photo"].startswith("base64:")
    assert server.client.get("/graphs/kb/entity?entity=node&type=Person&id=no").status_code == 404
    for unknown in ("entity=node&type=Persn&id=Ada", "entity=edge&type=Person&id=Ada", "type=Persn&id=Ada"):
        refused = server.client.get(f"/graphs/kb/entity?{unknown}")
        assert refused.status_code == 400
        assert "did you mean '" in refused.json()["error"], refused.text


def test_a_difference_of_branches_and_commits(server: RunningServer, history: list[str]) -> None:
    ahead = server.client.get("/graphs/kb/diff?from=main&to=draft").json()
    assert [(change["op"], change["id"]) for change in ahead["changes"]] == [("insert", "Drafted")]
    past = server.client.get(f"/graphs/kb/diff?from={history[-1]}&to={history[0]}").json()
    assert past["stats"] == {"inserts": 0, "updates": 0, "deletes": 4, "types_affected": ["Knows", "Person"]}
    only = server.client.get(f"/graphs/kb/diff?from={history[0]}&to=main&kind=edge&op=insert&op=delete").json()
    assert [change["type_name"] for change in only["changes"]] == ["Knows"]


def test_a_difference_in_pages(server: RunningServer, history: list[str]) -> None:
    url = f"/graphs/kb/diff?from={history[0]}&to=draft"
    whole, found, token = server.client.get(url).json(), [], ""
    while True:
        page = server.client.get(f"{url}&limit=2{token}").json()
        assert page["stats"] == whole["stats"]
        found += page["changes"]
        if "next_page_token" not in page:
            break
        token = f"&page_token={page['next_page_token']}"
    assert found == whole["changes"]
    assert len(found) == 5


@pytest.mark.parametrize(
    ("query", "status", "fragment"),
    [
        ("from=none&to=main", 404, "branch 'none' not found"),
        ("from=main&to=", 400, "blank"),
        ("from=main&to=main&limit=8193", 413, "commit_changes_page_changes"),
        ("from=main&to=main&page_token=x", 400, "change cursor rejected: "),
        ("from=main&to=main&op=upsert", 400, "upsert"),
    ],
)
def test_differences_that_can_not_be_told(server: RunningServer, query: str, status: int, fragment: str) -> None:
    answer = server.client.get(f"/graphs/kb/diff?{query}")
    assert answer.status_code == status
    assert fragment in answer.json()["error"]


def test_the_catalog_of_stored_queries(server: RunningServer, graph: Graph) -> None:
    add, zeta = server.client.get("/graphs/kb/queries").json()["queries"]
    assert (add["name"], add["tool_name"], add["mutation"]) == ("add", "add", True)
    assert (zeta["description"], zeta["instruction"], zeta["mutation"]) == ("By age", "Ask", False)
    assert zeta["params"] == [
        {"name": "age", "kind": "int", "nullable": False},
        {"name": "tags", "kind": "list", "item_kind": "string", "nullable": True},
        {"name": "v", "kind": "vector", "vector_dim": 2, "nullable": True},
        {"name": "big", "kind": "bigint", "nullable": True},
        {"name": "day", "kind": "date", "nullable": True},
    ]
    with running({"kb": graph}) as bare:
        assert bare.client.get("/graphs/kb/queries").json() == {"queries": []}


def test_health_and_readiness(server: RunningServer) -> None:
    assert server.client.get("/healthz").json() == {
        "status": "ok",
        "version": "0.0.0-test",
        "internal_schema_version": 6,
    }
    assert server.client.get("/version").json() == {
        "version": "0.0.0-test",
        "internal_schema_version": 6,
        "languages": {"gq": "3.0"},
    }
    assert server.client.get("/readyz").json() == {"status": "ok", "graphs": 1, "quarantined": 0}


def test_graphs_are_listed_to_those_who_may_see_them(graph: Graph) -> None:
    tokens = {"ana": "t-ana", "rob": "t-rob"}
    with running(
        {"kb": graph, "a": graph}, tokens=tokens, server_gate=Rules({"ana": ["graph_list"], "rob": ["read"]})
    ) as server:
        seen = server.client.get("/graphs", headers=bearer("t-ana"))
        hidden = server.client.get("/graphs", headers=bearer("t-rob"))
    assert seen.json() == {"graphs": [{"graph_id": name, "uri": f"/graphs/{name}"} for name in ("a", "kb")]}
    assert hidden.status_code == 403


def test_graphs_are_not_listed_to_actors_without_rules_for_it(graph: Graph) -> None:
    with running({"kb": graph}, tokens={"ana": "t-ana"}) as server:
        refused = server.client.get("/graphs", headers=bearer("t-ana"))
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


def test_an_open_server_lists_its_graphs(server: RunningServer) -> None:
    listed = server.client.get("/graphs")
    assert (listed.status_code, listed.json()) == (200, {"graphs": [{"graph_id": "kb", "uri": "/graphs/kb"}]})


# Who may read what


def test_each_read_asks_about_its_branch(graph: Graph) -> None:
    """What is of no branch in particular is asked about without one; a commit is governed by where it was made."""
    drafted = graph.resolve_snapshot("draft")
    asked = {
        "GET snapshot": "main",
        "GET snapshot?branch=draft": "draft",
        f"GET snapshot?snapshot={drafted}": "draft",
        "GET schema": None,
        "GET schema?branch=draft": "draft",
        "GET branches": None,
        "GET commits": "main",
        "GET commits?branch=draft": "draft",
        f"GET commits/{drafted}": None,
        f"GET commits/{drafted}/changes": "draft",
        "GET queries": "main",
        "GET changes?branch=draft": "draft",
        "GET entity?entity=node&type=Person&id=Ada&branch=draft": "draft",
        f"GET blob?entity=node&type=Person&id=Ada&property=photo&snapshot={drafted}": "draft",
    }
    with running({"kb": graph}, tokens={"ana": "t"}, gates={"kb": Rules({"ana": ["read"]})}) as server:
        for line, branch in asked.items():
            server.recorder.decisions.clear()
            method, path = line.split()
            assert server.client.request(method, f"/graphs/kb/{path}", headers=bearer("t")).status_code == 200, line
            decided = [(r.action, r.branch, r.target_branch) for _, r, _ in server.recorder.decisions]
            assert decided == [("read", branch, None)], line


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
def test_a_branch_that_may_not_be_read(graph: Graph, accept: str) -> None:
    rules = Rules({"ana": ["read@main"]})
    drafted = graph.resolve_snapshot("draft")
    headers = {**bearer("t"), "Accept": accept}
    with running({"kb": graph}, tokens={"ana": "t"}, gates={"kb": rules}) as server:
        for point, status in (({}, 200), ({"branch": "draft"}, 403), ({"snapshot": drafted}, 403)):
            answer = server.client.post("/graphs/kb/query", json={"query": COUNT, **point}, headers=headers)
            assert answer.status_code == status
        hidden = server.client.get(f"/graphs/kb/commits/{drafted}/changes", headers=bearer("t"))
        unknown = server.client.get(f"/graphs/kb/commits/{drafted[:-1]}0/changes", headers=bearer("t"))
        assert server.client.get("/graphs/kb/diff?from=main&to=draft", headers=bearer("t")).status_code == 403
    assert hidden.status_code == unknown.status_code == 404
    assert hidden.text.replace(drafted, "X") == unknown.text.replace(f"{drafted[:-1]}0", "X")
