"""Keeping stored topologies ready: `optimize` renews those that somebody used and forgets those that are behind.

Only edge types that were traversed densely enough to be built once are kept up; nobody pays for the others. Deleting
any of this changes speed and no answer.
"""

from __future__ import annotations

from typing import Final

from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES, Shape, TopologyKey, shape_of
from omnigraph.engine.snapshot import Snapshot
from omnigraph.storage.topology import TopologyFiles

KEPT_BUILDS: Final = 2
"""Per edge table and shape: the newest, and one that a reader of another branch may still derive from."""


def refresh_topologies(snapshot: Snapshot) -> None:
    """Build what is stored for earlier versions at the versions of this snapshot, and drop old builds."""
    root = snapshot.root
    files = TopologyFiles(root.objects)
    tables = snapshot.entry.tables
    for edge in snapshot.catalog.edges.values():
        state = tables[edge.type_key]
        ends = tables[f"node:{edge.from_type}"], tables[f"node:{edge.to_type}"]
        builds: dict[Shape, list[str]] = {}
        for folder in files.folders(state.table_id):
            # By its name: a build of an earlier version was used too, and is made again.
            builds.setdefault(shape_of(folder), []).append(folder)
        for shape, folders in builds.items():
            key = TopologyKey(root.identity.graph_id, shape, state, *ends)
            PROCESS_TOPOLOGIES.store(root, key)
            outdated = [folder for folder in folders if folder != key.folder]
            for folder in outdated[KEPT_BUILDS - 1 :]:
                files.remove(folder)
