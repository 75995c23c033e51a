"""Other work at every request of an operation: what a stalled process would find when it goes on.

An operation is run again and again on a fresh graph; the n-th time it is stopped before its n-th request to the store,
and other handles do their whole work meanwhile. With `dies` it never goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from omnigraph import Graph


class DiedError(BaseException):
    """The process was killed here. No code of ours catches it."""


class Preemption:
    """An interceptor that runs `meanwhile` once, before the n-th request that passes it."""

    def __init__(self, nth: int, meanwhile: Callable[[], None], *, dies: bool = False) -> None:
        self.nth = nth
        self.meanwhile = meanwhile
        self.dies = dies
        self.seen = 0
        self.happened = False
        self._dead = False
        self._lock = threading.Lock()

    def before(self, kind: str, path: str) -> None:
        with self._lock:
            self.seen += 1
            now = self.seen == self.nth
            if self._dead:
                raise DiedError
            self._dead = now and self.dies
        if now:
            self.happened = True
            self.meanwhile()
            if self.dies:
                raise DiedError

    def after(self, kind: str, path: str) -> None:
        """Requests are stopped before they reach the store, not behind it."""


@contextmanager
def preempted(graph: Graph, nth: int, meanwhile: Callable[[], None], *, dies: bool = False) -> Iterator[Preemption]:
    preemption = Preemption(nth, meanwhile, dies=dies)
    graph._workspace.root.objects.interceptor = preemption
    try:
        yield preemption
    finally:
        if not (dies and preemption.happened):  # the dead make no requests, whatever their code still does
            graph._workspace.root.objects.interceptor = None
