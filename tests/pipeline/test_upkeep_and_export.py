"""`optimize` and `export` on executors: what they tell and what they leave behind is what the in-process ones do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.cli.main import run as command
from omnigraph.pipeline import export_types, run
from tests.engine.every_type import every_type
from tests.engine.museum import SCHEMA, edge, node
from tests.engine.stored import everything
from tests.pipeline.library import quarantine, records, rejected_rows
from tests.pipeline.test_differential import STORED
from tests.support.costs import settle


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert command([*arguments, "--quiet"]) == 0
    return capsys.readouterr().out


def test_an_export_of_records_is_a_directory_that_load_takes_back_unchanged(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = Graph.init(tmp_path / "g", SCHEMA)
    graph.load("\n".join(STORED), mode="append")
    more = {"code": 7, "positive": 2**64 - 1, "moment": "2031-05-04T10:00:00.125Z", "days": ["2031-05-04"]}
    graph.load(
        "\n".join([node("Sample", **more, narrow=0.1), edge("Cites", "m1", "m2", id="late", strength=1)]), mode="append"
    )
    graph.create_branch("other")
    out = str(tmp_path / "out")

    lines = told(capsys, "export", graph.uri, "--branch", "other", "--engine", "spark", "--out", out).splitlines()

    assert f"{out}/nodes/Sample: 1 entity" in lines
    written = "".join(file.read_text() for file in Path(out).rglob("part-*"))
    assert sorted(written.splitlines(True)) == sorted(graph.export())
    copy = Graph.init(tmp_path / "copy", SCHEMA)
    loaded = json.loads(told(capsys, "load", copy.uri, "--data", out, "--mode", "append", "--json"))
    assert loaded["total_entities"] == len(STORED) + 2
    assert everything(copy) == everything(graph)

    rows = str(tmp_path / "rows")
    told(capsys, "export", graph.uri, "--engine", "spark", "--format", "parquet", "--type", "Sample", "--out", rows)
    again = Graph.init(tmp_path / "again", SCHEMA)
    told(capsys, "load", again.uri, "--data", f"{rows}/nodes/Sample", "--type", "Sample", "--mode", "append")
    assert everything(again)["node:Sample"] == everything(graph)["node:Sample"]

    names = ["", "null", 'a "b"\nc']
    badges = [{"badge": f"b{n}", "name": name, "email": name or None} for n, name in enumerate(names)]
    graph.load(badges, type="Curator", mode="merge")
    told(
        capsys, "export", graph.uri, "--engine", "spark", "--format", "csv", "--type", "Curator", "--out", f"{rows}.csv"
    )
    for file in Path(f"{rows}.csv").rglob("part-*"):
        again.load(file, type="Curator", mode="append")
    assert everything(again)["node:Curator"] == everything(graph)["node:Curator"]

    assert command(["export", graph.uri, "--engine", "spark", "--out", out]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert command(["export", graph.uri, "--engine", "spark", "--format", "csv", "--out", f"{out}2"]) == 1
    assert "CSV" in capsys.readouterr().err


def test_optimize_tells_the_same_on_both_engines(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = Graph.init(tmp_path / "g", SCHEMA)
    for record in STORED[::3], STORED[1::3], STORED[2::3]:
        # Edges would come before the nodes they need, so every load brings all nodes again.
        graph.load("\n".join(sorted({*STORED[:-13], *record})), mode="merge")
    before = everything(graph)
    settle(graph)
    shutil.copytree(graph.uri, tmp_path / "other")

    here = json.loads(told(capsys, "optimize", str(tmp_path / "other"), "--json"))["datasets"]
    there = json.loads(told(capsys, "optimize", graph.uri, "--engine", "spark", "--json"))["datasets"]

    def stable(rows: Any) -> Any:
        return [(row["type_key"], row["committed"], row["pending_indexes"], list(row)) for row in rows]

    assert stable(there) == stable(here)
    assert any(row["fragments_removed"] > row["fragments_added"] for row in there)
    assert everything(graph) == before
    assert graph.maintenance.verify().clean


def test_executors_write_entities_as_an_export_does(tmp_path: Path, spark: SparkSession) -> None:
    graph = every_type(tmp_path / "graph")
    lines = sorted(line.rstrip("\n") for line in graph.export(epoch=True))
    export_types(spark, graph, str(tmp_path / "out"), format="ndjson", epoch=True)
    files = (tmp_path / "out").rglob("part-*")
    assert sorted(line for file in files for line in file.read_text().split("\n") if line) == lines
    # Every entity is there already, so the quarantine gets them all.
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.ndjson").write_text("\n".join(lines) + "\n")
    report = run(records(tmp_path / "in", "append", quarantine(tmp_path)), graph=graph, spark=spark)
    assert sorted(row["record"] for row in rejected_rows(report.quarantine or "")) == lines
