"""Agents at the server: mounts the endpoint of `omnigraph.mcp` behind the authentication, the limits and the admission
of every other request. `app` calls it. The endpoint is loaded by the first request that needs it, so that a server
that no agent calls does not pay for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from omnigraph.engine.query.limits import Cancellation
from omnigraph.errors import BadRequestError, NotFoundError
from omnigraph.graph import Graph
from omnigraph.server.catalog import Served, Serving
from omnigraph.server.handlers.writes import run_write
from omnigraph.server.http.call import Call, handles
from omnigraph.server.http.responses import AnyResponse, Response
from omnigraph.server.settings import AgentSettings

if TYPE_CHECKING:
    from omnigraph.mcp.connections import MountedEndpoint

Result = TypeVar("Result")
InTime: TypeAlias = Callable[[Call, Callable[[], Any]], Awaitable[Any]]
"""Runs a piece of work in a thread, within the time that a read may take."""

GRAPH_HEADER: Final = "Omnigraph-Graph"
BROWSER_HEADERS: Final = (GRAPH_HEADER, "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id")

LoadEndpoint: TypeAlias = "Callable[[], MountedEndpoint]"


def load_endpoint(settings: AgentSettings) -> MountedEndpoint:
    """The endpoint with the options that the server was started with."""
    try:
        from omnigraph.mcp.connections import MountedEndpoint
        from omnigraph.mcp.graph import DEFAULT_MAX_TOKENS, Terms
    except ModuleNotFoundError as error:
        raise NotFoundError(f"this server has no {error.name}, which agents need: install omnigraph[mcp]") from None
    terms = Terms(
        max_tokens=settings.max_tokens or DEFAULT_MAX_TOKENS,
        read_only=settings.read_only,
        allow_main=settings.allow_main,
        main_flag="--mcp-allow-main",
    )
    return MountedEndpoint(terms)


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """The graph of one request for its actor. Each tool is run as a whole, within the limits of the server."""

    call: Call
    in_time: InTime
    size: int
    """The bytes of the request, which a write counts for in its actor's budget."""
    actor: str | None = None
    """The graph acts for the actor of the request already."""

    async def run(self, work: Callable[[Graph], Result], *, writes: bool) -> Result:
        route = replace(self.call.route, writes=writes)
        call = replace(self.call, route=route, cancellation=Cancellation())
        run = lambda: work(call.graph)  # noqa: E731
        result: Result = await self.in_time(call, (lambda: run_write(call, self.size, run)) if writes else run)
        return result


class Agents:
    """The endpoint of a process, from the first request on."""

    def __init__(self, load: LoadEndpoint) -> None:
        self._load = load
        self._endpoint: MountedEndpoint | None = None
        self._starting = asyncio.Lock()
        self._over = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def respond(self, call: Call, body: bytes, in_time: InTime) -> Response:
        endpoint = await self._start()
        access = AgentAccess(call, in_time, len(body))
        status, raw_headers, content = await endpoint.respond(call.exchange.scope, body, access)
        headers = {name.lower(): value for name, value in raw_headers.items()}
        headers.pop("content-length", None)
        return Response(content, status, headers.pop("content-type", None), headers)

    async def close(self) -> None:
        self._over.set()
        if self._running is not None:
            await self._running

    async def _start(self) -> MountedEndpoint:
        async with self._starting:
            if self._endpoint is None:
                endpoint = await asyncio.to_thread(self._load)
                ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._running = asyncio.create_task(self._live(endpoint, ready))
                await ready
                self._endpoint = endpoint
            return self._endpoint

    async def _live(self, endpoint: MountedEndpoint, ready: asyncio.Future[None]) -> None:
        """The endpoint has to be entered and left in one task."""
        try:
            async with endpoint.run():
                ready.set_result(None)
                await self._over.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)


def graph_of(call: Call, serving: Serving) -> Served:
    """The graph that a request to the server as a whole is about."""
    named = call.headers.get(GRAPH_HEADER.lower(), "").strip()
    if named:
        return serving.graph(named)
    if len(serving.graphs) != 1:
        raise BadRequestError(
            f"this server has several graphs: use the path /graphs/<id>/mcp, or name one in the header {GRAPH_HEADER}"
        )
    return next(iter(serving.graphs.values()))


@handles("mcp", "mcpOfServer")
def without_endpoint(call: Call) -> AnyResponse:
    raise NotFoundError("this server was put together without an endpoint for agents")
