"""Which graphs this process is exporting right now: whoever is about to delete one waits for that."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


class RunningExports:
    """Exports by the identity of their graph. Safe to share between threads."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def counted(self, graph_id: str) -> Iterator[None]:
        with self._lock:
            self._running[graph_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[graph_id] -= 1

    def __contains__(self, graph_id: object) -> bool:
        with self._lock:
            return self._running[str(graph_id)] > 0


RUNNING_EXPORTS: Final = RunningExports()
