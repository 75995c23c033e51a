"""DataFrames of any size through a whole run: the same outcome as other writes, and the same conflicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from omnigraph import Graph
from omnigraph.errors import BadRequestError, KeyConflictError, RowsRejectedError
from omnigraph.pipeline import register, run, to_spark, write_frame
from omnigraph.pipeline.file import OnError, Quality
from tests.engine.stored import rows
from tests.pipeline.library import SCHEMA, book, edge, library, ndjson, reader, records, rejected_rows


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = library(tmp_path / "graph")
    given = [reader("ann", age=3), book("1"), book("2"), edge("Likes", "ann", "1", id="like")]
    graph.load("\n".join(map(json.dumps, given)), mode="append")
    return graph


def test_a_frame_goes_through_a_run_and_its_bad_rows_to_the_quarantine(
    graph: Graph, tmp_path: Path, spark: SparkSession
) -> None:
    people = "values ('bob', '7', 'b@x'), ('cid', 'old', null), ('dan', null, 'b@x'), ('ann', '4', null)"
    frame = spark.sql(f"select * from {people} as t(name, age, email)")
    quality = Quality(OnError.QUARANTINE, str(tmp_path / "rejected"))
    report = write_frame(graph, frame, "Reader", mode="merge", quality=quality, run_key="monday")
    assert {name: row["age"] for name, row in rows(graph, "node:Reader").items()} == {"ann": 4, "bob": 7}
    assert report.quarantine is not None
    assert [(row["source"], row["row"], row["property"]) for row in rejected_rows(report.quarantine)] == [
        ("frame", 2, "age"),
        ("frame", 3, "email"),
    ]
    again = write_frame(graph, frame, "Reader", mode="merge", quality=quality, run_key="monday")
    assert (again.replayed, again.commit_id) == (True, report.commit_id)
    likes = to_spark(graph, "Likes", spark).selectExpr("src", "'2' as dst")
    write_frame(graph.uri, likes, "edge:Likes")
    assert sorted(e["dst"] for e in rows(graph, "edge:Likes").values()) == ["1", "2"]
    assert spark.sql("show views in global_temp").where("namespace = 'global_temp'").collect() == []


CONFLICTS: list[tuple[str, list[dict[str, object]], str, str, str]] = [
    ("Reader", [reader("ann")], "select 'ann' as name", "node:Reader", "ann"),
    (
        "Likes",
        [edge("Likes", "ann", "2", id="twice"), edge("Likes", "ann", "2", id="twice")],
        "select explode(array('twice', 'twice')) as id, 'ann' as src, '2' as dst",
        "edge:Likes",
        "twice",
    ),
]


@pytest.mark.parametrize(("type_name", "records", "query", "key", "entity"), CONFLICTS, ids=["stored", "repeated"])
def test_an_append_that_meets_an_id_again_is_a_conflict_on_every_way(
    graph: Graph, spark: SparkSession, type_name: str, records: list[object], query: str, key: str, entity: str
) -> None:
    register(spark)
    frame = spark.sql(query)
    ways: list[Callable[[], object]] = [
        lambda: graph.load("\n".join(map(json.dumps, records)), mode="append"),
        lambda: write_frame(graph, frame, type_name),
    ]
    for way in ways:
        with pytest.raises(KeyConflictError) as raised:
            way()
        assert (raised.value.type_key, raised.value.entity_id) == (key, entity)
    # What a data source raises comes back as Spark's error, with ours in its text.
    with pytest.raises(PySparkException, match=f"KeyConflictError: .*'{entity}'"):
        saved(frame, graph, type_name)
    assert graph.snapshot().version == 2


def saved(frame: DataFrame, graph: Graph, type_name: str) -> None:
    frame.write.format("omnigraph").options(graph=graph.uri, type=type_name).mode("append").save()


def test_a_repeated_run_is_answered_whatever_became_of_the_schema_and_its_inputs(
    graph: Graph, tmp_path: Path, spark: SparkSession
) -> None:
    register(spark)
    frame = spark.sql("select 'bob' as name, 7 as age")
    sink = frame.write.format("omnigraph").options(graph=graph.uri, type="Reader", runKey="tuesday").mode("append")
    file = ndjson(tmp_path / "in" / "a.ndjson", [reader("cid", age=1)])
    ways: list[Callable[[], str | None]] = [
        lambda: write_frame(graph, frame.replace("bob", "bea"), "Reader", run_key="monday").commit_id,
        lambda: run(records(tmp_path / "in"), graph=graph, spark=spark, run_key="sunday").commit_id,
    ]
    sink.save()
    first = [way() for way in ways]
    file.unlink()
    graph.schema.apply(
        SCHEMA.replace("Reader ->", "Guest ->").replace("node Reader {", 'node Guest @rename_from("Reader") {')
    )
    version = graph.snapshot().version
    sink.save()
    assert [way() for way in ways] == first
    assert graph.snapshot().version == version
    assert set(rows(graph, "node:Guest")) == {"ann", "bea", "bob", "cid"}


def test_the_ends_of_edges_are_keys_in_their_own_types(tmp_path: Path, spark: SparkSession) -> None:
    register(spark)
    schema = "node Hub { number: I64 @key }\nnode Day { on: Date @key }\nedge Open: Hub -> Day"
    graph = Graph.init(tmp_path / "graph", schema)
    graph.load('{"type":"Hub","data":{"number":7}}\n{"type":"Day","data":{"on":"2020-02-29"}}', mode="append")
    ends = spark.sql("select 7 as src, date'2020-02-29' as dst")
    write_frame(graph, ends, "Open")
    saved(ends, graph, "Open")
    assert [(edge["src"], edge["dst"]) for edge in rows(graph, "edge:Open").values()] == [("7", "18321")] * 2
    quality = Quality(OnError.QUARANTINE, str(tmp_path / "rejected"))
    report = write_frame(graph, spark.sql("select 7 as src, true as dst"), "Open", quality=quality)
    [rejected] = rejected_rows(report.quarantine or "")
    assert "'to' must be a string, the id of a Day, or a value of its key: expects Date" in rejected["reason"]


def test_what_does_not_fit_is_told_before_anything_is_written(graph: Graph, spark: SparkSession) -> None:
    with pytest.raises(BadRequestError, match="need the columns 'src' and 'dst'"):
        write_frame(graph, spark.sql("select 'ann' as src"), "Likes")
    with pytest.raises(BadRequestError, match=r"no property 'agee'.*did you mean 'age'"):
        write_frame(graph, spark.sql("select 'eve' as name, 1 as agee"), "Reader")
    with pytest.raises(RowsRejectedError, match="frame, row 1: node:Reader: @range violation"):
        write_frame(graph, spark.sql("select 'eve' as name, 200 as age"), "Reader")
