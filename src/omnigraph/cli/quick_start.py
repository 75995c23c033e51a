"""A quick start and a quick end for commands: what a process has no use for is left out of it.

pyarrow imports pandas as soon as it finds it, which takes longer than most commands; Lark imports regex, whose patterns
no grammar of ours uses; httpx imports a command line of its own. Imports make tens of thousands of objects and hardly
any garbage, so the collector looks less often in a process that ends soon; and at its end nothing is taken apart that
the system takes anyway. Only the command line may do this: it owns its process. Spark still gets its pandas.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NoReturn

_LEFT_OUT = frozenset({"pandas", "regex", "httpx._main"})
_OBJECTS_BEFORE_COLLECTING = 50_000


class _LeavingOut(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _LEFT_OUT and "pyspark" not in sys.modules:
            raise ModuleNotFoundError(f"{fullname} is left out of this process", name=fullname)
        return None


def leave_pandas_out() -> None:
    """Call before anything imports pyarrow."""
    sys.meta_path.insert(0, _LeavingOut())


def collect_rarely() -> None:
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)


def leave(code: int, *, wait: bool = True) -> NoReturn:
    """End the process as the interpreter would, up to where it would free every module: threads end, unless nobody
    waits for them, exit functions run, streams are flushed. It is how processes of `multiprocessing` end."""
    if wait:
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):  # the reader is gone, and nobody is left to tell
                stream.flush()
    os._exit(code)
