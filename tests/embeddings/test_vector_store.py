"""Vectors that were paid for are found again: by other clients and processes, after a failure, up to a size."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from omnigraph.embeddings.client import EmbeddingClient, open_client
from omnigraph.embeddings.configuration import EmbeddingConfig, ProviderKind
from omnigraph.embeddings.vector_store import VectorStore, shared_store, vector_key
from omnigraph.errors import EmbeddingError
from tests.support.embedding_server import EmbeddingServer, Reply, proper, vector_of


def client(provider: EmbeddingServer, environment: dict[str, str], **changes: str) -> EmbeddingClient:
    given = {"kind": "openai", "model": "m", "base_url": provider.url, **changes}
    config = EmbeddingConfig(ProviderKind(given["kind"]), given["model"], given["base_url"], "key")
    return open_client(config, environment)


def one(number: float) -> NDArray[np.float32]:
    return np.full(8, number, np.float32)


def keys(count: int) -> list[bytes]:
    return [vector_key("openai", "u", "m", 8, "", str(number)) for number in range(count)]


def test_no_text_is_paid_for_twice(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    first = client(provider, quick).embed_documents(["a", "b", "a"], 2)
    asking = client(provider, quick)
    assert np.array_equal(asking.embed_documents(["b", "a", "c"], 2)[1], first[0])
    assert provider.paid == {"a": 1, "b": 1, "c": 1}
    assert (asking.usage.texts, asking.usage.reused, asking.usage.requests) == (3, 2, 1)


def test_what_was_answered_before_a_failure_is_kept(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    texts = [f"text {number}" for number in range(130)]
    provider.faults.extend([proper, Reply(401, "no more credit")])
    with pytest.raises(EmbeddingError, match="no more credit"):
        client(provider, quick).embed_documents(texts, 2)
    client(provider, quick).embed_documents(texts, 2)
    assert [len(asked.texts) for asked in provider.asked] == [64, 64, 64, 2]
    assert provider.asked[0].texts + provider.asked[2].texts + provider.asked[3].texts == texts


def test_vectors_of_another_space_are_others(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    client(provider, quick).embed_documents(["a"], 2)
    client(provider, quick).embed_documents(["a"], 3)
    client(provider, quick, model="n").embed_documents(["a"], 2)
    client(provider, quick, base_url=provider.url + "/x").embed_documents(["a"], 2)
    client(provider, quick, kind="gemini").embed_documents(["a"], 2)
    assert provider.paid == {"a": 5}


def test_a_query_is_always_asked(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    asking = client(provider, quick)
    asking.embed_documents(["a"], 2)
    asking.embed_query("a", 2)
    assert provider.paid == {"a": 2}


def test_it_can_be_switched_off(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    for _ in range(2):
        client(provider, {**quick, "OMNIGRAPH_EMBED_CACHE": " Off "}).embed_documents(["a"], 2)
    assert provider.paid == {"a": 2}


def test_where_it_is(tmp_path: Path) -> None:
    def place(**given: str) -> Path | None:
        store = shared_store(given)
        return None if store is None else store.path.parent

    assert place(HOME="/h") == Path("/h/.cache/omnigraph")
    assert place(HOME="/h", XDG_CACHE_HOME="/c") == Path("/c/omnigraph")
    assert place(HOME="/h", OMNIGRAPH_EMBED_CACHE=str(tmp_path)) == tmp_path
    assert place(HOME="/h", OMNIGRAPH_EMBED_CACHE="off") is None
    assert place() is None


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    store = VectorStore(tmp_path / "made" / "vectors")
    store.keep({keys(1)[0]: one(1)})
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


@given(
    st.lists(
        st.tuples(*[st.text(max_size=3)] * 3, st.integers(1, 12), st.text(max_size=2), st.text(max_size=3)), max_size=8
    )
)
def test_different_texts_and_spaces_have_different_keys(spaces: list[tuple[str, str, str, int, str, str]]) -> None:
    made = {vector_key(*space) for space in spaces}
    assert len(made) == len(set(spaces))


def test_a_damaged_entry_is_asked_for_again(tmp_path: Path) -> None:
    store = VectorStore(tmp_path / "vectors")
    first, second = keys(2)
    store.keep({first: one(1), second: one(2)})
    store.close()
    with sqlite3.connect(store.path) as db:
        (other,) = db.execute("SELECT vector FROM vectors WHERE key = ?", (second,)).fetchone()
        db.execute("UPDATE vectors SET vector = ? WHERE key = ?", (other, first))
    assert list(store.find([first, second], 8)) == [second]
    assert store.find([second], 7) == {}


@pytest.mark.parametrize("content", [b"no database at all, though longer than the header of one" * 4, None])
def test_a_damaged_file_is_put_aside(tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "vectors"
    many = dict.fromkeys(keys(600), one(1))
    store = VectorStore(path)
    store.keep(many)
    store.close()
    if content is None:  # the schema is still readable, the rows are not
        whole = path.read_bytes()
        content = whole[:8192] + b"\xff" * (len(whole) - 8192)
    path.write_bytes(content)
    assert store.find(list(many), 8) == {}
    store.keep(many)
    assert len(store.find(list(many), 8)) == 600
    assert "put aside as vectors.damaged" in caplog.text
    assert path.with_name("vectors.damaged").read_bytes() == content


def test_a_place_that_cannot_be_written_is_told_once(
    provider: EmbeddingServer, quick: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    asking = client(provider, {**quick, "OMNIGRAPH_EMBED_CACHE": str(tmp_path / "file" / "below")})
    with caplog.at_level(logging.WARNING):
        for text in ("a", "b"):
            assert asking.embed_documents([text], 2).tolist() == [pytest.approx(vector_of(text, 2))]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "OMNIGRAPH_EMBED_CACHE names another directory" in caplog.text


def test_it_stays_within_its_size_and_keeps_what_is_used(tmp_path: Path) -> None:
    limit = 256 << 10
    store = VectorStore(tmp_path / "vectors", limit)
    wide = np.ones(256, np.float32)
    held = [vector_key("openai", "u", "m", 256, "", str(number)) for number in range(1000)]
    store.keep(dict.fromkeys(held[:10], wide))
    with sqlite3.connect(store.path) as db:
        db.execute("UPDATE vectors SET used = used - 10000")
    assert len(store.find(held[:5], 256)) == 5
    for start in range(10, 1000, 30):
        store.keep(dict.fromkeys(held[start : start + 30], wide))
    assert not store.find(held[5:10], 256)
    assert len(store.find(held[990:], 256)) == 10
    store.close()
    assert store.path.stat().st_size < 1.5 * limit


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_a_fork_opens_it_anew(tmp_path: Path) -> None:
    store = VectorStore(tmp_path / "vectors")
    first, second = keys(2)
    store.keep({first: one(1)})
    if (child := os.fork()) == 0:
        store.keep({second: one(2)})
        os._exit(0 if len(store.find([first, second], 8)) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(store.find([first, second], 8)) == 2


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_processes_that_begin_at_once_lose_nothing(tmp_path: Path) -> None:
    space = ("openai", "u", "m", 8, "")
    own = [[vector_key(*space, f"{process} {number}") for number in range(30)] for process in range(4)]
    children = []
    for process, mine in enumerate(own):
        if (child := os.fork()) == 0:
            store = VectorStore(tmp_path / "vectors")
            for start in range(0, 30, 10):
                store.keep({key: one(process) for key in mine[start : start + 10]})
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    store = VectorStore(tmp_path / "vectors")
    for process, mine in enumerate(own):
        assert {tuple(vector) for vector in store.find(mine, 8).values()} == {tuple(one(process))}
        assert len(store.find(mine, 8)) == 30


def test_a_file_that_another_process_began_anew_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(b"no database at all, though longer than the header of one" * 4)
    (key,) = keys(1)
    late, other = VectorStore(path), VectorStore(path)
    with pytest.raises(sqlite3.DatabaseError) as damage:
        late._connection()
    other.keep({key: one(1)})
    late._put_aside(damage.value)
    assert list(late.find([key], 8)) == [key]
