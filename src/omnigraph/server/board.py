"""A small file in memory that the workers of one server share: what each has in flight, and its connections.

It has one area per worker. Only the owner of an area writes to it and everybody reads all of them, with one call of the
kernel each, which puts them into one order. There is no lock, so nobody who was stopped or killed can hold one. A
worker that was killed is struck off by whoever started it.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from multiprocessing import reduction
from typing import Any, Final

SLOTS: Final = 1024
"""So many actors can have writes in flight in one worker at the same moment."""

_CONNECTIONS: Final = struct.Struct("=Q")
_HEAD: Final = 32
_SLOT: Final = struct.Struct("=16sQQ")
_AREA: Final = _HEAD + _SLOT.size * SLOTS


class Board:
    """The shared file. It can be given to a process that is being started."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._file = _memory_file()
        os.ftruncate(self._file, _AREA * workers)

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        # The number may soon belong to another file, which nobody must write to by mistake.
        file, self._file = self._file, -1
        os.close(file)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received_board, (reduction.DupFd(self._file), self.workers)

    def clear(self, worker: int) -> None:
        """Strike off a worker that is dead."""
        os.pwrite(self._file, bytes(_AREA), worker * _AREA)

    # Writes in flight, by the digest of an actor

    def post(self, worker: int, slot: int, digest: bytes, requests: int, volume: int) -> None:
        """Say what is in flight. Nothing in flight frees the slot."""
        entry = _SLOT.pack(digest if requests else bytes(16), requests, volume)
        os.pwrite(self._file, entry, worker * _AREA + _HEAD + slot * _SLOT.size)

    def in_flight(self, worker: int, digest: bytes) -> tuple[int, int]:
        """Requests and bytes of an actor in one worker, as of now."""
        slots = os.pread(self._file, _AREA - _HEAD, worker * _AREA + _HEAD)
        at = slots.find(digest)
        while at >= 0 and at % _SLOT.size:
            at = slots.find(digest, at + 1)
        if at < 0:
            return 0, 0
        _, requests, volume = _SLOT.unpack_from(slots, at)
        return requests, volume

    # Connections

    def post_connections(self, worker: int, count: int) -> None:
        os.pwrite(self._file, _CONNECTIONS.pack(count + 1), worker * _AREA)

    def fewest_connections_but(self, worker: int) -> int | None:
        """Of the other workers that serve, how many connections the one has that has the fewest."""
        others = (os.pread(self._file, _CONNECTIONS.size, w * _AREA) for w in range(self.workers) if w != worker)
        counts = [count - 1 for raw in others if (count := _CONNECTIONS.unpack(raw)[0])]
        return min(counts, default=None)


def _received_board(duplicate: Any, workers: int) -> Board:
    board = Board.__new__(Board)
    board.workers = workers
    board._file = duplicate.detach()
    return board


def _memory_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("omnigraph-board", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
