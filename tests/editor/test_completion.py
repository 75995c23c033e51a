"""What may stand at the cursor, in texts that rarely parse."""

from __future__ import annotations

import pytest

from omnigraph.editor import words
from omnigraph.editor.completion import Completion, complete_queries, complete_schema
from omnigraph.editor.projects import Workspace
from omnigraph.editor.yaml_files import complete_yaml, key_at, yaml_place
from omnigraph.language.query.functions import NAMES
from tests.editor.workspaces import SCHEMA, cut, document, workspace

PEOPLE = ["name", "age", "mood"]


def completion(name: str, text: str) -> Completion:
    text, offset = cut(text)
    moment = workspace(s__pg=SCHEMA, **{name: text})
    read = document(moment, name.replace("__", "."))
    if name.endswith("__gq"):
        return complete_queries(moment, read, offset)
    return complete_schema(moment, read, offset) if name.endswith("__pg") else complete_yaml(moment, read, offset)


def first_items(name: str, text: str) -> list[str]:
    """The labels of the items that an editor puts first."""
    items = completion(name, text).items
    least = min((item.rank for item in items), default=0)
    return [item.label for item in items if item.rank == least]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("|", ["query"]),
        ("query a() { match { $p: Person } return { $p } }\n|", ["query"]),
        ("query a() { match { $p: |", ["Person", "Book", "Titled"]),
        ("query a() { match { $p: (Person | B|", None),
        ("query a() { match { $p: Person { | } }", PEOPLE),
        ("query a() { match { $p: Person { age: 3, n|", PEOPLE),
        ("query a() { match { $p: Person $p.|", PEOPLE),
        ("query a() { match { $p: Person $p.na| } return { $p.name } }", PEOPLE),
        ("query a() { match { $b: Titled $b.|", ["isbn", "vec", "title"]),
        ("query a() { match { $p: Person $p wrote $b $b.|", ["isbn", "vec", "title"]),
        ("query a() { match { $b: Book $p wrote $b $p.|", PEOPLE),
        ("query a() { match { $p: Person $p $e:knows $f $e.|", ["since"]),
        ("query a() { match { $p: Person $p <knows>{1,3} $f } return { $f.|", PEOPLE),
        ("query a() { match { $p: Person $p |", ["knows", "wrote"]),
        ("query a() { match { $b: Book $b <|", ["wrote"]),
        ("query a() { match { $b: Book $b $e:|", ["wrote"]),
        ("query a() { match { path $w: |", None),
        ("query a() { match { $p: Person $p.mood = |", ['"glad"', '"sad"', "$p"]),
        ("query a($n: |", None),
        ("query a() @|", None),
        ("query a() { insert |", None),
        ("query a() { insert Person { |", PEOPLE),
        ('query a() { insert Person { name: "a" | } }', [*PEOPLE]),
        ("query a() { insert Knows { |", ["since", "from", "to"]),
        ("query a() { update Person set { |", PEOPLE),
        ('query a() { update Person set { name: "x" } where |', PEOPLE),
        ("query a() { match { // $p.|", []),
        ('query a() { match { $p: Person { name: "$p.|', []),
    ],
)
def test_a_query_is_completed_from_its_schema(text: str, expected: list[str] | None) -> None:
    items = first_items("q__gq", f"// 😀\n{text}")
    named = {
        "query a() { match { $p: (Person | B|": ["Person", "Book", "Titled"],
        "query a() { match { path $w: |": ["shortest", "all_shortest", "trails"],
        "query a() @|": ["@description", "@instruction"],
        "query a() { insert |": ["Person", "Book", "Knows", "Wrote"],
    }
    if expected is None and "$n:" in text:
        assert {"String", "I64", "Vector"} <= set(items)
    else:
        assert items == (named[text] if expected is None else expected)


def test_variables_are_those_of_the_stage() -> None:
    text = """query a($who: String) {
        match { $p: Person { name: $who } $p knows $f }
        return { $p, count($f) as friends }
        then match { $p wrote $b } return { $| }
    }"""
    assert first_items("q__gq", text) == ["$who", "$p", "$friends", "$b"]
    details = {item.label: item.detail for item in completion("q__gq", text).items}
    assert details == {"$who": "String", "$p": "node Person", "$friends": "value", "$b": "node Book"}


def test_an_item_replaces_the_word_at_the_cursor() -> None:
    text = "query a() { match { $p: Person $p.na|"
    assert completion("q__gq", text).start == text.index("na|")


def test_functions_come_with_their_signatures() -> None:
    items = {item.label: item for item in completion("q__gq", "query a() { match { $p: Person } return { lo|").items}
    assert items["lower"].detail == "lower(s: String) -> String"
    assert items["percentile_cont"].insert == "percentile_cont("


def test_every_function_of_the_language_is_described() -> None:
    assert set(words.FUNCTIONS) == set(NAMES)


def test_variables_at_an_interface_end_complete_as_its_types_do() -> None:
    schema = SCHEMA + "node Film implements Titled { minutes: I32? }\nedge Likes: Person -> Titled\n"
    cases = {
        "query a() { match { $p: Person $p likes $x $x.|": ["isbn", "vec", "title", "minutes"],
        "query a() { match { $f: Film $f |": ["likes"],
        "query a() { match { $f: Film $p likes $f $p.|": PEOPLE,
    }
    for case, expected in cases.items():
        text, offset = cut(case)
        moment = workspace(s__pg=schema, q__gq=text)
        items = complete_queries(moment, document(moment, "q.gq"), offset).items
        first = [item.label for item in items if item.rank == 0]
        assert first[: len(expected)] == expected, case


def test_a_schema_with_mistakes_completes_as_it_last_compiled() -> None:
    text, offset = cut("query a() { match { $p: Person $p.|")
    sound = workspace(s__pg=SCHEMA, q__gq=text)
    complete_queries(sound, document(sound, "q.gq"), offset)
    broken = workspace(s__pg=SCHEMA + "node {", q__gq=text)
    after = Workspace(broken.folders, broken.open, valid_schemas=sound.valid_schemas)
    labels = [item.label for item in complete_queries(after, document(after, "q.gq"), offset).items]
    assert labels[:3] == PEOPLE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("|", {"node", "edge", "interface"}),
        ("node A { x: | }", {"String", "I32", "Vector", "enum"}),
        ("node A { x: [|", {"String", "I32"}),
        ("node A { x: String @|", {"@key", "@index", "@unique", "@description", "@rename_from", "@metric", "@embed"}),
        ("node A { x: String\n    @|", {"@key", "@range", "@check", "@index", "@unique"}),
        ("node A @|", {"implements", "@description", "@instruction", "@label"}),
        ("interface I { x: String }\nnode A implements |", {"I"}),
        ("node A { x: String @key }\nedge E: |", {"A"}),
        ("interface I {}\nnode A implements I { x: String @key }\nedge E: A -> |", {"A", "I"}),
        ("node A { x: String @key }\nedge E: A -> |", {"A"}),
        ("node A { x: String @key }\nedge E: A -> A @|", {"@card", "@description", "@label"}),
        ("node A { x: String  y: I32\n    @key(|) }", {"x", "y"}),
        ("node A { x: String }\nedge E: A -> A { d: Date\n  @key(@|) }", {"d", "@src", "@dst"}),
        ('node A { x: String  v: Vector(4) @embed("|") }', {"x", "v"}),
        ('node A { v: Vector(4) @metric("|") }', {"l2", "cosine", "dot"}),
    ],
)
def test_a_schema_is_completed(text: str, expected: set[str]) -> None:
    assert expected <= {item.label for item in completion("t__pg", f"// 😀\n{text}").items}


PIPELINE = "version: 1\nsources:\n  people: {format: csv, path: p.csv}\nnodes:\n  Person:\n"
POLICY = "version: 1\ngroups: {all: [ana]}\nrules:\n  - id: é\n    allow:\n      actors: {group: all}\n"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a__pipeline__yaml", "vers|", ["version", "sources", "mode"]),
        ("a__pipeline__yaml", PIPELINE + "    from: |", ["people"]),
        ("a__pipeline__yaml", PIPELINE + "    |", ["from", "select", "where"]),
        ("a__pipeline__yaml", PIPELINE + "    select: {name: name, |}", PEOPLE),
        ("a__pipeline__yaml", PIPELINE + "  |", ["Person", "Book"]),
        ("a__pipeline__yaml", PIPELINE + "mode: |", ["overwrite", "append", "merge"]),
        ("a__policy__yaml", POLICY + "      actions: [read, |]", ["read", "export", "change"]),
        ("a__policy__yaml", POLICY + "      actions:\n        - |", ["read", "export", "change"]),
        ("a__policy__yaml", POLICY + "      hide: {Person: [|", PEOPLE),
        ("a__policy__yaml", POLICY + "      rows:\n        |", ["Person", "Book", "Knows"]),
        ("a__policy__yaml", POLICY.replace("group: all", "group: |"), ["all"]),
        ("cluster__yaml", "version: 1\ngraphs:\n  kb:\n    schema: |", ["s.pg"]),
        (
            "cluster__yaml",
            "version: 1\ngraphs:\n  kb: {schema: s.pg}\npolicies:\n  p:\n    applies_to: [|",
            ["kb", "cluster"],
        ),
        ("cluster__yaml", "# |", []),
    ],
)
def test_a_yaml_file_is_completed(name: str, text: str, expected: list[str]) -> None:
    labels = [item.label for item in completion(name, text).items]
    assert [label for label in expected if label not in labels] == []
    assert expected != [] or labels == []


def test_the_keys_of_a_document_are_described() -> None:
    text, offset = cut(PIPELINE + "    sel|ect: {}")
    moment = workspace(a__pipeline__yaml=text)
    read = document(moment, "a.pipeline.yaml")
    place = yaml_place(text, offset)
    assert place is not None
    assert read.kind is not None
    key = key_at(read.kind, place.path)
    assert key is not None
    assert "select" in key.keys
