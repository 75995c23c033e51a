"""To a restricted reader a graph is a smaller graph: its export, and every search, entity and blob."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.api.queries import BlobCell, ReadPoint
from omnigraph.engine.blobs import blob_in
from omnigraph.engine.export import export_files, export_lines
from omnigraph.engine.query.read import ReadOptions, explain_query, run_query
from omnigraph.engine.query.visibility import read_entity
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import NotFoundError, PolicyError
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.row_filter import UNRESTRICTED, TypeVisibility, for_actor, visibility_of

SCHEMA = """
node Doc {
    slug: String @key
    region: String @index
    text: String @index
    salary: I32
    vec: Vector(2) @index
    file: Blob?
}
node Tag { name: String @key }
edge About: Doc -> Tag { weight: I32? }
edge Cites: Doc -> Doc
"""
WORDS = ("graph", "lake", "ocean", "robot", "station", "world")


def records(count: int = 60) -> Iterator[str]:
    for i in range(count):
        words = " ".join(WORDS[(i * k) % len(WORDS)] for k in range(1, 2 + i % 5))
        data: dict[str, Any] = {
            "slug": f"d{i}",
            "region": "eu" if i % 3 else "us",
            "text": words,
            "salary": i,
            "vec": [i % 7, i % 5],
            "file": "base64:" + base64.b64encode(f"file {i}".encode()).decode(),
        }
        yield json.dumps({"type": "Doc", "data": data})
    for name in WORDS:
        yield json.dumps({"type": "Tag", "data": {"name": name}})
    for i in range(count):
        yield json.dumps({"edge": "About", "from": f"d{i}", "to": WORDS[i % 6], "data": {"id": f"a{i}", "weight": i}})
        yield json.dumps({"edge": "Cites", "from": f"d{i}", "to": f"d{(i * 7 + 1) % count}", "data": {"id": f"c{i}"}})


@pytest.fixture(scope="module", params=["indexed", "not indexed"])
def visible(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Snapshot, Graph]:
    """A snapshot under the visibility of an actor, and a graph that was made from its export."""
    folder: Path = tmp_path_factory.mktemp("seen")
    graph = omnigraph.init(folder / "whole", SCHEMA)
    graph.load("\n".join(records()), mode="append")
    if request.param == "indexed":
        graph.maintenance.ensure_indices()
    catalog = graph.catalog
    doc, about = catalog.type_named("node:Doc"), catalog.type_named("edge:About")
    shown = check_row_filter('region = "eu" or slug = $actor', doc, catalog)
    visibility = visibility_of(
        [
            TypeVisibility(doc, for_actor(shown, "d0"), frozenset({"salary", "file"})),
            TypeVisibility(about, for_actor(check_row_filter("weight >= 10", about, catalog), "d0")),
        ]
    )
    state = graph.snapshot().restricted_to(visibility)
    # What is hidden is null there, so it has to be allowed to be.
    smaller = omnigraph.init(folder / "smaller", SCHEMA.replace("salary: I32", "salary: I32?"))
    smaller.load(b"\n".join(export_lines(state)), mode="append")
    if request.param == "indexed":
        smaller.maintenance.ensure_indices()
    return state, smaller


def test_an_export_holds_what_is_visible_and_nothing_else(visible: tuple[Snapshot, Graph]) -> None:
    lines = [json.loads(line) for line in export_lines(visible[0])]
    docs = {line["data"]["id"]: line["data"] for line in lines if line.get("type") == "Doc"}
    expected = {f"d{i}" for i in range(60) if i % 3 or i == 0}
    assert docs.keys() == expected
    assert all(doc["salary"] is None and doc["file"] is None for doc in docs.values())
    about = {line["data"]["id"] for line in lines if line.get("edge") == "About"}
    assert about == {f"a{i}" for i in range(10, 60) if f"d{i}" in expected}
    cites = {line["data"]["id"] for line in lines if line.get("edge") == "Cites"}
    assert cites == {f"c{i}" for i in range(60) if {f"d{i}", f"d{(i * 7 + 1) % 60}"} <= expected}


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_a_file_holds_what_is_visible_and_nulls_for_the_rest(
    visible: tuple[Snapshot, Graph], format: str, tmp_path: Path
) -> None:
    """Also where the schema allows no null."""
    for file in export_files(visible[0], tmp_path, format):
        rows = pq.read_table(file.path) if format == "parquet" else pa.ipc.open_file(file.path).read_all()
        assert rows.num_rows == file.rows == visible[0].count(file.type_key)
        if file.type_key == "node:Doc":
            assert rows.column("salary").null_count == rows.column("file").null_count == rows.num_rows
            assert rows.column("slug").null_count == 0


QUERIES = [
    (
        'query q() { match { $d: Doc } return { $d.slug as s, bm25($d.text, "ocean lake") as x } '
        'order { bm25($d.text, "ocean lake") } limit 12 }'
    ),
    (
        "query q() { match { $d: Doc } return { $d.slug as s, nearest($d.vec, [3.0, 1.0]) as x } "
        "order { nearest($d.vec, [3.0, 1.0]) } limit 9 }"
    ),
    (
        "query q() { match { $d: Doc } return { $d.slug as s } order { rrf(nearest($d.vec, [3.0, 1.0]), "
        'bm25($d.text, "robot")) } limit 9 }'
    ),
    'query q() { match { $d: Doc  search($d.text, "robot") } return { $d.slug as s } order { s } }',
    'query q() { match { $d: Doc  fuzzy($d.text, "oceen", 1) } return { count($d) as n } }',
    (
        "query q() { match { $t: Tag  $d about $t  $d cites $e } return { $t.name as t, $d.slug as d, $e.slug as e } "
        'order { bm25($d.text, "ocean") } limit 20 }'
    ),
    "query q() { match { $d: Doc  not { $d about $t } } return { $d.slug as s } order { s } }",
    "query q() { match { $d: Doc  $d cites{1,3} $e } return { count($e) as n, max($e.slug) as m } }",
    "query q() { match { $d: Doc  $d $w:about $t } return { $t.name as t, sum($w.weight) as w } order { t } }",
    "query q() { match { $d: Doc } return { $d.slug as s } order { s desc } limit 3 }",
]


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_answers_as_on_the_smaller_graph(visible: tuple[Snapshot, Graph], text: str) -> None:
    state, smaller = visible
    found = run_query(state, ReadPoint("main"), (text, "q", {})).rows()
    assert found == smaller.query(text, "q").rows()
    assert found


@pytest.mark.parametrize(
    "clause",
    [
        "match { $d: Doc } return { $d.salary as x }",
        "match { $d: Doc  $d.salary > 3 } return { $d.slug as x }",
        "match { $d: Doc { salary: 3 } } return { $d.slug as x }",
        "match { $d: Doc } return { $d.slug as x } order { $d.salary }",
        "match { $d: Doc } return { max($d.salary) as x }",
        "match { $d: Doc  not { $d cites $e  $e.salary > 3 } } return { $d.slug as x }",
    ],
)
def test_a_masked_property_can_not_be_named(visible: tuple[Snapshot, Graph], clause: str) -> None:
    with pytest.raises(PolicyError, match=r"'Doc.salary' is hidden"):
        run_query(visible[0], ReadPoint("main"), (f"query q() {{ {clause} }}", "q", {}))


@pytest.mark.parametrize(
    "clause",
    [
        "match { $d: Doc  $d $w:about $t } return { $w.weight as x }",
        "match { $d: Doc  $d $w:about $t  $w.weight > 3 } return { $t.name as x }",
        "match { $d: Doc  $d $w:about $t } return { $t.name as t, sum($w.weight) as x }",
        "match { $d: Doc  $d $w:about $t } return { $t.name as t } order { $w.weight }",
        "match { $d: Doc  not { $d $w:about $t  $w.weight > 3 } } return { $d.slug as x }",
        'match { $d: Doc  search($d.text, "ocean") } return { $d.slug as x }',
        'match { $d: Doc } return { fuzzy($d.text, "ocean", 1) as x }',
        'match { $d: Doc } return { $d.slug as s, bm25($d.text, "ocean") as x }',
        'match { $d: Doc } return { $d.slug as s } order { bm25($d.text, "ocean") } limit 3',
        "match { $d: Doc  $e: Doc  $d.text = $e.text } return { $d.slug as x }",
        "match { $d: Doc } return { $d.text as x, count($d) as n }",
        "match { $d: Doc } return { count($d.text) as n }",
    ],
)
def test_nor_one_of_an_edge_nor_by_a_search(visible: tuple[Snapshot, Graph], clause: str) -> None:
    catalog = visible[0].catalog
    doc, about = catalog.type_named("node:Doc"), catalog.type_named("edge:About")
    visibility = visibility_of(
        [TypeVisibility(doc, masked=frozenset({"text"})), TypeVisibility(about, masked=frozenset({"weight"}))]
    )
    with pytest.raises(PolicyError, match=r"'(Doc.text|About.weight)' is hidden"):
        run_query(visible[0].restricted_to(visibility), ReadPoint("main"), (f"query q() {{ {clause} }}", "q", {}))


@pytest.mark.parametrize("text", [QUERIES[0], QUERIES[5], QUERIES[7], QUERIES[9]])
def test_plans_and_profiles_tell_nothing_of_the_rules_and_of_the_rest(
    visible: tuple[Snapshot, Graph], text: str
) -> None:
    """Not what a rule compares, nor how many rows an index or a topology has, nor what was asked of the store."""
    state, _ = visible
    plan = explain_query(state, (text, "q", {}))
    whole = explain_query(state.restricted_to(UNRESTRICTED), (text, "q", {}))
    # Which neighbours are in memory is nobody's business but that of a reader of everything.
    by_cost = "neighbours: lookups or topology, by cost"
    static = [line.split("neighbours:")[0] + by_cost if "neighbours:" in line else line for line in whole]
    assert plan == [line.split("  (about ")[0] for line in static] != whole
    profile = run_query(state, ReadPoint("main"), (text, "q", {}), ReadOptions(profile=True)).profile
    lines = list(profile.lines())
    assert not [line for line in lines if "eu" in line or "60 rows" in line or " of " in line]
    assert all(" 0 requests" in line for line in lines if "requests" in line)


def test_what_is_not_visible_is_not_there_by_its_id(visible: tuple[Snapshot, Graph]) -> None:
    state, _ = visible
    assert read_entity(state, state.catalog.type_named("node:Doc"), "d3") is None
    assert read_entity(state, state.catalog.type_named("node:Doc"), "nobody") is None
    assert read_entity(state, state.catalog.type_named("edge:About"), "a12") is None  # from d12, which is not seen
    assert read_entity(state, state.catalog.type_named("edge:About"), "a1") is None  # below the weight that is shown
    mine = read_entity(state, state.catalog.type_named("node:Doc"), "d0")
    assert mine is not None
    assert (mine["region"], mine["salary"], mine["file"]) == ("us", None, None)
    assert read_entity(state, state.catalog.type_named("edge:About"), "a13") is not None


def test_a_masked_blob_is_null_and_that_of_a_masked_node_not_found(visible: tuple[Snapshot, Graph]) -> None:
    state, _ = visible
    for slug, problem in (("d1", "is null"), ("d3", "there is no node")):
        with pytest.raises(NotFoundError, match=problem):
            blob_in(state.resources, state, BlobCell("node", "Doc", slug, "file"), ReadPoint("main"))  # type: ignore[arg-type]
