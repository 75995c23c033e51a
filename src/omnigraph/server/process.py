"""What every process of a server has in common: the code it runs, its socket, its open files, its last words."""

from __future__ import annotations

import os
import pkgutil
import resource
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from omnigraph.errors import OmniGraphError
from omnigraph.server.protocol import BACKLOG

REFUSED: Final = 1
_FILES_AT_MOST: Final = 1 << 20
_FILES_FOR_OURSELVES: Final = 512


@dataclass(frozen=True, slots=True)
class Program:
    """The parts of a server by their dotted names, `package.module:function`.

    Names and not functions: whoever starts workers passes them on without loading what they need.
    """

    open_graph: str
    boot: str = "omnigraph.server.boot:boot"
    application: str = "omnigraph.server.assembly:application"
    renewed: str = "omnigraph.server.boot:renewed"
    revisions: str = "omnigraph.cluster.applied:Revisions"
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
