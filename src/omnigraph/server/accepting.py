"""Taking connections from a socket that several workers listen on, so that each gets its share of them.

Left to the kernel, whoever wakes up first takes all that are waiting, and a client's pool of connections may end in one
worker while the others idle. Here a worker takes one at a time, and leaves it for a moment to those who have fewer. A
worker that does not come in that moment loses nothing: the next one takes it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sized
from typing import Final

from omnigraph.server.board import Board

_MOMENT: Final = 0.002
_NO_FILES_LEFT_PAUSE: Final = 0.5

logger: Final = logging.getLogger("omnigraph.server")


class BalancedAcceptor:
    """One worker's side of the socket. uvicorn ends it like a server of its own."""

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        board: Board,
        worker: int,
        connections: Sized,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._protocol = protocol
        self._board = board
        self._worker = worker
        self._connections = connections
        self._arriving: set[asyncio.Task[object]] = set()
        self._left_to_others = False
        self._closed = False
        listener.setblocking(False)
        board.post_connections(worker, len(connections))
        self._listen()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener.fileno())

    async def wait_closed(self) -> None:
        if self._arriving:
            await asyncio.wait(self._arriving)

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener.fileno(), self._take)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(seconds, self._listen)

    def _take(self) -> None:
        mine = len(self._connections) + len(self._arriving)
        fewest = self._board.fewest_connections_but(self._worker)
        if not self._left_to_others and fewest is not None and fewest < mine:
            self._left_to_others = True
            self._pause(_MOMENT)
            return
        self._left_to_others = False
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another worker was quicker, or the client gave up
        except OSError as error:
            logger.error("no connection can be taken: %s", error.strerror)
            self._pause(_NO_FILES_LEFT_PAUSE)
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._board.post_connections(self._worker, mine + 1)
        arriving = self._loop.create_task(self._arrive(connection))
        self._arriving.add(arriving)
        arriving.add_done_callback(self._arriving.discard)

    async def _arrive(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError:
            connection.close()  # the client is gone already
