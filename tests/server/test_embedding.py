"""Vectors computed by a server: where the schema says so, where a load asks for it, and a provider that fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.cli.main import run as command
from omnigraph.embeddings.client import open_client
from omnigraph.embeddings.configuration import EmbeddingConfig, ProviderKind
from tests.engine.stored import rows
from tests.server.running import RunningServer, running
from tests.support.embedding_server import EmbeddingServer, Reply, embedding_server, vector_of

SCHEMA = """
node Book {
    title: String @key
    blurb: String?
    vec: Vector(2)? @embed("blurb", on_write=true)
    title_vec: Vector(2)? @embed("title")
}
"""
ADD = "query add($t: String, $b: String) { insert Book { title: $t, blurb: $b } }"
NEAR = "query near($t: String) { match { $b: Book } return { $b.title as t } order { nearest($b.vec, $t) } limit 1 }"


@pytest.fixture(scope="module")
def provider() -> Iterator[EmbeddingServer]:
    with embedding_server() as server:
        yield server


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, provider: EmbeddingServer) -> Iterator[Graph]:
    place = tmp_path_factory.mktemp("served")
    config = EmbeddingConfig(ProviderKind.OPENAI, "m", provider.url, "sk-planted-0123")
    variables = {"OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": "1", "OMNIGRAPH_EMBED_CACHE": str(place / "cache")}
    with Graph.init(place / "kb", SCHEMA) as created:
        yield created.with_embedding(open_client(config, variables))


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[RunningServer]:
    with running({"kb": graph}) as server:
        yield server


def book(title: str, blurb: str) -> str:
    return json.dumps({"type": "Book", "data": {"title": title, "blurb": blurb}})


def test_a_served_mutation_computes_and_a_query_finds(server: RunningServer, graph: Graph) -> None:
    for title, blurb in (("a", "tides"), ("b", "moon")):
        body = {"query": ADD, "name": "add", "params": {"t": title, "b": blurb}}
        assert server.client.post("/graphs/kb/mutate", json=body).status_code == 200
    assert rows(graph, "node:Book")["a"]["vec"] == pytest.approx(vector_of("tides", 2))
    found = server.client.post("/graphs/kb/query", json={"query": NEAR, "params": {"t": "moon"}}).json()
    assert found["rows"] == [{"t": "b"}]


@pytest.mark.parametrize("asked", [True, False])
def test_a_load_over_http_computes_what_it_asks_for(server: RunningServer, graph: Graph, asked: bool) -> None:
    title = f"loaded {asked}"
    with omnigraph.connect(server.url, graph="kb") as remote:
        remote.load(book(title, "ebb"), mode="append", embed=asked)
    stored = rows(graph, "node:Book")[title]
    assert stored["vec"] == pytest.approx(vector_of("ebb", 2))
    assert stored["title_vec"] == (pytest.approx(vector_of(title, 2)) if asked else None)


def test_the_command_line_asks_a_server_for_it(
    server: RunningServer, graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d.jsonl").write_text(book("asked", "ebb"))
    arguments = ["--data", str(tmp_path / "d.jsonl"), "--mode", "append", "--embed", "--quiet"]
    assert command(["load", "--server", server.url, "--graph", "kb", *arguments]) == 0, capsys.readouterr().err
    assert rows(graph, "node:Book")["asked"]["title_vec"] == pytest.approx(vector_of("asked", 2))


def test_a_provider_that_fails_is_told_and_nothing_is_written(
    server: RunningServer, graph: Graph, provider: EmbeddingServer
) -> None:
    before = graph.snapshot().commit_id
    provider.faults.append(Reply(401, {"error": {"message": "no such key: sk-planted-0123"}}))
    body = {"query": ADD, "name": "add", "params": {"t": "z", "b": "a private text"}}
    answer = server.client.post("/graphs/kb/mutate", json=body)
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "embedding request failed with status 401: no such key: [redacted]" in answer.json()["error"]
    assert graph.snapshot().commit_id == before
