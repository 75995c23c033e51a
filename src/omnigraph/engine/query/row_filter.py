"""Whether rows that are in memory satisfy the filter of a lens: what a write leaves behind, or what is told."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.context import scalar_constant
from omnigraph.engine.query.values.bindings import Mask
from omnigraph.engine.query.values.compare import compared_sides
from omnigraph.engine.query.values.properties import one_array
from omnigraph.engine.rows.kernels.coerce import coerce
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import TableType
from omnigraph.language.query import ir
from omnigraph.language.query.lens import AllOf, RowFilter, TypeLens
from omnigraph.storage.identifiers import now_micros


def satisfied(test: RowFilter, rows: pa.Table, now: int) -> Mask:
    """Which rows satisfy a filter at a moment, in milliseconds. Columns are those of the table."""
    if isinstance(test, ir.Compare):
        left, right = (_value(side, rows, now) for side in (test.left, test.right))
        return compared_sides(left, test.operator, right, rows.num_rows)
    masks = [satisfied(part, rows, now) for part in test.tests]
    if isinstance(test, AllOf):
        return np.logical_and.reduce(masks) if masks else np.ones(rows.num_rows, dtype=bool)
    return np.logical_or.reduce(masks) if masks else np.zeros(rows.num_rows, dtype=bool)


def shows_row(lens: TypeLens, values: Mapping[str, object]) -> bool:
    """Whether a row with these values, as a load takes them, would be seen. What is left out is null."""
    return bool(satisfied(lens.rows, _row(lens.type, values), now_micros() // 1000)[0])


def _value(value: ir.Value, rows: pa.Table, now: int) -> pa.Array | pa.Scalar:
    if isinstance(value, ir.PropertyValue):
        return one_array(rows.column(value.prop.column))
    assert isinstance(value, ir.Constant | ir.ParameterValue | ir.Now)
    return scalar_constant(value, {ir.NOW_PARAMETER: now})


def _row(type_: TableType, values: Mapping[str, object]) -> pa.Table:
    for name in values:
        if name not in type_.properties:
            raise BadRequestError(f"{type_.name} has no property '{name}'")
    columns = {}
    for prop in type_.property_list:
        column = coerce(prop.type, [values.get(prop.name)])
        if column.unfit:
            raise BadRequestError(f"{type_.name}.{prop.name}: {column.unfit[0]}")
        columns[prop.column] = column.array
    return pa.table(columns)
