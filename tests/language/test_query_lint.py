"""Operation descriptors and lint reports, in their wire form."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.api import wire
from omnigraph.language.lint import HARD_CODED, LintReport, SchemaSource, lint_queries
from omnigraph.language.query.compile import describe_parameters
from omnigraph.language.schema.compile import compile_schema

from .query_archive import catalog, compiled, read, write

FILE = SchemaSource("file", "archive.pg")


def lint(text: str) -> LintReport:
    return lint_queries(catalog(), text, query_path="q.gq", schema_source=FILE, pedantic=True)


RESULT_SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("$p.title", {"name": "title", "kind": "string", "nullable": False}),
    ("$p.state", {"name": "state", "kind": "string", "nullable": False}),
    ("$p.pages", {"name": "pages", "kind": "int", "nullable": True}),
    ("$p.big", {"name": "big", "kind": "bigint", "nullable": True}),
    ("$p.price", {"name": "price", "kind": "float", "nullable": True}),
    ("$p.added", {"name": "added", "kind": "datetime", "nullable": True}),
    ("$a.born", {"name": "born", "kind": "date", "nullable": True}),
    ("$a.active", {"name": "active", "kind": "bool", "nullable": True}),
    ("$p.keywords", {"name": "keywords", "kind": "list", "item_kind": "string", "nullable": True}),
    ("$p.vec", {"name": "vec", "kind": "vector", "vector_dim": 4, "nullable": True}),
    ("$p", {"name": "p", "kind": "object", "type_names": ["Paper"], "nullable": False}),
    ("$q", {"name": "q", "kind": "string", "nullable": True}),
    ("3", {"name": "literal", "kind": "bigint", "nullable": False}),
    ("[1.5]", {"name": "literal", "kind": "list", "item_kind": "float", "nullable": False}),
    ("now()", {"name": "now", "kind": "datetime", "nullable": False}),
    ("count($p)", {"name": "count", "kind": "bigint", "nullable": True}),
    ("sum($p.pages)", {"name": "sum", "kind": "bigint", "nullable": True}),
    ("sum($p.price)", {"name": "sum", "kind": "float", "nullable": True}),
    ("avg($p.pages)", {"name": "avg", "kind": "float", "nullable": True}),
    ("max($p.pages)", {"name": "max", "kind": "int", "nullable": True}),
    ("min($p.title) as m", {"name": "m", "kind": "string", "nullable": True}),
    ("bm25($p.title, $q)", {"name": "bm25", "kind": "float", "nullable": False}),
    ("search($p.title, $q)", {"name": "search", "kind": "bool", "nullable": False}),
    ("$p.@id", {"name": "@id", "kind": "string", "nullable": False}),
    ("$p.pages > 3 as long", {"name": "long", "kind": "bool", "nullable": True}),
    ("$p.pages is null as long", {"name": "long", "kind": "bool", "nullable": False}),
    ("$p.pages + 1 as more", {"name": "more", "kind": "bigint", "nullable": True}),
    ("size($p.title) as n", {"name": "n", "kind": "bigint", "nullable": False}),
    ("$p.price / 2 as half", {"name": "half", "kind": "float", "nullable": True}),
    ("count { $_ wrote $p } as n", {"name": "n", "kind": "bigint", "nullable": False}),
    ("count(*)", {"name": "count", "kind": "bigint", "nullable": True}),
    ("null as nothing", {"name": "nothing", "kind": "string", "nullable": True}),
    ("collect($p.title) as titles", {"name": "titles", "kind": "list", "item_kind": "string", "nullable": False}),
    (
        "collect($p) as papers",
        {
            "name": "papers",
            "kind": "list",
            "item_kind": "object",
            "item": {"name": "item", "kind": "object", "type_names": ["Paper"], "nullable": True},
            "nullable": False,
        },
    ),
    (
        "record(title: $p.title, names: $a.aliases) as r",
        {
            "name": "r",
            "kind": "record",
            "fields": [
                {"name": "title", "kind": "string", "nullable": False},
                {"name": "names", "kind": "list", "item_kind": "string", "nullable": True},
            ],
            "nullable": False,
        },
    ),
    ("path($a) as way", {"name": "way", "kind": "path", "nullable": False}),
    (
        "[[1], [2]] as m",
        {
            "name": "m",
            "kind": "list",
            "item_kind": "list",
            "item": {"name": "item", "kind": "list", "item_kind": "bigint", "nullable": True},
            "nullable": False,
        },
    ),
]


@pytest.mark.parametrize(("projection", "shape"), RESULT_SHAPES)
def test_result_shapes(projection: str, shape: dict[str, Any]) -> None:
    query = compiled(read("$p: Paper  $a: Person", projection, params="$q: String?"))
    assert [wire.to_builtins(column) for column in query.operation.result] == [shape]


TOUCHED = [
    (read("$a: Person"), ["node Person"], []),
    (read("$a wrote $p"), ["node Paper", "node Person", "edge Wrote"], []),
    (read("$a: Person  not { $a <knows> $b  not { $b wrote $_ } }"),
     ["node Paper", "node Person", "edge Knows", "edge Wrote"], []),
    (write('insert Slot { room: "a", hour: 1 }'), ["node Slot"], ["node Slot"]),
    (write('insert Wrote { from: "a", to: "b" }'), ["node Paper", "node Person", "edge Wrote"], ["edge Wrote"]),
    (write("update Person set { age: 1 } where age = 2"), ["node Person"], ["node Person"]),
    (write('delete Slot where room = "a"'), ["node Slot", "edge Reserved"], ["node Slot", "edge Reserved"]),
    (write('delete Cites where from = "a"'), ["edge Cites"], ["edge Cites"]),
]  # fmt: skip


@pytest.mark.parametrize(("query", "reads", "writes"), TOUCHED)
def test_touched_types(query: str, reads: list[str], writes: list[str]) -> None:
    operation = compiled(query).operation
    assert [f"{t.kind} {t.type_name}" for t in operation.reads] == reads
    assert [f"{t.kind} {t.type_name}" for t in operation.writes] == writes


FOLLOWED = [
    ("match { $x: Named } return { $x.@id }", ["node Person"], []),
    ("match { $a: Person  $a * $b  $b: Paper } return { $b.doi }",
     ["node Paper", "node Person", "edge Memo", "edge Wrote"], []),
    ("match { $x: (Person | Paper)  $x (knows | cites){1,2} $y } return { $y.@id }",
     ["node Paper", "node Person", "edge Cites", "edge Knows"], []),
    ("match { $a: Person } return { $a.name, count { $a reserved $_ } as n }",
     ["node Person", "node Slot", "edge Reserved"], []),
    ("match { $a: Person  optional { $a wrote $p  exists { $p cites $_ } } } return { $p.doi }",
     ["node Paper", "node Person", "edge Cites", "edge Wrote"], []),
    ("match { $a: Person } return { $a.name as n } union match { $s: Slot } return { $s.room as n }",
     ["node Person", "node Slot"], []),
    ("{ match { $s: Slot } return { $s } } then match { $a reserved $s } return { $a.name }",
     ["node Person", "node Slot", "edge Reserved"], []),
    ("match { path $k: shortest $a knows $b } return { $k }", ["node Person", "edge Knows"], []),
    ("match { $a wrote $p } return { $a } then match { $s: Slot } insert Reserved { from: $a, to: $s, at: now() }",
     ["node Paper", "node Person", "node Slot", "edge Reserved", "edge Wrote"], ["edge Reserved"]),
    ("match { $a: Person } update $a set { age: count { $a wrote $_ } }",
     ["node Paper", "node Person", "edge Wrote"], ["node Person"]),
    ("match { $a: Person  $a reserved $s } delete $s",
     ["node Person", "node Slot", "edge Reserved"], ["node Slot", "edge Reserved"]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "reads", "writes"), FOLLOWED)
def test_types_are_found_in_every_part_of_a_query(body: str, reads: list[str], writes: list[str]) -> None:
    operation = compiled(f"query q() {{ {body} }}").operation
    assert [f"{t.kind} {t.type_name}" for t in operation.reads] == reads
    assert [f"{t.kind} {t.type_name}" for t in operation.writes] == writes


def test_parameters_have_the_same_wire_form() -> None:
    query = compiled(write('delete Paper where doi = "x"', "$a: I64, $b: [Date]?, $c: Vector(3), $d: Blob"))
    assert [wire.to_builtins(shape) for shape in describe_parameters(query.parameters)] == [
        {"name": "a", "kind": "bigint", "nullable": False},
        {"name": "b", "kind": "list", "item_kind": "date", "nullable": True},
        {"name": "c", "kind": "vector", "vector_dim": 3, "nullable": False},
        {"name": "d", "kind": "blob", "nullable": False},
    ]


# ---- lint -----------------------------------------------------------------------------------------------


def test_a_clean_file() -> None:
    report = lint("query q($d: String) { match { $s: Slot { room: $d } } return { $s.hour as hour } }")
    assert wire.to_builtins(report) == {
        "status": "ok",
        "schema_source": {"kind": "file", "path": "archive.pg"},
        "query_path": "q.gq",
        "queries_processed": 1,
        "errors": 0,
        "warnings": 0,
        "infos": 0,
        "results": [
            {
                "name": "q",
                "kind": "read",
                "status": "ok",
                "operation": {
                    "result": [{"name": "hour", "kind": "int", "nullable": False}],
                    "reads": [{"kind": "node", "type_name": "Slot"}],
                    "writes": [],
                },
            }
        ],
        "findings": [],
    }
    assert report.exit_code == 0


def test_a_live_graph_is_named_by_its_uri() -> None:
    assert wire.to_builtins(SchemaSource.graph("s3://b/g")) == {"kind": "graph", "uri": "s3://b/g"}


def test_a_file_that_does_not_parse_has_one_finding_and_no_results() -> None:
    report = lint(read("$b: Paper {}") + "\nquery x( {")
    told = wire.to_builtins(report)
    assert (told["status"], told["errors"], told["queries_processed"], told["results"]) == ("error", 1, 0, [])
    (finding,) = told["findings"]
    assert (finding["severity"], finding["code"]) == ("error", "Q000")
    assert "line 1" in finding["message"]
    assert "line 2" in finding["message"]
    assert report.exit_code == 1


def test_a_failing_query_does_not_stop_the_others() -> None:
    report = lint("query a() { match { $b: Bok } return { $b.x } }\n" + read("$p: Paper", "$p.title"))
    first, second = wire.to_builtins(report)["results"]
    assert first["status"] == "error"
    assert first["error"].startswith("type error: T1: unknown node type 'Bok' (line 1, column 25)")
    assert "operation" not in first
    assert second["status"] == "ok"
    assert (report.status, report.errors, report.exit_code) == ("error", 1, 1)


def test_every_type_error_of_a_query_is_in_its_text() -> None:
    report = lint(read("$p: Paper { isbn: 1 }", "$p.scan"))
    (result,) = report.results
    assert result.error is not None
    assert [line.split(": ")[1] for line in result.error.splitlines()] == ["T2", "T24"]


def test_a_mutation_without_parameters_is_warned_about() -> None:
    report = lint(write('delete Paper where doi = "x"'))
    (result,) = wire.to_builtins(report)["results"]
    assert result["status"] == "ok"
    assert "hard-coded mutation" in result["warnings"][0]
    assert (report.warnings, report.exit_code) == (1, 0)


def test_what_only_execution_refuses_is_no_lint_error() -> None:
    mixed = write("delete Paper where doi = $d insert Slot { room: $d, hour: 1 }", "$d: String")
    key = write("update Paper set { doi: $d } where doi = $d", "$d: String")
    assert lint(mixed).errors == lint(key).errors == 0


def test_l201_names_nullable_properties_that_no_update_sets() -> None:
    text = (
        "query one($d: String) { update Slot set { label: $d } where room = $d }\n"
        "query two($d: String) { update Person set { age: 1, karma: 1.0, seen: now() } where handle = $d }\n"
        "query also($d: String) { update Person set { active: true } where handle = $d }\n"
        "query broken($d: String) { update Person set { email: 3 } where handle = $d }\n"
    )
    findings = wire.to_builtins(lint(text))["findings"]
    assert [f["property"] for f in findings] == ["aliases", "born", "email", "photo"]
    assert findings[0] == {
        "severity": "warning",
        "code": "L201",
        "message": "Person.aliases exists in schema but no update query sets it",
        "type_name": "Person",
        "property": "aliases",
        "query_names": ["also", "two"],
    }


def test_l201_leaves_embedded_vectors_and_key_members_alone() -> None:
    findings = lint(write('update Paper set { pages: $n } where doi = "x"', "$n: I32")).findings
    assert "vec" not in {finding.property_name for finding in findings}
    assert "doi" not in {finding.property_name for finding in findings}


def test_findings_are_sorted_by_type_and_property() -> None:
    text = (
        "query b($d: String) { update Slot set { label: $d } where room = $d  "
        "update Person set { age: 1 } where handle = $d  update Paper set { pages: 1 } where doi = $d }"
    )
    keys = [(finding.type_name, finding.property_name) for finding in lint(text).findings]
    assert keys == sorted(keys, key=str)


def test_findings_are_shown_to_a_person() -> None:
    *_, finding, _ = lint("query a($d: String) { update Slot set { hour: 1 } where room = $d }").lines()
    assert finding == "WARN  L201: Slot.label exists in schema but no update query sets it"
    first, last = lint("nonsense").lines()
    assert first.startswith("ERROR Q000: parse error: Q001: expected a statement, 'query'")
    assert first.endswith("found 'nonsense' (line 1, column 1)")
    assert last == "INFO  Lint complete: 0 queries processed (1 error(s), 0 warning(s), 0 info item(s))"


def test_the_report_for_a_person() -> None:
    text = (
        "query good() { match { $p: Paper } return { $p.doi } }\n"
        "query bad() { match { $p: Papr { x: 1 } } return { $p } }\n"
        'query fixed() { update Slot set { label: "x" } where room = "a" }\n'
    )
    assert list(lint(text).lines()) == [
        "OK    query `good` (read)",
        "ERROR query `bad`: type error: T1: unknown node type 'Papr' (line 2, column 27); did you mean 'Paper'?",
        "OK    query `fixed` (mutation)",
        f"WARN  query `fixed`: {HARD_CODED}",
        "INFO  Lint complete: 3 queries processed (1 error(s), 1 warning(s), 0 info item(s))",
    ]


# ---- what one query may not mean ------------------------------------------------------------------------


def codes(text: str) -> list[str]:
    return [finding.code for finding in lint(text).findings]


def test_l202_tells_of_objects() -> None:
    (finding,) = wire.to_builtins(lint(read("$p: Paper  $a wrote $p", "$p, $a as who, $a.name")))["findings"]
    assert finding == {
        "severity": "info",
        "code": "L202",
        "message": "query 'q' returns $p, $a as an object with all properties; for the id return $p.@id, $a.@id",
        "query_names": ["q"],
    }
    assert codes(read("$p: Paper", "$p.@id, count($p) as n")) == []
    stages = "query q() { match { $p: Paper } return { $p } then return { $p.doi } }"
    assert codes(stages) == [], "only what the query answers with is an object"


REQUIRED = [
    "$a: Person  optional { $a wrote $p }  $p.pages > 3",
    "$a: Person  optional { $a wrote $p }  $a.age > 3 and $p.pages + 1 in [3]",
    "$a: Person  optional { $a wrote $p }  not ($p.pages > 3)",
    "$a: Person  optional { $a wrote $p }  $p.pages > 3 or $p.price > 3",
    "$a: Person  optional { $a wrote $p }  $p is not null",
    "$a: Person  optional { $a wrote $p }  not ($p is null)",
    '$a: Person  optional { $a wrote $p }  search($p.title, "x")',
    "$a: Person  optional { $a wrote $p }  lower($p.title) = $a.name",
    "$a: Person  optional { $a wrote $p }  $p cites $q",
    "$a: Person  optional { $a wrote $p }  $p: Paper",
    "$a: Person  not { $a knows $b  optional { $b wrote $p }  $p.pages > 3 }",
    "$a: Person  exists { $a knows $b  optional { $b wrote $p }  $p.pages > 3 }",
    "$a: Person  optional { $a knows $b  optional { $b wrote $p }  $p.pages > 3 }",
]
OPTIONAL = [
    "$a: Person  optional { $a wrote $p  $p.pages > 3 }",
    "$a: Person  optional { $a wrote $p }  $p is null",
    "$a: Person  optional { $a wrote $p }  $p.pages > 3 or $p is null",
    "$a: Person  optional { $a wrote $p }  $p.pages > 3 or $a.age > 3",
    "$a: Person  optional { $a wrote $p }  coalesce($p.pages, 0) < 3",
    '$a: Person  optional { $a wrote $p }  not search($p.title, "x")',
    "$a: Person  optional { $a wrote $p }  not { $p cites $_ }",
    "$a: Person  optional { $a wrote $p }  optional { $p cites $q }",
]


@pytest.mark.parametrize("match", REQUIRED)
def test_l203_names_an_optional_block_that_is_not_one(match: str) -> None:
    assert codes(read(match)) == ["L203"]


@pytest.mark.parametrize("match", OPTIONAL)
def test_l203_leaves_other_optional_blocks_alone(match: str) -> None:
    assert codes(read(match)) == []


OFFSETS = [
    ("match { $p: Paper } return { $p.doi } limit 3 offset 2", ["L204"]),
    ("match { $p: Paper } return { $p.doi } offset $n", ["L204"]),
    ("match { $p: Paper } return { $p.doi } order { $p.doi } offset 2", []),
    ("match { $p: Paper } return { $p.doi } offset 0", []),
    ('match { $p: Paper } return { $p.doi } order { bm25($p.title, "x") } offset 2', []),
    ("match { $p: Paper } return { $p } order { $p.doi } then return { $p.doi } offset 2", []),
    ("match { $p: Paper } return { $p } offset 2 then return { $p.doi } order { $p.doi }", ["L204"]),
]


@pytest.mark.parametrize(("body", "expected"), OFFSETS)
def test_l204_asks_for_an_order(body: str, expected: list[str]) -> None:
    assert codes(f"query q($n: I64) {{ {body} }}") == expected


FED = [
    ('insert Slot { room: "a", hour: 1 } match { $s: Slot } update $s set { label: $x }', ["L205"]),
    ("match { $s: Slot } update $s set { label: $x } match { $a reserved $s } update $a set { age: 1 }", ["L205"]),
    ("match { $s: Slot } update $s set { label: $x } match { $a: Person  exists { $a reserved $_ } } delete $a",
     ["L205"]),
    ("match { $s: Slot } update $s set { label: $x } match { $a: Person } update $a set { age: 1 }", []),
    ("match { $a: Person } update $a set { age: 1 } insert Slot { room: $x, hour: 1 }", []),
    ('update Slot set { label: $x } where room = "a" update Slot set { label: $x } where room = "b"', []),
    ("match { $a: Person } delete $a match { $a wrote $p } delete $p", ["L205", "L205"]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), FED)
def test_l205_tells_of_feeds_that_do_not_see_what_was_written(body: str, expected: list[str]) -> None:
    findings = [f for f in lint(f"query q($x: String) {{ {body} }}").findings if f.code != "L201"]
    assert [finding.code for finding in findings] == expected


NULL_FOR_DEFAULT = [
    ("I32?", "insert A { k: $k, n: $p }", "the insert is refused; the default 7 is for an insert without the property"),
    ("[I32]?", "unwind [$k] as $e upsert A { k: $e, m: $p }", "null is stored; the default [] is for an insert"),
    ("I32", "insert A { k: $k, n: $p }", None),
    ("I32?", "insert A { k: $k, o: $p }", None),
    ("I32?", "update A set { n: $p } where k = $k", None),
]


@pytest.mark.parametrize(("type_", "statement", "fragment"), NULL_FOR_DEFAULT)
def test_l206_tells_that_a_parameter_left_out_is_null_and_not_the_default(
    type_: str, statement: str, fragment: str | None
) -> None:
    schema = compile_schema("node A { k: String @key  n: I32 = 7  m: [I32]? = []  o: I32? }")
    text = f"query q($k: String, $p: {type_}) {{ {statement} }}"
    findings = lint_queries(schema, text, query_path="q.gq", schema_source=FILE).findings
    assert [(each.code, each.severity) for each in findings] == [("L206", "info")] * (fragment is not None)
    assert all(fragment in each.message for each in findings if fragment is not None)


def test_a_statement_is_no_query_of_a_file() -> None:
    (finding,) = lint("branch create x").findings
    assert (finding.code, finding.severity) == ("Q000", "error")
    assert "Q004" in finding.message
