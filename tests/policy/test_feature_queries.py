"""Every feature of the query language under row filters that are whole expressions: its answer is that of a graph that
holds only the visible rows, in this process, over HTTP, through a client, on the command line and through tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.cli.main import run
from omnigraph.client import RemoteGraph
from omnigraph.policy.gate import PolicyGate, load_gate
from tests.server.running import RunningServer, running
from tests.server.sample import bearer
from tests.support.feature_queries import RECORDS, SCHEMA, STORED, Example, feature_graph, label

RULES = """
version: 1
groups: {some: [ana]}
rules:
  - id: some
    allow:
      actors: {group: some}
      actions: [read, change]
      rows:
        Reader: 'lower(name) starts_with "r" and (coalesce(age, 99) > 17 or card in ["nobody"])'
        Book: 'case when status = "lent" then true else size(tags) > 0 end'
        Author: 'born is not null'
        Borrowed: 'not (days = 1)'
"""
INVISIBLE = {"r3", "b3", "bob", "l1", "l3"}
"""Rex is too young, the third book has no tags, Bob's birth is unknown, and so are the days of a loan."""


@pytest.fixture(scope="module")
def governed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with feature_graph(tmp_path_factory.mktemp("governed") / "kb") as graph:
        gate = load_gate(RULES, "graph", "rules")
        assert isinstance(gate, PolicyGate)
        yield graph._with_gate(gate.bind_schema(graph.catalog))


@pytest.fixture(scope="module")
def smaller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with Graph.init(tmp_path_factory.mktemp("smaller") / "kb", SCHEMA) as graph:
        graph.load("\n".join(line for line in RECORDS.splitlines() if visible(json.loads(line))), mode="append")
        yield graph


def visible(record: dict[str, Any]) -> bool:
    names = {record["data"].get(name) for name in ("id", "slug", "isbn", "card")}
    return not INVISIBLE & {*names, record.get("from"), record.get("to")}


@pytest.fixture(scope="module")
def server(governed: Graph) -> Iterator[RunningServer]:
    gate = governed._workspace.gate
    assert gate is not None
    with running({"kb": governed}, tokens={"ana": "t-ana"}, gates={"kb": gate}) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[RemoteGraph]:
    with omnigraph.connect(server.graph(), token="t-ana") as client:
        yield client


@pytest.mark.parametrize("example", STORED, ids=label)
def test_a_feature_shows_what_is_visible(
    governed: Graph, smaller: Graph, server: RunningServer, client: RemoteGraph, example: Example
) -> None:
    rows = smaller.query(example.text, params=example.params).rows()
    assert governed.acting_for("ana").query(example.text, params=example.params).rows() == rows
    assert client.query(example.text, params=example.params).rows() == rows
    body = {"query": example.text, "params": example.params}
    assert server.client.post("/graphs/kb/query", json=body, headers=bearer("t-ana")).json()["rows"] == rows


def test_most_features_show_less(smaller: Graph) -> None:
    """Else the test above would say little."""
    same = [read.name for read in STORED if smaller.query(read.text, params=read.params).rows() == read.rows]
    assert len(same) < len(STORED) // 3, same


def test_the_command_line_shows_what_is_visible(
    smaller: Graph,
    server: RunningServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", "t-ana")
    for read in STORED:
        params = ("--params", json.dumps(read.params))
        assert run(["query", "-e", read.text, *params, "--json", "--server", server.graph()]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == smaller.query(read.text, params=read.params).rows()
