"""Whatever an agent sends, it gets an answer or learns what to mend: nothing breaks inside."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph.mcp.graph import Terms
from omnigraph.mcp.stored_queries import with_query_files
from omnigraph.mcp.tools import TOOLS
from tests.mcp_server.agents import Agent
from tests.mcp_server.conftest import QUERIES
from tests.mcp_server.test_tools import ADD, TITLES, run

WORDS = st.sampled_from(
    [
        *("main", "work", " main ", "", "none", "Author", "Book", "node:Author", "edge:WroteBy", "wroteBy", "lem", "1"),
        *(ADD, TITLES, "query q(", "title", "vec", "blurb", "cover", "c1.0.00000000", "\x00", "é" * 70),
        *("both", "in", "keyword", "vector", "hybrid", "insert", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    ]
)
VALUES = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers(-1, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A tool, its arguments of the right kind more often than not."""
    tool = draw(st.sampled_from([*TOOLS.values()]))
    arguments = {}
    for field in msgspec.structs.fields(tool.arguments):
        if field.required or draw(st.booleans()):
            arguments[field.encode_name] = draw(WORDS if draw(st.integers(0, 3)) else VALUES)
    if draw(st.integers(0, 5)) == 0:
        arguments[draw(WORDS)] = draw(VALUES)
    return tool.name, arguments


@pytest.fixture(scope="module")
def graph(made_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[omnigraph.Graph]:
    path = shutil.copytree(made_library, tmp_path_factory.mktemp("odd") / "library.omni")
    with omnigraph.open(str(path)) as opened:
        opened.create_branch("work")
        yield opened


@settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.generate],  # a call that breaks something is named, and need not be made smaller
    suppress_health_check=[HealthCheck.too_slow],
)
@given(batch=st.lists(calls(), min_size=8, max_size=8), tokens=st.sampled_from([200, 8000]))
def test_no_call_breaks_anything(graph: omnigraph.Graph, batch: list[tuple[str, dict[str, Any]]], tokens: int) -> None:
    async def script(agent: Agent) -> None:
        for tool, arguments in batch:
            answer = await agent.client.call_tool(tool, arguments)
            if answer.is_error:
                error = answer.structured_content
                # A failed precondition has a type and no code, as over HTTP.
                assert error.get("code") != "internal" or error["type"] == "embedding", (tool, arguments)
                assert error["type"]
                assert error["error"]

    run(with_query_files(graph, [("q.gq", QUERIES)]), script, Terms(max_tokens=tokens))


def test_half_a_character_is_refused(graph: omnigraph.Graph) -> None:
    for arguments in ({"query": "\ud800"}, {"query": TITLES, "params": {"x": ["\udfff"]}}):
        error = run(graph, lambda agent, given=arguments: agent.refused("query", **given))
        assert "half a character" in error["error"]
