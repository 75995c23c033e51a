"""An agent at a graph that lies behind a server: the same tools, and the server's own stored queries among them."""

from __future__ import annotations

import omnigraph
from omnigraph.mcp.connections import DirectAccess
from omnigraph.mcp.endpoint import protocol_server
from omnigraph.mcp.graph import Terms
from tests.mcp_server.agents import Agent, as_agent
from tests.server.running import running

TITLES = "query titles() { match { $b: Book } return { $b.title as title } order { title } }"
ADD = "query add($slug: String, $name: String) { insert Author { slug: $slug, name: $name } }"


def test_an_agent_works_on_a_branch_of_a_remote_graph(library: omnigraph.Graph) -> None:
    async def script(agent: Agent) -> None:
        assert {"titles", "add"} <= (await agent.tools()).keys()
        here = library.query(TITLES).rows()
        assert (await agent.call("query", query=TITLES))["rows"] == here
        assert (await agent.call("titles"))["rows"] == here
        assert (await agent.call("schema"))["types"]
        await agent.call("branch_create", name="work")
        await agent.call("mutate", query=ADD, params={"slug": "new", "name": "New"}, branch="work")
        refused = await agent.refused("mutate", query=ADD, params={"slug": "x", "name": "X"}, branch="main")
        assert refused["type"]
        assert library.query('query q() { match { $a: Author { slug: "new" } } return { $a.slug } }').num_rows == 0
        preview = await agent.call("merge_preview", source="work")
        assert preview["outcome"] == "fast_forward"

    with (
        running({"kb": library}, queries=f"{TITLES}\n{ADD}") as served,
        omnigraph.connect(served.url, graph="kb") as graph,
    ):
        as_agent(protocol_server(lambda _context: DirectAccess(graph, None), Terms()), script)
    assert library.list_branches() == ["main", "work"]
