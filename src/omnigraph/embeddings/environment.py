"""The embedding client of a graph for which the program chose none: that of the environment, made when it is needed.

`omnigraph.open` gives it to the engine. A graph that never embeds reads no variable, opens no store of vectors and
imports neither a provider nor NumPy.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from omnigraph.embeddings.configuration import config_from_environment, model_from_environment

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from omnigraph.embeddings.client import EmbeddingClient


class EnvironmentEmbedder:
    """A client resolved from variables on first use; a graph that never embeds needs none of them. A failed resolution
    is tried again the next time, because the variable may be set by then."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._client: EmbeddingClient | None = None
        self._lock = threading.Lock()

    @property
    def client(self) -> EmbeddingClient:
        from omnigraph.embeddings.client import open_client

        with self._lock:
            if self._client is None:
                self._client = open_client(config_from_environment(self._environment), self._environment)
            return self._client

    @property
    def model(self) -> str:
        """Known without a key: a wrong model is reported before a missing key."""
        with self._lock:
            return model_from_environment(self._environment)[0] if self._client is None else self._client.model

    @property
    def is_mock(self) -> bool:
        with self._lock:
            return model_from_environment(self._environment)[1] if self._client is None else self._client.is_mock

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        return self.client.embed_query(text, dimension)

    def embed_documents(self, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
        return self.client.embed_documents(texts, dimension)
