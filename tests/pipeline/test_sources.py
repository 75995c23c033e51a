"""Every kind of source in one run: its rows arrive, and a bad row is reported by file and row, wherever it stands."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from omnigraph import Graph
from omnigraph.api.enums import LoadMode
from omnigraph.errors import BadRequestError
from omnigraph.pipeline import Pipeline, run
from omnigraph.pipeline.file import OnError, Quality, Source, SparkSettings, TypeMapping
from omnigraph.pipeline.sources.fingerprints import Digests
from omnigraph.pipeline.sources.source_frames import SourceFrames, columns_named_in
from omnigraph.pipeline.spark.session import session_of_run
from tests.engine.stored import rows
from tests.pipeline.library import csv, rejected_rows

SCHEMA = "node Part { name: String @key  amount: I32  vec: Vector(2)?  @range(amount, 0..9000) }"
SELECT = {"name": "name", "amount": "amount"}
BIG_ROWS = 4_000
SPLIT_BYTES = 8 << 10
TOO_LOW = "@range violation on Part.amount: value -1 < min 0"
NOT_A_NUMBER = "property 'amount': expects I32, got a string"
TOO_MANY = "the record is malformed: it has 3 values where its file has 2 columns"
MALFORMED = "the record is malformed: it does not have the columns of its file"


@dataclass(frozen=True)
class Case:
    """A source, the parts it brings, and its bad rows as (file below the test's directory, row, reason)."""

    source: Source
    parts: set[str]
    bad: list[tuple[str | None, int, str]]
    select: dict[str, str] | None = None


def parts(spark: SparkSession, prefix: str) -> DataFrame:
    """Three rows in one file, of which the last is bad."""
    amounts = ", ".join(f"('{prefix}{n}', {amount})" for n, amount in enumerate((5, 6, -1)))
    return spark.sql(f"select * from values {amounts} as t(name, amount)").coalesce(1)


def cases(spark: SparkSession, at: Path) -> Iterator[Case]:
    csv(at / "csv/a.csv", "name,amount", "csv0,1", "csv1,x")
    csv(at / "csv/b.csv", "name,amount", "csv2,3", "csv3,4", "csv4,5,6")
    bad = [("csv/a.csv", 2, NOT_A_NUMBER), ("csv/b.csv", 3, TOO_MANY)]
    yield Case(Source("some_csv", "csv", "csv/*.csv", {"header": "true"}), {"csv0", "csv2", "csv3"}, bad)

    lines = [f"big{n:05},{n}" for n in range(BIG_ROWS - 1)]
    csv(at / "big.csv", "name,amount", *lines, "last,many")
    big = {line.split(",")[0] for line in lines}
    yield Case(
        Source("big_csv", "csv", "big.csv", {"header": "true"}), big, [("big.csv", BIG_ROWS, NOT_A_NUMBER)]
    )  # fmt: skip

    (at / "zipped").mkdir()
    texts = [json.dumps({"name": f"zip{n}", "amount": n}) for n in range(3)]
    (at / "zipped/a.ndjson.gz").write_bytes(gzip.compress("\n".join([*texts, '{"name": "zip3", ', ""]).encode()))
    yield Case(
        Source("zipped", "json", "zipped"), {"zip0", "zip1", "zip2"}, [("zipped/a.ndjson.gz", 4, MALFORMED)]
    )  # fmt: skip

    (at / "words.txt").write_text("txt0 7\ntxt1 8\ntxt2 nine\n")
    select = {"name": "split(value, ' ')[0]", "amount": "split(value, ' ')[1]"}
    yield Case(Source("words", "text", "words.txt"), {"txt0", "txt1"}, [("words.txt", 3, NOT_A_NUMBER)], select)

    for format in ("orc", "parquet"):
        parts(spark, format).write.format(format).save(str(at / format))
        (file,) = (at / format).glob(f"*.{format}")
        good = {f"{format}0", f"{format}1"}
        yield Case(Source(f"an_{format}", format, format), good, [(f"{format}/{file.name}", 3, TOO_LOW)])

    database = {
        "url": f"jdbc:derby:memory:{at.name};create=true",
        "dbtable": "parts",
        "driver": "org.apache.derby.jdbc.EmbeddedDriver",
    }
    parts(spark, "jdbc").write.format("jdbc").options(**database).save()
    yield Case(Source("tables", "jdbc", None, database), {"jdbc0", "jdbc1"}, [(None, 3, TOO_LOW)])

    yield lance_case(at / "parts.lance")


def lance_case(path: Path) -> Case:
    """Two fragments with types that Spark lacks, a deleted row, and a newer version that must not be read."""
    table = pa.table(
        {
            "name": pa.array([f"lance{n}" for n in range(5)]).dictionary_encode(),
            "amount": pa.array([1, 2, 3, 4, 9_001], pa.uint16()),
            "half": pa.array(np.arange(5, dtype=np.float16)),
            "vec": pa.array([[n, 1.5] for n in range(5)], pa.list_(pa.float32(), 2)),
        }
    )
    dataset = lance.write_dataset(table, path, max_rows_per_file=3)
    dataset.delete("amount = 2")
    lance.write_dataset(table.slice(0, 1), path, mode="append")
    source = Source("vectors", "lance", path.name, {"version": str(dataset.version)})
    select = {**SELECT, "vec": "vec"}
    reason = "@range violation on Part.amount: value 9001 > max 9000"
    return Case(source, {"lance0", "lance2", "lance3"}, [(path.name, 4, reason)], select)


def test_rows_of_every_format_arrive_and_bad_ones_are_found_in_their_files(tmp_path: Path, spark: SparkSession) -> None:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    given = list(cases(spark, tmp_path))
    pipeline = Pipeline(
        "everything",
        {case.source.name: case.source for case in given},
        tuple(TypeMapping("Part", case.source.name, case.select or SELECT) for case in given),
        mode=LoadMode.APPEND,
        quality=Quality(OnError.QUARANTINE, str(tmp_path / "rejected")),
        spark=SparkSettings(conf={"spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES)}),
        directory=str(tmp_path),
    )
    report = run(pipeline, graph=graph, spark=spark)

    stored = rows(graph, "node:Part")
    assert set(stored) == set().union(*(case.parts for case in given))
    assert stored["lance3"]["vec"] == [3.0, 1.5]
    assert report.quarantine is not None
    found = {(r["source"], r.get("file"), r["row"], r["reason"]) for r in rejected_rows(report.quarantine)}
    assert found == {
        (case.source.name, None if file is None else str(tmp_path / file), row, reason)
        for case in given
        for file, row, reason in case.bad
    }
    assert graph.maintenance.verify().clean

    with session_of_run(spark, pipeline.spark) as own:
        frames = SourceFrames(own, pipeline)
        assert len(frames.row_index("big_csv").spans) > (tmp_path / "big.csv").stat().st_size / SPLIT_BYTES > 4
        digests = {name: frames.fingerprint(name, Digests(spark)) for name in pipeline.sources}
    assert [name for name, digest in digests.items() if digest is None] == ["tables"]
    newest = replace(pipeline, sources={"vectors": Source("vectors", "lance", "parts.lance")}, mappings=())
    again = SourceFrames(spark, newest)
    assert again.fingerprint("vectors", Digests(spark)) != digests["vectors"]
    assert again.spark.table("vectors").count() == 5


def test_a_mapping_reads_only_the_columns_of_a_lance_dataset_that_it_may_name() -> None:
    columns = ("Name", "first name", "pay", "a`b", "payload")
    assert columns_named_in(columns, ["upper(NAME)", "`a``b`"]) == ("Name", "a`b")
    assert columns_named_in(columns, ["payload.x", "`first name` is null"]) == ("Name", "first name", "pay", "payload")
    assert columns_named_in(columns, ["to_json(struct(*))"]) == columns
    assert columns_named_in(columns, ["1", ""]) == ("Name",)


def test_a_lance_dataset_that_is_not_there_is_told_with_its_place(tmp_path: Path, spark: SparkSession) -> None:
    missing = Pipeline("p", {"a": Source("a", "lance", "no.lance")}, directory=str(tmp_path))
    with pytest.raises(BadRequestError, match=r"can't open the Lance dataset '.*no\.lance'"):
        SourceFrames(spark, missing)
