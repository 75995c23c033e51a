"""The row inputs of `load`: Arrow, pandas and Polars frames, dictionaries, and CSV, Parquet, Arrow and NDJSON files.

A `RowInput` can be read again, because a load does so when the schema changed; a one-shot input is kept for that.
Frames stay columns. Rows are numbered through all files, and `InputFiles.keep_positions` maps a refused row back to
its file and line. An Arrow stream from a client is not trusted: it must be plain, and every batch is validated before
anything reads it.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph.api import load
from omnigraph.api.governance import Limits
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect, CsvReader, refuse_other_columns
from omnigraph.engine.rows.kernels.ndjson import Block, Meter, PlainEdge, PlainNode, strict_blocks
from omnigraph.engine.rows.kernels.source_values import blob_content, python_values
from omnigraph.errors import BadRequestError, ConstraintError
from omnigraph.language.source import did_you_mean
from omnigraph.storage.external_objects import object_pieces
from omnigraph.storage.location import Location

_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_WORD: Final = 8
# Which members of a message, and of the description of a batch, these are.
_HEADER, _COMPRESSION = 2, 3


def received_batches(name: str, path: str, limits: Limits) -> Iterator[Block]:
    """The rows of a received stream, counted from 1. Values may take as much memory as the limits allow."""
    try:
        with pa.OSFile(path) as source:
            source.seek(max(source.size() - len(_END), 0))
            if source.read(len(_END)) != _END:
                raise BadRequestError(f"{name} is not a whole Arrow stream: it lacks its end")
            source.seek(0)
            yield from map(_without_absent, _number_rows(_batches(source, Meter(limits))))
    except (OSError, EOFError, UnicodeDecodeError, struct.error, pa.ArrowException) as error:
        text = (str(error).splitlines() or ["it ends too early"])[0]
        raise BadRequestError(f"{name} is not a whole Arrow stream: {text}") from error


def _without_absent(block: Block) -> Block:
    """The rows as dictionaries again, where the client says what each of them lacks."""
    batch = block.values
    if not isinstance(batch, pa.RecordBatch) or load.ABSENT_COLUMN not in batch.schema.names:
        return block
    lacking = batch.column(load.ABSENT_COLUMN)
    if lacking.type != pa.list_(pa.string()):
        return block
    rest = batch.drop_columns([load.ABSENT_COLUMN])
    columns = [map(blob_content, python_values(column)) for column in rest.columns]
    rows = []
    for absent, *values in zip(lacking.to_pylist(), *columns, strict=True):
        members = zip(rest.schema.names, values, strict=True)
        rows.append({name: value for name, value in members if name not in (absent or ())})
    return Block(pa.array(block.positions).to_pylist(), rows, block.malformed)


def _batches(source: pa.NativeFile, meter: Meter) -> Iterator[pa.RecordBatch]:
    schema: pa.Schema | None = None
    for message in pa.ipc.MessageReader.open_stream(source):
        if message.type == "schema" and schema is None:
            schema = pa.ipc.read_schema(message)
            for field in schema:
                _require_plain(field.name, field.type)
        elif message.type == "record batch" and schema is not None:
            if _is_compressed(message.metadata.to_pybytes()):
                raise BadRequestError("an Arrow stream of rows must not be compressed")
            batch = pa.ipc.read_record_batch(message, schema)
            batch.validate()  # looking into a batch whose lengths contradict each other aborts the process
            meter.count_bytes(_WORD * sum(map(_leaves, batch.columns)))
            batch.validate(full=True)
            yield batch
        else:
            raise BadRequestError(f"an Arrow stream of rows has no place for a {message.type} message")


def _require_plain(column: str, type_: pa.DataType) -> None:
    kinds = pa.types
    views = (kinds.is_string_view, kinds.is_binary_view, kinds.is_list_view, kinds.is_large_list_view)
    if any(is_kind(type_) for is_kind in (kinds.is_dictionary, kinds.is_run_end_encoded, kinds.is_union, *views)):
        raise BadRequestError(f"the column '{column}' is a '{type_}', which rows of a request can't be: cast it")
    for inner in (type_.field(at) for at in range(type_.num_fields)):
        _require_plain(f"{column}.{inner.name}", inner.type)  # raises for a name that is not a text, too


def _leaves(array: pa.Array) -> int:
    """How many values an array represents, those of its lists included."""
    if pa.types.is_struct(array.type):
        return len(array) + sum(_leaves(array.field(at)) for at in range(array.type.num_fields))
    nested = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_map)
    if any(is_kind(array.type) for is_kind in nested):
        return len(array) + _leaves(array.values)
    return len(array)


def _is_compressed(metadata: bytes) -> bool:
    """Whether the description of a batch, a flatbuffer, has the member that names a compression."""
    message = struct.unpack_from("<I", metadata)[0]
    header = _member(metadata, message, _HEADER)
    if header is None:
        return False
    batch = header + struct.unpack_from("<I", metadata, header)[0]
    return _member(metadata, batch, _COMPRESSION) is not None


def _member(data: bytes, table: int, number: int) -> int | None:
    """Where a member of a flatbuffer's table is, if it is there."""
    members = table - struct.unpack_from("<i", data, table)[0]
    at = 4 + 2 * number
    if at >= struct.unpack_from("<H", data, members)[0]:
        return None
    offset = struct.unpack_from("<H", data, members + at)[0]
    return table + offset if offset else None


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
    **dict.fromkeys((".csv", ".tsv"), RowFormat.CSV),
    **dict.fromkeys((".ndjson", ".jsonl", ".json"), RowFormat.NDJSON),
    **{ending: RowFormat(format) for ending, format in load.COLUMN_FILES.items()},
}
_FILES: Final = (RowFormat.CSV, RowFormat.PARQUET, RowFormat.ARROW, RowFormat.NDJSON)
_SPELLINGS: Final = {**{f.value: f for f in _FILES}, "json": RowFormat.NDJSON, "jsonl": RowFormat.NDJSON}


@dataclass(frozen=True, slots=True)
class RowFile:
    """One file of rows, by the name that messages have for it. `path` is where it lies on this machine, if it does.
    Without `csv`, the name of a CSV file tells its dialect."""

    name: str
    format: RowFormat
    pieces: Callable[[], Iterable[bytes]]
    csv: CsvDialect | None
    path: str | None = None

    @property
    def unit(self) -> str:
        """What the numbers of rows count: lines of a text, rows of a table."""
        return "row" if self.format.holds_columns else "line"

    def blocks(self, limits: Limits) -> Iterator[Block]:
        """The rows, read from the beginning whenever this is called."""
        match self.format:
            case RowFormat.CSV:
                return self._csv(limits)
            case RowFormat.NDJSON:
                return self._ndjson(limits)
            case RowFormat.ARROW_STREAM:
                return received_batches(self.name, self.path or "", limits)
            case RowFormat.PARQUET | RowFormat.ARROW:
                return self._columns(limits)

    def _csv(self, limits: Limits) -> Iterator[Block]:
        usual = "\t" if load.without_compression(self.name).lower().endswith(".tsv") else ","
        dialect = self.csv or CsvDialect(delimiter=usual)
        dialect.check()
        try:
            reader = CsvReader(Meter(limits).watch(self.pieces()), dialect)
            for block in reader.blocks(lines=True):
                yield Block(pa.array(block.lines), block.columns, [(bad.line, bad.reason) for bad in block.bad])
        except BadRequestError as error:
            raise BadRequestError(f"{self.name}: {error}") from error

    def _ndjson(self, limits: Limits) -> Iterator[Block]:
        for block in strict_blocks(self.pieces(), limits):
            rows = [msgspec.to_builtins(v) if isinstance(v, PlainNode | PlainEdge) else v for v in block.values]
            yield Block(block.positions, rows, block.malformed)

    def _columns(self, limits: Limits) -> Iterator[Block]:
        source = self.path if self.path is not None else pa.BufferReader(b"".join(Meter(limits).watch(self.pieces())))
        with load.column_file(source, self.format.value, self.name) as file:
            if file.rows is not None and file.rows > limits.rows:
                Meter(limits).count_rows(file.rows)
            yield from _number_rows(file.read())


def row_file(text: str, format: str | None, csv: CsvDialect | None, graph: Location) -> RowFile:
    """The file that a path or URI names, to be loaded into the graph at `graph`."""
    path = unquote(text.removeprefix("file://")) if text.startswith("file://") else text
    row_format = format_of(path, format)
    if "://" in path:
        return RowFile(text, row_format, lambda: object_pieces(path, graph), csv)
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        raise load.directory_error(text)
    return _local_file(text, path, row_format, csv)


def _local_file(name: str, path: str, format: RowFormat, csv: CsvDialect | None) -> RowFile:
    # Only a file that is not compressed can be read at any place.
    return RowFile(name, format, lambda: load.local_pieces(path), csv, None if load.compression_of(path) else path)


def format_named(name: str) -> RowFormat:
    row_format = _SPELLINGS.get(name.lower())
    if row_format is None:
        hint = did_you_mean(name, _SPELLINGS) or f"use one of: {', '.join(_FILES)}"
        raise BadRequestError(f"unknown row format '{name}'; {hint}")
    return row_format


def format_of(path: str, format: str | None = None) -> RowFormat:
    """The format that a caller named, or else the one that the name of a file tells."""
    if format is not None:
        return format_named(format)
    row_format = _BY_SUFFIX.get(os.path.splitext(load.without_compression(path))[1].lower())
    if row_format is None:
        formats = "'csv', 'parquet', 'arrow' or 'ndjson'"
        raise BadRequestError(f"the name '{path}' does not tell a format; say format={formats}")
    return row_format


@dataclass(frozen=True, slots=True)
class RowInput:
    """Rows of one type. `blocks` may be called again; `unit` is what the numbers of its rows count."""

    type_name: str
    unit: str
    blocks: Callable[[Limits], Iterable[Block]]
    file: str | None = None

    @classmethod
    def of_file(cls, type_name: str, file: RowFile) -> RowInput:
        return cls(type_name, file.unit, file.blocks, file.name)

    @property
    def place(self) -> str:
        """The beginning of the name of a row, before its number."""
        return self.unit if self.file is None else f"{self.file}, {self.unit}"


def row_input(
    data: Any, type_name: str, *, format: str | None = None, csv: CsvDialect | None = None, graph: Location
) -> RowInput:
    """The rows that a caller gave. `format` and `csv` say the form of a file, where its name does not."""
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
    shown = "the body" if name is None else name
    file = RowFile(shown, format, lambda: load.local_pieces(str(path)), csv, str(path))
    if name is None and format is not RowFormat.CSV:
        return RowInput(type_name, "row", file.blocks)  # the rows of a program, one after another
    return RowInput.of_file(type_name, file)


def _blocks_of(data: Any) -> Callable[[Limits], Iterable[Block]]:
    rows = load.given_rows(data)
    if isinstance(rows, load.GivenRecords):
        records = load.Spooled(rows.rows) if rows.once else rows.rows
        return lambda _: _record_blocks(records)
    if rows.once:
        batches = load.SpooledBatches(rows.schema, rows.read())
        return lambda _: _number_rows(batches)
    return lambda _: _number_rows(rows.read())


def _number_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Block]:
    """Rows are counted from 1 through all batches."""
    first = 1
    for whole in batches:
        for start in range(0, whole.num_rows, load.BATCH_ROWS):
            batch = whole.slice(start, load.BATCH_ROWS)
            yield Block(pa.array(np.arange(first, first + batch.num_rows)), batch)
            first += batch.num_rows


def _record_blocks(records: Iterable[object]) -> Iterator[Block]:
    first, rest = 1, iter(records)
    while block := list(islice(rest, load.RECORDS_PER_BLOCK)):
        yield Block(range(first, first + len(block)), block)
        first += len(block)


def _open_file(file: Any, format: str | None, csv: CsvDialect | None) -> RowFile:
    """A file that the caller opened, stdin for one. It is read to its end, and kept until the load is over."""
    shown = load.open_file_name(file, format)
    copied: list[IO[bytes]] = []

    def pieces() -> Iterator[bytes]:
        if not copied:
            copied.append(load.scratch_file())
            while piece := file.read(1 << 20):
                encoded = piece.encode() if isinstance(piece, str) else piece
                copied[0].write(encoded)
                yield encoded
            return
        copied[0].seek(0)
        yield from iter(lambda: copied[0].read(1 << 20), b"")

    return RowFile(shown, format_of(shown, format), pieces, csv)


class InputFiles:
    """Files of one format, read in the order they are given."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = list(paths)
        self._starts: list[int] = []
        """The number of the last row before each file that was begun."""
        self._is_read = False

    def records(self) -> Iterator[bytes]:
        """The lines of all files. A file that ends within a line ends that line."""
        lines = 0
        for path in self._begin():
            self._starts.append(lines)
            last = b"\n"
            for piece in load.local_pieces(path):
                lines += piece.count(b"\n")
                last = piece[-1:] or last
                yield piece
            if last != b"\n":
                lines += 1
                yield b"\n"
        self._is_read = True

    def rows(self, type_name: str, format: str | None, csv: Callable[[str], CsvDialect | None]) -> RowInput:
        """The rows of all files, as rows of a type. `csv` is the form of a file, where its name does not say."""
        files = [_local_file(path, path, format_of(path, format), csv(path)) for path in self._paths]
        return RowInput(type_name, files[0].unit, lambda limits: self._blocks(files, limits))

    def _blocks(self, files: Sequence[RowFile], limits: Limits) -> Iterator[Block]:
        before, columns = 0, list[str]()
        for file, _ in zip(files, self._begin(), strict=True):
            self._starts.append(before)
            last = 0
            for block in file.blocks(limits):
                if file.format is RowFormat.CSV and isinstance(block.values, pa.RecordBatch):
                    columns = columns or list(block.values.schema.names)
                    refuse_other_columns(block.values.schema.names, columns, files[0].name)
                numbers = np.asarray(block.positions, np.int64)
                last = max([last, *numbers[-1:].tolist(), *(number for number, _ in block.malformed)])
                bad = [(number + before, reason) for number, reason in block.malformed]
                yield Block(pa.array(numbers + before), block.values, bad)
            before += last
        self._is_read = True

    def _begin(self) -> Iterator[str]:
        self._starts.clear()
        self._is_read = False
        yield from self._paths

    @contextmanager
    def keep_positions(self, unit: str = "line") -> Iterator[None]:
        """Let errors of the load within name a file, and the row of that file; `unit` is what its numbers count."""
        try:
            yield
        except ConstraintError as error:
            if type(error) is not ConstraintError or error.line is None:
                raise
            at = bisect_left(self._starts, error.line) - 1
            line = error.line - self._starts[at]
            reason = str(error).removeprefix(f"{unit} {error.line}: ")
            message, about = f"{self._paths[at]}, {unit} {line}: {reason}", (error.property, error.entity_id)
            raise ConstraintError(error.rule, error.type_key, *about, line, message=message) from error
        except BadRequestError as error:
            if self._is_read or not self._starts or (path := self._paths[len(self._starts) - 1]) in str(error):
                raise
            raise BadRequestError(f"{path}: {error}") from error
