"""A served graph per module, and the three ways to it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

import pytest

import omnigraph
from tests.client.three_graphs import Api, AwaitedGraph
from tests.server.running import RunningServer, running
from tests.server.sample import ADD, EVERYBODY, people

WAYS = ("embedded", "remote", "async")


@pytest.fixture(scope="module")
def served_graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[omnigraph.Graph]:
    with people(tmp_path_factory.mktemp("served") / "kb") as graph:
        yield graph


@pytest.fixture(scope="module")
def server(served_graph: omnigraph.Graph) -> Iterator[RunningServer]:
    with running({"kb": served_graph}, queries=f"{EVERYBODY}\n{ADD}") as server:
        yield server


@pytest.fixture(scope="module")
def ways(server: RunningServer, served_graph: omnigraph.Graph) -> Iterator[dict[str, Api]]:
    """The same graph, by the name of the way to it."""
    awaited = AwaitedGraph(lambda: omnigraph.connect_async(server.url, graph="kb"))
    here = served_graph.with_queries(omnigraph.queries(f"{EVERYBODY}\n{ADD}"))
    with omnigraph.connect(server.graph()) as remote:
        yield {"embedded": cast(Any, here), "remote": remote, "async": cast(Any, awaited)}
    awaited.close()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def g(ways: dict[str, Api], way: str) -> Api:
    return ways[way]


_NUMBERS = itertools.count(1)


@pytest.fixture
def branch(served_graph: omnigraph.Graph) -> str:
    """A branch of its own for a test that writes."""
    name = f"work/{next(_NUMBERS)}"
    served_graph.create_branch(name)
    return name
