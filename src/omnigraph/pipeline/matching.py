"""What one bucket of an exchange can tell: ids that meet, keys that may be crowded, ends that lead nowhere.

Runs on executors, on Arrow columns. All rows that could hold a key are at hand, so every answer is final.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.pipeline.bucketing import Hashes, crowded, key_hashes
from omnigraph.storage.tables.distributed import PLACE

REPEAT, TAKEN, REPLACED = "repeat", "taken", "replaced"
"""What meeting an equal id makes of a row: a new one that gives way to another new one, a new one that a stored one
stands in the way of, a stored one that a new one may replace."""

ROLE: Final = pa.field("role", pa.string())
STORED: Final = pa.field("stored", pa.bool_())


def met_ids(new: pa.Table, stored: pa.Table, *, keep_last: bool) -> pa.Table:
    """New and stored rows whose id a new row holds as well, each with its `role`."""
    rows = _together(new, stored)
    is_stored = rows.column(STORED.name).to_numpy()
    codes = rows.column("id").combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    distinct = int(codes.max()) + 1 if len(codes) else 0
    kept = _kept(codes, rows.column(PLACE).to_numpy(), ~is_stored, distinct, keep_last=keep_last)
    is_kept = np.zeros(len(codes), np.bool_)
    is_kept[kept[kept >= 0]] = True
    in_the_way = np.zeros(distinct, np.bool_)
    in_the_way[codes[is_stored]] = True
    roles = np.full(len(codes), REPEAT, object)
    roles[is_kept & in_the_way[codes]] = TAKEN
    roles[is_stored] = REPLACED
    meets = np.where(is_stored, (kept >= 0)[codes], ~is_kept | in_the_way[codes])
    told = rows.drop_columns([STORED.name]).append_column(ROLE, pa.array(roles, pa.string()))
    return told.filter(pa.array(meets))


def _kept(
    codes: NDArray[np.int32], places: NDArray[np.int64], is_new: NDArray[np.bool_], distinct: int, *, keep_last: bool
) -> NDArray[np.int64]:
    """Per id the new row that stays: the first or the last in input order. -1 for an id without new rows."""
    kept = np.full(distinct, -1, np.int64)
    rows = np.flatnonzero(is_new)
    order = rows[np.argsort(places[rows], kind="stable")]
    # Of several values for one index the last assignment stays.
    kept[codes[order if keep_last else order[::-1]]] = order if keep_last else order[::-1]
    return kept


def _together(new: pa.Table, stored: pa.Table) -> pa.Table:
    """New and stored rows, as `STORED` says, whose id may be held by another one."""
    marked = [
        rows.append_column(STORED, pa.array(np.full(rows.num_rows, value)))
        for rows, value in ((new, False), (stored, True))
    ]
    rows = pa.concat_tables(marked, promote_options="default").combine_chunks()
    if not rows.num_rows:
        return rows
    hashes = key_hashes([rows.column("id").combine_chunks()])
    return rows.filter(pa.array(np.isin(hashes, crowded(hashes, 1))))


def lost_ends(ends: pa.Table, column: str, known: Sequence[pa.Table]) -> Hashes:
    """Hashes of the values of `column` that are the `id` of none of the known rows."""
    ids = pa.chunked_array([chunk for table in known for chunk in table.column("id").chunks], pa.string())
    lost = ends.column(column).filter(pc.invert(pc.is_in(ends.column(column), value_set=ids.combine_chunks())))
    return np.unique(key_hashes([lost.combine_chunks()])) if len(lost) else np.empty(0, np.uint64)
