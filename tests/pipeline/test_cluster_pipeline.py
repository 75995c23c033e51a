"""`omnigraph pipeline run --cluster X NAME`: the applied file, against the applied graph, under the applied rules."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import omnigraph
from omnigraph.cli.main import run as command
from omnigraph.embeddings.configuration import EmbeddingProfile
from omnigraph.errors import PolicyError
from tests.pipeline.library import csv
from tests.support.clusters import Cluster, make_cluster
from tests.support.processes import REPOSITORY

SCHEMA = """
node Reader { name: String @key  about: String?  vector: Vector(4)? @embed(about, model="mock") }
"""
APPLIED = """\
version: 1
name: something else
graph: elsewhere.omni
sources: {people: {format: csv, path: people.csv, options: {header: true}}}
nodes: {Reader: {from: people, select: {name: name, about: about}}}
embed: [{type: Reader, property: vector}]
"""
RULES = """\
version: 1
groups: {loaders: [ana], eu: [eve]}
rules:
  - {id: load, allow: {actors: {group: loaders}, actions: [change], branch_scope: any}}
  - {id: part, allow: {actors: {group: eu}, actions: [change], branch_scope: any, rows: {Reader: 'name = "bob"'}}}
"""


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A configuration directory with a pipeline in a folder of its own, and its applied state."""
    monkeypatch.chdir(tmp_path)
    cluster = make_cluster(
        "box",
        {"kb": SCHEMA},
        {},
        policies={"main": (RULES, ("graph.kb",))},
        providers={"house": EmbeddingProfile(kind="mock", model="house-model")},
        embedding={"kb": "provider.embedding.house"},
        pipelines={"nightly": (APPLIED, "kb")},
    )
    Path("box/cluster.yaml").write_text("version: 1\npipelines: {nightly: {file: loads/n.yaml, graph: kb}}\n")
    Path("box/loads").mkdir()
    Path("box/loads/n.yaml").write_text("this is edited and not applied")
    csv(Path("box/loads/people.csv"), "name,about", "ann,reads a lot", "bob,")
    return cluster


def test_an_applied_pipeline_runs_under_its_name_with_what_its_graph_has(
    box: Cluster, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["pipeline", "run", "--cluster", "box", "nightly", "--as", "ana", "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["pipeline"], report["graph"]) == ("nightly", box.graph_uri("kb"))
    with omnigraph.open(box.graph_uri("kb")) as graph:
        head = graph.snapshot().entry.commit
        assert (head.actor, head.details["pipeline.name"]) == ("ana", "nightly")
        read = "query q() { match { $r: Reader } return { $r.name as name, $r.vector as v } order { name asc } }"
        rows = graph.query(read).rows()
    assert [(row["name"], row["v"] is not None) for row in rows] == [("ann", True), ("bob", False)]
    assert not Path("elsewhere.omni").exists()
    assert command(["cluster", "status", "--config", "box"]) == 0
    assert f"  pipeline.nightly -> graph.kb: last commit {head.id} by ana, " in capsys.readouterr().out


def test_the_rules_of_the_cluster_decide_who_runs_it(
    box: Cluster, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    for actor, said in (
        ([], "the request has no actor"),
        (["--as", "rob"], "unknown actor 'rob'"),
        (["--as", "eve"], "a pipeline needs a rule without rows and hide"),
    ):
        assert command(["pipeline", "run", "--cluster", "box", "nightly", *actor]) == 1
        assert said in capsys.readouterr().err
    with omnigraph.open(box.graph_uri("kb")) as graph:
        assert graph.snapshot().version == 1


def test_what_was_applied_is_validated_and_not_what_is_edited(box: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["pipeline", "validate", "--cluster", "box", "nightly"]) == 0
    assert "OK nightly: 1 source, 1 mapping" in capsys.readouterr().out
    assert command(["pipeline", "validate", "--cluster", "box", "weekly"]) == 1
    assert "pipeline_not_applied" in (said := capsys.readouterr().err)
    assert "pipelines that can: nightly" in said
    assert command(["pipeline", "validate", "--cluster", "box", "--store", "g", "nightly"]) == 2
    assert command(["pipeline", "validate", "--cluster", "box", "--graph", "kb", "nightly"]) == 1
    assert "--graph selects a graph" in capsys.readouterr().err


def test_the_rules_decide_before_spark_is_started(box: Cluster) -> None:
    """Nobody listens at this address: a run that came to Spark would end in another error."""
    Path("rules.yaml").write_text(RULES)
    Path("p.yaml").write_text(APPLIED + 'spark: {remote: "sc://127.0.0.1:1"}\n')
    for actor in ("rob", "eve"):
        graph = omnigraph.open(box.graph_uri("kb"), policy="rules.yaml", actor=actor)
        with graph, pytest.raises(PolicyError):
            graph.run_pipeline("p.yaml")


def test_the_pipeline_of_the_example_cluster_loads_its_graph(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(REPOSITORY / "examples/cluster", tmp_path / "cluster")
    monkeypatch.chdir(tmp_path / "cluster")
    for line in ("cluster import", "cluster apply --as ana", "pipeline validate --cluster . catalogue"):
        assert command(line.split()) == 0, capsys.readouterr().err
    assert command(["pipeline", "run", "--cluster", ".", "catalogue", "--as", "lea"]) == 0, capsys.readouterr().err
    with omnigraph.open("graphs/library.omni") as graph:
        rows = graph.query("query q() { match { $b: Book } return { $b.title as title, $b.year as year } }").rows()
    assert {"title": "Solaris", "year": 1961} in rows
