"""Conflicts settled beforehand: ours is the target's side, theirs the source's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.api.branches import Resolutions
from omnigraph.errors import BadRequestError, MergeConflictsError
from tests.engine.town import content, drop, knows, names, new_town, person, put


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Graph]:
    graph = new_town(tmp_path / "town", person("ada", age=1), person("bob"), knows("k", "ada", "bob"))
    graph.create_branch("side")
    yield graph
    graph.close()


@pytest.mark.parametrize(("take", "age"), [("ours", 6), ("theirs", 5)])
def test_a_divergent_entity_takes_the_chosen_side(town: Graph, take: str, age: int) -> None:
    put(town, "side", person("ada", age=5), person("new", age=5))
    put(town, "main", person("ada", age=6), person("new", age=6))
    kinds = {"divergent_update": take, "divergent_insert": take}
    town.merge("side", resolutions=Resolutions.of(kinds=kinds))
    assert {content(town)["Person", name]["age"] for name in ("ada", "new")} == {age}


def test_an_entitys_own_decision_wins_over_the_one_for_its_kind(town: Graph) -> None:
    put(town, "side", person("ada", age=5), person("bob", age=5))
    put(town, "main", person("ada", age=6), person("bob", age=6))
    document = {
        "kinds": {"divergent_update": "ours"},
        "entities": [{"type_key": "node:Person", "entity_id": "bob", "take": "theirs"}],
    }
    town.merge("side", resolutions=Resolutions.from_dict(document))
    assert [content(town)["Person", name]["age"] for name in ("ada", "bob")] == [6, 5]


@pytest.mark.parametrize(("take", "alive"), [("ours", True), ("theirs", False)])
def test_delete_against_update_takes_the_chosen_side(town: Graph, take: str, alive: bool) -> None:
    put(town, "main", person("cy", age=1))
    town.merge("main", "side")
    drop(town, "side", "Person", "cy")
    put(town, "main", person("cy", age=2))
    town.merge("side", resolutions=Resolutions.of(kinds={"delete_vs_update": take}))
    assert ("cy" in names(town)) is alive


@pytest.mark.parametrize(
    ("take", "expected"),
    [("ours", {"ada"}), ("theirs", {"ada", "bob", "k2"})],
)
def test_a_source_edge_onto_a_deleted_node_drops_the_edge_or_brings_the_node_back(
    town: Graph, take: str, expected: set[str]
) -> None:
    put(town, "side", knows("k2", "ada", "bob"))
    drop(town, "main", "Person", "bob")
    town.merge("side", resolutions=Resolutions.of(kinds={"orphan_edge": take}))
    assert names(town) == expected


@pytest.mark.parametrize(
    ("take", "expected"),
    [("theirs", {"ada"}), ("ours", {"ada", "bob", "k2"})],
)
def test_a_target_edge_whose_node_the_source_deleted_keeps_the_node_or_goes_with_it(
    town: Graph, take: str, expected: set[str]
) -> None:
    drop(town, "side", "Person", "bob")
    put(town, "main", knows("k2", "ada", "bob"))
    town.merge("side", resolutions=Resolutions.of(kinds={"orphan_edge": take}))
    assert names(town) == expected


def test_what_no_decision_covers_is_still_reported(town: Graph) -> None:
    put(town, "side", person("ada", age=5), person("new", age=5))
    put(town, "main", person("ada", age=6), person("new", age=6))
    with pytest.raises(MergeConflictsError) as caught:
        town.merge("side", resolutions=Resolutions.of(kinds={"divergent_update": "ours"}))
    assert [c.kind for c in caught.value.conflicts] == ["divergent_insert"]


@pytest.mark.parametrize(
    "document",
    [
        {"kinds": {"unique_violation": "ours"}},
        {"kinds": {"divergent_update": "mine"}},
        {"kinds": {"divergence": "ours"}},
        {"sides": {}},
        {"entities": [{"type_key": "node:Person", "take": "ours"}]},
    ],
)
def test_decisions_that_mean_nothing_are_refused(document: dict[str, object]) -> None:
    with pytest.raises(BadRequestError):
        Resolutions.from_dict(document)
