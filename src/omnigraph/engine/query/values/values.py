"""What a value of the plan is for the rows at hand: one constant, or a column that several rows may share.

Called by filters, ordering, aggregates and projection; the only place that knows how each kind of value comes about.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.operators.ranking import matching_rows, scores_of
from omnigraph.engine.query.values.bindings import Bindings, RowSpace
from omnigraph.engine.query.values.properties import Located
from omnigraph.engine.rows.columns import arrow_type
from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir

Evaluated: TypeAlias = "Located | pa.Scalar"

_ID = "id"


def evaluate(value: ir.Value, rows: Bindings, context: ReadContext) -> Evaluated:
    """The value for every row."""
    match value:
        case ir.PropertyValue():
            if not context.has_column(value):
                return pa.scalar(None, arrow_type(value.type))
            table = context.table(value.owner)
            return context.properties.located(table, value.variable, value.prop.column, rows.rows[value.variable])
        case ir.NodeId():
            return entity_ids(value.variable, value.owner, rows, context)
        case ir.TextMatch():
            bound = rows.rows[value.field.variable]
            candidates = RowSpace.of(bound)
            matching = RowSpace(matching_rows(value, candidates.rows, context))
            flags = matching.contains(candidates.rows)
            return Located(pa.array(flags), candidates.positions(bound))
        case ir.Score():
            variable = next(ir.variables_of(value))
            bound = rows.rows[variable]
            scores = scores_of(value.rank, bound, context)
            positions = scores.space.positions(bound)
            values = pa.array(
                np.append(scores.values, 0.0), mask=np.arange(len(scores.values) + 1) == len(scores.values)
            )
            return Located(values, np.where(positions < 0, len(scores.values), positions))
        case ir.OutputValue():
            raise AssertionError("an output column is sorted by its aggregate")
        case _:
            return context.scalar(value)


def entity_ids(variable: str, owner: NodeType | EdgeType, rows: Bindings, context: ReadContext) -> Located:
    """The `id` of the node or edge bound to a variable."""
    return context.properties.located(context.table(owner), variable, _ID, rows.rows[variable])


def gathered(evaluated: Evaluated, length: int) -> pa.Array:
    """One value per row."""
    return evaluated.gathered() if isinstance(evaluated, Located) else pa.repeat(evaluated, length)


def gathered_in_parts(evaluated: Evaluated, length: int, budget: MemoryBudget) -> pa.ChunkedArray:
    """The same in chunks, within the budget."""
    if not isinstance(evaluated, Located):
        evaluated = Located(pa.repeat(evaluated, 1), np.zeros(length, np.int64))
    return evaluated.in_parts(budget)


def load_together(values: Iterable[ir.Value], rows: Bindings, context: ReadContext) -> None:
    """Read the stored columns of several values with one request per variable instead of one per value."""
    wanted: dict[str, dict[str, None]] = {}
    owners: dict[str, NodeType | EdgeType] = {}
    for value in values:
        match value:
            case ir.PropertyValue() if context.has_column(value):
                wanted.setdefault(value.variable, {})[value.prop.column] = None
            case ir.NodeId():
                wanted.setdefault(value.variable, {})[_ID] = None
            case _:
                continue
        owners[value.variable] = value.owner
    for variable, columns in wanted.items():
        context.properties.load(context.table(owners[variable]), variable, list(columns), rows.rows[variable])
