"""An embedding profile: what it comes to on one machine, and what it never shows."""

from __future__ import annotations

import pytest

from omnigraph.cluster.config_files import check_profile
from omnigraph.embeddings.configuration import EmbeddingProfile, ProviderKind
from omnigraph.errors import EmbeddingError


def test_the_key_is_read_from_the_variable_it_names() -> None:
    profile = EmbeddingProfile(kind="openai", api_key="${MY_KEY}")
    config = profile.resolve({"MY_KEY": " hunter2 ", "OPENAI_API_KEY": "other", "OMNIGRAPH_EMBEDDINGS_MOCK": "1"})
    assert (config.provider, config.api_key) == (ProviderKind.OPENAI, "hunter2")
    assert (config.base_url, config.model) == ("https://api.openai.com/v1", "text-embedding-3-large")
    assert "hunter2" not in repr(config)


def test_what_a_profile_says_wins_over_defaults() -> None:
    profile = EmbeddingProfile(base_url="http://here/", model="m", api_key="${K}")
    config = profile.resolve({"K": "k", "OMNIGRAPH_EMBED_MODEL": "other"})
    assert (config.provider, config.base_url, config.model) == (ProviderKind.OPENAI_COMPATIBLE, "http://here", "m")


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        (EmbeddingProfile(kind="gemini", api_key="${ABSENT}"), "ABSENT"),
        (EmbeddingProfile(kind="gemini", api_key="${BLANK}"), "BLANK"),
        (EmbeddingProfile(kind="gemini"), "needs an api_key"),
        (EmbeddingProfile(kind="gemini", api_key="hunter2"), "has to name a variable"),
        (EmbeddingProfile(kind="gemini", api_key="x${KEY}"), "has to name a variable"),
        (EmbeddingProfile(kind="psychic"), "unknown embedding provider 'psychic'"),
    ],
)
def test_what_can_not_be_resolved(profile: EmbeddingProfile, reason: str) -> None:
    with pytest.raises(EmbeddingError, match=reason) as error:
        profile.resolve({"BLANK": " ", "KEY": "hunter2"})
    assert "hunter2" not in str(error.value)


def test_the_mock_needs_no_key() -> None:
    assert EmbeddingProfile(kind="mock", model="m").resolve({"OMNIGRAPH_EMBED_MODEL": "n"}).model == "m"
    assert EmbeddingProfile(kind="mock").resolve({"OMNIGRAPH_EMBED_MODEL": " n "}).model == "n"
    assert EmbeddingProfile(kind="mock").resolve({}).model == ""


def test_a_local_model_needs_no_key() -> None:
    config = EmbeddingProfile(kind="local").resolve({"OMNIGRAPH_EMBEDDINGS_MOCK": "1"})
    assert (config.provider, config.model, config.base_url) == (ProviderKind.LOCAL, "all-MiniLM-L6-v2", "")
    assert EmbeddingProfile(kind="local", base_url="/models/mine/", model="m").resolve({}).base_url == "/models/mine"


@pytest.mark.parametrize(("kind", "needs_key"), [("local", False), ("mock", False), ("openai", True), (None, True)])
def test_whether_a_cluster_asks_for_a_key(kind: str | None, needs_key: bool) -> None:
    found = [each.code for each in check_profile("providers.embedding.e", EmbeddingProfile(kind=kind))]
    assert found == (["embedding_api_key_required"] if needs_key else [])
