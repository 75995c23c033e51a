"""CSV, Parquet, Arrow and NDJSON files as blocks of rows, for a load whose caller names the type of the rows.

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

from omnigraph.api.governance import Limits
from omnigraph.api.load import (
    COLUMN_FILES,
    column_file,
    compression_of,
    directory_error,
    local_pieces,
    without_compression,
)
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect, CsvReader
from omnigraph.engine.rows.kernels.framing import Meter, strict_blocks
from omnigraph.engine.rows.kernels.plain import PlainEdge, PlainNode
from omnigraph.engine.rows.kernels.rows_of_type import RowBlock
from omnigraph.engine.write.received_arrow import received_batches
from omnigraph.errors import BadRequestError
from omnigraph.language.source import did_you_mean
from omnigraph.storage.input_objects import object_pieces
from omnigraph.storage.location import Location


class RowFormat(StrEnum):
    """How the rows of a file are written."""

    CSV = "csv"
    PARQUET = "parquet"
    NDJSON = "ndjson"
    ARROW = "arrow"
    ARROW_STREAM = "arrow stream"
    """As it came over HTTP."""

    @property
    def holds_columns(self) -> bool:
        return self in (RowFormat.PARQUET, RowFormat.ARROW, RowFormat.ARROW_STREAM)


_BY_SUFFIX: Final = {
    ".csv": RowFormat.CSV,
    ".tsv": RowFormat.CSV,
    ".ndjson": RowFormat.NDJSON,
    ".jsonl": RowFormat.NDJSON,
    ".json": RowFormat.NDJSON,
    **{ending: RowFormat(format) for ending, format in COLUMN_FILES.items()},
}
_FILES: Final = (RowFormat.CSV, RowFormat.PARQUET, RowFormat.ARROW, RowFormat.NDJSON)
_SPELLINGS: Final = {**{f.value: f for f in _FILES}, "json": RowFormat.NDJSON, "jsonl": RowFormat.NDJSON}

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
        return "row" if self.format.holds_columns else "line"

    def blocks(self, limits: Limits) -> Iterator[RowBlock]:
        """The rows, read from the beginning whenever this is called."""
        match self.format:
            case RowFormat.CSV:
                return self._csv(limits)
            case RowFormat.NDJSON:
                return self._ndjson(limits)
            case RowFormat.PARQUET | RowFormat.ARROW:
                return self._columns(limits)
            case RowFormat.ARROW_STREAM:
                return received_batches(self.name, self.path or "", limits)

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

    def _columns(self, limits: Limits) -> Iterator[RowBlock]:
        source = self.path if self.path is not None else pa.BufferReader(b"".join(_metered(self.pieces(), limits)))
        first = 1
        with column_file(source, self.format.value, self.name) as file:
            if file.rows is not None and file.rows > limits.rows:
                Meter(limits).count_rows(file.rows)
            for batch in file.read():
                yield RowBlock(batch, pa.array(np.arange(first, first + batch.num_rows)))
                first += batch.num_rows


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
        raise directory_error(text)
    return _local(text, path, found, dialect)


def local_row_file(path: str, format: str | None, csv: CsvDialect | None) -> RowFile:
    """A file on this machine, by its own name."""
    found = format_named(format) if format is not None else format_of(path)
    return _local(path, path, found, csv or usual_dialect(path))


def _local(name: str, path: str, format: RowFormat, csv: CsvDialect) -> RowFile:
    # Only a file that is not compressed can be read at any place.
    return RowFile(name, format, lambda: local_pieces(path), csv, None if compression_of(path) else path)


def received_file(path: Path, name: str | None, format: RowFormat, csv: CsvDialect | None) -> RowFile:
    """A body that was received into a local file, under the name that its sender has for it."""
    shown = "the body" if name is None else name
    return RowFile(shown, format, lambda: local_pieces(str(path)), csv or usual_dialect(shown), str(path))


def usual_dialect(path: str) -> CsvDialect:
    """How CSV of that name is written, when nobody says otherwise."""
    return CsvDialect(delimiter="\t" if without_compression(path).lower().endswith(".tsv") else ",")


def format_named(name: str) -> RowFormat:
    found = _SPELLINGS.get(name.lower())
    if found is None:
        hint = did_you_mean(name, _SPELLINGS) or f"use one of: {', '.join(_FILES)}"
        raise BadRequestError(f"unknown row format '{name}'; {hint}")
    return found


def format_of(path: str) -> RowFormat:
    """The format that the name of a file tells."""
    found = _BY_SUFFIX.get(os.path.splitext(without_compression(path))[1].lower())
    if found is None:
        raise BadRequestError(
            f"the name '{path}' does not tell a format; say format='csv', 'parquet', 'arrow' or 'ndjson'"
        )
    return found


def _metered(pieces: Iterable[bytes], limits: Limits) -> Iterator[bytes]:
    meter = Meter(limits)
    for piece in pieces:
        meter.count_bytes(len(piece))
        yield piece
