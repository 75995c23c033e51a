"""The ASGI application: every request takes the same path from its route to its response.

In the event loop it matches the path, authenticates the caller, finds the graph and receives the body. In a thread of
a pool it decodes the request, calls the handler and encodes the response, so that a large request delays no other.
A worker calls `application` once. Nothing here decides what an actor may do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from omnigraph import __version__
from omnigraph.api import wire
from omnigraph.api.service.http import ErrorOutput, LoadParameters, RowsParameters
from omnigraph.api.service.routes import ROUTES, Body, Media, Route
from omnigraph.engine.query.limits import Cancellation
from omnigraph.errors import ErrorCode, NotFoundError, OmniGraphError, UnavailableError, UnsupportedMediaTypeError
from omnigraph.server.admission import Budgets, Cap, Pools, WriteTurns
from omnigraph.server.handlers import changes, reads, service, writes
from omnigraph.server.handlers.changes import Feeds, feed_graph
from omnigraph.server.handlers.writes import load_target, row_format
from omnigraph.server.http.call import HANDLERS, Call, ReceivedFile, Services
from omnigraph.server.http.origins import Hosts, refuse_foreign_origins, refuse_unasked, with_origins
from omnigraph.server.http.request import (
    Ceiling,
    ClientGoneError,
    Exchange,
    body_in_file,
    decode_body,
    decode_parameters,
    is_received,
    media_type,
    refuse_encoded,
    whole_body,
)
from omnigraph.server.http.responses import (
    AnyResponse,
    Response,
    StreamResponse,
    chosen_media,
    error_output,
    error_response,
    name_limit,
    too_long,
)
from omnigraph.server.http.streaming import BrokenStreamError, StreamDelivery
from omnigraph.server.mcp_mount import Agents, LoadEndpoint, graph_of, load_endpoint
from omnigraph.server.reload import HeldServing, ServingSets
from omnigraph.server.runtime.context import Observing, WorkerContext
from omnigraph.server.runtime.tracing import RequestRecord
from omnigraph.server.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Match:
    """A route and the values of the variable segments of the path."""

    route: Route
    path: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WrongMethod:
    """A path that exists, and a method that it does not have."""

    allow: str


@dataclass(slots=True)
class _Node:
    fixed: dict[str, _Node] = field(default_factory=dict)
    variable: tuple[str, _Node] | None = None
    methods: dict[str, Route] = field(default_factory=dict)


class Router:
    """A fixed segment wins over a variable one, so `/branches/merge` never names a branch.

    Segments are decoded one by one: `feature%2Fx` is one segment with a slash in it.
    """

    def __init__(self, routes: Iterable[Route] = ROUTES) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in route.full_path.strip("/").split("/"):
                node = _child(node, segment)
            node.methods[route.method] = route
            if route.method == "GET":
                node.methods.setdefault("HEAD", route)

    def match(self, raw_path: bytes, method: str) -> Match | WrongMethod | None:
        """None when there is no such path. A trailing slash makes another path."""
        if not raw_path.startswith(b"/"):
            return None
        node, path = self._root, {}
        for quoted in raw_path[1:].split(b"/"):
            try:
                segment = unquote_to_bytes(quoted).decode()
            except UnicodeDecodeError:
                return None
            if segment in node.fixed:
                node = node.fixed[segment]
            elif node.variable is not None and segment:
                name, node = node.variable
                path[name] = segment
            else:
                return None
        if not node.methods:
            return None
        route = node.methods.get(method)
        return Match(route, path) if route is not None else WrongMethod(", ".join(sorted(node.methods)))


def _child(node: _Node, segment: str) -> _Node:
    if not segment.startswith("{"):
        return node.fixed.setdefault(segment, _Node())
    name = segment.strip("{}")
    if node.variable is None:
        node.variable = name, _Node()
    assert node.variable[0] == name, "one place of a path has one name"
    return node.variable[1]


ROUTER: Final = Router()


HANDLER_MODULES: Final = (changes, reads, service, writes)
"""Importing them registers the handlers."""

Result = TypeVar("Result")

_CLOSES: Final = {"Connection": "close"}
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
        refused: Callable[[Cap], None] = lambda cap: None,
    ) -> None:
        self._services = services
        self._agents = None if agents is None else Agents(agents)
        self._origins = frozenset(origins)
        self._hosts = hosts or Hosts()
        self._tokens = tokens
        self._limits = services.limits
        self._pools = Pools(services.limits, refused)
        self._streams = StreamDelivery(self._pools)
        self._feeds = Feeds(self._pools)
        logging.getLogger("uvicorn.error").addFilter(_is_not_broken_stream)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._exchange(Exchange(scope, receive, send, self._limits.send_seconds))
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                if self._agents is not None:
                    await self._agents.close()
                await self._streams.wait_until_closed()
                self._pools.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def drain(self) -> None:
        """End long polls and event streams."""
        self._feeds.stop()

    # The way of a request

    async def _exchange(self, exchange: Exchange) -> None:
        matched = ROUTER.match(exchange.raw_path, exchange.method)
        try:
            if (refusal := self._misdirection(exchange)) is not None:
                await exchange.respond(error_response(refusal, exchange.request_id), None)
                return
            match matched:
                case Match():
                    await self._run_route(exchange, matched)
                case WrongMethod():
                    await exchange.respond(_wrong_method(exchange, matched), None)
                case None:
                    await exchange.respond(error_response(NotFoundError(_NO_SUCH_PATH), exchange.request_id), None)
        except ClientGoneError:
            exchange.broke_off = True
            if exchange.status:
                raise BrokenStreamError from None
        finally:
            self._record(exchange)

    def _misdirection(self, exchange: Exchange) -> OmniGraphError | None:
        """Why a request is not meant for this server. A caller with a token is not a page that was led here."""
        if self._services.states.serving.requires_token:
            return None
        try:
            self._hosts.refuse_others(exchange.hosts, exchange.local_address, exchange.http_version)
        except OmniGraphError as error:
            return error
        return None

    async def _run_route(self, exchange: Exchange, matched: Match) -> None:
        route = matched.route
        exchange.operation_id = route.operation_id
        self._services.observer.began(route.operation_id)
        state = self._services.states.hold()
        try:
            await self._respond(exchange, route, dict(matched.path), state)
        except (ClientGoneError, BrokenStreamError):
            raise
        except Exception as error:
            await self._send_error(exchange, route, error)
        finally:
            exchange.close()
            state.release()

    async def _respond(self, exchange: Exchange, route: Route, path: dict[str, str], state: HeldServing) -> None:
        if state.serving.requires_token and not route.public:
            exchange.actor = self._tokens.authenticate(exchange.headers.get("authorization"))
        call = Call(
            route,
            exchange.request_id,
            exchange.actor,
            exchange.headers,
            path,
            self._services,
            state,
            all_headers=exchange.all_headers,
            is_head=exchange.is_head,
            cancellation=Cancellation(),
        )
        if route.of_graph:
            call = replace(call, target=state.serving.graph(path.pop("graph_id")))
            exchange.graph_id = call.served.graph_id
        if route.body is not Body.NONE:
            refuse_encoded(exchange.headers.get("content-encoding"))
        if route.request_is_optional:
            refuse_unasked(exchange.headers, self._origins)
        with self._reserve_read(call):
            match route.operation_id:
                case "loadNdjson" | "loadRows":
                    await self._load(exchange, call)
                case "pollChanges":
                    await self._poll(exchange, call)
                case "mcp" | "mcpOfServer" if self._agents is not None:
                    await self._respond_to_agent(exchange, call, self._agents)
                case _:
                    await self._call(exchange, call)

    def _reserve_read(self, call: Call) -> AbstractContextManager[None]:
        """A read counts for its actor from here to its last byte. Writes and feeds are counted elsewhere, and what
        everybody may ask is not."""
        route = call.route
        if route.public or call.writes or route.operation_id == "pollChanges":
            return nullcontext()
        return self._services.budgets.reading(call.actor)

    async def _call(self, exchange: Exchange, call: Call) -> None:
        body = b""
        if call.route.body is not Body.NONE:
            ceiling = self._ceiling(call.route)
            seconds = self._limits.body_seconds
            body = await whole_body(exchange.receive, ceiling, exchange.declared_length, seconds)
            exchange.received = len(body)
        response = await self._in_time(exchange, call, lambda: _handle(_decode(call, exchange, body)))
        if isinstance(response, Response):
            await exchange.respond(response, call.route)
            return
        await self._streams.send(
            exchange,
            _keep_open(response, call.held),
            call.route,
            seconds=self._limits.query_seconds,
            cancel=call.cancellation.cancel,
            failed=lambda error: self._log_failure(exchange, error),
        )

    async def _load(self, exchange: Exchange, call: Call) -> None:
        """A load: its actor is authorized before the body is received."""
        media = media_type(exchange.headers.get("content-type"))
        if media not in call.route.request_media:
            what = "records by line" if call.route.request_media == (Media.NDJSON,) else "rows of one type"
            taken = ", ".join(f"'{taken}'" for taken in call.route.request_media)
            raise UnsupportedMediaTypeError(f"the body must be {what}: send it as {taken}")
        parameters: LoadParameters = decode_parameters(call.route, exchange.query_string)
        call = replace(call, parameters=parameters)
        if isinstance(parameters, RowsParameters):
            row_format(parameters, Media(media))  # an unknown format is refused before the body is received
        target = await self._pools.read(call.actor, lambda: load_target(call, parameters.branch, parameters.base))
        ceiling, seconds = self._ceiling(call.route), self._limits.body_seconds
        async with body_in_file(exchange.receive, ceiling, exchange.declared_length, seconds) as (path, size):
            exchange.received = size
            received = ReceivedFile(path, size, target, Media(media))
            response = await self._in_time(exchange, call, lambda: _handle(replace(call, received_file=received)))
        assert isinstance(response, Response)
        await exchange.respond(response, call.route)

    async def _poll(self, exchange: Exchange, call: Call) -> None:
        call = replace(call, parameters=decode_parameters(call.route, exchange.query_string))
        media = chosen_media(exchange.headers.get("accept"), call.route.media)
        whole, budgets = exchange.is_head or media is Media.JSON, self._services.budgets
        waits = not whole or bool(call.parameters.wait_ms)
        with budgets.reading(call.actor):
            graph = await self._pools.read(call.actor, lambda: feed_graph(call))
        with budgets.following(call.actor) if waits else budgets.reading(call.actor):
            if whole:
                await exchange.respond(await self._feeds.of(call.held).respond(call, graph, exchange), call.route)
                return
            graph_id = call.served.graph_id
            self._services.observer.stream_opened(graph_id)
            try:
                feed = self._feeds.of(call.held)
                await feed.stream(call, graph, exchange, lambda error: self._log_failure(exchange, error))
            finally:
                self._services.observer.stream_closed(graph_id)

    async def _respond_to_agent(self, exchange: Exchange, call: Call, agents: Agents) -> None:
        """A request in the protocol of agents. Its failures are errors of that protocol, in the words of HTTP."""
        refuse_foreign_origins(call.headers, self._origins)
        if call.target is None:
            call = replace(call, target=graph_of(call, call.held.serving))
            exchange.graph_id = call.served.graph_id

        async def in_time(called: Call, work: Callable[[], Any]) -> Any:
            try:
                return await self._in_time(exchange, called, work)
            except Exception as error:
                self._log_failure(exchange, error)
                named = name_limit(error, self._limits.query_seconds)
                raise error_output(named, exchange.request_id, call.route).rebuilt() from error

        seconds = self._limits.body_seconds
        body = await whole_body(exchange.receive, self._ceiling(call.route), exchange.declared_length, seconds)
        exchange.received = len(body)
        await exchange.respond(await agents.respond(call, exchange, body, in_time), call.route)

    async def _in_time(self, exchange: Exchange, call: Call, work: Callable[[], Result]) -> Result:
        """Run a handler. A read ends when its time is over or its client is gone; a write that has begun is finished,
        because its caller could not learn whether it happened."""
        work = self._services.observer.around(call.route.operation_id, work)
        if call.writes:
            return await self._pools.write(work)
        gone = exchange.client_gone()
        if call.route.tag == "management":
            running = self._pools.look(work)
        else:
            running = await self._pools.begin_read(call.actor, work, gone)
        either: set[asyncio.Future[Any]] = {running, gone}
        try:
            await asyncio.wait(either, timeout=self._limits.query_seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the server ends
            call.cancellation.cancel()
            raise
        if running.done():
            return running.result()
        call.cancellation.cancel()
        held = call.held.hold()  # the thread goes on for a while
        running.add_done_callback(lambda done: _put_away(done, held))
        if gone.done():
            raise ClientGoneError
        raise too_long(self._limits.query_seconds)

    # Failures and records

    async def _send_error(self, exchange: Exchange, route: Route, error: Exception) -> None:
        error = name_limit(error, self._limits.query_seconds)
        response = error_response(error, exchange.request_id, route)
        self._log_failure(exchange, error)
        if exchange.status:
            exchange.broke_off = True
            raise BrokenStreamError from error
        # The rest of a refused body must not be parsed as the next request.
        unread = route.body is not Body.NONE and exchange.has_body
        if unread and response.status not in (408, 413) and not exchange.awaits_go_ahead:
            unread = not await is_received(exchange.receive, exchange.declared_length)
        headers = {**response.headers, **_CLOSES} if unread else response.headers
        await exchange.respond(replace(response, headers=headers), route)

    def _log_failure(self, exchange: Exchange, error: BaseException) -> None:
        """Log the cause of a fault. A caller's mistake is reported to the caller only, and a refusal by a full worker
        is counted where it happens."""
        if isinstance(error, UnavailableError):
            return
        if not isinstance(error, OmniGraphError) or error.http_status >= 500:
            self._services.observer.failed(exchange.request_id, exchange.operation_id, error)

    def _record(self, exchange: Exchange) -> None:
        self._services.observer.answered(
            RequestRecord(
                exchange.request_id,
                exchange.operation_id,
                exchange.method,
                exchange.status,
                time.perf_counter() - exchange.began,
                exchange.graph_id,
                exchange.actor,
                exchange.received,
                exchange.sent,
                exchange.broke_off,
            )
        )

    def _ceiling(self, route: Route) -> Ceiling:
        limits = self._limits
        match route.body:
            case Body.WHOLE_LOAD:
                return Ceiling("request body bytes", limits.load_body_bytes, "--load-body-bytes")
            case Body.STREAMED_LOAD:
                return Ceiling("graph_batch_request_bytes", limits.load_bytes, "--load-bytes")
            case _:
                return Ceiling("request body bytes", limits.body_bytes, "--body-bytes")


def _decode(call: Call, exchange: Exchange, body: bytes) -> Call:
    parameters = decode_parameters(call.route, exchange.query_string)
    decoded = decode_body(call.route, body, exchange.headers.get("content-type"))
    return replace(call, parameters=parameters, body=decoded, raw_request=exchange.query_string + b"\0" + body)


def _handle(call: Call) -> AnyResponse:
    return HANDLERS[call.route.operation_id](call)


def _put_away(running: asyncio.Future[Any], held: HeldServing) -> None:
    """Close a stream that no client waits for, and release its serving set."""
    if (
        not running.cancelled()
        and running.exception() is None
        and isinstance(response := running.result(), StreamResponse)
    ):
        response.release()
    held.release()


def _keep_open(response: StreamResponse, state: HeldServing) -> StreamResponse:
    """A stream that keeps the graph it reads open until it is put away, which may be after its request."""
    held = state.hold()

    def release() -> None:
        try:
            response.release()
        finally:
            held.release()

    return replace(response, release=release)


def _wrong_method(exchange: Exchange, wrong: WrongMethod) -> Response:
    output = ErrorOutput(
        error=f"{exchange.method} is not a method of this path; it has {wrong.allow}",
        code=ErrorCode.METHOD_NOT_ALLOWED,
    )
    return Response(wire.encode(output), 405, headers={"Allow": wrong.allow})


def _is_not_broken_stream(record: logging.LogRecord) -> bool:
    """A stream that was broken off on purpose is in our own log; the HTTP server need not report it as a fault."""
    return record.exc_info is None or not isinstance(record.exc_info[1], BrokenStreamError)


SOURCE_VERSION: Final = "OMNIGRAPH_SOURCE_VERSION"


def application(states: ServingSets, tokens: Tokens, context: WorkerContext) -> ASGIApp:
    limits = context.settings.limits
    services = Services(
        states,
        limits,
        context.admission,
        Observing(context.metrics, context.tracing),
        Budgets(limits, context.metrics.refused),
        WriteTurns(limits.write_threads),
        __version__,
        os.environ.get(SOURCE_VERSION) or None,
    )
    settings = context.settings
    agents = lambda: load_endpoint(settings.agents)  # noqa: E731
    hosts = Hosts(settings.host, settings.allowed_hosts)
    app = Application(services, tokens, agents, settings.allow_origins, hosts, context.metrics.refused)
    context.draining.then(app.drain)
    return context.tracing.traced(with_origins(app, settings.allow_origins))
