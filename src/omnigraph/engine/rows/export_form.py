"""The export form: an entity as JSON outside the graph.

Exports, baselines, change images, entity reads and quarantines all write it, and `load` reads it back without loss:
integers keep their full width, a Date is its epoch day and a DateTime its epoch millisecond (or ISO 8601 texts on
request), a managed blob is `base64:` and its bytes, an external one its URI. A number that is not finite is refused.
Query results have another form (`omnigraph.api.values`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.enums import Dates
from omnigraph.api.values import render_column
from omnigraph.engine.rows.columns import EPOCH_TYPES
from omnigraph.engine.rows.end_ids import interface_ends, plain_ids, type_names, with_plain_ends
from omnigraph.engine.rows.kernels.coerce import MANAGED_PREFIX
from omnigraph.errors import ConstraintError
from omnigraph.language.catalog import EdgeType, Property, TableType
from omnigraph.language.types import FLOATS
from omnigraph.language.violations import Sentence

_encode = msgspec.json.Encoder().encode


def property_values(type_: TableType, rows: pa.Table, dates: Dates = Dates.EPOCH) -> list[dict[str, Any]]:
    """Per row, every declared property by name; null where it is null. `rows` are in `columns.rows_schema`."""
    if not type_.property_list:
        return [{} for _ in range(rows.num_rows)]
    columns = [_json_values(type_, prop, rows, dates) for prop in type_.property_list]
    return [dict(zip(type_.properties, values, strict=True)) for values in zip(*columns, strict=True)]


def record_lines(type_: TableType, rows: pa.Table, dates: Dates = Dates.EPOCH) -> Iterator[bytes]:
    """Per row, the entity as a graph record, without a line end."""
    # As `graph_record`, with one dictionary less per row: exports write millions of them.
    ids = rows.column("id").to_pylist()
    columns = [_json_values(type_, prop, rows, dates) for prop in type_.property_list]
    head: list[tuple[str, list[Any]]] = []
    if "id" in type_.properties:
        head.append(("id", ids))
        names = list(type_.properties)
    else:
        names = ["id", *type_.properties]
        columns = [ids, *columns]
    if isinstance(type_, EdgeType):
        head += [(name, values.to_pylist()) for name, values in end_columns(type_, rows).items()]
    kind, members = "type" if type_.kind == "node" else "edge", [name for name, _ in head]
    heads = zip(*(values for _, values in head), strict=True) if head else repeat((), rows.num_rows)
    for beside, values in zip(heads, zip(*columns, strict=True), strict=True):
        record = {kind: type_.name, **dict(zip(members, beside, strict=True))}
        yield _encode({**record, "data": dict(zip(names, values, strict=True))})


def graph_record(type_: TableType, data: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The envelope of an entity: its type, the ends of an edge and perhaps its id, and its properties."""
    named = {"type": type_.name} if type_.kind == "node" else {"edge": type_.name}
    return {**named, **(beside or {}), "data": data}


def flat_entity(type_: TableType, rows: pa.Table) -> dict[str, Any]:
    """The only row as one object: `id`, `src` and `dst` of an edge (`system_name`), then every declared property.
    `src_type` and `dst_type` are beside ends that are interfaces."""
    rows = with_plain_ends(type_, rows, types=True)
    types = {end.column: f"{end.column}_type" for end in interface_ends(type_)}
    names = [each for name in type_.system_columns for each in (name, types.get(name)) if each is not None]
    system = {type_.system_name(name): rows.column(name)[0].as_py() for name in names}
    return {**system, **property_values(type_, rows)[0]}


def end_columns(type_: EdgeType, rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    """The ends of edges as records have them: `from` and `to`, and `from_type` and `to_type` where they are
    interfaces."""
    columns = {}
    for end in type_.ends:
        column = rows.column(end.column)
        columns[end.name] = plain_ids(end, column)
        if end.interface is not None:
            columns[f"{end.name}_type"] = type_names(end, column)
    return columns


def blob_text(data: bytes) -> str:
    """The bytes of a managed blob as `load` reads them."""
    return MANAGED_PREFIX + base64.b64encode(data).decode()


def _json_values(type_: TableType, prop: Property, rows: pa.Table, dates: Dates) -> list[Any]:
    column = rows.column(prop.column)
    if prop.type.is_blob:
        cells = column.to_pylist()
        return [cell and (cell["uri"] if cell["data"] is None else blob_text(cell["data"])) for cell in cells]
    if prop.type.scalar in FLOATS or prop.type.is_vector:
        _refuse_non_finite(type_, prop, rows)
    # JSON has no dates; their integers keep every stored one apart and come back through any grammar.
    if (as_number := EPOCH_TYPES.get(prop.type.scalar)) is not None:
        if dates is Dates.ISO:
            return render_column(column)
        column = column.cast(pa.list_(as_number) if prop.type.list else as_number)
    values: list[Any] = column.to_pylist()
    return values


def _refuse_non_finite(type_: TableType, prop: Property, rows: pa.Table) -> None:
    column = rows.column(prop.column).combine_chunks()
    nested = prop.type.is_vector or prop.type.list
    finite = pc.is_finite(pc.list_flatten(column) if nested else column)
    if pc.all(finite, min_count=0).as_py():
        return
    first = int(np.flatnonzero(pc.fill_null(pc.invert(finite), False).to_numpy(zero_copy_only=False))[0])
    row = pc.list_parent_indices(column)[first].as_py() if nested else first
    entity_id: str = rows.column("id")[row].as_py()
    message = Sentence.NOT_EXPORTABLE.text(type=type_.name, entity_id=entity_id, property=prop.name)
    raise ConstraintError(Sentence.NOT_EXPORTABLE.rule, type_.type_key, prop.name, entity_id, message=message)
