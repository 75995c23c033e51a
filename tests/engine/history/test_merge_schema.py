"""Merging branches whose schemas differ: one side's change is taken, two different changes are a conflict."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.errors import MergeConflictsError
from tests.engine.evolving import change_schema
from tests.engine.museum import node
from tests.engine.town import SCHEMA, content, person, place, put

WITH_NICKNAME = SCHEMA.replace("age: I32?", "age: I32?\n  nickname: String?")
WITH_PET = SCHEMA + "\nnode Pet { name: String @key }\n"
WITHOUT_AGE = SCHEMA.replace("age: I32?", "").replace("@range(age, 0..150)", "")
WITHOUT_PLACE = SCHEMA.replace("node Place { name: String @key  kind: enum(house, shop)? }", "").replace(
    "edge Lives: Person -> Place @card(0..1) {}", ""
)
STRICT_AGE = SCHEMA.replace("0..150", "0..9")
RENAMED = SCHEMA.replace("node Place {", 'node Spot @rename_from("Place") {').replace("-> Place", "-> Spot")


@pytest.mark.parametrize("changed", ["side", "main"])
def test_a_property_that_one_side_added_holds_for_the_rows_of_the_other(town: Graph, changed: str) -> None:
    other = "main" if changed == "side" else "side"
    change_schema(town, changed, WITH_NICKNAME)
    put(town, changed, person("cy", nickname="c"))
    put(town, other, person("dan", age=4), person("ada", age=9))
    assert town.merge("side").outcome == "merged"
    assert town.schema.show() == WITH_NICKNAME
    merged = content(town)
    assert merged["Person", "cy"]["nickname"] == "c"
    assert merged["Person", "dan"] == {**merged["Person", "dan"], "age": 4, "nickname": None}
    assert merged["Person", "ada"]["age"] == 9
    put(town, "main", person("eve", nickname="e"))


@pytest.mark.parametrize("changed", ["side", "main"])
def test_a_type_that_one_side_added_comes_with_its_entities(town: Graph, changed: str) -> None:
    other = "main" if changed == "side" else "side"
    change_schema(town, changed, WITH_PET)
    put(town, changed, node("Pet", name="rex"))
    put(town, other, person("dan"))
    town.merge("side")
    assert {("Pet", "rex"), ("Person", "dan")} <= content(town).keys()


def test_a_dropped_property_does_not_make_everybody_conflict(town: Graph) -> None:
    change_schema(town, "side", WITHOUT_AGE)
    put(town, "main", person("ada", age=1, height=2.0))
    town.merge("side")
    assert content(town)["Person", "ada"]["height"] == 2.0
    assert "age" not in content(town)["Person", "ada"]


def test_a_rename_carries_the_other_sides_changes(town: Graph) -> None:
    change_schema(town, "side", RENAMED)
    put(town, "main", place("mill"))
    town.merge("side")
    assert {("Spot", "inn"), ("Spot", "mill")} <= content(town).keys()


@pytest.mark.parametrize("dropper", ["side", "main"])
def test_changes_of_a_type_that_the_other_side_dropped_are_a_conflict(town: Graph, dropper: str) -> None:
    other = "main" if dropper == "side" else "side"
    change_schema(town, dropper, WITHOUT_PLACE)
    put(town, other, person("dan"))
    assert town.preview_merge("side").conflicts == ()
    put(town, other, place("mill"))
    with pytest.raises(MergeConflictsError) as caught:
        town.merge("side")
    assert [(c.type_key, c.kind) for c in caught.value.conflicts] == [("node:Place", "schema_divergence")]


def test_two_different_changes_name_the_declarations_that_differ(town: Graph) -> None:
    change_schema(town, "side", WITH_NICKNAME)
    change_schema(town, "main", WITH_PET)
    with pytest.raises(MergeConflictsError) as caught:
        town.merge("side")
    assert [(c.type_key, c.entity_id, c.kind) for c in caught.value.conflicts] == [
        ("node:Person", None, "schema_divergence"),
        ("node:Pet", None, "schema_divergence"),
    ]
    assert "property 'nickname'" in caught.value.conflicts[0].message


def test_the_same_property_added_on_both_sides_merges(town: Graph) -> None:
    for branch in ("side", "main"):
        change_schema(town, branch, WITH_NICKNAME)
        put(town, branch, person(branch, nickname=branch))
    town.merge("side")
    assert content(town)["Person", "side"]["nickname"] == "side"
    assert content(town)["Person", "main"]["nickname"] == "main"


def test_one_type_created_twice_is_two_types_and_refused(town: Graph) -> None:
    for branch in ("side", "main"):
        change_schema(town, branch, WITH_PET)
    with pytest.raises(MergeConflictsError) as caught:
        town.merge("side")
    assert [(c.type_key, c.kind) for c in caught.value.conflicts] == [("node:Pet", "schema_divergence")]


def test_rows_that_a_stricter_schema_forbids_are_conflicts(town: Graph) -> None:
    change_schema(town, "side", STRICT_AGE)
    put(town, "main", person("dan", age=40))
    with pytest.raises(MergeConflictsError) as caught:
        town.merge("side")
    (conflict,) = caught.value.conflicts
    assert (conflict.type_key, conflict.entity_id, conflict.kind) == ("node:Person", None, "value_constraint_violation")
    assert "'dan'" in conflict.message


def test_a_fast_forward_takes_the_schema_too(town: Graph) -> None:
    change_schema(town, "side", WITH_PET)
    put(town, "side", node("Pet", name="rex"))
    assert town.merge("side").outcome == "fast_forward"
    assert town.schema.show() == WITH_PET
    assert ("Pet", "rex") in content(town)
