"""Hover, definitions, references, renames, outlines and fixes, on real positions behind text that is not ASCII."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.editor.diagnostics import diagnose, fixes, format_document
from omnigraph.editor.documents import Document, apply_edits
from omnigraph.editor.hover import hover
from omnigraph.editor.navigation import RenameError, definition, outline, references, renamable, rename
from omnigraph.editor.projects import Workspace
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.schema.compile import compile_schema
from tests.editor.workspaces import SCHEMA, applied, cut, document, shown, workspace

QUERIES = """\
// 😀 readers é
query friends($name: String, $least: I32) @description("Friends of a reader") {
    match {
        $p: Person { name: $name }
        $p $since:knows $f
        $f.age > $least
    }
    return { $f.name as friend, count($f) as friends }
    order { friends desc, friend }
    then
    return { $friend as name, $name as asked, $friends as total }
    order { name }
}
query add($name: String) { insert Person { name: $name mood: "glad" } }
query grow($name: String) { update Person set { age: 3 } where name = $name }
"""
PIPELINE = """\
version: 1  # 😀
sources: {people: {format: csv, path: p.csv}}
nodes:
  Person: {from: people, select: {name: full, mood: mood}}
"""
POLICY = """\
version: 1
groups: {all: [ana]}
rules:
  - id: é
    allow:
      actors: {group: all}
      actions: [read]
      rows: {Person: age > 3 and name != "😀"}
      hide: {Person: [age]}
"""


def moment(**texts: str) -> Workspace:
    return workspace(**{"s__pg": SCHEMA, "q__gq": QUERIES, **texts})


def at(text: str, needle: str, inside: int = 0) -> int:
    return text.index(needle) + inside


def shown_places(workspace: Workspace, places: object) -> list[tuple[str, int, str]]:
    """File, line and text of each place."""
    listed = []
    for place in places:  # type: ignore[attr-defined]
        read = workspace.document(place.path)
        assert read is not None
        listed.append((place.path.name, read.text.count("\n", 0, place.at.start) + 1, shown(read, place.at)))
    return listed


# ---- hover ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needle", "inside", "expected"),
    [
        ("$p: Person", 1, ["$p: node Person", "A reader 😀"]),
        ("$p: Person", 0, ["$p: node Person"]),
        ("$name: String", 2, ["parameter $name: String"]),
        ("$since:", 2, ["$since: edge Knows", "Knows: Person -> Person"]),
        ("Person { name", 1, ["node Person {", "name: String", "`@key(name)`", "`Wrote: Person -> Book`"]),
        ("$f.age", 4, ["Person.age: I32?", "`@range(age, 0..150)`"]),
        ("knows", 2, ["edge Knows: Person -> Person", "since: Date?"]),
        ("friends desc", 2, ["friends: I64"]),
        ("count(", 1, ["count(x)"]),
        ("friends($name", 2, ["query friends", "Friends of a reader"]),
        ("age: 3", 1, ["Person.age: I32?"]),
        ("name = $name }", 1, ["Person.name: String", "The full name", "`@key`"]),
        ("@description", 3, ["What the query is for"]),
    ],
)
def test_hover_in_queries(needle: str, inside: int, expected: list[str]) -> None:
    now = moment()
    result = hover(now, document(now, "q.gq"), at(QUERIES, needle, inside))
    assert result is not None
    assert [part for part in expected if part not in result.text] == []


@pytest.mark.parametrize(
    ("name", "needle", "expected"),
    [
        ("s.pg", "Titled {\n    isbn", "Implemented by Book"),
        ("s.pg", "name: String", "The full name"),
        ("s.pg", '"title"', ""),
        ("s.pg", "@embed", "made from that String property"),
        ("p.pipeline.yaml", "Person", "A reader"),
        ("p.pipeline.yaml", "select", "Spark SQL expression"),
        ("p.pipeline.yaml", "name: full", "The full name"),
        ("a.policy.yaml", "age > 3", "Person.age: I32?"),
    ],
)
def test_hover_elsewhere(name: str, needle: str, expected: str) -> None:
    now = moment(p__pipeline__yaml=PIPELINE, a__policy__yaml=POLICY)
    read = document(now, name)
    result = hover(now, read, at(read.text, needle, 1))
    assert (result.text if result is not None else "").find(expected) >= 0


def test_an_interface_at_the_end_of_an_edge_is_the_interface() -> None:
    text = SCHEMA + "edge Likes: Person -> Titled\n"
    now = workspace(s__pg=text, q__gq="query a() { match { $p: Person  $p $e:likes $x } return { $e, $x } }")
    read = document(now, "s.pg")
    end = at(text, "Titled\n", 1)
    result = hover(now, read, end)
    assert result is not None
    assert "Implemented by Book" in result.text
    assert "`Likes: Person -> Titled`" in result.text
    assert shown_places(now, definition(now, read, end)) == [("s.pg", 1, "Titled")]
    places = shown_places(now, references(now, read, end, declarations=True))
    assert [line for _, line, _ in places] == [1, 13, text.count("\n")]
    edge = hover(now, document(now, "q.gq"), now.open[document(now, "q.gq").path].text.index("$e:") + 1)
    assert edge is not None
    assert "Likes: Person -> Titled" in edge.text
    for name in ("Book", "Person"):
        node = hover(now, read, at(text, f"node {name}", 6))
        assert node is not None
        assert "`Likes: Person -> Titled`" in node.text


# ---- definitions and references -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needle", "inside", "expected"),
    [
        ("Person { name", 1, ("s.pg", 6, "Person")),
        ("$f.age", 4, ("s.pg", 8, "age")),
        ("knows", 1, ("s.pg", 18, "Knows")),
        ("$f.name", 1, ("q.gq", 5, "f")),
        ("$name }\n        $p", 2, ("q.gq", 2, "name")),
        ("$friends as", 2, ("q.gq", 8, "friends")),
        ("friends desc", 2, ("q.gq", 8, "friends")),
        ("age: 3", 1, ("s.pg", 8, "age")),
    ],
)
def test_definitions_of_queries(needle: str, inside: int, expected: tuple[str, int, str]) -> None:
    now = moment()
    places = definition(now, document(now, "q.gq"), at(QUERIES, needle, inside))
    assert shown_places(now, places) == [expected]


def test_a_parameter_and_a_column_of_its_name_are_two() -> None:
    now = moment()
    places = references(now, document(now, "q.gq"), at(QUERIES, "as name", 4), declarations=True)
    assert [line for _, line, _ in shown_places(now, places)] == [11, 12]


def test_references_of_a_property_are_in_every_file() -> None:
    now = moment(p__pipeline__yaml=PIPELINE, a__policy__yaml=POLICY)
    read = document(now, "s.pg")
    places = shown_places(now, references(now, read, at(SCHEMA, "age: I32"), declarations=False))
    assert places == [
        ("s.pg", 10, "age"),
        ("a.policy.yaml", 8, "age"),
        ("a.policy.yaml", 9, "age"),
        ("q.gq", 6, "age"),
        ("q.gq", 15, "age"),
    ]


def test_a_cluster_leads_to_its_files_and_queries(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA)
    (tmp_path / "q.gq").write_text(QUERIES)
    text = (
        "version: 1\ngraphs:\n  kb:\n    schema: s.pg\n    queries:\n      add: {file: q.gq}\n"
        "pipelines:\n  p: {file: p.yaml, graph: kb}\n"
    )
    read = Document(tmp_path / "cluster.yaml", text, 1)
    now = Workspace((tmp_path,), {read.path: read})
    assert shown_places(now, definition(now, read, at(text, "add:"))) == [("q.gq", 14, "add")]
    assert [each.path.name for each in definition(now, read, at(text, "s.pg", 1))] == ["s.pg"]
    assert shown_places(now, definition(now, read, at(text, "graph: kb", 8))) == [("cluster.yaml", 3, "kb")]


# ---- renames --------------------------------------------------------------------------------------------


def compiles(texts: dict[str, str]) -> None:
    catalog = compile_schema(texts.get("s.pg", SCHEMA))
    for query in compile_queries(texts.get("q.gq", QUERIES), catalog).queries:
        assert query.plan


@pytest.mark.parametrize(
    ("needle", "inside", "name", "lines"),
    [
        ("$f.name", 1, "$other", {"$p $since:knows $other", "$other.age > $least"}),
        (
            "$name: String, $l",
            2,
            "who",
            {"$p: Person { name: $who }", "return { $friend as name, $who as asked, $friends as total }"},
        ),
        (
            "friends desc",
            2,
            "howMany",
            {"order { howMany desc, friend }", "return { $friend as name, $name as asked, $howMany as total }"},
        ),
    ],
)
def test_a_variable_is_renamed_in_its_query(needle: str, inside: int, name: str, lines: set[str]) -> None:
    now = moment()
    texts = applied(now, rename(now, document(now, "q.gq"), at(QUERIES, needle, inside), name))
    assert set(texts) == {"q.gq"}
    assert lines <= {line.strip() for line in texts["q.gq"].splitlines()}
    compiles(texts)


@pytest.mark.parametrize(
    ("needle", "name", "schema", "queries"),
    [
        ("Person @desc", "Reader", 'node Reader @rename_from("Person") @description("A reader 😀") {', "$p: Reader {"),
        ("age: I32?", "years", '    years: I32? @rename_from("age")', "$f.years > $least"),
        ("Knows:", "Likes", 'edge Likes: Person -> Person @rename_from("Knows") {', "$p $since:likes $f"),
        ("title: String", "headline", '    headline: String @index @rename_from("title")', "query"),
    ],
)
def test_a_name_of_the_schema_is_renamed_everywhere(needle: str, name: str, schema: str, queries: str) -> None:
    now = moment(p__pipeline__yaml=PIPELINE, a__policy__yaml=POLICY)
    texts = applied(now, rename(now, document(now, "s.pg"), at(SCHEMA, needle), name))
    assert schema in texts["s.pg"].splitlines()
    assert queries in texts.get("q.gq", QUERIES)
    compiles(texts)
    after = workspace(
        s__pg=texts["s.pg"],
        p__pipeline__yaml=texts.get("p.pipeline.yaml", PIPELINE),
        a__policy__yaml=texts.get("a.policy.yaml", POLICY),
    )
    for path in after.open:
        assert diagnose(after, after.open[path]) == (), path


def test_a_rename_from_a_query_is_that_of_the_schema() -> None:
    now = moment()
    from_query = applied(now, rename(now, document(now, "q.gq"), at(QUERIES, "knows", 1), "likes"))
    assert from_query == applied(now, rename(now, document(now, "s.pg"), at(SCHEMA, "Knows:"), "Likes"))


def test_an_earlier_hint_stays_and_one_of_the_new_name_goes() -> None:
    text = 'node A @rename_from("B") { x: String @key @rename_from("y") }'
    now = workspace(s__pg=text)
    read = document(now, "s.pg")
    assert applied(now, rename(now, read, text.index("A"), "C"))["s.pg"].startswith('node C @rename_from("B") {')
    assert applied(now, rename(now, read, text.index("A"), "B"))["s.pg"].startswith("node B {")
    assert applied(now, rename(now, read, text.index("x:"), "y"))["s.pg"].endswith("{ y: String @key }")


@pytest.mark.parametrize(
    ("name", "needle", "to", "reason"),
    [
        ("s.pg", "age: I32", "name", "would break s.pg"),
        ("s.pg", "Person @", "person", "can't be the name of a node"),
        ("q.gq", "$f.name", "$p", "already a variable"),
        ("q.gq", "$f.name", "__x", "would break q.gq"),
        ("q.gq", "add(", "other", "only types, properties"),
    ],
)
def test_a_rename_that_would_break_something_is_refused(name: str, needle: str, to: str, reason: str) -> None:
    now = moment()
    read = document(now, name)
    with pytest.raises(RenameError, match=reason):
        rename(now, read, at(read.text, needle, 1 if needle.startswith("$") else 0), to)


def test_a_rename_waits_for_a_file_that_does_not_parse() -> None:
    now = moment(b__gq="query b() { match { $p: Person  ")
    with pytest.raises(RenameError, match=r"b\.gq has mistakes and mentions 'Person'"):
        rename(now, document(now, "s.pg"), at(SCHEMA, "Person @"), "Reader")
    applied(now, rename(now, document(now, "s.pg"), at(SCHEMA, "Book"), "Volume"))


def test_a_property_of_several_types_is_not_renamed_through_one_variable() -> None:
    schema = "node A { x: String @key }\nnode B { x: String @key }\n"
    query = "query q() { match { $n: (A | B) } return { $n.x } }"
    now = workspace(s__pg=schema, q__gq=query)
    with pytest.raises(RenameError, match=r"several properties \(A\.x, B\.x\)"):
        rename(now, document(now, "s.pg"), schema.index("x"), "y")


def test_what_can_be_renamed_is_shown() -> None:
    now = moment()
    read = document(now, "q.gq")
    span = renamable(now, read, at(QUERIES, "$f.age"))
    assert span is not None
    assert shown(read, span) == "f"
    assert renamable(now, read, at(QUERIES, "count(")) is None


# ---- outlines and fixes ---------------------------------------------------------------------------------


def test_outlines() -> None:
    now = moment(p__pipeline__yaml=PIPELINE, a__policy__yaml=POLICY)
    names = {name: [each.name for each in outline(now, document(now, name))] for name in ("s.pg", "q.gq")}
    assert names == {"s.pg": ["Titled", "Person", "Book", "Knows", "Wrote"], "q.gq": ["friends", "add", "grow"]}
    assert [child.name for child in outline(now, document(now, "q.gq"))[0].children] == ["$name", "$least"]
    assert [each.name for each in outline(now, document(now, "p.pipeline.yaml"))] == ["people", "Person"]
    assert [each.name for each in outline(now, document(now, "a.policy.yaml"))] == ["all", "é"]


def fixed(text: str, title: str, **others: str) -> str:
    """The text after the fix of this title at the cursor."""
    text, offset = cut(text)
    now = workspace(s__pg=SCHEMA, q__gq=text, **others)
    read = document(now, "q.gq")
    offered = {fix.title: fix for fix in fixes(now, read, diagnose(now, read), offset, offset)}
    assert title in offered, list(offered)
    return apply_edits(text, offered[title].edits)


def test_a_suggested_name_replaces_the_unknown_one() -> None:
    text = "query q() { match { $p: Per|sn } return { $p.name } }"
    assert "$p: Person }" in fixed(text, "Replace by 'Person'")
    assert "$p.name }" in fixed("query q() { match { $p: Person } return { $p.na|me_ } }", "Replace by 'name'")
    assert "{ $person.name" in fixed(
        "query q() { match { $person: Person } return { $pers|n.name } }", "Replace by '$person'"
    )


@pytest.mark.parametrize(
    ("text", "title", "expected"),
    [
        ("query q() { match { $p: Person { age: $le|ast } } return { $p.name } }", "$least: I32", "q($least: I32)"),
        ("query q($a: I64) { insert Person { name: $n|n mood: $a } }", "$nn: String", "q($a: I64, $nn: String)"),
        ("query q() { match { $p: Person } return { $p.name } limit $t|op }", "$top: I64", "q($top: I64)"),
    ],
)
def test_a_missing_parameter_is_declared_with_the_type_of_its_place(text: str, title: str, expected: str) -> None:
    assert expected in fixed(text, f"Declare the parameter {title}")


def test_a_file_is_formatted_and_one_that_does_not_parse_stays() -> None:
    loose = Document(Path("/s.pg"), "// 😀\r\nnode  A{x:String@key}\r\n")
    assert apply_edits(loose.text, format_document(loose)) == "// 😀\nnode A {\n    x: String @key\n}\n"
    assert format_document(Document(Path("/s.pg"), "node A { ")) == ()
    assert format_document(Document(Path("/q.gq"), QUERIES + "query (")) == ()
