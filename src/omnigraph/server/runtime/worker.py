"""One worker process: it opens the graphs, answers requests, and closes the graphs when the server ends.

uvicorn calls `Worker` in every process that it starts and serves the application that comes back. Nothing here knows
how HTTP is parsed, and nothing may be left behind that a killed worker would have had to undo.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from uvicorn.config import STARTUP_FAILURE

from omnigraph.errors import OmniGraphError
from omnigraph.process import PROCESS
from omnigraph.server.admission import Budgets
from omnigraph.server.reload import Follower, ServingSets
from omnigraph.server.runtime import logs
from omnigraph.server.runtime.context import Draining, Telemetry, WorkerContext
from omnigraph.server.runtime.listener import announce, listen, url_of
from omnigraph.server.runtime.metrics import Metrics
from omnigraph.server.runtime.run_directory import RunDirectory
from omnigraph.server.runtime.tracing import Tracing
from omnigraph.server.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from omnigraph.engine.maintenance.maintainer import Maintainer
    from omnigraph.server.catalog import Serving
    from omnigraph.server.tokens import Tokens

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 30.0
_SHORTEST_END: Final = 1.0
"""Seconds that closing the graphs may take even if requests get no time at all."""
_REFRESH_SECONDS: Final = 2.0
_GRAPHS_SHOWN: Final = 20
_ENDING_BODY: Final = b'{"error": "this server is ending; try again"}'

logger: Final = logging.getLogger("omnigraph.server")


class Program:
    """The parts of a server. They load the engine only when they are called, because the supervisor hands them to the
    workers without using them."""

    def __init__(self, open_graph: Callable[..., Any]) -> None:
        self._open_graph = open_graph

    def boot(self, settings: Settings, revision: int | None) -> tuple[Serving, Tokens]:
        from omnigraph.server.loader import boot

        return boot(settings, self._open_graph, os.environ, revision)

    def application(self, states: ServingSets, tokens: Tokens, context: WorkerContext) -> ASGIApp:
        from omnigraph.server.app import application

        return application(states, tokens, context)

    def renew(self, before: Serving, has_tokens: bool, settings: Settings, revision: int) -> Serving:
        from omnigraph.server.loader import renew

        return renew(before, has_tokens, settings, self._open_graph, os.environ, revision)

    def newer_than(self, cluster_root: str) -> Callable[[int], int | None]:
        from omnigraph.cluster.state_ledger import follow_ledger

        return follow_ledger(cluster_root)


class Ending:
    """The schedule of an end, in seconds after the signal.

    Requests may go on for most of `--drain-seconds`; the rest is for closing graphs. A worker that is not done by then
    kills itself, because a thread in native code can't be interrupted. The supervisor kills a worker that could not
    even do that.
    """

    def __init__(self, drain_seconds: float) -> None:
        self.kill = max(drain_seconds, _SHORTEST_END)
        self.leave = 0.95 * self.kill
        self.requests = min(drain_seconds, 0.85 * self.kill)


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker to be: uvicorn passes it to a new process and calls it there for the application."""

    settings: Settings
    program: Program
    listener: socket.socket
    directory: RunDirectory

    def __call__(self) -> ASGIApp:
        """Boot, listen, and return the application. Exits if the server must not start."""
        PROCESS.take()
        PROCESS.import_arrow()
        logs.configure(worker=os.getpid())
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard and hard != resource.RLIM_INFINITY:  # have as many connections and files as the system allows
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            with exit_on_signal():
                process = self._boot()
                listen(self.listener)
        except Exception as error:
            if not isinstance(error, OmniGraphError):
                logger.error("the worker can't start", exc_info=error)
            reason = str(error) if isinstance(error, OmniGraphError) else f"the worker failed: {type(error).__name__}"
            self.directory.refuse(reason)
            raise SystemExit(STARTUP_FAILURE) from None
        process.start()
        self._report_ready(process.states.serving)
        return process.application

    def _boot(self) -> WorkerProcess:
        """Open what is served. The replacement of a worker that died tries until it can."""
        delay = FIRST_DELAY
        while True:
            try:
                return WorkerProcess(self)
            except OmniGraphError as error:
                if self.directory.ready() < self.settings.workers:
                    raise  # the server was never announced
                logger.error("worker %d can't start again: %s", os.getpid(), error)
            time.sleep(delay)
            delay = min(LONGEST_DELAY, 2 * delay)

    def _report_ready(self, serving: Serving) -> None:
        """The last worker to become ready says that the server is; later ones are replacements."""
        ready, workers = self.directory.count_ready(), self.settings.workers
        if ready > workers:
            logger.info("worker %d serves again", os.getpid())
        elif ready == workers:
            announce(self.listener)
            graphs = sorted(serving.graphs)
            names = ", ".join(graphs[:_GRAPHS_SHOWN])
            more = f" and {len(graphs) - _GRAPHS_SHOWN} more" if len(graphs) > _GRAPHS_SHOWN else ""
            noun = "graph" if len(graphs) == 1 else "graphs"
            logger.info("serving at %s (workers: %d): %s %s%s", url_of(self.listener), workers, noun, names, more)


class WorkerProcess:
    """What runs in a worker: the application with everything around it that begins and ends with the process."""

    def __init__(self, worker: Worker) -> None:
        self._settings, self._program, self._directory = worker.settings, worker.program, worker.directory
        serving = self._directory.boot(self._open)
        self._metrics = metrics = Metrics(directory=self._directory.path)
        self.states = ServingSets(serving)
        budgets = Budgets(self._settings.limits, metrics.count_refusal)
        telemetry = Telemetry(metrics, Tracing.of(os.environ))
        self._context = WorkerContext(self._settings, budgets, telemetry, self._close)
        application = self._program.application(self.states, self._tokens, self._context)
        self.application = refuse_while_ending(application, self._context.draining)
        self._maintenance = _Maintenance(self._directory, metrics) if self._settings.maintain else None
        self._follower: Follower | None = None
        self._is_orphan = False

    def start(self) -> None:
        """Begin what goes on beside requests. uvicorn's event loop runs, and its signal handlers are installed."""
        self._serve(self.states.serving)
        if self._maintenance is not None:
            self._maintenance.start()
        if self._settings.watch:
            self._follow()
        self._drain_on_signal()
        threading.Thread(target=self._watch_supervisor, name="omnigraph-supervisor", daemon=True).start()
        self._refresh_metrics()

    def _open(self, revision: int | None) -> Serving:
        serving, self._tokens = self._program.boot(self._settings, revision)
        return serving

    def _serve(self, serving: Serving) -> None:
        """Count and maintain what is served from now on."""
        self._metrics.serve(serving.graphs, serving.revision)
        if self._maintenance is not None:
            self._maintenance.serve(serving)

    def _follow(self) -> None:
        """Serve what is applied to the cluster later, too."""
        root = self.states.serving.cluster_root
        if root is None:
            return
        program, settings = self._program, self._settings

        def renew(before: Serving, revision: int) -> Serving:
            return program.renew(before, bool(self._tokens), settings, revision)

        def take(serving: Serving) -> None:
            self._serve(serving)
            self._directory.advance(serving.revision)

        newer_than, failed = program.newer_than(root), self._metrics.count_failed_state
        self._follower = Follower(self.states, newer_than, renew, take, failed)
        self._context.draining.then(self._follower.stop)
        self._follower.start()

    def _refresh_metrics(self) -> None:
        self._metrics.refresh()
        asyncio.get_running_loop().call_later(_REFRESH_SECONDS, self._refresh_metrics)

    # The end

    def _drain_on_signal(self) -> None:
        """Let the application know of a signal at once; uvicorn would tell it when all requests have ended."""
        loop = asyncio.get_running_loop()
        handlers: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}

        def handle(number: int, frame: FrameType | None) -> None:
            handlers[number](number, frame)
            loop.call_soon_threadsafe(self._drain)

        for number in SIGNALS:
            signal.signal(number, handle)

    def _drain(self) -> None:
        if self._context.draining.began:
            return

        def leave() -> None:
            """End the process although something in it has not ended. Whatever was acknowledged is in the store."""
            logger.warning("leaving: not everything under way has ended in time")
            os.kill(os.getpid(), signal.SIGKILL)

        watchdog = threading.Timer(Ending(self._settings.limits.drain_seconds).leave, leave)
        watchdog.daemon = True
        watchdog.start()
        logger.info("ending")
        self._context.draining.begin()

    def _watch_supervisor(self) -> None:
        """End as on a signal if the supervisor was killed."""
        parent = multiprocessing.parent_process()
        assert parent is not None
        wait([parent.sentinel])
        logger.warning("the supervisor is gone")
        self._is_orphan = True
        os.kill(os.getpid(), signal.SIGTERM)

    def _close(self) -> None:
        if self._follower is not None:
            self._follower.stop()
            self._follower.join()
        self.states.close()
        self._context.telemetry.tracing.close()
        if self._is_orphan:
            self._directory.discard()


class _Maintenance(threading.Thread):
    """Maintains the graphs in this worker as soon as no other worker does, with a thread for each graph. It is started
    after the first `serve`. A graph that is closed ends its thread by itself."""

    def __init__(self, directory: RunDirectory, metrics: Metrics) -> None:
        super().__init__(name="omnigraph-maintenance", daemon=True)
        self._directory = directory
        self._metrics = metrics
        self._lock = threading.Lock()
        self._right: object = None
        self._serving: Serving
        self._maintainers: dict[str, tuple[object, Maintainer]] = {}

    def serve(self, serving: Serving) -> None:
        """Maintain these graphs from now on; those that were open before keep their maintainers."""
        with self._lock:
            self._serving = serving
            if self._right is not None:
                self._maintain()

    def run(self) -> None:
        right = self._directory.await_maintenance()
        with self._lock:
            self._right = right
            self._maintain()

    def _maintain(self) -> None:
        from omnigraph.engine.maintenance.maintainer import Maintainer

        before, self._maintainers = self._maintainers, {}
        for graph_id, served in self._serving.graphs.items():
            opened, maintainer = before.get(graph_id, (None, None))
            if maintainer is None or opened is not served.opened:
                maintainer = Maintainer(served.graph._workspace).start()
            self._maintainers[graph_id] = served.opened, maintainer
        logger.info("this worker maintains %d graphs", len(self._maintainers))
        maintained = {graph_id: maintainer for graph_id, (_, maintainer) in self._maintainers.items()}
        self._metrics.watch_maintenance(maintained)


def refuse_while_ending(application: ASGIApp, draining: Draining) -> ASGIApp:
    """The application, which answers 503 to requests that come after the signal."""
    from starlette.responses import Response

    refusal = Response(_ENDING_BODY, 503, {"Retry-After": "1", "Connection": "close"}, "application/json")

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        is_refused = draining.began and scope["type"] == "http"
        await (refusal if is_refused else application)(scope, receive, send)

    return guard


@contextmanager
def exit_on_signal() -> Iterator[None]:
    """There is nothing to finish while a worker boots: a signal ends it, and the graphs that it opened are closed."""

    def end(_number: int, _frame: FrameType | None) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a second signal must not keep the graphs from being closed
        raise SystemExit(0)

    before = {number: signal.signal(number, end) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
