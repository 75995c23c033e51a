"""How a process of the command line or the server starts and ends.

A command is often shorter than the work around it: pyarrow imports pandas where it is installed (0.4 s of CPU), and
Python frees every module at its end (0.1 s). Both are left out here, by documented means, and only in a process that
one of our entry points has taken: a program that imports `omnigraph`, or calls `cli.main.run`, keeps its own ways. What
every process gains from is that nobody looks for garbage while Lance is imported.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

_NEEDED_BY_PANDAS: Final = "dateutil"
_CONVERTS: Final = "pyarrow.dataset"
"""The first module of pyarrow that converts a value, by being imported."""


class Process:
    """This process. Nothing here has an effect before `take`."""

    def __init__(self) -> None:
        self._is_ours = False
        self._exit_code: int | None = None

    def take(self) -> None:
        """Say that the process belongs to OmniGraph. Call it before anything converts Python values to Arrow."""
        self._is_ours = True

    def import_arrow(self) -> None:
        """Import pyarrow as if pandas were not installed.

        pyarrow tries to import pandas once, with the first value that it converts, to recognise its types; pandas
        refuses to be imported without dateutil. Both can be imported as usual afterwards, and `to_pandas` tries again.
        `omnigraph.storage.tables` calls it, so that a command which reads no table imports no pyarrow at all.
        """
        if not self._is_ours or _CONVERTS in sys.modules or _NEEDED_BY_PANDAS in sys.modules:
            return
        modules = cast("dict[str, Any]", sys.modules)
        modules[_NEEDED_BY_PANDAS] = None
        try:
            import pyarrow.dataset  # noqa: F401
        finally:
            del modules[_NEEDED_BY_PANDAS]

    def end_quickly(self) -> None:
        """Leave the modules to the system at the end. Call it first of all: exit functions run in the reverse of their
        order and after all threads have ended, so this one is the last."""
        atexit.register(self._end)

    def exit(self, code: int) -> None:
        """End with this code, as `sys.exit` does."""
        self._exit_code = code
        sys.exit(code)

    def exit_at_once(self, code: int) -> None:
        """End with this code now: no exit function runs, and no thread is waited for."""
        self._exit_code = code
        self._end()

    def _end(self) -> None:
        if self._exit_code is None:  # somebody else ended the process, with a code of their own
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # the reader is gone, or the stream is closed
                stream.flush()
        os._exit(self._exit_code)


PROCESS: Final = Process()


@contextmanager
def without_collections() -> Iterator[None]:
    """Meanwhile Python looks for no cyclic garbage. For what makes many objects that stay, and takes milliseconds: an
    import of Lance and pandas takes a quarter of its time for searches that find nothing, and later ones go through all
    that these two have made."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
