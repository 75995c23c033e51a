"""How a catalog type lies in a table: Arrow types, physical columns, and the schema of one node or edge table.

Everything that reads or writes rows asks here. Two shapes differ only in blobs: *rows* hold a blob cell as a plain
struct of bytes or URI, which is what the kernels make and writers inspect; the *table* holds Lance's blob column.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.catalog import NodeType, Property, TableType
from omnigraph.language.types import PropertyType, Scalar

ID_FIELD: Final = pa.field("id", pa.string(), nullable=False)
SOURCE_FIELD: Final = pa.field("src", pa.string(), nullable=False)
TARGET_FIELD: Final = pa.field("dst", pa.string(), nullable=False)

# Ids are short and begin alike. LZ4 writes and reads them in half the time that Lance's choice for texts takes, which
# is right for prose.
_ID_ENCODING: Final = {"lance-encoding:compression": "lz4"}

# A null cell is a null struct; a valid one has exactly one child set. Empty `data` is an empty value, not null.
BLOB_CELL: Final = pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.string())])

_SCALAR_TYPES: Final[dict[Scalar, pa.DataType]] = {
    Scalar.STRING: pa.string(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.timestamp("ms", tz="UTC"),
    Scalar.BLOB: BLOB_CELL,
}


def arrow_type(property_type: PropertyType) -> pa.DataType:
    """The Arrow type of a property's values, with a blob as its cell struct."""
    if property_type.is_vector:
        return pa.list_(pa.field("item", pa.float32()), property_type.dimension)
    scalar = _SCALAR_TYPES[property_type.scalar]
    return pa.list_(pa.field("item", scalar)) if property_type.list else scalar


def rows_field(prop: Property) -> pa.Field:
    """The physical column of a property as rows carry it."""
    return pa.field(prop.column, arrow_type(prop.type), nullable=prop.type.nullable)


def rows_schema(type_: TableType) -> pa.Schema:
    """`id` [, `src`, `dst`], then the physical property columns in catalog order, blobs as cell structs."""
    return pa.schema([*_system_fields(type_), *(rows_field(prop) for prop in type_.property_list)])


def table_field(prop: Property) -> pa.Field:
    """The physical column of a property as the table stores it."""
    if not prop.type.is_blob:
        return rows_field(prop)
    # Kernels import this module inside Spark workers and never store anything: they do not pay for Lance.
    from omnigraph.storage.tables.blobs import blob_field

    return blob_field(prop.column, nullable=prop.type.nullable)


def table_schema(type_: TableType) -> pa.Schema:
    """The schema a node or edge table is created with."""
    keys = type_.key if isinstance(type_, NodeType) else ()
    fields = [*_system_fields(type_), *(table_field(prop) for prop in type_.property_list)]
    ids = {*type_.system_columns, *(type_.properties[name].column for name in keys)}
    return pa.schema([_as_id(field) if field.name in ids else field for field in fields])


def as_table_rows(type_: TableType, rows: pa.Table) -> pa.Table:
    """Rows as the table takes them: every blob cell struct becomes Lance's blob column, nothing else changes."""
    blobs = {prop.column: prop for prop in type_.property_list if prop.type.is_blob}
    if blobs.keys().isdisjoint(rows.column_names):
        return rows
    fields, columns = [], []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        blob = blobs.get(field.name)
        fields.append(field if blob is None else table_field(blob))
        columns.append(column if blob is None else _as_blob_column(column))
    return pa.table(columns, schema=pa.schema(fields))


def column_of(type_: TableType, name: str) -> str | None:
    """The physical column behind a property or system column name; None when the type has no such name."""
    if name in type_.system_columns:
        return name
    prop = type_.properties.get(name)
    return None if prop is None else prop.column


def _system_fields(type_: TableType) -> list[pa.Field]:
    return [ID_FIELD] if type_.kind == "node" else [ID_FIELD, SOURCE_FIELD, TARGET_FIELD]


def _as_id(field: pa.Field) -> pa.Field:
    return field.with_metadata(_ID_ENCODING) if field.type == pa.string() else field


def _as_blob_column(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    from omnigraph.storage.tables.blobs import blob_column

    chunks = [
        blob_column(pc.struct_field(chunk, "data"), pc.struct_field(chunk, "uri"), pc.is_valid(chunk))
        for chunk in cells.chunks
    ]
    return pa.chunked_array(
        chunks or [blob_column(pa.nulls(0, pa.large_binary()), pa.nulls(0, pa.string()), pa.nulls(0, pa.bool_()))]
    )
