"""One node or edge by id, in the export form. Called by `Snapshot` and `Graph`."""

from __future__ import annotations

from typing import Any

from omnigraph.engine.rows.export_form import flat_entity
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.storage.tables.rows import row_ids_of


def read_entity(snapshot: Snapshot, type_key: str, entity_id: str) -> dict[str, Any] | None:
    """Flat: `id` (and `src`, `dst`), then every declared property. None when the type or the id is not there."""
    type_ = snapshot.type_of(type_key)
    state = snapshot.entry.tables.get(type_key)
    if type_ is None or state is None:
        return None
    entities = TypeState(snapshot.root.reader, type_, state)
    found = entities.table.rows_among("id", [entity_id], entities.stored_columns(), row_ids=True)
    return flat_entity(type_, entities.complete(found, row_ids_of(found))) if found.num_rows else None
