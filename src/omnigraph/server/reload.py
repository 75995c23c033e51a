"""The serving set that a worker uses, and earlier ones for as long as requests still use them.

A request holds the serving set it began with until its last byte, so a set is replaced between two requests and never
within one. Sets share open graphs; a graph is closed when no set that has it is served or held. `Follower` watches a
cluster in a thread and builds the next set beside the one that is served. If that fails, the older set stays, the
failure is logged and shown by `/readyz` and the metrics, and the follower tries again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from omnigraph.errors import OmniGraphError

if TYPE_CHECKING:
    from omnigraph.server.catalog import Served, Serving


class HeldServing:
    """One serving set, with a count of the requests that use it. The lock of all sets guards the count."""

    def __init__(self, serving: Serving, sets: ServingSets) -> None:
        self.serving = serving
        self._sets = sets
        self._holders = 0
        self._callbacks: list[Callable[[], None]] = []

    def hold(self) -> HeldServing:
        """Keep its graphs open once more, for work that may outlive the request."""
        with self._sets._lock:
            self._holders += 1
        return self

    def release(self) -> None:
        with self._sets._lock:
            self._holders -= 1
            unused = [] if self._holders else self._sets._drop_unused()
        _close_aside(unused)

    def when_replaced(self, callback: Callable[[], None]) -> None:
        """Call this when another set is served, or now if one is already. The call may come from any thread."""
        with self._sets._lock:
            if self is self._sets._current:
                self._callbacks.append(callback)
                return
        callback()


class ServingSets:
    """The serving sets of a worker. Safe to share between threads."""

    def __init__(self, serving: Serving) -> None:
        self._lock = threading.Lock()
        self._current = HeldServing(serving, self)
        self._past: list[HeldServing] = []
        self.unserved_revision: int | None = None
        """A newer revision that could not be served, while an older one still is."""

    @property
    def serving(self) -> Serving:
        """The set for a request that begins now."""
        return self._current.serving

    def hold(self) -> HeldServing:
        """The current set for one request, which has to release it."""
        with self._lock:
            self._current._holders += 1
            return self._current

    def replace(self, serving: Serving) -> None:
        """Serve this set from now on. Graphs that only earlier sets have are closed when no request uses them."""
        with self._lock:
            before, self._current = self._current, HeldServing(serving, self)
            self.unserved_revision = None
            self._past.append(before)
            callbacks, before._callbacks = before._callbacks, []
            old, new = before.serving.graphs, serving.graphs
            same_graphs = old.keys() == new.keys() and all(served is new[name] for name, served in old.items())
            if same_graphs and before.serving.state == serving.state:  # a revision may only record observations
                self._current._callbacks, callbacks = callbacks, []  # nothing changes for clients that wait
            unused = self._drop_unused()
        for call in callbacks:
            call()
        _close_aside(unused)

    def close(self) -> None:
        """Close everything, also sets that are still in use."""
        with self._lock:
            current, past, self._past = self._current.serving, self._past, []
        current.close()
        close_graphs(_distinct(past).values(), but=current.graphs.values())

    def _drop_unused(self) -> list[Served]:
        """Drop the sets that no request uses; returns the graphs that no other set has. The lock is held."""
        over = [state for state in self._past if not state._holders]
        self._past = [state for state in self._past if state._holders]
        kept = _distinct([self._current, *self._past])
        return [served for opened, served in _distinct(over).items() if opened not in kept]


def close_graphs(graphs: Iterable[Served], but: Iterable[Served] = ()) -> None:
    """Close graphs, except those that others still serve."""
    kept = {id(served.opened) for served in but}
    for served in graphs:
        if id(served.opened) not in kept:
            served.graph.close()


def _distinct(states: Iterable[HeldServing]) -> dict[int, Served]:
    """The open graphs of some sets, each once."""
    return {id(served.opened): served for state in states for served in state.serving.graphs.values()}


def _close_aside(graphs: list[Served]) -> None:
    """Close graphs in a thread: that waits for their own threads, and a thread that serves requests must not."""
    if graphs:
        threading.Thread(target=close_graphs, args=(graphs,), name="omnigraph-close", daemon=True).start()


LOOK_EVERY_SECONDS: Final = 1.0
FIRST_DELAY: Final = 2.0
LONGEST_DELAY: Final = 60.0

_LEDGER: Final = "the ledger"

NewerThan: TypeAlias = Callable[[int], int | None]
"""The newest revision if it is newer than that one."""
Renew: TypeAlias = "Callable[[Serving, int], Serving]"
"""The serving set of a revision, built beside the current one. Raises when it can't be served."""

logger: Final = logging.getLogger("omnigraph.server")


class Follower(threading.Thread):
    """Follows one cluster for one worker. `taken` and `failed` are called after every attempt."""

    def __init__(
        self,
        states: ServingSets,
        newer_than: NewerThan,
        renew: Renew,
        taken: Callable[[Serving], None],
        failed: Callable[[], None],
        every: float = LOOK_EVERY_SECONDS,
    ) -> None:
        super().__init__(name="omnigraph-follow", daemon=True)
        self._states = states
        self._newer_than = newer_than
        self._renew = renew
        self._taken = taken
        self._failed = failed
        self._every = every
        self._stopping = threading.Event()
        self._failures = 0
        self._retry_at = 0.0
        self._complained_about = ""

    def stop(self) -> None:
        """Take over nothing from now on. `join` waits for a set that is being built, which then is not served."""
        self._stopping.set()

    def run(self) -> None:
        # Workers that were started together should not all look at the same moment.
        while not self._stopping.wait(self._every * random.uniform(0.8, 1.2)):
            try:
                served, unserved = self._states.serving.revision or 0, self._states.unserved_revision
                revision = self._newer_than(unserved or served)
                if revision is None and unserved is not None and time.monotonic() >= self._retry_at:
                    revision = unserved
            except Exception as error:
                self._complain(_LEDGER, "the ledger can't be read", error)
            else:
                if self._complained_about == _LEDGER:
                    self._complained_about = ""
                if revision is not None:
                    self._follow(revision)

    def _follow(self, revision: int) -> None:
        before = self._states.serving
        try:
            serving = self._renew(before, revision)
        except Exception as error:
            self._failures = self._failures + 1 if self._states.unserved_revision == revision else 1
            self._retry_at = time.monotonic() + min(LONGEST_DELAY, FIRST_DELAY * 2 ** (self._failures - 1))
            self._states.unserved_revision = revision
            self._failed()
            message = f"revision {revision} can't be served, revision {before.revision} still is"
            self._complain(f"{revision}: {error}", message, error)
            return
        if self._stopping.is_set():
            close_graphs(serving.graphs.values(), but=before.graphs.values())
            return
        self._states.replace(serving)
        self._complained_about = ""
        self._taken(serving)
        logger.info("revision %d is served: %d graphs", revision, len(serving.graphs))

    def _complain(self, about: str, message: str, error: Exception) -> None:
        """Log a problem once, however often it is found."""
        if about == self._complained_about:
            return
        self._complained_about = about
        if isinstance(error, OmniGraphError):
            logger.error("%s: %s", message, error)
        else:
            # The text of something unforeseen may hold anything.
            logger.error("%s: %s", message, type(error).__name__, exc_info=error)
