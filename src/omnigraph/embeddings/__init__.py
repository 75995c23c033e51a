"""Turning text into vectors: which provider, under which settings, and one client for queries and documents.

`omnigraph.open` hands the engine a client from here for the texts of queries, and for those of writes where the schema
asks for it; the engine knows only the members it needs of it.
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
