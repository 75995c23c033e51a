"""Fair locks for the writers of one branch inside one process.

Writers that share a process need not race on the store and redo each other's work: they wait for each other, first
come first served. Writers in other processes are met at the store, by the publish machine.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final


class _Waiter:
    """One thread in the queue of a lock."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.granted = threading.Event()


@dataclass(slots=True)
class Waits:
    """How often a lock was asked for, how often it was held by another, and the seconds spent waiting for it."""

    asked: int = 0
    waited: int = 0
    seconds: float = 0.0


class FairLocks:
    """One lock per key, granted in the order of asking. A plain lock would let a busy thread overtake the waiting
    ones for ever."""

    def __init__(self) -> None:
        self.waits = Waits()
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[_Waiter]] = {}

    @contextmanager
    def hold(self, key: Hashable) -> Iterator[None]:
        """Wait for the lock of a key and hold it for the block. A thread that holds it already must not ask again."""
        mine = _Waiter()
        with self._lock:
            queue = self._queues.setdefault(key, deque())
            if any(waiter.thread == mine.thread for waiter in queue):
                raise RuntimeError(f"this thread holds the lock of {key} and would wait for itself")
            queue.append(mine)
            self.waits.asked += 1
            if queue[0] is mine:
                mine.granted.set()
        try:
            if not mine.granted.is_set():
                self._wait(mine)
            yield
        finally:
            with self._lock:
                # Also right for a waiter that was interrupted before the lock was granted.
                queue.remove(mine)
                if queue:
                    queue[0].granted.set()
                else:
                    self._queues.pop(key, None)

    def _wait(self, mine: _Waiter) -> None:
        began = time.perf_counter()
        mine.granted.wait()
        # The one who holds the lock of one key meets here the holders of other keys.
        with self._lock:
            self.waits.waited += 1
            self.waits.seconds += time.perf_counter() - began

    def waiting(self, key: Hashable) -> int:
        """How many wait behind the one who holds the lock."""
        with self._lock:
            return max(0, len(self._queues.get(key, ())) - 1)


BRANCH_LOCKS: Final = FairLocks()
"""Shared by every handle of the process: two handles on one graph are still one process."""
