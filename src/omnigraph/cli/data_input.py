"""What `load --data` names: files, directories, patterns or URIs, in which format, and whether they fit one process.

Looks at names and sizes only. Reading is the business of the engine that is chosen; nothing here imports Spark.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from omnigraph.cli.usage import UsageError
from omnigraph.errors import BadRequestError, NotFoundError

if TYPE_CHECKING:
    from omnigraph.api.limits import Limits
    from omnigraph.pipeline import BulkInput

STDIN: Final = "-"


class DataFormat(StrEnum):
    """What the rows of a file are. `graph` records name their types; rows of the others are of one type."""

    GRAPH = "graph"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ORC = "orc"


_BY_SUFFIX: Final = {
    ".csv": DataFormat.CSV,
    ".tsv": DataFormat.CSV,
    ".parquet": DataFormat.PARQUET,
    ".pq": DataFormat.PARQUET,
    ".orc": DataFormat.ORC,
}
_COMPRESSED: Final = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")
_PATTERN: Final = re.compile(r"[*?{\[]")
_PIECE_BYTES: Final = 1 << 20


def names_data(text: str) -> bool:
    """Whether a text is the name of a data file, which no graph has: by its ending, or by that below a compression."""
    stem, ending = os.path.splitext(text.lower())
    if ending in _COMPRESSED:
        ending = os.path.splitext(stem)[1]
    return ending in {*_BY_SUFFIX, ".ndjson", ".jsonl"} and not os.path.isdir(text)


@dataclass(frozen=True, slots=True)
class DataInput:
    """One `--data` with its format, as a local path or as a URI."""

    given: str
    path: str
    format: DataFormat

    @classmethod
    def of(cls, given: str, format: DataFormat | None, *, typed: bool) -> DataInput:
        path = unquote(given.removeprefix("file://")) if given.startswith("file://") else given
        found = format or (DataFormat.GRAPH if given == STDIN else _format_of(path))
        return cls(given, path, DataFormat.JSON if typed and found is DataFormat.GRAPH else found)

    @property
    def is_plain_file(self) -> bool:
        """Whether an in-process load can read it: a local file as it is, or stdin, in a format that needs no Spark."""
        return self.format is not DataFormat.ORC and self._beyond_a_file() is None

    def why_not_in_process(self) -> str:
        return self._beyond_a_file() or f"has the format {self.format}"

    @property
    def row_format(self) -> str:
        """What an in-process load of rows calls the format."""
        return "ndjson" if self.format is DataFormat.JSON else self.format.value

    def _beyond_a_file(self) -> str | None:
        if self.given == STDIN:
            return None
        if "://" in self.path:
            return "is not a local file"
        if os.path.isdir(self.path):
            return "is a directory"
        if _is_pattern(self.path):
            return "is a pattern"
        return "is compressed" if self.path.endswith(_COMPRESSED) else None

    def excess(self, limits: Limits) -> str | None:
        """What a plain file has too much of for one process, told in words; nothing where only reading it can tell."""
        if self.given == STDIN or not os.path.isfile(self.path):
            return None
        if self.format is DataFormat.PARQUET:
            return _parquet_excess(self.path, limits)
        size = os.path.getsize(self.path)
        if size > limits.bytes:
            return f"has {size:,} bytes, more than the {limits.bytes:,} of an in-process load"
        # A line takes a byte at least, so most files need not be counted.
        if size > limits.rows and (lines := _count_lines(self.path)) > limits.rows:
            return f"has {lines:,} lines, more than the {limits.rows:,} of an in-process load"
        return None

    def for_spark(self) -> BulkInput:
        """The input as Spark takes it."""
        from omnigraph.pipeline import BulkInput

        if self.given == STDIN:
            raise UsageError("Spark can't read stdin; write the records to a file, or use --engine local")
        options = {"header": "true"} if self.format is DataFormat.CSV else {}
        if _suffix(self.path) == ".tsv":
            options["sep"] = "\t"
        if self.format is DataFormat.GRAPH:
            # A directory of records may hold directories by type, as an export does.
            options["recursiveFileLookup"] = "true"
        return BulkInput(_spark_path(self.path), self.format.value, options)


def data_inputs(given: Sequence[str], format: DataFormat | None, type_name: str | None) -> list[DataInput]:
    """Every `--data`, checked: it is there, its format is known, and rows that name no type have been given one."""
    if STDIN in given and len(given) > 1:
        raise UsageError("stdin (-) can't be combined with other data")
    if type_name is not None and format is DataFormat.GRAPH:
        raise UsageError("--type and --format graph are mutually exclusive: graph records name their types")
    inputs = [DataInput.of(each, format, typed=type_name is not None) for each in given]
    for each in inputs:
        if each.format is not DataFormat.GRAPH and type_name is None:
            raise BadRequestError(
                f"'{each.given}' is {each.format} data, whose rows do not say what they are: give --type <Type> to "
                "load columns as properties by name, or describe them in a pipeline file (`omnigraph pipeline run`)"
            )
    return inputs


def _format_of(path: str) -> DataFormat:
    if "://" in path:
        return _by_name(path)
    if os.path.isdir(path):
        found = sorted({_by_name(file) for file in _files_in(path)})
        if not found:
            raise NotFoundError(f"'{path}' is a directory without data files")
        if len(found) > 1:
            raise BadRequestError(
                f"'{path}' holds files of several formats ({', '.join(found)}); load them one by one, "
                "or describe them in a pipeline file (`omnigraph pipeline run`)"
            )
        return found[0]
    if _is_pattern(path):
        # Spark also knows {a,b}, which only Spark can look up.
        if "{" not in path and not glob.glob(path, recursive=True):
            raise NotFoundError(f"no file matches '{path}'")
        return _by_name(path)
    if not os.path.exists(path):
        raise NotFoundError(f"'{path}' does not exist")
    return _by_name(path)


def _by_name(path: str) -> DataFormat:
    return _BY_SUFFIX.get(_suffix(path), DataFormat.GRAPH)


def _suffix(path: str) -> str:
    """The last extension, below one that says how the file is compressed."""
    for compressed in _COMPRESSED:
        path = path.removesuffix(compressed)
    return os.path.splitext(path)[1].lower()


def _files_in(directory: str) -> Iterator[str]:
    """Data files below a directory. Like Spark, names that begin with _ or . are not data."""
    for _, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(("_", "."))]
        yield from (name for name in files if not name.startswith(("_", ".")))


def _is_pattern(path: str) -> bool:
    return _PATTERN.search(path) is not None and not os.path.exists(path)


def _spark_path(path: str) -> str:
    if "://" in path:
        return path
    whole = str(Path(path).absolute())
    return whole if _is_pattern(path) else re.sub(r"([*?{}\[\]\\])", r"\\\1", whole)


def _parquet_excess(path: str, limits: Limits) -> str | None:
    """What the footer of a Parquet file says, without reading a row. A broken file is reported by its reader."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    try:
        footer = pq.read_metadata(path)
    except (OSError, ArrowException):
        return None
    if footer.num_rows > limits.rows:
        return f"has {footer.num_rows:,} rows, more than the {limits.rows:,} of an in-process load"
    size = sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    return f"has {size:,} bytes, more than the {limits.bytes:,} of an in-process load" if size > limits.bytes else None


def _count_lines(path: str) -> int:
    with open(path, "rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(_PIECE_BYTES), b""))
