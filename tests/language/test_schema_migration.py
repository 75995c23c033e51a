"""Schema evolution: identities that follow renames, and a step or a refusal for every kind of change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.api import wire
from omnigraph.errors import CompileError
from omnigraph.language.catalog import Catalog
from omnigraph.language.schema.compile import accept_schema
from omnigraph.language.schema.migration import evolve

BASE = """
interface Titled { title: String @index  subtitle: String? }
node Author { slug: String @key  name: String }
node Book implements Titled {
    isbn: String @key
    pages: I32?
    status: enum(available, lent)
    price: F64?
    blurb: String?
    vec: Vector(4)? @embed("blurb", model="m")
    @range(price, 0..)
}
node Reader @description("who reads") {
    card: String @key  name: String  email: String? @unique  age: I32?  @check(card, "x")
}
edge WroteBy: Book -> Author
edge Borrowed: Reader -> Book @card(0..5) { on: Date?  note: String?  @unique(src, dst, on) }
"""


def change(*edits: tuple[str, str]) -> str:
    text = BASE
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def lines(new: str, old: str = BASE, **options: bool) -> list[str]:
    return [step.line() for step in evolve(accept_schema(old), new, **options).plan.steps]


SUPPORTED = [
    pytest.param("// a comment\n" + BASE, [], id="comments"),
    pytest.param(change(("enum(available, lent)", "enum(lent,available)")), [], id="enum order"),
    pytest.param(
        change(("card: String @key  name: String", "name: String  card: String @key")), [], id="property order"
    ),
    pytest.param(BASE + "interface Tagged {}", ["add interface type 'Tagged'"], id="new interface"),
    pytest.param(
        BASE + "node Tag { name: String @key  n: I32  @range(n, 1..) }", ["add node type 'Tag'"], id="new node"
    ),
    pytest.param(BASE + "edge Likes: Reader -> Book @card(1..2)", ["add edge type 'Likes'"], id="new edge"),
    pytest.param(
        change(("age: I32?", "age: I32? shoe: F32?")),
        ["add property 'Reader.shoe' (F32?) on node 'Reader'"],
        id="nullable property",
    ),
    pytest.param(
        change(("note: String?", "note: String? fine: [F64]?")),
        ["add property 'Borrowed.fine' ([F64]?) on edge 'Borrowed'"],
        id="nullable edge property",
    ),
    pytest.param(
        change(("enum(available, lent)", "enum(available, lent, sold, lost)")),
        ["extend enum 'Book.status' (+lost, +sold) on node 'Book'"],
        id="enum widening",
    ),
    pytest.param(
        change(("age: I32?", "age: I32? @index")),
        ["add constraint @index(age) on node 'Reader'"],
        id="inline index",
    ),
    pytest.param(
        change(("age: I32?", "age: I32?  @index(name, age)")),
        ["add constraint @index(age, name) on node 'Reader'"],
        id="body index",
    ),
    pytest.param(
        change(("age: I32?", "age: I32? @index  @index(age)")),
        ["add constraint @index(age) on node 'Reader'"],
        id="both spellings are one step",
    ),
    pytest.param(
        change(("on: Date?", "on: Date? @index")),
        ["add constraint @index(on) on edge 'Borrowed'"],
        id="edge index",
    ),
    pytest.param(
        change(("who reads", "whoever reads")),
        ["update metadata of node type 'Reader' (@description)"],
        id="type description",
    ),
    pytest.param(
        change((' @description("who reads")', "")),
        ["update metadata of node type 'Reader' (removed)"],
        id="no description",
    ),
    pytest.param(
        change(("edge WroteBy: Book -> Author", 'edge WroteBy: Book -> Author @instruction("i")')),
        ["update metadata of edge type 'WroteBy' (@instruction)"],
        id="edge instruction",
    ),
    pytest.param(
        change(("pages: I32?", 'pages: I32? @description("d")')),
        ["update metadata of property 'Book.pages' (@description) on node 'Book'"],
        id="property description",
    ),
    pytest.param(
        change(("pages: I32?", "")), ["drop property 'Book.pages' of node 'Book' (soft mode)"], id="drop nullable"
    ),
    pytest.param(
        change(("card: String @key  name: String", "card: String @key")),
        ["drop property 'Reader.name' of node 'Reader' (soft mode)"],
        id="drop required",
    ),
    pytest.param(
        change(("edge WroteBy: Book -> Author", "")), ["drop edge type 'WroteBy' (soft mode)"], id="drop edge"
    ),
    pytest.param(
        change(("edge WroteBy: Book -> Author", ""), ("node Author { slug: String @key  name: String }", "")),
        ["drop node type 'Author' (soft mode)", "drop edge type 'WroteBy' (soft mode)"],
        id="drop node and its edge",
    ),
    pytest.param(
        change(("subtitle: String?", "subtitle: String?  year: I32?")),
        [
            "add property 'Titled.year' (I32?) on interface 'Titled'",
            "add property 'Book.year' (I32?) on node 'Book'",
        ],
        id="interface gains a nullable property",
    ),
    pytest.param(
        change(("subtitle: String?", "")),
        [
            "drop property 'Titled.subtitle' of interface 'Titled' (soft mode)",
            "drop property 'Book.subtitle' of node 'Book' (soft mode)",
        ],
        id="interface loses a property",
    ),
    pytest.param(
        change(("Reader", "Patron"), ("node Patron", 'node Patron @rename_from("Reader")')),
        ["rename node type 'Reader' -> 'Patron'"],
        id="rename node, edges follow",
    ),
    pytest.param(
        change(("edge WroteBy:", "edge PennedBy:"), ("-> Author", '-> Author @rename_from("WroteBy")')),
        ["rename edge type 'WroteBy' -> 'PennedBy'"],
        id="rename edge",
    ),
    pytest.param(
        change(("pages: I32?", 'leaves: I32? @rename_from("pages")')),
        ["rename property 'Book.pages' -> 'Book.leaves' on node 'Book'"],
        id="rename property",
    ),
    pytest.param(
        change(("blurb: String?", 'text: String? @rename_from("blurb")'), ('@embed("blurb"', '@embed("text"')),
        ["rename property 'Book.blurb' -> 'Book.text' on node 'Book'"],
        id="a renamed embed source is no change",
    ),
    pytest.param(
        change((' model="m"', ' model="m", on_write=true')),
        ["update metadata of property 'Book.vec' (@embed) on node 'Book'"],
        id="when vectors are computed may change",
    ),
    pytest.param(
        change(("isbn: String @key", 'code: String @key @rename_from("isbn")')),
        ["rename property 'Book.isbn' -> 'Book.code' on node 'Book'"],
        id="rename a key",
    ),
    pytest.param(
        change(("on: Date?", 'day: Date? @rename_from("on")'), ("dst, on)", "dst, day)")),
        ["rename property 'Borrowed.on' -> 'Borrowed.day' on edge 'Borrowed'"],
        id="rename a constrained property",
    ),
    pytest.param(
        change(
            ("title: String @index", 'name: String @index @rename_from("title")'),
        ),
        [
            "rename property 'Titled.title' -> 'Titled.name' on interface 'Titled'",
            "rename property 'Book.title' -> 'Book.name' on node 'Book'",
        ],
        id="rename an injected property",
    ),
    pytest.param(
        change(("pages: I32?", "leaves: I32?")),
        [
            "add property 'Book.leaves' (I32?) on node 'Book'",
            "drop property 'Book.pages' of node 'Book' (soft mode)",
        ],
        id="without a hint a rename is a drop and an add",
    ),
    pytest.param(
        change(("status: enum(available, lent)", 'state: enum(available, lent, lost) @rename_from("status")')),
        [
            "rename property 'Book.status' -> 'Book.state' on node 'Book'",
            "extend enum 'Book.state' (+lost) on node 'Book'",
        ],
        id="rename and widen",
    ),
]


@pytest.mark.parametrize(("new", "expected"), SUPPORTED)
def test_supported_changes(new: str, expected: list[str]) -> None:
    plan = evolve(accept_schema(BASE), new).plan
    assert [step.line() for step in plan.steps] == expected
    assert plan.supported


STATUS = "enum(available, lent)"
EMBEDDED = '@embed("blurb", model="{}")'

POSSIBLE_WITH_DATA = [
    pytest.param(
        change(("age: I32?", "age: I32? shoe: F32 = 40.5")),
        ["add property 'Reader.shoe' (F32 = 40.5) on node 'Reader'"],
        id="required property with a default",
    ),
    pytest.param(
        change(("enum(available, lent)", "enum(available)")),
        ["narrow enum 'Book.status' (-lent) on node 'Book'"],
        id="enum narrowing",
    ),
    pytest.param(
        change(("enum(available, lent)", 'enum(available, out) @rename_value("lent", to="out")')),
        ["rename enum value 'lent' -> 'out' of property 'Book.status' on node 'Book'"],
        id="enum value renamed",
    ),
    pytest.param(
        change(("enum(available, lent)", 'enum(available, lost) @rename_value("lent", to="available")')),
        [
            "rename enum value 'lent' -> 'available' of property 'Book.status' on node 'Book'",
            "extend enum 'Book.status' (+lost) on node 'Book'",
        ],
        id="one enum value merged into another",
    ),
    pytest.param(
        change(("enum(available, lent)", "enum(available, lent, x)?")),
        [
            f"change the type of property 'Book.status' ({STATUS} -> enum(available, lent, x)?) on node 'Book'",
            "extend enum 'Book.status' (+x) on node 'Book'",
        ],
        id="enum widened and relaxed",
    ),
    pytest.param(
        change(("enum(available, lent)", "String")),
        ["change the type of property 'Book.status' (enum(available, lent) -> String) on node 'Book'"],
        id="enum to String",
    ),
    pytest.param(
        change(("blurb: String?", "blurb: enum(a)?")),
        ["change the type of property 'Book.blurb' (String? -> enum(a)?) on node 'Book'"],
        id="String to enum",
    ),
    pytest.param(
        change(("pages: I32?", "pages: I64?")),
        ["change the type of property 'Book.pages' (I32? -> I64?) on node 'Book'"],
        id="wider number",
    ),
    pytest.param(
        change(("pages: I32?", "pages: I32")),
        ["change the type of property 'Book.pages' (I32? -> I32) on node 'Book'"],
        id="required",
    ),
    pytest.param(
        change(("pages: I32?", "pages: I32 = 1")),
        [
            "change the type of property 'Book.pages' (I32? -> I32) on node 'Book'",
            "change the default of property 'Book.pages' (none -> 1) on node 'Book'",
        ],
        id="required, with a default for nulls",
    ),
    pytest.param(
        change(("name: String  email", "name: String?  email")),
        ["change the type of property 'Reader.name' (String -> String?) on node 'Reader'"],
        id="nullable",
    ),
    pytest.param(
        change(("age: I32?", "age: I32? @unique")), ["add constraint @unique(age) on node 'Reader'"], id="unique"
    ),
    pytest.param(
        change(("age: I32?", "age: I32? @range(age, 0..)")),
        ["add constraint @range(age, 0..) on node 'Reader'"],
        id="range",
    ),
    pytest.param(
        change(("age: I32?", 'age: I32? @check(name, "x")')),
        ["add constraint @check(name, \"x\") on node 'Reader'"],
        id="check",
    ),
    pytest.param(
        change(("0..)", "1..)")),
        [
            "drop constraint @range(price, 0..) on node 'Book'",
            "add constraint @range(price, 1..) on node 'Book'",
        ],
        id="changed range",
    ),
    pytest.param(
        change(('@check(card, "x")', "")), ["drop constraint @check(card, \"x\") on node 'Reader'"], id="no check"
    ),
    pytest.param(
        change(("email: String? @unique", "email: String?")),
        ["drop constraint @unique(email) on node 'Reader'"],
        id="not unique any more",
    ),
    pytest.param(
        change(("email: String? @unique", "")),
        [
            "drop property 'Reader.email' of node 'Reader' (soft mode)",
            "drop constraint @unique(email) on node 'Reader'",
        ],
        id="a dropped property takes its rules along",
    ),
    pytest.param(
        change(("email: String? @unique", "email: String? @unique(email)")),
        ["update metadata of property 'Reader.email' (removed) on node 'Reader'"],
        id="a rule moves to the body",
    ),
    pytest.param(
        change((", on)", ")")),
        [
            "drop constraint @unique(dst, on, src) on edge 'Borrowed'",
            "add constraint @unique(dst, src) on edge 'Borrowed'",
        ],
        id="changed unique",
    ),
    pytest.param(
        change(("title: String @index", "title: String")),
        ["drop constraint @index(title) on interface 'Titled'", "drop constraint @index(title) on node 'Book'"],
        id="no index",
    ),
    pytest.param(
        change(("@card(0..5)", "@card(0..6)")), ["change @card of edge 'Borrowed' (0..5 -> 0..6)"], id="cardinality"
    ),
    pytest.param(
        change(("edge WroteBy: Book -> Author", "edge WroteBy: Book -> Author { @key(@src, @dst) }")),
        ["add constraint @key(@src, @dst) on edge 'WroteBy'"],
        id="key of an edge",
    ),
    pytest.param(
        change((' model="m"', ' model="n"')),
        [f"change @embed of property 'Book.vec' ({EMBEDDED.format('m')} -> {EMBEDDED.format('n')}) on node 'Book'"],
        id="embedding model",
    ),
    pytest.param(
        change((' @embed("blurb", model="m")', "")),
        ["change @embed of property 'Book.vec' (@embed(\"blurb\", model=\"m\") -> none) on node 'Book'"],
        id="no embedding",
    ),
    pytest.param(
        change(("vec: Vector(4)?", 'vec: Vector(4)? @metric("cosine")')),
        ["change @metric of property 'Book.vec' (l2 -> cosine) on node 'Book'"],
        id="metric",
    ),
    pytest.param(
        change(("vec: Vector(4)?", "vec: Vector(4)? @index(probes=8)")),
        ["update metadata of property 'Book.vec' (@index) on node 'Book'", "add constraint @index(vec) on node 'Book'"],
        id="parameters of an index",
    ),
    pytest.param(
        change((" implements Titled", "")),
        [
            "change the interfaces of node type 'Book' (-Titled)",
            "drop property 'Book.subtitle' of node 'Book' (soft mode)",
            "drop property 'Book.title' of node 'Book' (soft mode)",
            "drop constraint @index(title) on node 'Book'",
        ],
        id="no interface",
    ),
    pytest.param(
        change(("node Author {", 'node Author implements Titled { title: String = ""')),
        [
            "change the interfaces of node type 'Author' (+Titled)",
            "add property 'Author.subtitle' (String?) on node 'Author'",
            "add property 'Author.title' (String = \"\") on node 'Author'",
        ],
        id="another interface",
    ),
    pytest.param(
        change(("isbn: String @key", "isbn: String @key subtitle: String?")),
        ["update metadata of property 'Book.subtitle' (removed) on node 'Book'"],
        id="an injected property is declared by the type",
    ),
    pytest.param(
        change(("subtitle: String?", "subtitle: String? pages: I32?")),
        ["add property 'Titled.pages' (I32?) on interface 'Titled'"],
        id="an interface asks for a property that the type has",
    ),
    pytest.param(
        change(("pages: I32?", "pages: I32? @tag(1)")),
        ["update metadata of property 'Book.pages' (@tag) on node 'Book'"],
        id="custom annotation",
    ),
    pytest.param(
        change(("node Author", "node Author @team(x)")),
        ["update metadata of node type 'Author' (@team)"],
        id="custom annotation of a type",
    ),
    pytest.param(
        change(("Titled", "Named")),
        [
            "add interface type 'Named'",
            "drop interface type 'Titled' (soft mode)",
            "change the interfaces of node type 'Book' (+Named, -Titled)",
        ],
        id="another name for an interface",
    ),
]


@pytest.mark.parametrize(("new", "expected"), POSSIBLE_WITH_DATA)
def test_changes_that_stored_rows_may_stand_against(new: str, expected: list[str]) -> None:
    plan = evolve(accept_schema(BASE), new).plan
    assert [step.line() for step in plan.steps] == expected
    assert plan.supported


UNSUPPORTED = [
    (change(("age: I32?", "age: I32? shoe: F32")), "node:Reader.shoe", "OG-MF-103"),
    (change(("pages: I32?", "pages: [I32]?")), "node:Book.pages", "OG-MF-106"),
    (change(("pages: I32?", "pages: U32?")), "node:Book.pages", "OG-MF-106"),
    (change(("price: F64?", "price: F32?")), "node:Book.price", "OG-MF-106"),
    (change(("Vector(4)?", "Vector(5)?")), "node:Book.vec", "OG-MF-106"),
    (change(("slug: String @key", "slug: String")), "node:Author", None),
    (change(("slug: String @key  name: String", "slug: String  name: String @key")), "node:Author", None),
    (change(("slug: String @key  name: String", "name: String")), "node:Author", None),
    (change(("WroteBy: Book -> Author", "WroteBy: Author -> Book")), "edge:WroteBy", None),
    (change(("node Author", "node Author implements Titled")), "node:Author.title", "OG-MF-103"),
]


@pytest.mark.parametrize(("new", "entity", "code"), UNSUPPORTED)
def test_unsupported_changes(new: str, entity: str, code: str | None) -> None:
    plan = evolve(accept_schema(BASE), new).plan
    assert not plan.supported
    blockers = {
        (s["entity"], s.get("code")) for s in wire.to_builtins(plan)["steps"] if s["kind"] == "unsupported_change"
    }
    assert (entity, code) in blockers


def test_codes_carry_their_tier() -> None:
    (line,) = lines(change(("age: I32?", "age: I32? shoe: F32")))
    assert line.startswith("unsupported change on node:Reader.shoe [OG-MF-103, validated]: ")
    (line,) = lines(change(("pages: I32?", "pages: String?")))
    assert line.startswith("unsupported change on node:Book.pages [OG-MF-106, destructive]: ")
    blocker = evolve(accept_schema(BASE), change(("pages: I32?", "pages: String?"))).plan.first_blocker
    assert blocker is not None
    assert blocker.blocking_reason.startswith("[OG-MF-106] the type can't be changed from I32? to String?; add a")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("node A { f: F32 @key }", "node A { f: F64 @key }"),
        ("node A { s: enum(a, b) @key }", 'node A { s: enum(b, c) @key @rename_value("a", to="c") }'),
    ],
)
def test_what_would_change_the_ids_of_nodes_is_refused(old: str, new: str) -> None:
    (line,) = lines(new, old)
    assert "ids would change" in line


def test_a_key_may_get_wider() -> None:
    assert lines("node A { n: I64 @key }", "node A { n: I32 @key }") == [
        "change the type of property 'A.n' (I32 -> I64) on node 'A'"
    ]


def test_renamed_values_are_remembered_until_they_are_in_use_again() -> None:
    def renamed(catalog: Catalog) -> tuple[tuple[str, str], ...]:
        return catalog.nodes["A"].properties["s"].renamed_values

    first = accept_schema("node A { s: enum(a, b) }")
    second = evolve(first, 'node A { s: enum(b, c) @rename_value("a", to="c") }').catalog
    assert renamed(second) == (("a", "c"),)
    third = evolve(second, 'node A { s: enum(b, d) @rename_value("c", to="d") }').catalog
    assert renamed(third) == (("a", "d"), ("c", "d"))
    assert renamed(evolve(third, "node A { s: enum(b, d, a) }").catalog) == (("c", "d"),)
    assert renamed(evolve(third, "node A { s: enum(b) }").catalog) == ()


def test_a_hint_that_renames_no_value_is_refused() -> None:
    with pytest.raises(CompileError, match="'x' is not a value of the accepted enum"):
        evolve(accept_schema("node A { s: enum(a) }"), 'node A { s: enum(a, b) @rename_value("x", to="b") }')


def test_allow_data_loss_makes_drops_hard_and_nothing_else_possible() -> None:
    new = change(("pages: I32?", ""), ("edge WroteBy: Book -> Author", ""))
    assert lines(new, allow_data_loss=True) == [
        "drop property 'Book.pages' of node 'Book' (hard mode)",
        "drop edge type 'WroteBy' (hard mode)",
    ]
    assert not evolve(accept_schema(BASE), change(("pages: I32?", "pages: Date?")), allow_data_loss=True).plan.supported


def test_steps_follow_the_documented_order() -> None:
    old = "interface I { p: I32? } node B { a: I32? b: I32? c: I32? } node Z {} edge Y: B -> B "
    old += "edge E: B -> B { x: I32? }"
    new = (
        'interface I { p: I32? q: I32? } node A {} node C @rename_from("B") @description("d") '
        '{ b: I64? a2: I32? @rename_from("a") d: I32? @index } edge E: C -> C { x: I32? @description("e") w: I32? }'
    )
    assert lines(new, old) == [
        "add property 'I.q' (I32?) on interface 'I'",
        "add node type 'A'",
        "rename node type 'B' -> 'C'",
        "update metadata of node type 'C' (@description)",
        "rename property 'C.a' -> 'C.a2' on node 'C'",
        "change the type of property 'C.b' (I32? -> I64?) on node 'C'",
        "add property 'C.d' (I32?) on node 'C'",
        "drop property 'C.c' of node 'C' (soft mode)",
        "add constraint @index(d) on node 'C'",
        "drop node type 'Z' (soft mode)",
        "add property 'E.w' (I32?) on edge 'E'",
        "update metadata of property 'E.x' (@description) on edge 'E'",
        "drop edge type 'Y' (soft mode)",
    ]


def test_wire_form_of_every_step() -> None:
    old = "node B { a: I32? e: enum(x) g: I32? } node Z {}"
    new = (
        'node A {} node C @rename_from("B") @description("d") @instruction("i") '
        '{ a2: I32 @rename_from("a") e: enum(x, y) v: Vector(2)? @index f: I32? @description("p") } '
    )
    old = old.replace("g: I32?", "g: I32? f: I32?")
    steps = wire.to_builtins(evolve(accept_schema(old), new).plan)["steps"]
    assert steps == [
        {"kind": "add_type", "type_kind": "node", "name": "A"},
        {"kind": "rename_type", "type_kind": "node", "from": "B", "to": "C"},
        {
            "kind": "update_type_metadata",
            "type_kind": "node",
            "name": "C",
            "annotations": [{"name": "description", "value": "d"}, {"name": "instruction", "value": "i"}],
        },
        {"kind": "rename_property", "type_kind": "node", "type_name": "C", "from": "a", "to": "a2"},
        {
            "kind": "change_property_type",
            "type_kind": "node",
            "type_name": "C",
            "property_name": "a2",
            "from": {"scalar": "I32", "nullable": True, "list": False, "enum_values": None},
            "to": {"scalar": "I32", "nullable": False, "list": False, "enum_values": None},
        },
        {"kind": "extend_enum", "type_kind": "node", "type_name": "C", "property_name": "e", "added_values": ["y"]},
        {
            "kind": "update_property_metadata",
            "type_kind": "node",
            "type_name": "C",
            "property_name": "f",
            "annotations": [{"name": "description", "value": "p"}],
        },
        {
            "kind": "add_property",
            "type_kind": "node",
            "type_name": "C",
            "property_name": "v",
            "property_type": {"scalar": {"Vector": 2}, "nullable": True, "list": False, "enum_values": None},
        },
        {"kind": "drop_property", "type_kind": "node", "type_name": "C", "property_name": "g", "mode": "soft"},
        {"kind": "add_constraint", "type_kind": "node", "type_name": "C", "constraint": {"Index": ["v"]}},
        {"kind": "drop_type", "type_kind": "node", "name": "Z", "mode": "soft"},
    ]


# -- identities


def test_a_rename_keeps_identity_column_table_and_key_order() -> None:
    old = accept_schema("node A { b: I32 a: String @key(a, b) }")
    plan, new = evolve(old, 'node X @rename_from("A") { zed: String @rename_from("a") b: I32 @key(zed, b) }')
    assert plan.supported
    before, after = old.nodes["A"], new.nodes["X"]
    assert (after.id, after.table_incarnation, after.birth_name) == (before.id, before.table_incarnation, "A")
    assert (after.properties["zed"].id, after.properties["zed"].column) == (before.properties["a"].id, "a")
    # The id of a node was made from (a, b); after the rename it is still made in that order.
    assert (before.key, after.key) == (("a", "b"), ("zed", "b"))


def test_a_readded_name_is_a_new_lifetime() -> None:
    first = accept_schema("node A { p: I32? } node B {}")
    _, without = evolve(first, "node B {}")
    _, again = evolve(without, "node A { p: I32? } node B {}")
    assert again.nodes["A"].id > first.nodes["B"].id
    assert again.nodes["A"].table_incarnation != first.nodes["A"].table_incarnation
    assert again.nodes["B"] == first.nodes["B"]
    assert again.next_id > first.next_id


def test_a_readded_property_never_meets_its_old_column() -> None:
    first = accept_schema("node A { p: I32? q: I32? }")
    _, without = evolve(first, "node A { q: I32? }")
    _, again = evolve(without, "node A { p: String? q: I32? }")
    _, third = evolve(evolve(again, "node A { q: I32? }").catalog, "node A { p: Bool? q: I32? }")
    columns = [catalog.nodes["A"].properties["p"].column for catalog in (first, again, third)]
    assert columns == ["p", "p__2", "p__3"]
    assert len({catalog.nodes["A"].properties["p"].id for catalog in (first, again, third)}) == 3


def test_a_name_freed_by_a_rename_gets_a_column_of_its_own() -> None:
    first = accept_schema("node A { p: I32? }")
    _, renamed = evolve(first, 'node A { q: I32? @rename_from("p") }')
    _, new = evolve(renamed, "node A { q: I32? p: String? }")
    assert {name: p.column for name, p in new.nodes["A"].properties.items()} == {"q": "p", "p": "p__2"}


def test_new_key_members_sort_behind_old_ones() -> None:
    first = accept_schema("node A { z: I32 }")
    _, new = evolve(first, "node A { z: I32  a: I32? } node B { z: I32 a: I32 @key(z, a) }")
    assert new.nodes["B"].key == ("a", "z")
    assert new.nodes["A"].properties["a"].id > first.nodes["A"].properties["z"].id


def test_an_empty_plan_changes_no_identity() -> None:
    accepted = accept_schema(BASE)
    plan, catalog = evolve(accepted, BASE)
    assert plan.steps == ()
    assert catalog.digest == accepted.digest


def test_the_hint_may_stay_or_go_after_the_rename() -> None:
    accepted = accept_schema("node A { p: I32? }")
    hinted = 'node B @rename_from("A") { q: I32? @rename_from("p") }'
    _, renamed = evolve(accepted, hinted)
    stays, goes = evolve(renamed, hinted), evolve(renamed, "node B { q: I32? }")
    assert stays.catalog == goes.catalog == renamed
    assert stays.plan.steps == goes.plan.steps == ()
    assert [note.message for note in stays.plan.notes] == [
        "@rename_from on 'B' is ignored: the name already exists",
        "@rename_from on 'B.q' is ignored: the name already exists",
    ]


HINT_ERRORS = [
    ('node B @rename_from("Z") {}', "no accepted declaration has that name"),
    ('node B @rename_from("E") {} node A { p: I32? q: I32? } node C {} edge E: C -> C', "across declaration kinds"),
    ('node B @rename_from("A") {} node D @rename_from("A") {} node C {}', "consumed by more than one"),
    ('node A { p: I32? q: I32? } node B @rename_from("A") {} node C {}', "consumed by more than one"),
    ('node A { r: I32? @rename_from("x") p: I32? q: I32? } node C {}', "no accepted declaration has that name"),
    ('node A { p: I32? q: I32? } node C { p: I32? @rename_from("q") }', "can't be moved from 'A'"),
    (
        'node A { p: I32? q: I32? @rename_from("p") r: I32? @rename_from("p") } node C {}',
        "consumed by more than one",
    ),
    ('node A { r: I32? @rename_from("p") s: I32? @rename_from("p") } node C {}', "consumed by more than one"),
    ('node A { p: I32? q: I32? } node C {} node N { x: I32? @rename_from("p") }', "'N' is new"),
]


@pytest.mark.parametrize(("new", "fragment"), HINT_ERRORS)
def test_hints_that_can_not_be_followed(new: str, fragment: str) -> None:
    accepted = accept_schema("node A { p: I32? q: I32? } node C {} edge E: C -> C")
    with pytest.raises(CompileError) as caught:
        evolve(accepted, new)
    assert fragment in str(caught.value)
    assert caught.value.span is not None


def test_hints_are_inert_when_a_graph_is_created() -> None:
    assert accept_schema('node A @rename_from("Z") {}') == accept_schema("node A {}")


def test_a_new_node_may_implement_an_interface_whose_property_was_renamed() -> None:
    accepted = accept_schema("interface I { p: I32? } node A implements I {}")
    new = 'interface I { q: I32? @rename_from("p") } node A implements I {} node B implements I {}'
    assert lines(new, "interface I { p: I32? } node A implements I {}") == [
        "rename property 'I.p' -> 'I.q' on interface 'I'",
        "rename property 'A.p' -> 'A.q' on node 'A'",
        "add node type 'B'",
    ]
    assert evolve(accepted, new).plan.supported


# -- laws

_TYPES = st.sampled_from(["I32", "I32?", "String?", "enum(a, b)", "enum(a, b, c)", "Vector(2)?", "[Date]?"])
_NOTES = st.sampled_from(["", "", "", " @index", " @unique", " @description(d)", " @tag"])


@st.composite
def _evolving_schemas(draw: st.DrawFn) -> str:
    """Valid schemas over a few names, so that two of them overlap in most declarations."""
    declarations = []
    nodes = draw(st.lists(st.sampled_from("ABC"), unique=True, min_size=1))
    for node in nodes:
        members = []
        for name in draw(st.lists(st.sampled_from("pqr"), unique=True)):
            type_ = draw(_TYPES)
            note = draw(_NOTES.filter(lambda n, t=type_: not (t[0] in "[V" and n in (" @index", " @unique"))))  # type: ignore[misc]
            members.append(f"{name}: {type_}{note}")
        declarations.append(f"node {node} {{ {' '.join(members)} }}")
    for edge in draw(st.lists(st.sampled_from("EF"), unique=True)):
        ends = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
        declarations.append(f"edge {edge}: {ends[0]} -> {ends[1]}{draw(st.sampled_from(['', ' @card(0..2)']))}")
    return "\n".join(declarations)


@settings(max_examples=120, deadline=None)
@given(st.lists(_evolving_schemas(), min_size=2, max_size=4))
def test_a_chain_of_changes_keeps_every_law_of_identity(chain: list[str]) -> None:
    catalog = accept_schema(chain[0])
    for schema in chain[1:]:
        plan, new = evolve(catalog, schema)
        # Nothing happens exactly when nothing is planned, and a change is planned only once.
        assert (plan.steps == ()) == (new == catalog)
        assert evolve(new, schema).plan.steps == ()
        assert new.next_id >= catalog.next_id
        for table in (*new.nodes.values(), *new.edges.values()):
            columns = [prop.column for prop in table.property_list]
            assert len(set(columns)) == len(columns)
            assert set(columns) <= set(table.used_columns)
            before = (catalog.nodes if table.kind == "node" else catalog.edges).get(table.name)
            if before is not None:
                assert (before.id, before.table_incarnation) == (table.id, table.table_incarnation)
                for name, prop in table.properties.items():
                    if name in before.properties:
                        assert (prop.id, prop.column) == (
                            before.properties[name].id,
                            before.properties[name].column,
                        )
                    else:
                        assert prop.column not in before.used_columns
        ids = [t.id for t in new.types()] + [p.id for t in new.types() for p in t.property_list]
        assert len(set(ids)) == len(ids)
        catalog = new
