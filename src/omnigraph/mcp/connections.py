"""How agents reach an endpoint: over the standard streams of a process, over HTTP, or mounted in another HTTP server.

`omnigraph mcp` calls the first two and `omnigraph.server` the third, which has authenticated the caller already.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from omnigraph.api.graph import GraphApi
from omnigraph.mcp.endpoint import Context, protocol_server
from omnigraph.mcp.graph import Access, Result, Terms

_ACCESS: Final = "omnigraph.access"


@dataclass(frozen=True, slots=True)
class DirectAccess:
    """One graph for all connections. A cancelled read ends by itself; a write that has begun is awaited, because its
    caller could not learn whether it happened."""

    graph: GraphApi
    actor: str | None = None

    async def run(self, work: Callable[[GraphApi], Result], *, writes: bool) -> Result:
        return await anyio.to_thread.run_sync(partial(work, self.graph), abandon_on_cancel=not writes)


def serve_stdio(access: Access, terms: Terms) -> None:
    """Answer on the standard streams until the other side closes them.

    An interrupt ends the process at once: the thread that waits for input would keep it alive until more comes, and a
    write that is cut off leaves nothing behind.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    server = protocol_server(lambda _context: access, terms)

    async def run() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(run)


def serve_http(
    access: Access,
    terms: Terms,
    listener: socket.socket,
    ready: Callable[[], None],
    with_own_names: Callable[[Any], Any],
) -> None:
    """Serve HTTP on a socket until a signal ends it. Callers are not authenticated, so a page in a browser must not
    reach it by a name that was pointed here: `with_own_names` makes an application that checks the name."""
    import uvicorn

    server = protocol_server(lambda _context: access, terms)
    # The library's own check knows only names with this port, and none that a proxy has for it.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    application = with_own_names(
        server.streamable_http_app(
            streamable_http_path="/mcp", json_response=True, stateless_http=True, transport_security=security
        )
    )
    config = uvicorn.Config(application, log_level="warning", access_log=False, lifespan="on")
    ready()  # from here on clients wait in the backlog of the socket
    uvicorn.Server(config).run(sockets=[listener])


class MountedEndpoint:
    """The endpoint inside another HTTP server, which authenticates callers. Requests are independent, so any process of
    that server can answer it."""

    def __init__(self, terms: Terms) -> None:
        server = protocol_server(_access_of_request, terms)
        self._sessions = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=1 << 40
        )

    def run(self) -> AbstractAsyncContextManager[None]:
        """Requests can be answered while this is entered; once."""
        return self._sessions.run()

    async def respond(self, scope: Mapping[str, Any], body: bytes, access: Access) -> tuple[int, dict[str, str], bytes]:
        """The status, headers and body of the response to a POST. The server that mounts the endpoint has received
        the body and has authenticated the sender."""
        sent: list[dict[str, Any]] = []
        incoming = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, Any]:
            if (message := next(incoming, None)) is not None:
                return message
            await asyncio.Event().wait()  # the server that received the request notices when its client leaves
            raise AssertionError("nothing ever happens after a request")

        async def send(message: Any) -> None:
            sent.append(message)

        await self._sessions.handle_request({**scope, _ACCESS: access}, receive, send)
        start, *chunks = sent
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
        return start["status"], headers, b"".join(chunk.get("body", b"") for chunk in chunks)


def _access_of_request(context: Context) -> Access:
    assert context.request is not None, "requests of a mounted endpoint come over HTTP"
    access: Access = context.request.scope[_ACCESS]
    return access
