"""What operations share: one lock per branch for every way of writing, and settings that go wherever a state goes."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import omnigraph
from omnigraph.api.governance import Limits
from omnigraph.cli.target import StoreScope, open_graph
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn
from omnigraph.errors import BadRequestError
from omnigraph.graph import Graph
from omnigraph.storage.cache import SHARED_MEMORY, ByteBoundCache, SharedMemory, Use
from omnigraph.storage.log.writer_queue import BRANCH_LOCKS
from omnigraph.storage.tables.memory.columns import ColumnMemory
from tests.support.tables import new_graph

NOTES = "node Note { key: String @key  text: String  v: Vector(2) @embed(text) }"
NEAREST = "query near($t: String) { match { $n: Note } return { $n.key } order { nearest($n.v, $t) } limit 1 }"
EMPTY = PublishPlan(staged={})


class Compass:
    """An embedder of two words."""

    model = "compass"

    def embed_query(self, text: str, dimension: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        return np.array([1, 0] if text == "east" else [0, 1], np.float32)


@pytest.fixture
def notes(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "notes", NOTES)
    rows = [("e", "[1, 0]"), ("n", "[0, 1]")]
    graph.load(
        "\n".join(f'{{"type":"Note","data":{{"key":"{k}","text":"{k}","v":{v}}}}}' for k, v in rows), mode="append"
    )
    return graph


def test_a_commit_and_a_publish_of_one_branch_exclude_each_other(tmp_path: Path) -> None:
    """A plan that was prepared at leisure must not be published in the middle of another writer's commit: that one
    would have to do its work again."""
    graph = new_graph(str(tmp_path / "g"))
    workspace = graph._workspace
    prepared = workspace.begin("main", Intent(kind="load"))
    versions: list[int] = []
    publisher = threading.Thread(
        target=lambda: versions.append(workspace.publish(prepared, EMPTY, lambda txn: EMPTY).version)
    )
    attempts = []

    def prepare(txn: WriteTxn) -> PublishPlan:
        attempts.append(txn)
        if len(attempts) == 1:
            asked = BRANCH_LOCKS.waits.asked
            publisher.start()
            while publisher.is_alive() and BRANCH_LOCKS.waits.asked == asked:
                pass
        return EMPTY

    committed = workspace.commit(" main ", prepare, Intent(kind="load"), strict=True)
    publisher.join()
    assert committed is not None
    assert len(attempts) == 1
    assert versions == [committed.version + 1]


def test_a_write_within_a_write_to_the_same_branch_is_refused_instead_of_waiting_for_itself(tmp_path: Path) -> None:
    workspace = new_graph(str(tmp_path / "g"))._workspace

    def prepare(txn: WriteTxn) -> PublishPlan:
        workspace.publish(txn, EMPTY)
        return EMPTY

    with pytest.raises(RuntimeError, match="would wait for itself"):
        workspace.commit("main", prepare, Intent(kind="load"))
    assert workspace.commit("main", lambda txn: EMPTY, Intent(kind="load")) is not None


def test_a_snapshot_embeds_with_the_client_of_its_graph(notes: Graph) -> None:
    graph = notes.with_embedding(Compass())
    past = graph.snapshot(version=2)
    for word, key in (("east", "e"), ("north", "n")):
        assert past.query(NEAREST, "near", {"t": word}).rows() == graph.query(NEAREST, "near", {"t": word}).rows()
        assert past.query(NEAREST, "near", {"t": word}).rows() == [{"n.key": key}]


def test_a_snapshot_and_a_transaction_keep_every_setting(notes: Graph) -> None:
    graph = notes.with_embedding(Compass()).with_limits(Limits(rows=7))
    for resources in (graph.snapshot().resources, graph._workspace.begin("main", Intent(kind="load")).resources):
        assert resources.limits == Limits(rows=7)
        assert resources.embedder is graph.embedder
        assert resources.external_blobs is graph.external_blobs


def test_the_command_line_opens_a_graph_as_python_does(notes: Graph) -> None:
    """Every command, not only `query`, has the embedding provider and the limits that `omnigraph.open` gives."""
    by_python = omnigraph.open(notes.uri)
    by_command = open_graph(StoreScope(notes.uri))
    assert type(by_command) is type(by_python)
    assert type(by_command.embedder) is type(by_python.embedder)
    assert by_command.embedder is not None
    assert by_command.limits == by_python.limits


def test_what_a_process_shares_is_known_by_name_and_has_a_byte_limit(notes: Graph) -> None:
    notes.query('query q() { match { $n: Note  search($n.text, "e") } return { $n.key } }')
    held = SHARED_MEMORY.uses()
    assert {"indexed texts", "postings", "topologies", "words"} <= held.keys()
    assert 0 < held["postings"].held <= held["postings"].limit
    SHARED_MEMORY.clear()
    assert {use.held for use in SHARED_MEMORY.uses().values()} == {0}


def test_a_cache_has_one_name_and_stays_below_its_limit() -> None:
    memory, part = SharedMemory(), ByteBoundCache[str](10)
    memory.add("values", part)
    with pytest.raises(ValueError, match="'values'"):
        memory.add("values", ByteBoundCache[str](1))
    for key, nbytes in enumerate((4, 4, 11, 4)):
        part.keep(key, "value", nbytes)
    assert memory.uses() == {"values": Use(8, 10)}
    assert [key for key in range(4) if part.get(key) is not None] == [1, 3]


def test_a_limit_that_is_not_a_number_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_COLUMN_CACHE_BYTES", "1GB")
    with pytest.raises(BadRequestError, match="OMNIGRAPH_COLUMN_CACHE_BYTES is '1GB'; write a number of bytes"):
        ColumnMemory()
    monkeypatch.setenv("OMNIGRAPH_COLUMN_CACHE_BYTES", " 5000 ")
    assert ColumnMemory().limit == 5000
