"""Which provider, model, address and key a set of variables resolves to."""

from __future__ import annotations

import logging

import pytest

from omnigraph.embeddings.configuration import EmbeddingConfig, ProviderKind, config_from_environment
from omnigraph.embeddings.environment import EnvironmentEmbedder
from omnigraph.embeddings.provider import RetrySettings, TransientError
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


def test_the_model_is_known_without_a_key() -> None:
    assert EnvironmentEmbedder({"OMNIGRAPH_EMBED_PROVIDER": "openai"}).model == "text-embedding-3-large"
    assert EnvironmentEmbedder({"OMNIGRAPH_EMBED_MODEL": "m"}).model == "m"
    with pytest.raises(EmbeddingError, match="OPENAI_API_KEY is required"):
        EnvironmentEmbedder({"OMNIGRAPH_EMBED_PROVIDER": "openai"}).embed_query("x", 2)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("7", 7), (" +7 ", 7), ("0", None), ("-1", None), ("1.5", None), ("seven", None), ("", None), ("9" * 30, None)],
)
def test_how_long_is_asked(value: str, expected: int | None) -> None:
    variables = {f"OMNIGRAPH_EMBED_{name}_MS": value for name in ("DEADLINE", "TIMEOUT", "RETRY_BACKOFF")} | {
        "OMNIGRAPH_EMBED_RETRY_ATTEMPTS": value
    }
    deadline = 0 if value == "0" else expected or 60_000
    assert RetrySettings.from_environment(variables) == RetrySettings(
        expected or 4, expected or 200, expected or 30_000, deadline
    )


def test_pauses_double_ten_times() -> None:
    settings, failure = RetrySettings(), TransientError("busy")
    assert [settings.pause(n, failure) for n in (1, 2, 3, 11, 12, 40)] == [0.2, 0.4, 0.8, 204.8, 204.8, 204.8]
    assert settings.pause(1, TransientError("busy", retry_after=7)) == 7
