"""The projection: output columns of bound rows, a batch at a time.

The last step of a plan that does not aggregate, and the only one that reads columns which nothing but the result
needs. Never holds more than the batch at hand.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.values.bindings import Bindings
from omnigraph.engine.query.values.values import evaluate, gathered, load_together
from omnigraph.engine.rows.columns import arrow_type
from omnigraph.language.query import ir

BATCH_ROWS = 65_536


def output_schema(plan: ir.ReadPlan) -> pa.Schema:
    """The Arrow schema of a result. Names may repeat."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in plan.columns])


def projected(plan: ir.Project, schema: pa.Schema, rows: Bindings, context: ReadContext) -> Iterator[pa.RecordBatch]:
    values = [column.value for column in plan.columns]
    for start in range(0, rows.length, BATCH_ROWS):
        context.cancellation.check()
        part = rows.slice(start, start + BATCH_ROWS)
        load_together(values, part, context)
        arrays = [gathered(evaluate(value, part, context), part.length) for value in values]
        typed = [a if a.type == f.type else a.cast(f.type) for a, f in zip(arrays, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(typed, schema=schema)
