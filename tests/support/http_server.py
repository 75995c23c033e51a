"""A small HTTP/1.1 server for tests: a thread per connection, and connections are kept, as every object store keeps
them. A client that has to connect anew for each request costs more time than most requests."""

from __future__ import annotations

import io
import socket
import sys
import threading
from collections.abc import Callable
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any
from urllib.parse import unquote_to_bytes

Answer = tuple[str, list[tuple[str, str]], bytes]
Application = Callable[[dict[str, Any]], Answer | None]
"""Answers a request, given as a WSGI environment; with None the connection is dropped."""


class HttpServer(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, application: Application) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.application = application
        self.port: int = self.server_address[1]
        self._thread = threading.Thread(target=self.serve_forever, name="http-server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news; a fault of the application is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Connection(StreamRequestHandler):
    disable_nagle_algorithm = True
    server: HttpServer

    def handle(self) -> None:
        while (environ := self._next_request()) is not None:
            answer = self.server.application(environ)
            if answer is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            status, headers, body = answer
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
            shown = b"" if environ["REQUEST_METHOD"] == "HEAD" else body
            self.connection.sendall(f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("latin-1") + shown)

    def _next_request(self) -> dict[str, Any] | None:
        """The next request of this connection with its whole body; None when there is none any more."""
        line = self.rfile.readline()
        if not line.strip():
            return None
        method, target, protocol = line.decode("latin-1").split()
        path, _, query = target.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "PATH_INFO": _unquoted(path),
            "QUERY_STRING": query,
            "REQUEST_URI": target,
            "RAW_URI": target,
            "SCRIPT_NAME": "",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": str(self.server.port),
            "SERVER_PROTOCOL": protocol,
            "wsgi.url_scheme": "http",
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        while (header := self.rfile.readline().decode("latin-1").rstrip("\r\n")) != "":
            name, _, value = header.partition(":")
            variable = name.upper().replace("-", "_")
            environ[variable if variable in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{variable}"] = value.strip()
        if "HTTP_TRANSFER_ENCODING" in environ:
            raise NotImplementedError("this server reads bodies of a known length only")
        if environ.get("HTTP_EXPECT", "").lower() == "100-continue":
            self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            return None  # the client died on the way
        environ["wsgi.input"] = io.BytesIO(body)
        return environ


def _unquoted(path: str) -> str:
    """As WSGI wants it: bytes in the disguise of Latin-1."""
    return unquote_to_bytes(path).decode("latin-1")
