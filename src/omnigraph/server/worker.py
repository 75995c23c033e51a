"""One process that answers requests: it boots, serves a socket until it is told to end, and leaves nothing undone.
The supervisor starts `work` in each.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING, Final

from omnigraph.errors import OmniGraphError
from omnigraph.server import logs
from omnigraph.server.accepting import BalancedAcceptor
from omnigraph.server.admission import Admission
from omnigraph.server.board import Board
from omnigraph.server.following import Follower
from omnigraph.server.listening import SIGNALS, Ending, ListeningServer
from omnigraph.server.metrics import Metrics, discard
from omnigraph.server.process import REFUSED, Program, leave, with_room_for
from omnigraph.server.protocol import GuardedConfig
from omnigraph.server.settings import Settings
from omnigraph.server.states import States
from omnigraph.server.surroundings import Surroundings
from omnigraph.server.tracing import Tracing
from omnigraph.server.upkeep import Keepers

if TYPE_CHECKING:
    from omnigraph.server.serving import Serving


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
    graphs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """A worker serves another revision now."""

    revision: int | None


@dataclass(frozen=True, slots=True)
class Go:
    """All workers are ready: connections may be taken."""


@dataclass(frozen=True, slots=True)
class Refused:
    message: str


def work(assignment: Assignment, listener: socket.socket, board: Board, supervisor: Connection) -> None:
    """The life of a worker below a supervisor. It says whether it is ready, and ends when the supervisor is gone."""
    logs.configure(worker=assignment.number)
    worker = _Worker(assignment, board)
    _end_at_a_signal()
    try:
        serving = worker.boot()
    except OmniGraphError as error:
        supervisor.send(Refused(str(error)))
        sys.exit(REFUSED)
    try:
        supervisor.send(Ready(serving.revision, tuple(sorted(serving.graphs))))
        supervisor.recv()
        if not worker.serve(listener, supervisor) and assignment.metrics_directory is not None:
            discard(assignment.metrics_directory)
    except (EOFError, OSError):
        pass  # nobody is left to serve for
    finally:
        worker.close()
    leave(0)  # a thread that is stuck in the store must not keep its replacement waiting


class _Worker:
    def __init__(self, assignment: Assignment, board: Board) -> None:
        self._assignment = assignment
        self._settings = assignment.settings
        self._board = board
        self._keepers: Keepers | None = None
        self._follower: Follower | None = None

    def boot(self) -> Serving:
        """Open what is served; raises when the server must not start."""
        program, settings = self._assignment.program, self._settings
        if program.prepare is not None:
            program.part("prepare")()
        limits = settings.limits
        if (fits := with_room_for(limits.connections)) < limits.connections:
            logger.warning("only %d connections fit into the open files this process may have", fits)
            settings = replace(settings, limits=replace(limits, connections=fits))
        serving: Serving
        serving, tokens = program.part("boot")(
            settings, program.part("open_graph"), os.environ, revision=self._assignment.revision
        )
        self._states = States(serving)
        self._has_tokens = bool(tokens)
        number = self._assignment.number
        metrics = Metrics(worker=number, directory=self._assignment.metrics_directory)
        self._around = Surroundings(
            settings=settings,
            admission=Admission(self._board, number, limits.actor_requests, limits.actor_bytes, metrics.refused),
            metrics=metrics,
            tracing=Tracing.of(os.environ),
        )
        self._application = program.part("application")(self._states, tokens, self._around)
        if self._assignment.maintains:
            self._keepers = Keepers()
        self._serves(serving)
        return serving

    def serve(self, listener: socket.socket, supervisor: Connection) -> bool:
        """Answer requests until a signal, or the end of the supervisor, says to end. False if it was the latter."""
        around, board, number = self._around, self._board, self._assignment.number
        config = GuardedConfig(
            self._application,
            around.settings.limits,
            around.draining,
            partial(board.post_connections, number),
        )
        if around.settings.watch:
            self._follow(supervisor)
        accept = partial(BalancedAcceptor, board=board, worker=number)
        server = ListeningServer(config, around.metrics, accept, supervisor)
        server.run([listener])
        return not server.orphaned

    def close(self) -> None:
        """Close the graphs, unless a thread that is stuck holds them."""
        closing = threading.Thread(target=self._close_graphs, daemon=True)
        closing.start()
        closing.join(Ending(self._settings.limits.drain_seconds).leave)
        self._around.tracing.close()
        if closing.is_alive():
            logger.warning("the graphs did not close in time")
            leave(0)

    def _close_graphs(self) -> None:
        if self._follower is not None:
            self._follower.stop()
            self._follower.join()
        self._states.close()

    def _serves(self, serving: Serving) -> None:
        """Count and look after what is served from now on."""
        self._around.metrics.serves(serving.graphs, serving.revision)
        if self._keepers is not None:
            self._around.metrics.watch_upkeep(self._keepers.look_after(serving))

    def _follow(self, supervisor: Connection) -> None:
        """Serve what is applied to the cluster from now on, too."""
        serving, settings, program = self._states.serving, self._around.settings, self._assignment.program
        if serving.cluster_root is None:
            return

        def renewed(before: Serving, revision: int) -> Serving:
            build = program.part("renewed")
            made: Serving = build(
                before, self._has_tokens, settings, program.part("open_graph"), os.environ, revision=revision
            )
            return made

        def taken(serving: Serving) -> None:
            self._serves(serving)
            with suppress(OSError):  # it is gone, which is heard elsewhere
                supervisor.send(Moved(serving.revision))

        revisions = program.part("revisions")(serving.cluster_root)
        self._follower = Follower(
            self._states, revisions.newer_than, renewed, taken, lambda _: self._around.metrics.state_failed()
        )
        self._around.draining.then(self._follower.stop)
        self._follower.start()


def _end_at_a_signal() -> None:
    """While a server boots there is nothing to finish: a signal ends it as it stands."""

    def end(_number: int, _frame: FrameType | None) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a second one must not keep the graphs from being closed
        raise SystemExit(0)

    for number in SIGNALS:
        signal.signal(number, end)
