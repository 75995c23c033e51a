"""The files of a source: which there are, by Spark's own listing, and their bytes where a task can open them itself.

A local file is opened by whichever machine runs a task, as Spark does it. All other stores are Spark's to reach.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField

LISTING_OPTIONS: Final = (
    "pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter", "basePath", "ignoreMissingFiles",
)  # fmt: skip
_LISTED: Final = ("path", "length", "modificationTime", "content")
_PIECE_BYTES: Final = 4 << 20
_COMPRESSED: Final = (".gz", ".bz2", ".zst", ".deflate", ".lz4", ".snappy")
_READABLE: Final = (".gz", ".bz2", ".zst", ".deflate")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as Spark lists it: its URI, its bytes, when it changed, and what the directories of its path say."""

    uri: str
    size: int
    modified: float
    partition: tuple[Any, ...] = ()

    @property
    def path(self) -> str | None:
        """Where a task can open it; None for another store."""
        return "/" + self.uri.removeprefix("file:").lstrip("/") if self.uri.startswith("file:") else None

    @property
    def shown(self) -> str:
        return self.path or self.uri

    @property
    def compression(self) -> str | None:
        return next((suffix for suffix in _COMPRESSED if self.uri.endswith(suffix)), None)

    @property
    def is_readable(self) -> bool:
        """Whether `pieces` can give its content."""
        return self.path is not None and (self.compression is None or self.compression in _READABLE)

    def pieces(self) -> Iterator[bytes]:
        """The content, some megabytes at a time, decompressed."""
        if self.compression is None:
            yield from self.raw_pieces()
            return
        with self._errors():
            yield from _decompressed(self.path or "", self.compression)

    def raw_pieces(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The bytes of the file, or of a part of it, as they are."""
        left = (self.size if stop is None else stop) - start
        with self._errors(), open(self.path or "", "rb") as file:
            file.seek(start)
            while left > 0:
                piece = file.read(min(_PIECE_BYTES, left))
                if not piece:
                    raise BadRequestError(f"{self.shown}: it became shorter while it was read")
                left -= len(piece)
                yield piece

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadRequestError(f"can't read {self.shown}: {reason}") from error


@dataclass(frozen=True, slots=True)
class Listing:
    """Files in the order of their names, and the columns that directories such as `day=2026-01-01` add to them."""

    files: tuple[InputFile, ...]
    partition: tuple[StructField, ...] = ()


def listed(spark: SparkSession, path: str, options: Mapping[str, str]) -> Listing:
    """The files that Spark would read for a path, directory or pattern. No content is read."""
    names = {name.lower() for name in LISTING_OPTIONS}
    reader = spark.read.format("binaryFile")
    found = reader.options(**{name: value for name, value in options.items() if name.lower() in names}).load(path)
    partition = tuple(field for field in found.schema.fields if field.name not in _LISTED)
    rows = found.select(*_LISTED[:3], *(f"`{field.name}`" for field in partition)).collect()
    files = (InputFile(row[0], row[1], row[2].timestamp(), tuple(row[3:])) for row in rows)
    return Listing(tuple(sorted(files, key=lambda file: file.uri)), partition)


def _decompressed(path: str, compression: str) -> Iterator[bytes]:
    if compression == ".deflate":
        with open(path, "rb") as raw:
            yield from _inflated(raw)
        return
    with _opened(path, compression) as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _inflated(file: IO[bytes]) -> Iterator[bytes]:
    inflate = zlib.decompressobj()
    while piece := file.read(_PIECE_BYTES):
        while piece:
            yield inflate.decompress(piece, _PIECE_BYTES)
            piece = inflate.unconsumed_tail
    if not inflate.eof:
        raise EOFError("the compressed data end too soon")


def _opened(path: str, compression: str) -> Any:
    if compression == ".gz":
        return gzip.open(path, "rb")
    if compression == ".bz2":
        return bz2.open(path, "rb")
    import pyarrow as pa

    return pa.input_stream(path, compression="zstd")
