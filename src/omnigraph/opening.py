"""`omnigraph.init` and `omnigraph.open`: a graph handle with everything the environment configures.

The engine takes its embedding client from outside; this is the outside for Python programs. The CLI and the server
open graphs the same way.
"""

from __future__ import annotations

from pathlib import Path

from omnigraph.api.upkeep import DEFAULT_POLICY, MaintenancePolicy
from omnigraph.embeddings import EnvironmentEmbedder
from omnigraph.engine.maintainer import Maintainer
from omnigraph.graph import Graph


def init(uri: str | Path, schema: str, *, actor: str | None = None, force: bool = False) -> Graph:
    """Create a graph with a `.pg` schema text at a path, `file://`, `s3://`, `gs://` or `az://` location."""
    return Graph.init(uri, schema, actor=actor, force=force).with_embedding(EnvironmentEmbedder())


def open(uri: str | Path, *, maintain: bool | MaintenancePolicy = False) -> Graph:
    """Open an existing graph. Texts given to `nearest` are embedded by the provider the environment names.

    A process that runs for long and writes should say `maintain=True`, or give a policy: a thread then tidies the
    tables of main and releases history beyond the policy's retention, every few minutes until the graph is closed.
    """
    graph = Graph.open(uri).with_embedding(EnvironmentEmbedder())
    if maintain:
        Maintainer(graph.workspace, DEFAULT_POLICY if maintain is True else maintain).start()
    return graph
