"""Turning text into vectors: which provider, under which settings, and one client for queries and documents.

Nothing embeds on write. `omnigraph.open` hands the query engine a client from here; the engine knows only the
two members it needs of it.
"""

from omnigraph.embeddings.client import EmbeddingClient, EnvironmentEmbedder, open_client
from omnigraph.embeddings.configuration import EmbeddingConfig, ProviderKind, config_from_environment
from omnigraph.embeddings.provider import Provider, Role

__all__ = [
    "EmbeddingClient",
    "EmbeddingConfig",
    "EnvironmentEmbedder",
    "Provider",
    "ProviderKind",
    "Role",
    "config_from_environment",
    "open_client",
]
