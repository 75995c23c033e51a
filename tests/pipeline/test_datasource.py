"""The data source: types as tables of one snapshot, frames as commits, the change feed as a stream."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from omnigraph import Graph
from omnigraph.pipeline import export_types, optimize_on_spark, register, register_views, to_spark
from tests.engine.stored import rows
from tests.pipeline.library import book, edge, library, reader


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = library(tmp_path / "graph")
    given = [
        reader("ann", age=3, email="a@x"),
        reader("bob", age=40),
        book("1", "Solaris", printed="1961-01-01", pages=4_000_000_000, rating=4.5),
        book("2", "Picnic"),
        edge("Likes", "ann", "1"),
    ]
    graph.load("\n".join(map(json.dumps, given)), mode="append")
    return graph


def read(spark: SparkSession, graph: Graph, type_name: str, **options: str) -> DataFrame:
    register(spark)
    reader = spark.read.format("omnigraph").option("graph", graph.uri).option("type", type_name)
    return reader.options(**options).load()


def listed(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=str)


def test_a_type_reads_as_a_table_with_the_names_of_its_properties(graph: Graph, spark: SparkSession) -> None:
    frame = read(spark, graph, "Book")
    assert sorted(frame.columns) == ["id", "isbn", "pages", "printed", "rating", "title"]
    assert listed(frame.where("title = 'Solaris'")) == [
        {"id": "1", "isbn": "1", "title": "Solaris", "printed": datetime.date(1961, 1, 1), "pages": 4_000_000_000,
         "rating": 4.5}
    ]  # fmt: skip
    assert listed(to_spark(graph, "Book", spark, columns=["title", "pages"])) == listed(frame.select("title", "pages"))
    likes = read(spark, graph, "edge:Likes").select("src", "dst")
    assert listed(likes) == [{"src": "ann", "dst": "1"}]


FILTERS = ["age > 10", "age <= 3", "name = 'ann'", "name in ('bob', 'cid')", "email is null", "email is not null",
           "name like 'a%'", "age between 1 and 5", "name <> 'ann'"]  # fmt: skip


def test_filters_in_the_scan_keep_what_spark_would_keep(graph: Graph, spark: SparkSession) -> None:
    plain = to_spark(graph, "Reader", spark)
    kept = [plain.where(condition).selectExpr(f"{n} as filter", "name") for n, condition in enumerate(FILTERS)]
    expected = listed(reduce(DataFrame.unionAll, kept))
    # A frame each: Spark gives all occurrences of one frame in a query the filters of a single one.
    frames = [read(spark, graph, "Reader", pushdown="true") for _ in FILTERS]
    pushed = [
        f.where(c).selectExpr(f"{n} as filter", "name") for n, (f, c) in enumerate(zip(frames, FILTERS, strict=True))
    ]
    assert listed(reduce(DataFrame.unionAll, pushed)) == expected


def test_a_frame_may_stand_in_a_query_twice_with_different_filters(graph: Graph, spark: SparkSession) -> None:
    frame = read(spark, graph, "Reader")
    both = frame.where("age > 10").unionAll(frame.where("age <= 10"))
    assert {row["name"] for row in both.collect()} == {"ann", "bob"}


def test_a_read_stays_at_its_snapshot(graph: Graph, spark: SparkSession) -> None:
    before = graph.snapshot().commit_id
    frame = to_spark(graph, "Reader", spark)
    graph.load(json.dumps(reader("cid")), mode="append")
    assert frame.count() == 2
    assert read(spark, graph, "Reader", snapshot=before).count() == 2
    assert read(spark, graph, "Reader").count() == 3


def test_every_type_is_a_view_for_spark_sql(graph: Graph, spark: SparkSession) -> None:
    assert register_views(spark, graph, prefix="g_") == ["g_Book", "g_Borrowed", "g_Likes", "g_Reader"]
    joined = spark.sql(
        "select r.age, b.title from g_Likes l join g_Reader r on r.id = l.src join g_Book b on b.id = l.dst"
    )
    assert listed(joined) == [{"age": 3, "title": "Solaris"}]


def write(frame: DataFrame, graph: Graph, type_name: str, mode: str = "append", **options: str) -> None:
    register(frame.sparkSession)
    writer = frame.write.format("omnigraph").option("graph", graph.uri).option("type", type_name)
    writer.options(**options).mode(mode).save()


def test_a_frame_is_written_as_one_commit(graph: Graph, spark: SparkSession) -> None:
    frame = spark.sql("select 'cid' as name, cast(7 as bigint) as age union all select 'dan', null").repartition(2)
    write(frame, graph, "Reader")
    assert rows(graph, "node:Reader")["cid"]["age"] == 7
    assert graph.snapshot().version == 3
    register(spark)
    merge = spark.sql("select 'ann' as name, 9 as age").write.format("omnigraph").mode("append")
    merge.options(graph=graph.uri, type="Reader").option("mode", "merge").save()
    assert rows(graph, "node:Reader")["ann"]["age"] == 9
    write(spark.sql("select 'cid' as src, '2' as dst"), graph, "Borrowed", mode="overwrite")
    assert [e["src"] for e in rows(graph, "edge:Borrowed").values()] == ["cid"]
    assert graph.maintenance.verify().clean


BAD_FRAMES = [
    ("Reader", "select 'x' as name, 200 as age", "@range violation"),
    ("Reader", "select 'x' as name, 'a@x' as email", "@unique violation on Reader.email"),
    ("Likes", "select 'ann' as src, '9' as dst", "dst '9' not found in Book"),
]


@pytest.mark.parametrize(("type_name", "query", "message"), BAD_FRAMES, ids=[b[2][:20] for b in BAD_FRAMES])
def test_a_frame_with_a_bad_row_changes_nothing(
    graph: Graph, spark: SparkSession, type_name: str, query: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.sql(query), graph, type_name)
    assert graph.snapshot().version == 2


def test_optimize_on_executors_keeps_the_content(graph: Graph, spark: SparkSession) -> None:
    for number in range(4):
        graph.load(json.dumps(book(f"more{number}", "A Solaris sequel")), mode="append")
    before = rows(graph, "node:Book")
    outcome = optimize_on_spark(spark, graph)
    assert outcome.commit is not None
    assert "node:Book" in {row.type_key for row in outcome.datasets if row.committed}
    assert rows(graph, "node:Book") == before
    table = graph.snapshot().table("node:Book")
    assert table.state.fragments == 1
    assert len(table.read(filter="id = 'more3'")) == 1
    assert graph.maintenance.verify().clean
    assert optimize_on_spark(spark, graph).commit is None


def test_an_export_is_a_directory_per_type(graph: Graph, spark: SparkSession, tmp_path: Path) -> None:
    written = export_types(spark, graph, str(tmp_path / "out"))
    rows_by_type = {"edge:Borrowed": 0, "edge:Likes": 1, "node:Book": 2, "node:Reader": 2}
    assert {each.type_key: each.rows for each in written} == rows_by_type
    exported = spark.read.parquet(str(tmp_path / "out/nodes/Book"))
    assert listed(exported) == listed(to_spark(graph, "Book", spark))


def test_values_that_spark_has_no_type_for_survive_the_way_there_and_back(tmp_path: Path, spark: SparkSession) -> None:
    schema = "node N { code: U64 @key  vec: Vector(2)?  at: DateTime?  tags: [String]?  flag: Bool?  small: F32? }"
    graph = Graph.init(tmp_path / "types", schema)
    data = {"code": 2**64 - 1, "vec": [1.5, 2], "at": "2031-05-04T10:00:00.125Z", "tags": ["a"], "flag": True,
            "small": 0.1}  # fmt: skip
    graph.load(
        json.dumps({"type": "N", "data": data}) + "\n" + json.dumps({"type": "N", "data": {"code": 1}}), mode="append"
    )
    frame = to_spark(graph, "N", spark)
    assert {row["code"] for row in frame.collect()} == {Decimal(2**64 - 1), Decimal(1)}
    copy = Graph.init(tmp_path / "copy", schema)
    write(frame.drop("id"), copy, "N")
    assert rows(copy, "node:N") == rows(graph, "node:N")
