"""External blob references on their way in, judged row by row on executors by the policy of the driver's handle.

The same admission as for a load: what is not admitted is refused, what is admitted is copied into the graph, or kept
as a reference where the run replaces the whole type.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.columns import BLOB_CELL
from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
from omnigraph.errors import OmniGraphError
from omnigraph.language.catalog import TableType
from omnigraph.storage.external import ExternalObjects


def admitted_blobs(
    type_: TableType, rows: pa.Table, policy: ExternalBlobPolicy, *, keeps_references: bool
) -> tuple[pa.Table, dict[int, tuple[str, str]]]:
    """Rows with their external cells admitted, and the rows to refuse: row -> property and reason."""
    refused: dict[int, tuple[str, str]] = {}
    for prop in type_.property_list:
        if not prop.type.is_blob:
            continue
        index = rows.column_names.index(prop.column)
        uris = pc.struct_field(rows.column(index), "uri")
        if uris.null_count == len(uris):
            continue
        objects = ExternalObjects()
        cells = rows.column(index).to_pylist()
        for row, uri in enumerate(uris.to_pylist()):
            if uri is not None:
                try:
                    normal = policy.admit(uri)
                    objects.size(normal)
                    kept = keeps_references
                    cells[row] = {"data": None if kept else objects.read(normal), "uri": normal if kept else None}
                except OmniGraphError as error:
                    refused.setdefault(row, (prop.name, str(error)))
        rows = rows.set_column(index, rows.schema.field(index), pa.array(cells, BLOB_CELL))
    return rows, refused
