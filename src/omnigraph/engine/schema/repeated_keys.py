"""Tuples of values that stored rows share, found in two passes and little memory.

The first pass keeps a hash of each row, the second reads only the rows whose hash occurs more than once. The checks of
a schema change call it for `@unique`, and an edge type that gets a key for the edges that have the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.schema import Dedupe
from omnigraph.engine.rows.columns import whole_array
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.storage.integer_sets import is_member
from omnigraph.storage.tables.memory.key_hashes import Hashes, among, frequent_hashes, key_hashes
from omnigraph.storage.tables.rows import ROW_ID, RowIds, row_ids_of


def rows_alike(state: TypeState, columns: Sequence[str]) -> pa.Table:
    """The rows that may share the values of some columns with another row: all that do, and seldom one that does not.
    A row that lacks one of the values shares nothing. Comes with the ids and row ids, oldest row first."""
    hashes = [_hashes(rows, columns) for rows in state.parts(columns)]
    repeated = frequent_hashes(np.concatenate([np.empty(0, np.uint64), *hashes]), 1)
    parts = [_complete(rows, columns) for rows in state.parts(columns)] if len(repeated) else []
    alike = [rows.filter(pa.array(among(_hashes(rows, columns), repeated))) for rows in parts]
    if not alike:
        return next(iter(state.parts(columns))).slice(0, 0)
    return pa.concat_tables(alike).sort_by(ROW_ID)


def rows_to_drop(state: TypeState, columns: Sequence[str], keep: Dedupe) -> RowIds:
    """The row ids of all but the first or the last of the rows that share the values of some columns."""
    alike = rows_alike(state, columns)
    numbered = pa.table({**{name: alike.column(name) for name in columns}, "row": pa.array(row_ids_of(alike))})
    chosen = "min" if keep == "first" else "max"
    kept = numbered.group_by(list(columns)).aggregate([("row", chosen)])
    row_ids = row_ids_of(alike)
    return row_ids[~is_member(row_ids, kept.column(f"row_{chosen}").to_numpy())]


def _complete(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    for name in columns:
        if rows.column(name).null_count:
            rows = rows.filter(pc.is_valid(rows.column(name)))
    return rows


def _hashes(rows: pa.Table, columns: Sequence[str]) -> Hashes:
    complete = _complete(rows, columns)
    if not complete.num_rows:
        return np.empty(0, np.uint64)
    return key_hashes([whole_array(complete.column(name)) for name in columns])
