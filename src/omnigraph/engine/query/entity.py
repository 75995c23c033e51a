"""One node or edge by id, in the export form, and how many there are. Called by `Snapshot`, `Graph` and servers."""

from __future__ import annotations

from typing import Any

from omnigraph.engine.query.seen_entities import seen_count, seen_entities
from omnigraph.engine.rows.export_form import flat_entity
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import TableType
from omnigraph.storage.tables.rows import row_ids_of


def read_entity(snapshot: Snapshot, type_: TableType, entity_id: str) -> dict[str, Any] | None:
    """Flat: `id` (and `src`, `dst`), then every declared property. None when the id is not there."""
    if type_.type_key not in snapshot.entry.tables:
        return None
    entities = TypeState.of(snapshot, type_)
    found = entities.table.rows_among("id", [entity_id], entities.stored_columns(), row_ids=True)
    if not found.num_rows or not seen_entities(snapshot, type_, row_ids_of(found)).all():
        return None
    return flat_entity(type_, entities.complete(found, row_ids_of(found)))


def count_entities(snapshot: Snapshot, type_: TableType) -> int:
    """How many entities of a type a state shows."""
    if snapshot.lens.is_open:
        return snapshot.table(type_.type_key).count()
    return seen_count(snapshot, type_)
