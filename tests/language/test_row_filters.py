"""Row filters: how they read, what they may compare, and the visibility they make."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.errors import CompileError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query import ir
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.parser import parse_row_filter
from omnigraph.language.query.row_filter import (
    EVERY_ROW,
    NO_ROW,
    UNRESTRICTED,
    RowFilter,
    TypeVisibility,
    Visibility,
    for_actor,
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
        case ir.And():
            return ("and", *map(shown, test.operands))
        case ir.Or():
            return ("or", *map(shown, test.operands))
        case ir.Not():
            return ("not", shown(test.operand))
        case ir.IsNull():
            return (shown(test.operand), "is not null" if test.negated else "is null")
        case ir.In():
            return (shown(test.item), "in", shown(test.items))
        case ir.Compare():
            return (shown(test.left), test.operator.value, shown(test.right))
        case ir.PropertyValue():
            return f"{test.variable}.{test.prop.name}"
        case ir.MetaValue():
            return f"{test.variable}.{test.field.value}"
        case ir.ParameterValue():
            return f"${test.name}"
        case ir.Constant():
            return test.value
        case ir.Now():
            return "now"
        case ir.Call():
            return (test.function, *map(shown, test.arguments))
        case _:
            raise AssertionError(test)


R = f"{ir.ROW}."
A = f"{ir.ROW}.age"


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
        ("true", True),
        ("false", False),
        ("not age > 1", ("not", (A, ">", 1))),
        ("not (age > 1 or age is null)", ("not", ("or", (A, ">", 1), (A, "is null")))),
        ("owner is not null", (R + "owner", "is not null")),
        ("readers is null", (R + "readers", "is null")),
        ('region in ["eu", "us"]', (R + "region", "in", ("eu", "us"))),
        ("$actor in readers", ("$actor", "in", R + "readers")),
        ("active", R + "active"),
        ("active and not active", ("and", R + "active", ("not", R + "active"))),
        ('@id = "ana"', (R + "@id", "=", "ana")),
        ("@id = $actor or name = $actor", ("or", (R + "@id", "=", "$actor"), (R + "name", "=", "$actor"))),
        ("lower(owner) = $actor", (("lower", R + "owner"), "=", "$actor")),
        ("coalesce(age, 0) > 3", (("coalesce", A, 0), ">", 3)),
        ("age in [1, null]", (A, "in", (1, None))),
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
        ("", 1, "expected an expression, found the end of the file"),
        ("age >", 6, "expected an expression"),
        ("age > 1 or", 11, "expected an expression"),
        ("(age > 1", 9, "expected an operator or ')'"),
        ("age > 1) or active = true", 8, "found ')'"),
        ("age > 1 active = true", 9, "expected an operator"),
        ("age > 1, active = true", 8, "found ','"),
        ("or = 1", 1, "found 'or'"),
        ("age", 1, "a row filter needs a Bool but got I32?"),
        ("not age", 5, "'not' needs a Bool but got I32?"),
        ("age > 1 and age", 13, "'and' needs a Bool but got I32?"),
        ("age = null", 7, "is null"),
        ("agee > 1", 1, "node type 'Person' has no property 'agee'"),
        ("age > 1 or agee > 1", 12, "has no property 'agee'"),
        ('age = "x"', 7, "property 'Person.age' has type I32? but got String"),
        ("age = $actor", 1, "cannot compare I32? with String"),
        ("owner = $actr", 9, "'$actr'"),
        ("$row.age = 1", 1, "'$row'"),
        ("any($x in readers : $x = $y)", 26, "'$y'"),
        ('search(name, "x") = true', 1, "search() can't stand in a row filter"),
        ("count(age) > 1", 1, "an aggregate, count(), can't stand in a row filter"),
        ("nearest($p.face, $actor) < 1", 1, "nearest() can't stand in a row filter"),
        ("exists { $a knows $b }", 1, "exists { … } can't stand in a row filter"),
        ("not { $a knows $b }", 1, "not { … } can't stand in a row filter"),
        ("count { $a knows $b } > 1", 1, "count { … } can't stand in a row filter"),
        ("@src = name", 1, "the row is a node and has no @src"),
        ("face = face", 1, "needs scalar operands"),
        ("photo = owner", 1, "blob property 'Person.photo'"),
        ('born > date("tomorrow")', 8, "invalid Date literal 'tomorrow'"),
        ('born > date("2024-02-31")', 8, "invalid Date literal"),
        ("1 = 1", 1, "a row filter asks for a property of the type, or for $actor"),
        ('now() > datetime("2024-01-01")', 1, "a row filter asks for a property of the type, or for $actor"),
        ('region != "ue"', 11, "expects one of [eu, us] but got 'ue'"),
        ('not (region in ["uk"])', 17, "expects one of [eu, us] but got 'uk'"),
        ('["eu", "uk"] contains region', 8, "expects one of [eu, us] but got 'uk'"),
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


def test_a_query_is_no_row_filter() -> None:
    with pytest.raises(CompileError, match="Q001"):
        parse_row_filter("query q() { match { $p: P } return { $p.a } }")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner = $actor", (R + "owner", "=", "ana")),
        ('owner = $actor or $actor = "root"', (R + "owner", "=", "ana")),
        ('owner = $actor or $actor = "ana"', True),
        ('owner = $actor and $actor != "ana"', False),
        ('["bob", "ana"] contains $actor', True),
        ('["bob"] contains $actor', False),
        ('$actor starts_with "an" and $actor contains "na"', True),
        ('$actor < "b" and $actor <= "ana" and $actor > "a" and $actor >= "ana" and $actor = $actor', True),
        ('$actor in ["bob", "ana"] or age = 1', True),
        ('$actor in ["bob"] or age = 1', (A, "=", 1)),
        ('not $actor in ["bob"]', True),
        ('not ($actor in ["bob"] or age = 1)', ("not", (A, "=", 1))),
        ('$actor in ["bob", null] or age = 1', (A, "=", 1)),
        ('not $actor in ["bob", null]', False),
        ("$actor is null", False),
        ("$actor is not null and owner is null", (R + "owner", "is null")),
        ("false or age = 1", (A, "=", 1)),
        ("true and age = 1", (A, "=", 1)),
        ("true or age = 1", True),
        ("not true or age = 1", (A, "=", 1)),
        ("age = 1 or (age = 2 or age = 1)", ("or", (A, "=", 1), (A, "=", 2))),
        ("lower($actor) = owner", (("lower", "ana"), "=", R + "owner")),
    ],
)
def test_the_actor_becomes_a_constant(catalog: Catalog, text: str, expected: Any) -> None:
    assert shown(for_actor(checked(text, catalog), "ana")) == expected


def test_a_visibility_speaks_of_the_variable_it_is_asked_for(catalog: Catalog) -> None:
    person = catalog.nodes["Person"]
    visibility = TypeVisibility(person, for_actor(checked("owner = $actor or active = true", catalog), "ana"))
    assert shown(visibility.rows_of("p")) == ("or", ("p.owner", "=", "ana"), ("p.active", "=", True))
    deep = TypeVisibility(person, checked('not (lower(owner) in [name, "x"] and @id is not null)', catalog))
    assert set(ir.variables_of(deep.rows_of("p"))) == {"p"}
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


def visible_on(text: str, catalog: Catalog, later: Catalog) -> Any:
    """What becomes of a filter of Person on another schema."""
    person = catalog.nodes["Person"]
    visibility = Visibility({person.type_key: TypeVisibility(person, for_actor(checked(text, catalog), "ana"))})
    types = visibility.on(later).types
    return shown(types[person.type_key].rows) if types else True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("limit is null", True),
        ("limit is not null", False),
        ("not (born > limit)", False),
        ("not (born > limit) or limit is null", True),
        ("age = 1 and limit is null", (A, "=", 1)),
    ],
)
def test_a_property_is_null_before_it_was_there(governed: Catalog, accepted: Catalog, text: str, expected: Any) -> None:
    assert visible_on(text, governed, accepted) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner is null", False),
        ('not (owner = "x")', False),
        ('coalesce(owner, "x") = "x"', False),
        ("age = 1 or owner is null", (A, "=", 1)),
        ("age = 1 and owner is null", False),
        ("age = 2", (A, "=", 2)),
        ("age + 1 = 2", False),
        ("not (age = 2)", ("not", (A, "=", 2))),
    ],
)
def test_a_property_of_another_type_shows_nothing(accepted: Catalog, text: str, expected: Any) -> None:
    """Not by `is null` or `not` either. Numbers still compare as numbers, but calculations had another type."""
    bare = evolve(accepted, "node Other { a: String @key }").catalog
    again = evolve(bare, SCHEMA.replace("owner: String?", "owner: I32?").replace("age: I32?", "age: F64?")).catalog
    assert visible_on(text, accepted, again) == expected


def of_person(test: RowFilter, catalog: Catalog) -> Visibility:
    return Visibility({"node:Person": TypeVisibility(catalog.nodes["Person"], test)})


FILTERS = [
    "age = 1",
    "age = 2",
    "age = 1.0",
    'owner = "1"',
    "not age = 1",
    "age is null",
    "age is not null",
    "age in [1]",
    "age in [1, 2]",
    "age = 1 and age = 2",
    "age = 1 or age = 2",
    "(age = 1 or age = 2) and active",
    "age = 1 or age = 2 and active",
    "age + 1 = 2",
    "age - 1 = 2",
    "case when active then age end = 1",
    "case active when true then age end = 1",
    "case when active then age else age end = 1",
    "lower(owner) = name",
    "upper(owner) = name",
    '@id = "1"',
    "owner = @id",
]


def test_filters_that_differ_have_digests_that_differ(catalog: Catalog) -> None:
    digests = {of_person(checked(text, catalog), catalog).digest for text in FILTERS}
    assert len(digests) == len(FILTERS)
    for text in FILTERS:
        assert of_person(checked(text, catalog), catalog).digest == of_person(checked(text, catalog), catalog).digest


def test_a_filter_may_read_the_clock_anywhere(catalog: Catalog) -> None:
    assert of_person(checked("not (seconds_between(now(), now()) > age)", catalog), catalog).reads_the_clock
    assert not of_person(checked("not (1 > age)", catalog), catalog).reads_the_clock


def test_a_filter_of_very_many_tests_is_put_together(catalog: Catalog) -> None:
    person = catalog.nodes["Person"]
    ages = [f"age = {i}" for i in range(40_000)]
    made = for_actor(checked(" or ".join(ages), catalog), "ana")
    assert isinstance(made, ir.Or)
    assert len(made.operands) == 40_000
    assert Visibility({"node:Person": TypeVisibility(person, made)}).on(catalog).digest
