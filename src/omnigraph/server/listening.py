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

CLOSE_SECONDS: Final = 10.0
"""What closing graphs may take, after the requests have ended or were cancelled."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_REFRESH_SECONDS: Final = 2.0

logger: Final = logging.getLogger("omnigraph.server")


class ListeningServer(uvicorn.Server):
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
        # A terminal and a service manager tell every process, so a supervised worker is told twice.
        told = self._end if self._supervisor is None else self._drain
        for number in SIGNALS:
            # Not by the loop: it would put back the default, which kills, before anything else could be set.
            signal.signal(number, lambda *_: told())
        try:
            yield
        finally:
            # From here on a second signal must not cut short what the first one began.
            for number in SIGNALS:
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
