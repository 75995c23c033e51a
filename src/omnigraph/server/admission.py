"""Admission control: how much of the server one actor may have in flight, counted over all workers.

A worker adds what it is about to do to its area of the board and then looks at the sum. Whoever finds a cap exceeded
takes its part back. Of two that add at the same moment at least one sees both, so no more than the cap is ever
admitted. A worker that was stopped still counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Final

from omnigraph.errors import TooManyRequestsError
from omnigraph.server.board import SLOTS, Board

ANONYMOUS: Final = "anonymous"
RETRY_AFTER_SECONDS: Final = 60
_ATTEMPTS: Final = 3


class Cap(StrEnum):
    """What a request was refused for."""

    REQUESTS = "requests"
    BYTES = "bytes"
    READS = "reads"
    READ_THREADS = "read_threads"
    STREAMS = "streams"
    FEEDS = "feeds"


@dataclass(slots=True)
class _Held:
    """What this worker has in flight for one actor."""

    slot: int
    digest: bytes
    requests: int = 0
    volume: int = 0


class Admission:
    """The caps per actor, as one worker applies them. A cap of 0 refuses every write."""

    def __init__(
        self,
        board: Board,
        worker: int,
        requests: int,
        volume: int,
        refused: Callable[[Cap], None] = lambda cap: None,
    ) -> None:
        self._board = board
        self._refused = refused
        self._worker = worker
        self._requests_cap = requests
        self._bytes_cap = volume
        self._held: dict[str, _Held] = {}
        self._free = list(range(SLOTS))
        self._lock = threading.Lock()

    @contextmanager
    def admitted(self, actor: str | None, size: int) -> Iterator[None]:
        """Count a write of about so many bytes while the block runs, or raise TooManyRequestsError."""
        name = ANONYMOUS if actor is None else actor
        self._enter(name, size)
        try:
            yield
        finally:
            with self._lock:
                self._add(name, -1, -size)

    def _enter(self, actor: str, volume: int) -> None:
        # Two that meet at the last place both see too many and both step back. Looking again lets one of them in.
        for _ in range(_ATTEMPTS):
            with self._lock:
                if not self._add(actor, 1, volume):
                    raise self._refusal(Cap.REQUESTS, actor, f"{SLOTS} actors have writes in flight already")
                requests, volumes = self._sum(actor)
                if requests <= self._requests_cap and volumes <= self._bytes_cap:
                    return
                self._add(actor, -1, -volume)
        if requests > self._requests_cap:
            raise self._refusal(
                Cap.REQUESTS, actor, f"in-flight count cap {self._requests_cap} reached (--actor-requests)"
            )
        raise self._refusal(Cap.BYTES, actor, f"byte budget {self._bytes_cap} would be exceeded (--actor-bytes)")

    def _refusal(self, cap: Cap, actor: str, why: str) -> TooManyRequestsError:
        self._refused(cap)
        message = f"too many writes of actor '{actor}': {why}; try again when some of them have ended"
        return TooManyRequestsError(message, RETRY_AFTER_SECONDS)

    def _add(self, actor: str, requests: int, volume: int) -> bool:
        """Change what this worker has in flight, on the board as well. False when there is no place for the actor."""
        held = self._held.get(actor)
        if held is None:
            if not self._free:
                return False
            digest = blake2b(actor.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            held = self._held[actor] = _Held(heappop(self._free), digest)  # the lowest: others read up to it
        held.requests += requests
        held.volume += volume
        self._board.post(self._worker, held.slot, held.digest, held.requests, held.volume)
        if not held.requests:
            heappush(self._free, held.slot)
            del self._held[actor]
        return True

    def _sum(self, actor: str) -> tuple[int, int]:
        held = self._held[actor]
        requests, volume = held.requests, held.volume
        for worker in range(self._board.workers):
            if worker != self._worker:
                there = self._board.in_flight(worker, held.digest)
                requests, volume = requests + there[0], volume + there[1]
        return requests, volume
