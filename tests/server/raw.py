"""HTTP by hand, for requests that no client library would send: half of a body, or nobody who reads the answer."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from tests.server.running import RunningServer


def connected(server: RunningServer, *, receive_buffer: int | None = None) -> socket.socket:
    address = urlsplit(server.url)
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(120)
    connection.connect((address.hostname, address.port))
    return connection


def head(method: str, path: str, headers: Mapping[str, str | int] | None = None) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def answer(connection: socket.socket) -> tuple[http.client.HTTPResponse, bytes]:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response, response.read()
