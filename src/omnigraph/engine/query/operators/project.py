"""The projection: output columns of bound rows, a batch at a time.

The last step of a plan that does not aggregate, and the only one that reads columns which nothing but the result
needs. Never holds more than the batch at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.values.bindings import Bindings
from omnigraph.engine.query.values.properties import Located, gathering_parts
from omnigraph.engine.query.values.values import Evaluated, evaluate, gathered, load_together
from omnigraph.engine.rows.columns import arrow_type
from omnigraph.errors import ResourceLimitError
from omnigraph.language.query import ir

BATCH_ROWS = 65_536
_FEWER_ROWS = 8


def output_schema(plan: ir.ReadPlan) -> pa.Schema:
    """The Arrow schema of a result. Names may repeat."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in plan.columns])


def projected(plan: ir.Project, schema: pa.Schema, rows: Bindings, context: ReadContext) -> Iterator[pa.RecordBatch]:
    values = [column.value for column in plan.columns]
    start, size = 0, BATCH_ROWS
    while start < rows.length:
        context.cancellation.check()
        part = rows.slice(start, start + size)
        try:
            load_together(values, part, context)
        except ResourceLimitError:
            if part.length == 1:
                raise
            # Values may be of any size: fewer rows of them may fit.
            size = max(1, part.length // _FEWER_ROWS)
            continue
        yield from _batches([evaluate(value, part, context) for value in values], part.length, schema, context)
        start += part.length


def _batches(
    evaluated: Sequence[Evaluated], length: int, schema: pa.Schema, context: ReadContext
) -> Iterator[pa.RecordBatch]:
    """The rows in batches of bounded bytes. Texts of one batch never come near the 2 GiB that Arrow allows them."""
    columns = [value for value in evaluated if isinstance(value, Located)]
    constant = sum(pa.repeat(value, 1).nbytes for value in evaluated if not isinstance(value, Located))
    for rows in gathering_parts(columns, length, context.budget, most_rows=BATCH_ROWS, beside=constant):
        size = min(length, rows.stop) - rows.start
        arrays = [gathered(v.part(rows) if isinstance(v, Located) else v, size) for v in evaluated]
        typed = [a if a.type == f.type else a.cast(f.type) for a, f in zip(arrays, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(typed, schema=schema)
