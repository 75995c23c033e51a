"""A broken rule on Spark: the sentence and the fields that a load gives, from a run, a frame and the data source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from omnigraph import Graph
from omnigraph.errors import ConstraintError, KeyConflictError, RowsRejectedError
from omnigraph.language.violations import Sentence
from omnigraph.pipeline import OmnigraphDataSource, error_behind, register, run
from omnigraph.pipeline.checks.rules import sentence_column
from tests.engine.broken_rules import BROKEN, Broken, assert_tells, graph_of, person
from tests.pipeline.library import ndjson, quarantine, records, rejected_rows


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """No test here changes it."""
    return graph_of(tmp_path_factory.mktemp("rules") / "graph")


def test_a_run_says_of_every_rule_what_a_load_says(tmp_path: Path, spark: SparkSession) -> None:
    given = [record for broken in BROKEN for record in broken.records]
    ndjson(tmp_path / "in/a.ndjson", given)
    pipeline = records(tmp_path / "in", "merge", quarantine(tmp_path, duplicates="reject"))
    report = run(pipeline, graph=graph_of(tmp_path / "own"), spark=spark)
    assert report.rejected == len(BROKEN)
    found = {row["row"]: row for row in rejected_rows(report.quarantine or "")}
    number = 0
    for broken in BROKEN:
        number += broken.line
        (problem,) = found[number]["problems"]
        assert (problem["rule"], problem.get("property")) == (broken.rule, broken.property)
        assert (problem["reason"], found[number]["type"]) == (broken.sentence, broken.type_key)


def the(rule: str, property: str) -> Broken:
    return next(b for b in BROKEN if (b.rule, b.property) == (rule, property))


def test_a_run_that_ends_raises_the_fields_of_its_first_row(tmp_path: Path, graph: Graph, spark: SparkSession) -> None:
    broken = the("unique", "weight")
    ndjson(tmp_path / "a.ndjson", ["", *broken.records])
    with pytest.raises(RowsRejectedError) as raised:
        run(records(tmp_path), graph=graph, spark=spark)
    assert_tells(raised.value, broken, line=2, entity_id=broken.entity_id)
    assert (raised.value.total, raised.value.allowed) == (1, 0)


def test_a_run_that_rejects_too_many_raises_the_fields_of_the_row_that_ended_it(
    tmp_path: Path, graph: Graph, spark: SparkSession
) -> None:
    file = ndjson(tmp_path / "in/a.ndjson", [person("x1", age=200), person("x2"), person("x3", age=-1)])
    with pytest.raises(ConstraintError) as raised:
        run(records(tmp_path / "in", quality=quarantine(tmp_path, most=1)), graph=graph, spark=spark)
    error = raised.value
    assert (error.rule, error.type_key, error.property) == ("range", "node:Person", "age")
    assert (error.entity_id, error.line) == ("x3", 3)
    assert str(error).endswith(
        f"such as: {file}, line 3: node:Person: @range violation on Person.age: value -1 < min 0"
    )


def batch_of(broken: Broken) -> pa.RecordBatch:
    """The records as an executor gets them from a frame."""
    if broken.is_edge:
        return pa.RecordBatch.from_pylist([{"src": r["from"], "dst": r["to"], **r["data"]} for r in broken.records])
    names = sorted({name for r in broken.records for name in r["data"]})
    wide = {"age": pa.int64(), "weight": pa.float64(), "height": pa.float64()}
    schema = pa.schema([(name, wide.get(name, pa.string())) for name in names])
    return pa.RecordBatch.from_pylist([r["data"] for r in broken.records], schema=schema)


def writer_of(graph: Graph, type_key: str) -> Any:
    source = OmnigraphDataSource({"graph": graph.uri, "type": type_key.partition(":")[2]})
    return source.writer(StructType(), overwrite=False)


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_the_data_source_says_of_every_rule_what_a_load_says(graph: Graph, broken: Broken) -> None:
    """The writer does in its processes of Spark what it does here."""
    writer = writer_of(graph, broken.type_key)
    with pytest.raises(ConstraintError) as raised:
        writer.commit([writer.write(iter([batch_of(broken)]))])
    # Rows of a frame have a place only until they are written; rules that span rows are checked afterwards.
    alone = broken.rule in {"type", "required", "range", "check", "enum"}
    assert_tells(raised.value, broken, line=1 if alone else None, entity_id=broken.entity_id)


def saved(frame: DataFrame, graph: Graph, type_name: str) -> PySparkException:
    register(frame.sparkSession)
    with pytest.raises(PySparkException) as raised:
        frame.write.format("omnigraph").options(graph=graph.uri, type=type_name).mode("append").save()
    return raised.value


def test_errors_of_the_data_source_keep_their_fields_on_the_way_through_spark(
    graph: Graph, spark: SparkSession
) -> None:
    on_executor = error_behind(saved(spark.sql("select 'p3' as key, 'n' as name, 200 as age"), graph, "Person"))
    assert isinstance(on_executor, ConstraintError)
    assert_tells(on_executor, the("range", "age"), line=1, entity_id="p3")
    taken = error_behind(saved(spark.sql("select 'o1' as id, 'a2' as src, 't1' as dst"), graph, "Owns"))
    assert isinstance(taken, KeyConflictError)
    assert (taken.type_key, taken.entity_id) == ("edge:Owns", "o1")
    assert error_behind(PySparkException("something else")) is None


def test_a_sentence_of_columns_is_the_sentence_of_their_values(spark: SparkSession) -> None:
    values = {name: f"<{name}>" for sentence in Sentence for _, name in sentence.pieces() if name is not None}
    row = spark.createDataFrame([tuple(values.values())], list(values))
    columns = [sentence_column(s, **{name: F.col(name) for name in values}).alias(s.name) for s in Sentence]
    assert row.select(*columns).collect()[0].asDict() == {s.name: s.text(**values) for s in Sentence}
