"""One process that answers requests: it boots, serves a socket until it is told to end, and leaves nothing undone.
The supervisor starts `work` in each.

What every process of a server has in common: the code it runs, its socket, its open files, its last words.

The HTTP server of one process: it takes connections until a signal, or the end of its supervisor, says to end, and
then finishes what is under way.

Background upkeep of what is served: a thread for each graph, in exactly one worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pkgutil
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from omnigraph.errors import OmniGraphError
from omnigraph.server.admission import Admission
from omnigraph.server.board import Board
from omnigraph.server.reload import Follower, States
from omnigraph.server.runtime import logs
from omnigraph.server.runtime.connections import BACKLOG, BalancedAcceptor, GuardedConfig, GuardedProtocol
from omnigraph.server.runtime.context import Surroundings, Tracing
from omnigraph.server.runtime.metrics import Metrics, discard
from omnigraph.server.settings import Settings

if TYPE_CHECKING:
    from omnigraph.engine.maintenance.maintainer import Maintainer
    from omnigraph.server.catalog import Serving


REFUSED: Final = 1
_FILES_AT_MOST: Final = 1 << 20
_FILES_FOR_OURSELVES: Final = 512


@dataclass(frozen=True, slots=True)
class Program:
    """The parts of a server by their dotted names, `package.module:function`.

    Names and not functions: whoever starts workers passes them on without loading what they need.
    """

    open_graph: str
    boot: str = "omnigraph.server.loader:boot"
    application: str = "omnigraph.server.app:application"
    renewed: str = "omnigraph.server.loader:renewed"
    revisions: str = "omnigraph.cluster.ledger.ledger:LedgerFollower"
    prepare: str | None = None
    """Called first, before anything that opens graphs is loaded."""

    def part(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = pkgutil.resolve_name(getattr(self, name))
        return found


class BindError(OmniGraphError):
    """The address can't be had."""


def bound(host: str, port: int) -> socket.socket:
    """A socket that has its address and does not listen yet: until the server is ready, clients are turned away."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _bind_error(_address(family, host, port), error) from None
    return listener


def listen(listener: socket.socket) -> None:
    """Take connections from now on. Of two that were bound to one address, only the first to come here can."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _bind_error(_own_address(listener), error) from None


def announce(listener: socket.socket) -> None:
    """Say where connections are taken: the one line on stdout."""
    print(f"OMNIGRAPH_LISTEN_ADDR={_own_address(listener)}", flush=True)


def url_of(listener: socket.socket) -> str:
    """Where a client on this machine finds the server."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{_address(listener.family, host, port)}"


def _bind_error(address: str, error: OSError) -> BindError:
    return BindError(f"can't bind {address}: {error.strerror or error}; choose another --bind")


def _own_address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return _address(listener.family, host, port)


def _address(family: int, host: str, port: int) -> str:
    return f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"


def with_room_for(connections: int) -> int:
    """Allow this process as many open files as it may have; returns how many connections fit beside its own files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES_AT_MOST if hard == resource.RLIM_INFINITY else min(hard, _FILES_AT_MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(1, min(connections, most - _FILES_FOR_OURSELVES))


def complain(message: str) -> None:
    """Why a server does not start, for a person."""
    print(f"Error: {message}", file=sys.stderr, flush=True)


def leave(code: int) -> None:
    """End this process now, whatever its threads are doing: a write that was cut off left nothing behind."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_REFRESH_SECONDS: Final = 2.0
_SHORTEST_END: Final = 1.0
"""What closing graphs may take where no time is given to requests."""

logger: Final = logging.getLogger("omnigraph.server")


class Ending:
    """When what is over, in seconds after a server was told to end.

    Requests may go on for most of `--drain-seconds`; what is left of them is cancelled then. The rest is for closing
    graphs. A process that has not closed them by then leaves anyway, because a thread may be anywhere, in native code
    too, and can't be interrupted. A supervisor kills a worker that could not even do that.
    """

    def __init__(self, drain_seconds: float) -> None:
        self.kill = max(drain_seconds, _SHORTEST_END)
        self.leave = 0.95 * self.kill
        self.requests = min(drain_seconds, 0.85 * self.kill)


class ListeningServer(uvicorn.Server):
    """uvicorn's server, ended by our rules: whoever was told to end and did is a success."""

    config: GuardedConfig

    def __init__(
        self, config: GuardedConfig, metrics: Metrics, accept: Callable[..., BalancedAcceptor], supervisor: Connection
    ) -> None:
        super().__init__(config)
        self._metrics = metrics
        self._accept = accept
        self._supervisor = supervisor
        self._ending = Ending(config.limits.drain_seconds)
        self.orphaned = False

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would raise them again at the end, and the process would not exit with 0."""
        # A terminal and a service manager tell every process, so a worker gets the signal twice.
        for number in SIGNALS:
            # Not by the loop: it would put back the default, which kills, before anything else could be set.
            signal.signal(number, lambda *_: self._drain())
        try:
            yield
        finally:
            # From here on a second signal must not cut short what the first one began.
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._supervisor.fileno(), self._supervisor_is_gone)
        await super().startup([])
        listening = partial(self._accept, protocol=self._protocol, connections=self.server_state.connections)
        # To uvicorn a server is what can be closed and waited for.
        self.servers = [listening(listener) for listener in sockets or ()]  # type: ignore[misc]
        self._refresh(loop)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info("ending: %d connections are open", len(self.server_state.connections))
        self.config.timeout_graceful_shutdown = self._ending.requests  # type: ignore[assignment]  # a float does too
        self.config.draining.begin()
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        return GuardedProtocol(self.config, self.server_state, self.lifespan.state)

    def _drain(self) -> None:
        if not self.should_exit:
            # Whatever hangs, the event loop included, this process ends.
            watchdog = threading.Timer(self._ending.leave, _leave_undone)
            watchdog.daemon = True
            watchdog.start()
        self.should_exit = True

    def _supervisor_is_gone(self) -> None:
        logger.warning("the supervisor is gone")
        self.orphaned = True
        asyncio.get_running_loop().remove_reader(self._supervisor.fileno())
        self._drain()

    def _refresh(self, loop: asyncio.AbstractEventLoop) -> None:
        self._metrics.refresh(connections=len(self.server_state.connections))
        loop.call_later(_REFRESH_SECONDS, self._refresh, loop)


def _leave_undone() -> None:
    """End the process although something in it has not ended. What was acknowledged is in the store."""
    logger.warning("leaving: not everything under way has ended in time")
    leave(0)


class Keepers:
    """Who looks after which graph. A graph that is closed ends its keeper by itself."""

    def __init__(self) -> None:
        self._keepers: dict[str, tuple[object, Maintainer]] = {}

    def look_after(self, serving: Serving) -> Mapping[str, Maintainer]:
        """Have every graph that is served looked after; those that were open before keep their keepers."""
        from omnigraph.engine.maintenance.maintainer import Maintainer

        before, self._keepers = self._keepers, {}
        for graph_id, served in serving.graphs.items():
            opened, keeper = before.get(graph_id, (None, None))
            if keeper is None or opened is not served.opened:
                keeper = Maintainer(served.graph._workspace).start()
            self._keepers[graph_id] = served.opened, keeper
        logger.info("this worker looks after %d graphs", len(self._keepers))
        return {graph_id: keeper for graph_id, (_, keeper) in self._keepers.items()}


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
