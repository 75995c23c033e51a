"""The threads in which the engine works, a pool for each kind of work: a flood of one kind can't starve another.

A write waits for its turn in a thread, after its actor was asked for and counted (`Call.admitted`). If it waited for a
thread, nobody would know of it, and an actor could have any number of them under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from omnigraph.server.settings import ServerLimits

Result = TypeVar("Result")

_THREADS_PER_TURN: Final = 16


class Pools:
    """Reads, writes, and the chunks of streams."""

    def __init__(self, limits: ServerLimits) -> None:
        self._reads = ThreadPoolExecutor(limits.read_threads, "omnigraph-read")
        self._writes = ThreadPoolExecutor(limits.write_threads * _THREADS_PER_TURN, "omnigraph-write")
        self._streams = ThreadPoolExecutor(limits.read_threads, "omnigraph-stream")

    def read(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self._reads, work)

    def write(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self._writes, work)

    def stream(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self._streams, work)

    def close(self) -> None:
        """Wait for the work that has begun; what has not begun never will."""
        for pool in (self._reads, self._writes, self._streams):
            pool.shutdown(wait=True, cancel_futures=True)
