"""Checks before a write becomes visible: the store keeps create-if-absent, the clocks agree, and the write is not too
old.

The log calls the guard. A gateway that ignores the condition of a create would lose commits silently. A writer whose
clock is days ahead would date its commits so, and reading `at` a moment and cleaning up by age would be wrong until the
others catch up. Files that no commit names yet, and pins, are safe from cleanup for the grace period, so a write that
took half of it refuses to publish.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from omnigraph.api.maintenance import GRACE
from omnigraph.errors import ClockSkewError, StorageError, StorageErrorKind, WriteExpiredError
from omnigraph.storage.identifiers import now_micros
from omnigraph.storage.objects import Objects

LONGEST_WRITE: Final = GRACE / 2


def running_seconds() -> float:
    """Seconds that also pass while the machine is suspended, where the system counts them."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_clock is None else time.clock_gettime(boot_clock)


@dataclass(frozen=True, slots=True)
class WriteAge:
    """When a write began, by two clocks: one stops while some machines sleep, the other can be turned."""

    running: float = field(default_factory=running_seconds)
    wall: float = field(default_factory=time.time)

    @property
    def seconds(self) -> float:
        return max(running_seconds() - self.running, time.time() - self.wall)

    def refuse_overdue(self) -> None:
        """Call right before a write becomes visible."""
        if self.seconds > LONGEST_WRITE.total_seconds():
            raise WriteExpiredError(self.seconds / 86_400, LONGEST_WRITE.total_seconds() / 86_400)


CLOCK_TOLERANCE: Final = timedelta(hours=1)
"""How far a writer's clock may be from the store's."""

CLOCK_OBJECT: Final = "__manifest/clock"


def probe_create_if_absent(objects: Objects, path: str) -> datetime:
    """The time by the store's clock. Raises where the store does not keep the condition of a create."""
    try:
        first, second = objects.create(path, b"1"), objects.create(path, b"2")
        stored = objects.get_with_time(path)
        if not first or second or stored is None or stored[0] != b"1":
            raise _untrustworthy(objects)
        return stored[1]
    finally:
        objects.delete(path)


class WriteGuard:
    """Refuses writes to a store that would lose them, or by a clock that would spoil history. One per open graph.

    The store is asked once, with three requests, beside the staging of the first write. How far the clocks are apart is
    then known without another request, also when this machine's clock is turned later: time that passes is counted by
    a clock that nobody turns.
    """

    def __init__(self, objects: Objects, workers: Executor) -> None:
        self._objects = objects
        self._workers = workers
        self._store_began: float | None = None
        """The time of the store when that other clock began to count."""
        self._asking: Future[float] | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A write begins: ask the store in the background. On a disk there is nothing that would be worth a thread."""
        if self._store_began is not None or self._objects.location.is_local:
            return
        with self._lock:
            if self._asking is None:
                self._asking = self._workers.submit(self._ask)

    def learn(self, store_time: datetime) -> float:
        """Take the store's time; its create-if-absent was found to work."""
        began = self._store_began = store_time.timestamp() - running_seconds()
        return began

    def check(self) -> None:
        """Call before a write becomes visible."""
        ours, theirs = self._clocks()
        if abs(ours - theirs) > CLOCK_TOLERANCE.total_seconds():
            # A machine that was stopped and went on did not count, and its clock was set.
            with self._lock:
                self._store_began = self._asking = None
            ours, theirs = self._clocks()
        if abs(ours - theirs) > CLOCK_TOLERANCE.total_seconds():
            here, there = (datetime.fromtimestamp(t, UTC).isoformat(timespec="seconds") for t in (ours, theirs))
            raise ClockSkewError(here, there, CLOCK_TOLERANCE.total_seconds())

    def _clocks(self) -> tuple[float, float]:
        """The time by this machine's clock, and by the store's."""
        if (began := self._store_began) is None:
            began = self._wait()
        return now_micros() / 1e6, began + running_seconds()

    def _wait(self) -> float:
        with self._lock:
            asking, self._asking = self._asking, None  # after a failure the next write asks again
        # All workers may be busy with writes that wait here.
        if asking is None or asking.cancel():
            return self._ask()
        try:
            # Used as it came: another write that finds the clocks apart forgets what was learned.
            return asking.result()
        except StorageError:
            return self._ask()  # it may have failed for a write of long ago

    def _ask(self) -> float:
        # Always the same object, so that nothing is left to delete. Its content says nothing.
        self._objects.put(CLOCK_OBJECT, b"")
        # On a disk the condition is kept by our own hands (`storage.local_disk`). Twice, because an init that failed
        # may have removed the object in between.
        if not self._objects.location.is_local and all(self._objects.create(CLOCK_OBJECT, b"") for _ in range(2)):
            raise _untrustworthy(self._objects)
        return self.learn(self._objects.modified_at(CLOCK_OBJECT))


def _untrustworthy(objects: Objects) -> StorageError:
    return StorageError(
        StorageErrorKind.CONFIGURATION,
        f"the store of '{objects.location.uri}' does not honour create-if-absent; a graph can't be safe there. "
        "Nothing was written: use a store, or a gateway, that keeps the condition `If-None-Match: *` of a PUT",
    )
