"""`omnigraph load` on Spark: what one process can't read becomes the commit that `load` promises, with its receipt."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from omnigraph.cli.main import run as command
from tests.engine.stored import everything
from tests.pipeline.library import book, csv, edge, library, ndjson, reader

RECORDS = [
    *(reader(f"r{n}", age=n, email=f"{n}@x") for n in range(8)),
    *(book(f"b{n}", printed="2001-02-03", rating=n / 3) for n in range(4)),
    edge("Borrowed", "r1", "b1", id="e1", on="2020-01-01"),
    edge("Likes", "r1", "b2", id="e2"),
]


def load(capsys: pytest.CaptureFixture[str], graph: Any, *arguments: str, mode: str = "append") -> Any:
    assert command(["load", graph.uri, "--mode", mode, "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], graph: Any, *arguments: str, mode: str = "append") -> str:
    assert command(["load", graph.uri, "--mode", mode, *arguments]) == 1
    return capsys.readouterr().err


def timeless(receipt: Any) -> Any:
    ids = ("graph_commit_id", "parent_commit_id", "created_at")
    return {**receipt, "uri": "", "commit": {k: v for k, v in receipt["commit"].items() if k not in ids}}


def test_both_engines_make_the_same_graph_and_the_same_receipt(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ndjson(tmp_path / "all.ndjson", RECORDS)
    parts = tmp_path / "parts [1]"
    ndjson(parts / "readers.ndjson", RECORDS[:8])
    (parts / "deeper").mkdir()
    (parts / "deeper/rest.json.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, RECORDS[8:])).encode()))
    here, there = library(tmp_path / "here"), library(tmp_path / "there")
    branch = ["--branch", "nightly", "--from", "main", "--as", "ada"]

    local = load(capsys, here, "--data", str(file), *branch)
    bulk = load(capsys, there, "--data", str(parts), *branch)

    assert timeless(bulk) == timeless(local)
    assert bulk["branch_created"] is True
    assert bulk["total_entities"] == len(RECORDS)
    assert everything(there, "nightly") == everything(here, "nightly")
    assert there.snapshot().count("node:Reader") == 0

    twice = ndjson(tmp_path / "twice.ndjson", [edge("Likes", f"r{n}", f"b{n}", id="e2") for n in (2, 3)])
    for graph, engine in ((here, "local"), (there, "spark")):
        load(capsys, graph, "--data", str(twice), "--engine", engine, "--branch", "nightly", mode="merge")
    assert everything(there, "nightly") == everything(here, "nightly")


def test_rows_of_one_type_are_taken_by_their_column_names(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = library(tmp_path / "g")
    csv(tmp_path / "in/a.csv", "name,age,email", "ann,34,", "bob,,bob@x")
    csv(tmp_path / "in/b.csv", "name,age,email", "cid,5,cid@x")
    assert load(capsys, graph, "--data", str(tmp_path / "in/*.csv"), "--type", "Reader")["total_entities"] == 3
    pq.write_table(pa.table({"isbn": ["b1"], "title": ["Solaris"], "pages": [204]}), tmp_path / "books.parquet")
    load(capsys, graph, "--data", str(tmp_path / "books.parquet"), "--type", "Book")
    ndjson(tmp_path / "likes.ndjson", [{"src": "ann", "dst": "b1"}, {"src": "cid", "dst": "b1"}])
    load(capsys, graph, "--data", str(tmp_path / "likes.ndjson"), "--type", "Likes")
    assert graph.entity("node:Reader", "ann") == {"id": "ann", "name": "ann", "age": 34, "email": None}
    assert graph.snapshot().count("edge:Likes") == 2
    before = graph.snapshot().commit_id

    csv(tmp_path / "odd.csv", "name,nickname,aeg", "dan,d,3")
    message = refused(capsys, graph, "--data", str(tmp_path / "odd.csv"), "--type", "Reader")
    assert "node:Reader has no property for the column 'nickname'" in message
    csv(tmp_path / "ends.csv", "src,book", "ann,b1")
    message = refused(capsys, graph, "--data", str(tmp_path / "ends.csv"), "--type", "Likes")
    assert "need the columns from and to, or src and dst; there are src, book" in message
    csv(tmp_path / "bad.csv", "name,age,email", "eve,200,", "ann,1,")
    message = refused(capsys, graph, "--data", str(tmp_path / "bad.csv"), "--type", "Reader", mode="merge")
    assert "1 row was rejected; nothing was written:" in message
    assert f"{tmp_path}/bad.csv, row 1: node:Reader: @range violation on Reader.age" in message
    assert graph.snapshot().commit_id == before
