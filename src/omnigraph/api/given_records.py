"""Graph records as a Python program gives them: text, bytes, pieces of them, or a path.

The engine loads them, and a client sends them to a server; both ask here what an input is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from omnigraph.errors import BadRequestError


def require_records(data: Any) -> None:
    """Refuse what holds no graph records. A dictionary is a row of something, and only a type says of what."""
    if isinstance(data, str) and "\n" not in data and not data.lstrip().startswith("{") and data.strip():
        raise BadRequestError(
            f"'{data}' is not a graph record; if it is the path of a file of rows, name their type with type=; "
            "if it is a file of graph records, give a Path"
        )
    if not isinstance(data, str | bytes) and (hasattr(data, "__arrow_c_stream__") or hasattr(data, "to_arrow")):
        raise BadRequestError("a frame holds rows of one type: name it with type=")
    if isinstance(data, list | tuple) and data and isinstance(data[0], Mapping):
        raise _dictionaries()
    if isinstance(data, Mapping) or not isinstance(data, str | bytes | os.PathLike | Iterable):
        raise BadRequestError(f"can't load graph records from '{type(data).__name__}'; give text, bytes or a path")


def encoded(piece: Any) -> bytes:
    """A piece of the records as bytes."""
    if isinstance(piece, Mapping):
        raise _dictionaries()
    if not isinstance(piece, str | bytes | bytearray | memoryview):
        raise BadRequestError(f"can't load graph records from '{type(piece).__name__}'; give text, bytes or a path")
    try:
        return piece.encode() if isinstance(piece, str) else bytes(piece)
    except UnicodeEncodeError as error:
        raise BadRequestError(f"the input is not valid Unicode: {error.reason}") from None


def _dictionaries() -> BadRequestError:
    return BadRequestError("dictionaries are rows of one type: name it with type=")


def file_pieces(path: str | os.PathLike[str], piece_bytes: int) -> Iterator[bytes]:
    """The content of a local file as it is."""
    try:
        with open(path, "rb") as file:
            yield from iter(lambda: file.read(piece_bytes), b"")
    except (OSError, ValueError) as error:
        raise BadRequestError(f"can't read '{os.fspath(path)}': {getattr(error, 'strerror', None) or error}") from None
