"""The bytes of local files, some megabytes at a time, decompressed by the ending of their names.

The in-process loader and Spark's tasks read files here, so that both understand the same compressions.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

from omnigraph.errors import BadRequestError, NotFoundError

PIECE_BYTES: Final = 4 << 20
COMPRESSIONS: Final = (".gz", ".bz2", ".zst", ".deflate")
"""The endings of compressed files that can be read here."""
NOT_READ_HERE: Final = (".lz4", ".snappy")
"""The endings of compressed files that only Spark reads."""


def compression_of(path: str) -> str | None:
    """The ending that says how a file is compressed, also when it can't be read here."""
    return next((ending for ending in (*COMPRESSIONS, *NOT_READ_HERE) if path.lower().endswith(ending)), None)


def without_compression(path: str) -> str:
    """The name that the file has when it is unpacked."""
    return path[: len(path) - len(compression_of(path) or "")]


def local_pieces(path: str) -> Iterator[bytes]:
    """The content of a file."""
    compression = compression_of(path)
    if compression in NOT_READ_HERE:
        raise BadRequestError(
            f"'{path}' is compressed in a way that only Spark reads; use --engine spark, or unpack it"
        )
    with _file_errors(path):
        if compression == ".deflate":
            with open(path, "rb") as raw:
                yield from _inflate(raw)
            return
        with _open(path, compression) as file:
            while piece := file.read(PIECE_BYTES):
                yield piece


@contextmanager
def _file_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise NotFoundError(f"'{path}' does not exist") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadRequestError(f"can't read '{path}': {getattr(error, 'strerror', None) or error}") from error


def _open(path: str, compression: str | None) -> Any:
    match compression:
        case ".gz":
            return gzip.open(path, "rb")
        case ".bz2":
            return bz2.open(path, "rb")
        case ".zst":
            import pyarrow as pa

            return pa.input_stream(path, compression="zstd")
    return open(path, "rb")


def _inflate(file: IO[bytes]) -> Iterator[bytes]:
    inflate = zlib.decompressobj()
    while not inflate.eof and (piece := file.read(PIECE_BYTES)):
        while piece:
            yield inflate.decompress(piece, PIECE_BYTES)
            piece = inflate.unconsumed_tail
    if not inflate.eof:
        raise EOFError("the compressed data end too soon")
    if inflate.unused_data or file.read(1):
        raise EOFError("the file goes on behind the compressed data")
