"""Which entities of a state its reader sees, for everything that reads them outside of a query.

A node is seen by its own properties, an edge by its own and only where both of its ends are seen. Entity reads, exports
and blobs ask here; queries look through the lens themselves.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.read import context_of
from omnigraph.engine.query.traversal.sight import is_narrowed, seen
from omnigraph.engine.query.values.bindings import Mask
from omnigraph.engine.query.values.compare import as_mask
from omnigraph.engine.query.values.properties import one_array
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import EdgeType, NodeType, TableType
from omnigraph.language.query.ir import NOW_PARAMETER
from omnigraph.storage.identifiers import now_micros
from omnigraph.storage.tables.rows import RowIds, row_ids_of


def seen_entities(snapshot: Snapshot, type_: TableType, rows: RowIds) -> Mask:
    """Which of these rows of a type are seen, in their order."""
    if snapshot.lens.is_open or not len(rows):
        return np.ones(len(rows), dtype=bool)
    now = {NOW_PARAMETER: now_micros() // 1000}
    context = context_of(snapshot, snapshot.catalog, snapshot.lens, now)
    mask = seen(type_, rows, context)
    if not isinstance(type_, EdgeType):
        return mask
    for column, end_name in (("src", type_.from_type), ("dst", type_.to_type)):
        end = snapshot.catalog.nodes[end_name]
        if is_narrowed(end, context):
            ids = one_array(context.table(type_).take(rows, [column]).column(column))
            mask &= as_mask(pc.is_in(ids, value_set=_seen_ids(ids, end, context)))
    return mask


def _seen_ids(ids: pa.Array, end: NodeType, context: ReadContext) -> pa.Array:
    """Those of some node ids whose nodes are seen."""
    found = context.table(end).rows_among("id", pc.unique(ids).to_pylist(), ["id"], row_ids=True)
    return one_array(found.column("id")).filter(pa.array(seen(end, row_ids_of(found), context)))
