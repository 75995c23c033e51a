"""What `infer_schema` proposes: types of columns, keys, edges, names, samples, and what it refuses."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from omnigraph import BadRequestError, Graph, NotFoundError, infer_schema
from omnigraph.api.schema import SchemaProposal
from omnigraph.language.schema.compile import compile_schema
from omnigraph.language.schema.formatter import format_schema
from tests.support.feature_queries import RECORDS


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def types_of(proposal: SchemaProposal, name: str = "Row") -> dict[str, str]:
    node = compile_schema(proposal.schema).type_named(name)
    return {prop.name: str(prop.type) for prop in node.property_list}


def type_of(values: list[Any], type_: pa.DataType | None = None) -> str:
    """The type of a column of Arrow, or of dictionaries when no type is said."""
    data: Any = [{"x": value} for value in values] if type_ is None else pa.table({"x": pa.array(values, type_)})
    return types_of(infer_schema(Row=data)).get("x", "left out")


def type_in_csv(*cells: str) -> str:
    Path("row.csv").write_text("x,y\n" + "".join(f"{cell},\n" for cell in cells))
    return types_of(infer_schema("row.csv"))["x"]


@pytest.mark.parametrize(
    ("cells", "type_"),
    [
        (["true", "False"], "Bool"),
        (["1", "-5", "0"], "I32"),
        (["1", "2147483648"], "I64"),
        (["1", "9223372036854775808"], "U64"),
        (["-1", "9223372036854775808"], "String"),
        (["18446744073709551616"], "String"),
        (["007", "8"], "String"),
        (["+1"], "String"),
        (["1", "2.5", "1e3"], "F64"),
        (["1e999"], "String"),
        (["12345678901234567", "0.5"], "String"),
        (["2031-05-04"], "Date"),
        (["2031-13-04"], "String"),
        (["2031-05-04", "2031-05-04T10:00:00Z"], "DateTime"),
        (["2031-05-04 12:00:00+02:00"], "DateTime"),
        (["20310504"], "I32"),
        (['"[1,2]"', "[]"], "[I32]"),
        (['"[""a"",""b""]"'], "[String]"),
        (['"[1,null]"'], "String"),
        (["[x"], "String"),
        (["base64:QUJD"], "Blob"),
        (["1", "one"], "String"),
        (["1", ""], "I32?"),
        ([""], "String?"),
    ],
)
def test_the_narrowest_type_of_a_text_file(cells: list[str], type_: str) -> None:
    assert type_in_csv(*cells) == type_


@pytest.mark.parametrize(
    ("values", "type_", "inferred"),
    [
        ([1, 2], pa.int64(), "I64"),
        ([1, 2], pa.int8(), "I32"),
        ([1, 2], pa.uint32(), "U32"),
        ([1.5], pa.float32(), "F32"),
        ([1.5], pa.float64(), "F64"),
        (["1", "2"], pa.string(), "String"),
        (["2031-05-04"], pa.large_string(), "Date"),
        ([Decimal("12")], pa.decimal128(5, 0), "I32"),
        ([Decimal("1.5")], pa.decimal128(5, 1), "F64"),
        ([datetime(2031, 5, 4, tzinfo=UTC)], pa.timestamp("us", "UTC"), "DateTime"),
        (["a", "b"], pa.dictionary(pa.int8(), pa.string()), "String"),
        ([[1.0, 2.0]], pa.list_(pa.float64(), 2), "Vector(2)"),
        ([[1.0, 2.0]], pa.list_(pa.float64()), "[F64]"),
        ([[0.5] * 8, [1.5] * 8], pa.list_(pa.float32()), "Vector(8)"),
        ([[1] * 8], pa.list_(pa.int32()), "[I32]"),
        ([[]], pa.list_(pa.null()), "[String]"),
        ([b"x"], pa.binary(), "Blob"),
        ([{"a": 1}], pa.struct([("a", pa.int64())]), "left out"),
        ([[[1]]], pa.list_(pa.list_(pa.int64())), "left out"),
        ([[None]], pa.list_(pa.int64()), "left out"),
        ([1], pa.time32("s"), "left out"),
        ([None], pa.null(), "String?"),
    ],
)
def test_the_type_of_a_column_of_arrow(values: list[Any], type_: pa.DataType, inferred: str) -> None:
    assert type_of(values, type_) == inferred


@pytest.mark.parametrize(
    ("values", "inferred"),
    [
        ([1, 2**40], "I64"),
        ([1, 0.5], "F64"),
        ([True, 1], "left out"),
        (["a", 1], "left out"),
        ([{"a": 1}], "left out"),
        ([date(2031, 5, 4), datetime(2031, 5, 4)], "DateTime"),
        ([Decimal("1.25"), None], "F64?"),
        ([["a"], []], "[String]"),
        ([b"x"], "Blob"),
    ],
)
def test_the_type_of_python_values(values: list[Any], inferred: str) -> None:
    assert type_of(values) == inferred


def test_frames_of_pandas_and_polars() -> None:
    frame = pd.DataFrame({"id": ["a", "b"], "age": [1.0, None], "on": pd.to_datetime(["2031-01-01", None])})
    assert types_of(infer_schema(Row=frame)) == {"id": "String", "age": "F64?", "on": "DateTime?"}
    assert types_of(infer_schema(Row=pl.DataFrame({"id": [1, 2], "tags": [["x"], []]}))) == {
        "id": "I64",
        "tags": "[String]",
    }


def test_what_no_property_holds_is_said_in_a_comment() -> None:
    text = infer_schema(Row=[{"id": 1, "where": {"lat": 1.0}, "odd": "a"}, {"id": 2, "odd": 3}]).schema
    assert "// column where is left out: it holds objects (1): no property holds that" in text
    assert "// column odd is left out: it holds integers (1), texts (1): no type takes both" in text


def test_what_a_load_changes_is_said_in_a_comment() -> None:
    times = pa.table({"at": pa.array([1], pa.timestamp("us")), "n": pa.array([float("nan")])})
    text = infer_schema(Row=times).schema
    assert "// times finer than a millisecond, which are cut" in text
    assert "// NaN or infinite numbers, which no load takes" in text


# Enums


def test_few_repeated_words_are_an_enum() -> None:
    words = [{"id": n, "state": ("lent", "kept")[n % 2]} for n in range(10)]
    assert types_of(infer_schema(Row=words))["state"] == "enum(kept, lent)"
    assert types_of(infer_schema(Row=words[:9]))["state"] == "String"
    assert types_of(infer_schema(Row=[{**row, "state": f"{row['state']} now"} for row in words]))["state"] == "String"
    many = [{"id": n, "state": f"s{n % 13}"} for n in range(130)]
    assert types_of(infer_schema(Row=many))["state"] == "String"


def test_a_sample_proposes_no_enum_and_says_what_was_read() -> None:
    words = [{"id": n, "state": ("lent", "kept")[n % 2]} for n in range(20)]
    proposal = infer_schema(Row=words, sample=12)
    assert types_of(proposal)["state"] == "String"
    assert "// Read of Row: the first 12 rows; later ones may not fit." in proposal.schema
    assert "first" not in infer_schema(Row=words, sample=20).schema
    assert proposal.types[0].rows == 12


# Keys


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({"title": "a{n}", "isbn": "{n}"}, "isbn"),
        ({"email": "a{n}", "name": "b{n}", "id": "c{n}"}, "id"),
        ({"price": 1.5, "user_id": "u{n}"}, "user_id"),
        ({"title": "a{n}"}, "title"),
        ({"title": "same"}, None),
        ({"text": "long " * 20 + "{n}"}, None),
        ({"on": "2031-01-0{n}"}, None),
    ],
)
def test_keys(row: dict[str, Any], key: str | None) -> None:
    rows = [{k: v.format(n=n) if isinstance(v, str) else v for k, v in row.items()} for n in range(1, 4)]
    [type_] = infer_schema(Row=rows).types
    assert type_.key == key


def test_a_key_is_unique_over_all_rows_and_never_null() -> None:
    rows = [{"id": n} for n in range(30_000)]
    assert infer_schema(Row=rows).types[0].key == "id"
    assert infer_schema(Row=[*rows, {"id": 7}]).types[0].key is None
    assert infer_schema(Row=[*rows, {"id": None}]).types[0].key is None
    assert infer_schema(Row=[*rows, {"other": 1}]).types[0].key is None


def test_reasons_of_keys() -> None:
    assert "// key: unique and never empty\n" in infer_schema(Row=[{"id": 1}]).schema
    doubtful = "// key: unique and never empty, but not named like one: is it unique in what is still to come?"
    assert doubtful in infer_schema(Row=[{"title": "a"}]).schema
    assert "// no key: no column is unique, never empty and like a key" in infer_schema(Row=[{"on": True}]).schema


# Edges


def test_rows_with_ends_are_edges_where_the_ends_are_keys() -> None:
    people = [{"name": "Ada", "code": "a"}, {"name": "Bob", "code": "b"}]
    proposal = infer_schema(Person=people, City=[{"id": 1}, {"id": 2}], LivesIn=[{"src": "a", "dst": 2, "days": 3}])
    assert [(each.kind, each.name, each.key) for each in proposal.types] == [
        ("node", "Person", "code"),
        ("node", "City", "id"),
        ("edge", "LivesIn", None),
    ]
    edge = compile_schema(proposal.schema).edges["LivesIn"]
    assert (edge.from_type, edge.to_type, list(edge.properties)) == ("Person", "City", ["days"])
    with Graph.init("g", proposal.schema) as graph:
        graph.load(people, type="Person", mode="append")
        graph.load([{"id": 2}], type="City", mode="append")
        graph.load([{"src": "a", "dst": 2, "days": 3}], type="LivesIn", mode="append")
        assert graph.count("LivesIn") == 1


def test_rows_whose_ends_are_nobody_are_nodes() -> None:
    proposal = infer_schema(Person=[{"id": "a"}], Mail=[{"from": "a", "to": "z"}])
    assert (
        "// The rows look like edges, but 'to' holds values, such as 'z', that no other type has as keys."
        in proposal.schema
    )
    assert types_of(proposal, "node:Mail") == {"from": "String", "to": "String"}


def test_edges_between_rows_that_look_like_edges() -> None:
    """A message has a sender and somebody outside, so it is a node, and replies are edges between messages."""
    mails = [{"id": "m1", "from": "a", "to": "z"}, {"id": "m2", "from": "b", "to": "a"}]
    proposal = infer_schema(Reply=[{"from": "m2", "to": "m1"}], Mail=mails, Person=[{"id": "a"}, {"id": "b"}])
    assert {each.name: each.kind for each in proposal.types} == {"Mail": "node", "Person": "node", "Reply": "edge"}


def test_edges_that_name_nodes_by_another_column_than_their_key() -> None:
    people = [{"id": n, "code": f"c{n}"} for n in range(3)]
    proposal = infer_schema(Person=people, A=[{"from": 1, "to": 2}], B=[{"from": "c1", "to": "c2"}])
    assert {each.name: (each.kind, each.key) for each in proposal.types} == {
        "Person": ("node", "id"), "A": ("edge", None), "B": ("node", None),
    }  # fmt: skip


def test_ends_that_fit_several_types_are_said() -> None:
    proposal = infer_schema(A=[{"id": 1}, {"id": 2}], B=[{"id": 1}], E=[{"from": 1, "to": 2}])
    edge = compile_schema(proposal.schema).edges["E"]
    assert (edge.from_type, edge.to_type) == ("B", "A")
    assert "// The values of `from` are also ids of A." in proposal.schema


def test_callers_say_the_ends() -> None:
    edges = {"Likes": ("A", "B", [{"from": 1, "to": 1}])}
    edge = compile_schema(infer_schema(A=[{"id": 1}], B=[{"id": 1}], edges=edges).schema).edges["Likes"]
    assert (edge.from_type, edge.to_type) == ("A", "B")
    with pytest.raises(BadRequestError, match="the edge type Likes names the type C, which is not read"):
        infer_schema(A=[{"id": 1}], edges={"Likes": ("A", "C", [{"from": 1, "to": 1}])})
    with pytest.raises(BadRequestError, match="rows of the edge type Likes need the columns from and to"):
        infer_schema(A=[{"id": 1}], edges={"Likes": ("A", "A", [{"x": 1}])})


# Graph records


def test_records_of_a_graph_have_all_types() -> None:
    Path("kb.jsonl").write_text(RECORDS)
    proposal = infer_schema("kb.jsonl")
    catalog = compile_schema(proposal.schema)
    assert {name: node.key for name, node in catalog.nodes.items()} == {
        "Author": ("slug",), "Book": ("isbn",), "Reader": ("card",), "Shelf": ("id",),
    }  # fmt: skip
    assert {name: (e.from_type, e.to_type) for name, e in catalog.edges.items()} == {
        "WroteBy": ("Book", "Author"), "Borrowed": ("Reader", "Book"), "Follows": ("Reader", "Reader"),
        "Stands": ("Book", "Shelf"),
    }  # fmt: skip
    with Graph.init("g", proposal.schema) as graph:
        assert graph.load(Path("kb.jsonl"), mode="append").total_entities == len(RECORDS.splitlines())


def test_an_export_loads_into_the_schema_inferred_from_it(tmp_path: Path) -> None:
    schema = "node P { name: String  at: DateTime? }\nedge Knows: P -> P { on: Date? }"
    with Graph.init("g", schema) as graph:
        graph.load('{"type":"P","id":"x","data":{"name":"A","at":"2031-01-01T00:00:00Z"}}\n'
                   '{"type":"P","id":"y","data":{"name":"A"}}\n'
                   '{"edge":"Knows","from":"x","to":"y","data":{"on":"2031-01-02"}}', mode="append")  # fmt: skip
        Path("export.jsonl").write_text("".join(graph.export()))
    proposal = infer_schema("export.jsonl")
    with Graph.init("h", proposal.schema) as copy:
        copy.load(Path("export.jsonl"), mode="append")
        query = "query q() { match { $a: P  $a $k:knows $b } return { $a.@id as a, $k.on as on, $b.@id as b } }"
        assert copy.query(query).rows() == [{"a": "x", "on": "2031-01-02", "b": "y"}]


def test_an_end_whose_types_records_give_is_an_interface(tmp_path: Path) -> None:
    schema = """
        interface Content { title: String? }
        node Post implements Content { slug: String @key }
        node Photo implements Content { slug: String @key }
        node Person { name: String @key }
        edge Likes: Person -> Content { at: Date? }
        edge Cites: Content -> Content
        edge Pins: Person -> Content
    """
    records = [
        {"type": "Post", "data": {"slug": "a"}},
        *({"type": "Photo", "data": {"slug": slug}} for slug in "ab"),
        {"type": "Person", "data": {"name": "p"}},
        *({"edge": "Likes", "from": "p", "to": "a", "to_type": name} for name in ("Photo", "Post")),
        {"edge": "Cites", "from": "b", "from_type": "Photo", "to": "a", "to_type": "Post"},
        {"edge": "Pins", "from": "p", "to": "a", "to_type": "Photo"},
    ]
    with Graph.init("g", schema) as graph:
        graph.load("\n".join(map(json.dumps, records)), mode="append")
        Path("export.jsonl").write_text("".join(graph.export()))
        expected = list(graph.export())
    proposal = infer_schema("export.jsonl")
    catalog = compile_schema(proposal.schema)
    assert {name: (edge.from_type, edge.to_type) for name, edge in catalog.edges.items()} == {
        "Likes": ("Person", "PhotoOrPost"), "Cites": ("AnyPhoto", "AnyPost"), "Pins": ("Person", "AnyPhoto"),
    }  # fmt: skip
    assert catalog.nodes["Photo"].implements == ("AnyPhoto", "PhotoOrPost")
    with Graph.init("h", proposal.schema) as copy:
        copy.load(Path("export.jsonl"), mode="append")
        ends = ("edge", "from", "from_type", "to", "to_type")
        edges = [[[line.get(name) for name in ends] for line in map(json.loads, lines) if "edge" in line]
                 for lines in (copy.export(), expected)]  # fmt: skip
        assert sorted(edges[0], key=repr) == sorted(edges[1], key=repr), "their ids are random, and so is their order"
    Path("export.jsonl").write_text(Path("export.jsonl").read_text().replace('"to_type":"Post"', '"to_type":"Film"'))
    assert "The edge type Cites is left out: `to` holds ids that no type has" in infer_schema("export.jsonl").schema


def test_ids_beside_records_decide_the_key() -> None:
    lines = [
        {"type": "P", "id": "x", "data": {"name": "A", "code": "x"}},
        {"type": "P", "id": "y", "data": {"name": "B", "code": "y"}},
    ]
    Path("p.ndjson").write_text("\n".join(map(json.dumps, lines)))
    assert infer_schema("p.ndjson").types[0].key == "code"
    lines[1]["id"] = "z"
    Path("p.ndjson").write_text("\n".join(map(json.dumps, lines)))
    proposal = infer_schema("p.ndjson")
    assert proposal.types[0].key is None
    assert "// no key: the records have ids of their own" in proposal.schema


def test_edges_to_nobody_are_left_out() -> None:
    Path("g.jsonl").write_text('{"type":"P","data":{"id":"a"}}\n{"edge":"E","from":"a","to":"b"}')
    proposal = infer_schema("g.jsonl")
    assert "// The edge type E is left out: `to` holds ids that no type has, such as b." in proposal.schema
    assert [each.name for each in proposal.types] == ["P"]


# Names and sources


def test_names_become_legal() -> None:
    columns = ["First Name", "Straße", "2nd", "from", "_rowid", "first_name", "ID", "__x", "日本"]
    proposal = infer_schema(A=[{"id": 1}], E=[{"src": 1, "dst": 1, **dict.fromkeys(columns, "v")}])
    [_, edge] = proposal.types
    assert edge.columns == {
        "First Name": "first_name_", "Straße": "strae", "2nd": "column_2nd", "from": "from_", "_rowid": "_rowid_",
        "first_name": "first_name", "ID": "id", "__x": "x", "日本": "column",
    }  # fmt: skip
    assert '// column "First Name"\n    first_name_: String' in proposal.schema


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("books.csv", "Books"),
        ("library-books.CSV.gz", "LibraryBooks"),
        ("2031 sales.csv", "T2031Sales"),
        ("HTMLPage.csv", "HTMLPage"),
    ],
)
def test_a_file_names_its_type(file: str, name: str) -> None:
    write = gzip.open if file.endswith(".gz") else open
    with write(file, "wb") as opened:
        opened.write(b"id\n1\n")
    assert infer_schema(file).types[0].name == name


def test_files_of_one_type_are_read_together() -> None:
    Path("one.csv").write_text("id,n\n1,5\n")
    Path("two.tsv").write_text("id\tn\n2\t\n")
    Path("a").mkdir()
    Path("a/one.csv").write_text("id,n\n3,x\n")
    assert types_of(infer_schema("one.csv", "a/one.csv"), "One") == {"id": "I32", "n": "String"}
    assert types_of(infer_schema("two.tsv"), "Two") == {"id": "I32", "n": "String?"}


def test_the_text_is_formatted_and_says_how_many_rows_were_read() -> None:
    proposal = infer_schema(Row=[{"id": n} for n in range(1200)])
    assert format_schema(proposal.schema) == proposal.schema == str(proposal)
    assert "// Row: 1200 rows" in proposal.schema


def test_a_file_without_rows() -> None:
    Path("empty.csv").write_text("id,name\n")
    proposal = infer_schema("empty.csv")
    assert types_of(proposal, "Empty") == {}
    assert "// no key: there are no rows" in proposal.schema


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("x.csv", b"a,b\n1\n", r"x\.csv, line 2: .*it has 1 value where its file has 2 columns"),
        ("x.ndjson", b'{"a": 1}\n{"a"', r"x\.ndjson, line 2: .*truncated"),
        ("x.ndjson", b"[1]\n", r"x\.ndjson: row 1 is not an object with named values"),
        (
            "x.jsonl",
            b'{"type":"P","data":{}}\n{"a":1}',
            r"x\.jsonl: record 2 is not a graph record as the first one is",
        ),
        ("x.parquet", b"no", r"x\.parquet: "),
        ("x.txt", b"a", "does not tell a format"),
        ("x.csv.lz4", b"a", "only Spark reads"),
    ],
)
def test_what_a_load_could_not_read_is_refused(file: str, content: bytes, message: str) -> None:
    Path(file).write_bytes(content)
    with pytest.raises(BadRequestError, match=message):
        infer_schema(file)


def test_sources_are_checked() -> None:
    with pytest.raises(NotFoundError, match=r"'nowhere\.csv' does not exist"):
        infer_schema("nowhere.csv")
    with pytest.raises(BadRequestError, match="is a directory; name the files in it"):
        infer_schema(".")
    with pytest.raises(BadRequestError, match="'book' is not a name of a type"):
        infer_schema(book=[{"id": 1}])
    with pytest.raises(BadRequestError, match="name a file or a frame"):
        infer_schema()
    with pytest.raises(BadRequestError, match="a sample has at least one row"):
        infer_schema(Row=[{"id": 1}], sample=0)
