"""The entities of a snapshot that its reader sees: single entities, counts and row masks.

Entity reads, exports, blobs, bulk reads and writes call it; queries apply the visibility themselves. A node is visible
by its own properties, an edge by its own and only if both of its ends are visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Mask
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.operators.row_filters import hide_evaluation_errors, visible_text
from omnigraph.engine.query.properties import one_array
from omnigraph.engine.query.read import context_of
from omnigraph.engine.query.traversal.edge_visibility import visible_mask, visible_rows
from omnigraph.engine.query.values.compare import as_mask
from omnigraph.engine.query.values.predicates import table_mask
from omnigraph.engine.rows.end_ids import ids_of_type
from omnigraph.engine.rows.export_form import flat_entity
from omnigraph.engine.rows.kernels.coerce import coerce
from omnigraph.engine.rows.kernels.ids import key_ids
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import SYSTEM_COLUMNS, EdgeEnd, EdgeType, NodeType, TableType
from omnigraph.language.query.ir import NOW_PARAMETER
from omnigraph.language.query.row_filter import RowFilter, TypeVisibility
from omnigraph.storage.identifiers import now_micros
from omnigraph.storage.tables.rows import ROW_ADDRESS, RowIds, row_ids_of


def visible_entities(snapshot: Snapshot, type_: TableType, rows: RowIds, now: int | None = None) -> Mask:
    """Which of these rows of a type are visible, in their order. `now` is the moment for the rules, in milliseconds,
    for reads that ask more than once."""
    if snapshot.visibility.is_unrestricted or not len(rows):
        return np.ones(len(rows), dtype=bool)
    context = _context(snapshot, now)
    return visible_mask(type_, rows, context) & _with_visible_ends(type_, rows, context)


def visible_count(snapshot: Snapshot, type_: TableType) -> int:
    """How many entities of a type are visible. An unrestricted count is in the table state."""
    context = _context(snapshot)
    if not any(context.is_restricted(part) for part in (type_, *(node for _, node in _ends(type_, context)))):
        return snapshot.entry.tables[type_.type_key].rows
    rows = visible_rows(type_, context)
    if rows is None:
        rows = row_ids_of(context.table(type_).read([], row_ids=True))
    return int(np.count_nonzero(_with_visible_ends(type_, rows, context)))


def visible_filter(snapshot: Snapshot, type_: TableType) -> str | None:
    """The visible rows of a type as a text of Lance's filter language: empty for all of them, None if no text can say
    it."""
    context = _context(snapshot)
    if any(context.is_restricted(node) for _, node in _ends(type_, context)):
        return None
    if not context.is_restricted(type_):
        return ""
    return visible_text(type_, context)


def visible_addresses(snapshot: Snapshot, type_: TableType) -> NDArray[np.int64]:
    """The addresses of the visible rows of a type in its table, ascending."""
    stored = snapshot.table(type_.type_key).read([ROW_ADDRESS], row_ids=True)
    mask = visible_entities(snapshot, type_, row_ids_of(stored))
    return np.sort(stored.column(ROW_ADDRESS).to_numpy().astype(np.int64)[mask])


def _context(snapshot: Snapshot, now: int | None = None) -> ReadContext:
    parameters = {NOW_PARAMETER: now_micros() // 1000 if now is None else now}
    return context_of(snapshot, snapshot.catalog, snapshot.visibility, parameters)


def _ends(type_: TableType, context: ReadContext) -> list[tuple[EdgeEnd, NodeType]]:
    """Each end of an edge with each node type that it may have."""
    ends = type_.ends if isinstance(type_, EdgeType) else ()
    return [(end, context.catalog.nodes[node]) for end in ends for node in end.types]


def _with_visible_ends(type_: TableType, rows: RowIds, context: ReadContext) -> Mask:
    """Which edges lie between visible nodes; True for every node."""
    mask = np.ones(len(rows), dtype=bool)
    for end, node in _ends(type_, context):
        if context.is_restricted(node):
            column = one_array(context.table(type_).take(rows, [end.column]).column(end.column))
            ids = ids_of_type(end, node.name, column)
            wanted = pc.unique(ids).drop_null().to_pylist()
            nodes = context.table(node).rows_among("id", wanted, ["id"], row_ids=True)
            visible = one_array(nodes.column("id")).filter(pa.array(visible_mask(node, row_ids_of(nodes), context)))
            mask &= as_mask(pc.or_(pc.is_in(ids, value_set=visible, skip_nulls=True), pc.is_null(ids)))
    return mask


def read_entity(snapshot: Snapshot, type_: TableType, entity_id: str) -> dict[str, Any] | None:
    """Flat: `id` (and `src`, `dst`), then every declared property. None when the id is not there."""
    if type_.type_key not in snapshot.entry.tables:
        return None
    entities = TypeState.of(snapshot, type_)
    rows = entities.table.rows_among("id", [entity_id], entities.stored_columns(), row_ids=True)
    if not rows.num_rows or not visible_entities(snapshot, type_, row_ids_of(rows)).all():
        return None
    return flat_entity(type_, entities.complete(rows, row_ids_of(rows)))


def count_entities(snapshot: Snapshot, type_: TableType) -> int:
    """How many entities of a type a state shows."""
    if snapshot.visibility.is_unrestricted:
        return snapshot.table(type_.type_key).count()
    return visible_count(snapshot, type_)


def row_filter_mask(test: RowFilter, rows: pa.Table, now: int) -> Mask:
    """Which rows satisfy a filter at a moment, in milliseconds. Columns are those of the table."""
    with hide_evaluation_errors():
        return table_mask(test, rows, {NOW_PARAMETER: now})


def shows_row(visibility: TypeVisibility, values: Mapping[str, object]) -> bool:
    """Whether a row with these values, as a load takes them, would be visible. Absent values are null. `@id`, and of an
    edge `@src` and `@dst`, may be among them; a key makes the id."""
    type_ = visibility.type
    system = SYSTEM_COLUMNS[type_.kind]
    for name in values:
        if name not in type_.properties and name.removeprefix("@") not in system:
            raise BadRequestError(f"{type_.name} has no property '{name}'")
    columns = {name: pa.array([values.get(f"@{name}")], pa.string()) for name in system}
    for prop in type_.property_list:
        column = coerce(prop.type, [values.get(prop.name)])
        if column.unfit:
            raise BadRequestError(f"{type_.name}.{prop.name}: {column.unfit[0]}")
        columns[prop.column] = column.array
    if type_.key:
        columns["id"] = key_ids(type_, pa.table(columns))
    return bool(row_filter_mask(visibility.rows, pa.table(columns), now_micros() // 1000)[0])
