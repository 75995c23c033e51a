"""A repeat of a request gets the first receipt; another request under the same key is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.engine.write.publish import Intent, PublishPlan
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    IdempotencyKeyReusedError,
    PreconditionFailedError,
)
from tests.support.receipts import replayed

SCHEMA = "node Person { name: String @key  age: I32? }"
WIDER = "node Person { name: String @key  age: I32?  nick: String? }"
OTHER = "node Person { name: String @key  age: I32?  mail: String? }"
QUERIES = """
query add($name: String) { insert Person { name: $name } }
query age($name: String, $age: I32) { update Person set { age: $age } where name = $name }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    graph.mutate(QUERIES, "add", {"name": "ann"})
    return graph


def row(name: str) -> str:
    return f'{{"type": "Person", "data": {{"name": "{name}"}}}}'


def test_the_repeat_of_a_conditional_write_gets_its_receipt(graph: Graph) -> None:
    head = graph.resolve_snapshot()

    def change(age: int = 7) -> object:
        return graph.mutate(QUERIES, "age", {"name": "ann", "age": age}, if_commit=head, idempotency_key="k")

    first = change()
    assert change() == replayed(first)
    assert Graph.open(graph.uri).snapshot().version == 3
    graph.mutate(QUERIES, "add", {"name": "bob"})
    assert change() == replayed(first), "also when the branch has moved on"
    with pytest.raises(IdempotencyKeyReusedError):
        change(age=8)
    with pytest.raises(PreconditionFailedError):
        graph.mutate(QUERIES, "age", {"name": "ann", "age": 7}, if_commit=head, idempotency_key="other")


FIRST: list[Callable[[Graph], object]] = [
    lambda g: g.mutate(QUERIES, "add", {"name": "bob"}, idempotency_key="k"),
    lambda g: g.load(row("bob"), mode="append", idempotency_key="k"),
    lambda g: g.load(iter([row("bob")]), mode="merge", idempotency_key="k"),
    lambda g: g.load(row("bob"), mode="append", branch="new", base="main", idempotency_key="k"),
    lambda g: g.merge("side", idempotency_key="k"),
    lambda g: g.apply_schema(WIDER, idempotency_key="k"),
]
OTHERS: list[Callable[[Graph], object]] = [
    lambda g: g.mutate(QUERIES, "add", {"name": "cid"}, idempotency_key="k"),
    lambda g: g.mutate(QUERIES, "age", {"name": "ann", "age": 3}, idempotency_key="k"),
    lambda g: g.load(row("cid"), mode="append", idempotency_key="k"),
    lambda g: g.load(row("bob"), mode="overwrite", idempotency_key="k"),
    lambda g: g.load(row("cid"), mode="append", branch="new", base="main", idempotency_key="k"),
    lambda g: g.merge("other", idempotency_key="k"),
    lambda g: g.apply_schema(OTHER, idempotency_key="k"),
    lambda g: g.apply_schema(WIDER, allow_data_loss=True, idempotency_key="k"),
    lambda g: g.apply_schema(WIDER, branch="new", idempotency_key="k"),
]


@pytest.mark.parametrize("first", FIRST)
def test_a_repeat_and_another_request(graph: Graph, first: Callable[[Graph], object]) -> None:
    graph.create_branch("side")
    graph.load(row("dan"), mode="append", branch="side")
    graph.create_branch("other")
    graph.load(row("eve"), mode="append", branch="other")
    receipt = first(graph)
    assert first(Graph.open(graph.uri)) == replayed(receipt)
    branch = "new" if "new" in graph.list_branches() else "main"
    before = graph.resolve_snapshot(branch)
    for other in OTHERS:
        if (branch == "new") == ("new" in other.__code__.co_consts):
            with pytest.raises(IdempotencyKeyReusedError, match="'k' was used for another request"):
                other(graph)
    assert graph.resolve_snapshot(branch) == before


def test_a_merge_whose_source_went_with_it_can_be_repeated(graph: Graph) -> None:
    graph.create_branch("side")
    graph.load(row("bob"), mode="append", branch="side")
    first = graph.merge("side", delete_branch=True, idempotency_key="k")
    assert first.branch_deleted
    again = Graph.open(graph.uri).merge("side", delete_branch=True, idempotency_key="k")
    assert (again.commit, again.outcome, again.branch_deleted) == (first.commit, first.outcome, True)

    graph.create_branch("side")
    graph.load(row("cid"), mode="append", branch="side")
    kept = graph.merge("side", delete_branch=True, idempotency_key="k")
    assert (kept.branch_deleted, "side" in graph.list_branches()) == (False, True), "the name has a new life"
    assert "no longer the one that was merged" in (kept.branch_delete_error or "")


@pytest.mark.parametrize("again", [False, True], ids=["the name is free", "the name has a new life"])
def test_a_merge_of_nothing_that_deleted_its_source_can_be_repeated(graph: Graph, again: bool) -> None:
    graph.create_branch("side")
    first = graph.merge("side", delete_branch=True, idempotency_key="k")
    assert (first.outcome, first.branch_deleted, first.commit) == ("already_up_to_date", True, None)
    if again:
        graph.create_branch("side")
        graph.load(row("cid"), mode="append", branch="side")
    before = graph.resolve_snapshot(), graph.list_branches()
    assert Graph.open(graph.uri).merge("side", delete_branch=True, idempotency_key="k") == replayed(first)
    assert (graph.resolve_snapshot(), graph.list_branches()) == before
    if not again:
        with pytest.raises(BranchNotFoundError):
            graph.merge("side", delete_branch=True, idempotency_key="other")


def test_a_write_that_finds_nothing_to_do_leaves_its_key_unused(graph: Graph) -> None:
    graph.create_branch("side")
    for _ in range(2):
        assert not graph.apply_schema(SCHEMA, idempotency_key="k").replayed
        assert not graph.merge("side", idempotency_key="k").replayed
    assert graph.mutate(QUERIES, "add", {"name": "bob"}, idempotency_key="k").commit is not None


def test_a_key_of_a_write_without_a_digest_is_no_schema_change(graph: Graph) -> None:
    """As a DataFrame that is written by Spark leaves it."""
    intent = Intent(kind="pipeline", idempotency_key="k")
    graph.workspace.commit("main", lambda txn: PublishPlan(staged={}), intent)
    with pytest.raises(ConflictError, match="belongs to a write that is no schema change"):
        graph.apply_schema(WIDER, idempotency_key="k")


def test_the_refusal_is_a_conflict(graph: Graph) -> None:
    assert issubclass(IdempotencyKeyReusedError, ConflictError)
    assert IdempotencyKeyReusedError.http_status == 409
