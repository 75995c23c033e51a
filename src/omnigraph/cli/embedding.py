"""Gives a directly opened graph the embedding provider of the environment, for queries that search by text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph


def with_embedding(graph: Graph) -> Graph:
    """The provider is looked up when the first text has to be embedded, never for a query without one."""
    from omnigraph.embeddings import EnvironmentEmbedder

    return graph.with_embedding(EnvironmentEmbedder())
