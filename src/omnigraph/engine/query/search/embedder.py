"""Turning texts into vectors, of a `nearest` or of rows that are written: what the engine expects of a client.

The engine never chooses a provider and never reads the environment; the caller that opens a graph passes a
client in. Vectors given as numbers don't come through here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from omnigraph.errors import BadRequestError, EmbeddingError
from omnigraph.language.catalog import Property


class Embedder(Protocol):
    """A source of query vectors. Failing to resolve a provider or a key may show on first use of either member.

    One whose vectors mean nothing, made for tests, says so by an attribute `is_mock` that is true.
    """

    @property
    def model(self) -> str:
        """The model whose vectors it gives, in the provider's own spelling."""
        ...

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        """A unit vector of the given dimension."""
        ...


@runtime_checkable
class DocumentEmbedder(Embedder, Protocol):
    """A client that also makes the vectors of stored texts; needed where a write computes them."""

    def embed_documents(self, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
        """A unit vector for each text, one below the other."""
        ...


MOCK_MODEL: Final = "mock"
"""What a property records whose vectors come from the mock. Its own name is the only one that the mock answers to."""

_PROVIDERS: Final = (
    (re.compile(r".+/.+"), "openai-compatible"),
    (re.compile(r"text-embedding-(3|ada)"), "openai"),
    (re.compile(r"gemini-|text-embedding-0"), "gemini"),
    (re.compile(r"all-MiniLM"), "local"),
    (re.compile(rf"{MOCK_MODEL}$"), "mock"),
)
"""The provider of a model, by the beginning of its name."""


def check_embedder(embedder: Embedder, owner: str, prop: Property) -> None:
    """Refuse a client whose vectors do not go with those of a property."""
    check_model(embedder.model, owner, prop, is_mock=getattr(embedder, "is_mock", False))


def check_model(model: str, owner: str, prop: Property, *, is_mock: bool) -> None:
    """Vectors of two models are not comparable: a property that records its model has vectors of that one only. The
    mock makes the same vectors under every label, so its label says nothing."""
    recorded = prop.embed.model if prop.embed is not None else None
    if recorded is None or (recorded == MOCK_MODEL if is_mock else recorded == model != MOCK_MODEL):
        return
    label = f" (labelled '{model}')" if model else ""
    used = f"the mock{label}, whose vectors mean nothing" if is_mock else f"'{model}'"
    kind = next((name for pattern, name in _PROVIDERS if pattern.match(recorded)), None)
    provider = f"OMNIGRAPH_EMBED_PROVIDER={kind}" if kind else "OMNIGRAPH_EMBED_PROVIDER to the provider that has it"
    without = " without OMNIGRAPH_EMBEDDINGS_MOCK" if is_mock else ""
    raise BadRequestError(
        f"{owner}.{prop.name} holds vectors of model '{recorded}', but texts are embedded with {used}; embed with that "
        f"model: set {provider} and OMNIGRAPH_EMBED_MODEL='{recorded}'{without} "
        "(on a cluster: `kind` and `model` of the graph's embedding provider), or give the vectors themselves"
    )


def query_vector(embedder: Embedder | None, owner: str, prop: Property, text: str) -> NDArray[np.float32]:
    """Embed a query text for a vector property of type `owner`."""
    if embedder is None:
        raise BadRequestError(
            f'nearest({owner}.{prop.name}, "...") has to embed its text, and this graph was opened without an '
            "embedding client; pass a vector, or open it with one"
        )
    check_embedder(embedder, owner, prop)
    dimension = prop.type.dimension
    if dimension is None:
        raise ValueError(f"{owner}.{prop.name} is not a vector")
    return embedder.embed_query(text, dimension)


def document_vectors(embedder: DocumentEmbedder, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
    """Embed texts that are written. A client may be anybody's, and what it gives is stored: so it is checked."""
    answer = embedder.embed_documents(texts, dimension)
    try:
        with np.errstate(over="ignore"):  # a number beyond the range becomes infinite
            vectors = np.asarray(answer, np.float32)
    except (TypeError, ValueError):
        raise EmbeddingError("the embedding client gave no vectors of numbers") from None
    if vectors.shape != (len(texts), dimension):
        raise EmbeddingError(
            f"the embedding client gave an array of shape {vectors.shape}: {len(texts)} texts at dimension {dimension} "
            f"need one of shape {(len(texts), dimension)}"
        )
    if not np.isfinite(vectors).all():
        raise EmbeddingError("the embedding client gave a vector with a number that is not finite")
    return vectors
