"""A gateway between a client and a server that loses, cuts and delays what comes back, as it is told to.

Every connection of the client is one to the server. What the client sends always arrives; only answers suffer.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit


class Gateway:
    """`lose` whole answers, `cut` answers after so many bytes, or `hold` them until somebody lets go."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lose = 0
        self.cut: int | None = None
        self.held = threading.Event()
        self.held.set()
        self.lost = 0
        self.connections = 0
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.create_connection(self._server)  # type: ignore[arg-type]
            self._start(self._forward, client, server)
            self._start(self._bring_back, server, client)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
        _end(server)

    def _bring_back(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if self.lose > 0:
                    self.lose -= 1
                    self.lost += 1
                    break
                self.held.wait()
                if self.cut is not None:
                    client.sendall(data[: self.cut])
                    self.cut -= min(self.cut, len(data))
                    if self.cut == 0:
                        self.cut = None
                        self.lost += 1
                        break
                else:
                    client.sendall(data)
        _end(client)
        _end(server)

    def close(self) -> None:
        self.held.set()
        self._listener.close()


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextlib.contextmanager
def gateway_to(url: str) -> Iterator[Gateway]:
    gateway = Gateway(url)
    try:
        yield gateway
    finally:
        gateway.close()
