"""The shape of a blob column as Lance wants it.

Called by the catalog-to-schema mapping and by writers that have blob cells as plain structs. It moves no bytes.
"""

from __future__ import annotations

import lance
import pyarrow as pa


def blob_field(name: str, *, nullable: bool) -> pa.Field:
    """The field of a blob column in a table schema."""
    return lance.blob_field(name, nullable=nullable)


def blob_column(data: pa.Array, uri: pa.Array, valid: pa.Array) -> pa.Array:
    """Managed bytes and external references as one column: a valid cell has exactly one of the two.

    Null, empty (`data` of no bytes) and external stay three different things.
    """
    type_ = blob_field("blob", nullable=True).type
    absent = pa.nulls(len(valid), pa.uint64())
    cells = pa.StructArray.from_arrays(
        [data.cast(pa.large_binary()), uri.cast(pa.string()), absent, absent],
        fields=[type_.storage_type.field(i) for i in range(4)],
        mask=pa.compute.invert(valid),
    )
    return pa.ExtensionArray.from_storage(type_, cells)
