"""A repeat of a request gets the first receipt; another request under the same key is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.engine.write.publish import Intent, PublishPlan
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    IdempotencyKeyReusedError,
    PreconditionFailedError,
)
from tests.conftest import Place
from tests.support.costs import settled
from tests.support.receipts import replayed
from tests.support.s3 import S3Server

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
    lambda g: g.schema.apply(WIDER, idempotency_key="k"),
]
OTHERS: list[Callable[[Graph], object]] = [
    lambda g: g.mutate(QUERIES, "add", {"name": "cid"}, idempotency_key="k"),
    lambda g: g.mutate(QUERIES, "age", {"name": "ann", "age": 3}, idempotency_key="k"),
    lambda g: g.load(row("cid"), mode="append", idempotency_key="k"),
    lambda g: g.load(row("bob"), mode="overwrite", idempotency_key="k"),
    lambda g: g.load(row("cid"), mode="append", branch="new", base="main", idempotency_key="k"),
    lambda g: g.merge("other", idempotency_key="k"),
    lambda g: g.schema.apply(OTHER, idempotency_key="k"),
    lambda g: g.schema.apply(WIDER, allow_data_loss=True, idempotency_key="k"),
    lambda g: g.schema.apply(WIDER, branch="new", idempotency_key="k"),
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


AGED = '{"type": "Person", "data": {"name": "bob", "age": 4}}'
AGED_ROWS = [{"name": "bob", "age": 4}]
AFTERWARDS = [
    'node Person { name: String @key  years: I32? @rename_from("age") }',
    "node Person { name: String @key }",
    'node Human @rename_from("Person") { name: String @key }',
    "node Robot { name: String @key }",
]
WRITES: dict[str, Callable[[Graph, Path], object]] = {
    "records": lambda g, _: g.load(AGED, mode="append", idempotency_key="k"),
    "an iterator": lambda g, _: g.load(iter([AGED]), mode="append", idempotency_key="k"),
    "a file": lambda g, files: g.load(files / "people.ndjson", mode="append", idempotency_key="k"),
    "the lenient grammar": lambda g, _: g.load_lenient(AGED, mode="append", idempotency_key="k"),
    "a new branch": lambda g, _: g.load(AGED, mode="append", branch="new", base="main", idempotency_key="k"),
    "dictionaries": lambda g, _: g.load(AGED_ROWS, type="Person", mode="append", idempotency_key="k"),
    "a frame": lambda g, _: g.load(
        pa.Table.from_pylist(AGED_ROWS), type="Person", mode="overwrite", idempotency_key="k"
    ),
    "a csv file": lambda g, files: g.load(files / "people.csv", type="Person", mode="merge", idempotency_key="k"),
    "a mutation": lambda g, _: g.mutate(QUERIES, "age", {"name": "ann", "age": 4}, idempotency_key="k"),
    "a merge": lambda g, _: g.merge("side", idempotency_key="k"),
    "a schema": lambda g, _: g.schema.apply(WIDER, idempotency_key="k"),
    "a made branch": lambda g, _: g.create_branch("made", idempotency_key="k"),
    "an ended branch": lambda g, _: g.delete_branch("side", idempotency_key="k"),
}
BRANCH_OF = {"a new branch": "new"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "people.ndjson").write_text(AGED)
    (tmp_path / "people.csv").write_text("name,age\nbob,4\n")
    return tmp_path


@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("base", ["main", None])
def test_a_repeat_is_answered_when_its_branch_was_merged_and_deleted(graph: Graph, mode: str, base: str | None) -> None:
    if base is None:
        graph.create_branch("new")

    def load(text: str = AGED, key: str = "k") -> object:
        return graph.load(text, mode=mode, branch="new", base=base, idempotency_key=key)

    def add(name: str) -> object:
        return graph.mutate(QUERIES, "add", {"name": name}, branch="new", idempotency_key="m")

    loaded, added = load(), add("cid")
    graph.merge("new", delete_branch=True)
    version = graph.snapshot().version
    for _ in range(2):
        assert (load(), add("cid")) == (replayed(loaded), replayed(added))
        with pytest.raises(IdempotencyKeyReusedError):
            load(row("dan"))
        with pytest.raises(IdempotencyKeyReusedError):
            add("dan")
    assert (graph.list_branches(), graph.snapshot().version) == (["main"], version)
    with pytest.raises(BranchNotFoundError):
        graph.mutate(QUERIES, "add", {"name": "eve"}, branch="no such/", idempotency_key="m")
    if base is None:
        with pytest.raises(BranchNotFoundError):
            load(row("dan"), "other")
    else:
        load(row("dan"), "other")
        assert graph.list_branches() == ["main", "new"]


@pytest.mark.parametrize("way", WRITES)
def test_a_repeat_is_answered_whatever_became_of_the_schema(graph: Graph, files: Path, way: str) -> None:
    graph.create_branch("side")
    graph.load(row("dan"), mode="append", branch="side")
    write, branch = WRITES[way], BRANCH_OF.get(way, "main")
    receipt = write(graph, files)
    for text in AFTERWARDS:
        graph.schema.apply(text, branch=branch, allow_data_loss=True)
        head = graph.resolve_snapshot(branch), graph.list_branches()
        assert write(Graph.open(graph.uri), files) == replayed(receipt)  # type: ignore[type-var]
        assert (graph.resolve_snapshot(branch), graph.list_branches()) == head


def test_another_load_under_a_used_key_is_refused_whatever_became_of_the_schema(graph: Graph) -> None:
    graph.load(AGED_ROWS, type="Person", mode="append", idempotency_key="rows")
    graph.load(AGED.replace("bob", "bea"), mode="append", idempotency_key="records")
    graph.schema.apply(AFTERWARDS[0])
    others: list[list[dict[str, object]]] = [[{"name": "cid"}], [{"name": "bob", "age": "old"}], [{"nick": "b"}], []]
    for rows in others:
        with pytest.raises(IdempotencyKeyReusedError):
            graph.load(rows, type="Person", mode="append", idempotency_key="rows")
    for text in (AGED, "", "not a record\n"):
        with pytest.raises(IdempotencyKeyReusedError):
            graph.load(text, mode="append", idempotency_key="records")


def test_a_key_costs_no_request(s3_server: S3Server, s3_place: Place) -> None:
    graph = Graph.init(s3_place.uri, SCHEMA)

    def cost(name: str, key: str | None) -> int:
        return len(settled(graph, s3_server, lambda: graph.load(row(name), mode="merge", idempotency_key=key)))

    cost("warm", None)
    cost("warmer", None)  # the first one to find ids that it has not written, which it then has in memory
    assert cost("keyed", "k") == cost("plain", None)
    # The head, where the key is, and the entry that it names, which this handle has written itself.
    assert cost("keyed", "k") <= 2


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
    assert (kept.branch_deleted, "side" in graph.list_branches()) == (False, True), "the name has a new generation"
    assert "no longer the one that was merged" in (kept.branch_delete_error or "")


@pytest.mark.parametrize("again", [False, True], ids=["the name is free", "the name has a new generation"])
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
        assert not graph.schema.apply(SCHEMA, idempotency_key="k").replayed
        assert not graph.merge("side", idempotency_key="k").replayed
    assert graph.mutate(QUERIES, "add", {"name": "bob"}, idempotency_key="k").commit is not None


def test_a_key_of_a_write_without_a_digest_is_no_schema_change(graph: Graph) -> None:
    """As a DataFrame that is written by Spark leaves it."""
    intent = Intent(kind="pipeline", idempotency_key="k")
    graph._workspace.commit("main", lambda txn: PublishPlan(staged={}), intent)
    with pytest.raises(ConflictError, match="belongs to a write that is not a schema change"):
        graph.schema.apply(WIDER, idempotency_key="k")


def test_the_refusal_is_a_conflict(graph: Graph) -> None:
    assert issubclass(IdempotencyKeyReusedError, ConflictError)
    assert IdempotencyKeyReusedError.http_status == 409
