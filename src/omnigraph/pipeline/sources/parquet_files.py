"""Parquet files that a task types right where it reads them.

`source_frames` calls it for mappings that only name columns: rows that Spark reads reach Python one by one, which takes
longer than everything else. It serves only files that both readers certainly read alike; Spark reads all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyspark.sql.types import StructType

from omnigraph.errors import BadRequestError
from omnigraph.pipeline.execution.ingest import PARTITION_BITS, ROW_COLUMN
from omnigraph.pipeline.spark.tasks import consecutive_groups

_ROWS_PER_TASK: Final = 1 << 20
_BATCH_ROWS: Final = 1 << 16
_BATCH_BYTES: Final = 16 << 20
# Footers are read one after the other, before anything else happens.
_MOST_FILES: Final = 256

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_QUOTED: Final = re.compile(r"`([^`.]+)`")  # to the reader of a file, a dot leads into a struct
_LITERALS: Final = frozenset({"null", "true", "false"})
_CODECS: Final = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
# Types that mean the same to both readers, by the names that Spark has for them.
_SAME: Final[dict[pa.DataType, str]] = {
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some row groups of a file; `before` rows of it come earlier."""

    file: str
    row_groups: tuple[int, ...]
    before: int
    rows: int


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """The files of a source in parts, each worth a task. `columns` are those that can be read this way."""

    parts: tuple[FilePart, ...]
    columns: frozenset[str]

    @classmethod
    def open(cls, uris: Sequence[str], schema: StructType) -> ParquetFiles | None:
        """The files that Spark listed, and found to have `schema`. None where they should be left to Spark."""
        if len(uris) > _MOST_FILES:
            return None
        parts: list[FilePart] = []
        columns = set(schema.names)
        for path in map(local_path, sorted(uris)):
            if path is None or "=" in path:  # a directory of a partition adds columns
                return None
            try:
                footer = pq.read_metadata(path)
                arrow = footer.schema.to_arrow_schema()
            except (OSError, pa.ArrowException):  # Spark will say what is wrong with it, or is nearer to the files
                return None
            said = footer.metadata or {}
            version = said.get(b"org.apache.spark.version", b"")
            if b"org.apache.spark.legacyDateTime" in said or version.startswith(b"2."):
                return None  # its dates may be of the calendar that Spark used before version 3, and now corrects
            columns &= {name for name in arrow.names if _is_same(name, footer, arrow, schema)}
            parts += _parts(path, footer)
        return cls(tuple(parts), frozenset(columns)) if parts else None

    def serves(self, expressions: Mapping[str, str]) -> bool:
        """Whether some Spark SQL expressions are plain columns of these files."""
        return all(plain_column(expression) in self.columns for expression in expressions.values())

    def groups(self) -> list[list[int]]:
        """Numbers of parts by task, in order: small files share one."""
        return consecutive_groups([part.rows for part in self.parts], _ROWS_PER_TASK)

    def read(self, number: int, expressions: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        """The columns of a part by the names that the mapping has for them, with numbers as Spark would give them."""
        part, row = self.parts[number], number << PARTITION_BITS
        try:
            with pq.ParquetFile(part.file) as file:
                names = [plain_column(expression) or "" for expression in expressions.values()]
                wanted = sorted(set(names))
                # Batches have a bearable size, by the sizes in the footer.
                groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
                size = sum(group.total_byte_size for group in groups) / max(1, sum(group.num_rows for group in groups))
                rows = max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(1.0, size))))
                for batch in file.iter_batches(rows, part.row_groups, columns=wanted, use_threads=False):
                    numbers = pa.array(np.arange(row, row + batch.num_rows))
                    row += batch.num_rows
                    columns = [*(batch.column(name) for name in names), numbers]
                    yield pa.record_batch(columns, names=[*expressions, ROW_COLUMN])
        except (OSError, pa.ArrowException) as error:
            raise BadRequestError(f"{part.file}: {str(error).splitlines()[0]}") from error


def local_path(uri: str) -> str | None:
    """The path of a local file; None for a file elsewhere."""
    path = unquote(uri)
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else None


def plain_column(expression: str) -> str | None:
    """The column that a Spark SQL expression is, when it is nothing else."""
    if quoted := _QUOTED.fullmatch(expression):
        return quoted[1]
    return expression if _NAME.fullmatch(expression) and expression.lower() not in _LITERALS else None


def _is_same(name: str, footer: pq.FileMetaData, arrow: pa.Schema, schema: StructType) -> bool:
    if arrow.names.count(name) != 1 or name not in schema.names:
        return False
    # A writer may have asked for dictionaries or large texts; row kernels take them all.
    type_ = arrow.field(name).type
    while pt.is_dictionary(type_):
        type_ = type_.value_type
    if _SAME.get(pa.string() if pt.is_large_string(type_) else type_) != schema[name].dataType.simpleString():
        return False
    leaf = next(n for n in range(len(footer.schema)) if footer.schema.column(n).path == name)
    return all(footer.row_group(g).column(leaf).compression in _CODECS for g in range(footer.num_row_groups))


def _parts(path: str, footer: pq.FileMetaData) -> Iterator[FilePart]:
    counts = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    for groups in consecutive_groups(counts, _ROWS_PER_TASK):
        first, last = groups[0], groups[-1] + 1
        yield FilePart(path, tuple(groups), sum(counts[:first]), sum(counts[first:last]))
