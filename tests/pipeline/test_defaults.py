"""Default values on Spark: what sources, records and frames lack is stored as in every other write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from omnigraph import Graph
from omnigraph.pipeline import load_on_spark, register, run, write_frame
from omnigraph.pipeline.bulk_load import BulkInput
from tests.engine.stored import everything, rows
from tests.support import default_rows
from tests.support.default_rows import EDGES, ROWS, Row

Stored = dict[str, dict[str, Row]]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return default_rows.stored_rows(tmp_path_factory.mktemp("stored") / "g")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return default_rows.init(tmp_path / "g")


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    [row] = rows
    named = {{"from": "src", "to": "dst"}.get(name, name): _sql(value) for name, value in row.items()}
    return spark.sql(f"select {', '.join(f'{value} as `{name}`' for name, value in named.items())}")


def _sql(value: Any) -> str:
    if isinstance(value, list):
        return f"array({', '.join(map(_sql, value))})"
    return json.dumps(value)


def write(graph: Graph, spark: SparkSession, type_name: str, rows: list[Row]) -> None:
    register(spark)
    options = {"graph": graph.uri, "type": type_name}
    frame(spark, rows).write.format("omnigraph").options(**options).mode("append").save()


def load_file(graph: Graph, spark: SparkSession, path: Path, type_name: str | None = None) -> None:
    kind = {".csv": "csv", ".parquet": "parquet"}.get(path.suffix, "graph" if type_name is None else "json")
    load_on_spark(graph, [BulkInput(str(path), kind)], mode="append", type_name=type_name, spark=spark)


ONE_BY_ONE: tuple[tuple[str, Row], ...] = (("Item", ROWS[2]), ("Near", EDGES[1]))
"""A row that has nulls and lacks everything else, and an edge: every row of a frame has its columns."""


def items_of(stored: Stored, *some: Row) -> dict[str, Row]:
    return {row["code"]: stored["node:Item"][row["code"]] for row in some}


@pytest.mark.parametrize("way", ["a frame", "the data source"])
def test_what_a_frame_lacks_is_stored_as_its_default(
    way: str, graph: Graph, spark: SparkSession, stored: Stored
) -> None:
    graph.load([ROWS[1]], type="Item", mode="append")
    for type_name, row in ONE_BY_ONE:
        if way == "a frame":
            write_frame(graph, frame(spark, [row]), type_name)
        else:
            write(graph, spark, type_name, [row])
    assert rows(graph, "node:Item") == items_of(stored, *ROWS[1:3])
    [edge] = rows(graph, "edge:Near").items()
    assert edge in stored["edge:Near"].items()


def test_records_that_lack_members_are_stored_as_by_a_load(tmp_path: Path, spark: SparkSession, stored: Stored) -> None:
    """Graph records, and rows of one type in JSON: each record may lack what another one has."""
    records = tmp_path / "all.ndjson"
    records.write_text(default_rows.records("Item", ROWS) + default_rows.records("Near", EDGES))
    by_records = default_rows.init(tmp_path / "records")
    load_file(by_records, spark, records)
    assert everything(by_records) == stored

    by_rows = default_rows.init(tmp_path / "rows")
    for type_name, some in (("Item", ROWS), ("Near", EDGES)):
        (tmp_path / f"{type_name}.ndjson").write_text(default_rows.ndjson(some))
        load_file(by_rows, spark, tmp_path / f"{type_name}.ndjson", type_name)
    assert everything(by_rows) == stored


@pytest.mark.parametrize("kind", [0, 1], ids=["csv", "parquet"])
def test_columns_that_a_file_lacks_are_stored_as_by_a_load(
    kind: int, graph: Graph, tmp_path: Path, spark: SparkSession, stored: Stored
) -> None:
    load_file(graph, spark, list(default_rows.write_files(tmp_path / "in", [ROWS[2]]))[kind], "Item")
    assert rows(graph, "node:Item") == items_of(stored, ROWS[2])


JSON_TYPES: list[tuple[str, list[object]]] = [
    ("F64 = 0.5", [1, 2]),
    ("[F64] = [0.5]", [[1], []]),
    ("U64 = 18446744073709551615", [1, 2**63]),
    ("U64 = 18446744073709551614", [1, 2]),
    ('Date? = "2024-02-29"', [18_262, None]),
    ('DateTime? = "2024-02-29"', ["2020-01-01T00:00:00Z", None]),
    ("I32? = 7", [None, None]),
    ("Bool? = true", [False, None]),
    ('String? = "a\\\\b\'c"', ["x", None]),
    ("enum(a, b)? = b", ["a", None]),
]


def test_rows_of_json_are_read_alike_in_this_process_and_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    """Whatever type Spark finds in the records that have the member; all of them at once, because a run is slow."""
    names = [f"p{n}" for n in range(len(JSON_TYPES))]
    declared = "\n".join(f"{name}: {type_}" for name, (type_, _) in zip(names, JSON_TYPES, strict=True))
    file = tmp_path / "rows.ndjson"
    given = [{name: values[n] for name, (_, values) in zip(names, JSON_TYPES, strict=True)} for n in (0, 1)]
    file.write_text(default_rows.ndjson([{"k": "a", **given[0]}, {"k": "b", **given[1]}, {"k": "c"}]))
    graphs = [Graph.init(tmp_path / name, f"node A {{ k: String @key\n{declared} }}") for name in ("here", "there")]
    graphs[0].load(file, type="A", mode="append")
    load_file(graphs[1], spark, file, "A")
    assert rows(graphs[1], "node:A") == rows(graphs[0], "node:A")
    assert rows(graphs[0], "node:A")["c"]["p0"] == 0.5
    assert rows(graphs[0], "node:A")["b"]["p6"] is None


def test_a_pipeline_stores_the_defaults_of_what_it_does_not_select(
    graph: Graph, tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "in.csv").write_text("name,price\na,1.5\nb,\n")
    file = tmp_path / "p.yaml"
    file.write_text(
        f"version: 1\nname: p\nmode: append\nsources: {{s: {{format: csv, path: {tmp_path}/in.csv}}}}\n"
        "nodes:\n  Item: {from: s, select: {code: name, price: price}}\n"
    )
    run(file, graph=graph, spark=spark)
    stored = rows(graph, "node:Item")
    assert {code: (row["price"], row["count"], row["tags"]) for code, row in stored.items()} == {
        "a": (1.5, -3, ["new", "it's"]),
        "b": (None, -3, ["new", "it's"]),
    }


def test_a_micro_batch_of_a_stream_gets_defaults(graph: Graph, tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/one.txt").write_text("a\nb\n")
    register(spark)
    lines = spark.readStream.text(str(tmp_path / "in")).selectExpr("value as code")
    options = {"graph": graph.uri, "type": "Item", "checkpointLocation": str(tmp_path / "checkpoint")}
    query = lines.writeStream.format("omnigraph").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.exception() is None
    assert {code: row["count"] for code, row in rows(graph, "node:Item").items()} == {"a": -3, "b": -3}
