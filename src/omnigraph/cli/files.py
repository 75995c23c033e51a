"""Reads and writes the source files a command names; every failure is a sentence with the path in it.

`-` is stdin wherever a file is read, once per command line.
"""

from __future__ import annotations

import sys
from pathlib import Path

from omnigraph.errors import BadRequestError, NotFoundError

STDIN = Path("-")
_read: object = None


def read_source(path: Path) -> str:
    """The text of a `.pg` or `.gq` file, without a byte order mark. Line ends are kept: the languages know both."""
    if path == STDIN:
        return read_stdin()
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFoundError(f"'{path}' does not exist") from None
    except OSError as error:
        raise BadRequestError(f"can't read '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadRequestError(f"'{path}' is not UTF-8 text (byte {error.start})") from error


def read_stdin() -> str:
    """All of stdin as text. Who reads it a second time would get nothing, and is told."""
    global _read
    if _read is sys.stdin:
        raise BadRequestError("stdin (-) can be given for one file only")
    _read = sys.stdin
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequestError(f"stdin is not UTF-8 text (byte {error.start})") from error


def write_source(path: Path, text: str) -> None:
    try:
        path.write_bytes(text.encode("utf-8"))
    except OSError as error:
        raise BadRequestError(f"can't write '{path}': {error.strerror}") from error
