"""Edges with an interface at an end on Spark: the type is given, checked and shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import omnigraph
from omnigraph import Graph
from omnigraph.errors import BadRequestError, ConstraintError
from omnigraph.pipeline import BulkInput, load_on_spark, read_pipeline, register, run, to_spark, validate, write_frame
from tests.pipeline.library import ndjson, quarantine, records, rejected_rows

SCHEMA = """
interface Content { title: String? }
node Post implements Content { slug: String @key  title: String? }
node Photo implements Content { slug: String @key  title: String? }
node Person { name: String @key }
edge Likes: Person -> Content @card(0..2) { n: I32?  @unique(@src, @dst) }
edge Pins: Person -> Content { n: I32?  @key(@src, @dst) }
"""
NODES = [
    {"type": "Post", "data": {"slug": "intro"}},
    {"type": "Photo", "data": {"slug": "intro"}},
    {"type": "Photo", "data": {"slug": "sun"}},
    {"type": "Person", "data": {"name": "ada"}},
    {"type": "Person", "data": {"name": "bob"}},
]
MAPPED = """\
version: 1
name: mapped
mode: append
sources:
  likes: {format: json, path: likes.ndjson}
edges:
  Likes: {from: likes, src: who, dst: what, dst_type: kind, select: {n: n}}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        graph.load("\n".join(map(json.dumps, NODES)), mode="append")
        yield graph


def liked(graph: Graph) -> list[tuple[str, str, str]]:
    query = "query q() { match { $p: Person  $p likes $x } return { $p.name as p, $x.@type as t, $x.slug as x } }"
    return sorted((row["p"], row["t"], row["x"]) for row in graph.query(query))


def test_a_mapping_gives_the_type(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    rows = [("ada", "intro", "Photo"), ("ada", "intro", "Post"), ("bob", "sun", "Photo")]
    ndjson(tmp_path / "likes.ndjson", [{"who": who, "what": what, "kind": kind, "n": 1} for who, what, kind in rows])
    pipeline = read_pipeline(MAPPED, directory=str(tmp_path))
    run(pipeline, graph=graph, spark=spark)
    assert liked(graph) == [("ada", "Photo", "intro"), ("ada", "Post", "intro"), ("bob", "Photo", "sun")]
    frame = to_spark(graph, "Likes", spark)
    assert frame.columns == ["id", "src", "dst", "dst_type", "n"]
    assert sorted(tuple(row) for row in frame.select("src", "dst_type", "dst").collect()) == liked(graph)
    expected, rows_of_likes = liked(graph), frame.drop("id").localCheckpoint()
    for write in (_write_with_a_run, _write_with_the_data_source):
        graph.mutate("query m() { delete Likes where n = 1 }")
        write(graph, rows_of_likes)
        assert liked(graph) == expected
    ndjson(tmp_path / "photos/a.ndjson", [{"type": "Photo", "data": {"slug": "intro"}}])
    with pytest.raises(ConstraintError, match="would be orphaned: dst 'sun' not found in Photo"):
        run(records(tmp_path / "photos", "overwrite"), graph=graph, spark=spark)


def _write_with_a_run(graph: Graph, frame: DataFrame) -> None:
    write_frame(graph, frame, "Likes")


def _write_with_the_data_source(graph: Graph, frame: DataFrame) -> None:
    register(frame.sparkSession)
    frame.write.format("omnigraph").option("graph", graph.uri).option("type", "Likes").mode("append").save()


def test_a_mapping_without_the_type_is_refused_before_the_run(tmp_path: Path, graph: Graph) -> None:
    for old, new, message in (
        (" dst_type: kind,", "", "Likes needs 'dst_type': its end is the interface Content"),
        ("dst: what,", "dst: what, src_type: \"'Person'\",", "'src_type' is for an end that is an interface"),
    ):
        with pytest.raises(BadRequestError, match=message):
            validate(read_pipeline(MAPPED.replace(old, new), directory=str(tmp_path)), graph=graph)
    update = MAPPED.replace("append", "update").replace("select: {", "select: {id: id, ")
    validate(read_pipeline(update.replace(" dst: what, dst_type: kind,", ""), directory=str(tmp_path)), graph=graph)
    with pytest.raises(BadRequestError, match="'dst_type' is the type of a node, and 'dst' does not say which"):
        validate(read_pipeline(update.replace(" dst: what,", ""), directory=str(tmp_path)), graph=graph)


def test_records_are_checked_by_type(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    def like(source: str, target: str, **rest: str) -> dict[str, object]:
        return {"edge": "Likes", "from": source, "to": target, **rest, "data": {}}

    given = [
        like("ada", "intro"),
        like("ada", "sun", to_type="Post"),
        like("ada", "intro", to_type="Post"),
        like("ada", "intro", to_type="Post"),
        like("bob", "intro", to_type="Photo"),
        like("bob", "intro", to_type="Foto"),
        {"type": "Post", "data": {"slug": "new"}},
        like("bob", "new", to_type="Post"),
    ]
    ndjson(tmp_path / "in/a.ndjson", given)
    report = run(records(tmp_path / "in", "merge", quarantine(tmp_path)), graph=graph, spark=spark)
    reasons = {row["row"]: row["problems"][0]["reason"] for row in rejected_rows(report.quarantine or "")}
    assert sorted(reasons) == [1, 2, 4, 6]
    assert reasons[1] == "'to_type' has to give the type of 'intro' here, one of Photo, Post"
    assert reasons[2] == "edge Likes: dst 'sun' not found in Content"
    assert "value '(intro, ada)' held by" in reasons[4]
    assert liked(graph) == [("ada", "Post", "intro"), ("bob", "Photo", "intro"), ("bob", "Post", "new")]


def test_updates_on_spark_give_types_or_leave_ends(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    def record(kind: str, **members: object) -> dict[str, object]:
        return {"edge": kind, **members}

    stored = [
        record("Likes", id="l1", **{"from": "ada"}, to="intro", to_type="Post", data={"n": 1}),
        record("Likes", id="l2", **{"from": "bob"}, to="sun", to_type="Photo"),
        *(record("Pins", **{"from": "ada"}, to="intro", to_type=name) for name in ("Post", "Photo")),
    ]
    graph.load("\n".join(map(json.dumps, stored)), mode="append")
    photo = {"to": "intro", "to_type": "Photo"}
    fine = [
        record("Likes", id="l1", data={"n": 2}),
        record("Likes", id="l2", **photo),
        record("Pins", **{"from": "ada"}, **photo, data={"n": 3}),
    ]
    bad = [
        record("Likes", id="l1", to="intro"),
        record("Likes", id="l1", to_type="Post"),
        record("Pins", **{"from": "bob"}, **photo, data={"n": 4}),
    ]
    ndjson(tmp_path / "in/a.ndjson", [*fine, *bad])
    report = run(records(tmp_path / "in", "update", quarantine(tmp_path)), graph=graph, spark=spark)
    assert liked(graph) == [("ada", "Post", "intro"), ("bob", "Photo", "intro")]
    assert graph.entity("edge:Likes", "l1")["n"] == 2
    assert graph.entity("edge:Pins", '["ada",["Photo","intro"]]')["n"] == 3
    assert graph.entity("edge:Pins", '["ada",["Post","intro"]]')["n"] is None
    rejected = {row["row"]: row for row in rejected_rows(report.quarantine or "")}
    reasons = {number: row["problems"][0]["reason"] for number, row in rejected.items()}
    assert reasons == {
        4: "'to_type' has to give the type of 'intro' here, one of Photo, Post",
        5: "'to_type' is the type of a node, and 'to' does not say which; give both, or neither",
        6: 'there is no Pins with the id \'["bob",["Photo","intro"]]\'; '
        "an update inserts nothing, which the mode merge does",
    }
    unknown = json.loads(rejected[6]["record"])
    assert (unknown["from"], unknown["to"], unknown["to_type"]) == ("bob", "intro", "Photo")
    assert graph.load(json.dumps(unknown), mode="merge").inserted == 1


def test_frames_and_files_update_edges_on_spark(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    graph.load([{"id": "l1", "from": "ada", "to": "sun"}], type="Likes", mode="append")
    moved = spark.createDataFrame([("l1", "intro", "Post")], "id string, dst string, dst_type string")
    register(spark)
    options = {"graph": graph.uri, "type": "Likes", "mode": "update"}
    moved.write.format("omnigraph").mode("append").options(**options).save()
    assert liked(graph) == [("ada", "Post", "intro")]
    write_frame(graph, moved.replace("Post", "Photo"), "Likes", mode="update")
    assert liked(graph) == [("ada", "Photo", "intro")]
    file = ndjson(tmp_path / "n.ndjson", [{"id": "l1", "n": 5}])
    receipt = load_on_spark(graph, [BulkInput(str(file), "json")], mode="update", type_name="Likes", spark=spark)
    assert (receipt.updated, graph.entity("edge:Likes", "l1")["n"]) == (1, 5)
    with pytest.raises(BadRequestError, match="'dst_type' is the type of a node, and 'dst' does not say which"):
        write_frame(graph, moved.drop("dst"), "Likes", mode="update")


def test_a_stream_of_changes_has_the_types_of_ends(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    register(spark)
    start = f"after:{graph.snapshot().commit_id}"
    for name in ("Photo", "Post"):
        record = {"edge": "Likes", "from": "ada", "to": "intro", "to_type": name}
        graph.load(json.dumps(record), mode="append")
    changes = spark.readStream.format("omnigraph").options(graph=graph.uri, start=start).load()
    query = changes.writeStream.format("memory").queryName("ends").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    rows = spark.table("ends").select("src", "src_type", "dst", "dst_type").collect()
    assert sorted(map(tuple, rows), key=str) == [("ada", None, "intro", "Photo"), ("ada", None, "intro", "Post")]
