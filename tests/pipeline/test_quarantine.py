"""Bad rows on their way out and back: whole, once each with all that is wrong, and loaded when they were corrected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.cli.main import run as command
from omnigraph.engine.rows.kernels.ndjson import record_of, records_of
from omnigraph.language.catalog import Catalog
from omnigraph.pipeline import read_pipeline, run
from omnigraph.pipeline.execution.rejected_records import loose_record
from tests.engine.stored import everything
from tests.pipeline.library import book, csv, edge, ndjson, reader, rejected_rows

SCHEMA = """
node Reader { name: String @key  age: I32?  email: String? @unique  photo: Blob?  @range(age, 0..150) }
node Book { isbn: String @key  title: String  printed: Date?  rating: F64?  good: Bool? }
edge Likes: Reader -> Book { since: Date?  weight: F64? }
"""
LONG = "long " * 3_000
PIPELINE = """
version: 1
mode: append
sources:
  people: {format: csv, path: people.csv, options: {header: true}}
  books: {format: csv, path: books.csv, options: {header: true}}
  more: {format: graph, path: more.ndjson}
nodes:
  Reader: {from: people, select: {name: name, age: age, email: email, photo: photo}}
  Book: {from: books, select: {isbn: isbn, title: title, printed: printed, rating: rating, good: good}}
quality: {on_error: quarantine, quarantine: out}
"""


def test_what_was_refused_is_whole_and_comes_back_corrected(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    csv(
        tmp_path / "people.csv",
        "name,age,email,photo",
        "ann,30,a@x,",
        "bob,old,b@x,base64:aGk=",
        "cid,31,a@x,base64:aG8=",
    )
    csv(
        tmp_path / "books.csv",
        "isbn,title,printed,rating,good",
        f'1,"{LONG}",soon,much,TRUE',
        "2,two,2001-02-03,0.5,true,7",
    )
    lines = [
        edge("Likes", "none", "nowhere", since="2020-01-01"),
        '{"type": "Reader", "data": {"name": "eve", "name": "x"}}',
    ]
    ndjson(tmp_path / "more.ndjson", [*lines, reader("fay", age="x", email=5)])
    report = run(read_pipeline(PIPELINE, directory=str(tmp_path)), graph=graph, spark=spark)

    assert set(everything(graph)["node:Reader"]) == {"ann"}
    kept = {(row["source"], row["row"]): row for row in rejected_rows(report.quarantine or "")}
    assert len(kept) == report.rejected == len(report.samples) == 7
    assert [p["reason"] for p in kept["books", 1]["problems"]] == kept["books", 1]["reason"].split("; ")
    assert {p["property"] for p in kept["books", 1]["problems"]} == {"printed", "rating"}
    assert [p["property"] for p in kept["more", 1]["problems"]] == ["src", "dst"]
    assert [p["property"] for p in kept["more", 3]["problems"]] == ["age", "email"]
    found = {place: row["record"] for place, row in kept.items()}
    assert json.loads(found["people", 2]) == reader("bob", age="old", email="b@x", photo="base64:aGk=")
    assert json.loads(found["people", 3])["data"] == {
        "id": "cid", "name": "cid", "age": 31, "email": "a@x", "photo": "base64:aG8=",
    }  # fmt: skip
    assert json.loads(found["books", 1]) == book("1", LONG, printed="soon", rating="much", good=True)
    assert found["books", 2] == "2,two,2001-02-03,0.5,true,7"
    assert json.loads(found["more", 1])["edge"] == "Likes"
    assert found["more", 2] == lines[1]

    # Corrected in place, by hand or by program, and loaded as a file in process or as the directory on Spark.
    corrections: dict[Any, Any] = {
        ("people", 2): reader("bob", age=32, email="b@x", photo="base64:aGk="),
        ("people", 3): json.dumps(reader("cid", age=31, email="c@x")),
        ("books", 1): book("1", LONG, rating=0.5, good=True),
        ("books", 2): json.dumps(book("2", "two"), indent=1),
        ("more", 1): edge("Likes", "ann", "1", id="e"),
        ("more", 2): '{"type": "Reader", "data": {"name": "eve"}}',
        ("more", 3): reader("fay", age=20, email="f@x"),
    }
    (file,) = Path(report.quarantine or "").glob("*.json")
    uncorrected = file.read_text()
    corrected = [{**row, "record": corrections[place]} for place, row in kept.items()]
    two = [graph, Graph.init(tmp_path / "other", SCHEMA)]
    two[1].load(json.dumps(reader("ann", age=30, email="a@x")), mode="append")
    for target, data in zip(two, (file, file.parent), strict=True):
        file.write_text(uncorrected)
        before = target.snapshot().commit_id
        assert command(["load", target.uri, "--mode", "append", "--data", str(data)]) == 1
        assert target.snapshot().commit_id == before
        ndjson(file, corrected)
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
        assert command(["load", target.uri, "--mode", "append", "--data", str(data)]) == 0
        assert "7 entities" in capsys.readouterr().out
    first, second = map(everything, two)
    assert first == second
    assert (first["node:Reader"]["bob"]["age"], first["node:Book"]["1"]["title"]) == (32, LONG)


def test_a_line_is_taken_for_a_quarantine_line_only_if_it_can_be_nothing_else() -> None:
    told = {"source": "s", "row": 1, "reason": "r", "record": {"type": "T", "data": {"n": 2}}}
    line = json.dumps(told).encode()
    assert record_of(line) == b'{"type": "T", "data": {"n": 2}}'
    verbatim = b'{"type": "T", "data": {"a": 123456789012345678901234567890, "a": 1}}'
    assert record_of(b'{"reason":"","row":2,"source":"s","record":%s}' % verbatim) == verbatim
    assert record_of(json.dumps({**told, "record": " \n"}).encode()) == b'""'
    assert record_of(json.dumps({**told, "record": "a\r\nb"}).encode()) == b"a b"
    for other in (
        {**told, "data": {}},
        {**told, "edge": "E"},
        {"type": "T", "data": {"record": 1}},
        {**told, "row": "x"},
    ):
        assert record_of(json.dumps(other).encode()) == json.dumps(other).encode()
    lines = [b'{"type": "T"}', b"", line, b'"record"', b"x"]
    whole = b"\n".join(lines)
    for size in (1, 7, 1_000):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert b"".join(records_of(pieces)) == b"\n".join([*lines[:2], record_of(line), *lines[3:]])


def test_values_of_any_column_become_what_load_reads(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    catalog: Catalog = graph.catalog
    columns = {
        "name": pa.array([b"raw"]),
        "age": pa.array([5.0]),
        "photo": pa.array([b"hi"]),
        "id": pa.array([None], pa.string()),
    }
    assert json.loads(loose_record(catalog.nodes["Reader"], pa.record_batch(columns), 0)) == {
        "type": "Reader",
        "data": {"name": "base64:cmF3", "age": 5, "photo": "base64:aGk="},
    }
    since = pa.array([18_262], pa.int32()).cast(pa.date32())
    ends = {"from": pa.array([7]), "to": pa.array(["b"]), "since": since, "weight": pa.array([float("nan")])}
    assert json.loads(loose_record(catalog.edges["Likes"], pa.record_batch(ends), 0)) == {
        "edge": "Likes", "from": "7", "to": "b", "data": {"since": "2020-01-01", "weight": "nan"},
    }  # fmt: skip
