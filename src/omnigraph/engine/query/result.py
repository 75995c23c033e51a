"""What a query gives back: an Arrow table with the names and types of its columns, and where it was read.

`QueryResult` holds everything; `QueryStream` gives one batch at a time and never more. Both render the same rows, and
both are Arrow streams to any library that takes one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Final, overload

import pyarrow as pa

from omnigraph.api.enums import Integers
from omnigraph.api.query import ReadOutput, ReadTarget
from omnigraph.engine.query.profile import OperatorProfile
from omnigraph.engine.query.result_table import html_table, text_table
from omnigraph.engine.query.values.render import rendered
from omnigraph.errors import BadRequestError
from omnigraph.language.query.ir import OutputColumn

MOST_SHOWN_ROWS: Final = 10
_ROWS_AT_ONCE: Final = 4096


@dataclass(frozen=True, repr=False)
class QueryResult:
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
    def columns(self) -> list[str]:
        """The names of the columns, in projection order."""
        return [column.name for column in self.output]

    @property
    def num_rows(self) -> int:
        return len(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def __bool__(self) -> bool:
        return len(self.table) > 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.table.to_batches(max_chunksize=_ROWS_AT_ONCE):
            yield from _json_rows(batch, self.output, Integers.NATIVE)

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, at: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        chosen = range(len(self.table))[at]  # raises IndexError as a list does
        if isinstance(chosen, int):
            return _json_rows(self.table.slice(chosen, 1), self.output, Integers.NATIVE)[0]
        return _json_rows(self.table.take(pa.array(chosen, pa.int64())), self.output, Integers.NATIVE)

    def rows(self, integers: Integers = Integers.NATIVE) -> list[dict[str, Any]]:
        """One dictionary per row, keys in projection order; of a repeated name the last value stays."""
        return _json_rows(self.table, self.output, integers)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary per row; the same as `rows()`."""
        return self.rows()

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table. Nothing is copied."""
        return self.table

    def to_pandas(self) -> Any:
        """A pandas DataFrame; needs pandas."""
        _package("pandas")
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """A Polars DataFrame; needs polars."""
        return _package("polars").from_arrow(self.table)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for any library that reads Arrow streams: `polars.DataFrame(result)`, `duckdb.from_arrow(result)`"""
        return self.table.__arrow_c_stream__(requested_schema)

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

    def __repr__(self) -> str:
        return text_table(self.query_name, *self._shown())

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return html_table(self.query_name, *self._shown())

    def _shown(self) -> tuple[list[tuple[str, str]], int, list[list[Any]]]:
        """Names and types of the columns, the number of rows, and the values of as many as are shown."""
        head = self.table.slice(0, MOST_SHOWN_ROWS)
        values = [rendered(head.column(i), column.type) for i, column in enumerate(self.output)]
        return [(c.name, c.type.display) for c in self.output], len(self), values


@dataclass(frozen=True, repr=False)
class QueryStream:
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

    @property
    def columns(self) -> list[str]:
        return [column.name for column in self.output]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def rows(self, integers: Integers = Integers.NATIVE) -> Iterator[dict[str, Any]]:
        """A dictionary per row, one after another."""
        for batch in self._batches:
            yield from _json_rows(batch, self.output, integers)

    def reader(self) -> pa.RecordBatchReader:
        """For everything that consumes Arrow streams: DuckDB, Polars, a Flight server, a Parquet writer."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """As `reader`, for libraries that ask for it themselves."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def collected(self) -> QueryResult:
        """Everything that is left of it, in memory."""
        table = pa.Table.from_batches(self._batches, self.schema)
        return QueryResult(self.query_name, self.target, self.graph_commit_id, self.output, table, self.profile)

    def __repr__(self) -> str:
        columns = ", ".join(f"{column.name}: {column.type.display}" for column in self.output)
        return f"<QueryStream {self.query_name}({columns})>"


def _package(name: str) -> ModuleType:
    """A package that results can be converted with, and that OmniGraph itself does not need."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise BadRequestError(f"this needs {name}, which is not installed: pip install {name}") from None


def _json_rows(
    table: pa.Table | pa.RecordBatch, output: tuple[OutputColumn, ...], integers: Integers
) -> list[dict[str, Any]]:
    names = [column.name for column in output]
    columns = [rendered(table.column(i), column.type, integers) for i, column in enumerate(output)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
