"""Edges with an interface at an end: what is written, shown, checked and changed, where two types share an id."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.errors import BadRequestError, ConstraintError, MergeConflictsError

SCHEMA = """
interface Content { title: String? }
node Post implements Content { slug: String @key  title: String? }
node Photo implements Content { slug: String @key  title: String? }
node Person { name: String @key }
edge Likes: Person -> Content { at: DateTime? }
edge Cites: Content -> Content @card(0..1) { n: I32?  @unique(@src, @dst) }
edge Pins: Person -> Content { n: I32?  @key(@src, @dst) }
"""
NODES = """\
{"type":"Post","data":{"slug":"intro","title":"A post"}}
{"type":"Post","data":{"slug":"end"}}
{"type":"Photo","data":{"slug":"intro","title":"A photo"}}
{"type":"Photo","data":{"slug":"sun"}}
{"type":"Person","data":{"name":"ada"}}
{"type":"Person","data":{"name":"bob"}}
"""
LIKED = """query q() {
    match { $p: Person  $p likes $x }
    return { $p.name as p, $x.@type as t, $x.slug as x }
    order { p, t, x }
}"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        graph.load(NODES, mode="append")
        yield graph


def edge(kind: str, source: str, target: str, **rest: Any) -> str:
    data = rest.pop("data", {})
    return json.dumps({"edge": kind, "from": source, "to": target, **rest, "data": data})


def liked(graph: Graph, **point: Any) -> list[tuple[str, str, str]]:
    return [(row["p"], row["t"], row["x"]) for row in graph.query(LIKED, **point)]


# ---- loads ----------------------------------------------------------------------------------------------


def test_an_id_that_one_type_has_needs_no_type(graph: Graph) -> None:
    graph.load(edge("Likes", "ada", "sun"), mode="append")
    graph.load('{"type":"Post","data":{"slug":"new"}}\n' + edge("Likes", "bob", "new"), mode="merge")
    assert liked(graph) == [("ada", "Photo", "sun"), ("bob", "Post", "new")]


def test_an_id_that_several_types_have_is_refused_with_their_names_and_a_remedy(graph: Graph) -> None:
    with pytest.raises(ConstraintError, match=r"ambiguous.* Photo, Post; say which with 'to_type'") as caught:
        graph.load(edge("Likes", "bob", "sun") + "\n" + edge("Likes", "ada", "intro"), mode="append")
    assert (caught.value.rule, caught.value.line, caught.value.property) == ("endpoint", 2, "dst")
    graph.load(edge("Likes", "ada", "intro", to_type="Photo"), mode="append")
    assert liked(graph) == [("ada", "Photo", "intro")]


@pytest.mark.parametrize(("target", "more", "where"), [("moon", {}, "Content"), ("sun", {"to_type": "Post"}, "Post")])
def test_an_id_that_no_type_has_is_dangling(graph: Graph, target: str, more: dict[str, str], where: str) -> None:
    with pytest.raises(ConstraintError, match=f"line 1: .*dst '{target}' not found in {where}"):
        graph.load(edge("Likes", "ada", target, **more), mode="append")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            edge("Likes", "ada", "sun", to_type="Photos"),
            "'to_type' must be one of Photo, Post, got 'Photos'; did you mean 'Photo'",
        ),
        (edge("Likes", "ada", "sun", to_type="Person"), "'to_type' must be one of Photo, Post, got 'Person'"),
        (edge("Likes", "ada", "sun", from_type="Person"), "unknown top-level graph batch field 'from_type'"),
        (edge("Likes", "ada", "sun", to_type=3), "'to_type' must be one of Photo, Post, got an integer"),
    ],
)
def test_a_type_that_the_end_can_not_have_is_refused(graph: Graph, record: str, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        graph.load(record, mode="append")


def test_rows_have_columns_for_the_types(graph: Graph) -> None:
    rows = pa.table({"from": ["ada", "ada", "bob"], "to": ["intro"] * 2 + ["sun"], "to_type": ["Post", "Photo", None]})
    graph.load(rows, type="Likes", mode="append")
    expected = [("ada", "Photo", "intro"), ("ada", "Post", "intro"), ("bob", "Photo", "sun")]
    assert liked(graph) == expected
    dicts = [{"src": "ada", "dst": "intro", "dst_type": "Post"}, {"src": "bob", "dst": "sun"}]
    graph.load(dicts, type="Likes", mode="overwrite")
    assert liked(graph) == [("ada", "Post", "intro"), ("bob", "Photo", "sun")]
    with pytest.raises(ConstraintError, match=r"row 1: .*'dst_type' must be one of"):
        graph.load([{"src": "ada", "dst": "intro", "dst_type": "Person"}], type="Likes", mode="append")
    with pytest.raises(ConstraintError, match="'to_type' must be one of"):
        graph.load(rows.set_column(2, "to_type", [["Post", "x", None]]), type="Likes", mode="append")


def test_an_overwrite_that_takes_the_node_leaves_no_edge_behind(graph: Graph) -> None:
    graph.load(edge("Likes", "ada", "intro", to_type="Photo"), mode="append")
    graph.load('{"type":"Post","data":{"slug":"other"}}', mode="overwrite")
    with pytest.raises(ConstraintError, match="would be orphaned: dst 'intro' not found in Photo"):
        graph.load('{"type":"Photo","data":{"slug":"other"}}', mode="overwrite")


# ---- mutations ------------------------------------------------------------------------------------------


def test_a_mutation_finds_the_type_of_an_id(graph: Graph) -> None:
    graph.mutate('query m() { insert Likes { from: "ada", to: "sun" }  insert Post { slug: "late" } }')
    graph.mutate('query m() { insert Post { slug: "x" }  insert Likes { from: "bob", to: "x" } }')
    assert liked(graph) == [("ada", "Photo", "sun"), ("bob", "Post", "x")]
    with pytest.raises(ConstraintError, match="ambiguous"):
        graph.mutate('query m() { insert Likes { from: "ada", to: "intro" } }')


def test_a_bound_variable_knows_its_type(graph: Graph) -> None:
    bound = 'match { $p: Person  $p.name = "ada"  $x: %s  $x.slug = "intro" } insert Likes { from: $p, to: $x }'
    graph.mutate("query m() { " + bound % "Photo" + " }")
    assert liked(graph) == [("ada", "Photo", "intro")]
    graph.mutate("query m() { " + bound % "Content" + " }")
    assert liked(graph) == [("ada", "Photo", "intro"), ("ada", "Post", "intro")]
    assert graph.count("Likes") == 3


def test_deleting_a_node_takes_its_own_edges(graph: Graph) -> None:
    for type_name in ("Post", "Photo"):
        graph.load(edge("Likes", "ada", "intro", to_type=type_name), mode="append")
    receipt = graph.mutate('query m() { delete Photo where slug = "intro" }')
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 1)
    assert liked(graph) == [("ada", "Post", "intro")]


@pytest.mark.parametrize(
    "test", ['to = "intro"', '@dst in ["intro", "x"]', 'to starts_with "int"', 'not (to != "intro")']
)
def test_a_condition_on_an_end_reads_the_id(graph: Graph, test: str) -> None:
    records = [edge("Likes", "ada", "intro", to_type=name) for name in ("Post", "Photo")]
    graph.load("\n".join([*records, edge("Likes", "bob", "sun")]), mode="append")
    assert graph.mutate(f"query m() {{ delete Likes where {test} }}").affected_edges == 2
    assert liked(graph) == [("bob", "Photo", "sun")]


# ---- rules ----------------------------------------------------------------------------------------------


def test_rules_tell_the_types_apart(graph: Graph) -> None:
    both = [{"from_type": "Post", "to_type": "Photo"}, {"from_type": "Photo", "to_type": "Post"}]
    graph.load("\n".join(edge("Cites", "intro", "intro", **types) for types in both), mode="append")
    with pytest.raises(ConstraintError, match="source 'intro' has 2 edges"):
        graph.load(edge("Cites", "intro", "sun", from_type="Post"), mode="append")
    with pytest.raises(ConstraintError, match=r"@unique violation on Cites.*\(intro, intro\)"):
        graph.load("\n".join(edge("Cites", "intro", "intro", **both[0]) for _ in range(2)), mode="overwrite")


def test_the_id_of_a_keyed_edge_has_the_type(graph: Graph) -> None:
    records = [edge("Pins", "ada", "intro", to_type=name, data={"n": 1}) for name in ("Post", "Photo")]
    graph.load("\n".join([*records, edge("Pins", "ada", "sun")]), mode="merge")
    graph.load(edge("Pins", "ada", "sun", data={"n": 7}), mode="merge")
    ids = "query q() { match { $p: Person  $p $e:pins $x } return { $e.@id as id, $e.n as n } order { id } }"
    expected = [('["ada",["Photo","intro"]]', 1), ('["ada",["Photo","sun"]]', 7), ('["ada",["Post","intro"]]', 1)]
    assert [(row["id"], row["n"]) for row in graph.query(ids)] == expected
    graph.mutate('query m() { insert Pins { from: "ada", to: "sun", n: 8 } }')
    assert graph.count("Pins") == 3
    with pytest.raises(ConstraintError, match="does not match its canonical @key id"):
        graph.load(edge("Pins", "ada", "sun", id='["bob",["Photo","sun"]]'), mode="merge")


# ---- what is shown --------------------------------------------------------------------------------------


@pytest.fixture
def full(graph: Graph) -> Graph:
    records = [
        edge("Likes", "ada", "intro", to_type="Post", id="l1"),
        edge("Likes", "ada", "sun", id="l2"),
        edge("Cites", "intro", "intro", from_type="Photo", to_type="Post", id="c1"),
        edge("Pins", "bob", "intro", to_type="Photo", data={"n": 3}),
    ]
    graph.load("\n".join(records), mode="append")
    return graph


def test_an_export_loads_into_an_equal_graph(full: Graph, tmp_path: Path) -> None:
    lines = list(full.export())
    record = json.loads(next(line for line in lines if '"c1"' in line))
    assert {name: record[name] for name in ("from", "from_type", "to", "to_type")} == {
        "from": "intro", "from_type": "Photo", "to": "intro", "to_type": "Post",
    }  # fmt: skip
    other_ids = "node Aaa { k: String @key }\n" + SCHEMA
    with omnigraph.init(tmp_path / "copy", other_ids) as copy:
        copy.load(iter(lines), mode="append")
        assert list(copy.export()) == lines
        copy.load(iter(lines), mode="merge")
        assert list(copy.export()) == lines


@pytest.mark.parametrize("format", ["parquet", "csv", "arrow"])
def test_exported_files_load_again(full: Graph, tmp_path: Path, format: str) -> None:
    full.export_files(tmp_path / "files", format=format)
    before = list(full.export())
    for name in ("Likes", "Cites", "Pins"):
        full.load(tmp_path / "files" / f"edge.{name}.{format}", type=name, mode="overwrite")
    assert list(full.export()) == before


def test_entities_and_changes_have_the_types(full: Graph) -> None:
    entity = full.entity("Cites", "c1")
    assert entity == {"id": "c1", "src": "intro", "src_type": "Photo", "dst": "intro", "dst_type": "Post", "n": None}
    change = next(c for c in full.changes.of(full.snapshot().commit_id) if c.id == "l1")
    assert change.after is not None
    assert change.after.endpoints is not None
    ends = change.after.endpoints
    assert (ends.source, ends.source_type, ends.target, ends.target_type) == ("ada", None, "intro", "Post")


def test_a_moved_end_is_a_change(full: Graph) -> None:
    full.create_branch("side")
    full.load(edge("Likes", "ada", "intro", to_type="Photo", id="l1"), mode="merge", branch="side")
    (change,) = full.diff("main", "side").changes
    assert (change.id, change.op, change.endpoints and change.endpoints.dst_type) == ("l1", "update", "Photo")


def test_edges_as_values_show_plain_ids(full: Graph) -> None:
    query = "query q() { match { $x: Content  $x $e:cites $y } return { $e, $e.@src as s, $e.@dst as d } }"
    (row,) = full.query(query)
    assert (row["s"], row["d"]) == ("intro", "intro")
    ends = {"@src": "intro", "@src_type": "Photo", "@dst": "intro", "@dst_type": "Post"}
    assert row["e"] == {"@id": "c1", "@type": "Cites", **ends, "n": None}


# ---- updates --------------------------------------------------------------------------------------------


def update(graph: Graph, *records: str) -> Any:
    return graph.load("\n".join(records), mode="update")


def test_an_update_leaves_ends_gives_one_or_gives_both(full: Graph) -> None:
    before = full.entity("edge:Cites", "c1")
    record = {"edge": "Cites", "id": "c1", "data": {"n": 4}}
    assert update(full, json.dumps(record)).updated == 1
    assert full.entity("edge:Cites", "c1") == {**before, "n": 4}
    update(full, json.dumps({"edge": "Cites", "id": "c1", "to": "intro", "to_type": "Photo"}))
    update(full, json.dumps({"edge": "Cites", "id": "c1", "from": "end"}))
    moved = {"src": "end", "src_type": "Post", "dst": "intro", "dst_type": "Photo", "n": 4}
    assert full.entity("edge:Cites", "c1") == {"id": "c1", **moved}
    receipt = update(full, json.dumps({"edge": "Cites", "id": "c1", "from": "end", "to": "intro", "to_type": "Photo"}))
    assert (receipt.updated, receipt.unchanged, receipt.commit) == (0, 1, None)


@pytest.mark.parametrize("form", [pa.Table.from_pylist, list], ids=["arrow", "dictionaries"])
def test_rows_of_an_update_have_the_columns_that_change(full: Graph, form: Any) -> None:
    full.load(form([{"id": "l1", "dst": "intro", "dst_type": "Photo"}]), type="Likes", mode="update")
    full.load(form([{"id": "l2", "to": "end"}]), type="Likes", mode="update")
    full.load(form([{"id": "l2", "at": "2031-05-04T10:00:00Z"}]), type="Likes", mode="update")
    assert liked(full) == [("ada", "Photo", "intro"), ("ada", "Post", "end")]
    with pytest.raises((BadRequestError, ConstraintError), match="'dst_type' is the type of a node, and 'dst' does"):
        full.load(form([{"id": "l2", "dst_type": "Photo"}]), type="Likes", mode="update")


def test_an_update_finds_an_edge_by_its_ends(full: Graph) -> None:
    full.load(edge("Pins", "bob", "sun"), mode="append")
    update(
        full, edge("Pins", "bob", "sun", data={"n": 5}), edge("Pins", "bob", "intro", to_type="Photo", data={"n": 6})
    )
    pins = {
        row["id"]: row["n"]
        for row in full.query("query q() { match { $p: Person $p $e:pins $x } return { $e.@id as id, $e.n as n } }")
    }
    assert pins == {'["bob",["Photo","sun"]]': 5, '["bob",["Photo","intro"]]': 6}
    update(full, json.dumps({"edge": "Pins", "id": '["bob",["Photo","sun"]]', "to": "sun", "data": {"n": 7}}))
    assert full.entity("edge:Pins", '["bob",["Photo","sun"]]')["n"] == 7
    with pytest.raises(ConstraintError, match=r"no Pins with the id '\[\"bob\",\[\"Post\",\"intro\"\]\]'"):
        update(full, edge("Pins", "bob", "intro", to_type="Post"))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"to_type": "Photo"}, "'to_type' is the type of a node, and 'to' does not say which; give both, or neither"),
        ({"to": "intro"}, "'intro' is ambiguous, several types have a node with that id: Photo, Post"),
        ({"to": "moon"}, "dst 'moon' not found in Content"),
        ({"to": "sun", "to_type": "Post"}, "dst 'sun' not found in Post"),
        ({"to": "sun", "to_type": "Person"}, "'to_type' must be one of Photo, Post"),
    ],
)
def test_an_update_refuses_ends_as_other_loads_do(full: Graph, record: dict[str, str], message: str) -> None:
    known = {"type": "Post", "data": {"slug": "intro", "title": "new"}}
    with pytest.raises(ConstraintError, match=message) as caught:
        update(full, json.dumps(known), json.dumps({"edge": "Likes", "id": "l1", **record}))
    assert caught.value.line == 2


def test_an_update_does_not_take_its_own_unknown_nodes_for_ends(full: Graph) -> None:
    unknown = json.dumps({"type": "Post", "data": {"slug": "moon"}})
    with pytest.raises(ConstraintError, match="dst 'moon' not found in Content"):
        update(full, unknown, json.dumps({"edge": "Likes", "id": "l1", "to": "moon"}))


# ---- branches -------------------------------------------------------------------------------------------


def test_a_merge_finds_edges_whose_node_is_gone(graph: Graph) -> None:
    graph.create_branch("side")
    graph.load(edge("Likes", "ada", "intro", to_type="Photo", id="l1"), mode="append", branch="side")
    graph.mutate('query m() { delete Post where slug = "intro" }')
    assert not graph.preview_merge("side", "main").conflicts
    graph.mutate('query m() { delete Photo where slug = "intro" }')
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side", "main")
    (conflict,) = caught.value.conflicts
    assert (conflict.kind, conflict.entity_id) == ("orphan_edge", "l1")
    assert "dst 'intro' not found in Photo" in conflict.message
    assert {each.property: each.theirs for each in conflict.properties}["to_type"] == "Photo"


# ---- schemas --------------------------------------------------------------------------------------------

NARROW = SCHEMA.replace("Likes: Person -> Content", "Likes: Person -> Post").replace(
    "Pins: Person -> Content", "Pins: Person -> Post"
)


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "narrow", NARROW) as graph:
        graph.load(NODES + edge("Likes", "ada", "intro", id="l1") + "\n" + edge("Pins", "ada", "intro"), mode="append")
        yield graph


def test_widening_an_end_writes_no_row(narrow: Graph) -> None:
    before = narrow.snapshot().entry.tables
    applied = narrow.schema.apply(SCHEMA)
    assert [step.line() for step in applied.steps] == [
        "widen the target of edge type 'Likes' from 'Post' to 'Content'",
        "widen the target of edge type 'Pins' from 'Post' to 'Content'",
    ]
    assert narrow.snapshot().entry.tables == before
    assert liked(narrow) == [("ada", "Post", "intro")]
    narrow.load(edge("Likes", "bob", "intro", to_type="Photo"), mode="append")
    narrow.load(edge("Pins", "ada", "intro", to_type="Post", data={"n": 2}), mode="merge")
    assert liked(narrow) == [("ada", "Post", "intro"), ("bob", "Photo", "intro")]
    assert narrow.count("Pins") == 1, "the id of an edge is what it was"
    assert narrow.mutate('query m() { delete Post where slug = "intro" }').affected_edges == 2
    assert liked(narrow) == [("bob", "Photo", "intro")]


def test_a_merge_carries_edges_into_the_widened_type(narrow: Graph) -> None:
    narrow.create_branch("side")
    narrow.load(edge("Likes", "bob", "intro", id="l2"), mode="append", branch="side")
    narrow.schema.apply(SCHEMA)
    narrow.load(edge("Likes", "bob", "intro", to_type="Photo", id="l3"), mode="append")
    narrow.merge("side", "main")
    expected = [("ada", "Post", "intro"), ("bob", "Photo", "intro"), ("bob", "Post", "intro")]
    assert liked(narrow) == expected
    narrow.merge("main", "side")
    assert liked(narrow, branch="side") == expected


def test_a_new_type_of_the_interface_needs_no_change_of_the_edges(full: Graph) -> None:
    before = full.snapshot().entry.tables["edge:Likes"]
    full.schema.apply(SCHEMA + "node Video implements Content { slug: String @key }")
    assert full.snapshot().entry.tables["edge:Likes"] == before
    full.load('{"type":"Video","data":{"slug":"film"}}\n' + edge("Likes", "bob", "film"), mode="merge")
    assert liked(full) == [("ada", "Photo", "sun"), ("ada", "Post", "intro"), ("bob", "Video", "film")]


def test_renaming_a_type_keeps_its_edges(full: Graph) -> None:
    full.schema.apply(SCHEMA.replace("node Photo", 'node Picture @rename_from("Photo")'))
    assert liked(full) == [("ada", "Picture", "sun"), ("ada", "Post", "intro")]
    full.load(edge("Pins", "bob", "intro", to_type="Picture", data={"n": 4}), mode="merge")
    assert full.count("Pins") == 1
    lines = list(full.export())
    full.load(iter(lines), mode="merge")
    assert list(full.export()) == lines


def test_a_type_with_edges_is_not_dropped(full: Graph) -> None:
    without = SCHEMA.replace("node Photo implements Content { slug: String @key  title: String? }\n", "")
    broken = "edge:Cites 'c1': edge Cites: src 'intro' not found in Content"
    (step,) = full.schema.plan(without).steps
    assert step.effect is not None
    assert broken in step.effect.offences
    with pytest.raises(ConstraintError, match=f"{broken}.*; delete these edges first"):
        full.schema.apply(without)
    full.mutate('query m() { delete Photo where slug != "" }')
    full.schema.apply(without)
    assert liked(full) == [("ada", "Post", "intro")]


def test_a_type_with_edges_keeps_its_interface(full: Graph) -> None:
    without = SCHEMA.replace("node Photo implements Content", "node Photo")
    with pytest.raises(ConstraintError, match="edge Cites: src 'intro' not found in Content; delete these edges first"):
        full.schema.apply(without)
    full.mutate('query m() { delete Photo where slug != "" }')
    full.schema.apply(without)
    full.schema.apply(SCHEMA)
    full.load('{"type":"Photo","data":{"slug":"sun"}}\n' + edge("Likes", "bob", "sun"), mode="merge")
    assert liked(full) == [("ada", "Post", "intro"), ("bob", "Photo", "sun")]


def test_the_feed_records_a_widening_and_names_types_from_then_on(narrow: Graph) -> None:
    narrow.schema.apply(SCHEMA)
    page = narrow.changes.page(narrow.resolve_snapshot())
    steps = {each.type_name: [(step.kind, step.end) for step in each.steps] for each in page.schema_changes}
    assert steps == {"Likes": [("widen_endpoint", "target")], "Pins": [("widen_endpoint", "target")]}
    assert {each.change for each in page.schema_changes} == {"changed"}
    assert page.changes == ()
    receipt = update(narrow, json.dumps({"edge": "Likes", "id": "l1", "to": "intro", "to_type": "Photo"}))
    (moved,) = narrow.changes.page(receipt.commit.id).changes
    ends = [image.endpoints for image in (moved.before, moved.after) if image is not None]
    assert list(map(str, ends)) == ["ada -> intro (Post)", "ada -> intro (Photo)"]


def test_an_id_that_looks_like_a_tag_stands_in_the_way_of_widening(narrow: Graph) -> None:
    odd = "\x1f7\x1fintro"
    narrow.load(json.dumps({"type": "Post", "data": {"slug": odd}}) + "\n" + edge("Likes", "ada", odd), mode="append")
    with pytest.raises(ConstraintError, match=r"stored rows break it: .*delete these edges first"):
        narrow.schema.apply(SCHEMA)
    narrow.mutate("query m($id: String) { delete Post where slug = $id }", params={"id": odd})
    narrow.schema.apply(SCHEMA)
    narrow.load(json.dumps({"type": "Post", "data": {"slug": odd}}) + "\n" + edge("Likes", "bob", odd), mode="append")
    assert liked(narrow) == [("ada", "Post", "intro"), ("bob", "Post", odd)]
