"""The client that embeds queries and documents.

The engine and `omnigraph embed` call it. It asks its provider in batches, checks and normalises the vectors, stores
those of documents, and logs each call. It never logs a text or a key.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from omnigraph.embeddings.configuration import (
    EmbeddingConfig,
    ProviderKind,
    logger,
)
from omnigraph.embeddings.http_provider import GeminiProvider, OpenAIProvider
from omnigraph.embeddings.provider import (
    RETRY_VARIABLES,
    BatchRefusedError,
    MockProvider,
    Provider,
    RetrySettings,
    Role,
    Usage,
    unit_vector,
)
from omnigraph.embeddings.vector_store import CACHE, CACHE_MIB, VectorStore, shared_store, vector_key
from omnigraph.errors import EmbeddingError

MOST_TEXTS: Final = 64
MOST_BYTES: Final = 256 << 10


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in order, at most 64 of them and 256 KiB together. A text that is larger goes alone."""
    batch: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode("utf-8", "replace"))
        if batch and (len(batch) == MOST_TEXTS or size + length > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += length
    if batch:
        yield batch


CLIENT_VARIABLES: Final = (*RETRY_VARIABLES.values(), CACHE, CACHE_MIB)
"""The variables that `open_client` needs in another process. No key is among them."""


@dataclass(eq=False)
class EmbeddingClient:
    """Embeds with one provider under one configuration. It looks for the vectors of documents in `stores`, first to
    last, before it asks the provider, and keeps new ones in all of them. Without stores, every call asks."""

    config: EmbeddingConfig
    provider: Provider
    _: KW_ONLY
    stores: Sequence[VectorStore] = ()
    role_matters: bool = True
    usage: Usage = field(default_factory=Usage)
    _one_by_one: bool = field(default=False, init=False)

    @property
    def model(self) -> str:
        return self.config.model

    @property
    def is_mock(self) -> bool:
        return self.config.is_mock

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        """A unit vector of the given dimension, always from the provider."""
        _check_dimension(dimension)
        self.usage.count(texts=1)
        return self._alone(text, dimension, Role.QUERY)

    def embed_documents(self, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
        """A unit vector for each text, one below the other. Equal texts are asked for once, stored ones never. Vectors
        are kept before the next request is made, so a failure loses nothing."""
        _check_dimension(dimension)
        keys = self._keys(texts, dimension)
        vectors: dict[str, NDArray[np.float32]] = {}
        for store in self.stores:
            wanted = {key: text for text, key in keys.items() if text not in vectors}
            stored = store.find(list(wanted), dimension)
            vectors |= {wanted[key]: vector for key, vector in stored.items()}
        self.usage.count(texts=len(texts), reused=len(texts) - len(keys) + len(vectors))
        for batch in batches([text for text in keys if text not in vectors]):
            for answers in self._answers(batch, dimension):
                vectors |= answers
                self._keep({keys[text]: vector for text, vector in answers.items()})
        return np.stack([vectors[text] for text in texts]) if texts else np.empty((0, dimension), np.float32)

    def _answers(self, batch: Sequence[str], dimension: int) -> Iterable[dict[str, NDArray[np.float32]]]:
        """The vectors of a batch, one piece per request. A text without a vector in the response is asked for alone."""
        is_refused = False
        if len(batch) > 1 and not self._one_by_one:
            try:
                answers = self._ask(batch, dimension, Role.DOCUMENT)
            except BatchRefusedError as refusal:
                is_refused = True
                logger.warning("provider=%s takes one text at a time: %s", self.config.provider.value, refusal)
            else:
                answered = {text: vector for text, vector in zip(batch, answers, strict=True) if vector is not None}
                yield answered
                batch = [text for text in batch if text not in answered]
        for text in batch:
            yield {text: self._alone(text, dimension, Role.DOCUMENT)}
        # None of the texts was refused alone, so the provider refused that they came together.
        self._one_by_one = self._one_by_one or is_refused

    def _alone(self, text: str, dimension: int, role: Role) -> NDArray[np.float32]:
        (answer,) = self._ask([text], dimension, role)
        if answer is None:
            raise EmbeddingError("embedding response has no vector")
        return answer

    def _ask(self, texts: Sequence[str], dimension: int, role: Role) -> list[NDArray[np.float32] | None]:
        """One call of the provider, checked and logged. Usable vectors are kept, even if one beside them is not."""
        began = time.monotonic()
        checked: list[NDArray[np.float32] | None] = []
        failure: EmbeddingError | None = None
        level, outcome = logging.WARNING, "failed"
        try:
            for answer in self.provider.embed(texts, dimension, role):
                try:
                    checked.append(None if answer is None else unit_vector(answer, dimension))
                except EmbeddingError as error:
                    checked.append(None)
                    failure = failure or error
            if len(checked) != len(texts):
                raise EmbeddingError(f"the provider gave {len(checked)} vectors for {len(texts)} texts")
            if failure is not None:
                usable = zip(self._keys(texts, dimension).values(), checked, strict=True)
                self._keep({key: vector for key, vector in usable if vector is not None})
                raise failure
            level, outcome = logging.INFO, "ok"
        finally:
            call = (self.config.provider.value, self.config.model, dimension, len(texts), time.monotonic() - began)
            logger.log(level, "provider=%s model=%s dimension=%d texts=%d elapsed=%.3fs %s", *call, outcome)
        return checked

    def _keys(self, texts: Sequence[str], dimension: int) -> dict[str, bytes]:
        role = Role.DOCUMENT.value if self.role_matters else ""
        space = (self.config.provider.value, self.config.base_url, self.config.model, dimension, role)
        return {text: vector_key(*space, text) for text in dict.fromkeys(texts)}

    def _keep(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        for store in self.stores:
            store.keep(vectors)


def open_client(
    config: EmbeddingConfig, environment: Mapping[str, str] | None = None, *, stores: Sequence[VectorStore] = ()
) -> EmbeddingClient:
    """A client for a resolved configuration; variables limit its requests and name its store. Vectors are kept in
    `stores` and in the store of this user. Those of the mock and of a local model cost nothing, and are computed
    again."""
    environment = os.environ if environment is None else environment
    if config.provider is ProviderKind.MOCK:
        return EmbeddingClient(config, MockProvider())
    if config.provider is ProviderKind.LOCAL:
        from omnigraph.embeddings.local import LocalProvider

        return EmbeddingClient(config, LocalProvider(config))
    usage, kind = Usage(), GeminiProvider if config.provider is ProviderKind.GEMINI else OpenAIProvider
    provider = kind(config, RetrySettings.from_environment(environment), usage)
    shared = shared_store(environment)
    kept = (*stores, *((shared,) if shared is not None else ()))
    return EmbeddingClient(config, provider, stores=kept, role_matters=kind.role_matters, usage=usage)


def _check_dimension(dimension: int) -> None:
    if dimension <= 0:
        raise EmbeddingError("embedding dimension must be greater than zero")
