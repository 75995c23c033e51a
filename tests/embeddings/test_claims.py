"""Who wants a text that somebody else is asking for waits for it, and asks itself when nothing comes of that."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from omnigraph.embeddings import EmbeddingConfig, ProviderKind, open_client
from omnigraph.embeddings.claims import Claims
from omnigraph.errors import EmbeddingError
from tests.support.embedding_server import Asked, EmbeddingServer, Reply, proper, vector_of
from tests.support.waiting import wait_until

KEYS = {"a": b"a" * 32, "b": b"b" * 32}


@pytest.fixture
def somebody() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def release(somebody: ThreadPoolExecutor) -> Iterator[threading.Event]:
    """Set when an answer that is held back may come, at the latest when the test ends."""
    event = threading.Event()
    yield event
    event.set()


def held_back(release: threading.Event, answer: Callable[[Asked], Reply]) -> Callable[[Asked], Reply]:
    def late(asked: Asked) -> Reply:
        release.wait()
        return answer(asked)

    return late


def embedded(provider: EmbeddingServer, environment: dict[str, str], texts: list[str]) -> NDArray[np.float32]:
    """By a client of its own, as another process would have it."""
    config = EmbeddingConfig(ProviderKind.OPENAI, "m", provider.url, "key")
    return open_client(config, environment).embed_documents(texts, 2)


def wait_for_the_first(provider: EmbeddingServer) -> None:
    wait_until(lambda: provider.asked, "somebody asked the provider")


def wait_for_waiting(caplog: pytest.LogCaptureFixture) -> None:
    wait_until(lambda: "somebody else already: waiting" in caplog.text, "somebody waits")


def test_a_text_that_somebody_is_asking_for_is_waited_for(
    provider: EmbeddingServer,
    quick: dict[str, str],
    release: threading.Event,
    somebody: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    provider.faults.append(held_back(release, proper))
    first = somebody.submit(embedded, provider, quick, ["a", "b"])
    wait_for_the_first(provider)
    second = somebody.submit(embedded, provider, quick, ["b", "c"])
    wait_for_waiting(caplog)
    release.set()
    assert np.allclose(first.result(), [vector_of(text, 2) for text in "ab"])
    assert np.allclose(second.result(), [vector_of(text, 2) for text in "bc"])
    assert [asked.texts for asked in provider.asked] == [["a", "b"], ["c"]]


def test_who_waited_for_a_failure_asks(
    provider: EmbeddingServer,
    quick: dict[str, str],
    release: threading.Event,
    somebody: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    provider.faults.append(held_back(release, lambda asked: Reply(401, "no credit")))
    first = somebody.submit(embedded, provider, quick, ["a"])
    wait_for_the_first(provider)
    second = somebody.submit(embedded, provider, quick, ["a"])
    wait_for_waiting(caplog)
    release.set()
    with pytest.raises(EmbeddingError, match="no credit"):
        first.result()
    assert second.result().shape == (1, 2)


def test_many_who_want_the_same_pay_once(
    provider: EmbeddingServer, quick: dict[str, str], somebody: ThreadPoolExecutor
) -> None:
    draws = random.Random(7)
    lists = [draws.sample([f"text {number}" for number in range(90)], 80) for _ in range(6)]
    found = list(somebody.map(lambda texts: embedded(provider, quick, texts), lists))
    for texts, vectors in zip(lists, found, strict=True):
        assert np.allclose(vectors, [vector_of(text, 2) for text in texts])
    assert set(provider.paid.values()) == {1}


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_a_claim_goes_with_the_process_that_holds_it(tmp_path: Path) -> None:
    told, tells = os.pipe()
    claims = Claims(tmp_path / "claims")
    if (child := os.fork()) == 0:
        portions = claims.portions(KEYS)
        os.write(tells, b"1" if next(portions) == KEYS else b"0")
        signal.pause()
    assert os.read(told, 1) == b"1"
    with closing(claims.portions({**KEYS, "c": b"c" * 32})) as portions:
        free = next(portions)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert list(free) == ["c"], "what is free is not waited for"
        assert next(portions) == KEYS
    os.close(told)
    os.close(tells)


def test_nobody_waits_for_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stuck, other = Claims(tmp_path / "claims"), Claims(tmp_path / "claims")
    with closing(stuck.portions(KEYS)) as held:
        assert next(held) == KEYS
        assert list(other.portions(KEYS, longest_wait=0)) == [KEYS]
    assert "gets no answer: asked again" in caplog.text
    caplog.clear()
    assert list(other.portions(KEYS, longest_wait=0)) == [KEYS]
    assert caplog.text == ""


def test_where_nothing_can_be_locked_everybody_asks(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for claims in (Claims(tmp_path / "file" / "claims"), Claims(tmp_path), Claims(None)):
        assert list(claims.portions(KEYS)) == [KEYS]
