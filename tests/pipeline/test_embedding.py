"""Vectors computed on executors: where the schema or a load asks for them, by a real provider, and paid for once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from omnigraph import Graph
from omnigraph.cli.main import run as command
from omnigraph.errors import BadRequestError, ConstraintError, EmbeddingError
from omnigraph.pipeline import OmnigraphDataSource, reembed
from tests.engine.stored import rows
from tests.pipeline.library import ndjson
from tests.support.embedding_server import Reply, embedding_server, vector_of

SCHEMA = """
node Page {
    name: String @key
    text: String?
    vec: Vector(3) @embed("text", on_write=true)
    name_vec: Vector(3)? @embed("name")
}
"""


def page(name: str, text: str | None) -> dict[str, Any]:
    return {"type": "Page", "data": {"name": name, "text": text}}


def load(graph: Graph, data: Path, *more: str) -> int:
    return command(["load", graph.uri, "--mode", "merge", "--data", str(data), "--engine", "spark", *more])


def vectors(graph: Graph, column: str = "vec") -> dict[str, list[float] | None]:
    return {name: row[column] for name, row in rows(graph, "node:Page").items()}


def test_executors_compute_what_the_schema_says(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    with embedding_server() as provider:
        for name, value in {
            "OMNIGRAPH_EMBED_PROVIDER": "openai",
            "OMNIGRAPH_EMBED_BASE_URL": provider.url,
            "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": "1",
            "OMNIGRAPH_EMBED_RETRY_ATTEMPTS": "2",
            "OMNIGRAPH_EMBED_CACHE": str(tmp_path / "cache"),
            "OPENAI_API_KEY": "key",
        }.items():
            monkeypatch.setenv(name, value)
        data = ndjson(tmp_path / "pages.ndjson", [page("a", "one"), page("b", "two"), page("c", "one")])
        provider.faults.append(Reply(503, "busy"))

        assert load(graph, data, "--embed") == 0, capsys.readouterr().err
        expected = {
            name: pytest.approx(vector_of(text, 3)) for name, text in zip("abc", ("one", "two", "one"), strict=True)
        }
        assert vectors(graph) == expected
        assert vectors(graph, "name_vec") == {name: pytest.approx(vector_of(name, 3)) for name in "abc"}
        answered = len(provider.asked)
        assert load(graph, data) == 0
        assert len(provider.asked) == answered

        # A row that should have a vector and has no text is a bad row, and nothing is asked for its like.
        assert load(graph, ndjson(tmp_path / "bad.ndjson", [page("d", None)])) == 1
        assert "'vec' has no value, and 'text' has no text to embed" in capsys.readouterr().err

        # The sink of the data source, in this process: Spark's own has the variables that Java was started with.
        options = {"graph": graph.uri, "type": "Page", "mode": "merge"}
        writer = OmnigraphDataSource(options).writer(StructType(), False)
        writer.commit([writer.write(iter([pa.record_batch({"name": ["e"], "text": ["two"]})]))])
        assert vectors(graph)["e"] == pytest.approx(vector_of("two", 3))
        assert len(provider.asked) == answered
        with pytest.raises(ConstraintError, match="has no text to embed"):
            writer.write(iter([pa.record_batch({"name": ["f"], "text": [" "]})]))

        monkeypatch.delenv("OPENAI_API_KEY")
        with pytest.raises(EmbeddingError, match="OPENAI_API_KEY is required"):
            reembed(graph, "Page", "vec", spark=spark, only_missing=False)
        graph.schema.apply(SCHEMA.replace("}", '    third: Vector(3)? @embed("text", model="m")\n}'))
        with pytest.raises(BadRequestError, match="model 'm', but texts are embedded with 'text-embedding-3-large'"):
            reembed(graph, "Page", "third", spark=spark)
