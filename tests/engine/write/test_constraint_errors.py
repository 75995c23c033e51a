"""A broken rule is told by fields and by one sentence, whichever way the data came: load, mutation or merge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.errors import BadRequestError, ConstraintError, ConstraintRule, KeyConflictError, MergeConflictsError
from omnigraph.language.types import Scalar
from omnigraph.language.violations import Sentence, value_text
from tests.engine.broken_rules import BROKEN, Broken, assert_tells, graph_of, mutation, owns, person


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """No test here changes it."""
    return graph_of(tmp_path_factory.mktemp("rules") / "graph")


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_a_load_tells_the_rule_and_who_broke_it(graph: Graph, broken: Broken) -> None:
    text = "\n".join(["", *map(json.dumps, broken.records)])
    for mode in ("append", "merge"):
        with pytest.raises(ConstraintError) as raised:
            graph.load(text, mode=mode)
        assert_tells(raised.value, broken, line=broken.line + 1, entity_id=broken.entity_id)
        assert str(raised.value).startswith(f"line {broken.line + 1}: ")
        assert raised.value.http_status == BadRequestError.http_status


@pytest.mark.parametrize("broken", [b for b in BROKEN if b.by_mutation], ids=str)
def test_a_mutation_tells_the_rule_and_who_broke_it(graph: Graph, broken: Broken) -> None:
    with pytest.raises(ConstraintError) as raised:
        graph.mutate(*mutation(broken)[:1], "it", mutation(broken)[1])
    # A mutation makes the ids of edges itself.
    entity_id = raised.value.entity_id if broken.is_edge else broken.entity_id
    assert_tells(raised.value, broken, line=1, entity_id=entity_id)
    assert str(raised.value).startswith("statement 1: ")


def test_ids_that_meet_are_key_conflicts_of_a_strict_insert(graph: Graph) -> None:
    with pytest.raises(KeyConflictError, match="node:Person already holds the id 'a'; nothing was written"):
        graph.load(json.dumps(person("a")), mode="append")
    twice = "\n".join(json.dumps(owns("a2", "t1", "twice")) for _ in range(2))
    with pytest.raises(KeyConflictError, match="the input holds the edge:Owns id 'twice' more than once"):
        graph.load(twice, mode="append")


def test_a_rule_that_no_written_row_breaks_names_no_line(graph: Graph) -> None:
    with pytest.raises(ConstraintError) as raised:
        graph.load(json.dumps(person("only")), mode="overwrite")
    orphan = raised.value
    assert (orphan.rule, orphan.type_key, orphan.property) == ("endpoint", "edge:Owns", "src")
    assert (orphan.entity_id, orphan.line) == ("o1", None)
    assert str(orphan).endswith("; keep the node, or load Owns in the same overwrite")


MERGES = [
    (person("m1", mail="same"), person("m2", mail="same"), "unique", "mail", "m1"),
    (owns("a2", "t1", "e1"), owns("a2", "t2", "e2"), "cardinality", "src", None),
]


@pytest.mark.parametrize(("theirs", "ours", "rule", "property", "entity_id"), MERGES, ids=["unique", "cardinality"])
def test_a_merge_reports_conflicts_with_the_same_fields(
    tmp_path: Path, theirs: object, ours: object, rule: str, property: str, entity_id: str | None
) -> None:
    with graph_of(tmp_path / "graph") as graph:
        graph.create_branch("work")
        graph.load(json.dumps(theirs), mode="append", branch="work")
        graph.load(json.dumps(ours), mode="append")
        with pytest.raises(MergeConflictsError) as raised:
            graph.merge("work")
        (conflict,) = raised.value.conflicts
        assert (conflict.rule, conflict.property, conflict.entity_id) == (rule, property, entity_id)
        told = wire.to_builtins(conflict)
        assert (told["rule"], told["property"], told["entity_id"]) == (rule, property, entity_id)
        with pytest.raises(ConstraintError) as refused:
            graph.load(json.dumps(theirs), mode="append")
        assert str(refused.value).endswith(conflict.message)
        assert (refused.value.rule, refused.value.property) == (rule, property)


# The table


def test_every_rule_has_a_sentence() -> None:
    assert {sentence.rule for sentence in Sentence} == set(ConstraintRule)


@pytest.mark.parametrize("sentence", Sentence, ids=lambda s: s.name)
def test_the_pieces_of_a_sentence_are_the_sentence(sentence: Sentence) -> None:
    values = {name: f"<{name}>" for _, name in sentence.pieces() if name is not None}
    assert "".join(fixed + values.get(name or "", "") for fixed, name in sentence.pieces()) == sentence.text(**values)


@pytest.mark.parametrize(
    ("scalar", "stored", "text"),
    [
        (Scalar.F32, 0.10000000149011612, "0.1"),
        (Scalar.F32, 0.0, "0.0"),
        (Scalar.F64, 1e22, "1e+22"),
        (Scalar.F64, float("inf"), "inf"),
        (Scalar.BOOL, True, "true"),
        (Scalar.U64, 2**64 - 1, "18446744073709551615"),
        (Scalar.DATE, 2_932_897, "+10000-01-01"),
        (Scalar.DATETIME, -1, "1969-12-31T23:59:59.999Z"),
        (Scalar.STRING, "it's", "it's"),
    ],
)
def test_values_are_shown_as_people_write_them(scalar: Scalar, stored: object, text: str) -> None:
    assert value_text(scalar, stored) == text
