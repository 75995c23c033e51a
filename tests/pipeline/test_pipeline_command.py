"""`omnigraph pipeline`: what a person and a program are told while a run goes on and when it is over."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.cli.main import run as command
from tests.pipeline.library import csv, library
from tests.support.log_entries import list_commits

FILE = """\
version: 1
name: nightly
graph: g
sources: {people: {format: csv, path: people.csv, options: {header: true}}}
nodes: {Reader: {from: people, select: {name: name, age: age}}}
quality: {on_error: quarantine, quarantine: out}
"""


def test_a_run_tells_its_stages_its_counts_its_bad_rows_and_its_commit(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = library("g")
    csv(tmp_path / "people.csv", "name,age", "ann,3", "bob,200", "cid,")
    Path("p.yaml").write_text(FILE)
    with monkeypatch.context() as watched:
        watched.setattr(sys.stderr, "isatty", lambda: True)
        assert command(["pipeline", "run", "p.yaml", "--as", "ada"]) == 0
    shown = capsys.readouterr()

    head = list_commits(graph).commits[0]
    assert [line.split() for line in shown.out.splitlines()[:5]] == [
        ["nightly", "→", "g,", "branch", "main,", "mode", "merge"],
        [],
        ["type", "read", "accepted", "rejected", "inserted", "updated", "unchanged"],
        ["node:Reader", "3", "2", "1", "2", "0", "0"],
        ["total", "3", "2", "1", "2", "0", "0"],
    ]
    assert "1 row rejected:\n  people.csv:3 (row 2)  node:Reader  @range violation on Reader.age" in shown.out
    assert f"all of them are in out/{head.commit.details['pipeline.run_id']}\n" in shown.out
    assert shown.out.splitlines()[-1].startswith(f"commit {head.commit.id} on main, version 2, ")
    for stage in ("starting Spark", "write node:Reader from people", "check", "quarantine", "publish"):
        assert stage in shown.err

    assert command(["pipeline", "run", "p.yaml", "--force", "--json"]) == 0
    *stages, report = map(json.loads, capsys.readouterr().out.splitlines())
    assert [stage["stage"] for stage in stages] == ["start", "read", "write", "stage", "check", "quarantine", "publish"]
    assert all(stage["state"] == "done" and stage["seconds"] >= 0 for stage in stages)
    assert (report["types"][0]["unchanged"], report["rejected_samples"][0]["row"]) == (2, 2)

    assert command(["pipeline", "explain", "p.yaml"]) == 0
    explained = capsys.readouterr().out
    assert "  people  csv      people.csv\n          columns  name, age\n" in explained
    assert "   2  executors  type and write node:Reader from people\n" in explained


def test_the_pipeline_that_quickstart_writes_runs(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(["quickstart", "."]) == 0
    assert command(["init", "--schema", "schema.pg", "team.omni"]) == 0
    assert command(["load", "team.omni", "--data", "data/team.jsonl", "--mode", "append"]) == 0
    assert command(["pipeline", "run", "ingest.yaml"]) == 0
    with Graph.open("team.omni") as graph:
        assert graph.snapshot().count("Person") == 5
