"""Spark for a restricted reader: frames and views hold the visible rows; other reads are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import omnigraph
from omnigraph import Graph
from omnigraph.errors import PolicyError
from omnigraph.pipeline import export_types, optimize_on_spark, write_frame
from tests.pipeline.library import ndjson, records

SCHEMA = """
node Person { name: String @key  region: String  pay: I32  limit: I32?  photo: Blob? }
edge Knows: Person -> Person { since: I32? }
"""
RECORDS = """
{"type": "Person", "data": {"name": "ada", "region": "eu", "pay": 1, "limit": 5, "photo": "base64:aGk="}}
{"type": "Person", "data": {"name": "bob", "region": "us", "pay": 2, "limit": 1}}
{"type": "Person", "data": {"name": "cy", "region": "eu", "pay": 3, "limit": 9}}
{"edge": "Knows", "from": "ada", "to": "cy", "data": {"id": "k1", "since": 1}}
{"edge": "Knows", "from": "ada", "to": "bob", "data": {"id": "k2", "since": 2}}
"""
RULES = """
version: 1
groups: {eu: [ana], byown: [ben], staff: [lea]}
rules:
  - id: eu
    allow:
      actors: {group: eu}
      actions: [read, change, export]
      rows: {Person: region = "eu"}
      hide: {Person: [pay, photo]}
  - id: byown
    allow: {actors: {group: byown}, actions: [read], rows: {Person: pay < limit}}
  - id: staff
    allow: {actors: {group: staff}, actions: [read, export]}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seen")
    (folder / "rules.yaml").write_text(RULES)
    with omnigraph.init(folder / "g", SCHEMA) as graph:
        graph.load(RECORDS, mode="append")
    return folder


@pytest.fixture(params=["ana", "ben", "lea"])
def actor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def graph(place: Path, actor: str) -> Iterator[Graph]:
    with omnigraph.open(place / "g", policy=place / "rules.yaml", actor=actor) as opened:
        yield opened


def test_frames_and_views_hold_what_is_visible(graph: Graph, actor: str, spark: SparkSession) -> None:
    """A rule that a scan can evaluate, one that compares two properties, and one without limits."""
    people = sorted(map(tuple, graph.to_spark("Person", spark, columns=["pay", "name", "photo"]).collect()))
    expected = {
        "ana": [(None, "ada", None), (None, "cy", None)],
        "ben": [(1, "ada", b"hi"), (3, "cy", None)],
        "lea": [(1, "ada", b"hi"), (2, "bob", None), (3, "cy", None)],
    }
    assert [(pay, name, photo and bytes(photo)) for pay, name, photo in people] == sorted(
        expected[actor], key=lambda row: (row[0] or 0, row[1])
    )
    graph.register_views(spark, prefix=f"{actor}_")
    count = "select count(*) from {0}_Person p join {0}_Knows k on p.id = k.src"
    assert spark.sql(count.format(actor)).first()[0] == (2 if actor == "lea" else 1)
    assert spark.sql(f"select count(pay) from {actor}_Person").first()[0] == {"ana": 0, "ben": 2, "lea": 3}[actor]


@pytest.mark.parametrize("actor", ["ana"], indirect=True)
def test_what_spark_can_not_do_in_part_is_refused(
    graph: Graph, place: Path, tmp_path: Path, spark: SparkSession
) -> None:
    ndjson(tmp_path / "a.ndjson", [])
    with pytest.raises(PolicyError, match="an export on Spark needs a rule without rows and hide"):
        export_types(spark, graph, str(tmp_path / "out"))
    with pytest.raises(PolicyError, match="a pipeline needs a rule without rows and hide"):
        graph.run_pipeline(records(tmp_path), spark=spark)
    frame = graph.to_spark("Person", spark)
    with pytest.raises(PolicyError, match="a pipeline needs a rule"):
        write_frame(graph, frame, "Person", mode="merge")
    with pytest.raises(PolicyError, match="policy denied action 'admin'"):
        optimize_on_spark(spark, graph)
    with omnigraph.open(place / "g") as whole:
        assert whole.version_of() == 2


@pytest.mark.parametrize("actor", ["lea"], indirect=True)
def test_rules_for_writing_hold_for_pipelines(graph: Graph, tmp_path: Path, spark: SparkSession) -> None:
    ndjson(tmp_path / "a.ndjson", [])
    with pytest.raises(PolicyError, match="policy denied action 'change' on branch 'main' for actor 'lea'"):
        graph.run_pipeline(records(tmp_path), spark=spark)
