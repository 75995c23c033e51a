"""Graphs that belong to a cluster: where they lie, and that their schemas are the cluster's to change."""

from __future__ import annotations

from omnigraph.cli.scope import ClusterScope, StoreScope
from omnigraph.errors import ConflictError


def graph_of(scope: ClusterScope) -> StoreScope:
    """The storage of a cluster's graph: the named one, or the only one. Looks at the ledger and at nothing else."""
    from omnigraph.cluster.applied import read_applied

    applied = read_applied(scope.root)
    return StoreScope(applied.graph_uri(applied.one_graph(scope.graph)))


def refuse_inside_cluster(uri: str) -> None:
    """Refuse a location of the shape `<root>/graphs/<id>.omni` when the root holds a cluster."""
    from omnigraph.cluster.ledger import cluster_around
    from omnigraph.engine.object_store import real_place

    cluster = cluster_around(real_place(uri))  # by a link, too
    if cluster is not None:
        raise ConflictError(
            f"'{uri}' is inside cluster '{cluster}'; declare it there and run `omnigraph cluster apply`"
        )
