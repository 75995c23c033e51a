"""What the server says about documents of every kind: the findings of the compilers, at their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.api.governance import SCHEMA_BYTES, QueryLimits
from omnigraph.editor.diagnostics import diagnose
from omnigraph.editor.documents import Document
from omnigraph.editor.projects import Workspace
from tests.editor.workspaces import SCHEMA, TOP, document, shown, workspace

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def problems(name: str, text: str, **others: str) -> list[tuple[str, str, str]]:
    """Severity, code and the text at each place."""
    moment = workspace(**{name: text, **others})
    read = document(moment, name.replace("___", "/").replace("__", "."))
    return [(each.severity, each.code, shown(read, each.at)) for each in diagnose(moment, read)]


def test_the_examples_have_no_mistakes() -> None:
    moment = Workspace((EXAMPLES,))
    wrong = {}
    kinds = set()
    for path in moment.files(".pg", ".gq", ".yaml"):
        read = moment.document(path)
        assert read is not None
        kinds.add(read.kind)
        found = [each for each in diagnose(moment, read) if each.severity != "info"]
        wrong |= {path: found} if found else {}
    assert wrong == {}
    assert len(kinds) == 6


def test_a_schema_has_every_finding_at_its_place() -> None:
    text = '// 😀\nnode A { x: Strng  y: I32 @metric("l2") }\nnode B implements C { }\nnode D {'
    assert problems("s__pg", text) == [
        ("error", "parse error", "Strng"),
        ("error", "parse error", '@metric("l2")'),
        ("error", "parse error", "C"),
        ("error", "parse error", "{"),
    ]


def test_queries_have_the_findings_of_syntax_types_and_lint() -> None:
    text = """\
// 😀
query broken() { match { $b: } }
query types() { match { $p: Persn } return { $p.name } }
query skips() { match { $p: Person } return { $p.name } offset 3 }
query fixed() { insert Person { name: "a" mood: "glad" } }
query object() { match { $p: Person } return { $p } }
query left() { match { $p: Person optional { $p knows $f } $f.age > 1 } return { $p.name } }
"""
    assert problems("q__gq", text, s__pg=SCHEMA) == [
        ("error", "Q001", "}"),
        ("error", "T1", "Persn"),
        ("warning", "L204", "offset 3"),
        ("warning", "hard-coded", "fixed"),
        ("info", "L202", "$p"),
        ("warning", "L203", "$f.age > 1"),
    ]


def test_a_finding_comes_with_its_remedy() -> None:
    moment = workspace(q__gq="query q() { match { $p: Persn } return { $p } }", s__pg=SCHEMA)
    (problem,) = diagnose(moment, document(moment, "q.gq"))
    assert problem.text == "unknown node type 'Persn'\nhelp: did you mean 'Person'?"


def test_a_pipeline_is_checked_against_its_schema() -> None:
    text = """\
version: 1  # 😀
sources:
  people: {format: csv, path: p.csv}
nodes:
  Persn: {from: people, select: {name: name}}
  Person:
    from: peple
    select: {name: name, agee: age, mood: mood}
modus: merge
"""
    assert problems("load__pipeline__yaml", text, s__pg=SCHEMA) == [
        ("error", "P011", "peple"),
        ("error", "P005", "modus"),
    ]
    sound = text.replace("peple", "people").replace("modus", "mode")
    assert problems("load__pipeline__yaml", sound, s__pg=SCHEMA) == [
        ("error", "P013", "Persn"),
        ("error", "P014", "age"),
    ]


def test_a_policy_is_checked_against_its_schema() -> None:
    text = """\
version: 1
groups: {all: [ana]}
rules:
  - id: é
    allow:
      actors: {group: all}
      actions: [read]
      rows: {Person: agee > 3}
"""
    assert problems("a__policy__yaml", text, s__pg=SCHEMA) == [("error", "policy_invalid", "agee > 3")]
    assert problems("a__policy__yaml", text.replace("group: all", "group: al"), s__pg=SCHEMA) == [
        ("error", "policy_invalid", "al")
    ]


def test_a_cluster_has_its_findings_at_the_keys(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA)
    (tmp_path / "q.gq").write_text("query q() { match { $p: Persn } return { $p.name } }")
    text = """\
version: 1
# 😀
graphs:
  kb:
    schema: s.pg
    queries: q.gq
    embeding_provider: x
  other: {schema: missing.pg}
policies:
  p: {file: p.yaml, applies_to: [kbb]}
"""
    read = Document(tmp_path / "cluster.yaml", text, 1)
    found = diagnose(Workspace((tmp_path,), {read.path: read}), read)
    assert [(each.code, shown(read, each.at)) for each in found] == [
        ("query_typecheck_error", "q.gq"),
        ("invalid_cluster_yaml", "embeding_provider"),
        ("schema_file_missing", "missing.pg"),
        ("policy_file_missing", "p.yaml"),
        ("dangling_graph_reference", "kbb"),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s__pg", "node \ud800"),
        ("s__pg", '"'),
        ("q__gq", "query q("),
        ("q__gq", "branch list"),
        ("q__gq", "/*"),
        ("cluster__yaml", "a: [1, {"),
        ("cluster__yaml", "- 1"),
        ("cluster__yaml", ""),
        ("a__policy__yaml", "&a [*a]"),
        ("a__policy__yaml", "rules: 3"),
        ("a__tests__yaml", "cases: {"),
        ("load__pipeline__yaml", "\t- :"),
    ],
)
def test_a_broken_document_gives_findings(name: str, text: str) -> None:
    found = problems(name, text, s__pg=SCHEMA) if name != "s__pg" else problems(name, text)
    assert [severity for severity, _, _ in found if severity == "error"] != []


def test_a_text_beyond_the_limit_of_its_language_gets_its_finding() -> None:
    (query,) = problems("q__gq", "//" + "x" * QueryLimits().bytes, s__pg=SCHEMA)
    (schema,) = problems("s__pg", "//" + "x" * SCHEMA_BYTES)
    assert (query[1], schema[1]) == ("limit error", "limit error")


def test_a_yaml_file_of_something_else_is_left_alone() -> None:
    assert problems("compose__yaml", "version: 1\nservices: {web: {image: x}}") == []


# ---- without a schema -----------------------------------------------------------------------------------

READ = "query q() { match { $p: Person } return { $p.name } }"


def test_several_schemas_say_how_to_choose() -> None:
    moment = workspace(a__pg=SCHEMA, b__pg=SCHEMA, q__gq=READ)
    (problem,) = diagnose(moment, document(moment, "q.gq"))
    assert (problem.severity, problem.code) == ("info", "several-schemas")
    assert "a.pg, b.pg" in problem.message
    assert "`// schema: PATH`" in (problem.suggestion or "")


def test_no_schema_and_a_broken_one_are_notes() -> None:
    assert problems("q__gq", READ) == [("info", "no-schema", READ)]
    assert problems("q__gq", READ, s__pg="node {") == [("info", "broken-schema", READ)]


def test_a_schema_that_is_named_and_missing_is_an_error() -> None:
    ((severity, code, _),) = problems("q__gq", f"// schema: none.pg\n{READ}", s__pg=SCHEMA)
    assert (severity, code) == ("error", "unreadable-schema")


def test_a_changed_schema_counts_before_it_is_saved() -> None:
    moment = workspace(s__pg=SCHEMA, q__gq=READ)
    assert diagnose(moment, document(moment, "q.gq")) == ()
    changed = Document(TOP / "s.pg", SCHEMA.replace("Person", "Reader"), 2)
    after = Workspace(moment.folders, {**moment.open, changed.path: changed})
    assert [each.code for each in diagnose(after, document(after, "q.gq"))] == ["T1"]
