"""What people write who come from another language, or through a shell: each mistake is answered with what to write."""

from __future__ import annotations

import pytest

from omnigraph.errors import BadRequestError, CompileError
from omnigraph.language.lint import SchemaSource, lint_queries
from omnigraph.language.query.check.filters import check_row_filter
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.params import bind_parameters

from .query_archive import catalog, read

NULL_TESTS = "`not { $p.age = $p.age }` keeps rows without a value, `$p.age = $p.age` those with one"
NEVER_TRUE = "never true; choose the rows by another property (read them first: not { $p.age = $p.age })"
LISTS = (
    'the list comes first, and is a literal or a list property: ["a", "b"] contains $p.name, $x.tags contains $p.name'
)
OPPOSITE = 'the list comes first: ["a", "b"] contains $p.name; for the opposite, put it in not { }'
SHELL = "put the query in single quotes"
GROUPED = "return { $x.p, count($x) as n }"
ANATOMY = "query name() { match { $p: Person } return { $p.name } }"

MISTAKES = [
    (read("$p: Person  $p.age = null"), 42, NULL_TESTS),
    (read("$p: Person  null != $p.age"), 33, NULL_TESTS),
    (read("$p: Person  $p.age is null"), 40, NULL_TESTS),
    (read("$p: Person  $p.age IS NOT NULL"), 40, NULL_TESTS),
    (read("$p: Person  $p.age = NULL"), 42, NULL_TESTS),
    (read("$p: Person  NULL != $p.age"), 33, NULL_TESTS),
    ("query q() { delete Person where age = null }", 39, NEVER_TRUE),
    ("query q() { update Person set { age: 3 } where age != NULL }", 55, NEVER_TRUE),
    (read("$p: Person { age: NULL }"), 39, "pass it as a nullable parameter"),
    (read("$p: Person", "null"), 43, "pass it as a nullable parameter"),
    ("query q() { insert Person { handle: \"a\", age: null } }", 47, "pass it as a nullable parameter"),
    ("query q() { match { $p: Person } return distinct { $p.name } }", 41, GROUPED),
    (read("$p: Person", "distinct $p.name"), 43, GROUPED),
    (read("$p: Person", "count(distinct $p.name) as n"), 58, GROUPED),
    (read('$p: Person  $p.name in ["a", "b"]'), 41, '["a", "b"] contains $p.name'),
    (read("$p: Person  $p.name in $l", params="$l: [String]"), 53, LISTS),
    (read('$p: Person  $p.name not in ["a", "b"]'), 41, OPPOSITE),
    (read('$p: Person  $p.name NOT IN ["a", "b"]'), 41, OPPOSITE),
    (read("$p: Person  $p.name not in $l", params="$l: [String]"), 53, f"{LISTS}; for the opposite"),
    (read('$p: Person  $p.name not like "a%"'), 41, "use contains or starts_with"),
    ('query q() { delete Person where name not in ["a"] }', 38, "a mutation predicate is one comparison"),
    (read('$p: Person  $p.name like "a%"'), 41, "use contains or starts_with"),
    (read('$p: Person  $p.name LIKE "a%"'), 41, "use contains or starts_with"),
    ('query q() { delete Person where name in ["a"] }', 38, "a mutation predicate is one comparison"),
    (read("$p: Person  $p.age between 1 and 3"), 40, "$p.age >= 1  $p.age <= 9"),
    (read("$p: Person  $p.age == 3"), 41, "equality is written ="),
    (read("$p: Person  $p.age <> 3"), 41, "inequality is written !="),
    (read("$p: Person", "$p.name", "limit 5 offset 3"), 61, "go on after the last one: $x.key > $last"),
    (read("$p: Person", "$p.name", "SKIP 3"), 53, "go on after the last one: $x.key > $last"),
    (read("$p: Person", "$p.name", "order by $p.name"), 59, "order { $x.p desc }"),
    (read("$p: Person", "count(*) as n"), 49, "count rows by a variable: count($x)"),
    (read("$p: Person", "COUNT(*) as n"), 43, "small letters: count($x)"),
    (read("$p: Person", "Max($p.age) as n"), 43, "small letters: max($x.p)"),
    (read("$p: Person  $p.born < NOW()"), 43, "small letters: now()"),
    ("MATCH (p:Person) RETURN p.name", 1, ANATOMY),
    ("query q() { match (p:Person) return p.name }", 19, ANATOMY),
    (read("(p:Person)", "p.name"), 21, "nodes are written $p: Person"),
    (read("$a: Person  $a -[:KNOWS]-> $b"), 36, "a traversal is written $a knows $b"),
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
        ("age = null", "`age = age` is true where there is a value"),
        ("null != age", "`age = age` is true where there is a value"),
        ("age = NULL", "`age = age` is true where there is a value"),
        ("NULL = age", "`age = age` is true where there is a value"),
        ('name not in ["a", "b"]', 'a row filter has no not: name != "a" and name != "b"'),
        ("name in $actor", '["a", "b"] contains name, tags contains name'),
        ("age is null", "`age = age` is true where there is a value"),
        ('name in ["a"]', '["a", "b"] contains name'),
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
