"""Updates on Spark and in this process: the same rows, the same counts and the same refusals."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.api.service.pipeline import StageEvent
from omnigraph.errors import ConstraintError, OmniGraphError, RowsRejectedError
from omnigraph.pipeline import BulkInput, load_on_spark, read_pipeline, register, run
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
        made.append(
            {"edge": "Knows", "from": f"r{n}", "to": "r0", "data": {"since": chance.choice([None, "2020-01-01"])}}
        )
    return made


def counts(receipt: Any) -> dict[str, tuple[int, ...]]:
    types = (*receipt.nodes, *receipt.edges)
    return {each.name: tuple(getattr(each, name) for name in COUNTS) for each in types}


@pytest.mark.parametrize("mode", ["update", "merge"])
def test_both_engines_change_the_same_and_count_the_same(tmp_path: Path, spark: SparkSession, mode: str) -> None:
    here, there = two_graphs(tmp_path)
    made = changes(7)
    if mode == "merge":
        made = [each for each in stored() + made if "text" in each.get("data", {}) or "Memo" not in each.values()]
        made = [each for each in made if "from" in each or "edge" not in each]
        made = [*{(each.get("id"), each.get("from"), each.get("data", {}).get("name")): each for each in made}.values()]
    file = ndjson(tmp_path / "all.ndjson", made)
    local = here.load(file, mode=mode)
    spread = load_on_spark(there, [BulkInput(str(file), "graph")], mode=mode, spark=spark)
    assert counts(spread) == counts(local)
    assert everything(there) == everything(here)
    assert changed(there) == changed(here)
    assert (local.updated or 0) > 5
    assert (local.unchanged or 0) > 5


def changed(graph: Graph) -> dict[str, Any]:
    """What the last commit says that it changed, and what its change feed says."""
    state = graph.snapshot()
    feed = graph.changes.page(state.commit_id).block.changes
    return {
        key: (counts.inserted, counts.updated, counts.deleted) for key, counts in state.entry.commit.changes.items()
    } | {"feed": sorted((each.type_name, each.op.value) for each in feed)}


REFUSED = {
    "there is no Reader with the id 'nobody'": {"type": "Reader", "data": {"name": "nobody", "age": 1}},
    "an update needs 'name', or 'id'": {"type": "Reader", "data": {"age": 1}},
    "an update needs 'id'": {"edge": "Likes", "from": "r1", "to": "m1"},
    "id 'r1' does not match its canonical @key id 'r2'": {"type": "Reader", "id": "r1", "data": {"name": "r2"}},
    "@range violation on Reader.age: value 200 > max 150": {"type": "Reader", "data": {"name": "r1", "age": 200}},
    "non-nullable property 'text' has null value": {"type": "Memo", "id": "m1", "data": {"text": None}},
    "value '2@x' held by 'r2' and 'r1'": {"type": "Reader", "data": {"name": "r1", "email": "2@x"}},
    "dst 'm99' not found in Memo": {"edge": "Likes", "id": "l1", "to": "m99"},
}
"""What is said of a record, beside a record that is fine."""


def test_both_engines_refuse_the_same(tmp_path: Path, spark: SparkSession) -> None:
    here, there = two_graphs(tmp_path)
    fine = {"type": "Reader", "data": {"name": "r9", "age": 99}}
    lines = [fine, *REFUSED.values()]
    ndjson(tmp_path / "in/all.ndjson", lines)
    report = run(records(tmp_path / "in", "update", quarantine(tmp_path)), graph=there, spark=spark)
    assert report.quarantine is not None
    rows = rejected_rows(report.quarantine)
    assert [row["row"] for row in rows] == list(range(2, len(lines) + 1))
    for (reason, record), row in zip(REFUSED.items(), rows, strict=True):
        with pytest.raises(ConstraintError) as caught:
            here.load(json.dumps(record), mode="update")
        (problem,) = row["problems"]
        assert reason in problem["reason"]
        assert problem["reason"] in str(caught.value)
        assert (problem["property"], problem["rule"]) == (caught.value.property, caught.value.rule.value)
        assert row["type"] == caught.value.type_key
    here.load(json.dumps(fine), mode="update")
    assert everything(there) == everything(here)
    (readers,) = (each for each in report.types if each.type_key == "node:Reader")
    assert (readers.read, readers.accepted, readers.updated, readers.rejected) == (6, 1, 1, 5)
    # A record of the quarantine can be corrected and loaded again.
    unknown = json.loads(rows[0]["record"])
    assert unknown["data"] == {"name": "nobody", "age": 1, "id": "nobody"}


def test_a_pipeline_maps_what_changes_and_nothing_else(tmp_path: Path, spark: SparkSession) -> None:
    _, graph = two_graphs(tmp_path)
    csv(tmp_path / "ages.csv", "who,age", "r1,50", "r2,2", "r1,51", "nobody,3")
    csv(tmp_path / "notes.csv", "like,note", "l1,new", "l2,x")
    text = f"""
version: 1
name: ages
mode: update
sources:
  ages: {{format: csv, path: "{tmp_path}/ages.csv"}}
  notes: {{format: csv, path: "{tmp_path}/notes.csv"}}
nodes:
  Reader: {{from: ages, select: {{name: who, age: age}}}}
edges:
  Likes: {{from: notes, select: {{id: like, note: note}}}}
quality: {{on_error: quarantine, quarantine: rejected}}
"""
    report = run(read_pipeline(text, directory=str(tmp_path)), graph=graph, spark=spark)
    figures = {each.type_key: (each.updated, each.unchanged, each.superseded, each.rejected) for each in report.types}
    assert figures == {"edge:Likes": (1, 1, 0, 0), "node:Reader": (1, 1, 1, 1)}
    assert graph.entity("node:Reader", "r1")["age"] == 51
    assert graph.entity("edge:Likes", "l1") == {"id": "l1", "src": "r1", "dst": "m1", "note": "new"}
    with pytest.raises(OmniGraphError, match="an update of Reader needs 'name', or 'id', and nothing is selected"):
        run(read_pipeline(text.replace("name: who, ", ""), directory=str(tmp_path)), graph=graph, spark=spark)
    with pytest.raises(OmniGraphError, match="Likes needs 'src' and 'dst' in the mode merge"):
        run(read_pipeline(text, directory=str(tmp_path)), graph=graph, spark=spark, mode="merge")


def test_a_frame_changes_the_columns_that_it_has(tmp_path: Path, spark: SparkSession) -> None:
    _, graph = two_graphs(tmp_path)
    register(spark)
    before = graph.entity("node:Reader", "r1")

    def write(rows: list[tuple[str, int]], mode: str = "update") -> None:
        frame = spark.createDataFrame(rows, "name string, age int")
        options = {"graph": graph.uri, "type": "Reader", "mode": mode}
        frame.write.format("omnigraph").mode("append").options(**options).save()

    write([("r1", 60), ("r2", 2)])
    assert graph.entity("node:Reader", "r1") == {**before, "age": 60}
    assert changed(graph)["node:Reader"] == (0, 1, 0)
    version = graph.snapshot().version
    write([("r1", 60)])
    assert graph.snapshot().version == version
    with pytest.raises(Exception, match="there is no Reader with the id 'nobody'"):
        write([("nobody", 1)])
    assert graph.snapshot().version == version
    write([("new", 1)], "append")
    write([("new", 1)], "merge")
    assert graph.snapshot().version == version + 1
    write([("new", 1), ("r1", 61), ("newer", 1)], "merge")
    assert changed(graph)["node:Reader"] == (1, 1, 0)


def test_a_merge_on_spark_names_the_properties_that_it_nulls(tmp_path: Path, spark: SparkSession) -> None:
    here, there = two_graphs(tmp_path)
    file = csv(tmp_path / "ages.csv", "name,age", "r1,1", "new,2")
    more: dict[str, Any] = {"mode": "merge", "type_name": "Reader", "spark": spark}
    spread = load_on_spark(there, [BulkInput(str(file), "csv")], **more)
    local = here.load(file, type="Reader", mode="merge")
    assert spread.nulled == local.nulled == ("Reader.email", "Reader.photo", "Reader.tags")
    assert counts(spread) == counts(local)


def test_a_run_beside_another_writer_loses_nothing_and_brings_nothing_back(tmp_path: Path, spark: SparkSession) -> None:
    _, graph = two_graphs(tmp_path)
    ndjson(tmp_path / "in/all.ndjson", [{"type": "Reader", "data": {"name": f"r{n}", "age": 70}} for n in (1, 2)])
    writes = iter(
        [
            lambda: graph.load([{"name": "r1", "tags": ["theirs"]}], type="Reader", mode="update"),
            lambda: graph.mutate('query q() { delete Reader where name = "r2" }'),
        ]
    )

    def meanwhile(event: StageEvent) -> None:
        if (event.stage, event.state) == ("publish", "started"):
            next(writes)()

    run(records(tmp_path / "in", "update"), graph=graph, spark=spark, progress=meanwhile)
    first = graph.entity("node:Reader", "r1")
    assert (first["age"], first["tags"]) == (70, ["theirs"])
    ndjson(tmp_path / "in/all.ndjson", [{"type": "Reader", "data": {"name": f"r{n}", "age": 71}} for n in (1, 2)])
    with pytest.raises(RowsRejectedError, match="there is no Reader with the id 'r2'"):
        run(records(tmp_path / "in", "update"), graph=graph, spark=spark, progress=meanwhile)
    assert graph.entity("node:Reader", "r1")["age"] == 70
    assert graph.snapshot().count("node:Reader") == 29
