"""Plans as text: values as a query spells them, with the fewest parentheses, and operators in a few words."""

from __future__ import annotations

import pytest

from omnigraph.language.query import ir, resolved

from .query_archive import compiled, read, tree

FIRST = (
    "match { $a: Person  $a $w:wrote $p  $x: (Person | Paper)  path $k: trails $a knows $b } "
    "return { $a, $w, $p, $x, $k, $a.age as m, record(one: 1) as r }"
)


def value_of(expression: str) -> ir.Value:
    """The value of an expression over entities, a path and values that a stage passed on."""
    text = f"query q($n: I64?, $l: [String], $v: Vector(4)) {{ {FIRST} then return {{ {expression} as e }} }}"
    body = compiled(text).resolved.body
    assert isinstance(body, resolved.Read)
    return body.chains[0].stages[-1].projections[0].value


SAME = [
    "$a.age",
    "$a.@id",
    "$w.@src",
    "$x.@type",
    "$x.name?",
    "$a",
    "$m",
    "$n",
    "null",
    "true",
    "-3",
    "1.5",
    '"a \\"quoted\\" \\\\ text\\n"',
    'date("2024-05-01")',
    '["a", "b"]',
    "[1, 2.5]",
    "[$a.age, $m]",
    "now()",
    "$a.age = 3",
    '$a.name contains "x"',
    '$a.name starts_with "x"',
    '$a.aliases contains "x"',
    "$a.name in $l",
    "$a.age is null",
    "$a is not null",
    "$a.age > 3 and $m < 4 and $a.age != 5",
    "$a.age > 3 or $m < 4 and $a.age != 5",
    "($a.age > 3 or $m < 4) and $a.age != 5",
    "not $a.age > 3",
    "not ($a.age > 3 or $m < 4)",
    "not not $a.active",
    "not $a.active is null",
    "($a.age > 3) is null",
    "($a.age = 3) = true",
    "$a.age + 1 - $m",
    "$a.age - (1 - $m)",
    "($a.age + 1) * 2",
    "$a.age + 1 * 2",
    "$a.age / (2 * $m)",
    "-$a.age",
    "-($a.age + 1)",
    "-$a.age * 2",
    "3 - -$a.age",
    'lower($a.name) + "x"',
    "case when $a.age > 3 then 1 else 2 end",
    'case $a.age when 3 then "x" when $m then "y" end',
    "record(name: $a.name, n: $m + 1)",
    "$r.one",
    "path($a, $w, $p)",
    "length($k) + size(nodes($k))",
    'search($p.title, "x")',
    'fuzzy($p.title, "x", 1)',
    "nearest($p.vec, $v)",
    "nearest($p.vec, $v, exact: true)",
    'bm25($p.title, "x")',
    "count(*)",
    "count(distinct $a.name)",
    "percentile_cont($a.age, 0.5)",
    "sum($a.age) / count(*)",
]


@pytest.mark.parametrize("expression", SAME)
def test_values_are_spelled_as_a_query_spells_them(expression: str) -> None:
    assert ir.value_text(value_of(expression)) == expression


SHORTER = [
    ("(($a.age)) = (3)", "$a.age = 3"),
    ("($a.age > 3 and $m < 4) or $a.active", "$a.age > 3 and $m < 4 or $a.active"),
    ("not ($a.age > 3)", "not $a.age > 3"),
    ("($a.age + 1) + 2", "$a.age + 1 + 2"),
    ("$a.age + (1 * 2)", "$a.age + 1 * 2"),
    ("$a.age in (([1, 2]))", "$a.age in [1, 2]"),
    ('contains($a.name, "x")', '$a.name contains "x"'),
]


@pytest.mark.parametrize(("expression", "text"), SHORTER)
def test_parentheses_are_only_where_they_are_needed(expression: str, text: str) -> None:
    assert ir.value_text(value_of(expression)) == text


def test_a_text_means_what_the_value_means() -> None:
    for expression in (*SAME, *(written for written, _ in SHORTER)):
        value = value_of(expression)
        assert value_of(ir.value_text(value)) == value, expression


def test_what_a_value_binds_itself_has_a_name() -> None:
    forms = [
        'map($i in $a.aliases where $i != "x" : upper($i))',
        "all($i in $a.aliases : size($i) > 3)",
        "reduce($s = 0, $i in $a.aliases : $s + size($i))",
    ]
    assert [ir.value_text(value_of(form)).partition("($")[0] for form in forms] == ["map", "all", "reduce"]


def test_a_long_chain_of_conditions_is_no_deep_one() -> None:
    chain = " or ".join(f"$a.age = {i}" for i in range(5_000))
    (scan,) = [op for op, _ in ir.plan_levels(tree(read(f"$a: Person  {chain}"))) if isinstance(op, ir.Scan)]
    assert ir.operator_text(scan) == f"Scan $a: Person where {chain}"


def test_conditions_of_a_row_have_no_variable() -> None:
    plan = compiled('query q() { update Person set { age: age + 1 } where age > 3 and @id = "x" }').write_plan
    (update,) = plan.statements
    assert isinstance(update, ir.Update)
    assert ir.value_text(update.where) == 'age > 3 and @id = "x"'
    assert ir.value_text(update.assignments[0].value) == "age + 1"


OPERATORS = [
    (read("$a: Person  $a knows{1,3} $b", "$b"), "Expand $a -[Knows{1,3}]-> $b"),
    (read("$a: Person  $a knows $b  $a $k:<knows> $b", "$b"), "Close $a -[$k:Knows]- $b"),
    (read("$a: Person  $a knows{2,} $b"), "Expand $a -[Knows{2,}]-> $b"),
    (read("$a: Person", "$a", "order { $a.age desc nulls last } limit 3 offset 2"), "Limit 3 offset 2"),
    (read("$a: Person", "$a", "order { $a.age desc nulls last }"), "Sort by $a.age desc nulls last, $a.@id"),
    (read("$p: Paper", "$p", 'order { rrf(bm25($p.title, "x"), bm25($p.title, "y"), 9) } limit $n', "$n: I64"),
     'Fuse bm25($p.title, "x") and bm25($p.title, "y"), best $n'),
]  # fmt: skip


@pytest.mark.parametrize(("query", "text"), OPERATORS)
def test_operators(query: str, text: str) -> None:
    assert text in [ir.operator_text(op) for op, _ in ir.plan_levels(tree(query))]
