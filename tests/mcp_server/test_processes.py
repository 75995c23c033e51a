"""`omnigraph mcp` as agent programs start it: a real process, over its standard streams and over HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import omnigraph
from omnigraph.cli.main import run
from omnigraph.mcp.graph import Terms
from tests.mcp_server.agents import Agent, as_agent
from tests.mcp_server.conftest import QUERIES, RECORDS, SCHEMA, record
from tests.mcp_server.test_tools import ADD, READING
from tests.mcp_server.test_tools import run as tools_of
from tests.support.clusters import make_cluster
from tests.support.servers import REPOSITORY, ServerProcess, served
from tests.support.waiting import GIVE_UP

pytestmark = pytest.mark.xdist_group("mcp processes")


def program(*arguments: str, **environment: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "omnigraph.cli.main", "mcp", *arguments],
        env={"PYTHONPATH": str(REPOSITORY / "src"), "PATH": "", "OMNIGRAPH_EMBEDDINGS_MOCK": "1", **environment},
    )


SLUGS = "query slugs() { match { $a: Author } return { $a.slug as slug } }"


def test_an_agent_works_through_a_process(library: omnigraph.Graph, library_path: Path, tmp_path: Path) -> None:
    """It explores, pages through a large result while somebody else writes, and brings a change to main."""
    library.load("\n".join(record("Author", slug=f"s{n:05}", name="x") for n in range(2000)), mode="merge")
    expected = [row["slug"] for row in library.query(SLUGS).rows()]
    numbers = iter(range(10_000))
    (tmp_path / "q.gq").write_text(QUERIES)

    def somebody_else() -> None:
        library.mutate(ADD, params={"slug": f"s{next(numbers):05}b", "name": "new"})

    async def script(agent: Agent) -> None:
        assert "books_of" in await agent.tools()
        types = {each["type"] for each in (await agent.call("schema"))["types"]}
        assert {"Author", "Book"} <= types
        pages = await agent.pages("query", "rows", somebody_else, query=SLUGS)
        assert len(pages) > 5
        assert [row["slug"] for page in pages for row in page] == expected
        assert (await agent.refused("mutate", query=ADD, branch="main"))["code"] == "forbidden"
        await agent.call("branch_create", name="work")
        await agent.call("add_author", slug="new", branch="Newcomer", _branch="work")
        somebody_else()
        preview = await agent.call("merge_preview", source="work")
        assert (preview["outcome"], preview["conflict_count"]) == ("merged", 0)
        assert (await agent.call("merge", source="work"))["outcome"] == "merged"
        newest = (await agent.call("history", limit=1))["commits"][0]
        assert newest["actor"] == "ada"

    server = program(
        *("--store", str(library_path), "--as", "ada"), *("--queries", str(tmp_path / "q.gq"), "--max-tokens", "1000")
    )
    as_agent(server, script)
    assert library.entity("node:Author", "new") is not None


def test_a_process_speaks_the_handshake_of_older_clients_too(library_path: Path) -> None:
    async def script(agent: Agent) -> None:
        assert (await agent.tools()).keys() == READING
        assert "nothing can be changed here" in (agent.client.instructions or "")
        assert len((await agent.call("query", query=SLUGS))["rows"]) == 2

    as_agent(program("--store", str(library_path), "--read-only"), script, mode="legacy")


def test_an_interrupt_ends_a_process_that_waits_for_input(library_path: Path) -> None:
    command = [sys.executable, "-m", "omnigraph.cli.main", "mcp", "--store", str(library_path)]
    waiting = subprocess.Popen(command, cwd=REPOSITORY / "src", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert waiting.stdin is not None
    assert waiting.stdout is not None
    with waiting.stdin as there, waiting.stdout as back:
        there.write(b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}\n')
        there.flush()
        assert json.loads(back.readline())["error"]["code"]
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(GIVE_UP) == -signal.SIGINT


# A cluster, directly

POLICY = """
version: 1
groups: {editors: [ana], readers: [bob]}
protected_branches: [main]
rules:
  - id: edits
    allow: {actors: {group: editors}, actions: [read, change], branch_scope: any}
  - id: branches
    allow: {actors: {group: editors}, actions: [branch_create, branch_merge], target_branch_scope: any}
  - id: stored-queries
    allow: {actors: {group: editors}, actions: [invoke_query]}
  - id: few
    allow:
      actors: {group: readers}
      actions: [read, change]
      branch_scope: any
      rows: {Author: 'slug = "lem"', Book: 'isbn != "2"'}
      hide: {Book: [blurb], WroteBy: [year]}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("cluster")
    stored = {"books_of": QUERIES, "add_author": QUERIES}
    made = make_cluster(root, {"kb": SCHEMA}, {"kb": stored}, policies={"rules": (POLICY, ("graph.kb",))})
    with omnigraph.open(made.graph_uri("kb")) as graph:
        graph.load("\n".join(RECORDS), mode="merge")
    return made.root


def restricted(agent: Agent) -> Any:
    """What bob sees and may do, wherever the rules are asked."""

    async def script() -> None:
        assert (await agent.call("query", query=SLUGS))["rows"] == [{"slug": "lem"}]
        books = "query all() { match { $b: Book } return { $b.isbn as isbn } order { isbn } }"
        assert (await agent.call("query", query=books))["rows"] == [{"isbn": "1"}, {"isbn": "3"}]
        assert (await agent.refused("books_of", author="lem"))["error"] == "stored query not found"
        hidden = await agent.refused("query", query="query h() { match { $b: Book } return { $b.blurb as b } }")
        assert (hidden["code"], "is hidden from you" in hidden["error"]) == ("forbidden", True)
        found = await agent.call("search", type="Book", text="solaris cyberiad dispossessed", property="title")
        assert {hit["id"] for hit in found["hits"]} == {"1", "3"}
        assert all("blurb" not in hit["properties"] for hit in found["hits"])
        assert (await agent.call("entity", type="Book", id="1"))["entity"]["blurb"] is None
        assert (await agent.refused("entity", type="Book", id="2"))["type"].endswith("not_found")
        around = (await agent.call("neighbours", type="Author", id="lem"))["neighbours"]
        assert [(each["id"], "edge_properties" in each) for each in around] == [("1", False)]
        assert around[0]["properties"] == {"isbn": "1", "title": "Solaris"}
        commits = [each["commit"] for each in (await agent.call("history"))["commits"]]
        told = [
            await agent.client.call_tool(tool, arguments)
            for tool, arguments in [
                *(("commit_changes", {"commit": commit}) for commit in commits),
                ("diff", {"before": commits[-1], "after": "main"}),
                ("merge_preview", {"source": "main", "target": "main"}),
                ("neighbours", {"type": "Book", "id": "2"}),
                ("neighbours", {"type": "Remark", "id": "r2"}),
                ("entity", {"type": "Author", "id": "leguin"}),
                ("search", {"type": "Book", "text": "robots"}),
                ("search", {"type": "Author", "text": "ursula", "property": "name"}),
            ]
        ]
        assert len(told[0].content) == 1
        text = " ".join(answer.model_dump_json() for answer in told).lower()
        for secret in ("cyberiad", "robots build", "ursula k.", "ocean that thinks", "1961", "1965"):
            assert secret not in text
        denied = await agent.refused("branch_create", name="mine")
        assert denied["code"] == "forbidden"
        assert denied["error"].startswith(
            "policy denied action 'branch_create' on branch 'main' targeting branch 'mine'"
        )

    return script()


def test_a_cluster_without_a_server_has_its_rules(cluster: str) -> None:
    async def script(agent: Agent) -> None:
        await restricted(agent)

    as_agent(program("--cluster", cluster, "--as", "bob"), script)


# A server


@pytest.fixture(scope="module")
def server(cluster: str) -> Iterator[ServerProcess]:
    tokens = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps({"ana": "token-ana", "bob": "token-bob"})}
    with served("serve", "--cluster", cluster, "--bind", "127.0.0.1:0", "--workers", "2", environment=tokens) as server:
        yield server
        assert server.terminate() == 0, "what agents asked for keeps no worker from ending"


def asked(server: ServerProcess, token: str | None, script: Any, path: str = "/graphs/kb/mcp", **options: Any) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def run() -> Any:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=120) as http,
            Client(streamable_http_client(f"{server.url}{path}", http_client=http), **options) as client,
        ):
            return await script(Agent(client))

    return asyncio.run(run())


def test_the_rules_of_a_server_hold_for_its_agents(server: ServerProcess) -> None:
    asked(server, "token-bob", restricted)


@pytest.mark.parametrize("path", ["/graphs/kb/mcp", "/mcp"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_any_worker_answers_any_request(server: ServerProcess, path: str, mode: str) -> None:
    """Every request may meet another process, so none may rest on an earlier one."""
    branch = f"work-{mode}-{path.count('/')}"

    async def script(agent: Agent) -> None:
        assert {"books_of", "add_author"} <= (await agent.tools()).keys()
        assert (await agent.call("books_of", author="lem"))["rows"][0] == {"title": "Solaris", "year": 1961}
        await agent.call("branch_create", name=branch)
        written = await agent.call("add_author", slug=branch, branch="A. Nonymous", _branch=branch)
        assert written["actor_id"] == "ana"
        refused = await agent.refused("mutate", query=ADD, branch="main")
        assert (refused["code"], "--mcp-allow-main" in refused["error"]) == ("forbidden", True)
        preview = await agent.call("merge_preview", source=branch)
        assert preview["counts"] == {"node:Author": {"insert": 1, "update": 0, "delete": 0}}
        assert (await agent.call("merge", source=branch))["outcome"] in ("fast_forward", "merged")
        changed = (await agent.call("diff", before=preview["target"]["commit"], after="main"))["changes"]
        assert branch in [change["id"] for change in changed]
        (found,) = (await agent.call("commit_changes", commit=written["commit"]["graph_commit_id"]))["changes"]
        assert found["after"]["slug"] == branch

    asked(server, "token-ana", script, path, mode=mode)


def test_tools_work_on_a_graph_behind_a_server(server: ServerProcess) -> None:
    """What `omnigraph mcp --server` has in its hands."""

    async def script(agent: Agent) -> None:
        assert (await agent.call("books_of", author="lem"))["rows"][0] == {"title": "Solaris", "year": 1961}
        await agent.call("branch_create", name="remote")
        written = await agent.call("add_author", slug="remote", branch="R. Emote", _branch="remote")
        assert written["actor_id"] == "ana"
        assert (await agent.call("merge_preview", source="remote"))["conflict_count"] == 0
        assert (await agent.call("diff", before="main", after="remote"))["stats"]["inserts"] == 1
        await agent.call("merge", source="remote", delete_branch=True)
        (change,) = (await agent.call("commit_changes", commit=written["commit"]["graph_commit_id"]))["changes"]
        assert change["after"]["name"] == "R. Emote"
        slugs = await agent.pages("query", "rows", query=SLUGS)
        assert "remote" in [row["slug"] for page in slugs for row in page]
        error = await agent.refused("query", query="query q() { match { $b: Bok } return { $b.title as t } }")
        assert error["fields"]["diagnostics"][0]["span"]["column"] == 25

    with omnigraph.connect(server.url, token="token-ana", graph="kb") as graph:
        tools_of(graph, script, Terms(max_tokens=200), actor=None)


def test_a_process_reaches_a_graph_through_a_server(server: ServerProcess) -> None:
    command = program("--server", server.url, "--graph", "kb", OMNIGRAPH_BEARER_TOKEN="token-bob")
    as_agent(command, restricted)


def test_who_proves_nothing_gets_nothing(server: ServerProcess) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"Accept": "application/json, text/event-stream"}
    for path in ("/mcp", "/graphs/kb/mcp", "/graphs/none/mcp"):
        assert httpx.post(f"{server.url}{path}", json=call, headers=headers).status_code == 401
    ana = {**headers, "Authorization": "Bearer token-ana"}
    assert httpx.post(f"{server.url}/graphs/none/mcp", json=call, headers=ana).status_code == 404
    assert httpx.post(f"{server.url}/mcp", json=call, headers={**ana, "Omnigraph-Graph": "none"}).status_code == 404
    listed = httpx.post(f"{server.url}/mcp", json=call, headers={**ana, "Omnigraph-Graph": "kb"})
    assert listed.status_code == 200
    assert listed.headers["content-type"] == "application/json"
    assert listed.headers["x-request-id"]
    for method in ("GET", "DELETE"):
        refused = httpx.request(method, f"{server.url}/graphs/kb/mcp", headers=ana)
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    large = httpx.post(f"{server.url}/mcp", content=b" " * (2 << 20), headers=ana)
    assert large.status_code == 413


def test_a_server_says_on_which_terms_agents_work(library_path: Path) -> None:
    async def script(agent: Agent) -> None:
        written = await agent.call("mutate", query=ADD, branch="main", params={"slug": "new", "name": "New"})
        assert written["branch"] == "main"
        assert len(await agent.pages("schema", "types")) > 1

    where = ("serve", "--store", str(library_path), "--unauthenticated", "--bind", "127.0.0.1:0")
    allowed = ("--allowed-host", "graphs.example.org", "--allowed-host", "other")
    with served(*where, "--mcp-allow-main", "--mcp-max-tokens", "200", *allowed) as server:
        as_agent(f"{server.url}/mcp", script)
        for host, status in (("evil.example", 421), ("graphs.example.org:80", 200), ("other", 200)):
            headers = {"Accept": "application/json, text/event-stream", "Host": host}
            assert httpx.get(f"{server.url}/graphs", headers=headers).status_code == status
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
            assert httpx.post(f"{server.url}/mcp", json=call, headers=headers).status_code == status


# The endpoint of its own


@pytest.mark.parametrize("place", [("0.0.0.0:0", "--unauthenticated"), ("127.0.0.1:0",)])
def test_an_endpoint_is_called_by_its_own_names(library_path: Path, place: tuple[str, ...]) -> None:
    where = ("mcp", "--store", str(library_path), "--http", *place)
    with served(*where, "--allowed-host", "tools.example.org") as server:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        names = {"evil.example": 421, "localhost": 200, "localhost:9000": 200, "TOOLS.example.org:80": 200}
        for host, status in names.items():
            headers = {"Accept": "application/json, text/event-stream", "Host": host}
            answer = httpx.post(f"http://127.0.0.1:{server.port}/mcp", json=call, headers=headers)
            assert answer.status_code == status, answer.text
            assert status == 200 or "--allowed-host NAME" in answer.json()["error"]
        headers = {"Accept": "application/json, text/event-stream", "Origin": "https://evil.example"}
        assert httpx.post(f"http://127.0.0.1:{server.port}/mcp", json=call, headers=headers).status_code == 403


def test_a_graph_over_http_without_a_server(library_path: Path) -> None:
    with served("mcp", "--store", str(library_path), "--http", "127.0.0.1:0") as server:

        async def script(agent: Agent) -> None:
            assert len((await agent.call("query", query=SLUGS))["rows"]) == 2

        as_agent(f"{server.url}/mcp", script)
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        headers = {"Accept": "application/json, text/event-stream", "Host": "evil.example"}
        assert httpx.post(f"{server.url}/mcp", json=call, headers=headers).status_code == 421
        assert server.terminate() in (0, -15)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--store", "g", "--http", "0.0.0.0:0"], 1, "omnigraph serve"),
        (["--store", "g", "--http", "8080"], 2, "--http must be ADDR:PORT"),
        (["--store", "g", "--read-only", "--allow-main"], 2, "contradict"),
        (["--store", "g", "--unauthenticated"], 2, "--http"),
        (["--store", "g", "--max-tokens", "10"], 2, "--max-tokens"),
        (["--store", "g", "--queries", "none.gq"], 1, "'none.gq' does not exist"),
        (["--store", "nowhere"], 1, "nowhere"),
        (["--cluster", "nowhere"], 1, "nowhere"),
        (["--server", "http://127.0.0.1:9/graphs/kb", "--as", "ada"], 1, "by the token"),
        ([], 1, "no graph addressed"),
    ],
)
def test_wrong_usage(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    assert run(["mcp", *arguments]) == code
    assert said in capsys.readouterr().err


def test_the_help_of_the_command_line_loads_no_protocol() -> None:
    code = "import sys, omnigraph.cli.main; sys.exit(any(n.split('.')[0] in ('mcp', 'pydantic') for n in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0
