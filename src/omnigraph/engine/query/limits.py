"""What a running query may use: memory, time, and the patience of its caller.

Operators ask before they allocate and between steps; a query that would outgrow its bound ends with a clear error
and never with a killed process.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from omnigraph.errors import QueryCancelledError, ResourceLimitError

DEFAULT_MEMORY_BYTES: Final = 4 << 30


class Cancellation:
    """A caller's handle on a query that runs in another thread; may also carry a time limit in seconds."""

    def __init__(self, timeout: float | None = None) -> None:
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        if self._cancelled.is_set():
            raise QueryCancelledError()
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise QueryCancelledError(f"the query did not finish within {self._timeout:g} seconds")


class MemoryBudget:
    """Bytes a query may hold: columns it keeps until the end, and the largest single step on top of them."""

    def __init__(self, limit: int = DEFAULT_MEMORY_BYTES) -> None:
        self.limit = limit
        self.held = 0
        self.peak = 0

    def step(self, nbytes: int) -> None:
        """About to have this much at once, beside what is held."""
        needed = self.held + nbytes
        if needed > self.limit:
            raise ResourceLimitError(
                "query_memory_bytes",
                self.limit,
                needed,
                "narrow the match with pins or filters, add a limit, or raise the query's memory limit",
            )
        self.peak = max(self.peak, needed)

    def hold(self, nbytes: int) -> None:
        """About to keep this much until the query ends."""
        self.step(nbytes)
        self.held += nbytes

    def release(self, nbytes: int) -> None:
        self.held -= nbytes
