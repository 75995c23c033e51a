"""How much of a worker one actor may use: its writes, reads, streams and feeds, and the threads that they run in.

Handlers ask here before they work. Every worker counts for itself and asks no other process. An actor that has enough
under way is refused (429); where all actors together have enough, the worker is full (503). Both say when to try again.
On a server without tokens everybody is the same actor: then only the limits of the worker apply.

A pool for each kind of work keeps a flood of one kind from starving another. A write waits for its turn in a thread,
after it was counted for its actor; an actor could otherwise have any number of writes queued. A read waits for its turn
in the event loop: actors get theirs in turn, and none has all the threads. Chunks of streams never wait, because there
are as many threads as streams may be open. Health, metrics and the heads that feeds wait for have threads of their own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple, Never, TypeAlias, TypeVar

from omnigraph.errors import OmniGraphError, TooManyRequestsError, UnavailableError
from omnigraph.server.http.request import ClientGoneError
from omnigraph.server.settings import ServerLimits

ANONYMOUS: Final = "anonymous"
RETRY_AFTER_SECONDS: Final = 60


class Cap(StrEnum):
    """The reason of a refusal, as a label of the metrics."""

    REQUESTS = "requests"
    BYTES = "bytes"
    READS = "reads"
    READ_THREADS = "read_threads"
    STREAMS = "streams"
    FEEDS = "feeds"


BUSY_RETRY_SECONDS: Final = 2
"""Reads and streams end sooner than writes."""
_WAIT_SECONDS: Final = 0.25

Key = TypeVar("Key")
Result = TypeVar("Result")
Waiting: TypeAlias = "asyncio.Future[None]"


def over_budget(actor: str, what: str, limit: int, flag: str) -> TooManyRequestsError:
    """The refusal of an actor that has enough."""
    return TooManyRequestsError(
        f"too many {what} of actor '{actor}': it has {limit} under way, which is its limit ({flag}); "
        "try again when some of them have ended",
        BUSY_RETRY_SECONDS,
    )


def full(what: str, limit: int, flag: str) -> UnavailableError:
    """The refusal of anybody by a worker that has enough."""
    message = f"{what}: {limit} are under way, which is the limit ({flag}); try again in a moment"
    return UnavailableError(message, BUSY_RETRY_SECONDS)


class _Budget(NamedTuple):
    """A count of something under way, and the amount that has to fit below its limit."""

    key: tuple[str | None, ...]
    limit: int
    refusal: Callable[[], OmniGraphError]
    amount: int = 1


def _of_actor(cap: Cap, actor: str | None, what: str, limit: int, flag: str, graph_id: str = "") -> list[_Budget]:
    """The budget of one actor. A caller without a name has none."""
    if actor is None:
        return []
    return [_Budget((cap, actor, graph_id), limit, partial(over_budget, actor, what, limit, flag))]


def _of_worker(cap: Cap, what: str, limit: int, flag: str, graph_id: str = "") -> _Budget:
    return _Budget((cap, None, graph_id), limit, partial(full, what, limit, flag))


class Budgets:
    """The counts of one worker. Safe to share between its threads. A limit of 0 refuses everything."""

    def __init__(self, limits: ServerLimits, count_refusal: Callable[[str], None] = lambda cap: None) -> None:
        self._limits = limits
        self._count_refusal = count_refusal
        self._counts: Counter[tuple[str | None, ...]] = Counter()
        self._turns: Counter[str | None] = Counter()
        self._changed = threading.Condition()

    def admit(self, actor: str | None, size: int) -> AbstractContextManager[None]:
        """Count a write of about so many bytes while the block runs, or raise `TooManyRequestsError`."""
        name, limits = ANONYMOUS if actor is None else actor, self._limits

        def refusal(reason: str) -> TooManyRequestsError:
            message = f"too many writes of actor '{name}': {reason}; try again when some of them have ended"
            return TooManyRequestsError(message, RETRY_AFTER_SECONDS)

        count = f"in-flight count cap {limits.actor_requests} reached (--actor-requests)"
        volume = f"byte budget {limits.actor_bytes} would be exceeded (--actor-bytes)"
        return self._hold(
            _Budget((Cap.REQUESTS, name), limits.actor_requests, partial(refusal, count)),
            _Budget((Cap.BYTES, name), limits.actor_bytes, partial(refusal, volume), size),
        )

    @contextmanager
    def turn(self, actor: str | None) -> Iterator[None]:
        """Wait in this thread until an admitted write may run. An actor whose writes take long leaves turns for those
        of others, however many it may have under way."""
        threads, turns = self._limits.write_threads, self._turns
        most = threads if actor is None else three_quarters(threads)
        with self._changed:
            self._changed.wait_for(lambda: turns.total() < threads and turns[actor] < most)
            turns[actor] += 1
        try:
            yield
        finally:
            with self._changed:
                _subtract(turns, actor, 1)
                self._changed.notify_all()

    def read(self, actor: str | None) -> AbstractContextManager[None]:
        """Count a read until the last byte of its response is sent."""
        budgets = _of_actor(Cap.READS, actor, "reads", self._limits.actor_reads, "--actor-reads")
        return self._hold(*budgets) if budgets else nullcontext()

    def follow(self, actor: str | None) -> AbstractContextManager[None]:
        """Count a poll that waits, or a stream of events."""
        limits = self._limits
        return self._hold(
            *_of_actor(Cap.FEEDS, actor, "feeds", limits.actor_feeds, "--actor-feeds"),
            _of_worker(Cap.FEEDS, "no feed can be followed now", limits.feeds, "--feeds"),
        )

    def open_stream(self, actor: str | None, graph_id: str | None = None) -> Callable[[], None]:
        """Count a stream until the function that is returned is called, once. A stream that finds no room waits a
        moment for another one to end. The bytes of a blob are a stream that takes no slot of its graph."""
        limits = self._limits
        budgets = [
            *_of_actor(Cap.STREAMS, actor, "streams", limits.actor_streams, "--actor-streams"),
            _of_worker(Cap.STREAMS, "no stream can be opened now", limits.streams, "--streams"),
        ]
        if graph_id is not None:
            most = limits.streams_per_graph
            share, flag = three_quarters(most), f"three quarters of --streams-per-graph {most}"
            budgets += _of_actor(Cap.STREAMS, actor, f"streams of graph '{graph_id}'", share, flag, graph_id)
            what = f"no stream of graph '{graph_id}' can be opened now"
            budgets.append(_of_worker(Cap.STREAMS, what, most, "--streams-per-graph", graph_id))
        self._reserve(budgets, _WAIT_SECONDS)
        return lambda: self._release(budgets)

    @contextmanager
    def _hold(self, *budgets: _Budget) -> Iterator[None]:
        self._reserve(budgets)
        try:
            yield
        finally:
            self._release(budgets)

    def _reserve(self, budgets: Sequence[_Budget], wait_seconds: float = 0.0) -> None:
        """Count in all of these budgets, or raise the refusal of the first that is used up, after a wait."""
        until = time.monotonic() + wait_seconds
        with self._changed:
            while used_up := [each for each in budgets if self._counts[each.key] + each.amount > each.limit]:
                if not self._changed.wait(until - time.monotonic()):
                    self._count_refusal(str(used_up[0].key[0]))
                    raise used_up[0].refusal()
            for each in budgets:
                self._counts[each.key] += each.amount

    def _release(self, budgets: Sequence[_Budget]) -> None:
        with self._changed:
            for each in budgets:
                _subtract(self._counts, each.key, each.amount)
            self._changed.notify_all()


def _subtract(counts: Counter[Key], key: Key, amount: int) -> None:
    """Keep only what is not 0: actors come and go."""
    counts[key] -= amount
    if not counts[key]:
        del counts[key]


def three_quarters(places: int) -> int:
    """The part of some places that one actor can have, so that others find one: at least one, where there are any."""
    return places if places < 2 else places - max(1, places // 4)


_THREADS_PER_TURN: Final = 16
_LOOK_THREADS: Final = 4


class Pools:
    """Reads, writes, the chunks of streams, and looks at the server itself."""

    def __init__(self, limits: ServerLimits, count_refusal: Callable[[str], None]) -> None:
        self._turns = Turns(limits, count_refusal)
        self._reads = ThreadPoolExecutor(limits.read_threads, "omnigraph-read")
        self._writes = ThreadPoolExecutor(limits.write_threads * _THREADS_PER_TURN, "omnigraph-write")
        self._streams = ThreadPoolExecutor(limits.streams, "omnigraph-stream")
        self._looks = ThreadPoolExecutor(_LOOK_THREADS, "omnigraph-look")

    async def begin_read(
        self, actor: str | None, work: Callable[[], Result], gone: Callable[[], asyncio.Future[None]] | None = None
    ) -> asyncio.Future[Result]:
        """Begin a read when it is the actor's turn. The turn ends with the thread, even if no request waits for it."""
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
    """The order of reads. Only for the event loop."""

    def __init__(self, limits: ServerLimits, count_refusal: Callable[[str], None] = lambda cap: None) -> None:
        self._limits = limits
        self._count_refusal = count_refusal
        self._threads = limits.read_threads
        self._share = min(limits.actor_read_threads, three_quarters(limits.read_threads))
        self._reading: Counter[str | None] = Counter()
        self._waiting: OrderedDict[str | None, deque[Waiting]] = OrderedDict()

    async def take(self, actor: str | None, gone: Callable[[], asyncio.Future[None]] | None = None) -> None:
        """Wait for a turn, for so long; raises when none comes, and when the client goes away, as `gone` says."""
        if not self._waiting and self._reading.total() < self._threads and self._may_read(actor):
            self._reading[actor] += 1
            return
        turn: Waiting = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(actor, deque()).append(turn)
        self._next()
        if turn.done():
            return
        try:
            either: tuple[asyncio.Future[Any], ...] = (turn,) if gone is None else (turn, gone())
            await asyncio.wait(either, timeout=self._limits.read_wait_seconds, return_when=asyncio.FIRST_COMPLETED)
            if gone is not None and gone().done():
                raise ClientGoneError
            if not turn.done():
                self._refuse(actor)
        except BaseException:
            if turn.done():  # it came meanwhile
                self.give_back(actor)
            else:
                self._waiting[actor].remove(turn)
                self._forget_if_done(actor)
            raise

    def _refuse(self, actor: str | None) -> Never:
        self._count_refusal(Cap.READ_THREADS)
        if actor is not None and not self._may_read(actor):
            flag = "--actor-read-threads, and at most three quarters of --read-threads"
            raise over_budget(actor, "reads", self._share, flag)
        waited = f"no read can begin: this one has waited for {self._limits.read_wait_seconds:g} s"
        raise full(waited, self._threads, "--read-threads")

    def give_back(self, actor: str | None) -> None:
        _subtract(self._reading, actor, 1)
        self._next()

    def _next(self) -> None:
        """Give turns while there are threads: to the actor who waits longest for one of those who may have more."""
        while self._waiting and self._reading.total() < self._threads:
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

    def _forget_if_done(self, actor: str | None) -> None:
        if not self._waiting[actor]:
            del self._waiting[actor]
