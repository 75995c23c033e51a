"""What `load` takes as rows of one type: Arrow, pandas and Polars frames, dictionaries, and files of rows.

A `RowInput` can be read any number of times: a load reads it again when the schema changed under it, and an input that
can be read only once is kept for that. Frames stay columns; only dictionaries and NDJSON become Python objects.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.api.limits import Limits
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect
from omnigraph.engine.rows.kernels.ids import Mint
from omnigraph.engine.rows.kernels.rows import DecodedInput
from omnigraph.engine.rows.kernels.rows_of_type import RowBlock, decode_rows
from omnigraph.engine.write.row_files import BATCH_ROWS, RowFile, format_named, format_of, row_file, usual_dialect
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Catalog
from omnigraph.storage.location import Location

_RECORDS_PER_BLOCK: Final = 8192
_IN_MEMORY: Final = 64 << 20
_TAKEN: Final = (
    "an Arrow table or reader, a pandas or Polars frame, a list or iterator of dictionaries, or the path of a csv, "
    "parquet or ndjson file"
)


@dataclass(frozen=True, slots=True)
class RowInput:
    """Rows of one type. `blocks` may be called again; `unit` is what the numbers of its rows count."""

    type_name: str
    unit: str
    blocks: Callable[[Limits], Iterable[RowBlock]]
    file: str | None = None

    @classmethod
    def of_file(cls, type_name: str, file: RowFile) -> RowInput:
        return cls(type_name, file.unit, file.blocks, file.name)

    @property
    def place(self) -> str:
        """The beginning of the name of a row, before its number."""
        return self.unit if self.file is None else f"{self.file}, {self.unit}"

    def decode(self, catalog: Catalog, limits: Limits, mint: Mint) -> DecodedInput:
        """The rows as the type has them, or the first reason why one can't be taken."""
        type_ = catalog.type_named(self.type_name)
        return decode_rows(type_, self.blocks(limits), unit=self.unit, limits=limits, mint=mint, file=self.file)


def row_input(
    data: Any, type_name: str, *, format: str | None = None, csv: CsvDialect | None = None, graph: Location
) -> RowInput:
    """The rows that a caller gave. `format` and `csv` say how a file is written, where its name does not tell."""
    if isinstance(data, str | PathLike):
        return RowInput.of_file(type_name, row_file(str(data), format, csv, graph))
    if hasattr(data, "read") and not isinstance(data, Mapping):
        return RowInput.of_file(type_name, _open_file(data, format, csv))
    if format is not None or csv is not None:
        raise BadRequestError("format and csv say how a file is written; this input is not a file")
    return RowInput(type_name, "row", _blocks_of(data))


def _blocks_of(data: Any) -> Callable[[Limits], Iterable[RowBlock]]:
    if isinstance(data, pa.RecordBatchReader):
        kept = _Kept(data)
        return lambda _: _numbered(kept)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return lambda _: _numbered(data.to_batches(max_chunksize=BATCH_ROWS))
    if type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "columns"):
        return _pandas_blocks(data)
    if hasattr(data, "__arrow_c_stream__"):
        # Nothing tells a frame, which gives its stream again, from what streams once; so batches are kept.
        try:
            stream = _Kept(pa.RecordBatchReader.from_stream(data))
        except pa.ArrowException as error:
            raise BadRequestError(f"can't load rows from {_kind(data)}: {str(error).splitlines()[0]}") from None
        return lambda _: _numbered(stream)
    if isinstance(data, list | tuple):
        return lambda _: _record_blocks(data)
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        collect = "; collect a lazy frame first" if hasattr(data, "collect") else ""
        raise BadRequestError(f"can't load rows from {_kind(data)}: give {_TAKEN}{collect}")
    spooled = _Spooled(iter(data))
    return lambda _: _record_blocks(spooled)


def _kind(data: object) -> str:
    return f"a single {type(data).__name__}" if isinstance(data, Mapping) else f"'{type(data).__name__}'"


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[RowBlock]:
    """Rows are counted from 1 through all batches."""
    first = 1
    for whole in batches:
        for start in range(0, whole.num_rows, BATCH_ROWS):
            batch = whole.slice(start, BATCH_ROWS)
            yield RowBlock(batch, pa.array(np.arange(first, first + batch.num_rows)))
            first += batch.num_rows


def _record_blocks(records: Iterable[object]) -> Iterator[RowBlock]:
    first, rest = 1, iter(records)
    while block := list(islice(rest, _RECORDS_PER_BLOCK)):
        yield RowBlock(block, range(first, first + len(block)))
        first += len(block)


def _pandas_blocks(frame: Any) -> Callable[[Limits], Iterable[RowBlock]]:
    """Columns where Arrow can have them; a frame that mixes types within a column is read row by row.

    A named index is a column, as it was before somebody made it the index; one without a name only counts rows.
    """
    named = [level for level, name in enumerate(frame.index.names) if name is not None]
    if named:
        frame = frame.reset_index(level=named)
    frame = frame.reset_index(drop=True)
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        records = frame.astype(object).where(frame.notna(), None).to_dict("records")
        return lambda _: _record_blocks(records)
    return lambda _: _numbered(table.to_batches(max_chunksize=BATCH_ROWS))


def _open_file(file: Any, format: str | None, csv: CsvDialect | None) -> RowFile:
    """A file that the caller opened, stdin for one. It is read to its end, and kept until the load is over."""
    name = getattr(file, "name", None)
    shown = name if isinstance(name, str) else "the input"
    if format is None and shown != name:
        raise BadRequestError(f"say how {shown} is written: format='csv', 'parquet' or 'ndjson'")
    found = format_of(shown) if format is None else format_named(format)
    copied: list[IO[bytes]] = []

    def pieces() -> Iterator[bytes]:
        if not copied:
            copied.append(_scratch())
            for piece in iter(lambda: file.read(1 << 20), b""):
                if not piece:
                    break
                encoded = piece.encode() if isinstance(piece, str) else piece
                copied[0].write(encoded)
                yield encoded
            return
        copied[0].seek(0)
        yield from iter(lambda: copied[0].read(1 << 20), b"")

    return RowFile(shown, found, pieces, csv or usual_dialect(shown))


def _scratch() -> IO[bytes]:
    """A file without a name, deleted when it is closed."""
    return tempfile.SpooledTemporaryFile(_IN_MEMORY)


class _Kept:
    """Batches of a stream that gives them once: what was taken from it is remembered."""

    def __init__(self, reader: Iterable[pa.RecordBatch]) -> None:
        self._rest = iter(reader)
        self._taken: list[pa.RecordBatch] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        at = 0
        while True:
            if at == len(self._taken):
                batch = next(self._rest, None)
                if batch is None:
                    return
                self._taken.append(batch)
            yield self._taken[at]
            at += 1


class _Spooled:
    """Rows of an iterator, which are gone once read: they are copied, on disk when there are many."""

    def __init__(self, rest: Iterator[object]) -> None:
        self._rest = rest
        self._copy = _scratch()
        self._complete = False

    def __iter__(self) -> Iterator[object]:
        if self._complete:
            return self._again()
        return self._once()

    def _once(self) -> Iterator[object]:
        while block := list(islice(self._rest, _RECORDS_PER_BLOCK)):
            try:
                pickle.dump(block, self._copy, pickle.HIGHEST_PROTOCOL)
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                raise BadRequestError(
                    f"a row holds something that is not a value: {error}; give a list of dictionaries"
                ) from None
            yield from block
        self._complete = True

    def _again(self) -> Iterator[object]:
        self._copy.seek(0)
        while True:
            try:
                yield from pickle.load(self._copy)
            except EOFError:
                return
