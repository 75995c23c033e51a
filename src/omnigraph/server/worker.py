"""One process that answers requests: it boots, serves a socket until it is told to end, and leaves nothing undone.

`serve_alone` is the whole server when there is one worker. With more of them, the supervisor starts `work` in each.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING, Final

import uvicorn

from omnigraph.errors import OmniGraphError
from omnigraph.server import logs
from omnigraph.server.accepting import BalancedAcceptor
from omnigraph.server.admission import Admission
from omnigraph.server.board import Board
from omnigraph.server.metrics import Metrics, Upkeep, discard
from omnigraph.server.process import REFUSED, Program, announce, bound, complain, leave, with_room_for
from omnigraph.server.protocol import GuardedConfig, GuardedProtocol
from omnigraph.server.settings import Settings
from omnigraph.server.surroundings import Surroundings
from omnigraph.server.tracing import Tracing

if TYPE_CHECKING:
    from omnigraph.server.serving import Serving

CLOSE_SECONDS: Final = 10.0
"""What closing graphs may take, after the requests have ended or were cancelled."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_REFRESH_SECONDS: Final = 2.0

logger: Final = logging.getLogger("omnigraph.server")


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one worker is to do. `revision` pins what is served to what the first worker found."""

    settings: Settings
    program: Program
    number: int = 0
    revision: int | None = None
    metrics_directory: str | None = None

    @property
    def maintains(self) -> bool:
        """Exactly one worker looks after the graphs; whoever takes its place goes on with it."""
        return self.settings.maintain and self.number == 0


@dataclass(frozen=True, slots=True)
class Ready:
    revision: int | None


@dataclass(frozen=True, slots=True)
class Go:
    """All workers are ready: connections may be taken."""


@dataclass(frozen=True, slots=True)
class Refused:
    message: str


def serve_alone(settings: Settings, program: Program) -> int:
    """The whole server in this process; returns its exit code."""
    logs.configure()
    try:
        listener = bound(settings.host, settings.port)
    except OmniGraphError as error:
        complain(str(error))
        return REFUSED
    with listener, Board(1) as board:
        worker = _Worker(Assignment(settings, program), board)
        _end_at_a_signal()
        try:
            worker.boot()
        except OmniGraphError as error:
            complain(str(error))
            return REFUSED
        worker.serve(listener, lambda: announce(listener))
    return 0


def work(assignment: Assignment, listener: socket.socket, board: Board, supervisor: Connection) -> None:
    """The life of a worker below a supervisor. It says whether it is ready, and ends when the supervisor is gone."""
    logs.configure(worker=assignment.number)
    worker = _Worker(assignment, board)
    _end_at_a_signal()
    try:
        revision = worker.boot()
    except OmniGraphError as error:
        supervisor.send(Refused(str(error)))
        sys.exit(REFUSED)
    try:
        supervisor.send(Ready(revision))
        supervisor.recv()
    except (EOFError, OSError):
        return  # nobody is left to serve for
    if not worker.serve(listener, supervisor=supervisor) and assignment.metrics_directory is not None:
        discard(assignment.metrics_directory)


class _Worker:
    def __init__(self, assignment: Assignment, board: Board) -> None:
        self._assignment = assignment
        self._settings = assignment.settings
        self._board = board
        self._serving: Serving | None = None

    def boot(self) -> int | None:
        """Open what is served; raises when the server must not start."""
        program, settings = self._assignment.program, self._settings
        if program.prepare is not None:
            program.part("prepare")()
        limits = settings.limits
        if (fits := with_room_for(limits.connections)) < limits.connections:
            logger.warning("only %d connections fit into the open files this process may have", fits)
            settings = replace(settings, limits=replace(limits, connections=fits))
        serving, tokens = program.part("boot")(
            settings, program.part("open_graph"), os.environ, revision=self._assignment.revision
        )
        self._serving = serving
        revision: int | None = serving.revision
        number = self._assignment.number
        metrics = Metrics(serving.graphs, worker=number, directory=self._assignment.metrics_directory)
        self._around = Surroundings(
            settings=settings,
            admission=Admission(self._board, number, limits.actor_requests, limits.actor_bytes, metrics.refused),
            metrics=metrics,
            tracing=Tracing.of(os.environ),
        )
        self._application = program.part("application")(serving, tokens, self._around)
        if self._assignment.maintains:
            self._around.metrics.watch_upkeep(_maintained(serving))
        return revision

    def serve(
        self,
        listener: socket.socket,
        ready: Callable[[], None] = lambda: None,
        supervisor: Connection | None = None,
    ) -> bool:
        """Answer requests until a signal, or the end of the supervisor, says to end. False if it was the latter."""
        around, board, number = self._around, self._board, self._assignment.number
        config = GuardedConfig(
            self._application,
            around.settings.limits,
            around.draining,
            None if supervisor is None else partial(board.post_connections, number),
        )
        server = _Server(config, around.metrics, ready, supervisor)
        if supervisor is not None:
            server.accept = partial(BalancedAcceptor, board=board, worker=number)
        server.run([listener])
        if server.force_exit:
            leave(0)
        self._close()
        return not server.orphaned

    def _close(self) -> None:
        """Close the graphs, unless a thread that is stuck holds them."""
        assert self._serving is not None
        closing = threading.Thread(target=self._serving.close, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        self._around.tracing.close()
        if closing.is_alive():
            logger.warning("graphs did not close within %g s", CLOSE_SECONDS)
            leave(0)


def _maintained(serving: Serving) -> Mapping[str, Upkeep]:
    from omnigraph.engine.upkeep.maintainer import Maintainer

    return {name: Maintainer(served.graph.workspace).start() for name, served in serving.graphs.items()}


class _Server(uvicorn.Server):
    """uvicorn's server, ended by our rules: whoever was told to end and did is a success."""

    config: GuardedConfig

    def __init__(
        self, config: GuardedConfig, metrics: Metrics, ready: Callable[[], None], supervisor: Connection | None
    ) -> None:
        super().__init__(config)
        self._metrics = metrics
        self._ready = ready
        self._supervisor = supervisor
        self.orphaned = False
        self.accept: Callable[..., BalancedAcceptor] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would raise them again at the end, and the process would not exit with 0."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            # A terminal and a service manager tell every process, so a supervised worker is told twice.
            loop.add_signal_handler(number, self._end if self._supervisor is None else self._drain)
        try:
            yield
        finally:
            # From here on a second signal must not cut short what the first one began.
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        if self._supervisor is not None:
            loop.add_reader(self._supervisor.fileno(), self._supervisor_is_gone)
        if self.accept is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            listening = partial(self.accept, protocol=self._protocol, connections=self.server_state.connections)
            # To uvicorn a server is what can be closed and waited for.
            self.servers = [listening(listener) for listener in sockets or ()]  # type: ignore[misc]
        self._refresh(loop)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        seconds = self.config.limits.drain_seconds
        logger.info("ending: %d connections are open", len(self.server_state.connections))
        self.config.timeout_graceful_shutdown = seconds  # type: ignore[assignment]  # a float does as well
        # Whatever hangs, this process ends.
        watchdog = threading.Timer(seconds + 2 * CLOSE_SECONDS, leave, (0,))
        watchdog.daemon = True
        watchdog.start()
        self.config.draining.begin()
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        return GuardedProtocol(self.config, self.server_state, self.lifespan.state)

    def _end(self) -> None:
        """The first signal asks to finish, the second to leave."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True

    def _drain(self) -> None:
        self.should_exit = True

    def _supervisor_is_gone(self) -> None:
        assert self._supervisor is not None
        logger.warning("the supervisor is gone")
        self.orphaned = True
        asyncio.get_running_loop().remove_reader(self._supervisor.fileno())
        self.should_exit = True

    def _refresh(self, loop: asyncio.AbstractEventLoop) -> None:
        self._metrics.refresh(connections=len(self.server_state.connections))
        loop.call_later(_REFRESH_SECONDS, self._refresh, loop)


def _end_at_a_signal() -> None:
    """While a server boots there is nothing to finish: a signal ends it as it stands."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    for number in _SIGNALS:
        signal.signal(number, end)
