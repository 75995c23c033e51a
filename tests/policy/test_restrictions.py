"""What rules show of a graph: filters and hidden properties, put together for an actor."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest
from omnigraph.errors import CompileError, PolicyError, PolicyEvaluationError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query import ir
from omnigraph.language.query.row_filter import NO_ROW, UNRESTRICTED, RowFilter
from omnigraph.language.schema.compile import compile_schema
from omnigraph.policy.bundle import read_bundle
from omnigraph.policy.gate import PolicyGate
from omnigraph.policy.visibility import resolve_restrictions

SCHEMA = """
node Person {
  name: String @key
  region: enum(eu, us)
  owner: String?
  bio: String?
  meaning: Vector(4)? @embed("bio")
  salary: I64?
}
node Contract { number: String @key  public: Bool }
edge Signed: Person -> Contract { on: Date? }
node Twin { a: String @key }
edge Twin: Twin -> Twin { b: Bool? }
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return compile_schema(SCHEMA)


def gate(*rules: str, actions: str = "[read]") -> PolicyGate:
    """One rule for each text, all for the same group."""
    lines = [
        f"  - id: r{i}\n    allow:\n      actors: {{group: g}}\n      actions: {actions}\n      {rule}\n"
        for i, rule in enumerate(rules)
    ]
    return PolicyGate(read_bundle("version: 1\ngroups: {g: [ana, bob]}\nrules:\n" + "".join(lines), "p.yaml"), "kb")


READ = AccessRequest(PolicyAction.READ, "main")


def test_a_rule_without_restriction_shows_everything(catalog: Catalog) -> None:
    assert gate("branch_scope: any").visibility("ana", READ, catalog) is UNRESTRICTED
    assert gate("rows: {Person: 'false'}", "branch_scope: any").visibility("ana", READ, catalog) is UNRESTRICTED


def test_rows_and_masked_properties(catalog: Catalog) -> None:
    visibility = gate(
        'rows: {Person: owner = $actor, Signed: on > date("2024-01-01")}\n      hide: {Person: [salary, bio]}'
    ).visibility("ana", READ, catalog)
    assert set(visibility.types) == {"node:Person", "edge:Signed"}
    person = visibility.of(catalog.nodes["Person"])
    assert isinstance(person.rows, ir.Compare)
    assert person.rows.right == ir.Constant("ana", ir.STRING)
    assert person.masked == {"salary", "bio", "meaning"}, "a vector tells what its text says"
    assert visibility.of(catalog.nodes["Contract"]).is_unrestricted
    assert not visibility.is_unrestricted


def test_rules_add_up(catalog: Catalog) -> None:
    visibility = gate(
        "rows: {Person: owner = $actor, Contract: public = true}\n      hide: {Person: [salary, bio]}",
        'rows: {Person: region = "eu"}\n      hide: {Person: [salary], Contract: [public]}',
    ).visibility("ana", READ, catalog)
    person = visibility.of(catalog.nodes["Person"])
    assert isinstance(person.rows, ir.Or)
    assert len(person.rows.operands) == 2
    assert person.masked == {"salary"}
    assert set(visibility.types) == {"node:Person"}, "the second rule shows all contracts, the first one all of each"


def test_a_type_can_be_closed(catalog: Catalog) -> None:
    visibility = gate("rows: {Contract: 'false', 'edge:Twin': 'false'}").visibility("ana", READ, catalog)
    assert visibility.of(catalog.nodes["Contract"]).rows == NO_ROW
    assert visibility.of(catalog.edges["Twin"]).rows == NO_ROW
    assert visibility.of(catalog.nodes["Twin"]).is_unrestricted


def test_only_the_rules_that_allow_a_request_count(catalog: Catalog) -> None:
    text = """\
version: 1
groups: {g: [ana], h: [bob, ana]}
protected_branches: [main]
rules:
  - {id: on-main, allow: {actors: {group: g}, actions: [read], branch_scope: protected, rows: {Person: owner = $actor}}}
  - {id: elsewhere, allow: {actors: {group: g}, actions: [read], branch_scope: unprotected}}
  - {id: out, allow: {actors: {group: h}, actions: [export], hide: {Person: [salary]}}}
"""
    both = PolicyGate(read_bundle(text), "kb")
    assert not both.visibility("ana", READ, catalog).is_unrestricted
    assert both.visibility("ana", AccessRequest(PolicyAction.READ, "f"), catalog).is_unrestricted
    assert both.visibility("bob", AccessRequest(PolicyAction.EXPORT, "f"), catalog).of(catalog.nodes["Person"]).masked
    with pytest.raises(PolicyError, match="policy denied action 'read' on branch 'main' for actor 'bob'"):
        both.visibility("bob", READ, catalog)
    with pytest.raises(PolicyError, match="policy denied"):
        both.visibility(None, READ, catalog)


def test_every_actor_has_a_visibility_of_its_own(catalog: Catalog) -> None:
    rules = gate("rows: {Person: owner = $actor}")
    ana, bob = (rules.visibility(actor, READ, catalog) for actor in ("ana", "bob"))
    assert ana != bob
    assert rules.visibility("ana", READ, catalog) is ana, "it is made once"


@pytest.mark.parametrize(
    ("rule", "fragments"),
    [
        ("rows: {Persn: owner = $actor}", ["rows of Persn: the graph has no type 'Persn'; did you mean 'Person'?"]),
        ("rows: {Person: age > 3}", ["rows of Person at column 1: T6: node type 'Person' has no property 'age'"]),
        ("rows: {Person: salary = $actor}", ["rows of Person at column 1: T7: cannot compare I64? with String"]),
        ("rows: {Person: 'region != \"ue\"'}", ["expects one of [eu, us] but got 'ue'"]),
        ("rows: {Person: 'true', 'node:Person': 'true'}", ["rows of node:Person: the type is listed twice"]),
        ("rows: {Twin: 'false'}", ["rows of Twin: a node and an edge type have this name; write 'node:Twin' or"]),
        ("hide: {Person: [salry, ssn]}", ["has no property 'salry'", "has no property 'ssn'"]),
        ("hide: {Person: [name]}", ["'name' is part of the key, which the id shows to everybody"]),
        ("hide: {People: [name]}", ["hide of People: the graph has no type 'People'"]),
        ("hide: {Person: [bio], 'node:Person': [salary]}", ["hide of node:Person: the type is listed twice"]),
    ],
)
def test_rules_are_checked_against_the_schema(catalog: Catalog, rule: str, fragments: list[str]) -> None:
    restricted = gate("hide: {Person: [salary]}", rule)
    with pytest.raises(CompileError) as error:
        resolve_restrictions(restricted.bundle, catalog)
    found = error.value.diagnostics
    assert len(found) == len(fragments)
    for diagnostic, fragment in zip(found, fragments, strict=True):
        assert fragment in diagnostic.message
        assert diagnostic.message.startswith("policy rule 'r1', ")
        assert diagnostic.span is not None
        assert (diagnostic.path, diagnostic.span.line) == ("p.yaml", 13)
    with pytest.raises(PolicyEvaluationError, match="does not fit the schema") as failure:
        restricted.visibility("ana", READ, catalog)
    assert fragments[0] not in str(failure.value), "callers learn nothing of the rules"


def test_a_rule_that_fits_is_accepted(catalog: Catalog) -> None:
    resolve_restrictions(
        gate("rows: {Person: 'region = \"eu\" or owner = $actor', Contract: public = true}").bundle, catalog
    )
    resolve_restrictions(gate("hide: {Person: [salary]}", actions="[read, export, change]").bundle, catalog)


# ---- the law: a row is seen if any of the matching rules shows it ------------------------------------------

ATOMS = [
    'region = "eu"',
    'region != "eu"',
    "owner = $actor",
    "not (owner = $actor)",
    'owner in ["bob", $actor]',
    "salary > 10",
    "salary is null",
    'not (salary > 10 or owner starts_with "a")',
    'owner starts_with "a"',
    "false",
    "true",
]
PEOPLE: list[dict[str, Any]] = [
    {"region": region, "owner": owner, "salary": salary}
    for region in ("eu", "us")
    for owner in ("ana", "bob", None)
    for salary in (5, 50, None)
]


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "prefix": str.startswith,
}


def holds(test: RowFilter, row: Mapping[str, Any]) -> bool | None:
    """A filter on a row, read off its structure: None where it is null."""
    match test:
        case ir.And() | ir.Or():
            outcomes = [holds(part, row) for part in test.operands]
            decisive = isinstance(test, ir.Or)
            return decisive if decisive in outcomes else None if None in outcomes else not decisive
        case ir.Not():
            whole = holds(test.operand, row)
            return None if whole is None else not whole
        case ir.IsNull():
            return (value_of(test.operand, row) is None) is not test.negated
        case ir.In():
            value, items = value_of(test.item, row), value_of(test.items, row)
            return None if value is None else value in items
        case ir.Compare():
            left, right = value_of(test.left, row), value_of(test.right, row)
            return None if left is None else COMPARISONS[test.operator](left, right)
        case _:
            outcome: bool | None = value_of(test, row)
            return outcome


def value_of(value: ir.Value, row: Mapping[str, Any]) -> Any:
    match value:
        case ir.PropertyValue():
            return row[value.prop.name]
        case ir.ListOf():
            return [value_of(item, row) for item in value.items]
    assert isinstance(value, ir.Constant)
    return value.value


def atom_holds(atom: str, row: Mapping[str, Any], actor: str) -> bool:
    """An atom on a row, read off its text."""
    owner, salary = row["owner"], row["salary"]
    return {
        'region = "eu"': row["region"] == "eu",
        'region != "eu"': row["region"] != "eu",
        "owner = $actor": owner == actor,
        "not (owner = $actor)": owner is not None and owner != actor,
        'owner in ["bob", $actor]': owner in ("bob", actor),
        "salary is null": salary is None,
        'not (salary > 10 or owner starts_with "a")': None not in (salary, owner) and salary <= 10 and owner[0] != "a",
        "salary > 10": salary is not None and salary > 10,
        'owner starts_with "a"': owner is not None and owner.startswith("a"),
        "false": False,
        "true": True,
    }[atom]


RULES = st.lists(
    st.tuples(
        st.lists(st.lists(st.sampled_from(ATOMS), min_size=1, max_size=3), max_size=3),
        st.sets(st.sampled_from(["salary", "owner", "bio"])),
    ).filter(any),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(RULES)
def test_a_row_is_visible_if_a_rule_shows_it_and_masked_if_all_hide_it(
    rules: list[tuple[list[list[str]], set[str]]],
) -> None:
    catalog = compile_schema(SCHEMA)
    texts = []
    for ways, masked in rules:
        predicate = " or ".join("(" + " and ".join(way) + ")" for way in ways)
        rows = f"rows: {{Person: '{predicate}'}}\n      " if ways else ""
        texts.append(rows + (f"hide: {{Person: [{', '.join(sorted(masked))}]}}" if masked else ""))
    visibility = gate(*texts).visibility("ana", READ, catalog).of(catalog.nodes["Person"])
    for row in PEOPLE:
        expected = any(
            not ways or any(all(atom_holds(a, row, "ana") for a in way) for way in ways) for ways, _ in rules
        )
        assert (holds(visibility.rows, row) is True) is expected
    assert visibility.masked - {"meaning"} == set.intersection(*(masked for _, masked in rules))
