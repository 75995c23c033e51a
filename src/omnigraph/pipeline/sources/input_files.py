"""The files of a source by Spark's listing, their bytes where a task can open them, and the options of CSV.

`source_frames` and the file readers call it. A local file is opened by the machine that runs a task, as Spark does; all
other stores are reached through Spark. CSV options have Spark's names. An option that would mean another format is
refused before a run begins, because ignoring it would load wrong values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from omnigraph.api.load import NOT_READ_HERE, PIECE_BYTES, compression_of, local_pieces
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect, CsvReader
from omnigraph.errors import BadRequestError
from omnigraph.language.source import did_you_mean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField


LISTING_OPTIONS: Final = (
    "pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter", "basePath", "ignoreMissingFiles",
)  # fmt: skip
_LISTED: Final = ("path", "length", "modificationTime", "content")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as Spark lists it: its URI, size, time of change, and the values in the directories of its path."""

    uri: str
    size: int
    modified: float
    partition: tuple[Any, ...] = ()

    @property
    def path(self) -> str | None:
        """Where a task can open it; None for another store."""
        return "/" + self.uri.removeprefix("file:").lstrip("/") if self.uri.startswith("file:") else None

    @property
    def label(self) -> str:
        return self.path or self.uri

    @property
    def compression(self) -> str | None:
        return compression_of(self.uri)

    @property
    def is_readable(self) -> bool:
        """Whether `pieces` can give its content."""
        return self.path is not None and self.compression not in NOT_READ_HERE

    def pieces(self) -> Iterator[bytes]:
        """The content, some megabytes at a time, decompressed."""
        return self.raw_pieces() if self.compression is None else local_pieces(self.path or "")

    def raw_pieces(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The bytes of the file, or of a part of it, as they are."""
        left = (self.size if stop is None else stop) - start
        try:
            with open(self.path or "", "rb") as file:
                file.seek(start)
                while left > 0:
                    piece = file.read(min(PIECE_BYTES, left))
                    if not piece:
                        raise BadRequestError(f"{self.label}: it became shorter while it was read")
                    left -= len(piece)
                    yield piece
        except OSError as error:
            raise BadRequestError(f"can't read '{self.label}': {error.strerror or error}") from error

    def lines_of_rows(self, rows: Collection[int], dialect: CsvDialect | None) -> dict[int, int]:
        """The line that each of these rows begins on. Rows are records of a CSV file, else lines that are not blank.
        The file is read up to the last of them."""
        line_of: dict[int, int] = {}
        wanted, before = set(rows), 0
        for lines in _first_lines(self, dialect):
            here = [row for row in wanted if row <= before + len(lines)]
            line_of.update((row, int(lines[row - before - 1])) for row in here)
            wanted.difference_update(here)
            before += len(lines)
            if not wanted:
                break
        return line_of


@dataclass(frozen=True, slots=True)
class Listing:
    """Files in the order of their names, and the columns that directories such as `day=2026-01-01` add to them."""

    files: tuple[InputFile, ...]
    partition: tuple[StructField, ...] = ()


def list_files(spark: SparkSession, path: str, options: Mapping[str, str]) -> Listing:
    """The files that Spark would read for a path, directory or pattern. No content is read."""
    names = {name.lower() for name in LISTING_OPTIONS}
    reader = spark.read.format("binaryFile")
    frame = reader.options(**{name: value for name, value in options.items() if name.lower() in names}).load(path)
    partition = tuple(field for field in frame.schema.fields if field.name not in _LISTED)
    rows = frame.select(*_LISTED[:3], *(f"`{field.name}`" for field in partition)).collect()
    files = (InputFile(row[0], row[1], row[2].timestamp(), tuple(row[3:])) for row in rows)
    return Listing(tuple(sorted(files, key=lambda file: file.uri)), partition)


def _first_lines(file: InputFile, dialect: CsvDialect | None) -> Iterator[Sequence[int] | NDArray[np.int64]]:
    if dialect is not None:
        yield from CsvReader(file.pieces(), dialect).first_lines()
        return
    line, rest = 0, b""
    for piece in chain(file.pieces(), (b"\n",)):
        *whole, rest = (rest + piece).split(b"\n")
        yield [number for number, text in enumerate(whole, line + 1) if text.strip()]
        line += len(whole)


_DELIMITER: Final = ("sep", "delimiter")
_ENCODING: Final = ("encoding", "charset")
_OURS: Final = (*_DELIMITER, *_ENCODING, "quote", "header", "nullValue")
# Options of Spark that can have these values only.
_FIXED: Final[dict[str, tuple[str, ...]]] = {
    "multiLine": ("true", "false"),
    "enforceSchema": ("true", "false"),
    "inferSchema": ("false",),
    "mode": ("permissive",),
    "lineSep": ("\n", "\r\n", "\r"),
    "ignoreLeadingWhiteSpace": ("false",),
    "ignoreTrailingWhiteSpace": ("false",),
}
_REMEDIES: Final = {
    "inferSchema": "values are texts and are converted to the types of the properties; use `cast` where SQL needs it",
    "mode": "quality.on_error says what becomes of bad rows",
    "escape": "a quote within a quoted value is written twice",
    "ignoreLeadingWhiteSpace": "use `ltrim` in the mapping",
    "ignoreTrailingWhiteSpace": "use `rtrim` in the mapping",
    "lineSep": "a record ends with a line",
}


def csv_dialect(options: Mapping[str, str]) -> CsvDialect:
    """The dialect of the files of a source, or a BadRequestError for an option that can't be honoured."""
    spelled = {name.lower(): name for name in (*_OURS, *_FIXED, *LISTING_OPTIONS, "escape")}
    settings: dict[str, str] = {}
    for option, value in options.items():
        name = spelled.get(option.lower())
        if name is None:
            hint = did_you_mean(option, [*_OURS, *LISTING_OPTIONS]) or f"there are {', '.join(_OURS)}"
            raise BadRequestError(f"a CSV source has no option '{option}'; {hint}")
        if name in _FIXED and value.lower() not in _FIXED[name]:
            raise BadRequestError(f"a CSV source can't have {option}: {value!r}; {_REMEDIES[name]}")
        settings[name] = value
    quote = settings.get("quote", '"')
    if (escape := settings.get("escape", quote)) != quote:
        raise BadRequestError(f"a CSV source can't have escape: {escape!r}; {_REMEDIES['escape']}")
    if (header := settings.get("header", "true").lower()) not in ("true", "false"):
        raise BadRequestError(f"the CSV option header must be true or false, not '{header}'")
    dialect = CsvDialect(
        delimiter=_either(settings, _DELIMITER, ","),
        quote=None if quote in ("", "\0") else quote,
        header=header == "true",
        encoding=_either(settings, _ENCODING, "utf-8"),
        null=settings.get("nullValue"),
    )
    dialect.check()
    return dialect


def _either(options: Mapping[str, str], names: tuple[str, str], default: str) -> str:
    values = {options[name] for name in names if name in options}
    if len(values) > 1:
        raise BadRequestError(f"the CSV options {names[0]} and {names[1]} mean the same and differ")
    return next(iter(values), default).replace("\\t", "\t")
