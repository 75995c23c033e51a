"""Tables with thousands of columns, for which Lance plans scans and merges in time that grows with their square.

At 5,000 columns that is seconds for a single row. Taking rows by row id and writing files have no such cost, so the
rows of a wide table are found by a scan of no column and then taken, and an upsert is composed of its parts: the old
rows marked as deleted, the new ones written under the same row ids. Called by reading and staging; nothing commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import FragmentMetadata, LanceOperation
from lance.fragment import RowIdSequence
from numpy.typing import NDArray

from omnigraph.storage.models import ChangeCounts
from omnigraph.storage.ordered import distinct
from omnigraph.storage.tables.fields import field_ids

if TYPE_CHECKING:
    from omnigraph.storage.tables.reading import Table

WIDE_COLUMNS: Final = 500
TAKEN_ROWS: Final = 4_096
"""Up to so many rows are taken by row id. For more of them a scan earns its planning back."""

_ROW_ID, _ROW_ADDRESS = "_rowid", "_rowaddr"
_IDS_PER_PROBE: Final = 1_000


def is_wide(columns: Sequence[str] | pa.Schema) -> bool:
    return len(columns) > WIDE_COLUMNS


def take(table: Table, row_ids: Sequence[int] | pa.Array, columns: Sequence[str]) -> pa.Table:
    """These columns of the rows with these ids, in this order; many columns some at a time."""
    with table.reading():
        parts = [
            table.dataset._take_rows(row_ids, columns=list(columns[start : start + WIDE_COLUMNS]))
            for start in range(0, max(1, len(columns)), WIDE_COLUMNS)
        ]
    if len(parts) == 1:
        return parts[0]
    return pa.table([c for part in parts for c in part.columns], schema=pa.schema([f for p in parts for f in p.schema]))


def taken(
    table: Table, columns: Sequence[str], *, filter: str | None, limit: int | None = None, row_ids: bool = False
) -> pa.Table | None:
    """What a scan of these columns would give, by row id; None when that is better done by a scan."""
    with table.reading():
        scanner = table.dataset.scanner(columns=[], filter=filter, limit=limit, with_row_id=True)
        found = scanner.to_table().column(_ROW_ID)
    if len(found) > TAKEN_ROWS:
        return None
    if not len(found):
        rows = pa.schema([table.schema.field(name) for name in columns]).empty_table()
    else:
        rows = take(table, found.combine_chunks(), columns)
    return rows.append_column(_ROW_ID, found) if row_ids else rows


@dataclass(frozen=True, slots=True)
class Upserted:
    """An upsert that waits for its commit."""

    operation: Any
    changes: ChangeCounts


def upsert(table: Table, rows: pa.Table, write: Callable[[pa.Table], Sequence[FragmentMetadata]]) -> Upserted:
    """Insert or fully replace by id, as `merge_insert` does it: replaced rows keep their row ids."""
    stored = pa.concat_tables(_stored(table, rows.column("id")))
    at = pc.index_in(rows.column("id"), value_set=stored.column("id"))
    known = at.is_valid()
    changed, emptied = _without(table, stored.column(_ROW_ADDRESS).to_numpy())
    row_ids = stored.column(_ROW_ID).take(at.drop_null()).to_numpy()
    replaced_first = pa.concat_tables([rows.filter(known), rows.filter(pc.invert(known))])
    operation = LanceOperation.Update(
        removed_fragment_ids=emptied,
        updated_fragments=changed,
        new_fragments=list(_named(write(replaced_first), row_ids)),
        # Every column has new values, so no index may answer for the new fragments.
        fields_for_preserving_frag_bitmap=field_ids(table.dataset),
        update_mode="rewrite_rows",
    )
    return Upserted(operation, ChangeCounts(inserted=rows.num_rows - len(row_ids), updated=len(row_ids)))


def _stored(table: Table, ids: pa.ChunkedArray) -> Iterator[pa.Table]:
    """Where the rows with these ids stand."""
    for start in range(0, len(ids), _IDS_PER_PROBE):
        listed = ", ".join("'" + i.replace("'", "''") + "'" for i in ids.slice(start, _IDS_PER_PROBE).to_pylist())
        with table.reading():
            scanner = table.dataset.scanner(
                columns=["id"], filter=f"id IN ({listed})", with_row_id=True, with_row_address=True
            )
            yield scanner.to_table()


def _without(table: Table, addresses: NDArray[np.uint64]) -> tuple[list[FragmentMetadata], list[int]]:
    """The fragments that hold these rows as they are without them, and those that have no row left."""
    changed, emptied = [], []
    fragments = addresses >> np.uint64(32)
    for fragment_id in distinct(fragments).tolist():
        offsets = addresses[fragments == fragment_id] & np.uint64(0xFFFF_FFFF)
        with table.writing():
            left = table.dataset.get_fragment(fragment_id).delete_rows(offsets.tolist())
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
