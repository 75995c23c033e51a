"""Embeddings: text into vectors, by one provider under one configuration.

`omnigraph.open` gives the engine a client of this package for the texts of queries, and for those of writes where the
schema asks for it. The package knows no graph.
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
