"""Updates on Spark and in this process: the same rows, the same counts and the same refusals."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.errors import OmniGraphError, RowsRejectedError
from omnigraph.pipeline import BulkInput, load_on_spark, read_pipeline, run
from tests.engine.stored import everything
from tests.pipeline.library import csv, ndjson, quarantine, records, rejected_rows

SCHEMA = """
node Reader {
  name: String @key
  age: I32?
  email: String? @unique
  photo: Blob?
  tags: [String]?
  @range(age, 0..150)
}
node Memo { text: String  note: String?  day: Date?  score: F32? }
edge Likes: Reader -> Memo @card(0..2) { note: String? }
edge Knows: Reader -> Reader { since: Date?  @key(@src, @dst) }
"""
COUNTS = ("entities_loaded", "inserted", "updated", "unchanged")


def stored() -> list[dict[str, Any]]:
    readers = [{"name": f"r{n}", "age": n, "email": f"{n}@x", "photo": "base64:aGk=", "tags": ["a"]} for n in range(30)]
    return [
        *({"type": "Reader", "data": each} for each in readers),
        *({"type": "Memo", "id": f"m{n}", "data": {"text": "t", "note": "n", "score": n / 3}} for n in range(30)),
        *({"edge": "Likes", "id": f"l{n}", "from": f"r{n}", "to": "m1", "data": {"note": "x"}} for n in range(30)),
        *({"edge": "Knows", "from": f"r{n}", "to": "r0", "data": {"since": "2020-01-01"}} for n in range(1, 30)),
    ]


def two_graphs(tmp_path: Path) -> tuple[Graph, Graph]:
    graphs = Graph.init(tmp_path / "here", SCHEMA), Graph.init(tmp_path / "there", SCHEMA)
    for graph in graphs:
        graph.load("\n".join(map(json.dumps, stored())), mode="append")
    return graphs


def changes(seed: int) -> list[dict[str, Any]]:
    """Partial records of every kind, some of which say what is stored already; ids of Memos repeat."""
    chance = random.Random(seed)
    values: dict[str, list[Any]] = {
        "age": [None, 5, 7],
        "photo": [None, "base64:aGk=", "base64:", "base64:aGo="],
        "tags": [None, [], ["a"], ["b", "c"]],
    }
    made: list[dict[str, Any]] = []
    for n in chance.sample(range(30), 20):
        data = {name: chance.choice(of) for name, of in values.items() if chance.random() < 0.5}
        made.append({"type": "Reader", "data": {"name": f"r{n}", **data}})
    for _ in range(40):
        of = {"text": ["t", "u"], "note": [None, "n", "o"], "day": ["2020-02-29", None], "score": [0, 0.5]}
        data = {name: chance.choice(each) for name, each in of.items() if chance.random() < 0.4}
        made.append({"type": "Memo", "id": f"m{chance.randrange(30)}", "data": data})
    for n in chance.sample(range(30), 10):
        ends = {name: f"{kind}{chance.randrange(30)}" for name, kind in (("from", "r"), ("to", "m"))}
        moved = {name: node for name, node in ends.items() if name == "to" and chance.random() < 0.5}
        data = {"note": chance.choice(["x", None, "y"])} if chance.random() < 0.5 else {}
        made.append({"edge": "Likes", "id": f"l{n}", **moved, "data": data})
    for n in chance.sample(range(1, 30), 8):
        made.append({"edge": "Knows", "from": f"r{n}", "to": "r0", "data": {"since": chance.choice([None, "2020-01-01"])}})
    return made


def counts(receipt: Any) -> dict[str, tuple[int, ...]]:
    types = (*receipt.nodes, *receipt.edges)
    return {each.name: tuple(getattr(each, name) for name in COUNTS) for each in types}


def bulk(graph: Graph, spark: SparkSession, *paths: Path, format: str = "graph", **more: Any) -> Any:
    inputs = [BulkInput(str(path), format) for path in paths]
    return load_on_spark(graph, inputs, mode="update", spark=spark, **more)


@pytest.mark.parametrize("seed", range(3))
def test_both_engines_change_the_same_and_count_the_same(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    here, there = two_graphs(tmp_path)
    file = ndjson(tmp_path / "all.ndjson", changes(seed))
    local = here.load(file, mode="update")
    spread = bulk(there, spark, file)
    assert counts(spread) == counts(local)
    assert everything(there) == everything(here)
    assert (local.updated or 0) > 10
    assert (local.unchanged or 0) > 5
    again = bulk(there, spark, file)
    assert everything(there) == everything(here)
    assert again.updated == here.load(file, mode="update").updated
