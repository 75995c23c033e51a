"""Connections of clients that may be slow, greedy or many: the guards in front of HTTP parsing.

uvicorn's parser keeps headers of any length, waits for them for ever, queues requests and accepts connections without
end. Here each of them has a limit, and an answer. Slow bodies and slow readers are the application's business: it knows
the request.

Answers for clients of HTTP/1.0, which know no chunks: to them a body ends with its connection.

Answers that no application gives: to what is no request yet, and to whoever comes when the server ends.

Taking connections from a socket that several workers listen on, so that each gets its share of them.

Left to the kernel, whoever wakes up first takes all that are waiting, and a client's pool of connections may end in one
worker while the others idle. Here a worker takes one at a time, and leaves it for a moment to those who have fewer. A
worker that does not come in that moment loses nothing: the next one takes it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import Callable, Sized
from http import HTTPStatus
from typing import Any, Final

import httptools
from uvicorn import Config
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from omnigraph.server.board import Board
from omnigraph.server.runtime.context import Draining
from omnigraph.server.settings import ServerLimits

_AT_ONCE: Final = struct.pack("ii", 1, 0)


def without_chunks(application: ASGI3Application, cycle: RequestResponseCycle) -> ASGI3Application:
    """The application with bodies as they are. One that breaks off resets its connection, because an ordinary end
    would make it look complete."""

    async def unframed(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        async def send_as_it_is(event: ASGISendEvent) -> None:
            if event["type"] == "http.response.start":
                cycle.chunked_encoding = False
            elif event["type"] == "http.response.body":
                cycle.expected_content_length = len(event.get("body", b""))
            await send(event)

        try:
            await application(scope, receive, send_as_it_is)
        except BaseException:
            if cycle.response_started:
                _reset(cycle.transport)
            raise

    return unframed


def _reset(transport: asyncio.Transport) -> None:
    """End the connection so that its client sees it as an error."""
    connection: socket.socket = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    transport.abort()


RETRY_AFTER: Final = 1
"""Seconds. Another connection, or the next server behind the same address, may have room at once."""

ENDING: Final = "this server is ending; try again"


def refusal(status: int, message: str) -> bytes:
    """A whole answer, after which the connection ends."""
    body = _body(message, status)
    retry = f"retry-after: {RETRY_AFTER}\r\n" if status == 503 else ""
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{retry}connection: close\r\n\r\n"
    )
    return head.encode() + body


async def server_is_ending(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """The application of requests that come after the server was told to end."""
    body = _body(ENDING, 503)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(RETRY_AFTER).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _body(message: str, status: int) -> bytes:
    return json.dumps({"error": message, "code": "bad_request"} if status == 400 else {"error": message}).encode()


BACKLOG: Final = 2048

_QUEUED_AT_MOST: Final = 64
"""Requests of one connection that wait for the answer to the one before them."""
_LINGER_SECONDS: Final = 2.0
_LINGERING_AT_MOST: Final = 256


class GuardedConfig(Config):
    """uvicorn's configuration, with our limits and the news that the server is ending."""

    def __init__(
        self,
        app: ASGI3Application,
        limits: ServerLimits,
        draining: Draining,
        connections_changed: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(
            app,
            http=GuardedProtocol,
            ws="none",
            lifespan="auto",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
        )
        self.limits = limits
        self.draining = draining
        self.connections_changed = connections_changed
        self.lingering = 0


class GuardedProtocol(HttpToolsProtocol):
    """One connection. It holds little while it is idle: there may be ten thousand of them."""

    def __init__(
        self,
        config: GuardedConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._guard = config
        self._limits = config.limits
        self.timeout_keep_alive = config.limits.keep_alive_seconds  # type: ignore[assignment]  # a float does as well
        self._deadline: asyncio.TimerHandle | None = None
        self._refused = False
        self._is_deaf = False
        """Nothing that comes from now on is listened to."""
        self._active: RequestResponseCycle | None = None
        """The request that is being answered. `cycle` is the newest one, which may still be queued behind it."""
        self._between_requests = True
        self._header_bytes = 0
        self._unexplained_bytes = 0
        """Received since the parser last told of something whole. Headers and trailers are kept until they are."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _OneAfterTheOther(transport, self.pipeline)
        if self._guard.draining.began:
            # It was taken in the last moment; nobody would tell it to end.
            self._refuse(503, ENDING)
        elif len(self.connections) > self._limits.connections:
            limit = self._limits.connections
            self._refuse(503, f"this server holds {limit} connections, its limit (--connections); try again")
        else:
            self._tell_count()
            self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._unset_keepalive_if_required()
        if self._refused:
            self._guard.lingering -= 1
        super().connection_lost(exc)
        if self._active is not None:
            # uvicorn tells the newest request alone.
            _abandon(self._active)
        self.pipeline.clear()
        self._tell_count()

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self._unset_keepalive_if_required()
        self._unexplained_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Another protocol is offered and not taken up. The request is answered, and nothing behind it is HTTP.
            if self.cycle is not None:
                self.cycle.keep_alive = False
            return
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _HeadersTooLargeError):
                self._refuse_headers()
            elif isinstance(error.__context__, _TooManyQueuedError):
                self._end_after_answers()
            else:
                self._refuse(400, "this is not a valid HTTP/1.1 request")
            return
        if self._unexplained_bytes > self._limits.header_bytes:
            self._refuse_headers()
        elif self._between_requests and self._unexplained_bytes and self._deadline is None:
            self._deadline = self.loop.call_later(self._limits.header_seconds, self._headers_are_late)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _QUEUED_AT_MOST:
            raise _TooManyQueuedError
        super().on_message_begin()
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come here as well.
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._cancel_deadline()
        self._between_requests = False
        self._unexplained_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unexplained_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._between_requests = True
        self._unexplained_bytes = 0
        if self.cycle.response_complete:
            # The rest of a body that nobody wanted has come.
            self._cancel_deadline()
            self._forget_request()
            self._wait_for_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._between_requests:
            self._forget_request()
        else:
            # What is left of the body is dropped as it comes. Closing at once would tear the answer from the client.
            self._cancel_deadline()
            self._deadline = self.loop.call_later(self._limits.header_seconds, self.transport.close)

    def shutdown(self) -> None:
        """The server ends: what is under way gets its answer, a request that is just coming in a refusal."""
        if self._is_answering() or (self._between_requests and self._deadline is None):
            super().shutdown()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._active = cycle
        if self._guard.draining.began:
            app = server_is_ending
        if cycle.scope["http_version"] != "1.1":
            app = without_chunks(app, cycle)
        super()._start_asgi_task(cycle, app)

    def _tell_count(self) -> None:
        if self._guard.connections_changed is not None:
            self._guard.connections_changed(len(self.connections))

    def _count(self, length: int) -> None:
        self._header_bytes += length
        if self._header_bytes > self._limits.header_bytes:
            raise _HeadersTooLargeError

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_request(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _forget_request(self) -> None:
        if not self._is_answering():
            self.cycle = self.scope = self.headers = self._active = None  # type: ignore[assignment]

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _headers_are_late(self) -> None:
        seconds = self._limits.header_seconds
        self._refuse(408, f"the headers of the request did not arrive within {seconds:g} s (--header-seconds)")

    def _refuse_headers(self) -> None:
        limit = self._limits.header_bytes
        self._refuse(431, f"the headers of the request are over the limit of {limit} bytes (--header-bytes)")

    def _refuse(self, status: int, message: str) -> None:
        """Answer before there is a request, or before all of it is there, and end the connection."""
        self._cancel_deadline()
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            return
        if self._is_answering():
            if self._between_requests:
                self._end_after_answers()
                return
            if self.pipeline or self.cycle.response_started:
                # Nothing may be written into the answer that is on its way.
                self.transport.close()
                return
            _abandon(self.cycle)
        self.transport.write(refusal(status, message))
        self.connections.discard(self)
        self._refused = self._is_deaf = True
        self._guard.lingering += 1
        if self._guard.lingering > _LINGERING_AT_MOST:
            self.transport.close()
            return
        # The client may still be sending. Closing now would make its kernel throw the answer away unread.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._deadline = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def _end_after_answers(self) -> None:
        """What has come whole is answered, and nothing behind it is listened to."""
        self._is_deaf = True
        self.cycle.keep_alive = False


class _OneAfterTheOther(FlowControl):
    """Receives nothing more while a request is queued: whoever sends without end would fill the memory."""

    def __init__(self, transport: asyncio.Transport, queued: Sized) -> None:
        super().__init__(transport)
        self._queued = queued

    def resume_reading(self) -> None:
        if not self._queued:
            super().resume_reading()


class _HeadersTooLargeError(Exception):
    """Raised into the parser, which stops at once."""


class _TooManyQueuedError(Exception):
    """Raised into the parser, which stops at once."""


def _abandon(cycle: RequestResponseCycle) -> None:
    """Let the application know that nobody waits for its answer."""
    if not cycle.response_complete:
        cycle.disconnected = True
    cycle.message_event.set()


_MOMENT: Final = 0.002
_NO_FILES_LEFT_PAUSE: Final = 0.5

logger: Final = logging.getLogger("omnigraph.server")


class BalancedAcceptor:
    """One worker's side of the socket. uvicorn ends it like a server of its own."""

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        board: Board,
        worker: int,
        connections: Sized,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._protocol = protocol
        self._board = board
        self._worker = worker
        self._connections = connections
        self._arriving: set[asyncio.Task[object]] = set()
        self._left_to_others = False
        self._closed = False
        listener.setblocking(False)
        board.post_connections(worker, len(connections))
        self._listen()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener.fileno())

    async def wait_closed(self) -> None:
        if self._arriving:
            await asyncio.wait(self._arriving)

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener.fileno(), self._take)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(seconds, self._listen)

    def _take(self) -> None:
        mine = len(self._connections) + len(self._arriving)
        fewest = self._board.fewest_connections_but(self._worker)
        if not self._left_to_others and fewest is not None and fewest < mine:
            self._left_to_others = True
            self._pause(_MOMENT)
            return
        self._left_to_others = False
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another worker was quicker, or the client gave up
        except OSError as error:
            logger.error("no connection can be taken: %s", error.strerror)
            self._pause(_NO_FILES_LEFT_PAUSE)
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._board.post_connections(self._worker, mine + 1)
        arriving = self._loop.create_task(self._arrive(connection))
        self._arriving.add(arriving)
        arriving.add_done_callback(self._arriving.discard)

    async def _arrive(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError:
            connection.close()  # the client is gone already
