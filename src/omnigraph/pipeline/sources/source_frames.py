"""Sources as DataFrames with numbered rows, and the way back from a number to a file and a row.

A run calls it. Numbers come from Spark (`monotonically_increasing_id`) and cost one integer per row; the file and row
behind a number are found only for rows that are reported. A Lance dataset is pinned when the run begins, and read a
task per group of fragments with the columns that a mapping needs.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from omnigraph.engine.bulk.scan_plans import ForeignDataset, foreign_dataset
from omnigraph.engine.rows.kernels.coerce import DATE_PARSERS, default_value
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Property
from omnigraph.language.types import FLOATS, Scalar
from omnigraph.pipeline.execution.ingest import (
    CORRUPT_COLUMN,
    INTERNAL_COLUMNS,
    PARTITION_BITS,
    ROW_COLUMN,
    TEXT_COLUMN,
)
from omnigraph.pipeline.file import CSV_FORMAT, GRAPH_FORMAT, LANCE_FORMAT, Pipeline, Source, TypeMapping
from omnigraph.pipeline.sources.csv_files import CsvFiles
from omnigraph.pipeline.sources.fingerprints import Digests
from omnigraph.pipeline.sources.input_files import InputFile, Listing, csv_dialect, list_files
from omnigraph.pipeline.sources.parquet_files import ParquetFiles, local_path, plain_column
from omnigraph.pipeline.spark.table_frames import TableScan, scan_frame
from omnigraph.pipeline.spark.tasks import OnBatches, map_batches, on_executors


def columns_named_in(columns: Sequence[str], expressions: Sequence[str]) -> tuple[str, ...]:
    """Columns that the expressions may mean: a name that is spelled in none of them can't be. A `*` means all. Too many
    are harmless, too few are not, so this reads no SQL. One column stays in any case, to count rows by."""
    text = "\n".join(expressions).lower()
    if "*" in text:
        return tuple(columns)
    # A backtick within a name is written twice.
    named = tuple(column for column in columns if column.lower().replace("`", "``") in text)
    return named or tuple(columns[:1])


_JSON_FORMAT: Final = "json"
_MISSING_PACKAGE: Final = ("Class org.apache", "No FileSystem for scheme", "[DATA_SOURCE_NOT_FOUND]")
_JAVA_CLASSES: Final = re.compile(r"^(java[\w.]*\.\w+: )+")
_PACKAGE_REMEDY: Final = (
    "Spark needs a package for this: name it under spark.packages in a pipeline file, or as spark.jars.packages in "
    "spark-defaults.conf (for s3: org.apache.hadoop:hadoop-aws in the version of Spark's Hadoop)"
)
# With these, a file that can't be read is not an error.
_LENIENT: Final = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
_NAMES_OF_FILES: Final = ("_metadata", "input_file")
FILE_FORMATS: Final = frozenset({"csv", "json", "parquet", "orc", "text", "graph", "avro", "binaryFile", "xml"})


@dataclass(frozen=True, slots=True)
class Span:
    """A run of row numbers that lie in one file; `before` rows of the file come earlier."""

    first: int
    file: str | None
    before: int


@dataclass(frozen=True, slots=True)
class RowIndex:
    """From row numbers of a source to positions. Holds one entry per part of a file, never one per row."""

    spans: tuple[Span, ...]
    format: str = ""
    dialect: CsvDialect | None = None

    def lines(self, numbers: Iterable[int]) -> dict[int, int]:
        """The lines of files on which rows begin, where this machine has the files. Each file is read up to the last of
        these rows, so this is only for rows that are reported."""
        positions = {number: self.position(number) for number in numbers}
        if self.format == GRAPH_FORMAT:
            return {number: row for number, (_, row) in positions.items()}  # every line is a row, also a blank one
        by_file: dict[str, dict[int, int]] = {}
        for number, (path, row) in positions.items() if self.format in (CSV_FORMAT, _JSON_FORMAT) else ():
            if path is not None:
                by_file.setdefault(path, {})[row] = number
        line_of: dict[int, int] = {}
        for path, rows in by_file.items():
            if os.path.isfile(path) and (file := InputFile(f"file:{path}", os.path.getsize(path), 0)).is_readable:
                line_of.update((rows[row], line) for row, line in file.lines_of_rows(rows, self.dialect).items())
        return line_of

    def position(self, number: int) -> tuple[str | None, int]:
        """The file of a row and its number there; its number in the source, where it has no files."""
        at = bisect.bisect_right([span.first for span in self.spans], number) - 1
        if at < 0:
            return None, number
        span = self.spans[at]
        return span.file, span.before + number - span.first + 1


class SourceFrames:
    """The sources of one pipeline, as views of a session that is the run's own. With `to_read=False` only their columns
    are known; large files are not divided."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, *, to_read: bool = True) -> None:
        self.spark = spark
        self._to_read = to_read
        self._pipeline = pipeline
        self._frames: dict[str, DataFrame] = {}
        self._lance: dict[str, ForeignDataset] = {}
        self._parquet: dict[str, ParquetFiles | None] = {}
        self._csv: dict[str, CsvFiles] = {}
        self._listings: dict[str, Listing] = {}
        for name, source in pipeline.sources.items():
            with spark_errors(f"source '{name}'"):
                frame = self.spark.sql(source.sql) if source.sql is not None else self._read(source)
                frame.createOrReplaceTempView(name)
            self._frames[name] = frame

    def columns(self, name: str) -> list[str]:
        """The columns that a mapping can use."""
        return [column for column in self._frames[name].columns if column not in INTERNAL_COLUMNS]

    def map_rows(self, mapping: TypeMapping) -> DataFrame:
        """The input of the row kernel. Rows are numbered before `where`, so that numbers count rows of the file."""
        if self._is_void(mapping.source):
            fields = [StructField(name, StringType()) for name in mapping.columns]
            return self.spark.createDataFrame([], StructType([*fields, StructField(ROW_COLUMN, LongType())]))
        frame = _number_rows(self._needed_rows(mapping))
        internal = [F.col(f"`{name}`") for name in INTERNAL_COLUMNS if name in frame.columns]
        # Errors of an expression name the columns that its author knows.
        source_frame = self._frames[mapping.source].drop(*INTERNAL_COLUMNS)
        with spark_errors(f"{mapping.type_key}: where"):
            if mapping.where is not None:
                source_frame.where(mapping.where)
                kept = F.expr(f"({mapping.where})")
                corrupt = CORRUPT_COLUMN in frame.columns
                frame = frame.where(kept | F.col(f"`{CORRUPT_COLUMN}`").isNotNull() if corrupt else kept)
        columns = []
        for name, expression in mapping.columns.items():
            with spark_errors(f"{mapping.type_key}.{name}: '{expression}'"):
                source_frame.select(F.expr(expression))  # names the expression that is wrong, not just the mapping
            columns.append(F.expr(expression).alias(name))
        with spark_errors(mapping.type_key):
            return frame.select(*internal, *columns)

    def _is_void(self, name: str) -> bool:
        """Whether a source has no columns because its files are empty."""
        return name in self._csv and not self._csv[name].columns

    def through(self, mapping: TypeMapping, work: OnBatches, schema: StructType) -> DataFrame:
        """The result of `work` on the rows of a mapping."""
        mapped = self.map_rows(mapping)
        if (csv := self._csv.get(mapping.source)) is not None and mapping.where is None:
            named = {name: plain_column(expression) or "" for name, expression in mapping.columns.items()}
            if named and set(named.values()) <= set(csv.columns):
                return csv.through(self.spark, named, work, schema, bad=self._tells_bad_records(mapping))
        files = self._read_by_tasks(mapping.source)
        if files is None:
            return map_batches(mapped, work, schema)
        columns, groups = mapping.columns, files.groups()

        def read(number: int) -> Iterator[pa.RecordBatch]:
            return work(batch for part in groups[number] for batch in files.read(part, columns))

        return on_executors(self.spark, len(groups), read, schema)

    def through_records(self, name: str, work: OnBatches, schema: StructType) -> DataFrame:
        """The result of `work` on graph records; of a CSV source, on the records that have no columns."""
        if (csv := self._csv.get(name)) is None:
            return map_batches(_number_rows(self._frames[name]), work, schema)
        frame = csv.frame(self.spark, csv.columns[:1], bad=True).where(F.col(f"`{CORRUPT_COLUMN}`").isNotNull())
        return map_batches(frame, work, schema)

    def read_by_queries_only(self) -> list[str]:
        """CSV sources that no mapping reads, so that no mapping reports their bad records."""
        mapped = {mapping.source for mapping in self._pipeline.mappings}
        queries = "\n".join(source.sql for source in self._pipeline.sources.values() if source.sql is not None)
        asked = set(re.findall(r"\w+", queries.lower()))
        return [name for name in self._csv if name not in mapped and name.lower() in asked and not self._is_void(name)]

    def _tells_bad_records(self, mapping: TypeMapping) -> bool:
        """A record without columns belongs to no type; the first mapping of its source reports it."""
        return mapping is next(m for m in self._pipeline.mappings if m.source == mapping.source)

    def _read_by_tasks(self, name: str) -> ParquetFiles | None:
        """The files of a source that tasks read by themselves: for all of its mappings, so a row has one number."""
        if name not in self._parquet:
            self._parquet[name] = None
            source, frame = self._pipeline.sources[name], self._frames[name]
            lenient = any(self.spark.conf.get(setting, "false") == "true" for setting in _LENIENT)
            if source.format == "parquet" and not source.options and not lenient:
                files = ParquetFiles.open(frame.inputFiles(), frame.schema)
                mappings = [mapping for mapping in self._pipeline.mappings if mapping.source == name]
                if files is not None and all(m.where is None and files.serves(m.columns) for m in mappings):
                    self._parquet[name] = files
        return self._parquet[name]

    def _needed_rows(self, mapping: TypeMapping) -> DataFrame:
        """The source of a mapping; where Python reads it, only the columns that the mapping may mean."""
        expressions = [*mapping.columns.values(), mapping.where or ""]
        if (csv := self._csv.get(mapping.source)) is not None:
            columns = columns_named_in(csv.schema.names, expressions)
            return csv.frame(self.spark, columns, bad=self._tells_bad_records(mapping))
        if (lance := self._lance.get(mapping.source)) is not None:
            columns = columns_named_in(lance.table.schema.names, expressions)
            return scan_frame(self.spark, TableScan(lance.table, columns, {}))
        return self._frames[mapping.source]

    def row_index(self, name: str) -> RowIndex:
        """From row numbers to positions; one pass over the source counts rows where their number is unknown."""
        source = self._pipeline.sources[name]
        if (csv := self._csv.get(name)) is not None:
            spans = [Span(n << PARTITION_BITS, part.file.label, part.before) for n, part in enumerate(csv.parts)]
            return RowIndex(tuple(spans), CSV_FORMAT, csv.dialect)
        if (parquet := self._parquet.get(name)) is not None:
            spans = [Span(n << PARTITION_BITS, part.file, part.before) for n, part in enumerate(parquet.parts)]
            return RowIndex(tuple(spans))
        frame, number = self._frames[name], F.monotonically_increasing_id()
        if self._has_files(name):
            path, part = F.col("_metadata.file_path"), F.col("_metadata.file_block_start")
        else:
            uri = self._pipeline.resolve_path(source.path or "") if name in self._lance else None
            path, part = F.lit(uri).cast("string"), F.shiftright(number, PARTITION_BITS)
        numbered = frame.select("*", number.alias(ROW_COLUMN), path.alias("#path"), part.alias("#part"))
        # Counting a column of data keeps Spark from taking a shortcut that numbers rows differently. It refuses to
        # read nothing but corrupt records, so that column won't do.
        data = next(column for column in frame.columns if column != CORRUPT_COLUMN)
        row, counted = F.col(f"`{ROW_COLUMN}`"), F.count(F.col(f"`{data}`"))
        parts = numbered.groupBy("`#path`", "`#part`").agg(F.min(row), F.count(row), counted).collect()
        spans, before = [], Counter[str | None]()
        for at, _, first, count, _ in sorted(parts):
            file = at and (local_path(at) or at)
            spans.append(Span(first, file, before[file]))
            before[file] += count
        is_by_line = source.options.get("multiLine", "false").lower() != "true"
        return RowIndex(tuple(sorted(spans, key=lambda span: span.first)), source.format if is_by_line else "")

    def fingerprint(self, name: str, digests: Digests) -> str | None:
        """A digest of the input of a source: the contents of its files, or its query. None when it has neither."""
        source = self._pipeline.sources[name]
        if source.sql is not None:
            return hashlib.sha256(source.sql.encode()).hexdigest()
        if name in self._lance:
            return self._lance[name].digest
        if not self._has_files(name):
            return None
        with spark_errors(f"source '{name}'"):
            # An expression may make data of the names of files.
            mapped = (text for m in self._pipeline.mappings for text in (*m.columns.values(), m.where or ""))
            texts = [*mapped, *(source.sql or "" for source in self._pipeline.sources.values())]
            names = any(sign in text.lower() for text in texts for sign in _NAMES_OF_FILES)
            contents = digests.fingerprint(self._listing(source), names=names)
        options = sorted(source.options.items())
        return hashlib.sha256(repr((source.format, options, contents)).encode()).hexdigest()

    def _listing(self, source: Source) -> Listing:
        if source.name not in self._listings:
            self._listings[source.name] = list_files(self.spark, self._path(source), source.options)
        return self._listings[source.name]

    def _has_files(self, name: str) -> bool:
        source = self._pipeline.sources[name]
        return source.sql is None and source.path is not None and source.format in FILE_FORMATS

    def _read(self, source: Source) -> DataFrame:
        if source.is_graph:
            lines = self.spark.read.options(**source.options).option("lineSep", "\n").text(self._path(source))
            return lines.select(F.col("value").cast("binary").alias(TEXT_COLUMN))
        if source.format == LANCE_FORMAT:
            # `version` picks a version; every other option is for the object store.
            store = {name: value for name, value in source.options.items() if name != "version"}
            version = int(source.options["version"]) if "version" in source.options else None
            lance = foreign_dataset(self._pipeline.resolve_path(source.path or ""), version, store)
            self._lance[source.name] = lance
            return scan_frame(self.spark, TableScan(lance.table, tuple(lance.table.schema.names), {}))
        if source.format == CSV_FORMAT:
            listing, dialect = self._listing(source), csv_dialect(source.options)
            csv = self._csv[source.name] = CsvFiles.open(self.spark, listing, dialect, divide=self._to_read)
            return csv.frame(self.spark, csv.schema.names, bad=False).drop(*INTERNAL_COLUMNS)
        return self._read_json(source) if source.format == _JSON_FORMAT else self._load(source)

    def _read_json(self, source: Source) -> DataFrame:
        options: dict[str, str] = {}
        if by_line := source.options.get("multiLine", "false").lower() != "true":
            options = {"columnNameOfCorruptRecord": CORRUPT_COLUMN, "columnPruning": "false", "mode": "PERMISSIVE"}
        inferred = self._load(source, None, **options).schema
        fields = [_with_default(each, source.properties.get(each.name)) for each in inferred.fields]
        if by_line and CORRUPT_COLUMN not in inferred.fieldNames():
            fields.append(StructField(CORRUPT_COLUMN, StringType()))
        return self._load(source, StructType(fields), **options)

    def _load(self, source: Source, schema: StructType | None = None, **options: str) -> DataFrame:
        reader = self.spark.read.format(source.format).options(**options).options(**source.options)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.load(self._path(source)) if source.path is not None else reader.load()

    def _path(self, source: Source) -> str:
        return hadoop_uri(self._pipeline.resolve_path(source.path or ""))


_DEFAULT_OF_ABSENT: Final = "EXISTS_DEFAULT"
"""The SQL of the value that Spark reads where a JSON record lacks a member. A null in the record stays null."""


def _with_default(field: StructField, prop: Property | None) -> StructField:
    """The field of a JSON source that becomes a property: a record without it has the default of the property."""
    if prop is None or prop.default is None:
        return field
    type_, value = _holding(field.dataType, prop.type.scalar), default_value(prop)
    item = type_.elementType if isinstance(type_, ArrayType) else type_
    if prop.type.scalar in DATE_PARSERS and not isinstance(item, StringType):
        parse = DATE_PARSERS[prop.type.scalar]  # the records have numbers of days or of milliseconds
        value = list(map(parse, value)) if isinstance(value, list) else parse(str(value))
    # JSON in hexadecimal digits needs no quoting.
    text = json.dumps({"d": value}).encode().hex()
    default = f"from_json(cast(X'{text}' as string), 'd {type_.simpleString()}').d"
    return StructField(field.name, type_, field.nullable, {**field.metadata, _DEFAULT_OF_ABSENT: default})


def _holding(type_: DataType, scalar: Scalar) -> DataType:
    """The type that Spark found in the records, or a wider one where a default may not fit it."""
    if isinstance(type_, ArrayType):
        return ArrayType(_holding(type_.elementType, scalar))
    if isinstance(type_, LongType | DecimalType) and scalar in FLOATS:
        return DoubleType()
    return DecimalType(20, 0) if isinstance(type_, LongType) and scalar is Scalar.U64 else type_


def _number_rows(frame: DataFrame) -> DataFrame:
    if ROW_COLUMN in frame.columns:
        return frame
    return frame.withColumn(ROW_COLUMN, F.monotonically_increasing_id())


def hadoop_uri(path: str) -> str:
    """A path by Hadoop's name of its store: S3 has another one there."""
    return f"s3a://{path.removeprefix('s3://')}" if path.startswith("s3://") else path


@contextmanager
def spark_errors(where: str | None) -> Iterator[None]:
    """Turn a refusal of Spark into one line that says where. Java throws some of them past Spark's error classes.
    Without `where`, the message of our own error on an executor is enough."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if where is not None:
            raise BadRequestError(f"{where}: {short_reason(error)}") from None
        reason = _own_words(str(error)) or f"Spark could not run the pipeline: {short_reason(error)}"
        raise BadRequestError(reason) from error


def _own_words(text: str) -> str | None:
    """The message of our own error on an executor, within the text that Spark made of it."""
    lines = (line for line in text.splitlines() if line.startswith("omnigraph.errors."))
    return next((line.partition(": ")[2].strip() for line in lines), None)


def short_reason(error: Exception) -> str:
    """The message of Spark without its stack trace and plan, with a remedy when a part of Spark is missing."""
    text = str(error).split("\n\nJVM stacktrace", 1)[0]
    if said := _own_words(text):
        return said
    if isinstance(error, Py4JJavaError):
        text = _JAVA_CLASSES.sub("", text.partition("\n: ")[2])
    reason = text.strip().split(";\n", 1)[0].split("\n", 1)[0].strip()
    missing = any(sign in reason for sign in _MISSING_PACKAGE)
    return f"{reason}; {_PACKAGE_REMEDY}" if missing else reason
