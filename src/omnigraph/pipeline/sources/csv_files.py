"""CSV files as rows of texts, read by tasks with the engine's own reader.

`source_frames` calls it, because Spark's reader takes columns by position, loses text after a doubled quote and
replaces bytes it can't decode. Every file has its own header, whose names decide. A large file is cut into parts at
records; files that are compressed, or not UTF-8, are one task each. Files that only Spark can open reach the same
reader line by line. `pipeline validate` checks the columns that a pipeline names against the headers of files on this
machine, without Spark.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from glob import glob
from itertools import groupby
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import LongType, StringType, StructField, StructType

from omnigraph.engine.rows.kernels.csv_rows import CsvDialect, CsvReader, csv_cuts, refuse_other_columns
from omnigraph.errors import BadRequestError
from omnigraph.language.source import did_you_mean
from omnigraph.pipeline.execution.ingest import INTERNAL_COLUMNS, PARTITION_BITS, ROW_COLUMN
from omnigraph.pipeline.file import CSV_FORMAT, Complaints, Pipeline, Source
from omnigraph.pipeline.sources.input_files import LISTING_OPTIONS, InputFile, Listing, csv_dialect
from omnigraph.pipeline.sources.parquet_files import local_path, plain_column
from omnigraph.pipeline.spark.tasks import OnBatches, consecutive_groups, map_batches, on_executors, texts_of

_PART_BYTES: Final = 32 << 20
_OPENING_BYTES: Final = 32 << 10  # what opening a file costs, as bytes that could be read instead
_HEADER_LINES: Final = 1_000
_UNITS: Final = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_PATH, _LINE = "file_path", "value"


@dataclass(frozen=True, slots=True)
class CsvPart:
    """Bytes of a file that begin with a record. `header` is there for all but the first part of a file."""

    file: InputFile
    start: int = 0
    stop: int | None = None
    before: int = 0
    header: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class CsvFiles:
    """The files of a source. `columns` are those of every header; `partition` are those of directories."""

    dialect: CsvDialect
    parts: tuple[CsvPart, ...]
    columns: tuple[str, ...]
    partition: tuple[StructField, ...]
    part_bytes: int

    @classmethod
    def open(cls, spark: SparkSession, listing: Listing, dialect: CsvDialect, *, divide: bool = True) -> CsvFiles:
        """The files of a listing. To learn only the columns, large files need not be divided (`divide`)."""
        files = [file for file in listing.files if file.size]
        limit = min(_PART_BYTES, _size(spark.conf.get("spark.sql.files.maxPartitionBytes") or ""))
        header = next(filter(None, (_header(spark, file, dialect) for file in files)), [])
        large = [f for f in files if divide and f.size > limit and f.path and not f.compression and dialect.is_utf_8]
        # A task per large file finds where records begin.
        cuts = texts_of(spark, [partial(_cuts, file, dialect, limit) for file in large])
        divided = {file.uri: _parts(file, *json.loads(text)) for file, text in zip(large, cuts, strict=True)}
        parts = [part for file in files for part in divided.get(file.uri, [CsvPart(file)])]
        return cls(dialect, tuple(parts), tuple(header), listing.partition, limit)

    @property
    def schema(self) -> StructType:
        """The columns that a mapping or query can name: texts, and what directories say."""
        ours = {field.name for field in self.partition}
        texts = [StructField(name, StringType()) for name in self.columns if name not in ours]
        return StructType([*texts, *self.partition])

    def frame(self, spark: SparkSession, columns: Sequence[str], *, bad: bool) -> DataFrame:
        """Rows with these columns and the internal ones; bad records, as rows of nulls, if asked for."""
        chosen = [field for field in self.schema.fields if field.name in columns]
        numbered = [StructField(ROW_COLUMN, LongType()), *(StructField(n, StringType()) for n in INTERNAL_COLUMNS[1:])]
        schema = StructType([*chosen, *numbered])
        return self.through(spark, {f.name: f.name for f in chosen}, lambda batches: batches, schema, bad=bad)

    def through(
        self, spark: SparkSession, columns: Mapping[str, str], work: OnBatches, schema: StructType, *, bad: bool
    ) -> DataFrame:
        """The result of `work` on the rows. It gets columns by the names that `columns` has for them, straight from the
        file, without passing through Spark."""
        # Numbers of parts by task, in order: small files share one.
        numbers = [number for number, part in enumerate(self.parts) if part.file.is_readable]
        readable = (self.parts[number] for number in numbers)
        sizes = [(p.file.size if p.stop is None else p.stop) - p.start + _OPENING_BYTES for p in readable]
        groups = consecutive_groups(sizes, self.part_bytes + _OPENING_BYTES)

        def of_parts(group: int) -> Iterator[pa.RecordBatch]:
            return work(batch for n in groups[group] for batch in self._rows(numbers[n], None, columns, bad=bad))

        frames = [on_executors(spark, len(groups), of_parts, schema)] if groups else []
        by_uri = {_key(p.file.uri): n for n, p in enumerate(self.parts) if not p.file.is_readable}
        if by_uri:

            def of_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                return work(
                    batch
                    for uri, pieces in groupby(_by_file(batches), lambda pair: pair[0])
                    for batch in self._rows(by_uri[_key(uri)], (piece for _, piece in pieces), columns, bad=bad)
                )

            lines = _lines(spark, [self.parts[n].file.uri for n in by_uri.values()])
            frames.append(map_batches(lines, of_lines, schema))
        if not frames:
            return spark.createDataFrame([], schema)
        return frames[0] if len(frames) == 1 else frames[0].union(frames[1])

    def _rows(
        self, number: int, pieces: Iterator[bytes] | None, columns: Mapping[str, str], *, bad: bool
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a part with numbers as Spark would give them to a partition. `pieces` are its bytes, where only Spark
        can open the file."""
        part = self.parts[number]
        if pieces is None:
            pieces = part.file.pieces() if part.stop is None else part.file.raw_pieces(part.start, part.stop)
        first = (number << PARTITION_BITS) - part.before - 1
        fixed = dict(zip((f.name for f in self.partition), part.file.partition, strict=True))
        types = {field.name: to_arrow_type(field.dataType) for field in self.partition}

        def batch(
            values: pa.RecordBatch | None, rows: Sequence[int] | NDArray[np.int64], *internal: pa.Array
        ) -> pa.RecordBatch:
            count = len(rows)
            arrays = [
                pa.array([fixed[name]] * count, types[name])
                if name in fixed
                else (pa.nulls(count, pa.string()) if values is None else values.column(name))
                for name in columns.values()
            ]
            numbers = pa.array(np.asarray(rows, np.int64) + first)
            return pa.record_batch([*arrays, numbers, *internal], names=[*columns, *INTERNAL_COLUMNS])

        with _in_file(part.file):
            reader = CsvReader(pieces, self.dialect, part.header, before=part.before)
            if reader.header:
                # Every file must have the columns of the first, in any order; without a header, by position.
                if not self.dialect.header:
                    reader.header = list(self.columns)
                refuse_other_columns(reader.header, self.columns, self.parts[0].file.label)
            read = dict.fromkeys(name for name in columns.values() if name not in fixed)
            for block in reader.blocks(list(read or self.columns[:1])):
                if len(block.rows):
                    nothing = pa.nulls(len(block.rows), pa.string())
                    yield batch(block.columns, block.rows, nothing, nothing)
                if block.bad and bad:
                    texts, reasons = [b.text for b in block.bad], [b.reason for b in block.bad]
                    internal = pa.array(texts, pa.string()), pa.array(reasons, pa.string())
                    yield batch(None, [b.row for b in block.bad], *internal)


@contextmanager
def _in_file(file: InputFile) -> Iterator[None]:
    """Name the file in its errors."""
    try:
        yield
    except BadRequestError as error:
        if file.label in str(error):
            raise
        raise BadRequestError(f"{file.label}: {error}") from error


def _header(spark: SparkSession, file: InputFile, dialect: CsvDialect) -> list[str]:
    """The columns of a file. A driver that does not have the file asks a task."""

    def read() -> str:
        with _in_file(file):
            return json.dumps(CsvReader(file.pieces(), dialect).header)

    if file.is_readable:
        text = read() if os.path.exists(file.path or "") else texts_of(spark, [read])[0]
        return [str(name) for name in json.loads(text)]
    with _in_file(file):
        lines = _lines(spark, [file.uri]).limit(_HEADER_LINES).collect()
        return CsvReader((bytes(row[1]) + b"\n" for row in lines), dialect).header


def _cuts(file: InputFile, dialect: CsvDialect, size: int) -> str:
    with _in_file(file):
        return json.dumps(csv_cuts(file.pieces(), dialect, size))


def _parts(file: InputFile, header: Sequence[str], cuts: Sequence[tuple[int, int]]) -> list[CsvPart]:
    stops = [*(at for at, _ in cuts[1:]), file.size]
    return [
        CsvPart(file, at, stop, rows, tuple(header) if at else None)
        for (at, rows), stop in zip(cuts, stops, strict=True)
    ]


def _lines(spark: SparkSession, uris: Sequence[str]) -> DataFrame:
    """The lines of files that only Spark can open, as they are; those of a file in one partition and in order."""
    lines = spark.read.option("lineSep", "\n").text([re.sub(r"([*?{}\[\]\\])", r"\\\1", uri) for uri in uris])
    places = (F.col("_metadata.file_path"), F.col("_metadata.file_block_start").alias("block"))
    text = lines.select(F.col("value").cast("binary"), *places, F.monotonically_increasing_id().alias("n"))
    ordered = text.repartition(len(uris), _PATH).sortWithinPartitions(_PATH, "block", "n")
    return ordered.select(_PATH, _LINE)


def _by_file(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, bytes]]:
    for batch in batches:
        at = 0
        for uri, lines in groupby(batch.column(_PATH).to_pylist()):
            count = sum(1 for _ in lines)
            yield uri, b"\n".join(batch.column(_LINE).slice(at, count).to_pylist()) + b"\n"
            at += count


def _key(uri: str) -> str:
    """A URI without the differences between Spark's ways to write it."""
    return re.sub(r"^([^:/]+):/+", r"\1:/", unquote(uri))


def _size(text: str) -> int:
    """Bytes as Spark's settings give them: 128m, 134217728b."""
    match = re.fullmatch(r"(\d+)\s*([bkmgt]?)i?b?", text.strip().lower())
    return int(match[1]) << _UNITS[match[2]] if match else _PART_BYTES


_SELECTING: Final = frozenset(name.lower() for name in LISTING_OPTIONS)
_METADATA: Final = "_metadata"


def check_columns(pipeline: Pipeline) -> None:
    """Raise for every mapping that names a column which the CSV files of its source do not have. Only expressions that
    are a plain column are checked; all others are left to Spark."""
    complaints = Complaints(pipeline.places)
    for source in pipeline.sources.values():
        try:
            columns = _columns(pipeline, source)
        except BadRequestError as error:
            complaints.add(f"source:{source.name}", "P018", str(error))
            continue
        names = {column.lower() for column in columns}
        for mapping in (m for m in pipeline.mappings if names and m.source == source.name):
            for name, expression in mapping.columns.items():
                column = plain_column(expression)
                if column is None or column.lower() in names:
                    continue
                hint = did_you_mean(column, columns) or f"its columns are {', '.join(columns)}"
                if column.startswith("_c") and column[2:].isdecimal():
                    hint = "columns have names by position only with `options: {header: false}`"
                message = f"the files of source '{source.name}' have no column '{column}'"
                complaints.add(f"{mapping.type_key}.{name}", "P018", message, hint)
    complaints.raise_any()


def _columns(pipeline: Pipeline, source: Source) -> list[str]:
    """The columns of a CSV source; none when this machine can't know them."""
    if source.format != CSV_FORMAT or source.path is None or _SELECTING & {option.lower() for option in source.options}:
        return []
    path = pipeline.resolve_path(source.path)
    path = local_path(path) or path
    if "://" in path:
        return []
    for file in _files(path):
        input_file = InputFile(f"file:{file.absolute()}", file.stat().st_size, 0)
        if not input_file.is_readable:
            return []
        try:
            header = CsvReader(input_file.pieces(), csv_dialect(source.options)).header
        except BadRequestError as error:
            raise BadRequestError(f"{file}: {error}") from None
        if header:
            # Directories such as `day=2026-01-01` add columns to the rows of their files.
            return [*header, *(part.partition("=")[0] for part in file.parent.parts if "=" in part), _METADATA]
    return []


def _files(path: str) -> Iterator[Path]:
    """The files of a path, directory or pattern, in the order of their names. Spark passes over hidden ones."""
    hidden = (".", "_")
    for name in sorted(glob(path)) or [path]:
        if os.path.isfile(name):
            yield Path(name)
        for folder, folders, files in os.walk(name):
            folders[:] = sorted(inner for inner in folders if not inner.startswith(hidden))
            yield from (Path(folder, file) for file in sorted(files) if not file.startswith(hidden))
