"""What a query gives back: an Arrow table with the names and types of its columns, and where it was read.

`QueryResult` holds everything; `QueryStream` gives one batch at a time and never more. Both are Arrow streams to any
library that takes one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from omnigraph.api.enums import Integers
from omnigraph.api.queries import ArrowBatches, ArrowRows, ReadTarget, json_rows, rendering_parts
from omnigraph.api.values import Columns
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.profile import OperatorProfile
from omnigraph.language.query.ir import OutputColumn


@dataclass(frozen=True, repr=False)
class QueryResult(ArrowRows):
    """The rows of one query, in order.

    Iterating gives a dictionary per row; `result[0]` is one, `result[1:3]` is a list of them. Values are plain Python
    values: dates and times as ISO texts, which `to_arrow`, `to_pandas` and `to_polars` give as real ones.
    """

    query_name: str
    target: ReadTarget
    graph_commit_id: str
    output: tuple[OutputColumn, ...]
    table: pa.Table
    profile: OperatorProfile

    @property
    def typed_columns(self) -> Columns:
        """The columns with their types, as the schema language writes them."""
        return _typed(self.output)


@dataclass(frozen=True, repr=False)
class QueryStream(ArrowBatches):
    """The rows of one query, made as they are asked for. The snapshot stays pinned meanwhile.

    Iterating gives Arrow record batches. A stream is read once, by whichever of its methods comes first.
    """

    query_name: str
    target: ReadTarget
    graph_commit_id: str
    output: tuple[OutputColumn, ...]
    schema: pa.Schema
    profile: OperatorProfile
    _batches: Iterator[pa.RecordBatch]
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    """What the query may use: code that renders its rows asks it too."""

    @property
    def typed_columns(self) -> Columns:
        """The columns with their types, as the schema language writes them."""
        return _typed(self.output)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def rows(self, integers: Integers = Integers.NATIVE) -> Iterator[dict[str, Any]]:
        """A dictionary per row, one after another."""
        for batch in self._batches:
            for part in rendering_parts(batch):
                self.budget.check()
                yield from json_rows(part, self.columns, integers)

    def reader(self) -> pa.RecordBatchReader:
        """For everything that consumes Arrow streams: DuckDB, Polars, a Flight server, a Parquet writer."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """As `reader`, for libraries that ask for it themselves."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def collected(self) -> QueryResult:
        """Everything that is left of it, in memory: it counts against that of the query like all that it keeps."""
        batches = []
        for batch in self._batches:
            self.budget.hold(batch.nbytes)
            batches.append(batch)
        table = pa.Table.from_batches(batches, self.schema)
        return QueryResult(self.query_name, self.target, self.graph_commit_id, self.output, table, self.profile)


def _typed(output: tuple[OutputColumn, ...]) -> Columns:
    return [(column.name, column.type.display) for column in output]
