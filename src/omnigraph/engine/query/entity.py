"""One node or edge by id, in the export form. Called by `Snapshot` and `Graph`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph.engine.entities import TypeState, row_ids_of
from omnigraph.engine.export_form import flat_entity
from omnigraph.storage.tables.rows import rows_with

if TYPE_CHECKING:
    from omnigraph.engine.snapshot import Snapshot


def read_entity(snapshot: Snapshot, type_key: str, entity_id: str) -> dict[str, Any] | None:
    """Flat: `id` (and `src`, `dst`), then every declared property. None when the type or the id is not there."""
    type_ = snapshot.type_of(type_key)
    state = snapshot.entry.tables.get(type_key)
    if type_ is None or state is None:
        return None
    entities = TypeState(snapshot.root.reader, type_, state)
    found = rows_with(entities.table, "id", [entity_id], entities.stored_columns())
    return flat_entity(type_, entities.complete(found, row_ids_of(found))) if found.num_rows else None
