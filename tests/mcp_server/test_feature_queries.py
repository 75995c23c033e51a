"""Every feature of the query language through the tools of agents: raw queries, stored queries, and statements.

A connection costs more than a query, so one script runs all examples.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.api.graph import GraphApi
from omnigraph.errors import CompileError
from omnigraph.mcp.connections import DirectAccess
from omnigraph.mcp.endpoint import protocol_server
from omnigraph.mcp.graph import Terms
from omnigraph.mcp.stored_queries import with_query_files
from omnigraph.server.mcp_mount import load_endpoint
from omnigraph.server.settings import AgentSettings, ServerLimits
from tests.mcp_server.agents import Agent, as_agent
from tests.server.running import running
from tests.server.sample import EVERYTHING, Rules
from tests.support.feature_queries import (
    ENTITIES,
    READS,
    REFUSALS,
    STORED,
    STORED_TEXT,
    WRITES,
    WRONG_READS,
    WRONG_WRITES,
    feature_graph,
    lasting,
    statements,
)

Script = Callable[[Agent], Awaitable[Any]]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with feature_graph(tmp_path_factory.mktemp("features") / "kb") as graph:
        yield graph


def run(graph: GraphApi, script: Script, terms: Terms | None = None) -> Any:
    server = protocol_server(lambda _context: DirectAccess(graph, "ada"), terms or Terms())
    return as_agent(server, script)


def safe(value: Any) -> Any:
    """Many agents read JSON as JavaScript does, so integers that it would round are texts."""
    if isinstance(value, dict):
        return {name: safe(member) for name, member in value.items()}
    if isinstance(value, list):
        return [safe(item) for item in value]
    return str(value) if isinstance(value, int) and abs(value) > 2**53 else value


def test_every_feature_in_raw_and_in_stored_queries(graph: Graph) -> None:
    async def script(agent: Agent) -> tuple[dict[str, Any], ...]:
        raw = {read.name: await agent.call("query", query=read.text, params=read.params) for read in READS}
        stored = {read.name: await agent.call(read.name, **read.params) for read in STORED}
        return raw, stored

    raw, stored = run(with_query_files(graph, [("features.gq", STORED_TEXT)]), script)
    assert {name: answer["rows"] for name, answer in raw.items()} == {read.name: safe(read.rows) for read in READS}
    assert stored == {read.name: raw[read.name] for read in STORED}
    assert {read.name: raw[read.name]["columns"] for read in READS} == {read.name: list(read.rows[0]) for read in READS}
    assert {answer["commit"] for answer in raw.values()} == {graph.resolve_snapshot()}


def test_every_feature_of_writes(graph: Graph) -> None:
    async def script(agent: Agent) -> None:
        for write in WRITES:
            for way in ("raw", "stored"):
                branch = f"{write.name}/{way}"
                await agent.call("branch_create", name=branch)
                if way == "raw":
                    receipt = await agent.call("mutate", query=write.text, branch=branch, params=write.params)
                else:
                    receipt = await agent.call(write.name, branch=branch, **write.params)
                assert (receipt["affected_nodes"], receipt["affected_edges"]) == write.counts
                assert "outcome" not in receipt
                shown = await agent.call("query", query=write.shown_by, branch=branch)
                assert shown["rows"] == write.rows

    run(with_query_files(graph, [("features.gq", STORED_TEXT)]), script)


def test_an_entity_with_a_property_id_and_an_edge_with_a_key(graph: Graph) -> None:
    async def script(agent: Agent) -> None:
        for (type_name, id_), entity in ENTITIES.items():
            assert (await agent.call("entity", type=type_name, id=id_))["entity"] == entity
        (shelf,) = (await agent.call("neighbours", type="Book", id="b1", edge="stands"))["neighbours"]
        assert (shelf["id"], shelf["properties"]) == ("s1", {"id": "s1", "room": "A"})
        (type_,) = (await agent.call("schema", type="Follows"))["types"]
        assert type_["key"] == ["@src", "@dst"]

    run(graph, script)


def test_an_error_of_evaluation_names_its_rule(graph: Graph) -> None:
    async def script(agent: Agent) -> None:
        await agent.call("branch_create", name="refused")
        for refusal in REFUSALS:
            more = {"branch": "refused"} if refusal.writes else {}
            error = await agent.refused("mutate" if refusal.writes else "query", query=refusal.text, **more)
            assert (error["code"], error["type"], error["fields"]) == ("bad_request", refusal.type, refusal.fields)

    run(graph, script)


# Statements


def test_statements_create_merge_and_delete_branches(graph: Graph) -> None:
    before = graph.list_branches()

    async def script(agent: Agent) -> None:
        for statement in statements("agent"):
            branch = {} if statement.branch is None else {"branch": statement.branch}
            receipt = await agent.call("mutate", query=statement.text, **branch)
            assert lasting(receipt) == statement.receipt
            assert receipt["actor_id"] == "ada"
            listed = await agent.call("query", query="branch list")
            assert [row["name"] for row in listed["rows"]] == graph.list_branches()
            assert (listed["commit"], listed["columns"]) == (None, ["name"])

    run(graph, script)
    assert graph.list_branches() == before


def test_a_long_list_of_branches_comes_in_pages(graph: Graph) -> None:
    for number in range(40):
        graph.create_branch(f"a-branch-with-a-long-name-{number}")

    async def script(agent: Agent) -> None:
        pages = await agent.pages("query", "rows", query="branch list")
        assert len(pages) > 1
        assert [row["name"] for page in pages for row in page] == graph.list_branches()

    run(graph, script, Terms(max_tokens=200))


def test_a_plan_comes_in_pages(graph: Graph) -> None:
    async def script(agent: Agent) -> None:
        pages = await agent.pages("query", "rows", query=READS[-1].text, params=READS[-1].params)
        assert [row for page in pages for row in page] == READS[-1].rows

    run(graph, script, Terms(max_tokens=200))


def test_a_wrong_statement_is_refused(graph: Graph) -> None:
    async def script(agent: Agent) -> None:
        for arguments, words in WRONG_READS:
            assert words in (await agent.refused("query", **arguments))["error"]
        for arguments, words in WRONG_WRITES:
            assert words in (await agent.refused("mutate", **arguments))["error"]
        snapshot = {"query": "branch list", "snapshot": graph.resolve_snapshot()}
        assert "stands alone" in (await agent.refused("query", **snapshot))["error"]
        condition = {"query": "branch create x", "if_commit": graph.resolve_snapshot()}
        assert "stands alone" in (await agent.refused("mutate", **condition))["error"]
        needed = await agent.refused("mutate", query=WRITES[0].text, params=WRITES[0].params)
        assert "a mutation needs a branch" in needed["error"]

    run(graph, script)


def test_an_endpoint_that_only_reads_runs_no_statement_that_writes(graph: Graph) -> None:
    async def script(agent: Agent) -> None:
        assert (await agent.refused("mutate", query="branch create x"))["type"] == "not_found"
        assert "changes branches" in (await agent.refused("query", query="branch create x"))["error"]
        assert (await agent.call("query", query="branch list"))["columns"] == ["name"]

    run(graph, script, Terms(read_only=True))


def test_a_file_of_stored_queries_holds_no_statement(graph: Graph) -> None:
    for text in ("branch list", READS[-1].text):
        with pytest.raises(CompileError, match="Q004: a statement is not a query"):
            with_query_files(graph, [("s.gq", text)])


def test_a_policy_decides_statements_like_tools(graph: Graph) -> None:
    governed = graph._with_gate(Rules({"ana": EVERYTHING, "rob": ["read", "change"]}))

    async def allowed(agent: Agent) -> None:
        assert (await agent.call("mutate", query="branch create governed"))["outcome"] == {"kind": "created"}

    async def denied(agent: Agent) -> None:
        by_tool = await agent.refused("branch_create", name="mine")
        assert await agent.refused("mutate", query="branch create mine") == by_tool
        assert "policy denied action 'branch_create'" in by_tool["error"]
        for text in ("branch merge governed", "branch delete governed"):
            assert (await agent.refused("mutate", query=text))["code"] == "forbidden"
        assert {"name": "governed"} in (await agent.call("query", query="branch list"))["rows"]

    for actor, script in (("ana", allowed), ("rob", denied)):
        access = DirectAccess(governed.acting_for(actor), actor)
        as_agent(protocol_server(lambda _, access=access: access, Terms()), script)
    assert "mine" not in graph.list_branches()


def test_a_remote_and_a_mounted_endpoint_answer_alike(graph: Graph) -> None:
    """`omnigraph mcp --server` works on a client, a server has an endpoint of its own."""
    reached = next(read for read in READS if read.name == "reached")

    async def script(agent: Agent) -> None:
        for read in READS:
            assert (await agent.call("query", query=read.text, params=read.params))["rows"] == safe(read.rows)
        for statement in statements("remote"):
            branch = {} if statement.branch is None else {"branch": statement.branch}
            assert lasting(await agent.call("mutate", query=statement.text, **branch)) == statement.receipt
        listed = await agent.call("query", query="branch list")
        assert (listed["commit"], [row["name"] for row in listed["rows"]]) == (None, graph.list_branches())

    async def limited(agent: Agent) -> None:
        error = await agent.refused("query", query=reached.text)
        assert error["resource_limit"] == {"resource": "traversal_work", "limit": 2, "actual": 3}

    with running({"kb": graph}, agents=lambda: load_endpoint(AgentSettings())) as server:
        with omnigraph.connect(server.graph()) as remote:
            client = DirectAccess(cast(GraphApi, remote), None)
            as_agent(protocol_server(lambda _: client, Terms()), script)
        as_agent(f"{server.url}/mcp", script)
    limits = ServerLimits(traversal_work=2)
    with running({"kb": graph}, agents=lambda: load_endpoint(AgentSettings()), limits=limits) as server:
        as_agent(f"{server.url}/mcp", limited)
