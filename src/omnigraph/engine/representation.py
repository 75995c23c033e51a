"""How an entity is written outside the graph: the JSON form of exports and change images.

It loses nothing that a load can give back: integers at full width, dates as epoch days, moments as epoch
milliseconds, managed blobs as base64, external ones as their URI. Query results have another, friendlier form.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Property, TableType
from omnigraph.language.types import Scalar


def property_values(type_: TableType, rows: pa.Table) -> list[dict[str, Any]]:
    """Per row, every declared property by name; null where it is null. `rows` are in `columns.rows_schema`."""
    names = list(type_.properties)
    columns = [_plain(type_, prop, rows) for prop in type_.property_list]
    if not names:
        return [{} for _ in range(rows.num_rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _plain(type_: TableType, prop: Property, rows: pa.Table) -> list[Any]:
    column = rows.column(prop.column)
    if prop.type.is_blob:
        return [_blob_text(cell) for cell in column.to_pylist()]
    if prop.type.scalar in (Scalar.F32, Scalar.F64) or prop.type.is_vector:
        _refuse_non_finite(type_, prop, rows)
    if (as_number := _EPOCH.get(prop.type.scalar)) is not None:
        column = column.cast(pa.list_(as_number) if prop.type.list else as_number)
    values: list[Any] = column.to_pylist()
    return values


# JSON has no dates; these keep every stored one apart and come back through any grammar.
_EPOCH = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}


def _blob_text(cell: dict[str, Any] | None) -> str | None:
    if cell is None:
        return None
    if cell["data"] is None:
        uri: str = cell["uri"]
        return uri
    return "base64:" + base64.b64encode(cell["data"]).decode()


def _refuse_non_finite(type_: TableType, prop: Property, rows: pa.Table) -> None:
    column = rows.column(prop.column)
    nested = prop.type.is_vector or prop.type.list
    finite = pc.is_finite(pc.list_flatten(column) if nested else column)
    if pc.all(finite, min_count=0).as_py():
        return
    held: Callable[[Any], bool] = (lambda v: _has_non_finite(v)) if nested else (lambda v: _is_non_finite(v))
    row = next(i for i, value in enumerate(column.to_pylist()) if value is not None and held(value))
    raise BadRequestError(
        f"{type_.name} '{rows.column('id')[row].as_py()}': property '{prop.name}' holds a number that is not finite, "
        "which JSON can't carry; export it as Parquet or Arrow"
    )


def _has_non_finite(values: list[float | None]) -> bool:
    return any(value is not None and _is_non_finite(value) for value in values)


def _is_non_finite(value: float) -> bool:
    return value - value != 0.0
