"""Agents at the server. Their protocol is spoken by an endpoint that whoever puts the server together hands in; who
asks, what they may do and how long it may take is settled here, as for every other request.

The endpoint is loaded by the first request that needs it: a server that no agent calls does not pay for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from omnigraph.engine.query.limits import Cancellation
from omnigraph.errors import BadRequestError, NotFoundError
from omnigraph.server.catalog import Served, Serving
from omnigraph.server.http.call import Call, handles
from omnigraph.server.http.responses import Answer, AnyAnswer
from omnigraph.server.in_process import InProcessGraph

Result = TypeVar("Result")
InTime: TypeAlias = Callable[[Call, Callable[[], Any]], Awaitable[Any]]
"""Runs a piece of work in a thread, within the time that a read may take."""

GRAPH_HEADER: Final = "Omnigraph-Graph"
ASKED_BY_BROWSERS: Final = (GRAPH_HEADER, "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id")


class AgentEndpoint(Protocol):
    """What speaks the protocol of agents. It answers while `running` is entered, which happens once."""

    def running(self) -> AbstractAsyncContextManager[None]: ...

    async def answer(
        self, path: str, headers: Sequence[tuple[str, str]], body: bytes, access: AgentAccess
    ) -> tuple[int, dict[str, str], bytes]: ...


LoadEndpoint: TypeAlias = Callable[[], AgentEndpoint]


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """The graph of one request for whatever the endpoint does with it. Each piece of work is run as a whole."""

    asked: Call
    in_time: InTime
    actor: str | None = None
    """Nobody has to be named: the graph knows who asks."""

    async def run(self, work: Callable[[InProcessGraph], Result], *, writes: bool) -> Result:
        route = replace(self.asked.route, admission=writes)
        call = replace(self.asked, route=route, cancellation=Cancellation())
        result: Result = await self.in_time(call, partial(work, InProcessGraph(call)))
        return result


class Agents:
    """The endpoint of a process, from the first request on."""

    def __init__(self, load: LoadEndpoint) -> None:
        self._load = load
        self._endpoint: AgentEndpoint | None = None
        self._starting = asyncio.Lock()
        self._over = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def answer(self, call: Call, body: bytes, in_time: InTime) -> Answer:
        endpoint = await self._started()
        headers = [(name, value) for name, values in call.all_headers.items() for value in values]
        status, told, answer = await endpoint.answer(call.route.full_path, headers, body, AgentAccess(call, in_time))
        kept = {name: value for name, value in told.items() if name.lower() not in ("content-length", "content-type")}
        media = next((value for name, value in told.items() if name.lower() == "content-type"), None)
        return Answer(answer, status, media, kept)

    async def close(self) -> None:
        self._over.set()
        if self._running is not None:
            await self._running

    async def _started(self) -> AgentEndpoint:
        async with self._starting:
            if self._endpoint is None:
                endpoint = await asyncio.to_thread(self._load)
                ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._running = asyncio.create_task(self._live(endpoint, ready))
                await ready
                self._endpoint = endpoint
            return self._endpoint

    async def _live(self, endpoint: AgentEndpoint, ready: asyncio.Future[None]) -> None:
        """Entered and left in one task, as whatever runs inside demands."""
        try:
            async with endpoint.running():
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


@handles("mcp")
def without_endpoint(call: Call) -> AnyAnswer:
    raise NotFoundError("this server was put together without an endpoint for agents")


@handles("mcpOfServer")
def without_endpoint_of_server(call: Call) -> AnyAnswer:
    return without_endpoint(call)
