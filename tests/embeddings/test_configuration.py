"""Which provider, model, address and key a set of variables resolves to."""

from __future__ import annotations

import logging

import pytest

from omnigraph.embeddings import EmbeddingConfig, EnvironmentEmbedder, ProviderKind, config_from_environment
from omnigraph.errors import EmbeddingError

OPENROUTER = "https://openrouter.ai/api/v1"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {"OPENROUTER_API_KEY": "r"},
            EmbeddingConfig(ProviderKind.OPENAI_COMPATIBLE, "openai/text-embedding-3-large", OPENROUTER, "r"),
        ),
        (
            {"OPENROUTER_API_KEY": " ", "OPENAI_API_KEY": " o "},
            EmbeddingConfig(ProviderKind.OPENAI_COMPATIBLE, "openai/text-embedding-3-large", OPENROUTER, "o"),
        ),
        (
            {"OPENROUTER_API_KEY": "r", "OPENAI_API_KEY": "o"},
            EmbeddingConfig(ProviderKind.OPENAI_COMPATIBLE, "openai/text-embedding-3-large", OPENROUTER, "r"),
        ),
        (
            {"OMNIGRAPH_EMBED_PROVIDER": "openai", "OPENROUTER_API_KEY": "r", "OPENAI_API_KEY": "o"},
            EmbeddingConfig(ProviderKind.OPENAI, "text-embedding-3-large", "https://api.openai.com/v1", "o"),
        ),
        (
            {
                "OMNIGRAPH_EMBED_PROVIDER": "gemini",
                "GEMINI_API_KEY": "g",
                "OMNIGRAPH_EMBED_MODEL": "m",
                "OMNIGRAPH_EMBED_BASE_URL": "http://here/v1//",
            },
            EmbeddingConfig(ProviderKind.GEMINI, "m", "http://here/v1", "g"),
        ),
        ({"OMNIGRAPH_EMBED_PROVIDER": "mock"}, EmbeddingConfig(ProviderKind.MOCK, "")),
        ({"OMNIGRAPH_EMBEDDINGS_MOCK": " Yes ", "OMNIGRAPH_EMBED_MODEL": "m"}, EmbeddingConfig(ProviderKind.MOCK, "m")),
        (
            {"OMNIGRAPH_EMBEDDINGS_MOCK": "0", "OPENAI_API_KEY": "o"},
            EmbeddingConfig(ProviderKind.OPENAI_COMPATIBLE, "openai/text-embedding-3-large", OPENROUTER, "o"),
        ),
    ],
)
def test_resolution(environment: dict[str, str], expected: EmbeddingConfig) -> None:
    assert config_from_environment(environment) == expected


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "OPENROUTER_API_KEY or OPENAI_API_KEY is required for the openai-compatible embedding provider"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "openai"}, "OPENAI_API_KEY is required for the openai embedding provider"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "gemini"}, "GEMINI_API_KEY is required for the gemini embedding provider"),
        (
            {"OMNIGRAPH_EMBED_PROVIDER": "Mock"},
            r"unknown embedding provider 'Mock'; use openai-compatible\|openai\|gemini\|mock",
        ),
    ],
)
def test_refusals_name_what_is_missing(environment: dict[str, str], message: str) -> None:
    with pytest.raises(EmbeddingError, match=message):
        config_from_environment(environment)


def test_the_mock_flag_wins_over_another_provider_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = config_from_environment({"OMNIGRAPH_EMBEDDINGS_MOCK": "1", "OMNIGRAPH_EMBED_PROVIDER": "gemini"})
    assert config.provider is ProviderKind.MOCK
    assert "gemini" in caplog.text


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(EmbeddingConfig(ProviderKind.OPENAI, "m", "u", "secret"))


def test_a_failed_resolution_is_tried_again() -> None:
    environment: dict[str, str] = {}
    embedder = EnvironmentEmbedder(environment)
    with pytest.raises(EmbeddingError, match="OPENROUTER_API_KEY"):
        embedder.embed_query("alpha", 4)
    environment["OMNIGRAPH_EMBEDDINGS_MOCK"] = "on"
    assert embedder.embed_query("alpha", 4).shape == (4,)
    environment.clear()
    assert embedder.model == ""
