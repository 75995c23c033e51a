"""The limits of a running query: memory, traversal work, time and cancellation.

Operators ask before they allocate and between steps, so a query that outgrows a limit ends with a clear error. A sort
or a table read is one step; a caller with a time limit therefore waits beside the work and leaves on time, and the
work ends at its next question.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from omnigraph.api.governance import DEFAULT_TRAVERSAL_WORK
from omnigraph.errors import QueryCancelledError, ResourceLimitError

DEFAULT_MEMORY_BYTES: Final = 4 << 30

Result = TypeVar("Result")


class Cancellation:
    """A caller's handle on a query that runs in another thread; may also carry a time limit in seconds."""

    def __init__(self, timeout: float | None = None) -> None:
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._cancelled = False
        self._news = threading.Condition()

    def cancel(self) -> None:
        with self._news:
            self._cancelled = True
            self._news.notify_all()

    def check(self) -> None:
        """Raise if the query is over, whether it has finished or not."""
        if self._cancelled:
            raise QueryCancelledError()
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise QueryCancelledError(f"the query did not finish within {self._timeout:g} seconds")

    def check_at_exit(self) -> None:
        """The same for work that every later query gains from: it goes on to its end, unless the process ends."""
        if not threading.main_thread().is_alive():
            self.check()

    def waiting_for(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, which runs in a thread of its own; the caller returns when the query is over."""
        self.check()
        outcome: Future[Result] = Future()

        def run() -> None:
            try:
                outcome.set_result(work())
            except BaseException as failure:
                outcome.set_exception(failure)
            with self._news:
                self._news.notify_all()

        threading.Thread(target=run, name="omnigraph-query").start()
        with self._news:
            while not outcome.done():
                self.check()  # before it waits: the news may have come while the thread was started
                self._news.wait(None if self._deadline is None else max(0.0, self._deadline - time.monotonic()))
        return outcome.result()


class MemoryBudget:
    """Bytes a query may hold: columns it keeps until the end, and the largest single step on top of them. Every large
    step begins with a question here, so this is also where a query learns that its time is up."""

    def __init__(self, limit: int = DEFAULT_MEMORY_BYTES, cancellation: Cancellation | None = None) -> None:
        self.limit = limit
        self._cancellation = cancellation
        self.held = 0

    @property
    def available(self) -> int:
        """What is left for a step."""
        return max(0, self.limit - self.held)

    def check(self) -> None:
        """Raise if the query is over."""
        if self._cancellation is not None:
            self._cancellation.check()

    def step(self, nbytes: int) -> None:
        """About to have this much at once, beside what is held."""
        if self._cancellation is not None:
            self._cancellation.check()
        needed = self.held + nbytes
        if needed > self.limit:
            remedy = "narrow the match with pins or filters, add a limit, or raise the query's memory limit"
            raise ResourceLimitError("query_memory_bytes", self.limit, needed, remedy)

    def hold(self, nbytes: int) -> None:
        """About to keep this much until the query ends."""
        self.step(nbytes)
        self.held += nbytes

    def release(self, nbytes: int) -> None:
        self.held -= nbytes


class TraversalWork:
    """How much a query may traverse: the adjacency entries that it looks at and the steps of the paths that it binds,
    summed over all its operators."""

    def __init__(self, limit: int = DEFAULT_TRAVERSAL_WORK) -> None:
        self.limit = limit
        self.spent = 0

    def require(self, steps: int) -> None:
        """Raise if so much more would be too much."""
        needed = self.spent + steps
        if needed > self.limit:
            remedy = "narrow the match with pins, filters or fewer hops, or raise the traversal work of the query"
            raise ResourceLimitError("traversal_work", self.limit, needed, remedy)

    def spend(self, steps: int) -> None:
        """About to do so much."""
        self.require(steps)
        self.spent += steps
