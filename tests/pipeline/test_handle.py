"""The handle that `omnigraph.init` and `omnigraph.open` return reaches Spark, and only when it is asked to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import omnigraph
from tests.pipeline.library import SCHEMA, ndjson, reader, records
from tests.support.log_entries import get_commit


def test_a_graph_runs_pipelines_and_reads_as_frames_and_views(tmp_path: Path, spark: SparkSession) -> None:
    omnigraph.init(tmp_path / "g", SCHEMA).close()
    graph = omnigraph.open(tmp_path / "g")
    ndjson(tmp_path / "a.ndjson", [reader("ann", age=3), reader("bob")])

    report = graph.run_pipeline(records(tmp_path), actor="ada")
    frame = graph.to_spark("Reader", columns=["name", "age"])
    names = graph.with_limits(graph.limits).register_views(spark, prefix="lib_")

    assert get_commit(graph, report.commit_id or "").commit.actor == "ada"
    assert sorted(map(tuple, frame.collect())) == [("ann", 3), ("bob", None)]
    assert names == ["lib_Book", "lib_Borrowed", "lib_Likes", "lib_Reader"]
    assert spark.sql("select max(age) from lib_Reader").first()[0] == 3


def test_help_and_plain_work_start_no_spark(tmp_path: Path) -> None:
    script = f"""
import sys, omnigraph
from omnigraph.cli.main import run
run(["load", "--help"])
graph = omnigraph.init({str(tmp_path / "g")!r}, "node N {{ name: String @key }}")
graph.load('{{"type": "N", "data": {{"name": "a"}}}}', mode="append")
assert not [m for m in sys.modules if m.startswith(("pyspark", "omnigraph.pipeline"))]
"""
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
