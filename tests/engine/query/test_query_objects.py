"""Entities, lists, paths and records as results: as JSON, in Python, in Arrow, as text, within limits, and under a
policy."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from omnigraph.api.enums import Integers, ReadFormat
from omnigraph.api.queries import ReadPoint
from omnigraph.cli.printing.rows import render_read
from omnigraph.engine.query.read import ReadOptions, run_query
from omnigraph.errors import PolicyError, ResourceLimitError
from omnigraph.graph import Graph
from omnigraph.language.catalog import Catalog, Property
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.row_filter import TypeVisibility, visibility_of
from omnigraph.language.types import PropertyType, Scalar
from tests.engine.query_graphs import edge, library_graph, node

ANN = {"@id": "ann", "@type": "Author", "name": "Ann", "slug": "ann", "born": "1950-01-02"}
RITA = {"@id": "r1", "@type": "Reader", "name": "Rita", "slug": "r1", "age": 30, "adult": True}
TWO = {
    "@id": "b2",
    "@type": "Book",
    "slug": "b2",
    "title": "Two",
    "pages": None,
    "price": None,
    "status": "lent",
    "tags": [],
    "bought": "2020-01-01T00:00:00.000Z",
}
LOAN = {"@id": "l1", "@type": "Borrowed", "@src": "r1", "@dst": "b1", "on": "2024-01-01", "days": 1}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with library_graph(tmp_path_factory.mktemp("library") / "g") as made:
        yield made


def rows(graph: Graph, body: str, **params: Any) -> list[dict[str, Any]]:
    return graph.query(f"query q() {{ {body} }}", params=params).rows()


def table(graph: Graph, body: str) -> pa.Table:
    return graph.query(f"query q() {{ {body} }}").to_arrow()


# ---- JSON and Python ------------------------------------------------------------------------------------


def test_a_node_is_an_object_without_blobs_and_vectors(graph: Graph) -> None:
    assert rows(graph, 'match { $b: Book { slug: "b2" } } return { $b }') == [{"b": TWO}]
    assert list(rows(graph, 'match { $a: Author { slug: "ann" } } return { $a as x }')[0]["x"])[:2] == ["@id", "@type"]


def test_an_edge_is_an_object_with_its_ends(graph: Graph) -> None:
    body = "match { $r: Reader  $r $l:borrowed $b  $l.days = 1 } return { $l }"
    assert rows(graph, body) == [{"l": LOAN}]
    assert list(rows(graph, body)[0]["l"])[:4] == ["@id", "@type", "@src", "@dst"]
    against = "match { $b: Book  $r $l:borrowed $b  $l.days = 1 } return { $l }"
    assert rows(graph, against) == [{"l": LOAN}], "stored orientation, whatever the walk"


def test_meta_fields_are_columns_of_their_own(graph: Graph) -> None:
    body = "match { $r: Reader  $r $l:borrowed $b  $l.days = 1 } return { $r.@id, $r.@type, $l.@id, $l.@src, $l.@dst }"
    assert rows(graph, body) == [{"r.@id": "r1", "r.@type": "Reader", "l.@id": "l1", "l.@src": "r1", "l.@dst": "b1"}]


def test_lists_and_records_hold_objects_and_rendered_values(graph: Graph) -> None:
    body = 'match { $a: Author { slug: "ann" } } '
    body += "return { [$a, $a] as l, record(author: $a, on: $a.born, none: null) as q }"
    assert rows(graph, body) == [{"l": [ANN, ANN], "q": {"author": ANN, "on": "1950-01-02", "none": None}}]
    body = 'return { [date("2024-01-01"), null] as l, record(at: datetime("2024-01-01T00:00:00Z"), x: 0.0 / 0.0) as q }'
    at = "2024-01-01T00:00:00.000Z"
    assert rows(graph, body) == [{"l": ["2024-01-01", None], "q": {"at": at, "x": "NaN"}}]


def test_a_path_is_an_object_of_objects(graph: Graph) -> None:
    body = (
        'match { $a: Reader { slug: "r1" }  $c: Reader { slug: "r3" }  path $p: shortest $a follows $c } return { $p }'
    )
    (row,) = rows(graph, body)
    assert list(row["p"]) == ["length", "nodes", "edges"]
    assert row["p"]["length"] == 2
    assert [each["@id"] for each in row["p"]["nodes"]] == ["r1", "r2", "r3"]
    assert row["p"]["nodes"][0] == RITA
    assert [(each["@id"], each["@src"], each["since"]) for each in row["p"]["edges"]] == [
        ("e1", "r1", 1),
        ("e2", "r2", 2),
    ]


def test_entities_of_several_types_have_the_properties_of_their_own_type(graph: Graph) -> None:
    body = "match { $x: (Author | Reader) } return { $x } order { $x }"
    objects = [row["x"] for row in rows(graph, body)]
    assert [(each["@type"], each["@id"]) for each in objects] == [
        ("Author", "ann"),
        ("Author", "bob"),
        ("Reader", "r1"),
        ("Reader", "r2"),
        ("Reader", "r3"),
    ]
    assert objects[0] == ANN
    assert objects[2] == RITA


def test_nulls_are_null_and_not_objects_of_nulls(graph: Graph) -> None:
    body = 'match { $r: Reader { slug: "r3" }  optional { $r $l:borrowed $b } } '
    body += "return { $b, $l, [$b] as s, record(b: $b) as q }"
    assert rows(graph, body) == [{"b": None, "l": None, "s": [None], "q": {"b": None}}]


def test_integers_beyond_those_of_javascript_are_texts_on_request(graph: Graph) -> None:
    body = "return { [9007199254740993] as l, record(n: 9007199254740993) as q }"
    result = graph.query(f"query q() {{ {body} }}")
    assert result.rows(Integers.JS_SAFE) == [{"l": ["9007199254740993"], "q": {"n": "9007199254740993"}}]
    assert result.rows() == [{"l": [9007199254740993], "q": {"n": 9007199254740993}}]


# ---- Arrow and frames -----------------------------------------------------------------------------------


def test_objects_are_typed_structs_in_arrow(graph: Graph) -> None:
    found = table(graph, 'match { $b: Book { slug: "b2" } } return { $b }')
    type_ = found.schema.field("b").type
    assert {field.name: field.type for field in type_} == {
        "@id": pa.string(),
        "@type": pa.string(),
        "slug": pa.string(),
        "title": pa.string(),
        "pages": pa.int32(),
        "price": pa.float64(),
        "status": pa.string(),
        "tags": pa.list_(pa.string()),
        "bought": pa.timestamp("ms", tz="UTC"),
    }
    assert found.column("b").to_pylist()[0]["bought"] == datetime(2020, 1, 1, tzinfo=UTC)


def test_the_types_of_lists_records_and_paths_in_arrow(graph: Graph) -> None:
    body = "match { $a: Reader  path $p: shortest $a follows{1,1} $c } "
    body += "return { $p, collect($a) as l, record(n: 1, a: $a) as q }"
    schema = table(graph, body).schema
    path, reader = schema.field("p").type, schema.field("l").type.value_type
    assert [(field.name, str(field.type)[:4]) for field in path] == [
        ("length", "int6"),
        ("nodes", "list"),
        ("edges", "list"),
    ]
    assert path.field("nodes").type.value_type == reader
    assert reader.field("age").type == pa.int32()
    assert [(field.name, field.type) for field in schema.field("q").type] == [("n", pa.int64()), ("a", reader)]


def test_of_several_types_the_common_properties_are_typed_and_the_rest_is_a_text(graph: Graph) -> None:
    found = table(graph, "match { $x: (Author | Reader) } return { $x } order { $x }")
    type_ = found.schema.field("x").type
    assert [field.name for field in type_] == ["@id", "@type", "name", "slug", "properties"]
    first, *_, last = found.column("x").to_pylist()
    assert (first["name"], json.loads(first["properties"])) == ("Ann", {"born": "1950-01-02"})
    assert json.loads(last["properties"]) == {"age": 17, "adult": None}


def test_streams_files_and_frames_take_objects(graph: Graph) -> None:
    text = "query q() { match { $a: Author } return { $a, [$a] as l } order { $a } }"
    result = graph.query(text)
    with pa.ipc.open_stream(io.BytesIO(result.to_ipc())) as reader:
        assert reader.read_all() == result.to_arrow()
    assert [row["a"]["name"] for row in graph.stream(text).rows()] == ["Ann", "Bob"]
    frame = result.to_pandas()
    assert frame["a"][0]["born"] == date(1950, 1, 2)
    assert "bob" in repr(result)


@pytest.mark.parametrize("format_", [ReadFormat.CSV, ReadFormat.TABLE, ReadFormat.KV])
def test_a_cell_of_text_holds_compact_json(graph: Graph, format_: ReadFormat) -> None:
    output = graph.query('query q() { match { $a: Author { slug: "bob" } } return { [1, 2] as l, record(n: 1) as q } }')
    text = render_read(output.read_output(), format_)
    assert "[1,2]" in text
    assert '{"n":1}' in text.replace('""', '"')


def test_nothing_has_the_types_all_the_same(graph: Graph) -> None:
    found = table(graph, 'match { $b: Book { slug: "no" } } return { $b, collect($b) as l }')
    assert found.num_rows == 0
    found = table(graph, 'match { $x: (Author | Reader)  $x.slug = "no" } return { $x, [$x] as l }')
    assert found.schema.field("l").type.value_type == found.schema.field("x").type


# ---- late, within limits --------------------------------------------------------------------------------


def test_an_object_of_one_node_takes_one_request(graph: Graph) -> None:
    text = 'query q() { match { $b: Book { slug: "b2" } } return { $b } }'
    graph.query(text)
    profile = graph.query(text, options=ReadOptions(profile=True)).profile
    plain = 'query q() { match { $b: Book { slug: "b2" } } return { $b.title, $b.pages } }'
    graph.query(plain)
    assert profile.requests <= graph.query(plain, options=ReadOptions(profile=True)).profile.requests


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Few nodes of much text, all connected."""
    schema = (
        "node Doc { slug: String @key  text: String }\nnode Note { slug: String @key  n: I32 }\nedge To: Doc -> Doc"
    )
    docs = [node("Doc", f"d{i:03d}", text=chr(97 + i % 26) * 100_000) for i in range(60)]
    notes = [node("Note", f"n{i}", n=i) for i in range(100)]
    steps = [edge("To", f"d{i:03d}", f"d{j:03d}") for i in range(60) for j in range(60) if i != j]
    with Graph.init(tmp_path_factory.mktemp("heavy") / "g", schema) as made:
        made.load("\n".join((*docs, *notes, *steps)), mode="append")
        yield made


@pytest.mark.parametrize(
    "body",
    [
        "match { $d: Doc  $d to $e } return { $d, $e }",
        "match { $d: Doc  $d to $e } return { $d, [$e, $d] as l, record(e: $e) as q }",
        "match { $x: (Doc | Note)  $y: Note } return { $x, $y }",
        "match { $d: Doc  path $p: shortest $d to{1,2} $e } return { $p }",
        "match { $d: Doc  $d to $e } return { $d.slug as s, collect($e) as l }",
    ],
)
def test_objects_come_in_batches_that_fit(heavy: Graph, body: str) -> None:
    """All objects together are hundreds of megabytes."""
    size = count = 0
    for batch in heavy.stream(f"query q() {{ {body} }}", options=ReadOptions(memory_bytes=64 << 20)):
        assert batch.nbytes < 64 << 20
        size, count = size + batch.nbytes, count + len(batch)
        if size > 400 << 20:
            break
    assert size > 200 << 20


def test_one_list_of_more_objects_than_fit_is_refused(heavy: Graph) -> None:
    text = "query q() { match { $d: Doc  $d to $e } return { collect($e) as l } }"
    with pytest.raises(ResourceLimitError, match="query_memory_bytes"):
        heavy.query(text, options=ReadOptions(memory_bytes=64 << 20))


# ---- what is not stored, and what is not visible --------------------------------------------------------


def with_property(catalog: Catalog, name: str) -> Catalog:
    author = catalog.nodes["Author"]
    later = Property(name=name, id=catalog.next_id, type=PropertyType(Scalar.STRING, nullable=True), column=name)
    changed = msgspec.structs.replace(author, property_list=(*author.property_list, later))
    return Catalog({**catalog.nodes, "Author": changed}, catalog.edges, catalog.interfaces, catalog.next_id + 1)


def test_a_property_declared_later_is_null(graph: Graph) -> None:
    options = ReadOptions(catalog=with_property(graph.catalog, "mood"))
    text = 'query q() { match { $a: Author { slug: "ann" } } return { $a } }'
    assert graph.query(text, options=options).rows() == [{"a": {**ANN, "mood": None}}]


def test_a_masked_property_is_null_in_objects_wherever_they_are(graph: Graph) -> None:
    snapshot = graph.snapshot()
    reader, follows = snapshot.catalog.type_named("node:Reader"), snapshot.catalog.type_named("edge:Follows")
    masks = [TypeVisibility(reader, masked=frozenset({"age"})), TypeVisibility(follows, masked=frozenset({"since"}))]
    state = snapshot.restricted_to(visibility_of(masks))

    def shown(body: str) -> list[dict[str, Any]]:
        return run_query(state, ReadPoint("main"), (f"query q() {{ {body} }}", "q", {})).rows()

    masked = {**RITA, "age": None}
    (row,) = shown('match { $r: Reader { slug: "r1" } } return { $r, [$r] as l, record(r: $r) as q }')
    assert row == {"r": masked, "l": [masked], "q": {"r": masked}}
    assert shown('match { $r: Reader { slug: "r1" } } return { collect($r) as l }') == [{"l": [masked]}]
    (row,) = shown('match { $r: Reader { slug: "r1" }  path $p: shortest $r follows{1,1} $_ } return { $p }')
    assert (row["p"]["nodes"][0], row["p"]["edges"][0]["since"]) == (masked, None)
    (row,) = shown('match { $x: (Author | Reader)  $x.slug = "r1" } return { $x }')
    assert row["x"] == masked
    with pytest.raises(PolicyError, match=r"'Reader\.age' is hidden"):
        shown("match { $x: (Author | Reader) } return { $x, $x.age? as a }")


def test_what_is_not_visible_is_nowhere(graph: Graph) -> None:
    snapshot = graph.snapshot()
    reader = snapshot.catalog.type_named("node:Reader")
    filter_ = check_row_filter('slug != "r2"', reader, snapshot.catalog)
    state = snapshot.restricted_to(visibility_of([TypeVisibility(reader, filter_)]))

    def shown(body: str) -> list[dict[str, Any]]:
        return run_query(state, ReadPoint("main"), (f"query q() {{ {body} }}", "q", {})).rows()

    assert shown("match { $r: Reader } return { count(*) as n, count { $r follows $_ } as f } order { f }") == [
        {"n": 1, "f": 0},
        {"n": 1, "f": 1},
    ]
    assert shown('match { $r: Reader { slug: "r1" }  optional { $r follows $f } } return { $f }') == [{"f": None}]
    assert shown('match { $r: Reader { slug: "r1" }  path $p: shortest $r follows $_ } return { $p }') == []
    body = 'unwind ["r1", "r2"] as $s match { $r: Reader { slug: $s } } return { collect($r.slug) as l }'
    assert shown(body) == [{"l": ["r1"]}]
    both = "match { $x: Reader } return { $x.slug as s } union match { $x: Author } return { $x.slug as s }"
    assert sorted(row["s"] for row in shown(both)) == ["ann", "bob", "r1", "r3"]
