"""Blob columns: their shape as Lance wants it, and the cells that are stored in one.

The shape is for the catalog-to-schema mapping and for writers that have cells as plain structs. A stored cell is found
without touching its bytes; those are read by range, and an external one is never opened here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import lance
import pyarrow as pa

from omnigraph.errors import BlobIntegrityError
from omnigraph.storage.tables.reading import Table, identifier, quoted

_INLINE, _PACKED, _DEDICATED, _EXTERNAL = range(4)
_KINDS: Final = frozenset({_INLINE, _PACKED, _DEDICATED, _EXTERNAL})


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


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A cell that holds a value: bytes of the graph's own, or a reference to a caller's object when `uri` is set."""

    row_id: int
    size: int
    uri: str | None = None
    offset: int = 0


def find_row(table: Table, column: str, entity_id: str) -> pa.Table:
    """The one row with an id, or none: its row id and the descriptor of its blob."""
    return table.read([column], filter=f"{identifier('id')} = {quoted(entity_id)}", row_ids=True)


def stored_blob(rows: pa.Table, column: str) -> StoredBlob | None:
    """The cell of a row that `find_row` found; None when it is null."""
    cell = rows.column(column)[0].as_py()
    if cell is None:
        return None
    if rows.num_rows != 1 or cell["kind"] not in _KINDS:
        raise BlobIntegrityError(f"{rows.num_rows} rows have the id, the first holds a cell of kind {cell['kind']}")
    row_id = rows.column("_rowid")[0].as_py()
    if cell["kind"] == _EXTERNAL:
        if not cell["blob_uri"]:
            raise BlobIntegrityError("an external reference names no object")
        return StoredBlob(row_id, cell["size"], cell["blob_uri"], cell["position"])
    return StoredBlob(row_id, cell["size"])


def blob_bytes(table: Table, column: str, blob: StoredBlob, start: int, length: int) -> bytes:
    """A range of a managed cell."""
    if not length:
        return b""
    with table.reading():
        file = table.dataset.take_blobs(column, ids=[blob.row_id])[0]
        if file is None or file.size() != blob.size:
            raise BlobIntegrityError("the value has another length than its descriptor says")
        return bytes(file.read_range(start, length))
