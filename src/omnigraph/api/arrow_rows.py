"""The rows of a query in the hands of a person: one surface, whether they were read in this process or came over HTTP.

`ArrowRows` stands on an Arrow table, `ArrowBatches` on a stream of batches; both render the same rows. Arrow is
imported when rows are looked at, never before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, overload

from omnigraph.api.enums import Integers
from omnigraph.api.query import ReadOutput, ReadTarget
from omnigraph.api.result_table import Columns, html_table, text_table
from omnigraph.api.row_values import rendered
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    import pyarrow as pa

MOST_SHOWN_ROWS: Final = 10
_ROWS_AT_ONCE: Final = 4096
_CELLS_AT_ONCE: Final = 1 << 15
_BYTES_AT_ONCE: Final = 128 << 10


class _Columns:
    """What results and streams know of their query."""

    if TYPE_CHECKING:

        @property
        def query_name(self) -> str: ...
        @property
        def typed_columns(self) -> Columns: ...

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in projection order."""
        return [name for name, _ in self.typed_columns]


class ArrowRows(_Columns):
    """The rows of one query, in order.

    Iterating gives a dictionary per row; `result[0]` is one, `result[1:3]` is a list of them. Values are plain Python
    values: dates and times as ISO texts, which `to_arrow`, `to_pandas` and `to_polars` give as real ones.
    """

    if TYPE_CHECKING:

        @property
        def target(self) -> ReadTarget: ...
        @property
        def graph_commit_id(self) -> str: ...
        @property
        def table(self) -> pa.Table: ...

    @property
    def num_rows(self) -> int:
        """How many rows there are; the same as `len(result)`."""
        return len(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def __bool__(self) -> bool:
        return len(self.table) > 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.table.to_batches():
            for part in rendering_parts(batch):
                yield from json_rows(part, self.columns)

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, at: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        chosen = range(len(self.table))[at]  # raises IndexError as a list does
        if isinstance(chosen, int):
            return json_rows(self.table.slice(chosen, 1), self.columns)[0]
        if chosen.step == 1:
            return json_rows(self.table.slice(chosen.start, len(chosen)), self.columns)
        # Row by row: Arrow gathers no more than 2 GiB of text at once.
        return [json_rows(self.table.slice(row, 1), self.columns)[0] for row in chosen]

    def rows(self, integers: Integers = Integers.NATIVE) -> list[dict[str, Any]]:
        """One dictionary per row, keys in projection order; of a repeated name the last value stays."""
        return json_rows(self.table, self.columns, integers)

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
        import pyarrow as pa

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

    def _shown(self) -> tuple[Columns, int, list[list[Any]]]:
        """Names and types of the columns, the number of rows, and the values of as many as are shown."""
        head = self.table.slice(0, MOST_SHOWN_ROWS)
        values = [rendered(head.column(i)) for i in range(len(self.typed_columns))]
        return self.typed_columns, len(self), values


class ArrowBatches(_Columns):
    """What all streams of rows say of themselves."""

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {type_}" for name, type_ in self.typed_columns)
        return f"<{type(self).__name__} {self.query_name}({columns})>"


def json_rows(
    table: pa.Table | pa.RecordBatch, names: Sequence[str], integers: Integers = Integers.NATIVE
) -> list[dict[str, Any]]:
    """Rows as dictionaries of plain values."""
    columns = [rendered(table.column(i), integers) for i in range(len(names))]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def rendering_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts of which each is rendered in an instant and takes little memory as Python values."""
    rows = min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // max(1, batch.num_columns))
    rows = max(1, min(rows, len(batch) * _BYTES_AT_ONCE // max(1, batch.nbytes)))
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)


def _package(name: str) -> ModuleType:
    """A package that results can be converted with, and that OmniGraph itself does not need."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise BadRequestError(f"this needs {name}, which is not installed: pip install {name}") from None
