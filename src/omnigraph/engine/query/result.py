"""What a query gives back: an Arrow table with the names and types of its columns, and where it was read.

`QueryResult` holds everything; `QueryStream` gives one batch at a time and never more. Both render the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.api.enums import Integers
from omnigraph.api.query import ReadOutput, ReadTarget
from omnigraph.engine.query.profile import OperatorProfile
from omnigraph.engine.query.render import rendered
from omnigraph.language.query.ir import OutputColumn


@dataclass(frozen=True)
class QueryResult:
    """The rows of one query, in order."""

    query_name: str
    target: ReadTarget
    graph_commit_id: str
    output: tuple[OutputColumn, ...]
    table: pa.Table
    profile: OperatorProfile

    @property
    def columns(self) -> list[str]:
        return [column.name for column in self.output]

    @property
    def num_rows(self) -> int:
        return len(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def rows(self, integers: Integers = Integers.NATIVE) -> list[dict[str, Any]]:
        """One JSON object per row, keys in projection order; of a repeated name the last value stays."""
        return _json_rows(self.table, self.output, integers)

    def to_arrow(self) -> pa.Table:
        return self.table

    def to_pandas(self) -> Any:
        """A pandas DataFrame; needs pandas."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """A Polars DataFrame; needs polars."""
        import polars  # type: ignore[import-not-found]

        return polars.from_arrow(self.table)

    def to_ipc(self) -> bytes:
        """The Arrow IPC stream of the table."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def read_output(self, integers: Integers = Integers.NATIVE) -> ReadOutput:
        """The answer as HTTP and the CLI give it."""
        return ReadOutput(
            query_name=self.query_name,
            target=self.target,
            row_count=self.num_rows,
            columns=tuple(self.columns),
            rows=self.rows(integers),
            graph_commit_id=self.graph_commit_id,
        )


@dataclass(frozen=True)
class QueryStream:
    """The rows of one query, made as they are asked for. The snapshot stays pinned meanwhile."""

    query_name: str
    target: ReadTarget
    graph_commit_id: str
    output: tuple[OutputColumn, ...]
    schema: pa.Schema
    profile: OperatorProfile
    _batches: Iterator[pa.RecordBatch]

    @property
    def columns(self) -> list[str]:
        return [column.name for column in self.output]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def rows(self, integers: Integers = Integers.NATIVE) -> Iterator[dict[str, Any]]:
        for batch in self._batches:
            yield from _json_rows(batch, self.output, integers)

    def reader(self) -> pa.RecordBatchReader:
        """For everything that consumes Arrow streams: DuckDB, Polars, a Flight server, a Parquet writer."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches)

    def collected(self) -> QueryResult:
        table = pa.Table.from_batches(self._batches, self.schema)
        return QueryResult(self.query_name, self.target, self.graph_commit_id, self.output, table, self.profile)


def _json_rows(
    table: pa.Table | pa.RecordBatch, output: tuple[OutputColumn, ...], integers: Integers
) -> list[dict[str, Any]]:
    names = [column.name for column in output]
    columns = [rendered(table.column(i), column.type, integers) for i, column in enumerate(output)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
