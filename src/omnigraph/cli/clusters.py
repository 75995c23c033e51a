"""Graphs that belong to a cluster: their schemas are the cluster's to change, not ours."""

from __future__ import annotations

import re

from omnigraph.errors import ConflictError

_LEDGER = "__cluster/state.json"
_INSIDE = re.compile(r"^(?P<root>.+)/graphs/[A-Za-z_][A-Za-z0-9_-]*\.omni$")


def refuse_inside_cluster(uri: str) -> None:
    """Refuse a location of the shape `<root>/graphs/<id>.omni` when the root holds a cluster's ledger."""
    from omnigraph.storage.location import Location
    from omnigraph.storage.objects import Objects

    inside = _INSIDE.match(Location.parse(uri).uri)
    if inside is None:
        return
    root = Location.parse(inside["root"])
    if root.is_local and not root.local_root.is_dir():
        return
    if Objects(root).get(_LEDGER) is not None:
        raise ConflictError(
            f"'{uri}' is inside cluster '{root.uri}'; declare it there and run `omnigraph cluster apply`"
        )
