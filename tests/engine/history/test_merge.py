"""Merging branches: outcomes, the three-way table, equality, what a merge publishes and what it never does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.api.branches import MergeConflict, Resolutions
from omnigraph.api.enums import MergeOutcome
from omnigraph.api.governance import Limits
from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy, Scope
from omnigraph.engine.write.publish import Intent, PublishPlan, publish
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    MergeConflictsError,
    ReadSetChangedError,
    ResourceLimitError,
)
from omnigraph.storage.log.tracing import Trace
from tests.engine.town import SCHEMA, content, drop, drop_edges, knows, lives, names, new_town, person, place, put
from tests.support.receipts import replayed


def conflicts(graph: Graph, source: str = "side", target: str = "main") -> list[tuple[str, str | None, str]]:
    before = graph.snapshot(target).version
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge(source, target)
    assert graph.snapshot(target).version == before
    assert graph.preview_merge(source, target).conflicts == caught.value.conflicts
    return [(c.type_key, c.entity_id, c.kind) for c in caught.value.conflicts]


def test_a_branch_without_commits_of_its_own_is_up_to_date(town: Graph) -> None:
    result = town.merge("side")
    assert (result.outcome, result.commit) == (MergeOutcome.ALREADY_UP_TO_DATE, None)
    put(town, "main", person("cy"))
    assert town.merge("side").outcome == "already_up_to_date"


def test_a_fast_forward_is_a_new_commit_with_two_parents_over_the_same_versions(town: Graph) -> None:
    put(town, "side", person("cy"))
    before, side = town.snapshot(), town.snapshot("side")
    result = town.merge("side", actor="mia")
    assert wire.to_builtins(result) == {
        "source": "side",
        "target": "main",
        "outcome": "fast_forward",
        "actor_id": "mia",
    }
    after = town.snapshot()
    assert after.entry.tables == side.entry.tables
    assert [p.commit_id for p in after.entry.commit.parents] == [before.commit_id, side.commit_id]
    assert after.version == before.version + 1
    assert result.commit is not None
    assert result.commit.graph_commit_id == after.commit_id
    assert result.commit.merged_parent_commit_id == side.commit_id
    assert town.merge("side").outcome == "already_up_to_date"
    assert town.merge("main", "side").outcome == "fast_forward"


def test_two_sides_with_changes_of_their_own_are_merged_by_entity(town: Graph) -> None:
    put(town, "side", person("cy", photo="base64:AAE="), person("ada", age=2), knows("k2", "cy", "bob"))
    put(town, "main", person("dan"), place("inn", kind="shop"))
    result = town.merge("side")
    assert result.outcome == "merged"
    merged = content(town)
    assert names(town) == {"ada", "bob", "cy", "dan", "inn", "k", "k2"}
    assert merged["Person", "ada"]["age"] == 2
    assert merged["Person", "cy"]["photo"] == "base64:AAE="
    assert merged["Place", "inn"]["kind"] == "shop"
    assert town.merge("side").outcome == "already_up_to_date"
    put(town, "side", person("eve"))
    assert town.merge("side").outcome == "merged"
    assert "eve" in names(town)


def test_edits_that_cancel_out_still_merge_once(town: Graph) -> None:
    put(town, "side", knows("gone", "bob", "ada"))
    drop_edges(town, "side", "Knows", "bob")
    put(town, "main", person("dan"))
    before = content(town)
    assert town.merge("side").outcome == "merged"
    assert content(town) == before
    assert town.merge("side").outcome == "already_up_to_date"


def test_the_merged_source_is_not_modified(town: Graph) -> None:
    put(town, "side", person("cy"))
    put(town, "main", person("dan"))
    before = town.snapshot("side").commit_id
    town.merge("side")
    assert town.snapshot("side").commit_id == before
    assert "dan" not in names(town, "side")


X, Y = {"age": 10}, {"age": 20}
TABLE: list[tuple[str, Any, Any, Any, Any]] = [
    # name, base, source, target, and the merged entity or the conflict; None is absent
    ("target insert", None, None, X, X),
    ("source insert", None, X, None, X),
    ("identical inserts", None, X, X, X),
    ("divergent inserts", None, X, Y, "divergent_insert"),
    ("nobody changed it", X, X, X, X),
    ("target update", X, X, Y, Y),
    ("target delete", X, X, None, None),
    ("source update", X, Y, X, Y),
    ("source delete", X, None, X, None),
    ("identical updates", X, Y, Y, Y),
    ("divergent updates", X, Y, {"age": 30}, "divergent_update"),
    ("both delete", X, None, None, None),
    ("source deletes, target updates", X, None, Y, "delete_vs_update"),
    ("source updates, target deletes", X, Y, None, "delete_vs_update"),
]


def _become(graph: Graph, branch: str, before: dict[str, int] | None, after: dict[str, int] | None) -> None:
    if after is None and before is not None:
        drop(graph, branch, "Person", "zoe")
    elif after != before:
        put(graph, branch, person("zoe", **(after or {})))
    # Something else happens on both branches, so that it is never a fast-forward.
    put(graph, branch, place(f"place-{branch}"))


@pytest.mark.parametrize(("base", "source", "target", "expected"), [r[1:] for r in TABLE], ids=[r[0] for r in TABLE])
def test_the_three_way_table(tmp_path: Path, base: Any, source: Any, target: Any, expected: Any) -> None:
    with new_town(tmp_path / "town", place("p"), *([person("zoe", **base)] if base else [])) as graph:
        graph.create_branch("side")
        _become(graph, "side", base, source)
        _become(graph, "main", base, target)
        if isinstance(expected, str):
            assert conflicts(graph) == [("node:Person", "zoe", expected)]
            return
        assert graph.merge("side").outcome == "merged"
        merged = content(graph).get(("Person", "zoe"))
        assert (merged and {"age": merged["age"]}) == expected


EQUAL_OR_NOT = [
    ("different properties of one entity", {"age": 2}, {"height": 1.0}, False),
    ("null and empty text", {"email": None, "age": 2}, {"email": "", "age": 2}, False),
    ("null and empty list", {"age": 2}, {"tags": [], "age": 2}, False),
    ("one text with a comma and two texts", {"tags": ["a, b"]}, {"tags": ["a", "b"]}, False),
    ("order of a list", {"tags": ["a", "b"]}, {"tags": ["b", "a"]}, False),
    ("the two zeros", {"height": 0.0}, {"height": -0.0}, False),
    ("the two zeros in a vector", {"vec": [0.0, 1.0]}, {"vec": [-0.0, 1.0]}, False),
    ("equal vectors", {"vec": [0.1, 1.0]}, {"vec": [0.1, 1.0]}, True),
    ("equal lists", {"tags": ["a", ""]}, {"tags": ["a", ""]}, True),
    ("blobs of one length", {"photo": "base64:AAE="}, {"photo": "base64:AAI="}, False),
    ("equal blobs", {"photo": "base64:AAE="}, {"photo": "base64:AAE="}, True),
    ("null and empty blob", {"age": 2, "photo": None}, {"age": 2, "photo": "base64:"}, False),
]


@pytest.mark.parametrize(("source", "target", "equal"), [r[1:] for r in EQUAL_OR_NOT], ids=[r[0] for r in EQUAL_OR_NOT])
def test_equality_is_typed_and_exact(town: Graph, source: dict[str, Any], target: dict[str, Any], equal: bool) -> None:
    put(town, "side", person("ada", **source))
    put(town, "main", person("ada", **target))
    if equal:
        assert town.merge("side").outcome == "merged"
    else:
        assert conflicts(town) == [("node:Person", "ada", "divergent_update")]


def test_an_edge_that_moves_its_ends_differently_diverges(town: Graph) -> None:
    put(town, "side", knows("k", "bob", "ada"))
    put(town, "main", knows("k", "ada", "ada"))
    assert conflicts(town) == [("edge:Knows", "k", "divergent_update")]


def test_structural_conflicts_of_all_types_come_together_by_type_and_id(town: Graph) -> None:
    put(town, "side", person("ada", age=5), person("new", age=1), person("bob", age=1), knows("k", "bob", "ada"))
    put(town, "main", person("ada", age=6), person("new", age=2), knows("k", "ada", "ada"))
    assert conflicts(town) == [
        ("edge:Knows", "k", "divergent_update"),
        ("node:Person", "ada", "divergent_update"),
        ("node:Person", "new", "divergent_insert"),
    ]


def test_a_conflict_error_previews_three_and_counts_the_rest(town: Graph) -> None:
    put(town, "side", *(person(f"n{i}", age=1) for i in range(5)))
    put(town, "main", *(person(f"n{i}", age=2) for i in range(5)))
    with pytest.raises(MergeConflictsError) as caught:
        town.merge("side")
    assert str(caught.value).endswith("; and 2 more")
    assert wire.to_builtins(caught.value.conflicts[0]) == {
        "entity_kind": "node",
        "type_name": "Person",
        "entity_id": "n0",
        "kind": "divergent_insert",
        "message": "node:Person 'n0' was inserted on both branches with different values",
        "property": "age",
        "properties": [{"property": "age", "base": None, "ours": 2, "theirs": 1}],
        "absent_in": ["base"],
    }


def told(conflict: MergeConflict) -> dict[str, tuple[object, object, object]]:
    """The base's, the target's and the source's value of every property of a conflict."""
    return {each.property: (each.base, each.ours, each.theirs) for each in conflict.properties}


def test_a_conflict_carries_the_values_of_the_base_and_of_both_sides(town: Graph) -> None:
    put(town, "main", person("cy", age=1, tags=["a"], height=1.5, vec=[1, 2]))
    town.merge("main", "side")
    put(town, "side", person("cy", age=5, tags=["a"], height=1.5, vec=[1, 2], email="x" * 600))
    put(town, "main", person("cy", age=6, tags=["a", "b"], height=1.5, vec=[1, 2]))
    drop(town, "side", "Person", "ada")
    put(town, "main", person("ada", age=2), knows("k", "bob", "bob"))
    conflicts(town)
    found = {(c.kind, c.entity_id): c for c in town.preview_merge("side").conflicts}
    diverged = found["divergent_update", "cy"]
    assert told(diverged) == {
        "age": (1, 6, 5),
        "tags": (["a"], ["a", "b"], ["a"]),
        "email": (None, None, "x" * 500 + "… (600 characters)"),
    }
    assert (diverged.property, diverged.absent_in) == (None, ())
    deleted = found["delete_vs_update", "ada"]
    assert (told(deleted), deleted.property, deleted.absent_in) == ({"age": (1, 2, None)}, "age", ("theirs",))
    assert told(found["delete_vs_update", "k"]) == {"from": ("ada", "bob", None)}


def test_a_broken_rule_carries_the_values_too(town: Graph) -> None:
    put(town, "side", person("cy", email="x@y"), lives("l1", "ada", "inn"), knows("k2", "ada", "bob"))
    put(town, "main", person("dan", email="x@y"), lives("l2", "ada", "inn"))
    drop(town, "main", "Person", "bob")
    conflicts(town)
    unique, orphan, card = town.preview_merge("side").conflicts
    assert (told(unique), unique.property, unique.rule) == ({"email": (None, None, "x@y")}, "email", "unique")
    assert unique.absent_in == ("base", "ours")
    assert told(orphan) == {"from": (None, None, "ada"), "to": (None, None, "bob")}
    assert (told(card), card.absent_in) == ({}, ())


def test_a_rule_over_several_properties_carries_all_their_values(tmp_path: Path) -> None:
    schema = "node Seat { slug: String @key  row: I32?  number: I32?  note: String?  @unique(row, number) }"
    with Graph.init(tmp_path / "g", schema) as graph:
        graph.create_branch("side")
        for branch, slug in (("side", "a"), ("main", "b")):
            graph.load([{"slug": slug, "row": 1, "number": 2, "note": slug}], type="Seat", mode="append", branch=branch)
        (unique,) = graph.preview_merge("side").conflicts
    assert (unique.kind, unique.property) == ("unique_violation", "number, row")
    assert told(unique) == {"row": (None, None, 1), "number": (None, None, 2)}


def test_a_blob_is_told_by_its_size(town: Graph) -> None:
    put(town, "side", person("new", photo="base64:AAAA"))
    put(town, "main", person("new", photo="base64:AAAAAAAA"))
    conflicts(town)
    (diverged,) = town.preview_merge("side").conflicts
    assert told(diverged) == {"photo": (None, "blob of 6 bytes", "blob of 3 bytes")}


def test_every_conflict_comes_at_once(town: Graph) -> None:
    """Orphans and broken rules too, while entities are in conflict."""
    put(town, "side", person("ada", age=5), person("cy", email="x"), lives("l1", "ada", "inn"))
    put(town, "main", person("ada", age=6), person("dan", email="x"), lives("l2", "ada", "inn"))
    put(town, "main", knows("k2", "ada", "bob"))
    drop(town, "side", "Person", "bob")
    assert conflicts(town) == [
        ("node:Person", "ada", "divergent_update"),
        ("node:Person", "cy", "unique_violation"),
        ("edge:Knows", "k2", "orphan_edge"),
        ("edge:Lives", None, "cardinality_violation"),
    ]
    assert {c.only_if for c in town.preview_merge("side").conflicts} == {None}


@pytest.mark.parametrize("deleting", ["side", "main"])
def test_what_only_one_answer_breaks_is_said_to_depend_on_it(town: Graph, deleting: str) -> None:
    """One side deletes a node, the other changes it and draws an edge to it: two answers, and both settle it all."""
    keeping = "main" if deleting == "side" else "side"
    drop(town, deleting, "Person", "bob")
    put(town, keeping, person("bob", age=9), knows("k2", "ada", "bob"))
    assert conflicts(town) == [("node:Person", "bob", "delete_vs_update"), ("edge:Knows", "k2", "orphan_edge")]
    deletes, keeps = ("theirs", "ours") if deleting == "side" else ("ours", "theirs")
    assert [c.only_if for c in town.preview_merge("side").conflicts] == [None, deletes]
    assert f"if {deletes} is taken" in town.preview_merge("side").conflicts[1].message
    answers = {"delete_vs_update": deletes, "orphan_edge": deletes}
    assert town.preview_merge("side", resolutions=Resolutions.of(kinds=answers)).conflicts == ()
    town.merge("side", resolutions=Resolutions.of(kinds={"delete_vs_update": keeps}))
    assert {"ada", "bob", "k2"} <= names(town)


def test_an_orphan_that_is_decided_is_not_reported_beside_other_conflicts(town: Graph) -> None:
    put(town, "side", person("ada", age=5))
    put(town, "main", person("ada", age=6), knows("k2", "ada", "bob"))
    drop(town, "side", "Person", "bob")
    decided = Resolutions.of(kinds={"orphan_edge": "theirs"})
    assert [c.kind for c in town.preview_merge("side", resolutions=decided).conflicts] == ["divergent_update"]


def test_a_source_edge_onto_a_node_that_the_target_deleted_is_an_orphan(town: Graph) -> None:
    put(town, "side", knows("k2", "bob", "bob"))
    drop(town, "main", "Person", "bob")
    assert conflicts(town) == [("edge:Knows", "k2", "orphan_edge"), ("edge:Knows", "k2", "orphan_edge")]


def test_a_target_edge_whose_node_the_source_deleted_is_an_orphan(town: Graph) -> None:
    drop(town, "side", "Person", "bob")
    put(town, "main", knows("k2", "ada", "bob"))
    assert conflicts(town) == [("edge:Knows", "k2", "orphan_edge")]


def test_a_delete_with_its_own_cascade_merges(town: Graph) -> None:
    drop(town, "side", "Person", "bob")
    put(town, "main", person("dan"))
    town.merge("side")
    assert names(town) == {"ada", "dan", "inn"}


def test_one_node_deleted_on_both_sides_merges(town: Graph) -> None:
    drop(town, "side", "Person", "bob")
    drop(town, "main", "Person", "bob")
    assert town.merge("side").outcome == "merged"


def test_a_cascaded_edge_that_the_other_side_rewrote_is_delete_vs_update(town: Graph) -> None:
    drop(town, "side", "Person", "bob")
    put(town, "main", knows("k", "ada", "bob", since=3))
    assert conflicts(town) == [("edge:Knows", "k", "delete_vs_update"), ("edge:Knows", "k", "orphan_edge")]
    assert town.preview_merge("side").conflicts[1].only_if == "ours", "the node is gone, whoever keeps the edge"


def test_a_unique_value_given_on_both_sides_blames_the_entity_that_comes_in(town: Graph) -> None:
    put(town, "side", person("cy", email="x@y"))
    put(town, "main", person("dan", email="x@y"))
    assert conflicts(town) == [("node:Person", "cy", "unique_violation")]


def test_a_unique_value_that_the_target_freed_can_come_in(town: Graph) -> None:
    put(town, "main", person("ada", age=1, email="x@y"))
    town.merge("main", "side")
    put(town, "side", person("ada", age=1))
    put(town, "side", person("cy", email="x@y"))
    put(town, "main", person("dan"))
    town.merge("side")
    assert content(town)["Person", "cy"]["email"] == "x@y"


def test_a_source_with_too_many_edges_after_the_merge_is_one_conflict_without_an_entity(town: Graph) -> None:
    put(town, "side", lives("l1", "ada", "inn"))
    put(town, "main", lives("l2", "ada", "inn"))
    assert conflicts(town) == [("edge:Lives", None, "cardinality_violation")]


def test_constraint_violations_are_reported_together(town: Graph) -> None:
    put(town, "side", person("cy", email="x"), lives("l1", "ada", "inn"), knows("k2", "ada", "bob"))
    put(town, "main", person("dan", email="x"), lives("l2", "ada", "inn"))
    drop(town, "main", "Person", "bob")
    assert [kind for _, _, kind in conflicts(town)] == ["unique_violation", "orphan_edge", "cardinality_violation"]


def test_parallel_edges_of_both_sides_are_both_kept(town: Graph) -> None:
    for branch in ("side", "main"):
        town.mutate('query q() { insert Knows { from: "ada", to: "bob" } }', "q", branch=branch)
    town.merge("side")
    assert len([key for key in content(town) if key[0] == "Knows"]) == 3


def test_merges_of_merges_find_the_newest_common_state(town: Graph) -> None:
    """A short way through an old branch must not lead the merge behind a point that both sides share."""
    town.create_branch("old")
    put(town, "old", place("barn"))
    for age in range(5, 10):
        put(town, "main", person("ada", age=age))
    town.create_branch("release")
    for age in range(10, 30):
        put(town, "main", person("ada", age=age))
    town.merge("old")
    put(town, "release", place("dock"))
    assert town.merge("main", "release").outcome == "merged"
    assert content(town, "release")["Person", "ada"]["age"] == 29


@pytest.mark.parametrize("name", ["main", " main "])
def test_source_and_target_must_differ(town: Graph, name: str) -> None:
    with pytest.raises(BadRequestError, match="distinct source and target"):
        town.merge(name, "main")


def test_unknown_and_reserved_names_are_refused(town: Graph) -> None:
    with pytest.raises(BranchNotFoundError):
        town.merge("nowhere")
    with pytest.raises(BranchNotFoundError):
        town.merge("side", "nowhere")
    with pytest.raises(BadRequestError, match="internal system ref"):
        town.merge("__schema_apply_lock__")


def test_the_source_can_go_after_any_successful_merge(town: Graph) -> None:
    put(town, "side", person("cy"))
    result = town.merge("side", delete_branch=True)
    assert wire.to_builtins(result)["branch_deleted"] is True
    assert town.list_branches() == ["main"]
    town.create_branch("idle")
    assert town.merge("idle", delete_branch=True).branch_deleted is True


def test_a_deletion_that_fails_does_not_fail_the_merge(town: Graph) -> None:
    put(town, "side", person("cy"))
    town.create_branch("child", source="side")
    result = town.merge("side", delete_branch=True)
    assert result.branch_deleted is False
    assert "still depends on it" in str(result.branch_delete_error)
    assert "cy" in names(town)


def _meanwhile(path: Path, action: Any) -> Graph:
    """A handle on which `action` happens once, by another handle, right before its next publish."""
    pending = [action]

    def observe(point: str) -> None:
        if point == "publish.before" and pending:
            with Graph.open(path) as other:
                pending.pop()(other)

    trace = Trace()
    trace.observer = observe
    return Graph.open(path, trace=trace)


def _advance_main(graph: Graph) -> None:
    """As another process would: writers of one branch in this process wait for each other's turn."""
    publish(graph._workspace.begin("main", Intent(kind="write")), PublishPlan(staged={}))


def test_a_target_that_moves_during_the_merge_is_a_read_set_conflict(town: Graph, tmp_path: Path) -> None:
    put(town, "side", person("cy"))
    with (
        _meanwhile(tmp_path / "town", _advance_main) as graph,
        pytest.raises(ReadSetChangedError) as caught,
    ):
        graph.merge("side")
    assert caught.value.member == "graph_head:main"
    assert caught.value.expected != caught.value.actual
    assert "cy" not in names(town)


def test_a_target_that_is_deleted_during_the_merge_is_a_read_set_conflict(town: Graph, tmp_path: Path) -> None:
    town.create_branch("goal")
    put(town, "side", person("cy"))
    with (
        _meanwhile(tmp_path / "town", lambda other: other.delete_branch("goal")) as graph,
        pytest.raises(ReadSetChangedError, match="graph_head:goal"),
    ):
        graph.merge("side", "goal")


def test_a_source_that_advances_during_the_merge_is_merged_as_it_was(town: Graph, tmp_path: Path) -> None:
    put(town, "side", person("cy"))
    put(town, "main", person("dan"))
    with _meanwhile(tmp_path / "town", lambda other: put(other, "side", person("late"))) as graph:
        graph.merge("side")
    assert "cy" in names(town)
    assert "late" not in names(town)


def test_a_repeated_merge_with_its_idempotency_key_is_told_what_the_first_was_told(town: Graph) -> None:
    put(town, "side", person("cy"))
    first = town.merge("side", idempotency_key="once")
    put(town, "side", person("eve"))
    again = town.merge("side", idempotency_key="once")
    assert again == replayed(first)
    assert "eve" not in names(town)


def test_counts_of_a_merge_are_what_the_target_gained(town: Graph) -> None:
    put(town, "side", person("cy"), person("ada", age=9))
    drop(town, "side", "Person", "bob")
    put(town, "main", *(person(f"n{i}") for i in range(20)))
    commit = town.merge("side").commit
    assert commit is not None
    changes = wire.to_builtins(town.describe_commit(commit.graph_commit_id))["changes"]
    assert changes == {
        "edge:Knows": {"inserted": 0, "updated": 0, "deleted": 1},
        "node:Person": {"inserted": 1, "updated": 1, "deleted": 1},
    }


def test_a_preview_shows_what_the_target_would_gain_and_changes_nothing(town: Graph) -> None:
    put(town, "side", person("cy"), knows("k", "bob", "ada"))
    version = town.snapshot().version
    for prepare in ([], [person("dan")]):
        put(town, "main", *prepare)
        preview = town.preview_merge("side")
        assert preview.outcome == ("merged" if prepare else "fast_forward")
        assert [(c.type_name, c.id, c.op.value) for c in preview.changes] == [
            ("Knows", "k", "update"),
            ("Person", "cy", "insert"),
        ]
        assert preview.counts["node:Person"] == {"insert": 1, "update": 0, "delete": 0}
    assert town.snapshot().version == version + 1
    assert town.preview_merge("main", "side").outcome == "merged"


def test_external_references_are_kept_without_looking_at_the_object(tmp_path: Path) -> None:
    folder = tmp_path / "media"
    folder.mkdir()
    picture = folder / "p.png"
    picture.write_bytes(b"picture")
    policy = ExternalBlobPolicy.allow(AllowedBase(folder.as_uri(), Scope.EMBEDDED_ONLY))
    with Graph.init(tmp_path / "town", SCHEMA).with_external_blobs(policy) as graph:
        put(graph, "main", person("ada"))
        graph.create_branch("side")
        graph.load(person("cy", photo=picture.as_uri()), mode="overwrite", branch="side")
        put(graph, "main", person("dan"))
        picture.unlink()
        graph.merge("side")
        assert content(graph)["Person", "cy"]["photo"] == picture.as_uri()


def test_a_merge_over_its_ceiling_is_refused_before_any_effect(town: Graph) -> None:
    put(town, "side", *(person(f"n{i}") for i in range(5)))
    put(town, "main", person("dan"))
    before = town.snapshot().version
    with pytest.raises(ResourceLimitError, match="merged entities for node:Person"):
        town.with_limits(Limits(rows=4)).merge("side")
    assert town.snapshot().version == before
