"""What actors may have under way in a worker beside their writes: reads, streams, and feeds that wait.

Writes are counted over all workers (`admission.py`). What is counted here costs threads and memory of one process, so
each worker counts for itself and asks nobody. An actor that has enough is refused (429); where everybody together has
enough, the worker is full (503). Both say when to try again. Where no tokens are, everybody is the same actor: then
the limits of the worker apply, and no budgets of actors.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from omnigraph.errors import OmniGraphError, TooManyRequestsError, UnavailableError
from omnigraph.server.admission import Cap
from omnigraph.server.settings import ServerLimits

Key = TypeVar("Key")

RETRY_AFTER_SECONDS: Final = 2
"""Reads and streams end sooner than the writes that `admission.py` counts."""
_PATIENCE_SECONDS: Final = 0.25


def over_budget(actor: str, what: str, limit: int, flag: str) -> TooManyRequestsError:
    """The refusal of an actor that has enough."""
    return TooManyRequestsError(
        f"too many {what} of actor '{actor}': it has {limit} under way, which is its limit ({flag}); "
        "try again when some of them have ended",
        RETRY_AFTER_SECONDS,
    )


def full(what: str, limit: int, flag: str) -> UnavailableError:
    """The refusal of anybody by a worker that has enough."""
    return UnavailableError(
        f"{what}: {limit} are under way, which is the limit ({flag}); try again in a moment", RETRY_AFTER_SECONDS
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
        until = time.monotonic() + _PATIENCE_SECONDS
        with self._changed:
            while (refusal := self._no_room(actor, graph_id)) is not None:
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

    def _no_room(self, actor: str | None, graph_id: str | None) -> OmniGraphError | None:
        limits = self._limits
        if actor is not None and self._streams[actor] >= limits.actor_streams:
            return over_budget(actor, "streams", limits.actor_streams, "--actor-streams")
        if self._streams_of_all >= limits.streams:
            return full("no stream can be opened now", limits.streams, "--streams")
        if graph_id is None:
            return None
        share = all_but_a_quarter(limits.streams_per_graph)
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
        self._share = all_but_a_quarter(threads)
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


def all_but_a_quarter(places: int) -> int:
    """The part of some places that one actor can have, so that others find one: at least one, where there are any."""
    return places if places < 2 else places - max(1, places // 4)


def _add(counts: Counter[Key], key: Key | None, count: int) -> None:
    """Keep only what is not 0: actors come and go."""
    if key is not None:
        counts[key] += count
        if not counts[key]:
            del counts[key]
