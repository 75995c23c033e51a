"""Rejected rows as graph records, which a person corrects and `load` takes back.

The envelope is that of the export form. A value that fits its property is written as `load` reads it; one that does
not fit stays as it came, to be corrected.
"""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from omnigraph.engine.rows.export_form import blob_text, graph_record
from omnigraph.engine.rows.kernels.source_values import coerce_arrow
from omnigraph.language.catalog import TableType
from omnigraph.language.types import NUMERIC, Scalar

# Types that JSON has. Dates and texts are read as they are written.
_CONVERTED: Final = frozenset({*NUMERIC, Scalar.BOOL})


_ENDS = frozenset({"from", "to", "from_type", "to_type"})


def loose_record(type_: TableType, batch: pa.RecordBatch, row: int) -> str:
    """A row of loosely typed columns (properties, `id`, and `from` and `to` of an edge) as a graph record."""
    data: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    identity = type_.system_name("id")
    for name in batch.schema.names:
        cell = batch.column(name).slice(row, 1)
        if name in type_.properties:
            prop = type_.properties[name]
            if prop.type.is_vector or prop.type.scalar in _CONVERTED:
                column = coerce_arrow(prop.type, cell)
                cell = cell if column.unfit else column.array
            data[name] = _json_value(cell[0].as_py())
        elif (identifier := _json_value(cell[0].as_py())) is not None or name != identity:
            text = str(identifier) if isinstance(identifier, int) else identifier
            if name == "@id":
                beside["id"] = text
            else:
                (beside if type_.kind == "edge" and name in _ENDS else data)[name] = text
    return json.dumps(graph_record(type_, data, beside), ensure_ascii=False)


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return blob_text(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _json_value(member) for name, member in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
