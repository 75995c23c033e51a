"""The floor of a branch: writers in different processes that keep getting in each other's way take turns.

The log decides every race, so nothing here is needed for a right answer: whoever fails to get the floor goes on
without it, and a floor whose holder died is taken away. It is there because a lost race is work done for nothing, and
because whoever wins one begins the next ahead of everybody: without turns the slowest writer of a busy branch waits
until the others have nothing left to write.

The floor is one object, created if absent by who wants to write next and deleted afterwards. Only writers that know of
others ask for it: they lost a race a moment ago, or saw that somebody holds it. A writer alone pays nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from concurrent.futures import Executor
from types import TracebackType

from omnigraph.errors import StorageError
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.objects import Objects

REMEMBERED_SECONDS = 5.0
"""How long writers keep asking for the floor after the last sign of others."""

SHORTEST_PATIENCE, LONGEST_PATIENCE = 2.0, 20.0
"""How long others wait for one holder, in seconds: four times what it says an attempt takes, within these bounds."""

_ATTEMPTS_OF_A_HOLDER = 4
_UNKNOWN_PACE = 0.5
_LONGEST_POLL = 0.5


class Floor:
    """What this handle knows of other writers, branch by branch. Safe to share between threads."""

    def __init__(self, objects: Objects, workers: Executor) -> None:
        self.objects = objects
        self.workers = workers
        self._name = new_ulid().encode()
        self._numbers = itertools.count(1)
        self._contended_until: dict[str, float] = {}
        self._pace: dict[str, float] = {}
        self._lock = threading.Lock()

    def of(self, branch_id: str) -> FloorTurn:
        """One write's use of the floor. Costs nothing until it is taken."""
        return FloorTurn(self, branch_id)

    def look(self, branch_id: str) -> None:
        """See whether somebody else holds the floor: who always wins would not hear of others in any other way."""
        with contextlib.suppress(StorageError):
            ticket = self.objects.get(floor_path(branch_id))
            if ticket is not None and not ticket.startswith(self._name):
                self.saw_others(branch_id)

    def saw_others(self, branch_id: str, pace: float | None = None) -> None:
        """Somebody else writes to this branch. `pace`: how many seconds one of our own attempts takes."""
        with self._lock:
            self._contended_until[branch_id] = time.monotonic() + REMEMBERED_SECONDS
            if pace is not None:
                self._pace[branch_id] = pace

    def contended(self, branch_id: str) -> bool:
        with self._lock:
            return time.monotonic() < self._contended_until.get(branch_id, 0.0)

    def new_ticket(self, branch_id: str) -> bytes:
        """Like no other ticket; it says whose it is and how many seconds an attempt takes."""
        with self._lock:
            pace = self._pace.get(branch_id, _UNKNOWN_PACE)
        return b"%s %.3f %d" % (self._name, pace, next(self._numbers))


class FloorTurn:
    """The floor for as long as one write needs it; given back in the background when the write is over."""

    def __init__(self, floor: Floor, branch_id: str) -> None:
        self._floor = floor
        self._branch_id = branch_id
        self._path = floor_path(branch_id)
        self._held = False

    @property
    def contended(self) -> bool:
        """Whether others wrote a moment ago, so that asking for the floor first saves work."""
        return self._floor.contended(self._branch_id)

    def lost(self, seconds: float) -> None:
        """A race was lost, after an attempt that took this long."""
        self._floor.saw_others(self._branch_id, seconds)

    def take(self, give_up_at: float) -> None:
        """Wait until nobody else has the floor, and take it. In vain after `give_up_at` or when the store refuses."""
        if not self._held:
            self._held = True  # an error may hide that the ticket was written, and giving back too much does no harm
            with contextlib.suppress(StorageError):
                self._held = self._wait_for_it(self._floor.new_ticket(self._branch_id), give_up_at)

    def _wait_for_it(self, ticket: bytes, give_up_at: float) -> bool:
        objects = self._floor.objects
        holder, since = b"", 0.0
        while not objects.create(self._path, ticket):
            while (standing := objects.get(self._path)) is not None:
                now, pace = time.monotonic(), _pace_of(standing)
                if standing != holder:
                    holder, since = standing, now
                    self._floor.saw_others(self._branch_id)
                if now > give_up_at:
                    return False
                if now - since > min(max(_ATTEMPTS_OF_A_HOLDER * pace, SHORTEST_PATIENCE), LONGEST_PATIENCE):
                    objects.delete(self._path)
                    break
                time.sleep(min(random.uniform(0.05, 0.5) * pace, _LONGEST_POLL))
        return True

    def _give_back(self) -> None:
        with contextlib.suppress(StorageError):  # the others lose their patience and take it
            self._floor.objects.delete(self._path)

    def __enter__(self) -> FloorTurn:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._held:
            self._held = False
            try:
                self._floor.workers.submit(self._give_back)
            except RuntimeError:  # the handle is closing
                self._give_back()


def floor_path(branch_id: str) -> str:
    return f"__manifest/hints/{branch_id}.floor"


def _pace_of(ticket: bytes) -> float:
    """The seconds that a ticket names. Whatever else stands there is somebody's mistake and no reason to fail."""
    try:
        seconds = float(ticket.split()[1])
    except (IndexError, ValueError):
        return _UNKNOWN_PACE
    return min(max(0.001, seconds), LONGEST_PATIENCE)
