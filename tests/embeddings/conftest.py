from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.embedding_server import EmbeddingServer, embedding_server


@pytest.fixture
def provider() -> Iterator[EmbeddingServer]:
    with embedding_server() as server:
        yield server


@pytest.fixture
def quick(tmp_path: Path) -> dict[str, str]:
    """Variables that make a client retry without delay, and keep its vectors in a place of its own."""
    return {"OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": "1", "OMNIGRAPH_EMBED_CACHE": str(tmp_path / "cache")}
