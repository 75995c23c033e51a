"""Loads: what each mode does to what is there, what comes back, and that a refused load changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.api.governance import Limits
from omnigraph.errors import BadRequestError, BranchNotFoundError, ConflictError, KeyConflictError, ResourceLimitError
from tests.engine.museum import SCHEMA, edge, lines, node
from tests.engine.stored import everything, rows
from tests.support.receipts import replayed

INES = node("Curator", badge="k7", name="Ines", email="ines@museum")
VASE = node("Exhibit", accession=12, wing="east", tags=[])
VASE_ID = '["12","east"]'
GUARD = edge("Guards", "k7", VASE_ID, id="g-1")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "graph", SCHEMA) as graph:
        yield graph


@pytest.fixture
def museum(graph: Graph) -> Graph:
    graph.load(lines(INES, VASE, GUARD), mode="append")
    return graph


def test_a_load_is_one_commit_over_all_its_types(graph: Graph) -> None:
    receipt = graph.load(lines(INES, VASE, GUARD), mode="append", actor="mia")
    one_inserted = {"inserted": 1, "updated": 0, "unchanged": 0, "deleted": 0}
    assert wire.to_builtins(receipt) == {
        "branch": "main",
        "base_branch": None,
        "branch_created": False,
        "mode": "append",
        "nodes": [
            {"name": "Curator", "entities_loaded": 1, **one_inserted},
            {"name": "Exhibit", "entities_loaded": 1, **one_inserted},
        ],
        "edges": [{"name": "Guards", "entities_loaded": 1, **one_inserted}],
        "total_entities": 3,
        **one_inserted,
        "inserted": 3,
        "actor_id": "mia",
        "commit": {
            "graph_commit_id": graph.snapshot().commit_id,
            "graph_branch": None,
            "graph_manifest_version": 2,
            "parent_commit_id": graph.snapshot(version=1).commit_id,
            "merged_parent_commit_id": None,
            "actor_id": "mia",
            "created_at": receipt.commit.created_at,
        },
    }
    assert rows(graph, "edge:Guards") == {"g-1": {"src": "k7", "dst": VASE_ID, "since": None}}


@pytest.mark.parametrize("given", [lines(INES), lines(INES).decode(), [lines(INES)[:20], lines(INES)[20:]]])
def test_the_input_is_text_bytes_or_pieces_of_them(graph: Graph, given: str | bytes | list[bytes]) -> None:
    assert graph.load(given, mode="append").nodes_loaded == {"Curator": 1}


def test_a_file_is_read_in_pieces(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "batch.ndjson"
    path.write_bytes(lines(INES, VASE))
    assert graph.load(path, mode="append").total_entities == 2
    with pytest.raises(BadRequestError, match="No such file"):
        graph.load(tmp_path / "none", mode="append")


def test_an_unknown_mode_is_refused_by_name(graph: Graph) -> None:
    with pytest.raises(BadRequestError, match="unknown load mode 'upsert'"):
        graph.load(lines(INES), mode="upsert")


def test_an_input_without_records_makes_no_commit(museum: Graph) -> None:
    before = museum.snapshot().commit_id
    for mode in ("append", "merge", "overwrite"):
        receipt = museum.load(b"\n", mode=mode, actor="ann", idempotency_key="k")
        assert (receipt.total_entities, receipt.commit, receipt.actor_id, receipt.replayed) == (0, None, "ann", False)
        lenient = museum.load_lenient("", mode=mode)
        assert (lenient.commit, lenient.values_nulled, lenient.values_dropped) == (None, 0, 0)
    assert museum.snapshot().commit_id == before
    used = museum.load(lines(node("Memo", text="a")), mode="append", idempotency_key="k")
    assert used.commit is not None, "what changed nothing leaves its key unused"


def test_a_load_of_no_records_still_makes_its_branch(museum: Graph) -> None:
    receipt = museum.load("", mode="merge", branch="new", base="main")
    assert (receipt.branch, receipt.base_branch, receipt.branch_created, receipt.commit) == ("new", "main", True, None)
    assert museum.resolve_snapshot("new") == museum.resolve_snapshot("main")
    again = museum.load("", mode="merge", branch="new", base="main")
    assert (again.branch_created, again.commit) == (False, None)
    museum.load(lines(node("Memo", text="a")), mode="append", branch="new")
    assert museum.snapshot("new").version == museum.snapshot().version + 1


# Append


@pytest.mark.parametrize(
    ("record", "type_key", "entity_id"),
    [
        (node("Curator", badge="k7", name="Again"), "node:Curator", "k7"),
        (edge("Guards", "k7", VASE_ID, id="g-1"), "edge:Guards", "g-1"),
    ],
)
def test_append_refuses_an_existing_id(museum: Graph, record: str, type_key: str, entity_id: str) -> None:
    before = everything(museum)
    with pytest.raises(KeyConflictError) as refused:
        museum.load(lines(record), mode="append")
    assert (refused.value.type_key, refused.value.entity_id) == (type_key, entity_id)
    assert everything(museum) == before


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_an_unkeyed_id_given_twice_is_a_conflict(graph: Graph, mode: str) -> None:
    with pytest.raises(KeyConflictError) as refused:
        graph.load(lines(node("Memo", id="m", text="a"), node("Memo", id="m", text="b")), mode=mode)
    assert (refused.value.type_key, refused.value.entity_id) == ("node:Memo", "m")


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_key_given_twice_is_a_uniqueness_violation_in_every_mode(graph: Graph, mode: str) -> None:
    with pytest.raises(BadRequestError, match=r"line 2: @unique violation on Curator\.badge: value 'k7'"):
        graph.load(lines(INES, node("Curator", badge="k7", name="Other")), mode=mode)


# Merge


def test_merge_replaces_the_whole_entity(museum: Graph) -> None:
    museum.load(lines(node("Curator", badge="k7", name="Ines B.")), mode="merge")
    assert rows(museum, "node:Curator")["k7"]["name"] == "Ines B."
    assert rows(museum, "node:Curator")["k7"]["email"] is None


def test_merge_keeps_the_last_of_several_records_of_an_unkeyed_id(graph: Graph) -> None:
    given = lines(node("Memo", id="m", text="a"), node("Memo", id="n", text="x"), node("Memo", id="m", text="b"))
    receipt = graph.load(given, mode="merge")
    assert rows(graph, "node:Memo") == {"m": {"text": "b"}, "n": {"text": "x"}}
    assert receipt.nodes_loaded == {"Memo": 3}


@pytest.mark.parametrize("mode", ["merge", "update"])
def test_a_load_of_equal_values_makes_no_commit(museum: Graph, mode: str) -> None:
    before = everything(museum), museum.snapshot().version
    receipt = museum.load(lines(INES), mode=mode)
    assert (receipt.commit, receipt.total_entities, receipt.unchanged) == (None, 1, 1)
    assert (everything(museum), museum.snapshot().version) == before


def test_generated_ids_make_merge_an_insert(graph: Graph) -> None:
    for _ in range(2):
        graph.load(lines(node("Memo", text="a")), mode="merge")
    assert len(rows(graph, "node:Memo")) == 2


# Overwrite


def test_overwrite_replaces_the_touched_types_only(museum: Graph) -> None:
    museum.load(lines(node("Memo", id="m", text="a")), mode="append")
    museum.load(lines(node("Memo", id="n", text="b")), mode="overwrite")
    assert rows(museum, "node:Memo") == {"n": {"text": "b"}}
    assert set(rows(museum, "node:Curator")) == {"k7"}


def test_an_overwrite_may_not_orphan_edges_that_stay(museum: Graph) -> None:
    before = everything(museum)
    with pytest.raises(BadRequestError, match="src 'k7' not found in Curator"):
        museum.load(lines(node("Curator", badge="k8", name="New")), mode="overwrite")
    assert everything(museum) == before


def test_an_overwrite_that_replaces_the_edges_too_is_judged_on_its_own_image(museum: Graph) -> None:
    kept = edge("Guards", "k8", VASE_ID, id="g-2")
    museum.load(lines(node("Curator", badge="k8", name="New"), kept), mode="overwrite")
    assert set(rows(museum, "edge:Guards")) == {"g-2"}
    with pytest.raises(BadRequestError, match="line 2: edge Guards: src 'k8' not found in Curator"):
        museum.load(lines(node("Curator", badge="k9", name="Newer"), kept), mode="overwrite")


# Order of the checks


@pytest.mark.parametrize(
    ("given", "mentions"),
    [
        (
            lines(node("Curator", badge="k9", name="a", pay=-1), node("Curator", badge="k9", name="b")),
            "@range violation",
        ),
        (lines(node("Curator", badge="k7", name="a", pay=-1)), "@range violation"),
        (lines(edge("Guards", "ghost", VASE_ID, id="g-1")), "src 'ghost' not found"),
        (lines(node("Curator", badge="k9", name="a", email="ines@museum"), edge("Guards", "ghost", "x")), "@unique"),
        (lines(*[edge("Guards", "k7", VASE_ID)] * 3, edge("Guards", "k7", "ghost")), "dst 'ghost' not found"),
        (lines(edge("Guards", "k7", VASE_ID, id="g-1"), *[edge("Guards", "k7", VASE_ID)] * 2), "@card violation"),
    ],
)
def test_a_constraint_is_reported_before_an_existing_id(museum: Graph, given: bytes, mentions: str) -> None:
    with pytest.raises(BadRequestError, match=mentions):
        museum.load(given, mode="append")


# Branches


def test_a_missing_target_is_refused_without_a_base(graph: Graph) -> None:
    with pytest.raises(BranchNotFoundError):
        graph.load(lines(INES), mode="append", branch="review")


def test_a_missing_target_comes_into_being_with_its_first_commit(museum: Graph) -> None:
    receipt = museum.load(lines(node("Memo", id="m", text="a")), mode="append", branch="review", base="main")
    assert (receipt.branch_created, receipt.base_branch, receipt.commit.graph_branch) == (True, "main", "review")
    assert receipt.commit.parent_commit_id == museum.snapshot().commit_id
    assert set(rows(museum, "node:Memo", "review")) == {"m"}
    assert rows(museum, "node:Memo") == {}
    assert set(rows(Graph.open(museum.uri), "node:Memo", "review")) == {"m"}


@pytest.mark.parametrize("given", [b"{", lines(edge("Guards", "ghost", "x")), lines(INES)])
def test_a_failed_load_leaves_no_new_branch(museum: Graph, given: bytes) -> None:
    with pytest.raises((BadRequestError, KeyConflictError)):
        museum.load(given, mode="append", branch="review", base="main")
    assert Graph.open(museum.uri).list_branches() == ["main"]


def test_the_base_of_an_existing_target_is_echoed_and_otherwise_ignored(museum: Graph) -> None:
    receipt = museum.load(lines(node("Memo", text="a")), mode="append", branch="main", base="nowhere")
    assert (receipt.base_branch, receipt.branch_created) == ("nowhere", False)


def test_a_target_beneath_a_live_branch_is_refused_and_leaves_nothing(museum: Graph) -> None:
    museum.create_branch("review")
    with pytest.raises(ConflictError, match="beneath the live branch"):
        museum.load(lines(node("Memo", text="a")), mode="append", branch="review/may", base="main")
    assert museum.list_branches() == ["main", "review"]


# Repeats and limits


def test_a_repeat_with_the_same_key_returns_the_first_receipt(graph: Graph) -> None:
    first = graph.load(lines(INES), mode="append", idempotency_key="once", branch="side", base="main")
    assert graph.load(lines(INES), mode="append", idempotency_key="once", branch="side", base="main") == replayed(first)
    assert first.branch_created
    assert graph.snapshot("side").version == 2


def test_a_key_of_another_kind_of_write_is_refused(graph: Graph) -> None:
    graph.mutate('query add() { insert Memo { text: "a" } }', idempotency_key="once")
    with pytest.raises(ConflictError, match="was used for another request"):
        graph.load(lines(INES), mode="append", idempotency_key="once")


def test_an_input_beyond_the_limits_is_refused_with_a_way_out(graph: Graph) -> None:
    with pytest.raises(ResourceLimitError, match="load --engine spark") as refused:
        graph.with_limits(Limits(rows=1)).load(lines(INES, VASE), mode="append")
    assert refused.value.limit == 1
    assert graph.snapshot().version == 1


def test_the_lenient_grammar_goes_the_same_way(graph: Graph) -> None:
    record = b'{"type":"Curator","extra":1,"data":{"badge":"k7","name":"I","hobby":"x"}}'
    first = graph.load_lenient(record, mode="merge", idempotency_key="once")
    again = graph.load_lenient(record, mode="merge", idempotency_key="once")
    for receipt in first, again:
        assert (receipt.values_nulled, receipt.values_dropped) == (0, 2)
    assert set(rows(graph, "node:Curator")) == {"k7"}
    with pytest.raises(BadRequestError, match="record 1: edge Guards: src 'k8'"):
        graph.load_lenient(edge("Guards", "k8", "x"), mode="merge")
