"""Spark's daemon for Python workers, whose workers stand still when they have written data files and told nobody.

Each leaves a file with its process id as name in the directory of `OMNIGRAPH_TEST_HOLD`, and goes on when there is one
that is called `go`. Whoever wants to kill a task in the midst of its work does so meanwhile.
"""

from __future__ import annotations

import os
from functools import wraps
from pathlib import Path
from typing import Any

import lance.fragment
from pyspark.daemon import manager

from tests.support.waiting import wait_until

HOLD = "OMNIGRAPH_TEST_HOLD"


def hold_after(write: Any) -> Any:
    @wraps(write)
    def write_and_wait(*arguments: Any, **options: Any) -> Any:
        written = write(*arguments, **options)
        place = Path(os.environ[HOLD])
        (place / str(os.getpid())).touch()
        wait_until((place / "go").exists, "the task may go on")
        return written

    return write_and_wait


if __name__ == "__main__":
    lance.fragment.write_fragments = hold_after(lance.fragment.write_fragments)
    manager()
