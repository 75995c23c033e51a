"""What a client accepts as an answer, and what the engine accepts as a client."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from omnigraph.embeddings.client import EmbeddingClient, open_client
from omnigraph.embeddings.configuration import EmbeddingConfig, ProviderKind
from omnigraph.embeddings.environment import EnvironmentEmbedder
from omnigraph.embeddings.provider import Role
from omnigraph.engine.query.search.embedder import query_vector
from omnigraph.errors import BadRequestError, EmbeddingError
from omnigraph.language.catalog import EmbedSource, Property
from omnigraph.language.types import PropertyType


class Answering:
    """A provider that gives one prepared answer and remembers what it was asked for."""

    def __init__(self, *numbers: float) -> None:
        self.answer = np.array(numbers, np.float32)
        self.asked: list[tuple[str, int, Role]] = []

    def embed(self, texts: Sequence[str], dimension: int, role: Role) -> list[NDArray[np.float32] | None]:
        self.asked += [(text, dimension, role) for text in texts]
        return [self.answer for _ in texts]


def client(provider: Answering, model: str = "m") -> EmbeddingClient:
    return EmbeddingClient(EmbeddingConfig(ProviderKind.OPENAI, model, "u", "secret"), provider)


def test_an_answer_is_normalised() -> None:
    assert client(Answering(3, 4)).embed_query("x", 2).tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize(
    ("answer", "dimension", "message"),
    [
        ((1, 2, 3), 2, "embedding dimension mismatch: expected 2, got 3"),
        ((1, float("nan")), 2, "component 1 is not finite"),
        ((float("inf"), 1), 2, "component 0 is not finite"),
        ((0, 0), 2, "zero norm"),
        ((1e-8, 0), 2, "zero norm"),
        ((1, 2), 0, "embedding dimension must be greater than zero"),
    ],
)
def test_unusable_answers_are_refused(answer: tuple[float, ...], dimension: int, message: str) -> None:
    with pytest.raises(EmbeddingError, match=message):
        client(Answering(*answer)).embed_query("x", dimension)


def test_calls_are_logged_without_text_or_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        client(Answering(1, 0)).embed_query("private text", 2)
        with pytest.raises(EmbeddingError):
            client(Answering(0, 0)).embed_query("private text", 2)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert {record.name for record in caplog.records} == {"omnigraph::embedding"}
    assert "model=m" in caplog.text
    assert "private" not in caplog.text
    assert "secret" not in caplog.text


class Forgetful(Answering):
    """A provider that answers fewer texts than it was asked for."""

    def embed(self, texts: Sequence[str], dimension: int, role: Role) -> list[NDArray[np.float32] | None]:
        return super().embed(texts, dimension, role)[1:]


def test_answers_are_counted() -> None:
    with pytest.raises(EmbeddingError, match="the provider gave 1 vectors for 2 texts"):
        client(Forgetful(1, 0)).embed_documents(["a", "b"], 2)


def test_equal_documents_are_asked_for_once() -> None:
    provider = Answering(3, 4)
    assert client(provider).embed_documents(["a", "b", "a"], 2).tolist() == [pytest.approx([0.6, 0.8])] * 3
    assert [text for text, _, _ in provider.asked] == ["a", "b"]
    assert client(provider).embed_documents([], 2).shape == (0, 2)


def vector_property(model: str | None) -> Property:
    return Property(name="vec", id=1, type=PropertyType.vector(2), column="vec", embed=EmbedSource("title", model))


def test_a_query_text_is_embedded_at_the_dimension_of_the_property() -> None:
    provider = Answering(1, 0)
    assert query_vector(client(provider), "Book", vector_property(None), "tides").tolist() == [1, 0]
    assert provider.asked == [("tides", 2, Role.QUERY)]


def test_another_model_than_the_recorded_one_is_refused_before_any_call() -> None:
    provider = Answering(1, 0)
    with pytest.raises(BadRequestError) as refused:
        query_vector(client(provider, "text-embedding-3-large"), "Book", vector_property("openai/x"), "tides")
    for part in ("Book.vec", "'openai/x'", "'text-embedding-3-large'", "OMNIGRAPH_EMBED_MODEL='openai/x'"):
        assert part in str(refused.value)
    assert provider.asked == []
    assert query_vector(client(provider, "openai/x"), "Book", vector_property("openai/x"), "t").size == 2


@pytest.mark.parametrize(
    ("recorded", "provider"),
    [
        ("openai/text-embedding-3-large", "OMNIGRAPH_EMBED_PROVIDER=openai-compatible"),
        ("text-embedding-3-small", "OMNIGRAPH_EMBED_PROVIDER=openai"),
        ("gemini-embedding-2", "OMNIGRAPH_EMBED_PROVIDER=gemini"),
        ("all-MiniLM-L6-v2", "OMNIGRAPH_EMBED_PROVIDER=local"),
        ("house-model", "OMNIGRAPH_EMBED_PROVIDER to the provider that has it"),
    ],
)
def test_the_mock_passes_for_no_model_and_the_advice_names_the_provider(recorded: str, provider: str) -> None:
    variables = {"OMNIGRAPH_EMBEDDINGS_MOCK": "1", "OMNIGRAPH_EMBED_MODEL": recorded}
    for mock in (EnvironmentEmbedder(variables), open_client(EmbeddingConfig(ProviderKind.MOCK, recorded), {})):
        with pytest.raises(BadRequestError) as refused:
            query_vector(mock, "Book", vector_property(recorded), "tides")
        for part in ("the mock", f"'{recorded}'", provider, f"OMNIGRAPH_EMBED_MODEL='{recorded}'", "EMBEDDINGS_MOCK"):
            assert part in str(refused.value)


@pytest.mark.parametrize("recorded", ["mock", None])
def test_the_mock_answers_to_its_own_name(recorded: str | None) -> None:
    mock = EnvironmentEmbedder({"OMNIGRAPH_EMBED_PROVIDER": "mock", "OMNIGRAPH_EMBED_MODEL": "a label"})
    assert query_vector(mock, "Book", vector_property(recorded), "tides").size == 2
    for name in ("text-embedding-3-large", "mock") if recorded is not None else ():
        with pytest.raises(BadRequestError, match="holds vectors of model 'mock'"):
            query_vector(client(Answering(1, 0), name), "Book", vector_property(recorded), "tides")


def test_a_mock_without_a_label_is_called_the_mock() -> None:
    with pytest.raises(BadRequestError, match="embedded with the mock, whose vectors mean nothing; embed with"):
        query_vector(EnvironmentEmbedder({"OMNIGRAPH_EMBED_PROVIDER": "mock"}), "Book", vector_property("x"), "tides")


def test_another_model_is_told_before_a_missing_key() -> None:
    keyless = EnvironmentEmbedder({"OMNIGRAPH_EMBED_PROVIDER": "openai"})
    with pytest.raises(BadRequestError, match="'openai/x', but texts are embedded with 'text-embedding-3-large'"):
        query_vector(keyless, "Book", vector_property("openai/x"), "tides")
    with pytest.raises(EmbeddingError, match="OPENAI_API_KEY is required"):
        query_vector(keyless, "Book", vector_property("text-embedding-3-large"), "tides")


def test_a_text_needs_a_client() -> None:
    with pytest.raises(BadRequestError, match=r"Book\.vec.*without an embedding client"):
        query_vector(None, "Book", vector_property(None), "tides")
