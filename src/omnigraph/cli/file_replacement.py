"""Puts a complete file in the place of another one, or leaves that one alone.

A baseline and the cursor that belongs to it are only useful together: the cursor is printed after the file is durably
in place, and a writer that loses a race for the place must not print one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from omnigraph.errors import BadRequestError, ConflictError


def refuse_where_unsafe() -> None:
    """Locks and renames as they are needed here exist on POSIX only."""
    if sys.platform == "win32":
        raise BadRequestError("a baseline can't be installed safely on this platform; run this on Linux or macOS")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends well and vanishes when it does not."""
    with _locked(path), _temporary(path) as (file, temporary):
        yield file
        file.flush()
        os.fsync(file.fileno())
        installed = os.fstat(file.fileno()).st_ino
        os.replace(temporary, path)
        _sync_directory(path.parent)
        if path.stat().st_ino != installed:
            raise ConflictError(f"'{path}' was replaced by somebody else meanwhile; run the command again")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One installer at a time. The lock file stays: removing it would let two hold a lock of the same name."""
    import fcntl

    try:
        handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise BadRequestError(f"can't write to '{path.parent}': {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _temporary(path: Path) -> Iterator[tuple[BinaryIO, str]]:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, temporary
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
