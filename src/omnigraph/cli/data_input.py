"""The data of `load --data`: files, directories, patterns or URIs, in which format, and whether they fit one process.

Looks at names and sizes only. Reading is the business of the engine that is chosen; nothing here imports Spark.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from omnigraph.cli.params import UsageError
from omnigraph.errors import BadRequestError, NotFoundError

if TYPE_CHECKING:
    from omnigraph.api.governance import Limits
    from omnigraph.engine.rows.kernels.csv_rows import CsvDialect
    from omnigraph.pipeline import BulkInput

STDIN: Final = "-"


class DataFormat(StrEnum):
    """The format of the rows of a file. `graph` records name their types; rows of the others are of one type."""

    GRAPH = "graph"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    ORC = "orc"


_BY_SUFFIX: Final = {
    ".csv": DataFormat.CSV,
    ".tsv": DataFormat.CSV,
    ".parquet": DataFormat.PARQUET,
    ".pq": DataFormat.PARQUET,
    ".arrow": DataFormat.ARROW,
    ".feather": DataFormat.ARROW,
    ".orc": DataFormat.ORC,
}
_ONLY_SPARK: Final = (".lz4", ".snappy")
_COMPRESSED: Final = (".gz", ".bz2", ".zst", ".deflate", *_ONLY_SPARK)
_PATTERN: Final = re.compile(r"[*?{\[]")
_PIECE_BYTES: Final = 1 << 20


def names_data(text: str) -> bool:
    """Whether a text is the name of a data file, which no graph has: by its ending, or by that below a compression."""
    return _suffix(text) in {*_BY_SUFFIX, ".ndjson", ".jsonl"} and not os.path.isdir(text)


@dataclass(frozen=True, slots=True)
class DataInput:
    """One `--data` with its format, as a local path or as a URI."""

    argument: str
    path: str
    format: DataFormat
    delimiter: str | None = None
    encoding: str | None = None

    @classmethod
    def of(cls, argument: str, format: DataFormat | None, *, typed: bool) -> DataInput:
        path = unquote(argument.removeprefix("file://")) if argument.startswith("file://") else argument
        if argument != STDIN:
            _require_files(path)
        file_format = format or (DataFormat.GRAPH if argument == STDIN else _format_of(path))
        return cls(argument, path, DataFormat.JSON if typed and file_format is DataFormat.GRAPH else file_format)

    def why_not_in_process(self) -> str | None:
        """Why only Spark can read it; None for stdin and for local files in a format that needs no Spark."""
        if self.argument == STDIN:
            return None
        if self.format is DataFormat.ORC:
            return f"has the format {self.format}"
        if "://" in self.path:
            return "is not a local file"
        if "{" in self.path and _is_pattern(self.path):
            return "is a pattern that only Spark understands"
        if self.format is not DataFormat.GRAPH and any(map(_adds_columns, _matches(self.path))):
            return "has directories that add columns to their files"
        if packed := next((file for file in self.files() if file.lower().endswith(_ONLY_SPARK)), None):
            return f"holds '{packed}', which only Spark unpacks" if packed != self.path else "is compressed"
        return None

    def files(self) -> list[str]:
        """The local files it comes to, in the order of their names."""
        if self.argument == STDIN or "://" in self.path:
            return []
        return _local_files(self.path)

    def dialect(self, file: str) -> CsvDialect | None:
        """How one of its CSV files is written, where that was said. The delimiter of `.tsv` files is a tab."""
        if self.delimiter is None and self.encoding is None:
            return None
        from omnigraph.engine.rows.kernels.csv_rows import CsvDialect

        usual = "\t" if _suffix(file) == ".tsv" else ","
        delimiter = usual if self.delimiter is None else self.delimiter
        dialect = CsvDialect(delimiter=delimiter, encoding="utf-8" if self.encoding is None else self.encoding)
        dialect.check()
        return dialect

    @property
    def row_format(self) -> str:
        """The format as an in-process load of rows names it."""
        return "ndjson" if self.format is DataFormat.JSON else self.format.value

    def for_spark(self) -> BulkInput:
        from omnigraph.pipeline import BulkInput

        if self.argument == STDIN:
            raise UsageError("Spark can't read stdin; write the records to a file, or use --engine local")
        if self.format is DataFormat.ARROW:
            raise UsageError("Spark does not read Arrow files; write the rows as parquet, or use --engine local")
        options: dict[str, str] = {}
        if self.format is DataFormat.CSV:
            options["header"] = "true"
            if self.delimiter is not None or _suffix(next(iter(self.files()), self.path)) == ".tsv":
                options["sep"] = "\t" if self.delimiter is None else self.delimiter
            options |= {} if self.encoding is None else {"encoding": self.encoding}
        if self.format is DataFormat.GRAPH:
            # A directory of records may hold directories by type, as an export does.
            options["recursiveFileLookup"] = "true"
        path = self.path
        if "://" not in path:
            path = str(Path(path).absolute())
            path = path if _is_pattern(self.path) else re.sub(r"([*?{}\[\]\\])", r"\\\1", path)
        return BulkInput(path, self.format.value, options)


def data_inputs(
    arguments: Sequence[str],
    format: DataFormat | None,
    type_name: str | None,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> list[DataInput]:
    """Every `--data`, checked: it is there, its format is known, and rows that name no type have been given one."""
    if STDIN in arguments and len(arguments) > 1:
        raise UsageError("stdin (-) can't be combined with other data")
    if type_name is not None and format is DataFormat.GRAPH:
        raise UsageError("--type and --format graph are mutually exclusive: graph records name their types")
    inputs = [DataInput.of(each, format, typed=type_name is not None) for each in arguments]
    for each in inputs:
        if each.format is not DataFormat.GRAPH and type_name is None:
            raise BadRequestError(
                f"'{each.argument}' is {each.format} data, whose rows do not say what they are: give --type <Type> to "
                "load columns as properties by name, or describe them in a pipeline file (`omnigraph pipeline run`)"
            )
    if delimiter is None and encoding is None:
        return inputs
    if other := next((each for each in inputs if each.format is not DataFormat.CSV), None):
        raise UsageError(f"--delimiter and --encoding are for CSV, and '{other.argument}' is {other.format} data")
    tab = None if delimiter is None else delimiter.replace("\\t", "\t")
    inputs = [replace(each, delimiter=tab, encoding=encoding) for each in inputs]
    inputs[0].dialect(inputs[0].path)
    return inputs


def excess(files: Sequence[str], format: DataFormat, limits: Limits) -> str | None:
    """How local files exceed the limits of one process, in words; None where only reading them can show it."""
    if format is DataFormat.PARQUET:
        rows, size = _parquet_size(files)
        return _beyond(rows, "rows", limits.rows) or _beyond(size, "bytes", limits.bytes)
    size = sum(os.path.getsize(file) for file in files)
    if size <= limits.rows:  # a line takes a byte at least, so that most files need not be counted
        return _beyond(size, "bytes", limits.bytes)
    plain = [file for file in files if not file.lower().endswith(_COMPRESSED)]
    return _beyond(size, "bytes", limits.bytes) or _beyond(sum(map(_count_lines, plain)), "lines", limits.rows)


def _beyond(count: int, unit: str, most: int) -> str | None:
    return None if count <= most else f"has {count:,} {unit}, more than the {most:,} of an in-process load"


def _require_files(path: str) -> None:
    """Refuse a local path without data. Spark also knows {a,b} and URIs, which only Spark can look up."""
    if "://" in path or ("{" in path and _is_pattern(path)):
        return
    if os.path.isdir(path):
        if next(_files_in(path), None) is None:
            raise NotFoundError(f"'{path}' is a directory without data files")
    elif _is_pattern(path):
        if not _local_files(path):
            raise NotFoundError(f"no file matches '{path}'")
    elif not os.path.exists(path):
        raise NotFoundError(f"'{path}' does not exist")


def _format_of(path: str) -> DataFormat:
    files = _files_in(path) if os.path.isdir(path) else [path]
    formats = sorted({_BY_SUFFIX.get(_suffix(file), DataFormat.GRAPH) for file in files})
    if len(formats) > 1:
        raise BadRequestError(
            f"'{path}' holds files of several formats ({', '.join(formats)}); load them one by one, "
            "or describe them in a pipeline file (`omnigraph pipeline run`)"
        )
    return formats[0]


def _suffix(path: str) -> str:
    """The last extension, below one that says how the file is compressed."""
    stem, ending = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if ending in _COMPRESSED else ending


def _matches(path: str) -> list[str]:
    """The files and directories that a local path or a pattern names."""
    return sorted(glob.glob(path, recursive=True)) if _is_pattern(path) else [path]


def _local_files(path: str) -> list[str]:
    return [file for name in _matches(path) for file in (sorted(_files_in(name)) if os.path.isdir(name) else [name])]


def _adds_columns(directory: str) -> bool:
    """Whether directories below one are named `column=value`, which Spark reads as a column of their files."""
    return any("=" in os.path.dirname(os.path.relpath(file, directory)) for file in _files_in(directory))


def _files_in(directory: str) -> Iterator[str]:
    """Data files below a directory. Like Spark, names that begin with _ or . are not data."""
    for folder, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(("_", "."))]
        yield from (os.path.join(folder, name) for name in files if not name.startswith(("_", ".")))


def _is_pattern(path: str) -> bool:
    return _PATTERN.search(path) is not None and not os.path.exists(path)


def _parquet_size(files: Sequence[str]) -> tuple[int, int]:
    """Rows and bytes by the footers of Parquet files, without reading a row. Its reader reports a broken file."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    rows = size = 0
    for file in files:
        try:
            footer = pq.read_metadata(file)
        except (OSError, ArrowException):
            return 0, 0
        rows += footer.num_rows
        size += sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    return rows, size


def _count_lines(path: str) -> int:
    with open(path, "rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(_PIECE_BYTES), b""))
