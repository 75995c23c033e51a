"""The client that queries and documents are embedded with.

It asks its provider, checks and normalises the answer, and records the call; texts and keys are never logged.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from omnigraph.embeddings.configuration import EmbeddingConfig, ProviderKind, config_from_environment, logger
from omnigraph.embeddings.mock import MockProvider
from omnigraph.embeddings.provider import Provider, Role, unit_vector
from omnigraph.errors import EmbeddingError


class EmbeddingClient:
    """Embeds with one provider under one configuration."""

    def __init__(self, config: EmbeddingConfig, provider: Provider) -> None:
        self.config = config
        self._provider = provider

    @property
    def model(self) -> str:
        return self.config.model

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        return self.embed(text, dimension, Role.QUERY)

    def embed(self, text: str, dimension: int, role: Role) -> NDArray[np.float32]:
        """A unit vector of the given dimension."""
        if dimension <= 0:
            raise EmbeddingError("embedding dimension must be greater than zero")
        began = time.monotonic()
        called = (self.config.provider.value, self.config.model, dimension)
        try:
            vector = unit_vector(self._provider.embed(text, dimension, role), dimension)
        except EmbeddingError:
            logger.warning("provider=%s model=%s dimension=%d elapsed=%.3fs failed", *called, time.monotonic() - began)
            raise
        logger.info("provider=%s model=%s dimension=%d elapsed=%.3fs ok", *called, time.monotonic() - began)
        return vector


def open_client(config: EmbeddingConfig) -> EmbeddingClient:
    """A client for a resolved configuration."""
    if config.provider is not ProviderKind.MOCK:
        raise EmbeddingError(
            f"this installation has no connection to the {config.provider} embedding provider; "
            "pass a vector to nearest, or an EmbeddingClient with your own provider"
        )
    return EmbeddingClient(config, MockProvider())


class EnvironmentEmbedder:
    """A client resolved from variables on first use, once; a graph that never embeds needs none of them.

    A failed resolution is tried again the next time, since somebody may have set the variable by then.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._client: EmbeddingClient | None = None
        self._lock = threading.Lock()

    @property
    def client(self) -> EmbeddingClient:
        with self._lock:
            if self._client is None:
                self._client = open_client(config_from_environment(self._environment))
            return self._client

    @property
    def model(self) -> str:
        return self.client.model

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        return self.client.embed_query(text, dimension)
