"""Parquet that tasks read by themselves: the same graph and refusals as by Spark's reader, or Spark reads it."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.api.enums import LoadMode
from omnigraph.errors import BadRequestError
from omnigraph.pipeline import Pipeline, run
from omnigraph.pipeline.file import OnError, Quality, Source, TypeMapping
from omnigraph.pipeline.sources import parquet_files as reading
from omnigraph.pipeline.sources.parquet_files import ParquetFiles
from omnigraph.pipeline.sources.source_frames import SourceFrames
from tests.engine.stored import rows
from tests.pipeline.library import rejected_rows

SCHEMA = """
node Thing {
  name: String @key  note: String?  flag: Bool?  small: I32?  large: I64?  ratio: F64?  day: Date?
  @range(small, 0..100)
}
edge Near: Thing -> Thing { weight: F32? }
"""
COLUMNS = ("name", "note", "flag", "small", "large", "ratio", "day")
THINGS = {column: column for column in COLUMNS}


def things(first: int, count: int) -> pa.Table:
    """Rows with nulls everywhere, and one in ten that is refused."""
    numbers = range(first, first + count)

    def some(make: Any) -> list[Any]:
        return [None if n % 7 == 0 else make(n) for n in numbers]

    return pa.table(
        {
            "name": pa.array([f"thing {n}" for n in numbers]),
            "note": pa.array(some(lambda n: f"ü {n % 3}")),
            "flag": pa.array(some(lambda n: n % 2 == 0)),
            "small": pa.array(some(lambda n: -1 if n % 10 == 0 else n % 100), pa.int16()),
            "large": pa.array(some(lambda n: n << 40), pa.int64()),
            "ratio": pa.array(some(lambda n: float("nan") if n % 11 == 0 else n / 3), pa.float32()),
            "day": pa.array(some(lambda n: datetime.date(1969, 1, 1) + datetime.timedelta(days=n))),
        }
    )


def write(at: Path) -> None:
    """Files of several writers: groups of a few rows, encoded texts, other codecs, columns in another order."""
    at.mkdir()
    pq.write_table(things(0, 50), at / "a.parquet", row_group_size=7)
    encoded = things(50, 30)
    note = encoded.schema.get_field_index("note")
    encoded = encoded.set_column(note, "note", encoded.column("note").dictionary_encode())
    name = pa.array(encoded.column("name").to_pylist(), pa.large_string())
    pq.write_table(encoded.set_column(0, "name", name), at / "b.parquet", compression="zstd")
    pq.write_table(things(80, 20).select(COLUMNS[::-1]), at / "c.parquet", compression="gzip")
    pq.write_table(things(0, 50).slice(0, 0), at / "empty.parquet")
    things_of = [(f"thing {n}", f"thing {n * 13 % 101}", n / 2) for n in range(40)]
    pq.write_table(pa.table(list(zip(*things_of, strict=True)), ["a", "b", "weight"]), at.parent / "near.parquet")


def pipeline(at: Path, options: dict[str, str]) -> Pipeline:
    return Pipeline(
        "things",
        {
            "things": Source("things", "parquet", "things", options),
            "near": Source("near", "parquet", "near.parquet", options),
        },
        (TypeMapping("Thing", "things", THINGS), TypeMapping("Near", "near", {"weight": "weight"}, "a", "b")),
        mode=LoadMode.APPEND,
        quality=Quality(OnError.QUARANTINE, str(at / f"rejected{len(options)}")),
        directory=str(at),
    )


def test_tasks_and_spark_read_the_same(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_ROWS_PER_TASK", 20)
    write(tmp_path / "things")
    by_tasks, by_spark = (pipeline(tmp_path, options) for options in ({}, {"mergeSchema": "false"}))
    read_by_tasks = [SourceFrames(spark, model)._read_by_tasks("things") for model in (by_tasks, by_spark)]
    assert read_by_tasks[0] is not None
    assert len(read_by_tasks[0].parts) > len(read_by_tasks[0].groups()) > 3
    assert read_by_tasks[1] is None
    found = [_made(model, tmp_path / f"graph{number}", spark) for number, model in enumerate((by_tasks, by_spark))]
    assert found[0] == found[1]
    things_made, edges, refused, counts = found[0]
    assert 0 < len(things_made) < 100
    assert 0 < len(edges) < 40
    assert ("node:Thing", 100) in counts
    low = "@range violation on Thing.small: value -1 < min 0"
    assert ("things", str(tmp_path / "things/b.parquet"), 11, low) in refused


def _made(model: Pipeline, at: Path, spark: SparkSession) -> Any:
    with Graph.init(at, SCHEMA) as graph:
        report = run(model, graph=graph, spark=spark)
        nodes = {key: repr(row) for key, row in rows(graph, "node:Thing").items()}
        edges = sorted((row["src"], row["dst"], row["weight"]) for row in rows(graph, "edge:Near").values())
    refused = sorted(
        (row["source"], row["file"], row["row"], row["reason"]) for row in rejected_rows(report.quarantine or "")
    )
    return nodes, edges, refused, [(count.type_key, count.read) for count in report.types]


def opened(spark: SparkSession, at: Path) -> ParquetFiles | None:
    frame = spark.read.parquet(str(at))
    return ParquetFiles.open(frame.inputFiles(), frame.schema)


def test_what_the_readers_may_see_differently_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 1, 1)
    table = pa.table(
        {
            "text": ["a"],
            "Text2": ["b"],
            "unsigned": pa.array([1], pa.uint32()),
            "moment": pa.array([moment], pa.timestamp("ms")),
            "list": [[1]],
            "struct": [{"text": "inner"}],
            "bytes": [b"x"],
            "null": ["c"],
        }
    )
    pq.write_table(table, tmp_path / "one.parquet")
    files = opened(spark, tmp_path / "one.parquet")
    assert files is not None
    assert files.columns == {"text", "Text2", "null"}
    assert files.serves({"a": "text", "b": "Text2", "c": "text", "d": "`null`"})
    for expression in (
        "upper(text)",
        "TEXT",
        "null",
        "`struct.text`",
        "`a``b`",
        "text || 'x'",
        "unsigned",
        "other",
        "1",
    ):
        assert not files.serves({"a": expression}), expression

    (tmp_path / "split" / "day=1").mkdir(parents=True)
    pq.write_table(table.select(["text"]), tmp_path / "split" / "day=1" / "x.parquet")
    assert opened(spark, tmp_path / "split") is None

    (tmp_path / "grown").mkdir()
    pq.write_table(table.select(["text"]), tmp_path / "grown" / "a.parquet")
    pq.write_table(table.select(["text", "Text2"]), tmp_path / "grown" / "b.parquet")
    grown = opened(spark, tmp_path / "grown")
    assert grown is not None
    assert grown.columns == {"text"}

    old = table.select(["text"]).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    pq.write_table(old, tmp_path / "old.parquet")
    assert opened(spark, tmp_path / "old.parquet") is None


def test_small_files_share_a_task(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "things")
    files = opened(spark, tmp_path / "things")
    assert files is not None
    assert [Path(part.file).name for part in files.parts] == ["a.parquet", "b.parquet", "c.parquet", "empty.parquet"]
    assert files.groups() == [[0, 1, 2, 3]]


def test_a_file_that_goes_bad_during_a_run_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "things")
    files = opened(spark, tmp_path / "things")
    assert files is not None
    (tmp_path / "things" / "b.parquet").write_bytes(b"PAR1 no longer PAR1")
    number = next(n for n, part in enumerate(files.parts) if part.file.endswith("b.parquet"))
    with pytest.raises(BadRequestError, match=r"things/b\.parquet: "):
        list(files.read(number, THINGS))


def test_rows_of_one_source_have_one_number_each(spark: SparkSession, tmp_path: Path) -> None:
    """A mapping that needs Spark keeps the other mappings of its source with Spark as well."""
    write(tmp_path / "things")
    model = pipeline(tmp_path, {})
    mixed = replace(model, mappings=(*model.mappings, TypeMapping("Thing", "things", THINGS, where="flag")))
    assert SourceFrames(spark, model)._read_by_tasks("things") is not None
    assert SourceFrames(spark, mixed)._read_by_tasks("things") is None
