"""`omnigraph.init` and `omnigraph.open`: a graph handle with everything the environment configures.

The engine takes its embedding client from outside; this is the outside for Python programs. The CLI and the server
open graphs the same way.
"""

from __future__ import annotations

from pathlib import Path

from omnigraph.embeddings import EnvironmentEmbedder
from omnigraph.graph import Graph


def init(uri: str | Path, schema: str, *, actor: str | None = None, force: bool = False) -> Graph:
    """Create a graph with a `.pg` schema text at a path, `file://`, `s3://`, `gs://` or `az://` location."""
    return Graph.init(uri, schema, actor=actor, force=force).with_embedding(EnvironmentEmbedder())


def open(uri: str | Path) -> Graph:
    """Open an existing graph. Texts given to `nearest` are embedded by the provider the environment names."""
    return Graph.open(uri).with_embedding(EnvironmentEmbedder())
