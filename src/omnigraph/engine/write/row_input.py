"""What `load` takes as rows of one type: Arrow, pandas and Polars frames, dictionaries, and files of rows.

A `RowInput` can be read any number of times: a load reads it again when the schema changed under it, and an input that
can be read only once is kept for that. Frames stay columns; only dictionaries and NDJSON become Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from omnigraph.api.governance import Limits
from omnigraph.api.load import (
    BATCH_ROWS,
    RECORDS_PER_BLOCK,
    GivenRecords,
    Spooled,
    given_rows,
    open_file_name,
    scratch_file,
)
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect
from omnigraph.engine.rows.kernels.ids import Mint
from omnigraph.engine.rows.kernels.rows import DecodedInput
from omnigraph.engine.rows.kernels.rows_of_type import RowBlock, decode_rows
from omnigraph.engine.write.row_files import (
    RowFile,
    RowFormat,
    format_named,
    format_of,
    received_file,
    row_file,
    usual_dialect,
)
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Catalog
from omnigraph.storage.location import Location


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
        return decode_rows(
            type_, self.blocks(limits), catalog=catalog, unit=self.unit, limits=limits, mint=mint, file=self.file
        )


def row_input(
    data: Any, type_name: str, *, format: str | None = None, csv: CsvDialect | None = None, graph: Location
) -> RowInput:
    """The rows that a caller gave. `format` and `csv` say how a file is written, where its name does not tell."""
    if isinstance(data, RowInput):
        return data
    if isinstance(data, str | PathLike):
        return RowInput.of_file(type_name, row_file(str(data), format, csv, graph))
    if hasattr(data, "read") and not isinstance(data, Mapping):
        return RowInput.of_file(type_name, _open_file(data, format, csv))
    if format is not None or csv is not None:
        raise BadRequestError("format and csv say how a file is written; this input is not a file")
    return RowInput(type_name, "row", _blocks_of(data))


def received_rows(
    path: Path, type_name: str, *, name: str | None, format: RowFormat, csv: CsvDialect | None
) -> RowInput:
    """Rows that came as one body, under the name that their sender has for them."""
    file = received_file(path, name, format, csv)
    if name is None and format is not RowFormat.CSV:
        return RowInput(type_name, "row", file.blocks)  # the rows of a program, one after another
    return RowInput.of_file(type_name, file)


def _blocks_of(data: Any) -> Callable[[Limits], Iterable[RowBlock]]:
    given = given_rows(data)
    if isinstance(given, GivenRecords):
        records = Spooled(given.rows) if given.once else given.rows
        return lambda _: _record_blocks(records)
    if given.once:
        kept = _Kept(given.read())
        return lambda _: _numbered(kept)
    return lambda _: _numbered(given.read())


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
    while block := list(islice(rest, RECORDS_PER_BLOCK)):
        yield RowBlock(block, range(first, first + len(block)))
        first += len(block)


def _open_file(file: Any, format: str | None, csv: CsvDialect | None) -> RowFile:
    """A file that the caller opened, stdin for one. It is read to its end, and kept until the load is over."""
    shown = open_file_name(file, format)
    found = format_of(shown) if format is None else format_named(format)
    copied: list[IO[bytes]] = []

    def pieces() -> Iterator[bytes]:
        if not copied:
            copied.append(scratch_file())
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
