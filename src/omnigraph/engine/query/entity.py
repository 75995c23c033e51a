"""One node or edge by id, in the export form. Called by `Snapshot` and `Graph`."""

from __future__ import annotations

from typing import Any

from omnigraph.engine.query.seen_entities import seen_entities
from omnigraph.engine.rows.export_form import flat_entity
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.storage.tables.rows import row_ids_of


def read_entity(snapshot: Snapshot, type_key: str, entity_id: str) -> dict[str, Any] | None:
    """Flat: `id` (and `src`, `dst`), then every declared property. None when the type or the id is not there."""
    type_ = snapshot.type_of(type_key)
    if type_ is None or type_key not in snapshot.entry.tables:
        return None
    entities = TypeState.of(snapshot, type_)
    found = entities.table.rows_among("id", [entity_id], entities.stored_columns(), row_ids=True)
    if not found.num_rows or not seen_entities(snapshot, type_, row_ids_of(found)).all():
        return None
    return flat_entity(type_, entities.complete(found, row_ids_of(found)))
