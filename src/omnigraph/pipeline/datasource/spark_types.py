"""Arrow columns of Lance tables in types that Spark has, and their Spark schema.

Spark knows no unsigned integers, half floats, dictionaries or fixed-size lists, and only microseconds; no value of a
graph changes on the way there, and the row kernels bring values back to the types of their table.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

_WIDER: Final[dict[pa.DataType, pa.DataType]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def transport_type(type_: pa.DataType) -> pa.DataType:
    if isinstance(type_, pa.ExtensionType):
        return pa.binary()
    if type_ in _WIDER:
        return _WIDER[type_]
    if pt.is_dictionary(type_):
        return transport_type(type_.value_type)
    if pt.is_timestamp(type_):
        return pa.timestamp("us", tz="UTC")
    if pt.is_large_binary(type_):
        return pa.binary()
    if pt.is_fixed_size_list(type_) or pt.is_list(type_) or pt.is_large_list(type_):
        return pa.list_(pa.field("element", transport_type(type_.value_type)))
    if pt.is_struct(type_):
        return pa.struct([transport_field(type_.field(i)) for i in range(type_.num_fields)])
    return type_


def transport_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, transport_type(field.type), nullable=True)


def transport_schema(schema: pa.Schema) -> pa.Schema:
    """Every field nullable: Spark's joins make it so anyway, and the table has its own word on nulls."""
    return pa.schema([transport_field(field) for field in schema])


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(transport_schema(schema))


def to_transport(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [_cast(column, transport_type(column.type)) for column in batch.columns]
    return pa.record_batch(columns, schema=transport_schema(batch.schema))


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    if column.type == target:
        return column
    if pt.is_fixed_size_list(column.type):
        # The slots of a null list are not its values; an ordinary list has none there.
        return column.cast(pa.list_(column.type.value_type)).cast(target)
    return column.cast(target)
