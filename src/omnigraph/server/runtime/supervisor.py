"""The workers behind one socket: started together, replaced when they die, ended together.

The supervisor opens no graph. It holds the socket, so clients that connect while a worker is being replaced are taken
by the others, or wait for the new one if there are none; the admission board, so that what a dead worker had in flight
is struck off; and one end of a pipe to each worker, which closes with the supervisor however that dies.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from omnigraph.errors import OmniGraphError
from omnigraph.server.board import Board
from omnigraph.server.runtime import logs, metrics
from omnigraph.server.runtime.workers import (
    REFUSED,
    SIGNALS,
    Assignment,
    BindError,
    Ending,
    Go,
    Moved,
    Program,
    Ready,
    Refused,
    announce,
    bound,
    complain,
    listen,
    url_of,
    work,
)
from omnigraph.server.settings import Settings

FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 30.0
SOUND_AFTER: Final = 60.0
"""A worker that served so many seconds was sound: if it dies, the next one is started without delay."""

_GRAPHS_SHOWN: Final = 20

_SPAWN: Final = multiprocessing.get_context("spawn")

logger: Final = logging.getLogger("omnigraph.server")


def serve(settings: Settings, program: Program) -> int:
    """Run a server until it is told to end; returns its exit code."""
    logs.configure()
    try:
        with (
            bound(settings.host, settings.port) as listener,
            Board(settings.workers) as board,
            metrics.shared_directory() as directory,
            _signals() as asked_to_end,
        ):
            return _Supervisor(settings, program, listener, board, directory, asked_to_end).run()
    except OmniGraphError as error:
        complain(str(error))
        return REFUSED


@dataclass(slots=True)
class _Seat:
    """The place of one worker, and who sits in it."""

    number: int
    process: SpawnProcess | None = None
    pipe: Connection | None = None
    started: float = 0.0
    ready: bool = False
    failures: int = 0
    next_start: float | None = None


@dataclass(slots=True)
class _Supervisor:
    settings: Settings
    program: Program
    listener: socket.socket
    board: Board
    directory: str
    asked_to_end: socket.socket
    revision: int | None = None
    graphs: tuple[str, ...] = ()
    ending: bool = False
    seats: list[_Seat] = field(default_factory=list)

    def run(self) -> int:
        self.seats = [_Seat(number) for number in range(self.settings.workers)]
        # The first worker finds out what is served; the others are pinned to it.
        refusal = self._started(self.seats[:1]) or self._started(self.seats[1:]) or self._opened()
        while refusal is None and not self.ending:
            self._tick()
        self._end_all()
        if refusal is None:
            return 0
        complain(refusal)
        return REFUSED

    def _started(self, seats: list[_Seat]) -> str | None:
        """Start some workers together and wait until all of them are ready; the reason why one is not."""
        if self.ending:
            return None
        for seat in seats:
            self._start(seat)
        return self._await_ready(seats)

    def _opened(self) -> str | None:
        """Take connections; the reason why that can't be."""
        if self.ending:
            return None
        try:
            listen(self.listener)
        except BindError as error:
            return str(error)
        announce(self.listener)
        for seat in self.seats:
            self._let_go(seat)
        logger.info("serving at %s (workers: %d): %s", url_of(self.listener), len(self.seats), _names(self.graphs))
        return None

    def _start(self, seat: _Seat) -> None:
        here, there = _SPAWN.Pipe()
        assignment = Assignment(self.settings, self.program, seat.number, self.revision, self.directory)
        seat.process = _SPAWN.Process(
            target=work, args=(assignment, self.listener, self.board, there), name=f"omnigraph-worker-{seat.number}"
        )
        seat.process.start()
        there.close()
        seat.pipe, seat.started, seat.ready, seat.next_start = here, time.monotonic(), False, None

    def _await_ready(self, seats: list[_Seat]) -> str | None:
        """Wait until all of them are ready; the reason why one is not."""
        while not self.ending and not all(seat.ready for seat in seats):
            for seat, news in self._news(None):
                if isinstance(news, Refused):
                    return news.message
                if news is None:
                    return f"worker {seat.number} {_how_it_ended(seat)} before it was ready"
        return None

    def _tick(self) -> None:
        due = [seat.next_start for seat in self.seats if seat.next_start is not None]
        for seat, news in self._news(max(0.0, min(due) - time.monotonic()) if due else None):
            if isinstance(news, Refused):
                logger.error("worker %d can't start again: %s", seat.number, news.message)
            elif isinstance(news, Ready):
                self._let_go(seat)
                logger.info("worker %d serves again", seat.number)
            elif news is None:
                self._bury(seat)
        for seat in self.seats:
            if not self.ending and seat.next_start is not None and seat.next_start <= time.monotonic():
                self._start(seat)

    def _news(self, timeout: float | None) -> Iterator[tuple[_Seat, Ready | Moved | Refused | None]]:
        """What workers say, None when one has ended; returns at least when the server is asked to end."""
        pipes: dict[Any, _Seat] = {seat.pipe: seat for seat in self.seats if seat.pipe is not None}
        ends: dict[Any, _Seat] = {seat.process.sentinel: seat for seat in self.seats if seat.process is not None}
        heard: list[Any] = wait([self.asked_to_end, *pipes, *ends], timeout)
        if self.asked_to_end in heard:
            self.asked_to_end.recv(16)
            self.ending = True
            return
        # What somebody said before it ended is heard first.
        for pipe in [pipe for pipe in pipes if pipe in heard]:
            if (news := self._heard(pipes[pipe])) is not None:
                yield pipes[pipe], news
        for sentinel in [sentinel for sentinel in ends if sentinel in heard]:
            yield ends[sentinel], None

    def _heard(self, seat: _Seat) -> Ready | Moved | Refused | None:
        assert seat.pipe is not None
        try:
            news: Ready | Moved | Refused = seat.pipe.recv()
        except (EOFError, OSError):
            # Its end of the pipe has closed; the process ends soon, and that is heard too.
            seat.pipe.close()
            seat.pipe = None
            return None
        if isinstance(news, Ready):
            seat.ready = True
            self.graphs = news.graphs
        if isinstance(news, Ready | Moved) and news.revision is not None:
            # Whoever starts from now on serves what the foremost does, which is known to be servable.
            self.revision = max(news.revision, self.revision or 0)
        return news

    def _let_go(self, seat: _Seat) -> None:
        """Have a worker that is ready take connections."""
        if seat.pipe is not None:
            with suppress(OSError):  # it has died meanwhile, which will be heard
                seat.pipe.send(Go())

    def _bury(self, seat: _Seat) -> None:
        """A worker is dead: what it had in flight is not any more, and another takes its place after a while."""
        how = _how_it_ended(seat)
        self._strike_off(seat)
        lived = time.monotonic() - seat.started
        seat.failures = 1 if seat.ready and lived > SOUND_AFTER else seat.failures + 1
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2 ** (seat.failures - 1))
        seat.next_start = time.monotonic() + delay
        logger.error("worker %d %s after %.1f s; another starts in %.1f s", seat.number, how, lived, delay)

    def _strike_off(self, seat: _Seat) -> None:
        assert seat.process is not None
        if seat.pipe is not None:
            seat.pipe.close()
        seat.process.join()
        seat.process.close()
        seat.pipe = seat.process = None
        self.board.clear(seat.number)
        metrics.forget(self.directory, seat.number)

    def _end_all(self) -> None:
        """Let every worker finish what it does. One that can't be ended is killed."""
        self.listener.close()  # else clients would go on to queue where nobody takes them
        alive = [seat for seat in self.seats if seat.process is not None]
        for seat in alive:
            assert seat.process is not None
            seat.process.terminate()
        until = time.monotonic() + Ending(self.settings.limits.drain_seconds).kill
        waiting = {seat.process.sentinel: seat for seat in alive if seat.process is not None}
        while waiting and (left := until - time.monotonic()) > 0:
            ended: list[Any] = wait([self.asked_to_end, *waiting], left)
            if self.asked_to_end in ended:
                break  # asked again: whoever asks does not want to wait
            for sentinel in ended:
                del waiting[sentinel]
        for seat in waiting.values():
            assert seat.process is not None
            logger.error("worker %d has not ended and is killed", seat.number)
            seat.process.kill()
        for seat in alive:
            self._strike_off(seat)


def _names(graphs: Sequence[str]) -> str:
    """The graphs that are served; of very many the first ones."""
    shown = ", ".join(graphs[:_GRAPHS_SHOWN])
    more = f" and {len(graphs) - _GRAPHS_SHOWN} more" if len(graphs) > _GRAPHS_SHOWN else ""
    return f"{'graph' if len(graphs) == 1 else 'graphs'} {shown}{more}"


def _how_it_ended(seat: _Seat) -> str:
    assert seat.process is not None
    seat.process.join()
    code = seat.process.exitcode
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket that can be read once a signal asked to end: a wait for workers wakes up for it."""
    heard, told = socket.socketpair()
    told.setblocking(False)
    with heard, told:
        before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
        try:
            yield heard
        finally:
            signal.set_wakeup_fd(before)
            for number in handlers:
                # Nothing is left to end but this process, which does.
                signal.signal(number, signal.SIG_IGN)
