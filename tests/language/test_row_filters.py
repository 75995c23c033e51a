"""Row filters: how they read, what they may compare, and the visibility they make."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.errors import CompileError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query import ir
from omnigraph.language.query.check.filters import check_row_filter, for_actor
from omnigraph.language.query.parser import parse_queries, parse_row_filter
from omnigraph.language.query.row_filter import (
    EVERY_ROW,
    NO_ROW,
    ROW,
    UNRESTRICTED,
    AllOf,
    AnyOf,
    RowFilter,
    TypeVisibility,
    Visibility,
)
from omnigraph.language.schema.compile import accept_schema, compile_schema
from omnigraph.language.schema.migration import evolve

SCHEMA = """
node Person {
  name: String @key
  region: enum(eu, us)?
  age: I32?
  born: Date?
  owner: String?
  readers: [String]?
  shade: enum(red, blue)?
  active: Bool
  face: Vector(3)?
  photo: Blob?
  or: I32?
}
edge Knows: Person -> Person { since: DateTime?  weight: F64? }
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return compile_schema(SCHEMA)


def checked(text: str, catalog: Catalog, type_name: str = "Person") -> RowFilter:
    return check_row_filter(text, catalog.type_named(type_name), catalog)


def shown(test: RowFilter) -> Any:
    """A filter as plain data."""
    match test:
        case AllOf():
            return ("and", *(shown(part) for part in test.tests))
        case AnyOf():
            return ("or", *(shown(part) for part in test.tests))
        case ir.Compare():
            return (_value(test.left), test.operator.value, _value(test.right))


def _value(value: ir.Value) -> Any:
    match value:
        case ir.PropertyValue():
            return f"{value.variable}.{value.prop.name}"
        case ir.ParameterValue():
            return f"${value.name}"
        case ir.Constant():
            return value.value
        case ir.Now():
            return "now"
        case _:
            raise AssertionError(value)


R = f"{ROW}."
A = f"{ROW}.age"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('region = "eu"', (R + "region", "=", "eu")),
        ('region = "eu" or owner = $actor', ("or", (R + "region", "=", "eu"), (R + "owner", "=", "$actor"))),
        ("age > 1 and age < 9 or age = 0", ("or", ("and", (A, ">", 1), (A, "<", 9)), (A, "=", 0))),
        ("age > 1 and (age < 9 or age = 0)", ("and", (A, ">", 1), ("or", (A, "<", 9), (A, "=", 0)))),
        ("readers contains $actor", (R + "readers", "member", "$actor")),
        ('["ana", "bob"] contains owner', (("ana", "bob"), "member", R + "owner")),
        ('name starts_with "A" // why', (R + "name", "prefix", "A")),
        ("owner contains name", (R + "owner", "substring", R + "name")),
        ("$actor = name", ("$actor", "=", R + "name")),
        ('born >= date("2000-01-01")', (R + "born", ">=", "2000-01-01")),
        ("or = 1 or or = 2", ("or", (R + "or", "=", 1), (R + "or", "=", 2))),
        ("true", ("and",)),
        ("false", ("or",)),
        ("false or age = 1", (R + "age", "=", 1)),
        ("true and age = 1", (R + "age", "=", 1)),
        ("true or age = 1", ("and",)),
        ("false and age = 1", ("or",)),
        ("age = 1 or (age = 2 or age = 1)", ("or", (R + "age", "=", 1), (R + "age", "=", 2))),
    ],
)
def test_what_a_filter_means(catalog: Catalog, text: str, expected: Any) -> None:
    assert shown(checked(text, catalog)) == expected


def test_filters_of_edges(catalog: Catalog) -> None:
    found = checked("since < now() and weight > 0.5", catalog, "Knows")
    assert shown(found) == ("and", (R + "since", "<", "now"), (R + "weight", ">", 0.5))


@pytest.mark.parametrize(
    ("text", "column", "fragment"),
    [
        ("", 1, "expected a clause or '(', found the end of the file"),
        ("age >", 6, "expected"),
        ("age > 1 or", 11, "expected a clause or '('"),
        ("(age > 1", 9, "expected"),
        ("age > 1) or active = true", 8, "found ')'"),
        ("age > 1 active = true", 9, "expected 'and', 'or'"),
        ("age > 1, active = true", 8, "found ','"),
        ("not age > 1", 5, "expected"),
        ("age", 4, "expected a comparison"),
        ("agee > 1", 1, "node type 'Person' has no property 'agee'"),
        ("age > 1 or agee > 1", 12, "has no property 'agee'"),
        ('age = "x"', 1, "cannot compare I32? with String"),
        ("age = $actor", 1, "cannot compare I32? with String"),
        ("owner = $actr", 9, "variable '$actr' is not bound"),
        ("$row.age = 1", 1, "names properties alone: write 'age'"),
        ('search(name, "x") = true', 1, "takes no search, ranking or aggregate"),
        ("count(age) > 1", 1, "takes no search, ranking or aggregate"),
        ("nearest($p.face, $actor) < 1", 1, "takes no search, ranking or aggregate"),
        ("face = face", 1, "needs scalar operands"),
        ("photo = owner", 1, "is a Blob"),
        ('born > date("tomorrow")', 8, "invalid Date literal 'tomorrow'"),
        ('born > date("2024-02-31")', 8, "invalid Date literal"),
        ("1 = 1", 1, "compares a property of the type, or $actor"),
        ('now() > datetime("2024-01-01")', 1, "compares a property of the type, or $actor"),
        ('region != "ue"', 11, "'ue' is none of the values of the property: eu, us"),
        ('["eu", "uk"] contains region', 1, "'uk' is none of the values"),
        ("\ud800", 1, "half of a surrogate pair"),
        ("(" * 65 + "age = 1" + ")" * 65, 65, "nested deeper than 64 levels"),
    ],
)
def test_what_is_no_filter(catalog: Catalog, text: str, column: int, fragment: str) -> None:
    with pytest.raises(CompileError) as error:
        checked(text, catalog)
    found = error.value.diagnostics[0]
    assert fragment in found.message
    assert found.span is not None
    assert found.span.column == column


def test_a_filter_reports_everything_and_suggests(catalog: Catalog) -> None:
    with pytest.raises(CompileError) as error:
        checked('agee > 1 and nam = "x"', catalog)
    assert [found.suggestion for found in error.value.diagnostics] == ["did you mean 'age'?", "did you mean 'name'?"]


def test_queries_know_nothing_of_and_and_or() -> None:
    """The words are names in queries, as they were, and a query is no row filter."""
    parsed = parse_queries("query or($and: String) { match { $or: T { and: $and } } return { $or.or as and } }")
    assert parsed.queries[0].name.text == "or"
    with pytest.raises(CompileError, match="clauses follow each other without a word"):
        parse_queries("query q() { match { $p: P $p.a = 1 or $p.b = 2 } return { $p.a } }")
    with pytest.raises(CompileError, match="parse error"):
        parse_row_filter("query q() { match { $p: P } return { $p.a } }")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner = $actor", (R + "owner", "=", "ana")),
        ('owner = $actor or $actor = "root"', (R + "owner", "=", "ana")),
        ('owner = $actor or $actor = "ana"', ("and",)),
        ('owner = $actor and $actor != "ana"', ("or",)),
        ('["bob", "ana"] contains $actor', ("and",)),
        ('["bob"] contains $actor', ("or",)),
        ('$actor starts_with "an" and $actor contains "na"', ("and",)),
        ('$actor < "b" and $actor <= "ana" and $actor > "a" and $actor >= "ana" and $actor = $actor', ("and",)),
    ],
)
def test_the_actor_becomes_a_constant(catalog: Catalog, text: str, expected: Any) -> None:
    assert shown(for_actor(checked(text, catalog), "ana")) == expected


def test_a_visibility_speaks_of_the_variable_it_is_asked_for(catalog: Catalog) -> None:
    person = catalog.nodes["Person"]
    visibility = TypeVisibility(person, for_actor(checked("owner = $actor or active = true", catalog), "ana"))
    assert shown(visibility.rows_of("p")) == ("or", ("p.owner", "=", "ana"), ("p.active", "=", True))
    assert Visibility({}).of(person) == TypeVisibility(person)
    assert UNRESTRICTED.is_unrestricted
    assert UNRESTRICTED.of(person).is_unrestricted
    assert not visibility.is_unrestricted
    assert TypeVisibility(person, EVERY_ROW).is_unrestricted
    assert not TypeVisibility(person, NO_ROW).is_unrestricted


VISIBILITY = "owner = $actor or age > 3 and born > limit"


@pytest.fixture(scope="module")
def accepted() -> Catalog:
    return accept_schema(SCHEMA)


@pytest.fixture(scope="module")
def governed(accepted: Catalog) -> Catalog:
    """The schema that the policy is written for: Person has got a limit."""
    return evolve(accepted, SCHEMA.replace("born: Date?", "born: Date?  limit: Date?")).catalog


@pytest.fixture(scope="module")
def visibility(governed: Catalog) -> Visibility:
    person = governed.nodes["Person"]
    return Visibility(
        {
            person.type_key: TypeVisibility(
                person, for_actor(checked(VISIBILITY, governed), "ana"), frozenset({"region"})
            )
        }
    )


def test_a_visibility_looks_at_a_state_before_a_property_was_there(visibility: Visibility, accepted: Catalog) -> None:
    (visible,) = visibility.on(accepted).types.values()
    assert visible.type is accepted.nodes["Person"]
    assert shown(visible.rows) == (R + "owner", "=", "ana")
    assert visible.masked == {"region"}


def test_a_visibility_follows_renames(visibility: Visibility, governed: Catalog) -> None:
    later = evolve(
        governed,
        SCHEMA.replace("node Person {", 'node Human @rename_from("Person") {')
        .replace("born: Date?", 'born: Date?  bound: Date? @rename_from("limit")')
        .replace("Person -> Person", "Human -> Human")
        .replace("owner: String?", 'keeper: String? @rename_from("owner")')
        .replace("region: enum(eu, us)?", 'area: enum(eu, us)? @rename_from("region")'),
    ).catalog
    (visible,) = visibility.on(later).types.values()
    assert visible.type is later.nodes["Human"]
    assert shown(visible.rows) == (
        "or",
        (R + "keeper", "=", "ana"),
        ("and", (R + "age", ">", 3), (R + "born", ">", R + "bound")),
    )
    assert visible.masked == {"area"}


def test_a_visibility_holds_for_what_was_dropped_and_declared_anew(visibility: Visibility, accepted: Catalog) -> None:
    """The name is enough to keep it closed; a property of another type is compared with nothing."""
    bare = evolve(accepted, "node Other { a: String @key }").catalog
    assert visibility.on(bare).is_unrestricted
    again = evolve(bare, SCHEMA.replace("owner: String?", "owner: I32?")).catalog
    assert again.nodes["Person"].id != accepted.nodes["Person"].id
    (visible,) = visibility.on(again).types.values()
    assert visible.type is again.nodes["Person"]
    assert visible.rows == NO_ROW
    assert visible.masked == {"region"}
