"""Fair turns for the writers of one branch inside one process.

Writers that share a process need not race on the store and redo each other's work: they take turns, first come first
served. Writers in other processes are met at the store, by the publish machine.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Turns:
    """FIFO mutual exclusion per key. A plain lock would let a busy thread overtake the waiting ones for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[threading.Event]] = {}

    @contextmanager
    def turn(self, key: Hashable) -> Iterator[None]:
        mine = threading.Event()
        with self._lock:
            queue = self._queues.setdefault(key, deque())
            queue.append(mine)
            if queue[0] is mine:
                mine.set()
        try:
            mine.wait()
            yield
        finally:
            with self._lock:
                # Also right for a waiter that was interrupted before its turn came.
                queue.remove(mine)
                if queue:
                    queue[0].set()
                else:
                    self._queues.pop(key, None)


PROCESS_TURNS = Turns()
"""Shared by every handle of the process: two handles on one graph are still one process."""
