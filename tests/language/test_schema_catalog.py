"""The compiled catalog: order, identities, keys, indexes, lookup, and its persisted form."""

from __future__ import annotations

import msgspec
import pytest

from omnigraph.errors import FormatVersionError, IntegrityError
from omnigraph.language.catalog import (
    Annotation,
    Cardinality,
    Catalog,
    CheckRule,
    EmbedSource,
    IndexKind,
    InlineRule,
    Metric,
    RangeRule,
    VectorIndex,
)
from omnigraph.language.schema.compile import accept_schema, compile_schema
from omnigraph.language.types import PropertyType, Scalar

LIBRARY = """
interface Titled { title: String @index }

node Author { slug: String @key  name: String  born: Date? }

node Book implements Titled {
    isbn: String @key
    pages: I32?
    price: F64?
    tags: [String]?
    status: enum(lost, available, lent)
    added_at: DateTime?
    blurb: String? @index
    cover: Blob?
    vec: Vector(4)? @embed("blurb", model="acme/embed-1")
    @range(pages, 1..5000)
    @check(isbn, "^[0-9-]+$")
}

node Reader { card: String @key  name: String  email: String? @unique  age: I32? }

node Copy { isbn: String  copy_no: I32  shelf: String?  @key(isbn, copy_no) }

edge WroteBy: Book -> Author
edge Borrowed: Reader -> Book @card(0..5) { on: Date?  note: String?  @unique(src, dst, on) }
edge Follows: Reader -> Reader { since: Date? }
"""


def test_offline_order_is_source_order_with_injected_properties_last() -> None:
    catalog = compile_schema(LIBRARY)
    assert list(catalog.nodes) == ["Author", "Book", "Reader", "Copy"]
    assert list(catalog.edges) == ["WroteBy", "Borrowed", "Follows"]
    assert list(catalog.nodes["Book"].properties) == [
        "isbn", "pages", "price", "tags", "status", "added_at", "blurb", "cover", "vec", "title",
    ]  # fmt: skip
    assert catalog.edges["Borrowed"].uniques == (("src", "dst", "on"),)


def test_live_order_is_name_order() -> None:
    catalog = accept_schema(LIBRARY)
    assert list(catalog.nodes) == sorted(catalog.nodes)
    assert list(catalog.edges) == ["Borrowed", "Follows", "WroteBy"]
    assert list(catalog.nodes["Reader"].properties) == ["age", "card", "email", "name"]
    assert catalog.edges["Borrowed"].uniques == (("dst", "on", "src"),)


def test_ids_go_to_types_then_properties_then_tables_by_name() -> None:
    catalog = accept_schema(
        "node B { y: I32 x: I32 } node A { z: I32 } edge E: A -> B { w: I32 } interface I { q: I32 }"
    )
    assert [(t.name, t.id) for t in catalog.types()] == [("I", 1), ("A", 2), ("B", 3), ("E", 4)]
    assert [(p.name, p.id) for t in catalog.types() for p in t.property_list] == [
        ("q", 5), ("z", 6), ("x", 7), ("y", 8), ("w", 9),
    ]  # fmt: skip
    tables = [*catalog.nodes.values(), *catalog.edges.values()]
    assert [(t.name, t.table_incarnation) for t in tables] == [("A", 10), ("B", 11), ("E", 12)]
    assert catalog.next_id == 13


def test_source_order_changes_nothing_in_a_live_catalog() -> None:
    shuffled = "node B { x: I32 y: enum(b, a) @unique(y, x) } node A implements J, I {} interface J {} interface I {}"
    ordered = "interface I {} interface J {} node A implements I, J {} node B { @unique(x, y) y: enum(a, b) x: I32 }"
    assert accept_schema(shuffled) == accept_schema(ordered)
    assert accept_schema(shuffled).digest == accept_schema(ordered).digest


def test_key_members_are_in_stable_property_order_not_in_written_order() -> None:
    assert accept_schema(LIBRARY).nodes["Copy"].key == ("copy_no", "isbn")
    assert compile_schema(LIBRARY).nodes["Copy"].key == ("copy_no", "isbn")
    assert accept_schema("node Memo { text: String }").nodes["Memo"].key == ()


def test_everything_declared_is_in_the_catalog() -> None:
    catalog = accept_schema(
        LIBRARY
        + 'node Note @description("d") @instruction("i") @team("x", a=1, b="c") '
        + '{ v: Vector(3) @metric("cosine") @description("vd") @tag n: I64 @range(n, ..-1.5) }'
    )
    book, note = catalog.nodes["Book"], catalog.nodes["Note"]
    assert book.ranges == (RangeRule("pages", 1, 5000),)
    assert book.checks == (CheckRule("isbn", "^[0-9-]+$"),)
    assert book.implements == ("Titled",)
    assert book.properties["vec"].embed == EmbedSource("blurb", "acme/embed-1")
    assert book.properties["vec"].distance is Metric.L2
    assert book.properties["vec"].vector_index == VectorIndex(exact_rows=100_000)
    indexed = compile_schema("node A { v: Vector(2) @index( partitions = 64,probes=8, exact_rows=0 ) }").nodes["A"]
    assert indexed.properties["v"].index == VectorIndex(64, 8, 0)
    assert indexed.indexes == (("v",),)
    embedding = compile_schema('node A { s: String v: Vector(2) @embed(s, on_write=true, model="m") }')
    assert embedding.nodes["A"].properties["v"].embed == EmbedSource("s", "m", on_write=True)
    assert book.properties["status"].type == PropertyType(Scalar.STRING, enum_values=("available", "lent", "lost"))
    title = book.properties["title"]
    assert (title.injected, title.interfaces, title.inline) == (True, ("Titled",), (InlineRule.INDEX,))
    assert catalog.edges["Borrowed"].cardinality == Cardinality(0, 5)
    assert catalog.edges["Follows"].cardinality == Cardinality(0, None)
    assert (note.description, note.instruction) == ("d", "i")
    assert note.annotations == (Annotation("team", "x", (("a", "1"), ("b", "c"))),)
    assert note.properties["v"].distance is Metric.COSINE
    assert note.properties["v"].description == "vd"
    assert note.properties["v"].annotations == (Annotation("tag"),)
    # `..hi` is an upper bound.
    assert note.ranges == (RangeRule("n", None, -1.5),)


def test_a_rule_that_is_written_twice_is_one_rule() -> None:
    text = "node A { p: I32 @unique @unique(p) q: I32 @unique(p, q) @unique(q, p) @index(q) @index(q) }"
    for catalog in (compile_schema(text), accept_schema(text)):
        assert catalog.nodes["A"].uniques == (("p",), ("p", "q"))
        assert catalog.nodes["A"].indexes == (("q",),)


def test_own_annotations_win_over_the_interface() -> None:
    catalog = accept_schema("interface I { p: I32 @index } node A implements I { p: I32 @unique }")
    own = catalog.nodes["A"]
    assert own.indexes == ()
    assert own.uniques == (("p",),)
    assert own.properties["p"].interfaces == ("I",)
    assert not own.properties["p"].injected


INDEX_KINDS = [
    ("p: String @key", (IndexKind.FULL_TEXT, IndexKind.BTREE)),
    ("p: String @index", (IndexKind.FULL_TEXT, IndexKind.NGRAM)),
    ("p: String @key @index", (IndexKind.FULL_TEXT, IndexKind.NGRAM)),
    ("p: String @unique @index", (IndexKind.FULL_TEXT, IndexKind.BTREE)),
    ("p: String @unique", (IndexKind.BTREE,)),
    ("p: I64? @unique", (IndexKind.BTREE,)),
    ("p: enum(a) @unique @index", (IndexKind.BTREE,)),
    ("p: [String] @unique(p)", ()),
    ("p: String q: String @unique(p, q)", ()),
    ("p: enum(a) @index", (IndexKind.BTREE,)),
    ("p: I32 @key", (IndexKind.BTREE,)),
    ("p: Bool @index", (IndexKind.BTREE,)),
    ("p: DateTime @index(p)", (IndexKind.BTREE,)),
    ("p: Vector(2) @index", (IndexKind.VECTOR,)),
    ("p: [String] @index(p)", (IndexKind.LABEL_LIST,)),
    ("p: String q: String @index(p, q)", ()),
    ("p: String q: String @key(p, q)", ()),
    ("p: String", ()),
]


@pytest.mark.parametrize(("members", "kinds"), INDEX_KINDS)
def test_index_kinds(members: str, kinds: tuple[IndexKind, ...]) -> None:
    assert accept_schema(f"node A {{ {members} }}").nodes["A"].index_kinds("p") == kinds


@pytest.mark.parametrize(
    ("members", "kinds"),
    [
        ("p: String @unique", (IndexKind.BTREE,)),
        ("p: String @index", (IndexKind.BTREE,)),
        ("p: DateTime? @index", (IndexKind.BTREE,)),
        ("p: [String] @index(p)", ()),
        ("p: I32 @unique(src, p)", ()),
        ("p: I32", ()),
    ],
)
def test_index_kinds_of_edges(members: str, kinds: tuple[IndexKind, ...]) -> None:
    catalog = accept_schema(f"node A {{ k: I32 }} edge E: A -> A {{ {members} }}")
    assert catalog.edges["E"].index_kinds("p") == kinds


def test_edges_are_found_in_any_case_and_nodes_exactly() -> None:
    catalog = accept_schema(LIBRARY)
    for spelling in ("WroteBy", "wroteBy", "wroteby", "WROTEBY"):
        found = catalog.edge_named(spelling)
        assert found is not None
        assert found.name == "WroteBy"
    assert catalog.edge_named("wrote_by") is None
    assert catalog.nodes.get("book") is None


def test_incident_edges() -> None:
    catalog = accept_schema(LIBRARY)
    assert [e.name for e in catalog.incident_edges("Reader")] == ["Borrowed", "Follows"]
    assert [e.name for e in catalog.incident_edges("Book")] == ["Borrowed", "WroteBy"]
    assert catalog.incident_edges("Copy") == ()


def test_columns_that_differ_only_in_case_get_names_of_their_own() -> None:
    properties = accept_schema("node A { userName: I32 username: I32 iD: I32 }").nodes["A"].properties
    assert {name: p.column for name, p in properties.items()} == {
        "iD": "iD__2",
        "userName": "userName",
        "username": "username__2",
    }


def test_the_persisted_form_reads_back_equal() -> None:
    for catalog in (accept_schema(LIBRARY), compile_schema(LIBRARY), accept_schema("")):
        again = Catalog.from_json(catalog.to_json())
        assert again == catalog
        assert again.digest == catalog.digest
        assert list(again.nodes) == list(catalog.nodes)


def test_the_digest_follows_content_and_identity() -> None:
    base = accept_schema("node A { p: I32? }")
    assert base.digest != accept_schema("node A { p: I32 }").digest
    assert base.digest != accept_schema('node A @description("x") { p: I32? }').digest
    renamed_hint = accept_schema('node A @rename_from("Z") { p: I32? @rename_from("q") }')
    assert base.digest == renamed_hint.digest
    assert len(base.digest) == 64


def test_only_a_catalog_with_keys_of_edges_has_a_form_that_older_readers_refuse() -> None:
    """They would take such an edge for one without a key, and write it twice."""
    keyed = accept_schema("node A {} edge E: A -> A { since: Date  @key(since, @dst, @src) }")
    assert msgspec.json.decode(keyed.to_json())["format"] == 2
    assert Catalog.from_json(keyed.to_json()) == keyed
    assert keyed.edges["E"].key == ("@src", "@dst", "since")
    assert msgspec.json.decode(accept_schema("node N { id: String }").to_json())["format"] == 2
    assert msgspec.json.decode(accept_schema(LIBRARY).to_json())["format"] == 1


def test_the_ends_of_an_edge_have_one_spelling_in_a_catalog() -> None:
    """That of the first catalogs, which had no other: an old graph keeps its digest."""
    both = [accept_schema(f"node A {{}} edge E: A -> A {{ @unique({ends}) }}") for ends in ("src, dst", "@src, @dst")]
    assert both[0] == both[1]
    assert both[0].edges["E"].uniques == (("dst", "src"),)


def test_a_property_called_as_an_end_is_not_the_end() -> None:
    edge = accept_schema("node A {} edge E: A -> A { src: I32  @unique(src)  @index(@src, dst) }").edges["E"]
    assert edge.uniques == (("src",),)
    assert edge.indexes == (("@src", "dst"),)
    assert [edge.rule_column(name) for name in ("src", "@src", "dst")] == ["src__2", "src", "dst"]


def test_a_label_is_kept() -> None:
    catalog = accept_schema('node A @label("Person") {} edge E: A -> A @label("KNOWS")')
    assert (catalog.nodes["A"].label, catalog.edges["E"].label) == ("Person", "KNOWS")
    assert accept_schema("node A {}").nodes["A"].label is None


def test_a_newer_or_damaged_catalog_is_refused() -> None:
    data = msgspec.json.decode(accept_schema(LIBRARY).to_json())
    data["format"] = 99
    with pytest.raises(FormatVersionError):
        Catalog.from_json(msgspec.json.encode(data))
    with pytest.raises(IntegrityError, match=r"schemas/x\.json"):
        Catalog.from_json(b'{"format": 1}', "schemas/x.json")
    with pytest.raises(IntegrityError):
        Catalog.from_json(b"not json")
