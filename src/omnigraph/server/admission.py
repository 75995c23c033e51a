"""Admission control: how much of the server one actor may have in flight, counted over all workers.

The board is a small file in memory with one area per worker. Only the owner of an area writes to it, everybody reads
all of them, and nobody ever waits for anybody: a worker adds what it is about to do and then looks at the sum. Whoever
finds the cap exceeded takes its part back. Of two that add at the same moment at least one sees both, because the
kernel puts the writes and reads of a file into one order; so no more than the cap is ever admitted. A worker that was
stopped still counts. One that was killed is struck off by whoever started it.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from multiprocessing import reduction
from typing import Any, Final

from omnigraph.errors import TooManyRequestsError

ANONYMOUS: Final = "anonymous"
RETRY_AFTER_SECONDS: Final = 60
BRANCH_OPERATION_BYTES: Final = 256
"""What creating, deleting or merging a branch counts for."""

_SLOT: Final = struct.Struct("=16sQQ")
_SLOTS: Final = 1024
_AREA: Final = _SLOT.size * _SLOTS
_FREE: Final = _SLOT.pack(bytes(16), 0, 0)
_ATTEMPTS: Final = 3


class Cap(StrEnum):
    REQUESTS = "requests"
    BYTES = "bytes"


class AdmissionBoard:
    """The shared file. It can be given to a process that is being started."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._file = _memory_file()
        os.ftruncate(self._file, _AREA * workers)

    def __enter__(self) -> AdmissionBoard:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received_board, (reduction.DupFd(self._file), self.workers)

    def post(self, worker: int, slot: int, entry: bytes) -> None:
        os.pwrite(self._file, entry, worker * _AREA + slot * _SLOT.size)

    def in_flight(self, worker: int, digest: bytes) -> tuple[int, int]:
        """Requests and bytes of an actor in one worker, as of now."""
        area = os.pread(self._file, _AREA, worker * _AREA)
        at = area.find(digest)
        while at % _SLOT.size and at >= 0:
            at = area.find(digest, at + 1)
        if at < 0:
            return 0, 0
        _, requests, volume = _SLOT.unpack_from(area, at)
        return requests, volume

    def clear(self, worker: int) -> None:
        """Strike off a worker that is dead."""
        os.pwrite(self._file, bytes(_AREA), worker * _AREA)


def _received_board(duplicate: Any, workers: int) -> AdmissionBoard:
    board = AdmissionBoard.__new__(AdmissionBoard)
    board.workers = workers
    board._file = duplicate.detach()
    return board


def _memory_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("omnigraph-admission", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@dataclass(slots=True)
class _Held:
    """What this worker has in flight for one actor."""

    slot: int
    digest: bytes
    requests: int = 0
    volume: int = 0

    def entry(self) -> bytes:
        return _SLOT.pack(self.digest, self.requests, self.volume)


class Admission:
    """The caps per actor, as one worker applies them. A cap of 0 refuses every write."""

    def __init__(
        self,
        board: AdmissionBoard,
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
        self._free = list(range(_SLOTS - 1, -1, -1))
        self._lock = threading.Lock()

    @contextmanager
    def admitted(self, actor: str | None, volume: int) -> Iterator[None]:
        """Count a write of about so many bytes while the block runs. Raises when it would be over a cap."""
        name = ANONYMOUS if actor is None else actor
        self._enter(name, volume)
        try:
            yield
        finally:
            with self._lock:
                self._add(name, -1, -volume)

    def _enter(self, actor: str, volume: int) -> None:
        # Two that meet at the last place both see too many and both step back. Looking again lets one of them in.
        for _ in range(_ATTEMPTS):
            with self._lock:
                if not self._add(actor, 1, volume):
                    raise self._refusal(Cap.REQUESTS, actor, f"{_SLOTS} actors have writes in flight already")
                requests, volumes = self._sum(actor)
                if requests <= self._requests_cap and volumes <= self._bytes_cap:
                    return
                self._add(actor, -1, -volume)
        if requests > self._requests_cap:
            raise self._refusal(Cap.REQUESTS, actor, f"in-flight count cap {self._requests_cap} reached")
        raise self._refusal(Cap.BYTES, actor, f"byte budget {self._bytes_cap} would be exceeded")

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
            held = self._held[actor] = _Held(self._free.pop(), digest)
        held.requests += requests
        held.volume += volume
        if held.requests:
            self._board.post(self._worker, held.slot, held.entry())
        else:
            self._board.post(self._worker, held.slot, _FREE)
            self._free.append(held.slot)
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
