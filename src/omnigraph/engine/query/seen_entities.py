"""Which entities of a state its reader sees, for everything that reads them outside of a query.

A node is seen by its own properties, an edge by its own and only where both of its ends are seen. Entity reads, exports
and blobs ask here; queries look through the lens themselves.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.operators.pushdown import pushed_filter
from omnigraph.engine.query.read import context_of
from omnigraph.engine.query.traversal.sight import is_narrowed, seen, visible_rows
from omnigraph.engine.query.values.bindings import Mask
from omnigraph.engine.query.values.compare import as_mask
from omnigraph.engine.query.values.properties import one_array
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import EdgeType, NodeType, TableType
from omnigraph.language.query.ir import NOW_PARAMETER
from omnigraph.storage.identifiers import now_micros
from omnigraph.storage.tables.rows import ROW_ADDRESS, RowIds, row_ids_of


def seen_entities(snapshot: Snapshot, type_: TableType, rows: RowIds, now: int | None = None) -> Mask:
    """Which of these rows of a type are seen, in their order. `now` is the moment that rules are told, in
    milliseconds, for reads that ask more than once."""
    if snapshot.lens.is_open or not len(rows):
        return np.ones(len(rows), dtype=bool)
    context = _context(snapshot, now)
    return seen(type_, rows, context) & _with_seen_ends(type_, rows, context)


def seen_count(snapshot: Snapshot, type_: TableType) -> int:
    """How many entities of a type are seen. What is stored is counted already."""
    context = _context(snapshot)
    if not any(is_narrowed(looked_at, context) for looked_at in (type_, *_ends(type_, context))):
        return snapshot.entry.tables[type_.type_key].rows
    rows = visible_rows(type_, context)
    if rows is None:
        rows = row_ids_of(context.table(type_).read([], row_ids=True))
    return int(np.count_nonzero(_with_seen_ends(type_, rows, context)))


def seen_filter(snapshot: Snapshot, type_: TableType) -> str | None:
    """Which rows of a type are seen, as a text of Lance's filter language: empty for all of them, None where no text
    says it."""
    context = _context(snapshot)
    if any(is_narrowed(end, context) for end in _ends(type_, context)):
        return None
    if not is_narrowed(type_, context):
        return ""
    return pushed_filter(context.lens.of(type_).rows_of(f"#sight:{type_.type_key}"), context)


def seen_places(snapshot: Snapshot, type_: TableType) -> NDArray[np.int64]:
    """Where the seen rows of a type stand in its table, ascending."""
    stored = snapshot.table(type_.type_key).read([ROW_ADDRESS], row_ids=True)
    mask = seen_entities(snapshot, type_, row_ids_of(stored))
    return np.sort(stored.column(ROW_ADDRESS).to_numpy().astype(np.int64)[mask])


def _context(snapshot: Snapshot, now: int | None = None) -> ReadContext:
    told = {NOW_PARAMETER: now_micros() // 1000 if now is None else now}
    return context_of(snapshot, snapshot.catalog, snapshot.lens, told)


def _ends(type_: TableType, context: ReadContext) -> tuple[NodeType, ...]:
    if not isinstance(type_, EdgeType):
        return ()
    return context.catalog.nodes[type_.from_type], context.catalog.nodes[type_.to_type]


def _with_seen_ends(type_: TableType, rows: RowIds, context: ReadContext) -> Mask:
    """Which edges lie between nodes that are seen; every node does."""
    mask = np.ones(len(rows), dtype=bool)
    for column, end in zip(("src", "dst"), _ends(type_, context), strict=False):
        if is_narrowed(end, context):
            ids = one_array(context.table(type_).take(rows, [column]).column(column))
            mask &= as_mask(pc.is_in(ids, value_set=_seen_ids(ids, end, context)))
    return mask


def _seen_ids(ids: pa.Array, end: NodeType, context: ReadContext) -> pa.Array:
    """Those of some node ids whose nodes are seen."""
    found = context.table(end).rows_among("id", pc.unique(ids).to_pylist(), ["id"], row_ids=True)
    return one_array(found.column("id")).filter(pa.array(seen(end, row_ids_of(found), context)))
