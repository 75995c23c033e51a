"""The physical form of a catalog type: Arrow types, columns, table schemas, computed vectors, and equality of values.

Everything that reads or writes rows uses it. *Rows* hold a blob cell as a struct of bytes or URI, the *table* holds
Lance's blob column. A type with computed vectors is read as if they could be left out (`fillable`). Equality is typed
and exact: null, empty text and empty list differ, and floats compare by their bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.language.catalog import Catalog, NodeType, Property, TableType
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
EPOCH_TYPES: Final = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}
"""The integers that dates become where a form has none: epoch days and epoch milliseconds."""


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
    fields = [*_system_fields(type_), *(table_field(prop) for prop in type_.property_list)]
    ids = {*type_.system_columns, *(column for column, _ in type_.key_columns)}
    return pa.schema([f.with_metadata(_ID_ENCODING) if f.name in ids and f.type == pa.string() else f for f in fields])


def as_table_rows(type_: TableType, rows: pa.Table) -> pa.Table:
    """Rows as the table takes them: every blob cell struct becomes Lance's blob column, nothing else changes."""
    for prop in type_.property_list:
        if prop.type.is_blob and (index := rows.schema.get_field_index(prop.column)) >= 0:
            from omnigraph.storage.tables.blobs import blob_column

            cells = pa.chunked_array(
                blob_column(pc.struct_field(chunk, "data"), pc.struct_field(chunk, "uri"), pc.is_valid(chunk))
                for chunk in rows.column(index).chunks or [pa.array([], BLOB_CELL)]
            )
            rows = rows.set_column(index, table_field(prop), cells)
    return rows


def column_of(type_: TableType, name: str) -> str | None:
    """The physical column behind a property, a system column (`id`) or an end (`@src`); None when the type has no such
    name. A property of the name comes before a system column."""
    prop = type_.properties.get(name)
    if prop is not None:
        return prop.column
    bare = name.removeprefix("@")
    return bare if bare in type_.system_columns else None


def _system_fields(type_: TableType) -> list[pa.Field]:
    return [ID_FIELD] if type_.kind == "node" else [ID_FIELD, SOURCE_FIELD, TARGET_FIELD]


Type = TypeVar("Type", bound=TableType)


def fillable(type_: Type, is_computed: Callable[[Property], bool]) -> Type:
    """The type with those vectors nullable that will be computed; the same one where they all are."""
    properties = tuple(
        msgspec.structs.replace(prop, type=prop.type.as_nullable())
        if not prop.type.nullable and is_computed(prop)
        else prop
        for prop in type_.property_list
    )
    return type_ if properties == type_.property_list else msgspec.structs.replace(type_, property_list=properties)


def fillable_catalog(catalog: Catalog, is_computed: Callable[[NodeType, Property], bool]) -> Catalog:
    """The catalog with such types."""
    nodes = {name: fillable(node, partial(is_computed, node)) for name, node in catalog.nodes.items()}
    if all(nodes[name] is node for name, node in catalog.nodes.items()):
        return catalog
    return msgspec.structs.replace(catalog, nodes=nodes)


def without_vector(rows: pa.Table, source: str, target: str) -> NDArray[np.bool_]:
    """Which rows have a text and no vector. A blank text does not count: providers refuse it."""
    has_text = pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(rows.column(source)), ""), False)
    wanted: NDArray[np.bool_] = pc.and_(pc.is_null(rows.column(target)), has_text).to_numpy()
    return wanted


def with_vectors(rows: pa.Table, target: str, where: NDArray[np.bool_], vectors: NDArray[np.float32]) -> pa.Table:
    """The rows with a vector each at those places, and all others as they were."""
    index = rows.column_names.index(target)
    field = rows.schema.field(index)
    column = rows.column(index).combine_chunks()
    present = column.is_valid().to_numpy(zero_copy_only=False)
    filled = np.zeros((rows.num_rows, vectors.shape[1]), np.float32)
    if present.any():
        kept = column.filter(pa.array(present)).flatten().to_numpy(zero_copy_only=False)
        filled[present] = kept.reshape(-1, vectors.shape[1])
    filled[where] = vectors
    return rows.set_column(index, field, vector_cells(filled, field.type, pa.array(~(present | where))))


def vector_cells(vectors: NDArray[np.float32], type_: pa.DataType, missing: pa.Array | None = None) -> pa.Array:
    """A cell per vector, null where it is missing."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=type_, mask=missing)


RowMask = NDArray[np.bool_]

_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def equal_values(left: pa.Array | pa.ChunkedArray, right: pa.Array | pa.ChunkedArray) -> RowMask:
    """Row by row, whether two columns hold the same values. A property may have got a wider type meanwhile: its numbers
    compare by value. Values of other different types are never the same."""
    left, right = whole_array(left), whole_array(right)
    both_null = _mask(pc.and_(pc.is_null(left), pc.is_null(right)))
    if pa.types.is_list(left.type) and pa.types.is_list(right.type):
        return both_null | _equal_lists(left, right)
    if left.type != right.type:
        if (common := _common_type(left.type, right.type)) is None:
            return both_null
        left, right = left.cast(common), right.cast(common)
    if pa.types.is_fixed_size_list(left.type):
        return both_null | _equal_lists(left, right)
    if (bits := _BITS.get(left.type)) is not None:
        left, right = left.view(bits), right.view(bits)
    return both_null | _mask(pc.fill_null(pc.equal(left, right), False))


def _common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """A type that holds every value of both, if they are numbers and there is one."""
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        return pa.decimal128(20, 0)  # of 64 bits, with and without a sign
    exact = all(pa.types.is_floating(each) or each in (pa.int32(), pa.uint32()) for each in (left, right))
    return pa.float64() if exact else None


def _equal_lists(left: pa.Array, right: pa.Array) -> RowMask:
    lengths, other_lengths = pc.list_value_length(left), pc.list_value_length(right)
    same = _mask(pc.fill_null(pc.equal(lengths, other_lengths), False))
    candidates = pa.array(same)
    items = equal_values(pc.list_flatten(left.filter(candidates)), pc.list_flatten(right.filter(candidates)))
    owners = np.repeat(np.flatnonzero(same), lengths.filter(candidates).to_numpy(zero_copy_only=False))
    same[owners[~items]] = False
    return same


def whole_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece; one that is has nothing to copy."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _mask(values: pa.Array) -> RowMask:
    mask: RowMask = values.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask
