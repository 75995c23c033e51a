"""The socket of a server: bound before anything is opened, listening when the first worker is ready.

`omnigraph serve` and `omnigraph mcp --http` use it. It holds the only line that a server prints on stdout.
"""

from __future__ import annotations

import socket
from typing import Final

from omnigraph.errors import OmniGraphError

BACKLOG: Final = 2048


class BindError(OmniGraphError):
    """The server can't have its address."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that has its address and does not listen yet: clients are turned away until the server is ready."""
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
    """Accept connections from now on. Of two sockets that are bound to one address, only the first can listen."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _bind_error(_own_address(listener), error) from None


def announce(listener: socket.socket) -> None:
    """Print where the server accepts connections: the one line on stdout."""
    print(f"OMNIGRAPH_LISTEN_ADDR={_own_address(listener)}", flush=True)


def url_of(listener: socket.socket) -> str:
    """The URL by which a client on this machine reaches the server."""
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
