"""The embedding profile of a graph in a cluster: what is written down, and what it comes to on one machine.

A profile names the variable that holds its key and never the key, so it may be stored, compared and shown. The key is
read where texts are embedded. The mock flag of the environment does not reach in here: a profile says what it means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from omnigraph.embeddings.configuration import DEFAULTS, MODEL, EmbeddingConfig, ProviderKind, provider_kind
from omnigraph.errors import EmbeddingError

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class EmbeddingProfile(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the texts of a graph are embedded. `api_key` is a reference such as `${OPENAI_API_KEY}`."""

    kind: str | None = None
    base_url: str | None = None
    model: str | None = None
    api_key: str | None = None

    def resolved(self, environment: Mapping[str, str]) -> EmbeddingConfig:
        """The configuration that this profile and the variables of a machine come to."""
        kind = provider_kind(self.kind)
        defaults = DEFAULTS[kind]
        if kind is ProviderKind.MOCK:
            return EmbeddingConfig(kind, self.model or environment.get(MODEL, "").strip())
        base_url = (self.base_url or defaults.base_url).rstrip("/")
        if not kind.needs_key:
            return EmbeddingConfig(kind, self.model or defaults.model, base_url)
        return EmbeddingConfig(kind, self.model or defaults.model, base_url, self._key(kind, environment))

    def _key(self, kind: ProviderKind, environment: Mapping[str, str]) -> str:
        if self.api_key is None:
            raise EmbeddingError(f"the {kind} embedding provider needs an api_key such as ${{OPENAI_API_KEY}}")
        if (reference := _REFERENCE.fullmatch(self.api_key)) is None:
            raise EmbeddingError("the api_key of an embedding profile has to name a variable, as in ${OPENAI_API_KEY}")
        if not (key := environment.get(reference[1], "").strip()):
            raise EmbeddingError(f"the embedding profile takes its key from {reference[1]}, which is not set")
        return key
