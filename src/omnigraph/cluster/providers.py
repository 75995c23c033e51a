"""The embedding providers of a configuration, and the graphs that refer to them. No key is ever read here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from omnigraph.cluster.addresses import Address, Kind, provider_address
from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.embeddings.configuration import ProviderKind, provider_kind
from omnigraph.embeddings.profile import EmbeddingProfile
from omnigraph.errors import EmbeddingError

_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def check_profile(where: str, profile: EmbeddingProfile) -> list[Diagnostic]:
    """What is wrong with a profile. What is said of a key never shows it."""
    found: list[Diagnostic] = []
    kind: ProviderKind | None = None
    try:
        kind = provider_kind(profile.kind)
    except EmbeddingError as problem:
        found.append(error("invalid_embedding_provider", where, str(problem)))
    if profile.api_key is not None and _VARIABLE.fullmatch(profile.api_key) is None:
        message = "a key does not belong into the file; name the variable that holds it, as in ${OPENAI_API_KEY}"
        found.append(error("embedding_api_key_inline", f"{where}.api_key", message))
    if profile.api_key is None and kind is not None and kind.needs_key:
        message = f"the {kind} provider needs the variable that holds its key, as in ${{OPENAI_API_KEY}}"
        found.append(error("embedding_api_key_required", f"{where}.api_key", message))
    return found


def bound_provider(
    where: str, named: str | None, profiles: Mapping[str, EmbeddingProfile]
) -> tuple[str | None, list[Diagnostic]]:
    """The address of the provider that a graph names, bare or in full."""
    if named is None:
        return None, []
    address = Address.parse(named)
    if "." in named and (address is None or address.kind is not Kind.EMBEDDING_PROVIDER):
        message = f"'{named}' is no embedding provider; write its name, or provider.embedding.<name>"
        return None, [error("wrong_kind_reference", where, message)]
    name = named if address is None else address.name
    if name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        message = f"there is no embedding provider '{name}'; declared: {known}"
        return None, [error("dangling_embedding_provider_reference", where, message)]
    return provider_address(name), []
