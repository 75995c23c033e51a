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

from omnigraph import Graph
from omnigraph.api.governance import Limits
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
    csv(tmp_path / "ends.csv", "src,book", "ann,b1")
    csv(tmp_path / "bad.csv", "name,age,email", "eve,200,", "ann,1,")
    for engine in ("local", "spark"):
        here = ["--engine", engine]
        message = refused(capsys, graph, "--data", str(tmp_path / "odd.csv"), "--type", "Reader", *here)
        assert f"{tmp_path}/odd.csv: node:Reader has no property for the column 'nickname'" in message
        message = refused(capsys, graph, "--data", str(tmp_path / "ends.csv"), "--type", "Likes", *here)
        assert (
            f"{tmp_path}/ends.csv: rows of the edge type Likes need the columns from and to, or src and dst" in message
        )
        message = refused(capsys, graph, "--data", str(tmp_path / "bad.csv"), "--type", "Reader", *here, mode="merge")
        place = "line 2" if engine == "local" else "line 2 (row 1)"
        assert f"{tmp_path}/bad.csv, {place}: node:Reader: @range violation on Reader.age" in message
    assert graph.snapshot().commit_id == before


def test_a_file_of_rows_means_the_same_to_both_engines(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other engine takes over where a process has enough: nobody may see that in the graph."""
    readers = csv(tmp_path / "readers.csv", "name,age,email", 'ann,"34",ann@x', '"b ""o"" b",,', 'c,"+5",c@x')
    books = pa.table(
        {
            "isbn": ["b1", "b2"],
            "title": ["Solaris", "two\nlines"],
            "printed": pa.array(["1961-02-03", None]),
            "pages": pa.array([204.0, None]),
            "rating": pa.array([9, 10]),
        }
    )
    pq.write_table(books, tmp_path / "books.parquet")
    likes = ndjson(tmp_path / "borrowed.ndjson", [{"from": "ann", "to": "b1", "on": "2020-01-01", "id": "e1"}])
    none = csv(tmp_path / "none.csv", "name,age,email")
    no_loans = csv(tmp_path / "no-loans.csv", "from,to,on")
    here, there = library(tmp_path / "here"), library(tmp_path / "there")

    def small(target: Any) -> Graph:
        return Graph.open(target.uri).with_limits(Limits(rows=0))

    receipts = []
    for graph, limited in ((here, False), (there, True)):
        if limited:
            monkeypatch.setattr("omnigraph.cli.commands.load.open_graph", small)
        told = []
        for file, type_name in ((readers, "Reader"), (tmp_path / "books.parquet", "Book"), (likes, "Borrowed")):
            assert (
                command(["load", graph.uri, "--mode", "append", "--json", "--data", str(file), "--type", type_name])
                == 0
            )
            captured = capsys.readouterr()
            assert (": loading on Spark" in captured.err) is limited
            told.append(timeless(json.loads(captured.out)))
        receipts.append(told)
    assert receipts[0] == receipts[1]
    assert everything(there) == everything(here)
    for engine, graph in (("local", here), ("spark", there)):
        empty = ["--data", str(none), "--type", "Reader", "--engine", engine]
        version = graph.snapshot().version
        told = load(capsys, graph, *empty)
        assert (told["nodes"], told["commit"], graph.snapshot().version) == ([], None, version)
        told = load(capsys, graph, *empty, "--branch", "new", "--from", "main")
        assert (told["branch_created"], told["commit"], graph.snapshot("new").version) == (True, None, version)
        refused(capsys, graph, *empty, mode="overwrite")  # a loan would end in nothing
        no_edges = ["--data", str(no_loans), "--type", "Borrowed", "--engine", engine]
        assert load(capsys, graph, *no_edges, mode="overwrite")["edges"][0]["entities_loaded"] == 0
        assert load(capsys, graph, *empty, mode="overwrite")["nodes"][0]["entities_loaded"] == 0
    assert everything(there) == everything(here)
    assert here.snapshot().count("node:Reader") == 0
