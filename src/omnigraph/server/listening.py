"""The HTTP server of one process: it takes connections until a signal, or the end of its supervisor, says to end, and
then finishes what is under way.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Final

import uvicorn

from omnigraph.server.accepting import BalancedAcceptor
from omnigraph.server.metrics import Metrics
from omnigraph.server.process import leave
from omnigraph.server.protocol import GuardedConfig, GuardedProtocol

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
