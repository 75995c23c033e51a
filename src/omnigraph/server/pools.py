"""The threads in which the engine works, a pool for each kind of work: a flood of one kind can't starve another.

A write waits for its turn in a thread, after its actor was asked for and counted (`Call.admitted`). If it waited for a
thread, nobody would know of it, and an actor could have any number of them under way. A read waits for its turn in the
event loop: actors get theirs one after the other, and none has all the threads. Chunks of streams never wait, because
there are as many threads as streams may be open (`budgets.py`). What the server itself looks after, such as its health
and the heads that feeds wait for, has threads of its own, so that it is answered however busy the others are.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias, TypeVar

from omnigraph.errors import OmniGraphError
from omnigraph.server.admission import Cap
from omnigraph.server.bodies import ClientGoneError
from omnigraph.server.budgets import all_but_a_quarter, full, over_budget
from omnigraph.server.settings import ServerLimits

Result = TypeVar("Result")
Waiting: TypeAlias = "asyncio.Future[None]"

_THREADS_PER_TURN: Final = 16
_LOOK_THREADS: Final = 4


class Pools:
    """Reads, writes, the chunks of streams, and looks at the server itself."""

    def __init__(self, limits: ServerLimits, refused: Callable[[Cap], None] = lambda cap: None) -> None:
        self._turns = Turns(limits, refused)
        self._reads = ThreadPoolExecutor(limits.read_threads, "omnigraph-read")
        self._writes = ThreadPoolExecutor(limits.write_threads * _THREADS_PER_TURN, "omnigraph-write")
        self._streams = ThreadPoolExecutor(limits.streams, "omnigraph-stream")
        self._looks = ThreadPoolExecutor(_LOOK_THREADS, "omnigraph-look")

    async def begin_read(
        self, actor: str | None, work: Callable[[], Result], gone: asyncio.Future[None] | None = None
    ) -> asyncio.Future[Result]:
        """Begin a read when it is the actor's turn. The turn ends with the thread, even if nobody waits for it."""
        await self._turns.take(actor, gone)
        running = asyncio.get_running_loop().run_in_executor(self._reads, work)
        running.add_done_callback(lambda _: self._turns.give_back(actor))
        return running

    async def read(self, actor: str | None, work: Callable[[], Result]) -> Result:
        return await (await self.begin_read(actor, work))

    def write(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self._writes, work)

    def stream(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self._streams, work)

    def look(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self._looks, work)

    def close(self) -> None:
        """Wait for the work that has begun; what has not begun never will."""
        for pool in (self._reads, self._writes, self._streams, self._looks):
            pool.shutdown(wait=True, cancel_futures=True)


class Turns:
    """Who reads next. Only for the event loop."""

    def __init__(self, limits: ServerLimits, refused: Callable[[Cap], None] = lambda cap: None) -> None:
        self._limits = limits
        self._refused = refused
        self._threads = limits.read_threads
        self._share = min(limits.actor_read_threads, all_but_a_quarter(limits.read_threads))
        self._reading: Counter[str | None] = Counter()
        self._waiting: OrderedDict[str | None, deque[Waiting]] = OrderedDict()

    async def take(self, actor: str | None, gone: asyncio.Future[None] | None = None) -> None:
        """Wait for a turn, for so long; raises when none comes, and when the client goes away."""
        turn: Waiting = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(actor, deque()).append(turn)
        self._next()
        if turn.done():
            return
        either: set[asyncio.Future[Any]] = {turn} if gone is None else {turn, gone}
        try:
            await asyncio.wait(either, timeout=self._limits.read_wait_seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._withdraw(actor, turn)
            raise
        if gone is not None and gone.done():
            self._withdraw(actor, turn)
            raise ClientGoneError
        if not turn.done():
            refusal = self._refusal(actor)
            self._withdraw(actor, turn)
            raise refusal

    def give_back(self, actor: str | None) -> None:
        self._reading[actor] -= 1
        if not self._reading[actor]:
            del self._reading[actor]
        self._next()

    def _next(self) -> None:
        """Give turns while there are threads: to the actor who waits longest for one of those who may have more."""
        while self._reading.total() < self._threads:
            may = [actor for actor in self._waiting if self._may_read(actor)]
            if not may:
                return
            actor = may[0]
            self._reading[actor] += 1
            self._waiting[actor].popleft().set_result(None)
            self._waiting.move_to_end(actor)
            self._forget_if_done(actor)

    def _may_read(self, actor: str | None) -> bool:
        return actor is None or self._reading[actor] < self._share

    def _withdraw(self, actor: str | None, turn: Waiting) -> None:
        """Nobody needs this turn any more; it may have come meanwhile."""
        if turn.done():
            self.give_back(actor)
            return
        self._waiting[actor].remove(turn)
        self._forget_if_done(actor)

    def _forget_if_done(self, actor: str | None) -> None:
        if not self._waiting[actor]:
            del self._waiting[actor]

    def _refusal(self, actor: str | None) -> OmniGraphError:
        self._refused(Cap.READ_THREADS)
        if actor is not None and not self._may_read(actor):
            flag = "--actor-read-threads, and at most three quarters of --read-threads"
            return over_budget(actor, "reads", self._share, flag)
        waited = f"no read can begin: this one has waited for {self._limits.read_wait_seconds:g} s"
        return full(waited, self._threads, "--read-threads")
