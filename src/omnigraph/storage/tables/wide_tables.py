"""Upserts into tables with thousands of columns, for which Lance plans a merge in time that grows with their square.

At 5,000 columns that is seconds for a single row. Writing files has no such cost, so the upsert is composed of its
parts: the old rows marked as deleted, the new ones written under the same row ids. Called by staging; nothing commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import FragmentMetadata, LanceOperation
from lance.fragment import RowIdSequence
from numpy.typing import NDArray

from omnigraph.storage.models import ChangeCounts
from omnigraph.storage.ordered import distinct
from omnigraph.storage.tables.fields import field_ids
from omnigraph.storage.tables.rows import ROW_ADDRESS, ROW_ID, WIDE_COLUMNS, Table


def is_wide(schema: pa.Schema) -> bool:
    return len(schema) > WIDE_COLUMNS


@dataclass(frozen=True, slots=True)
class Upserted:
    """An upsert that waits for its commit."""

    operation: Any
    changes: ChangeCounts


def upsert(table: Table, rows: pa.Table, write: Callable[[pa.Table], Sequence[FragmentMetadata]]) -> Upserted:
    """Insert or fully replace by id, as `merge_insert` does it: replaced rows keep their row ids."""
    stored = table.rows_among("id", rows.column("id").to_pylist(), ["id", ROW_ADDRESS], row_ids=True)
    at = pc.index_in(rows.column("id"), value_set=stored.column("id"))
    known = at.is_valid()
    changed, emptied = _without(table, stored.column(ROW_ADDRESS).to_numpy())
    row_ids = stored.column(ROW_ID).take(at.drop_null()).to_numpy()
    replaced_first = pa.concat_tables([rows.filter(known), rows.filter(pc.invert(known))])
    operation = LanceOperation.Update(
        removed_fragment_ids=emptied,
        updated_fragments=changed,
        new_fragments=list(_named(write(replaced_first), row_ids)),
        # Every column has new values, so no index may answer for the new fragments.
        fields_for_preserving_frag_bitmap=field_ids(table._dataset),
        update_mode="rewrite_rows",
    )
    return Upserted(operation, ChangeCounts(inserted=rows.num_rows - len(row_ids), updated=len(row_ids)))


def _without(table: Table, addresses: NDArray[np.uint64]) -> tuple[list[FragmentMetadata], list[int]]:
    """The fragments that hold these rows as they are without them, and those that have no row left."""
    changed, emptied = [], []
    fragments = addresses >> np.uint64(32)
    for fragment_id in distinct(fragments).tolist():
        offsets = addresses[fragments == fragment_id] & np.uint64(0xFFFF_FFFF)
        with table.writing():
            left = table._dataset.get_fragment(fragment_id).delete_rows(offsets.tolist())
        if left is None:
            emptied.append(fragment_id)
        else:
            changed.append(left)
    return changed, emptied


def _named(written: Sequence[FragmentMetadata], row_ids: NDArray[np.uint64]) -> Iterator[FragmentMetadata]:
    """New fragments whose first rows go by these row ids; the rest are new, and get theirs with the commit."""
    start = 0
    for fragment in written:
        numbers = row_ids[start : start + fragment.physical_rows].tolist()
        start += len(numbers)
        yield replace(fragment, row_id_meta=RowIdSequence(numbers).to_inline_metadata()) if numbers else fragment
