"""What people write who come from another language, or through a shell: each mistake is answered with what to write."""

from __future__ import annotations

import pytest

from omnigraph.errors import BadRequestError, CompileError
from omnigraph.language.lint import SchemaSource, lint_queries
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.params import bind_parameters

from .query_archive import catalog, read

NULL_TESTS = "write `$p.age is null` or `$p.age is not null`"
PATTERNS = 'compare with contains, starts_with, ends_with($x.p, "…") or matches($x.p, "…"), or search by words'
SHELL = "put the query in single quotes"
ANATOMY = "query name() { match { $p: Person } return { $p.name } }"

MISTAKES = [
    (read("$p: Person  $p.age = null"), 42, NULL_TESTS),
    (read("$p: Person  null != $p.age"), 33, NULL_TESTS),
    (read("$p: Person  $p.age IS NOT NULL"), 40, "operators are written in small letters: $p.age is not null"),
    (read("$p: Person  $p.age = NULL"), 42, "a null is tested by is null, or is not null"),
    (read("$p: Person  NULL != $p.age"), 33, "keywords are written in small letters: null"),
    ("query q() { delete Person where age = null }", 39, "write `age is null` or `age is not null`"),
    ("query q() { update Person set { age: 3 } where age != NULL }", 55, "a null is tested by is null"),
    (read("$p: Person { age: NULL }"), 39, "keywords are written in small letters: null"),
    (read("$p: Person", "distinct $p.name"), 43, "return distinct { $x.p }, or in an aggregate: count(distinct $x.p)"),
    (read('$p: Person  $p.name not in ["a", "b"]'), 45, "not comes before the test: not $p.name in […]"),
    (read('$p: Person  $p.name NOT IN ["a", "b"]'), 41, "not comes before the test: not $p.name in […]"),
    (read('$p: Person  $p.name not like "a%"'), 45, PATTERNS),
    ('query q() { delete Person where name not in ["a"] }', 38, "not comes before the test: not name in […]"),
    (read('$p: Person  $p.name like "a%"'), 41, PATTERNS),
    (read('$p: Person  $p.name LIKE "a%"'), 41, PATTERNS.replace("$x.p", "$p.name")),
    (read("$p: Person  $p.age between 1 and 3"), 40, "write $x.p >= 1 and $x.p <= 9"),
    (read('$p: Person  $p.name in "ab"'), 44, "for a part of a text write `text contains part`"),
    (read("$p: Person  $p.age == 3"), 41, "equality is written ="),
    (read("$p: Person  $p.age <> 3"), 41, "inequality is written !="),
    (read("$p: Person", "$p.name", "SKIP 3"), 53, "rows are skipped by offset: offset 20 limit 10"),
    (read("$p: Person", "$p.name", "group by $p.name"), 53, "return { $x.p, count($x) as n }"),
    (read("$p: Person", "$p.name", "having $p.age > 3"), 53, "a filter of the next stage"),
    (read("$p: Person", "$p.name", "order by $p.name"), 59, "order { $x.p desc }"),
    (read("$p: Person", "COUNT(*) as n"), 43, "small letters: count($x)"),
    (read("$p: Person", "Max($p.age) as n"), 43, "small letters: max($x.p)"),
    (read("$p: Person  $p.born < NOW()"), 43, "small letters: now()"),
    ("MATCH (p:Person) RETURN p.name", 1, ANATOMY),
    ("query q() { match (p:Person) return p.name }", 19, ANATOMY),
    (read("(p:Person)", "p.name"), 23, "nodes are written $p: Person"),
    (read("$a: Person  $a -[:KNOWS]-> $b"), 38, "a traversal is written $a knows $b"),
    ("query q() { MATCH { $p: Person } RETURN { $p.name } }", 13, "small letters: match"),
    ("SELECT name FROM Person", 1, ANATOMY),
    ("match { $p: Person } return { $p.name }", 1, "a statement belongs in a query: query name() { … }"),
    ('insert Person { handle: "a" }', 1, "a statement belongs in a query: query name() { … }"),
    ("query q { match { $p: Person } return { $p.name } }", 9, "query q() {"),
    (read(": Person"), 21, SHELL),
    (read("$p: Person  .age > 3"), 33, SHELL),
    (read("$p: Person", ".name"), 43, SHELL),
    ("query q(: String) { match { $p: Person } return { $p.name } }", 9, SHELL),
    (read('$p: Person  $p.born > "2020-01-01"'), 33, 'write date("2020-01-01")'),
    (read('$p: Person  "2020-01-01" < $p.seen'), 33, 'write datetime("2020-01-01")'),
    (read("$p: Person  $p.born > $d", params="$d: String"), 43, "declare the parameter as $d: Date"),
    (read('$p: Person { born: "2020-01-01" }'), 40, 'write date("2020-01-01")'),
    (read("$p: Person { born: $d }", params="$d: String"), 50, "declare the parameter as $d: Date"),
    (read("$p: Person  $p.born > $p.name"), 33, 'write date("2024-01-31")'),
    (read("$p: Person", "$p.name, $p.name"), 52, "give one of them another name: `as name_2`"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "remedy"), MISTAKES)
def test_a_mistake_is_answered_with_what_to_write(text: str, column: int, remedy: str) -> None:
    with pytest.raises(CompileError) as raised:
        _ = compile_queries(text, catalog()).query().resolved
    finding = raised.value.diagnostics[0]
    assert remedy in (finding.suggestion or "")
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == (1, column)
    assert f"help: {finding.suggestion}" in str(raised.value), "which is what a server answers with"
    report = lint_queries(catalog(), text, query_path="q.gq", schema_source=SchemaSource.file("s.pg"))
    linted = [*(result.error or "" for result in report.results), *(finding.message for finding in report.findings)]
    assert any(remedy in line for line in linted)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("age = null", "write `age is null` or `age is not null`"),
        ("null != age", "write `age is null` or `age is not null`"),
        ("age = NULL", "a null is tested by is null, or is not null"),
        ('name not in ["a", "b"]', "not comes before the test: not name in […]"),
        ("name in $actor", "for a part of a text write `text contains part`"),
        ('born > "2020-01-01"', 'write date("2020-01-01")'),
    ],
)
def test_a_rule_for_rows_gets_remedies_too(text: str, remedy: str) -> None:
    with pytest.raises(CompileError) as raised:
        check_row_filter(text, catalog().nodes["Person"], catalog())
    assert remedy in (raised.value.diagnostics[0].suggestion or "")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "parameter 'name' not provided; the query needs a String"),
        ({"nmae": "x"}, "needs a String; 'nmae' is given and not declared: did you mean 'name'?"),
        ({"Name": "x", "size": 3}, "needs a String; 'Name' is given and not declared: did you mean 'name'?"),
        ({"size": 3, "colour": 1}, "needs a String; given and not declared: colour, size"),
        ({"name": "x", "size": 3}, None),
    ],
)
def test_a_parameter_under_another_name_is_named(given: dict[str, object], message: str | None) -> None:
    query = compile_queries(read("$p: Person { name: $name }", params="$name: String"), catalog()).query()
    if message is None:
        assert bind_parameters(query.parameters, given, now_millis=0)["name"] == "x"
        return
    with pytest.raises(BadRequestError) as raised:
        bind_parameters(query.parameters, given, now_millis=0)
    assert str(raised.value).endswith(message)
