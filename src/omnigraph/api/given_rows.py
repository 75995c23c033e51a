"""Rows of one type as a Python program gives them: frames and Arrow streams as batches, the rest as dictionaries.

The engine loads them, and a client sends them to a server; both ask here what an input is. pandas, Polars and Arrow are
never imported before a caller has given something of theirs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from omnigraph.api.local_files import without_compression
from omnigraph.errors import BadRequestError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS: Final = 1 << 16
_TAKEN: Final = (
    "an Arrow table or reader, a pandas or Polars frame, a list or iterator of dictionaries, or the path of a csv, "
    "parquet, arrow or ndjson file"
)
COLUMN_FILES: Final = {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow"}
"""The formats of files that hold columns, by the ending of their names."""


@dataclass(frozen=True, slots=True)
class GivenBatches:
    """Columns. Calling `read` again gives the same batches, unless they come from a stream that is read `once`."""

    schema: pa.Schema
    read: Callable[[], Iterable[pa.RecordBatch]]
    once: bool = False
    rows: int | None = None
    """How many rows there are, where that is known before one is read."""


@dataclass(frozen=True, slots=True)
class GivenRecords:
    """Dictionaries. An iterator gives them `once`."""

    rows: Iterable[object]
    once: bool = False


def given_rows(data: Any) -> GivenBatches | GivenRecords:
    """What a caller gave that is not a file."""
    import pyarrow as pa

    if isinstance(data, pa.RecordBatchReader):
        return GivenBatches(data.schema, lambda: data, once=True)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return _of_table(data)
    if type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "columns"):
        return _of_pandas(data)
    if hasattr(data, "__arrow_c_stream__"):
        # Nothing tells a frame, which gives its stream again, from what streams once.
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except pa.ArrowException as error:
            raise BadRequestError(f"can't load rows from {_kind(data)}: {str(error).splitlines()[0]}") from None
        return GivenBatches(reader.schema, lambda: reader, once=True)
    if isinstance(data, list | tuple):
        return GivenRecords(data)
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        collect = "; collect a lazy frame first" if hasattr(data, "collect") else ""
        raise BadRequestError(f"can't load rows from {_kind(data)}: give {_TAKEN}{collect}")
    return GivenRecords(data, once=True)


def _of_table(table: pa.Table) -> GivenBatches:
    return GivenBatches(table.schema, lambda: table.to_batches(max_chunksize=BATCH_ROWS))


def _of_pandas(frame: Any) -> GivenBatches | GivenRecords:
    """Columns where Arrow can have them; a frame that mixes types within a column is read row by row.

    A named index is a column, as it was before somebody made it the index; one without a name only counts rows.
    """
    import pyarrow as pa

    named = [level for level, name in enumerate(frame.index.names) if name is not None]
    if named:
        frame = frame.reset_index(level=named)
    frame = frame.reset_index(drop=True)
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return GivenRecords(frame.astype(object).where(frame.notna(), None).to_dict("records"))
    return _of_table(table)


def _kind(data: object) -> str:
    return f"a single {type(data).__name__}" if isinstance(data, Mapping) else f"'{type(data).__name__}'"


@contextmanager
def column_file(source: Any, format: str, name: str) -> Iterator[GivenBatches]:
    """A Parquet or Arrow file, open for the block. Errors of the file are raised with its name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if format == "parquet":
            with pq.ParquetFile(source) as parquet:
                rows = parquet.metadata.num_rows
                yield GivenBatches(parquet.schema_arrow, lambda: parquet.iter_batches(BATCH_ROWS), rows=rows)
        else:
            with pa.ipc.open_file(source) as arrow:
                yield GivenBatches(arrow.schema, lambda: _checked_batches(arrow))
    except FileNotFoundError:
        raise NotFoundError(f"'{name}' does not exist") from None
    except (OSError, pa.ArrowException) as error:
        raise BadRequestError(f"{name}: {str(error).splitlines()[0]}") from error


def _checked_batches(file: pa.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow file, in small parts. Buffers that contradict each other would crash what reads them."""
    for number in range(file.num_record_batches):
        whole = file.get_batch(number)
        whole.validate(full=True)
        for start in range(0, whole.num_rows, BATCH_ROWS):
            yield whole.slice(start, BATCH_ROWS)


def column_format(path: str, format: str | None) -> str | None:
    """The format of a file that holds columns; None for any other file."""
    if format is None:
        return COLUMN_FILES.get(os.path.splitext(without_compression(path))[1].lower())
    return format.lower() if format.lower() in COLUMN_FILES.values() else None


def open_file_name(file: Any, format: str | None) -> str:
    """What messages call a file that the caller opened, stdin for one."""
    name = getattr(file, "name", None)
    shown = name if isinstance(name, str) else "the input"
    if format is None and shown != name:
        raise BadRequestError(f"say how {shown} is written: format='csv', 'parquet', 'arrow' or 'ndjson'")
    return shown


def directory_error(path: str) -> BadRequestError:
    return BadRequestError(f"'{path}' is a directory; load its files one by one, or with Spark (`omnigraph load`)")
