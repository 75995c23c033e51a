"""CSV, Parquet and NDJSON files as blocks of rows, for a load that is told the type of its rows.

Files are read in pieces, from a local path or from an object store. Called by `row_input`; what a row means is not
known here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.api.limits import Limits
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect, CsvReader
from omnigraph.engine.rows.kernels.framing import Meter, strict_blocks
from omnigraph.engine.rows.kernels.plain import PlainEdge, PlainNode
from omnigraph.engine.rows.kernels.rows_of_type import RowBlock
from omnigraph.errors import BadRequestError, NotFoundError
from omnigraph.language.source import did_you_mean
from omnigraph.storage.input_objects import object_pieces
from omnigraph.storage.location import Location

BATCH_ROWS: Final = 1 << 16
_PIECE_BYTES: Final = 4 << 20


class RowFormat(StrEnum):
    """How the rows of a file are written."""

    CSV = "csv"
    PARQUET = "parquet"
    NDJSON = "ndjson"


_BY_SUFFIX: Final = {
    ".csv": RowFormat.CSV,
    ".tsv": RowFormat.CSV,
    ".parquet": RowFormat.PARQUET,
    ".pq": RowFormat.PARQUET,
    ".ndjson": RowFormat.NDJSON,
    ".jsonl": RowFormat.NDJSON,
    ".json": RowFormat.NDJSON,
}
_SPELLINGS: Final = {**{f.value: f for f in RowFormat}, "json": RowFormat.NDJSON, "jsonl": RowFormat.NDJSON}

Pieces = Callable[[], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class RowFile:
    """One file of rows, by the name that messages have for it."""

    name: str
    format: RowFormat
    pieces: Pieces
    csv: CsvDialect
    path: str | None = None
    """Where it lies on this machine, if it does."""

    @property
    def unit(self) -> str:
        """What the numbers of rows count: lines of a text, rows of a table."""
        return "row" if self.format is RowFormat.PARQUET else "line"

    def blocks(self, limits: Limits) -> Iterator[RowBlock]:
        """The rows, read from the beginning whenever this is called."""
        read = {RowFormat.CSV: self._csv, RowFormat.NDJSON: self._ndjson, RowFormat.PARQUET: self._parquet}
        return read[self.format](limits)

    def _csv(self, limits: Limits) -> Iterator[RowBlock]:
        self.csv.check()
        try:
            reader = CsvReader(_metered(self.pieces(), limits), self.csv)
            for block in reader.blocks(lines=True):
                yield RowBlock(block.columns, pa.array(block.lines), [(bad.line, bad.reason) for bad in block.bad])
        except BadRequestError as error:
            raise BadRequestError(f"{self.name}: {error}") from error

    def _ndjson(self, limits: Limits) -> Iterator[RowBlock]:
        for block in strict_blocks(self.pieces(), limits):
            rows = [msgspec.to_builtins(v) if isinstance(v, PlainNode | PlainEdge) else v for v in block.values]
            yield RowBlock(rows, block.positions, block.malformed)

    def _parquet(self, limits: Limits) -> Iterator[RowBlock]:
        source = self.path if self.path is not None else pa.BufferReader(b"".join(_metered(self.pieces(), limits)))
        first = 1
        try:
            with pq.ParquetFile(source) as file:
                if file.metadata.num_rows > limits.rows:  # known before a row is read
                    Meter(limits).count_rows(file.metadata.num_rows)
                for batch in file.iter_batches(BATCH_ROWS):
                    yield RowBlock(batch, pa.array(np.arange(first, first + batch.num_rows)))
                    first += batch.num_rows
        except FileNotFoundError:
            raise NotFoundError(f"'{self.name}' does not exist") from None
        except (OSError, pa.ArrowException) as error:
            raise BadRequestError(f"{self.name}: {str(error).splitlines()[0]}") from error


def row_file(given: str | Path, format: str | None, csv: CsvDialect | None, graph: Location) -> RowFile:
    """The file that a path or URI names, to be loaded into the graph at `graph`."""
    text = str(given)
    path = unquote(text.removeprefix("file://")) if text.startswith("file://") else text
    found = format_named(format) if format is not None else format_of(path)
    dialect = csv or usual_dialect(path)
    if "://" in path:
        return RowFile(text, found, lambda: object_pieces(path, graph), dialect)
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        raise BadRequestError(f"'{text}' is a directory; load its files one by one, or with Spark (`omnigraph load`)")
    return RowFile(text, found, lambda: _local_pieces(path), dialect, path)


def usual_dialect(path: str) -> CsvDialect:
    """How CSV of that name is written, when nobody says otherwise."""
    return CsvDialect(delimiter="\t" if path.lower().endswith(".tsv") else ",")


def format_named(name: str) -> RowFormat:
    found = _SPELLINGS.get(name.lower())
    if found is None:
        hint = did_you_mean(name, _SPELLINGS) or f"use one of: {', '.join(RowFormat)}"
        raise BadRequestError(f"unknown row format '{name}'; {hint}")
    return found


def format_of(path: str) -> RowFormat:
    """The format that the name of a file tells."""
    stem, suffix = os.path.splitext(path)
    found = _BY_SUFFIX.get(suffix.lower())
    if found is None and os.path.splitext(stem)[1].lower() in _BY_SUFFIX:
        raise BadRequestError(f"'{path}' is compressed: unpack it, or load it on Spark (`omnigraph load`)")
    if found is None:
        raise BadRequestError(f"the name '{path}' does not tell a format; say format='csv', 'parquet' or 'ndjson'")
    return found


def _local_pieces(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            yield from iter(lambda: file.read(_PIECE_BYTES), b"")
    except FileNotFoundError:
        raise NotFoundError(f"'{path}' does not exist") from None
    except OSError as error:
        raise BadRequestError(f"can't read '{path}': {error.strerror or error}") from None


def _metered(pieces: Iterable[bytes], limits: Limits) -> Iterator[bytes]:
    meter = Meter(limits)
    for piece in pieces:
        meter.count_bytes(len(piece))
        yield piece
