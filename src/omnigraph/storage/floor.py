"""The floor of a branch: writers in different processes that keep getting in each other's way take turns.

The log decides every race, so nothing here is needed for a right answer: whoever fails to get the floor goes on
without it, and whoever died in the queue is put out of it. It is there because a lost race is work done for nothing,
and because who wins one begins the next ahead of everybody: without turns the slowest writer of a busy branch waits
until the others have nothing left to write.

The queue is a folder of empty objects, one per waiting write, named so that they sort by the time they came. The first
has the floor. Only writers that know of others stand in it: they lost several races, or saw that somebody waits. A
writer alone pays nothing.
"""

from __future__ import annotations

import contextlib
import random
import time
from concurrent.futures import Executor
from types import TracebackType

from omnigraph.errors import StorageError
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.identifiers import new_ulid, quoted_branch
from omnigraph.storage.objects import Objects

REMEMBERED_SECONDS = 5.0
"""How long writers keep queueing after the last sign of others."""

SHORTEST_PATIENCE, LONGEST_PATIENCE = 2.0, 20.0
"""How long others wait for whoever has the floor: a few times as long as it says an attempt takes, in these bounds."""

_ATTEMPTS_OF_A_HOLDER = 4
_UNKNOWN_PACE = 0.5
_SHORTEST_POLL = 0.002
_REMEMBERED_BRANCHES = 1_024


class Floor:
    """What this handle knows of other writers, branch by branch. Safe to share between threads."""

    def __init__(self, objects: Objects, workers: Executor) -> None:
        self.objects = objects
        self.workers = workers
        self._name = new_ulid()
        self._contended_until: RecentlyUsed[str, float] = RecentlyUsed(_REMEMBERED_BRANCHES)
        self._pace: RecentlyUsed[str, float] = RecentlyUsed(_REMEMBERED_BRANCHES)

    def of(self, branch: str) -> FloorTurn:
        """One write's use of the floor. Costs nothing until it is taken."""
        return FloorTurn(self, branch)

    def look(self, branch: str) -> None:
        """See whether somebody else waits: who always wins would not hear of others in any other way."""
        with contextlib.suppress(StorageError):
            if any(not ticket.endswith(self._name) for ticket in self.queue(branch)):
                self.saw_others(branch)

    def queue(self, branch: str) -> list[str]:
        return [stored.path for stored in self.objects.below(queue_folder(branch))]

    def saw_others(self, branch: str) -> None:
        self._contended_until[branch] = time.monotonic() + REMEMBERED_SECONDS

    def contended(self, branch: str) -> bool:
        until = self._contended_until.get(branch)
        return until is not None and time.monotonic() < until

    def tried(self, branch: str, seconds: float) -> None:
        self._pace[branch] = seconds

    def new_ticket(self, branch: str) -> str:
        """A ticket says when it was drawn, how many milliseconds an attempt takes, and whose it is."""
        known = self._pace.get(branch)
        pace = _UNKNOWN_PACE if known is None else known
        return f"{queue_folder(branch)}/{new_ulid()}-{pace * 1_000:.0f}-{self._name}"


class FloorTurn:
    """The floor for as long as one write needs it; given back in the background when the write is over."""

    def __init__(self, floor: Floor, branch: str) -> None:
        self._floor = floor
        self._branch = branch
        self._ticket: str | None = None

    @property
    def contended(self) -> bool:
        """Whether others wrote a moment ago, so that taking the floor first saves work."""
        return self._floor.contended(self._branch)

    def saw_others(self) -> None:
        """Somebody else writes to this branch, again and again."""
        self._floor.saw_others(self._branch)

    def tried(self, seconds: float) -> None:
        """An attempt is over, won or lost, after this long."""
        self._floor.tried(self._branch, seconds)

    def take(self, give_up_at: float) -> None:
        """Wait until everybody who came first is done. In vain after `give_up_at`, or when the store refuses.

        Whoever took longer than the others would wait has lost its place, and queues again with a better estimate.
        """
        with contextlib.suppress(StorageError):
            if self._ticket is None or not self._floor.objects.exists(self._ticket):
                self._ticket = self._floor.new_ticket(self._branch)
                self._stand_in_queue(self._ticket, give_up_at)

    def _stand_in_queue(self, ticket: str, give_up_at: float) -> None:
        objects = self._floor.objects
        objects.put(ticket, b"")
        holder, overdue_at, was_listed = "", 0.0, True
        while (now := time.monotonic()) < give_up_at:
            queue = self._floor.queue(self._branch)
            if ticket not in queue:
                if not was_listed:  # a store whose lists lag behind has no queues
                    return
                was_listed = False
                objects.put(ticket, b"")  # somebody lost patience, though not with us
                continue
            was_listed = True
            ahead = queue[: queue.index(ticket)]
            if not ahead:
                return
            self.saw_others()
            if ahead[0] != holder:
                holder, overdue_at = ahead[0], now + _patience_with(ahead[0])
            if now >= overdue_at:
                # The holder died, and perhaps others with it. Whoever lives comes back in the same place.
                objects.delete_all(ahead)
            elif len(ahead) == 1:
                if self._left_before(holder, min(overdue_at, give_up_at)):
                    return
            else:
                # Nobody's turn comes before those ahead had theirs: who is far behind has no need to look often.
                expected = sum(map(_pace_of, ahead)) * random.uniform(0.5, 0.8)
                time.sleep(max(min(expected, overdue_at - now), _SHORTEST_POLL))

    def _left_before(self, holder: str, deadline: float) -> bool:
        """Whether the holder gives the floor back before the deadline."""
        while time.monotonic() < deadline:
            time.sleep(max(_pace_of(holder) * random.uniform(0.2, 0.4), _SHORTEST_POLL))
            if not self._floor.objects.exists(holder):
                return True
        return False

    def _give_back(self, ticket: str) -> None:
        with contextlib.suppress(StorageError):  # the others lose their patience with it
            self._floor.objects.delete(ticket)

    def __enter__(self) -> FloorTurn:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            try:
                self._floor.workers.submit(self._give_back, ticket)
            except RuntimeError:  # the handle is closing
                self._give_back(ticket)


def queue_folder(branch: str) -> str:
    return f"__manifest/queues/{quoted_branch(branch)}"


def _pace_of(ticket: str) -> float:
    """The seconds that a ticket names. Whatever else lies there is somebody's mistake and no reason to fail."""
    parts = ticket.rsplit("-", 2)
    milliseconds = int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else 1_000 * _UNKNOWN_PACE
    return min(milliseconds / 1_000, LONGEST_PATIENCE)


def _patience_with(ticket: str) -> float:
    return min(max(_ATTEMPTS_OF_A_HOLDER * _pace_of(ticket), SHORTEST_PATIENCE), LONGEST_PATIENCE)
