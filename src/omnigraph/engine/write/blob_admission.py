"""External blob references on their way into the graph: admitted for the whole write, then copied or referenced.

Loads and mutations call `admit_blobs` once, after their constraints hold and before anything is staged. Admission
comes before any payload is read: every URI is authorised, every distinct object probed once, the sizes summed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.resources import Resources
from omnigraph.engine.rows.columns import BLOB_CELL
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.errors import ResourceLimitError
from omnigraph.storage.root import GraphRoot

Value = TypeVar("Value")

_REMEDY = "load fewer external blobs at a time, or use the Spark pipeline"


def admit_blobs(resources: Resources, change: GraphChange) -> GraphChange:
    """The change with every external URI admitted: normalised in a type that is replaced, else its bytes instead."""
    root, policy, limits = resources.root, resources.external_blobs, resources.limits
    cells = {key: _external_cells(type_change) for key, type_change in sorted(change.by_type.items())}
    named = [uri for by_column in cells.values() for uris in by_column.values() for uri in uris if uri is not None]
    if not named:
        return change
    if len(named) > limits.rows:
        raise ResourceLimitError("external Blob reference cells", limits.rows, len(named), _REMEDY)
    admitted = {text: policy.admit(text) for text in dict.fromkeys(named)}
    sizes = _for_each(root, sorted(set(admitted.values())), root.external.size)
    copied = [
        admitted[uri]
        for key, by_column in cells.items()
        if not change.by_type[key].replaces
        for uris in by_column.values()
        for uri in uris
        if uri is not None
    ]
    if (total := sum(sizes[uri] for uri in copied)) > limits.bytes:
        raise ResourceLimitError("materialized external blob payload bytes", limits.bytes, total, _REMEDY)
    payloads = _for_each(root, sorted(set(copied)), root.external.read)
    return GraphChange(
        {
            key: _resolved(type_change, cells[key], admitted, {} if type_change.replaces else payloads)
            for key, type_change in change.by_type.items()
        }
    )


def _external_cells(change: TypeChange) -> dict[str, list[str | None]]:
    """Per blob column that holds some, the URI of each row, or None where the row names no external object."""
    found = {}
    for prop in change.type.property_list:
        if prop.type.is_blob:
            uris = pc.struct_field(change.rows.column(prop.column), "uri")
            if uris.null_count < len(uris):
                found[prop.column] = uris.to_pylist()
    return found


def _for_each(root: GraphRoot, uris: list[str], ask: Callable[[str], Value]) -> dict[str, Value]:
    return dict(zip(uris, root.workers.map(ask, uris), strict=True))


def _resolved(
    change: TypeChange,
    cells: Mapping[str, list[str | None]],
    admitted: Mapping[str, str],
    payloads: Mapping[str, bytes],
) -> TypeChange:
    rows = change.rows
    for column, uris in cells.items():
        values = rows.column(column).to_pylist()
        for row, uri in enumerate(uris):
            if uri is not None:
                normal = admitted[uri]
                copy = payloads.get(normal)
                values[row] = {"data": None, "uri": normal} if copy is None else {"data": copy, "uri": None}
        index = rows.column_names.index(column)
        rows = rows.set_column(index, rows.schema.field(column), pa.array(values, BLOB_CELL))
    return replace(change, rows=rows)
