"""Stored rows get new vectors as one commit, and lose nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.embeddings.client import open_client
from omnigraph.embeddings.configuration import EmbeddingConfig, config_from_environment
from omnigraph.errors import BadRequestError
from omnigraph.pipeline import reembed
from omnigraph.storage.log.tracing import Trace
from tests.engine.stored import rows

SCHEMA = """
node Page {
  name: String @key
  text: String?
  photo: Blob?
  vec: Vector(3)? @embed("text") @index
}
"""
MOCK = config_from_environment({"OMNIGRAPH_EMBEDDINGS_MOCK": "1"})


def page(name: str, text: str | None, **more: Any) -> str:
    return json.dumps({"type": "Page", "data": {"name": name, "text": text, **more}})


def expected(text: str, config: EmbeddingConfig = MOCK) -> list[float]:
    return open_client(config).embed_documents([text], 3)[0].tolist()


class OtherWriter(Trace):
    """Commits once to the same branch, when the first version is staged: writers of one process wait for a publish."""

    def __init__(self, uri: str, *lines: str) -> None:
        super().__init__()
        self._lines = list(lines)
        self.observer = lambda point: self._commit(uri) if point == "stage.commit.after" else None

    def _commit(self, uri: str) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            Graph.open(uri).load("\n".join(lines), mode="merge")


def test_missing_vectors_are_filled_and_then_all_are_made_anew(tmp_path: Path, spark: SparkSession) -> None:
    created = Graph.init(tmp_path / "graph", SCHEMA)
    own = [0.0, 0.0, 1.0]
    created.load(
        "\n".join(
            [page("a", "one", photo="base64:aGk="), page("b", "two", vec=own), page("c", None), page("g", " \t")]
        ),
        mode="append",
    )
    created.load(page("d", "one"), mode="append")
    created.maintenance.optimize()

    graph = Graph.open(created.uri, trace=OtherWriter(created.uri, page("e", "five")))
    outcome = reembed(graph, "Page", "vec", spark=spark, config=MOCK, index=True, actor="nightly")

    stored = rows(graph, "node:Page")
    assert outcome.embedded == 3
    assert {name: row["vec"] for name, row in stored.items()} == {
        "a": pytest.approx(expected("one")), "b": own, "c": None, "g": None, "d": pytest.approx(expected("one")),
        "e": pytest.approx(expected("five")),
    }  # fmt: skip
    assert stored["a"]["photo"] == b"hi"
    assert outcome.commit is not None
    assert outcome.commit.actor_id == "nightly"
    changed = {c.id for c in graph.changes.of(outcome.commit.commit_id)}
    assert changed == {"a", "d", "e"}
    assert reembed(graph, "Page", "vec", spark=spark, config=MOCK).commit is None

    again = reembed(graph, "Page", "vec", spark=spark, config=MOCK, only_missing=False, index=True)
    assert again.embedded == 4
    assert rows(graph, "node:Page")["b"]["vec"] == pytest.approx(expected("two"))
    assert {c.id for c in graph.changes.of(again.commit.commit_id if again.commit else "")} == {"b"}
    nearest = graph.query(
        "query near($v: Vector(3)) { match { $p: Page } return { $p.name } order { nearest($p.vec, $v) } limit 1 }",
        params={"v": np.array(expected("two")).tolist()},
    )
    assert [list(row.values()) for row in nearest.rows()] == [["b"]]
    assert graph.maintenance.verify().clean


def test_only_properties_with_an_embed_source_can_be_made_anew(tmp_path: Path, spark: SparkSession) -> None:
    graph = Graph.init(tmp_path / "graph", "node Page { name: String @key  vec: Vector(3)? }")
    with pytest.raises(BadRequestError, match=r"Page\.vec has no @embed source"):
        reembed(graph, "Page", "vec", spark=spark, config=MOCK)
    with pytest.raises(BadRequestError, match="no vector property 'vecc'; did you mean 'vec'"):
        reembed(graph, "Page", "vecc", spark=spark, config=MOCK)
