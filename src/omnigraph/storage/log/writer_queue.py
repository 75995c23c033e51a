"""Queues of a branch's writers: fair locks inside a process, tickets in the store between processes.

The publish step calls both. The log decides every race, so no result depends on a queue: a writer that can't use it
publishes without it, and those behind a dead writer remove its ticket. Queues exist because a lost race is wasted work,
and because the winner of one race starts the next ahead of the others, so the slowest writer of a busy branch would
starve. Between processes a queue is a folder of empty objects, one ticket per waiting write, which sort by the time
they were drawn; the first holds the queue. A writer draws one only after several lost races or after seeing another
ticket, so a writer alone makes no request for it.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import deque
from collections.abc import Hashable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from omnigraph.errors import StorageError
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.identifiers import new_ulid, quoted_branch
from omnigraph.storage.objects import Objects

REMEMBERED_SECONDS = 5.0
"""How long writers keep queueing after the last sign of others."""

SHORTEST_LEASE, LONGEST_LEASE = 2.0, 20.0
"""The lease of the first ticket: a few times as long as it says an attempt takes, in these bounds."""

_ATTEMPTS_OF_A_HOLDER = 4
_UNKNOWN_PACE = 0.5
_SHORTEST_POLL = 0.002
_REMEMBERED_BRANCHES = 1_024


class WriterQueue:
    """Other writers that this handle knows of, branch by branch. Safe to share between threads."""

    def __init__(self, objects: Objects, workers: Executor) -> None:
        self.objects = objects
        self.workers = workers
        self._name = new_ulid()
        self.contended_until: RecentlyUsed[str, float] = RecentlyUsed(_REMEMBERED_BRANCHES)
        self.pace: RecentlyUsed[str, float] = RecentlyUsed(_REMEMBERED_BRANCHES)

    def look(self, branch: str) -> None:
        """See whether somebody else waits: a writer that always wins hears of others in no other way."""
        with contextlib.suppress(StorageError):
            if any(not ticket.endswith(self._name) for ticket in self.tickets(branch)):
                self.saw_others(branch)

    def tickets(self, branch: str) -> list[str]:
        return [stored.path for stored in self.objects.below(queue_folder(branch))]

    def saw_others(self, branch: str) -> None:
        self.contended_until[branch] = time.monotonic() + REMEMBERED_SECONDS

    def new_ticket(self, branch: str) -> str:
        """A ticket says when it was drawn, how many milliseconds an attempt takes, and whose it is."""
        pace = self.pace.get(branch)
        pace = _UNKNOWN_PACE if pace is None else pace
        return f"{queue_folder(branch)}/{new_ulid()}-{pace * 1_000:.0f}-{self._name}"


class QueueTicket:
    """One write's use of the queue, which costs nothing until it waits. Its ticket is removed in the background when
    the write is over."""

    def __init__(self, queue: WriterQueue, branch: str) -> None:
        self._queue = queue
        self._branch = branch
        self._ticket: str | None = None

    @property
    def is_contended(self) -> bool:
        """Whether others wrote a moment ago, so that waiting first saves work."""
        until = self._queue.contended_until.get(self._branch)
        return until is not None and time.monotonic() < until

    def saw_others(self) -> None:
        """Somebody else writes to this branch, again and again."""
        self._queue.saw_others(self._branch)

    def record_attempt(self, seconds: float) -> None:
        """An attempt is over, won or lost, after this long."""
        self._queue.pace[self._branch] = seconds

    def wait(self, give_up_at: float) -> None:
        """Wait until every earlier ticket is gone; return without having waited it out after `give_up_at`, or when the
        store refuses.

        A write that took longer than its lease has lost its ticket, and draws another with a better estimate.
        """
        with contextlib.suppress(StorageError):
            if self._ticket is None or not self._queue.objects.exists(self._ticket):
                self._ticket = self._queue.new_ticket(self._branch)
                self._wait_behind_others(self._ticket, give_up_at)

    def _wait_behind_others(self, ticket: str, give_up_at: float) -> None:
        objects = self._queue.objects
        objects.put(ticket, b"")
        holder, overdue_at, was_listed = "", 0.0, True
        while (now := time.monotonic()) < give_up_at:
            queue = self._queue.tickets(self._branch)
            if ticket not in queue:
                if not was_listed:  # a store whose lists lag behind has no queues
                    return
                was_listed = False
                objects.put(ticket, b"")  # removed together with an expired one ahead of it
                continue
            was_listed = True
            ahead = queue[: queue.index(ticket)]
            if not ahead:
                return
            self.saw_others()
            if ahead[0] != holder:
                lease = min(max(_ATTEMPTS_OF_A_HOLDER * _pace_of(ahead[0]), SHORTEST_LEASE), LONGEST_LEASE)
                holder, overdue_at = ahead[0], now + lease
            if now >= overdue_at:
                # The holder died, and perhaps others with it. A waiter that lives puts its ticket back.
                objects.delete_all(ahead)
            elif len(ahead) == 1:
                # Look whether the holder removes its ticket.
                while time.monotonic() < min(overdue_at, give_up_at):
                    time.sleep(max(_pace_of(holder) * random.uniform(0.2, 0.4), _SHORTEST_POLL))
                    if not objects.exists(holder):
                        return
            else:
                # Those ahead go first, so a waiter far behind has no need to look often.
                expected = sum(map(_pace_of, ahead)) * random.uniform(0.5, 0.8)
                time.sleep(max(min(expected, overdue_at - now), _SHORTEST_POLL))

    def _remove(self, ticket: str) -> None:
        with contextlib.suppress(StorageError):  # it expires
            self._queue.objects.delete(ticket)

    def __enter__(self) -> QueueTicket:
        return self

    def __exit__(self, *_: object) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            try:
                self._queue.workers.submit(self._remove, ticket)
            except RuntimeError:  # the handle is closing
                self._remove(ticket)


def queue_folder(branch: str) -> str:
    return f"__manifest/queues/{quoted_branch(branch)}"


def _pace_of(ticket: str) -> float:
    """The seconds that a ticket names. Any other object there is ignored."""
    parts = ticket.rsplit("-", 2)
    milliseconds = int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else 1_000 * _UNKNOWN_PACE
    return min(milliseconds / 1_000, LONGEST_LEASE)


@dataclass(slots=True)
class Waits:
    """How often a lock was asked for, how often it was held by another, and the seconds spent waiting for it."""

    asked: int = 0
    waited: int = 0
    seconds: float = 0.0


class FairLocks:
    """One lock per key, granted in the order of asking. A plain lock would let a busy thread always overtake the
    waiting ones."""

    def __init__(self) -> None:
        self.waits = Waits()
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[tuple[int, threading.Event]]] = {}

    @contextmanager
    def hold(self, key: Hashable) -> Iterator[None]:
        """Wait for the lock of a key and hold it for the block. A thread that holds it already must not ask again."""
        thread, granted = threading.get_ident(), threading.Event()
        mine = (thread, granted)
        with self._lock:
            queue = self._queues.setdefault(key, deque())
            if any(waiting == thread for waiting, _ in queue):
                raise RuntimeError(f"this thread holds the lock of {key} and would wait for itself")
            queue.append(mine)
            self.waits.asked += 1
            if queue[0] is mine:
                granted.set()
        try:
            if not granted.is_set():
                began = time.perf_counter()
                granted.wait()
                # The holder of the lock of one key meets here the holders of other keys.
                with self._lock:
                    self.waits.waited += 1
                    self.waits.seconds += time.perf_counter() - began
            yield
        finally:
            with self._lock:
                # Also right for a waiter that was interrupted before the lock was granted.
                queue.remove(mine)
                if queue:
                    queue[0][1].set()
                else:
                    self._queues.pop(key, None)


BRANCH_LOCKS: Final = FairLocks()
"""Shared by every handle of the process: two handles on one graph are still one process."""
