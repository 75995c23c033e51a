"""One node or edge by id, in the form that exports use.

Dates are days, instants milliseconds, integers whole; a managed blob is its base64 text and an external one its URI,
without touching the object it names. Called by `Snapshot` and `Graph`.
"""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import Property
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import row_ids_of


def read_entity(snapshot: Snapshot, type_key: str, entity_id: str) -> dict[str, Any] | None:
    """Flat: `id` (and `src`, `dst`), then every declared property. None when the type or the id is not there."""
    type_ = snapshot.type_of(type_key)
    if type_ is None or type_key not in snapshot.entry.tables:
        return None
    table = snapshot.table(type_key)
    stored = [p.column for p in type_.property_list if p.column in table.columns]
    found = table.rows_among("id", [entity_id], [*type_.system_columns, *stored], row_ids=True)
    if not len(found):
        return None
    row_id = int(row_ids_of(found)[0])
    entity: dict[str, Any] = {name: found.column(name)[0].as_py() for name in type_.system_columns}
    for prop in type_.property_list:
        entity[prop.name] = _exported(table, prop, found, row_id) if prop.column in table.columns else None
    return entity


def _exported(table: Table, prop: Property, found: pa.Table, row_id: int) -> Any:
    column = found.column(prop.column)
    if prop.type.is_blob:
        description = column[0].as_py()
        if description is None:
            return None
        if description["blob_uri"]:
            return description["blob_uri"]
        (content,) = table.blobs(prop.column, [row_id])
        return "base64:" + base64.b64encode(content.read()).decode("ascii")
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_list(column.type):
        item = column.type.value_type
        if pa.types.is_date32(item):
            column = column.cast(pa.list_(pa.int32()))
        elif pa.types.is_timestamp(item):
            column = column.cast(pa.list_(pa.int64()))
    return column[0].as_py()
