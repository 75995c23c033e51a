"""Arrow columns without the types that only save memory: dictionaries, runs and views.

A server takes none of those from strangers, and casts of Arrow do not know all of them: both a client, before it sends
rows, and the engine, before it types them, ask here for the same values in a plain column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The plain type that holds the same values."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(type_) or kinds.is_run_end_encoded(type_):
        return plain_type(type_.value_type)
    if kinds.is_string_view(type_):
        return pa.large_string()
    if kinds.is_binary_view(type_):
        return pa.large_binary()
    if kinds.is_fixed_size_list(type_):
        return pa.list_(plain_type(type_.value_type), type_.list_size)
    if kinds.is_list(type_) or kinds.is_list_view(type_):
        return pa.list_(plain_type(type_.value_type))
    if kinds.is_large_list(type_) or kinds.is_large_list_view(type_):
        return pa.large_list(plain_type(type_.value_type))
    return type_


def plain_array(array: pa.Array) -> pa.Array:
    """The same values as `plain_type` has them; a column that is plain as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted, kinds = plain_type(array.type), pa.types
    if array.type == wanted:
        return array
    if kinds.is_dictionary(array.type):
        return plain_array(array.dictionary).take(array.indices)
    if kinds.is_run_end_encoded(array.type):
        return plain_array(pc.run_end_decode(array))
    if kinds.is_fixed_size_list(array.type):
        size = array.type.list_size
        items = plain_array(array.values.slice(array.offset * size, len(array) * size))
        return pa.FixedSizeListArray.from_arrays(items, type=wanted, mask=array.is_null())
    if kinds.is_nested(array.type):
        items, lengths = plain_array(array.flatten()), pc.fill_null(pc.list_value_length(array), 0)
        ends = pc.cumulative_sum(lengths.cast(pa.int64()))
        lists, offset = (pa.LargeListArray, pa.int64()) if kinds.is_large_list(wanted) else (pa.ListArray, pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(offset)
        return lists.from_arrays(offsets, items, type=wanted, mask=array.is_null() if len(array) else None)
    return array.cast(wanted)
