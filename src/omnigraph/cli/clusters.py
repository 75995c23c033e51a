"""Graphs that belong to a cluster: their schemas are the cluster's to change, not ours."""

from __future__ import annotations

from omnigraph.errors import ConflictError


def refuse_inside_cluster(uri: str) -> None:
    """Refuse a location of the shape `<root>/graphs/<id>.omni` when the root holds a cluster."""
    from omnigraph.cluster.ledger import cluster_around
    from omnigraph.storage.location import Location

    cluster = cluster_around(Location.parse(uri).uri)
    if cluster is not None:
        raise ConflictError(
            f"'{uri}' is inside cluster '{cluster}'; declare it there and run `omnigraph cluster apply`"
        )
