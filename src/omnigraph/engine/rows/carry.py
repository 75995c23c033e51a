"""Values of an older declaration as values of a newer one: wider numbers, renamed enum values, and defaults.

A schema change writes rows again by it where it must, and diffs and merges read the rows of the older side by it. So a
row that was carried by a change and the same row read across the change are equal.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.columns import arrow_type, whole_array
from omnigraph.engine.rows.kernels.coerce import absent_values
from omnigraph.language.catalog import Property, TableType
from omnigraph.language.schema.migration import WIDER


def absent_column(prop: Property, count: int) -> pa.Array:
    """What rows have that were written before the property was declared: its default where null is not allowed."""
    if prop.type.nullable or prop.default is None:
        return pa.nulls(count, arrow_type(prop.type))
    return absent_values(prop, count)


def carry(prop: Property, values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Stored values as the property declares them now. Where nothing changed they are returned as they are."""
    if prop.type.is_blob:
        return values
    if values.type != (type_ := arrow_type(prop.type)):
        values = values.cast(type_)
    if prop.renamed_values:
        values = _rename(values, dict(prop.renamed_values))
    if values.null_count and not prop.type.nullable and prop.default is not None:
        whole = whole_array(values)
        values = pc.if_else(whole.is_valid(), whole, absent_values(prop, len(whole)))
    return values


def _rename(values: pa.Array | pa.ChunkedArray, renamed: dict[str, str]) -> pa.Array:
    whole = whole_array(values)
    position = pc.index_in(whole, value_set=pa.array(list(renamed), whole.type))
    if position.null_count == len(position):
        return whole
    return pc.coalesce(pa.array(list(renamed.values()), whole.type).take(position), whole)


def is_older(one: TableType, other: TableType) -> bool:
    """Whether rows of `one` have to be carried to `other` to be compared, and not the other way round."""
    others = {prop.id: prop for prop in other.property_list}
    pairs = ((prop, others[prop.id]) for prop in one.property_list if prop.id in others)
    return any(
        after.type.scalar in WIDER.get(prop.type.scalar, ()) or len(after.renamed_values) > len(prop.renamed_values)
        for prop, after in pairs
    )
