"""Who is known by a certificate is asked, who is not is refused, and without encryption none is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph.embeddings.client import open_client
from omnigraph.embeddings.configuration import EmbeddingConfig, ProviderKind
from omnigraph.errors import BadRequestError, EmbeddingError, ServerUnreachableError
from tests.support.certificates import EncryptedServer
from tests.support.http_server import Answer, HttpServer

BODY = b'{"branches": ["main"], "data": [{"index": 0, "embedding": [3.0, 4.0]}]}'
"""What a graph answers, and an embedding provider."""


def answer(environ: dict[str, object]) -> Answer:
    return "200 OK", [("Content-Length", str(len(BODY))), ("Content-Type", "application/json")], BODY


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[EncryptedServer]:
    server = EncryptedServer(answer, tmp_path)
    yield server
    server.close()


@pytest.fixture
def plain() -> Iterator[HttpServer]:
    server = HttpServer(answer)
    yield server
    server.close()


def asked(url: str) -> list[list[str]]:
    """What both kinds of clients are told."""

    async def waiting() -> list[str]:
        async with omnigraph.connect_async(url, graph="kb", retries=False) as graph:
            return await graph.list_branches()

    with omnigraph.connect(url, graph="kb", retries=False) as graph:
        return [graph.list_branches(), asyncio.run(waiting())]


def embedded(url: str) -> list[float]:
    environment = {"OMNIGRAPH_EMBED_RETRY_ATTEMPTS": "1", "OMNIGRAPH_EMBED_CACHE": "off"}
    config = EmbeddingConfig(ProviderKind.OPENAI, "m", url, "key")
    vector: list[float] = open_client(config, environment).embed_query("x", 2).tolist()
    return vector


def test_a_certificate_that_is_named_is_trusted(encrypted: EncryptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(encrypted.certificate))
    url = f"https://127.0.0.1:{encrypted.port}"
    assert asked(url) == [["main"], ["main"]]
    assert embedded(url) == pytest.approx([0.6, 0.8])


def test_any_other_is_refused(encrypted: EncryptedServer) -> None:
    url = f"https://127.0.0.1:{encrypted.port}"
    with pytest.raises(ServerUnreachableError, match="certificate verify failed"):
        asked(url)
    with pytest.raises(EmbeddingError, match="certificate verify failed"):
        embedded(url)


def test_certificates_are_loaded_only_where_they_are_needed(
    plain: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    url = f"http://127.0.0.1:{plain.port}"
    assert asked(url) == [["main"], ["main"]]
    assert embedded(url) == pytest.approx([0.6, 0.8])
    with pytest.raises(BadRequestError, match="SSL_CERT_FILE"):
        omnigraph.connect("https://graphs.example", graph="kb")
    with pytest.raises(EmbeddingError, match="embedding request failed: FileNotFoundError"):
        embedded("https://provider.example/v1")
