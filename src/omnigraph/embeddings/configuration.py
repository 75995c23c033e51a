"""The configuration of embeddings: provider, model, address and key, from variables or from the profile of a cluster.

One resolved configuration drives every call of a graph handle. Resolution reads a mapping of variables and nothing
else, so the same rules serve a process, a server and a test. A profile names the variable that holds its key and never
the key, so it may be stored, compared and shown; the mock flag of the environment does not change it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from msgspec import Struct

from omnigraph.errors import EmbeddingError

logger = logging.getLogger("omnigraph::embedding")

MOCK_FLAG: Final = "OMNIGRAPH_EMBEDDINGS_MOCK"
PROVIDER: Final = "OMNIGRAPH_EMBED_PROVIDER"
BASE_URL: Final = "OMNIGRAPH_EMBED_BASE_URL"
MODEL: Final = "OMNIGRAPH_EMBED_MODEL"

_TRUE: Final = frozenset({"1", "true", "yes", "on"})


class ProviderKind(StrEnum):
    """The protocols by the alias that names them."""

    OPENAI_COMPATIBLE = "openai-compatible"
    OPENAI = "openai"
    GEMINI = "gemini"
    MOCK = "mock"
    LOCAL = "local"

    @property
    def needs_key(self) -> bool:
        """Whether the provider is a remote service with accounts."""
        return bool(DEFAULTS[self].key_variables)


@dataclass(frozen=True, slots=True)
class ProviderDefaults:
    base_url: str
    model: str
    key_variables: tuple[str, ...] = ()


DEFAULTS: Final[Mapping[ProviderKind, ProviderDefaults]] = {
    ProviderKind.OPENAI_COMPATIBLE: ProviderDefaults(
        "https://openrouter.ai/api/v1", "openai/text-embedding-3-large", ("OPENROUTER_API_KEY", "OPENAI_API_KEY")
    ),
    ProviderKind.OPENAI: ProviderDefaults("https://api.openai.com/v1", "text-embedding-3-large", ("OPENAI_API_KEY",)),
    ProviderKind.GEMINI: ProviderDefaults(
        "https://generativelanguage.googleapis.com/v1beta", "gemini-embedding-2", ("GEMINI_API_KEY",)
    ),
    ProviderKind.MOCK: ProviderDefaults("", ""),
    ProviderKind.LOCAL: ProviderDefaults("", "all-MiniLM-L6-v2"),
}


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """A resolved configuration. The key never shows in a representation, and so in no log."""

    provider: ProviderKind
    model: str
    base_url: str = ""
    api_key: str = field(default="", repr=False)

    @property
    def is_mock(self) -> bool:
        return self.provider is ProviderKind.MOCK


def config_from_environment(environment: Mapping[str, str]) -> EmbeddingConfig:
    """Resolve a configuration: mock flag, provider, base URL, model, key, in this order."""
    kind = _choose_provider(environment, warn=True)
    variables = DEFAULTS[kind].key_variables
    config = _without_key(kind, _value(environment, MODEL), _value(environment, BASE_URL))
    key = next((key for variable in variables if (key := _value(environment, variable)) is not None), None)
    if key is not None:
        return replace(config, api_key=key)
    if kind.needs_key:
        raise EmbeddingError(f"{' or '.join(variables)} is required for the {kind} embedding provider")
    return config


def _without_key(kind: ProviderKind, model: str | None, base_url: str | None) -> EmbeddingConfig:
    if kind is ProviderKind.MOCK:
        return EmbeddingConfig(kind, model or "")
    defaults = DEFAULTS[kind]
    return EmbeddingConfig(kind, model or defaults.model, (base_url or defaults.base_url).rstrip("/"))


def model_from_environment(environment: Mapping[str, str]) -> tuple[str, bool]:
    """The model of that configuration, and whether it is only a label of the mock. This needs no key, so that a wrong
    model is reported before a missing key."""
    kind = _choose_provider(environment)
    return _value(environment, MODEL) or DEFAULTS[kind].model, kind is ProviderKind.MOCK


def _choose_provider(environment: Mapping[str, str], *, warn: bool = False) -> ProviderKind:
    named = _value(environment, PROVIDER)
    if (_value(environment, MOCK_FLAG) or "").lower() in _TRUE:
        if warn and named not in (None, ProviderKind.MOCK):
            logger.warning("%s is set: embeddings come from the mock and not from %s '%s'", MOCK_FLAG, PROVIDER, named)
        return ProviderKind.MOCK
    return provider_kind(named)


def provider_kind(name: str | None) -> ProviderKind:
    """The provider of an alias; without one, the default. Aliases are case-sensitive."""
    if name is None:
        return ProviderKind.OPENAI_COMPATIBLE
    try:
        return ProviderKind(name)
    except ValueError:
        raise EmbeddingError(f"unknown embedding provider '{name}'; use {'|'.join(ProviderKind)}") from None


def _value(environment: Mapping[str, str], variable: str) -> str | None:
    """A trimmed variable; blank is unset."""
    return environment.get(variable, "").strip() or None


_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class EmbeddingProfile(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the texts of a graph are embedded. `api_key` is a reference such as `${OPENAI_API_KEY}`."""

    kind: str | None = None
    base_url: str | None = None
    model: str | None = None
    api_key: str | None = None

    def resolve(self, environment: Mapping[str, str]) -> EmbeddingConfig:
        """The configuration that this profile and the variables of a machine come to."""
        kind = provider_kind(self.kind)
        config = _without_key(kind, self.model, self.base_url)
        if kind is ProviderKind.MOCK:
            return replace(config, model=config.model or environment.get(MODEL, "").strip())
        if not kind.needs_key:
            return config
        if self.api_key is None:
            raise EmbeddingError(f"the {kind} embedding provider needs an api_key such as ${{OPENAI_API_KEY}}")
        if (reference := _REFERENCE.fullmatch(self.api_key)) is None:
            raise EmbeddingError("the api_key of an embedding profile has to name a variable, as in ${OPENAI_API_KEY}")
        if not (key := environment.get(reference[1], "").strip()):
            raise EmbeddingError(f"the embedding profile takes its key from {reference[1]}, which is not set")
        return replace(config, api_key=key)
