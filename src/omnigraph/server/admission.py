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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from omnigraph.errors import OmniGraphError, TooManyRequestsError, UnavailableError
from omnigraph.server.http.request import ClientGoneError
from omnigraph.server.settings import ServerLimits

ANONYMOUS: Final = "anonymous"
RETRY_AFTER_SECONDS: Final = 60


class Cap(StrEnum):
    """What a request was refused for."""

    REQUESTS = "requests"
    BYTES = "bytes"
    READS = "reads"
    READ_THREADS = "read_threads"
    STREAMS = "streams"
    FEEDS = "feeds"


class Admission:
    """How many writes, and how many bytes of them, one actor may have under way in this worker. A cap of 0 refuses
    every write. Safe to share between threads."""

    def __init__(self, requests: int, volume: int, refused: Callable[[Cap], None] = lambda cap: None) -> None:
        self._refused = refused
        self._requests_cap = requests
        self._bytes_cap = volume
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def admit(self, actor: str | None, size: int) -> Iterator[None]:
        """Count a write of about so many bytes while the block runs, or raise TooManyRequestsError."""
        name = ANONYMOUS if actor is None else actor
        with self._lock:
            if self._requests[name] >= self._requests_cap:
                reason = f"in-flight count cap {self._requests_cap} reached (--actor-requests)"
                raise self._refusal(Cap.REQUESTS, name, reason)
            if self._bytes[name] + size > self._bytes_cap:
                raise self._refusal(Cap.BYTES, name, f"byte budget {self._bytes_cap} would be exceeded (--actor-bytes)")
            _add(self._requests, name, 1)
            _add(self._bytes, name, size)
        try:
            yield
        finally:
            with self._lock:
                _add(self._requests, name, -1)
                _add(self._bytes, name, -size)

    def _refusal(self, cap: Cap, actor: str, reason: str) -> TooManyRequestsError:
        self._refused(cap)
        message = f"too many writes of actor '{actor}': {reason}; try again when some of them have ended"
        return TooManyRequestsError(message, RETRY_AFTER_SECONDS)


Key = TypeVar("Key")

BUSY_RETRY_SECONDS: Final = 2
"""Reads and streams end sooner than the writes that `Admission` counts."""
_WAIT_SECONDS: Final = 0.25


def over_budget(actor: str, what: str, limit: int, flag: str) -> TooManyRequestsError:
    """The refusal of an actor that has enough."""
    return TooManyRequestsError(
        f"too many {what} of actor '{actor}': it has {limit} under way, which is its limit ({flag}); "
        "try again when some of them have ended",
        BUSY_RETRY_SECONDS,
    )


def full(what: str, limit: int, flag: str) -> UnavailableError:
    """The refusal of anybody by a worker that has enough."""
    return UnavailableError(
        f"{what}: {limit} are under way, which is the limit ({flag}); try again in a moment", BUSY_RETRY_SECONDS
    )


class Budgets:
    """The counts of one worker. Safe to share between its threads."""

    def __init__(self, limits: ServerLimits, refused: Callable[[Cap], None] = lambda cap: None) -> None:
        self._limits = limits
        self._refused = refused
        self._reads: Counter[str] = Counter()
        self._feeds: Counter[str] = Counter()
        self._feeds_of_all = 0
        self._streams: Counter[str] = Counter()
        self._streams_of_graph: Counter[str] = Counter()
        self._streams_of_actor_and_graph: Counter[tuple[str, str]] = Counter()
        self._streams_of_all = 0
        self._changed = threading.Condition()

    @contextmanager
    def reading(self, actor: str | None) -> Iterator[None]:
        """Count a read until the last byte of its answer is sent."""
        with self._changed:
            if actor is not None and self._reads[actor] >= self._limits.actor_reads:
                self._refused(Cap.READS)
                raise over_budget(actor, "reads", self._limits.actor_reads, "--actor-reads")
            _add(self._reads, actor, 1)
        try:
            yield
        finally:
            with self._changed:
                _add(self._reads, actor, -1)

    @contextmanager
    def following(self, actor: str | None) -> Iterator[None]:
        """Count a poll that waits, or a stream of events."""
        limits = self._limits
        with self._changed:
            if actor is not None and self._feeds[actor] >= limits.actor_feeds:
                self._refused(Cap.FEEDS)
                raise over_budget(actor, "feeds", limits.actor_feeds, "--actor-feeds")
            if self._feeds_of_all >= limits.feeds:
                self._refused(Cap.FEEDS)
                raise full("no feed can be followed now", limits.feeds, "--feeds")
            _add(self._feeds, actor, 1)
            self._feeds_of_all += 1
        try:
            yield
        finally:
            with self._changed:
                _add(self._feeds, actor, -1)
                self._feeds_of_all -= 1

    def open_stream(self, actor: str | None, graph_id: str | None = None) -> Callable[[], None]:
        """Count a stream until what is returned is called, once. One that finds no room waits a moment for another one
        that ends. The bytes of a blob are a stream that takes no slot of its graph."""
        until = time.monotonic() + _WAIT_SECONDS
        with self._changed:
            while (refusal := self._stream_refusal(actor, graph_id)) is not None:
                if not self._changed.wait(until - time.monotonic()):
                    self._refused(Cap.STREAMS)
                    raise refusal
            self._add_stream(actor, graph_id, 1)
        return lambda: self._close_stream(actor, graph_id)

    def open_streams(self) -> int:
        with self._changed:
            return self._streams_of_all

    def feeds(self) -> int:
        with self._changed:
            return self._feeds_of_all

    def _close_stream(self, actor: str | None, graph_id: str | None) -> None:
        with self._changed:
            self._add_stream(actor, graph_id, -1)
            self._changed.notify_all()

    def _add_stream(self, actor: str | None, graph_id: str | None, count: int) -> None:
        self._streams_of_all += count
        _add(self._streams, actor, count)
        _add(self._streams_of_graph, graph_id, count)
        if actor is not None and graph_id is not None:
            _add(self._streams_of_actor_and_graph, (actor, graph_id), count)

    def _stream_refusal(self, actor: str | None, graph_id: str | None) -> OmniGraphError | None:
        limits = self._limits
        if actor is not None and self._streams[actor] >= limits.actor_streams:
            return over_budget(actor, "streams", limits.actor_streams, "--actor-streams")
        if self._streams_of_all >= limits.streams:
            return full("no stream can be opened now", limits.streams, "--streams")
        if graph_id is None:
            return None
        share = three_quarters(limits.streams_per_graph)
        if actor is not None and self._streams_of_actor_and_graph[actor, graph_id] >= share:
            flag = f"three quarters of --streams-per-graph {limits.streams_per_graph}"
            return over_budget(actor, f"streams of graph '{graph_id}'", share, flag)
        if self._streams_of_graph[graph_id] >= limits.streams_per_graph:
            what = f"no stream of graph '{graph_id}' can be opened now"
            return full(what, limits.streams_per_graph, "--streams-per-graph")
        return None


class WriteTurns:
    """Which of the writes that were admitted run now. An actor whose writes take long leaves turns for those of others,
    however many it may have under way."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._share = three_quarters(threads)
        self._writing: Counter[str | None] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, actor: str | None) -> Iterator[None]:
        """Wait in this thread until the write may run."""
        most = self._threads if actor is None else self._share
        with self._changed:
            self._changed.wait_for(lambda: self._writing.total() < self._threads and self._writing[actor] < most)
            self._writing[actor] += 1
        try:
            yield
        finally:
            with self._changed:
                self._writing[actor] -= 1
                if not self._writing[actor]:
                    del self._writing[actor]
                self._changed.notify_all()


def three_quarters(places: int) -> int:
    """The part of some places that one actor can have, so that others find one: at least one, where there are any."""
    return places if places < 2 else places - max(1, places // 4)


def _add(counts: Counter[Key], key: Key | None, count: int) -> None:
    """Keep only what is not 0: actors come and go."""
    if key is not None:
        counts[key] += count
        if not counts[key]:
            del counts[key]


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
    """Who reads next. Only for the event loop."""

    def __init__(self, limits: ServerLimits, refused: Callable[[Cap], None] = lambda cap: None) -> None:
        self._limits = limits
        self._refused = refused
        self._threads = limits.read_threads
        self._share = min(limits.actor_read_threads, three_quarters(limits.read_threads))
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
        """Give up a turn that is not needed any more; it may have come meanwhile."""
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
