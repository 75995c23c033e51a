"""When two stored values are the same value: typed, exact, and blind to how storage happens to lay them out.

Diffs and merges ask here for whole columns at once. Null, empty text and empty list are three values; lists compare
in order with their null items; floats compare by their bits, so the zeros differ and a NaN equals itself. Blobs need
their tables and are compared where those are at hand.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Mask = NDArray[np.bool_]

_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def equal_values(left: pa.Array | pa.ChunkedArray, right: pa.Array | pa.ChunkedArray) -> Mask:
    """Row by row, whether two columns hold the same values. Values of different types are never the same."""
    left, right = _whole(left), _whole(right)
    both_null = _mask(pc.and_(pc.is_null(left), pc.is_null(right)))
    if left.type != right.type:
        return both_null
    if pa.types.is_list(left.type) or pa.types.is_fixed_size_list(left.type):
        return both_null | _equal_lists(left, right)
    if (bits := _BITS.get(left.type)) is not None:
        left, right = left.view(bits), right.view(bits)
    return both_null | _mask(pc.fill_null(pc.equal(left, right), False))


def _equal_lists(left: pa.Array, right: pa.Array) -> Mask:
    lengths, other_lengths = pc.list_value_length(left), pc.list_value_length(right)
    same = _mask(pc.fill_null(pc.equal(lengths, other_lengths), False))
    candidates = pa.array(same)
    items = equal_values(pc.list_flatten(left.filter(candidates)), pc.list_flatten(right.filter(candidates)))
    owners = np.repeat(np.flatnonzero(same), lengths.filter(candidates).to_numpy(zero_copy_only=False))
    same[owners[~items]] = False
    return same


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _mask(values: pa.Array) -> Mask:
    mask: Mask = values.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask
