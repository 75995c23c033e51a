"""How work over a whole graph tells somebody who watches how far it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told as a step of the work goes on: what is being done, how much of it is done, and of how much."""


class Tally:
    """One step, counted from any thread; for nobody when nobody watches."""

    def __init__(self, progress: Progress | None, what: str, total: int) -> None:
        self._progress = progress
        self._what = what
        self._total = total
        self._done = 0
        self._lock = threading.Lock()
        self.add(0)

    def add(self, count: int = 1, what: str | None = None) -> None:
        """That so much more is done, and what it was."""
        if self._progress is not None:
            with self._lock:
                self._done += count
                self._progress(what or self._what, self._done, self._total)
