"""The tables of a state, and how many entities of each its reader sees."""

from __future__ import annotations

from omnigraph.api.branches import SnapshotDataset, SnapshotListing
from omnigraph.api.enums import EntityKind
from omnigraph.engine.query.seen_entities import seen_count
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.storage.models import FORMAT_VERSION


def listing(snapshot: Snapshot) -> SnapshotListing:
    """Versions belong to no Lance branch, so none is named."""
    published = snapshot.table_versions()
    datasets = []
    for type_key, state in sorted(TypeState.all_of(snapshot).items()):
        kind, name, stored = EntityKind(state.type.kind), state.type.name, state.state
        count = seen_count(snapshot, state.type)
        datasets.append(SnapshotDataset(kind, name, stored.path, published[type_key], stored.version, None, count))
    return SnapshotListing(snapshot.branch, snapshot.version, FORMAT_VERSION, tuple(datasets))
