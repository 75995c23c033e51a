"""The ASGI application: every request takes the same path from its route to its response.

In the event loop it matches the path, authenticates the caller, finds the graph and receives the body. In a thread of
a pool it decodes the request, calls the handler and encodes the response, so that a large request delays no other.
A worker calls `application` once. Nothing here decides what an actor may do.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Final, TypeVar
from urllib.parse import unquote_to_bytes

from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from omnigraph import __version__
from omnigraph.api import wire
from omnigraph.api.service.http import ErrorOutput, LoadParameters, RowsParameters
from omnigraph.api.service.routes import ROUTES, Body, Media, Route
from omnigraph.errors import ErrorCode, NotFoundError, OmniGraphError, UnavailableError, UnsupportedMediaTypeError
from omnigraph.server.admission import Pools
from omnigraph.server.handlers import changes, reads, service, writes
from omnigraph.server.handlers.changes import Feeds, feed_graph
from omnigraph.server.handlers.writes import load_target, row_format
from omnigraph.server.http import responses
from omnigraph.server.http.call import HANDLERS, Call, ReceivedFile, Services
from omnigraph.server.http.origins import Hosts, refuse_foreign_origins, refuse_unasked, with_origins
from omnigraph.server.http.request import ClientGoneError, Exchange, decode_body, decode_parameters, media_type
from omnigraph.server.http.streaming import BrokenStreamError, StreamDelivery
from omnigraph.server.mcp_mount import Agents, LoadEndpoint, graph_of, load_endpoint
from omnigraph.server.reload import HeldServing, ServingSets
from omnigraph.server.runtime.context import WorkerContext
from omnigraph.server.tokens import Tokens


@dataclass(slots=True)
class _Node:
    """A position in the paths of all routes. A fixed segment wins over a variable one, so `/branches/merge` never names
    a branch."""

    fixed: dict[str, _Node] = field(default_factory=dict)
    variable: _Node | None = None
    name: str = ""
    methods: dict[str, Route] = field(default_factory=dict)

    def child(self, segment: str) -> _Node:
        if not segment.startswith("{"):
            return self.fixed.setdefault(segment, _Node())
        self.variable = self.variable or _Node(name=segment.strip("{}"))
        assert self.variable.name == segment.strip("{}"), "a variable segment of a path has one name"
        return self.variable


_PATHS: Final = _Node()
for _route in ROUTES:
    _end = reduce(_Node.child, _route.full_path.strip("/").split("/"), _PATHS)
    _end.methods[_route.method] = _route
    if _route.method == "GET":
        _end.methods.setdefault("HEAD", _route)


def match_path(raw_path: bytes) -> tuple[Mapping[str, Route], dict[str, str]]:
    """The routes of a path by their methods, and the values of its variable segments. Unknown paths have no routes.

    Segments are decoded one by one: `feature%2Fx` is one segment with a slash in it, and Starlette's own router would
    see two. A trailing slash makes another path.
    """
    node, values = _PATHS, dict[str, str]()
    if not raw_path.startswith(b"/"):
        return {}, {}
    for quoted in raw_path[1:].split(b"/"):
        try:
            segment = unquote_to_bytes(quoted).decode()
        except UnicodeDecodeError:
            return {}, {}
        if segment in node.fixed:
            node = node.fixed[segment]
        elif node.variable is not None and segment:
            node = node.variable
            values[node.name] = segment
        else:
            return {}, {}
    return node.methods, values


HANDLER_MODULES: Final = (changes, reads, service, writes)
"""Importing them registers the handlers."""

Result = TypeVar("Result")

_SOON: Final = 0.05
_NO_SUCH_PATH: Final = "there is no such path; name the graph, as in /graphs/<id>/query, or see /openapi.json"


class Application:
    """One process's share of a server."""

    def __init__(
        self,
        services: Services,
        tokens: Tokens,
        agents: LoadEndpoint | None = None,
        origins: Collection[str] = (),
        hosts: Hosts | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._services = services
        self._telemetry = services.telemetry
        self._agents = None if agents is None else Agents(agents)
        self._origins = frozenset(origins)
        self._hosts = hosts or Hosts()
        self._tokens = tokens
        self._close = close
        self._limits = services.limits
        self._pools = Pools(services.limits, services.telemetry.metrics.count_refusal)
        self._streams = StreamDelivery(self._pools)
        self._feeds = Feeds(self._pools)
        self._lifespan = Router(lifespan=self._live)
        logging.getLogger("uvicorn.error").addFilter(_is_not_broken_stream)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._exchange if scope["type"] == "http" else self._lifespan)(scope, receive, send)

    @asynccontextmanager
    async def _live(self, _: Router) -> AsyncIterator[None]:
        yield
        if self._agents is not None:
            await self._agents.close()
        await self._streams.wait_until_closed()
        self._pools.close()
        await asyncio.to_thread(self._close)

    def drain(self) -> None:
        """End long polls and event streams."""
        self._feeds.stop()

    # The way of a request

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self._limits)
        try:
            await self._respond(exchange)
        except ClientGoneError:
            exchange.record.broke_off = True
            if exchange.record.status:
                raise BrokenStreamError from None
        finally:
            self._telemetry.end_request(exchange.end())

    async def _respond(self, exchange: Exchange) -> None:
        methods, path = match_path(exchange.raw_path)
        try:
            # A caller with a token is not a page of another site that was led here.
            if not self._services.states.serving.requires_token:
                self._hosts.refuse_others(exchange.header_values("host"), exchange.scope)
            if not methods:
                raise NotFoundError(_NO_SUCH_PATH)
        except OmniGraphError as error:
            await exchange.respond(responses.error_response(error, exchange.request_id), None)
            return
        if (route := methods.get(exchange.method)) is not None:
            await self._run_route(exchange, route, path)
            return
        allow = ", ".join(sorted(methods))
        message = f"{exchange.method} is not a method of this path; it has {allow}"
        output = ErrorOutput(error=message, code=ErrorCode.METHOD_NOT_ALLOWED)
        await exchange.respond(responses.Response(wire.encode(output), 405, headers={"Allow": allow}), None)

    async def _run_route(self, exchange: Exchange, route: Route, path: dict[str, str]) -> None:
        exchange.record.operation_id = route.operation_id
        self._telemetry.begin_request(route.operation_id)
        held = self._services.states.hold()
        try:
            await self._run_call(self._begin_call(exchange, route, path, held))
        except (ClientGoneError, BrokenStreamError):
            raise
        except Exception as error:
            await self._send_error(exchange, route, error)
        finally:
            exchange.close()
            held.release()

    def _begin_call(self, exchange: Exchange, route: Route, path: dict[str, str], held: HeldServing) -> Call:
        """Authenticate the caller, find the graph, and refuse what the headers say already."""
        record, target = exchange.record, None
        if held.serving.requires_token and not route.public:
            record.actor = self._tokens.authenticate(exchange.headers.get("authorization"))
        if route.of_graph:
            target = held.serving.graph(path.pop("graph_id"))
            record.graph_id = target.graph_id
        encoding = exchange.headers.get("content-encoding", "")
        # A body is read as it comes: unpacking one could make it any size.
        if route.body is not Body.NONE and encoding.lower() not in ("", "identity"):
            raise UnsupportedMediaTypeError(f"the body is sent as '{encoding}': send it without Content-Encoding")
        if route.request_is_optional:
            refuse_unasked(exchange.headers, self._origins)
        return Call(route, exchange, path, self._services, held, target)

    async def _run_call(self, call: Call) -> None:
        route = call.route
        # A read counts for its actor from here to its last byte. Writes and feeds are counted elsewhere, and what
        # everybody may ask is not.
        is_counted = not (route.public or call.writes or route.operation_id == "pollChanges")
        with self._services.budgets.read(call.actor) if is_counted else nullcontext():
            match route.operation_id:
                case "loadNdjson" | "loadRows":
                    await self._load(call)
                case "pollChanges":
                    await self._poll(call)
                case "mcp" | "mcpOfServer" if self._agents is not None:
                    await self._respond_to_agent(call, self._agents)
                case _:
                    await self._call(call)

    async def _call(self, call: Call) -> None:
        route, exchange = call.route, call.exchange
        body = b"" if route.body is Body.NONE else await exchange.body(route)

        def work() -> responses.AnyResponse:
            parameters = decode_parameters(route, exchange.query_string)
            decoded = decode_body(route, body, exchange.headers.get("content-type"))
            raw = exchange.query_string + b"\0" + body
            handler = HANDLERS[route.operation_id]
            return handler(replace(call, parameters=parameters, body=decoded, raw_request=raw))

        response = await self._in_time(call, work)
        if isinstance(response, responses.Response):
            await exchange.respond(response, route)
            return
        # The stream keeps the graph that it reads open until it is put away, which may be after its request.
        release = ExitStack()
        release.callback(call.held.hold().release)
        release.callback(response.release)
        log_failure = partial(self._log_failure, exchange)
        await self._streams.send(call, replace(response, release=release.close), log_failure)

    async def _load(self, call: Call) -> None:
        """A load: its actor is authorized before the body is received."""
        route, exchange, media = call.route, call.exchange, media_type(call.headers.get("content-type"))
        if media not in route.request_media:
            what = "records by line" if route.request_media == (Media.NDJSON,) else "rows of one type"
            taken = ", ".join(f"'{taken}'" for taken in route.request_media)
            raise UnsupportedMediaTypeError(f"the body must be {what}: send it as {taken}")
        parameters: LoadParameters = decode_parameters(route, exchange.query_string)
        call = replace(call, parameters=parameters)
        if isinstance(parameters, RowsParameters):
            row_format(parameters, Media(media))  # an unknown format is refused before the body is received
        target = await self._pools.read(call.actor, lambda: load_target(call, parameters.branch, parameters.base))
        async with exchange.body_in_file(route) as path:
            received = ReceivedFile(path, exchange.record.received_bytes, target, Media(media))
            handler, call = HANDLERS[route.operation_id], replace(call, body=received)
            response = await self._in_time(call, lambda: handler(call))
        assert isinstance(response, responses.Response)
        await exchange.respond(response, route)

    async def _poll(self, call: Call) -> None:
        exchange = call.exchange
        call = replace(call, parameters=decode_parameters(call.route, exchange.query_string))
        media = responses.chosen_media(exchange.headers.get("accept"), call.route.media)
        whole, budgets = exchange.is_head or media is Media.JSON, self._services.budgets
        waits = not whole or bool(call.parameters.wait_ms)
        with budgets.read(call.actor):
            graph = await self._pools.read(call.actor, lambda: feed_graph(call))
        with budgets.follow(call.actor) if waits else budgets.read(call.actor):
            feed = self._feeds.follow(call, graph)
            if whole:
                await exchange.respond(await feed.respond(), call.route)
                return
            with self._telemetry.metrics.streams.labels(call.served.graph_id).track_inprogress():
                await feed.stream(partial(self._log_failure, exchange))

    async def _respond_to_agent(self, call: Call, agents: Agents) -> None:
        """A request in the protocol of agents. Its failures are errors of that protocol, in the words of HTTP."""
        exchange = call.exchange
        refuse_foreign_origins(call.headers, self._origins)
        if call.target is None:
            call = replace(call, target=graph_of(call, call.held.serving))
            exchange.record.graph_id = call.served.graph_id

        async def in_time(called: Call, work: Callable[[], Any]) -> Any:
            try:
                return await self._in_time(called, work)
            except Exception as error:
                self._log_failure(exchange, error)
                named = responses.name_limit(error, self._limits.query_seconds)
                raise responses.error_output(named, exchange.request_id, call.route).rebuilt() from error

        body = await exchange.body(call.route)
        await exchange.respond(await agents.respond(call, body, in_time), call.route)

    async def _in_time(self, call: Call, work: Callable[[], Result]) -> Result:
        """Run a handler. A read ends when its time is over or its client is gone; a write that has begun is finished,
        because its caller could not learn whether it happened."""
        work = self._telemetry.trace(call.route.operation_id, work)
        if call.writes:
            return await self._pools.write(work)
        seconds, gone = self._limits.query_seconds, call.exchange.client_gone
        if call.route.tag == "management":
            running = self._pools.look(work)
        else:
            running = await self._pools.begin_read(call.actor, work, gone)
        try:
            # Most reads end so soon that it is not worth while to listen for their client.
            await asyncio.wait((running,), timeout=min(_SOON, seconds))
            if not running.done():
                until = max(0.0, seconds - _SOON)
                await asyncio.wait((running, gone()), timeout=until, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the server ends
            call.cancellation.cancel()
            raise
        if running.done():
            return running.result()
        call.cancellation.cancel()
        held = call.held.hold()  # the thread goes on for a while
        running.add_done_callback(lambda done: _put_away(done, held))
        if gone().done():
            raise ClientGoneError
        raise responses.too_long(seconds)

    # Failures

    async def _send_error(self, exchange: Exchange, route: Route, error: Exception) -> None:
        error = responses.name_limit(error, self._limits.query_seconds)
        response = responses.error_response(error, exchange.request_id, route)
        self._log_failure(exchange, error)
        if exchange.record.status:
            exchange.record.broke_off = True
            raise BrokenStreamError from error
        # The rest of a refused body must not be parsed as the next request.
        unread = route.body is not Body.NONE and exchange.has_body
        if unread and response.status not in (408, 413) and not exchange.awaits_go_ahead:
            unread = not await exchange.skip_body()
        headers = {**response.headers, "Connection": "close"} if unread else response.headers
        await exchange.respond(replace(response, headers=headers), route)

    def _log_failure(self, exchange: Exchange, error: BaseException) -> None:
        """Log the cause of a fault. A caller's mistake is reported to the caller only, and a refusal by a full worker
        is counted where it happens."""
        if isinstance(error, UnavailableError):
            return
        if not isinstance(error, OmniGraphError) or error.http_status >= 500:
            self._telemetry.log_failure(exchange.record, error)


def _put_away(running: asyncio.Future[Any], held: HeldServing) -> None:
    """Close a stream that no client waits for, and release its serving set."""
    has_result = not running.cancelled() and running.exception() is None
    if has_result and isinstance(response := running.result(), responses.StreamResponse):
        response.release()
    held.release()


def _is_not_broken_stream(record: logging.LogRecord) -> bool:
    """A stream that was broken off on purpose is in our own log; the HTTP server need not report it as a fault."""
    return record.exc_info is None or not isinstance(record.exc_info[1], BrokenStreamError)


def application(states: ServingSets, tokens: Tokens, context: WorkerContext) -> ASGIApp:
    settings, telemetry = context.settings, context.telemetry
    source_version = os.environ.get("OMNIGRAPH_SOURCE_VERSION") or None
    services = Services(states, settings.limits, context.budgets, telemetry, __version__, source_version)
    hosts = Hosts(settings.host, settings.allowed_hosts)
    agents = partial(load_endpoint, settings.agents)
    app = Application(services, tokens, agents, settings.allow_origins, hosts, context.close)
    context.draining.then(app.drain)
    return telemetry.tracing.wrap(with_origins(app, settings.allow_origins))
