"""Reads and writes the source files a command names; every failure is a sentence with the path in it."""

from __future__ import annotations

import sys
from pathlib import Path

from omnigraph.errors import BadRequestError, NotFoundError


def read_source(path: Path) -> str:
    """The text of a `.pg` or `.gq` file, without a byte order mark. Line ends are kept: the languages know both."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFoundError(f"'{path}' does not exist") from None
    except OSError as error:
        raise BadRequestError(f"can't read '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadRequestError(f"'{path}' is not UTF-8 text (byte {error.start})") from error


def read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequestError(f"stdin is not UTF-8 text (byte {error.start})") from error


def write_source(path: Path, text: str) -> None:
    try:
        path.write_bytes(text.encode("utf-8"))
    except OSError as error:
        raise BadRequestError(f"can't write '{path}': {error.strerror}") from error
