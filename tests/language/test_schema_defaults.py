"""Default values in schemas: what is written behind `=`, what is refused and where, and what a catalog keeps of it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from omnigraph.errors import CompileError, Diagnostic, FormatVersionError
from omnigraph.language import catalog as catalogs
from omnigraph.language.catalog import Catalog, Property
from omnigraph.language.schema import syntax as ast
from omnigraph.language.schema.compile import accept_schema, build_catalog, compile_schema, declare_schema
from omnigraph.language.schema.formatter import format_schema
from omnigraph.language.schema.parser import parse_schema


def findings(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(CompileError) as caught:
        compile_schema(text)
    return caught.value.diagnostics


def declared(written: str) -> Property:
    return compile_schema(f"node A {{ {written} }}").nodes["A"].properties["p"]


WRITTEN: list[tuple[str, Any]] = [
    ('p: String = "a \\"b\\""', 'a "b"'),
    ('p: String = ""', ""),
    ("p: Bool = false", False),
    ("p: I32 = -2147483648", -(2**31)),
    ("p: I64? = 0", 0),
    ("p: U64 = 18446744073709551615", 2**64 - 1),
    ("p: F64 = 3", 3.0),
    ("p: F64 = -1.5e-3", -0.0015),
    ("p: F64 = 3.14159265358979323846264338327950288419716939937510", 3.141592653589793),
    ("p: F32 = 0.1", 0.1),
    ('p: Date = "2024-02-29"', "2024-02-29"),
    ('p: DateTime = "2024-02-29T01:02:03+02:00"', "2024-02-29T01:02:03+02:00"),
    ("p: enum(todo, done) = todo", "todo"),
    ('p: enum(todo, done)? = "done"', "done"),
    ("p: enum(1, 1-a, true) = 1-a", "1-a"),
    ("p: enum(1, 1-a, true) = true", "true"),
    ("p: [String] = []", ()),
    ('p: [String]? = ["a", "b"]', ("a", "b")),
    ("p: [I32] = [1, -2]", (1, -2)),
    ('p: [Date] = ["2024-02-29"]', ("2024-02-29",)),
    ("p: I32 = 1 @index", 1),
    ("p: I32 = 1 @unique", 1),
    ("p: I32 = 5 @range(p, 1..5)", 5),
    ("p: I64 = 9007199254740993 @range(p, 0..9007199254740992)", 2**53 + 1),
]


@pytest.mark.parametrize(("written", "default"), WRITTEN, ids=[written for written, _ in WRITTEN])
def test_a_default_is_what_a_record_would_give(written: str, default: object) -> None:
    prop = declared(written)
    assert prop.default == default
    assert type(prop.default) is type(default)


@pytest.mark.parametrize("written", [written for written, _ in WRITTEN])
def test_the_text_of_a_default_declares_it_again(written: str) -> None:
    prop = declared(written)
    assert declared(f"p: {prop.type} = {prop.default_text}").default == prop.default


def test_the_tree_and_the_layout_keep_a_default_as_it_was_written() -> None:
    text = 'node A { p:F64=1e3@index q : [String]?=[ "a" ,"b"] r:enum(a)=a}'
    (node,) = parse_schema(text).declarations
    defaults = [member.default for member in node.members or () if isinstance(member, ast.Property)]
    assert defaults == [
        ast.Default((ast.Value("number", "1e3"),)),
        ast.Default((ast.Value("string", "a"), ast.Value("string", "b")), is_list=True),
        ast.Default((ast.Value("name", "a"),)),
    ]
    assert format_schema(text) == (
        'node A {\n    p: F64 = 1e3 @index\n    q: [String]? = ["a", "b"]\n    r: enum(a) = a\n}\n'
    )


REFUSED: list[tuple[str, str, str]] = [
    ("p: I32 = 1.0", "1.0", "is 1.0, and the property is I32"),
    ("p: I32 = 2147483648", "2147483648", "outside the range of I32"),
    ("p: U32 = -1", "-1", "outside the range of U32"),
    (f"p: I64 = {'9' * 50}", "9" * 50, "outside the range of I64"),
    ('p: I32 = "5"', '"5"', "is a string, and the property is I32"),
    ("p: F32 = 3.5e38", "3.5e38", "exceeds F32"),
    ("p: F64 = 1e400", "1e400", "exceeds F64"),
    ("p: F64 = nan", "nan", "is nan, and the property is F64"),
    ("p: Bool = True", "True", "is True, and the property is Bool"),
    ("p: String = abc", "abc", "is abc, and the property is String"),
    ("p: Date = 2024-02-29", "2024-02-29", "is 2024-02-29, and the property is Date"),
    ('p: Date = "2024-02-30"', '"2024-02-30"', "does not fit: invalid Date literal"),
    ("p: DateTime = now", "now", "is now, and the property is DateTime"),
    ("p: enum(todo, done) = tod", "tod", "is 'tod', which is not a value of enum(done, todo)"),
    ("p: I32? = null", "null", "can't be null; leave it out"),
    ("p: [I32] = 3", "3", "is a single value, and the property is [I32]"),
    ("p: I32 = [3]", "[3]", "is a list, and the property is I32"),
    ("p: [I32] = [1, null]", "null", "can't be null"),
    ("p: Vector(2) = [1, 2]", "[1, 2]", "'A.p' can't have a default: it is a Vector(2)"),
    ('p: Blob? = "x"', '"x"', "'A.p' can't have a default: it is a Blob"),
    ('p: String = "x" @key', '"x"', "'A.p' can't have a default: it is part of the key"),
    ('p: String = "x" q: I32 @key(q, p)', '"x"', "'A.p' can't have a default: it is part of the key"),
    ("p: I32 = 9 @range(p, 1..5)", "9", "the default of 'A.p' breaks its @range"),
    ("p: F32 = 0.1 @range(p, 0..0.1)", "0.1", "the default of 'A.p' breaks its @range"),
    ('p: String = "x" @check(p, "^[a-c]$")', '"x"', "the default of 'A.p' breaks its @check(p, \"^[a-c]$\")"),
]


@pytest.mark.parametrize(("written", "place", "fragment"), REFUSED, ids=[written[:40] for written, _, _ in REFUSED])
def test_a_default_that_no_row_could_have_is_refused_at_its_place(written: str, place: str, fragment: str) -> None:
    text = f"node A {{ {written} }}"
    (finding,) = findings(text)
    assert fragment in finding.message
    assert finding.span is not None
    assert text[finding.span.start : finding.span.end] == place


@pytest.mark.parametrize(
    ("written", "suggestion"),
    [
        ("p: String = abc", 'write "abc"'),
        ("p: Date = 2024-02-29", 'write "2024-02-29"'),
        ("p: DateTime = now", 'write a fixed value, such as "2024-01-31"'),
        ("p: Bool = True", "write true or false"),
        ("p: enum(todo, done) = tod", "did you mean 'todo'?"),
    ],
)
def test_an_error_says_what_to_write(written: str, suggestion: str) -> None:
    (finding,) = findings(f"node A {{ {written} }}")
    assert finding.suggestion == suggestion


UNREADABLE = [
    ("p: I32 =", "unexpected '}', expected a value"),
    ("p: I32 = @index", "unexpected '@index', expected a value"),
    ("p: [I32] = [1,]", "unexpected ']', expected a value"),
    ('p: [String] = ["a" "b"]', "unexpected a string, expected ']' or ','"),
    ("p: I32 = 3 4", "unexpected '4', expected a property, a body rule, an annotation or '}'"),
    ("p: I32 = now()", "unexpected '(', expected a property, a body rule, an annotation or '}'"),
    ("p: I32 @index = 3", "unexpected '=', expected a property, a body rule, an annotation, '}' or '('"),
    ('p: I32 @x("a" "b")', "unexpected a string, expected ')' or ','"),
]


@pytest.mark.parametrize(("written", "message"), UNREADABLE)
def test_what_can_not_be_read(written: str, message: str) -> None:
    (finding,) = findings(f"node A {{ {written} }}")
    assert finding.message == message


# Interfaces


def test_an_injected_property_brings_its_default_along() -> None:
    catalog = compile_schema("interface I { p: I32 = 3 } node A implements I {} node B implements I { p: I32 }")
    assert catalog.interfaces["I"].properties["p"].default == 3
    assert catalog.nodes["A"].properties["p"].default == 3
    assert catalog.nodes["B"].properties["p"].default is None, "a property of the type itself says everything"


def test_interfaces_that_inject_a_property_agree_about_its_default() -> None:
    both = "interface I {{ p: I32 = 3 }} interface J {{ p: I32{} }} node A implements I, J {{}}"
    assert compile_schema(both.format(" = 3")).nodes["A"].properties["p"].default == 3
    for other in ("", " = 4"):
        (finding,) = findings(both.format(other))
        assert "incompatible property semantics" in finding.message


@pytest.mark.parametrize("nodes", ["", "node A implements I {}", "node A implements I {} node B implements I {}"])
def test_a_default_of_an_interface_is_judged_there_and_once(nodes: str) -> None:
    (finding,) = findings(f"interface I {{ p: I32 = true }} {nodes}")
    assert finding.message == "the default of 'I.p' is true, and the property is I32"


def test_an_injected_default_obeys_the_rules_of_the_node() -> None:
    text = "interface I { p: I32 = 3 } node A implements I { @range(p, 5..) } node B implements I { @key(p) }"
    broken, keyed = findings(text)
    assert broken.message == "the default of 'A.p' breaks its @range"
    assert keyed.message == "'B.p' can't have a default: it is part of the key"
    assert {text[each.span.start : each.span.end] for each in (broken, keyed) if each.span} == {"3"}


# Catalogs


def test_a_catalog_with_a_default_has_a_form_that_older_readers_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would write rows without it."""
    texts = [
        "node A { p: I32 = 0 }",
        "node A {} edge E: A -> A { p: enum(a) = a }",
        "interface I { p: [I32] = [] }",
    ]
    for text in texts:
        catalog = accept_schema(text)
        assert msgspec.json.decode(catalog.to_json())["format"] == 3
        assert Catalog.from_json(catalog.to_json()) == catalog
        with monkeypatch.context() as older:
            older.setattr(catalogs, "CATALOG_FORMAT", 2)
            with pytest.raises(FormatVersionError):
                Catalog.from_json(catalog.to_json())


@pytest.mark.parametrize(("written", "default"), WRITTEN, ids=[written for written, _ in WRITTEN])
def test_a_persisted_default_keeps_its_value_and_its_kind(written: str, default: object) -> None:
    catalog = accept_schema(f"node A {{ {written} }}")
    again = Catalog.from_json(catalog.to_json()).nodes["A"].properties["p"]
    assert again.default == default
    assert type(again.default) is type(default)


def test_a_default_is_part_of_what_a_schema_means() -> None:
    digests = {accept_schema(f"node A {{ p: I32{default} }}").digest for default in ("", " = 0", " = 1")}
    assert len(digests) == 3


def test_an_annotation_of_that_name_is_not_a_default() -> None:
    assert declared("p: I32 @default(3)").default is None


# Renamed values of enums

RENAMED = [
    ('p: enum(todo) @rename_value("open")', "requires an old and a new value"),
    ('p: enum(todo) @rename_value("open", from="todo")', "requires an old and a new value"),
    ('p: enum(todo) @rename_value("open", to=3)', "requires an old and a new value"),
    ('p: String @rename_value("open", to="todo")', "is only supported on enum properties, and this one is String"),
    ('p: enum(todo) @rename_value("open", to="tood")', "renames to 'tood', which is not a value"),
    ('p: enum(todo, open) @rename_value("open", to="todo")', "renames 'open', which is still a value"),
    ('p: enum(a, b) @rename_value("o", to="a") @rename_value("o", to="b")', "renames 'o' twice"),
]


@pytest.mark.parametrize(("written", "fragment"), RENAMED)
def test_a_renamed_value_is_an_old_one_with_its_new_name(written: str, fragment: str) -> None:
    (finding,) = findings(f"node A {{ {written} }}")
    assert fragment in finding.message


def test_renamed_values_are_of_properties() -> None:
    (finding,) = findings('node A @rename_value("a", to="b") {}')
    assert re.search("@rename_value .*is only supported on node properties", finding.message)


def evolved(accepted: Catalog, text: str) -> Catalog:
    return build_catalog(declare_schema(text), accepted, by_name=True)[0]


def test_renamed_values_follow_each_other_through_the_versions_of_a_schema() -> None:
    first = accept_schema("node A { p: enum(open, done) }")
    texts = (
        'p: enum(todo, done) @rename_value("open", to="todo")',
        'p: enum(new, done) @rename_value("todo", to="new")',
    )
    second = build_catalog(declare_schema(f"node A {{ {texts[0]} }}"), first, by_name=True)[0]
    third = build_catalog(declare_schema(f"node A {{ {texts[1]} }}"), second, by_name=True)[0]
    assert first.nodes["A"].properties["p"].renamed_values == ()
    assert second.nodes["A"].properties["p"].renamed_values == (("open", "todo"),)
    assert third.nodes["A"].properties["p"].renamed_values == (("open", "new"), ("todo", "new"))
    assert Catalog.from_json(third.to_json()) == third
