"""The request: its headers, its body within a size and a time, and its parameters and body as structs.

`app` makes an `Exchange` for every request; `decode_parameters` and `decode_body` run in a thread of a pool. Nothing
here knows a graph.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import tempfile
import time
import types
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Message, Receive, Scope, Send

from omnigraph.api import wire
from omnigraph.api.service.routes import REQUEST_ID_HEADER, Body, Media, Route
from omnigraph.errors import (
    BadRequestError,
    RequestShapeError,
    RequestTimeoutError,
    ResourceLimitError,
    UnsupportedMediaTypeError,
)
from omnigraph.server.http.responses import Headers, Response
from omnigraph.server.runtime.tracing import RequestRecord
from omnigraph.server.settings import ServerLimits

SLOWEST_BYTES_PER_SECOND: Final = 16 << 10
_TAKEN_UNWANTED: Final = 1 << 20
_UNWANTED_SECONDS: Final = 0.5
_WRITTEN_AT_ONCE: Final = 1 << 20
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
"""A caller's own request id that is fit for a log."""
_CEILINGS: Final = {
    Body.REQUEST: ("request body bytes", "body_bytes"),
    Body.WHOLE_LOAD: ("request body bytes", "load_body_bytes"),
    Body.STREAMED_LOAD: ("graph_batch_request_bytes", "load_bytes"),
}
"""What the body of a request is called in a refusal, and the limit of the server that it has."""


class ClientGoneError(Exception):
    """The client closed the connection before it had its response."""


class Exchange:
    """A request and the connection it came on. `record` has what is logged and counted of it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: ServerLimits) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.is_head = self.method == "HEAD"
        self.raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        self.query_string: bytes = scope.get("query_string", b"")
        self.headers: dict[str, str] = {}
        """By their names in lower case; the values of a repeated header are joined."""
        for raw_name, value in scope["headers"]:
            name, text = raw_name.decode("latin-1"), _header_text(value)
            self.headers[name] = f"{self.headers[name]}, {text}" if name in self.headers else text
        self.has_body = True
        """Whether some of the request may still be on its way."""
        self.awaits_go_ahead = self.headers.get("expect", "").lower() == "100-continue"
        """Whether the client waits for `100 Continue` before it sends its body."""
        header = self.headers.get(REQUEST_ID_HEADER.lower(), "")
        self.request_id = header if _REQUEST_ID.fullmatch(header) else secrets.token_hex(8)
        self.record = RequestRecord(self.request_id, self.method)
        self._began = time.perf_counter()
        self._receive = receive
        self._send = send
        self._limits = limits
        self._gone: asyncio.Task[None] | None = None

    def header_values(self, name: str) -> list[str]:
        """The values of a header, which a client may repeat."""
        return [_header_text(value) for key, value in self.scope["headers"] if key == name.encode("latin-1")]

    # The body

    async def receive(self) -> Message:
        self.awaits_go_ahead = False
        message = await self._receive()
        self.has_body = message.get("more_body", False)
        return message

    async def body(self, route: Route) -> bytes:
        pieces = [piece async for piece in self._pieces(route.body)]
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.record.received_bytes = len(body)
        return body

    @asynccontextmanager
    async def body_in_file(self, route: Route) -> AsyncIterator[Path]:
        """The body in a temporary file: a slow client holds neither memory nor a thread while it sends."""
        loop = asyncio.get_running_loop()
        with tempfile.NamedTemporaryFile("wb", prefix="omnigraph-load-") as file:
            size, pending = 0, bytearray()
            async for piece in self._pieces(route.body):
                size += len(piece)
                pending += piece
                if len(pending) >= _WRITTEN_AT_ONCE:
                    await loop.run_in_executor(None, file.write, bytes(pending))
                    pending.clear()
            file.write(bytes(pending))
            file.flush()
            self.record.received_bytes = size
            yield Path(file.name)

    async def _pieces(self, kind: Body) -> AsyncIterator[bytes]:
        """The body as it comes. One that is declared too large is refused before it is received."""
        resource, name = _CEILINGS[kind]
        limit: int = getattr(self._limits, name)

        def check(size: int) -> None:
            if size > limit:
                remedy = f"send less, or raise --{name.replace('_', '-')}"
                raise ResourceLimitError(resource, limit, size, remedy)

        declared = self.headers.get("content-length", "")
        check(int(declared) if declared.isdigit() else 0)
        clock = asyncio.get_running_loop().time
        began, received, more = clock(), 0, True
        while more:
            until = began + self._limits.body_seconds + received / SLOWEST_BYTES_PER_SECOND
            try:
                async with asyncio.timeout_at(until):
                    message = await self.receive()
            except TimeoutError:
                raise RequestTimeoutError(f"the body did not come within {until - began:.0f} seconds") from None
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            body: bytes = message.get("body", b"")
            received += len(body)
            check(received)
            if body:
                yield body
            more = message.get("more_body", False)

    async def skip_body(self) -> bool:
        """Read the rest of a refused body, if it is small and on its way; returns whether it is read. A connection that
        is closed with bytes unread is reset, and the client may lose the response with it."""
        declared = self.headers.get("content-length", "0")
        if not declared.isdigit() or int(declared) > _TAKEN_UNWANTED:
            return False
        taken = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(_UNWANTED_SECONDS):
                while taken <= _TAKEN_UNWANTED:
                    message = await self.receive()
                    taken += len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return True
        return False

    def client_gone(self) -> asyncio.Task[None]:
        """A task that ends when the client goes away. Only for after the body was received."""

        async def wait_until_gone() -> None:
            while (await self.receive())["type"] != "http.disconnect":
                pass

        if self._gone is None:
            self._gone = asyncio.create_task(wait_until_gone())
        return self._gone

    # The response

    async def respond(self, response: Response, route: Route | None) -> None:
        """Send a whole response. A HEAD gets the headers of one."""
        headers = dict(response.headers)
        if response.status == 304:
            # It has the length of a body that is not sent; HTTP servers allow that only in the response to a HEAD.
            self.scope["method"] = "HEAD"
        else:
            headers.setdefault("Content-Length", str(len(response.body)))
        await self.start(response.status, headers, response.media, route)
        await self.chunk(b"" if self.is_head else response.body, more=False)

    async def start(self, status: int, headers: Headers, media: str | None, route: Route | None) -> None:
        fields = {"X-Content-Type-Options": "nosniff", REQUEST_ID_HEADER: self.request_id, **headers}
        if media is not None:
            fields["Content-Type"] = media
        if route is not None and route.successor is not None and status < 300:
            fields["Deprecation"] = "true"
            fields["Link"] = f'<{route.successor}>; rel="successor-version"'
        self.record.status = status
        raw = [(name.lower().encode("latin-1"), _header_value(value)) for name, value in fields.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def chunk(self, body: bytes, *, more: bool) -> None:
        """Hand over some bytes. A client that takes none for a while has given up."""
        self.record.sent_bytes += len(body)
        try:
            async with asyncio.timeout(self._limits.send_seconds):
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise ClientGoneError from None

    def end(self) -> RequestRecord:
        """The record of the request, when everything is sent."""
        self.record.seconds = time.perf_counter() - self._began
        return self.record

    def close(self) -> None:
        if self._gone is not None:
            self._gone.cancel()


def _header_text(value: bytes) -> str:
    """White space around a value is not part of it, and the parser leaves it at the end."""
    return value.decode("latin-1").strip(" \t")


def _header_value(value: str) -> bytes:
    """Anything that is not allowed in a header is escaped as in a URL, so a stored value can't end a header."""
    if value.isascii() and value.isprintable():
        return value.encode("ascii")
    return "".join(c if " " <= c <= "~" else "".join(f"%{b:02X}" for b in c.encode()) for c in value).encode("ascii")


_MOST_PARAMETERS: Final = 1_000
_BAD_PARAMS: Final = "$.params"
_INTEGER: Final = re.compile(r"-?\d{1,40}", re.ASCII)
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


def decode_parameters(route: Route, query_string: bytes) -> Any:
    """The parameters of a route, None when it takes none. Wrong parameters are a 400."""
    shape = route.parameters
    if shape is None:
        return None
    try:
        encoded = query_string.decode("ascii")
        pairs = parse_qsl(encoded, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        form = f"the query string must be URL-encoded UTF-8, with at most {_MOST_PARAMETERS} parameters"
        raise BadRequestError(f"{route.bad_parameters}: {form}") from None
    parameters: dict[str, Any] = {}
    kinds = _kinds(cast(Hashable, shape))
    for name, text in pairs:
        kind = kinds.get(name)
        if kind is tuple:
            parameters.setdefault(name, []).append(text)
        elif name in parameters and kind is not None:
            raise BadRequestError(f"{route.bad_parameters}: '{name}' is given twice")
        elif kind is int and _INTEGER.fullmatch(text):
            parameters[name] = int(text)
        else:  # any other text stays a text, which the decoder refuses where a number or a boolean is expected
            parameters[name] = _TRUTH.get(text.lower(), text) if kind is bool else text
    try:
        return wire.convert(parameters, shape)
    except BadRequestError as error:
        raise BadRequestError(f"{route.bad_parameters}: {str(error).partition(': ')[2]}") from None


def decode_body(route: Route, body: bytes, content_type: str | None) -> Any:
    """The body of a route as its struct: 415 for another media type, 400 for no JSON, 422 for another shape."""
    shape = route.request
    if shape is None:
        return None
    if route.request_is_optional and (not body.strip() or body.strip() == b"null"):
        return shape()
    if not route.request_is_optional and not is_json(content_type):
        raise UnsupportedMediaTypeError("the body must be JSON: send it with 'Content-Type: application/json'")
    try:
        return wire.decode(body, shape)
    except BadRequestError as error:
        if isinstance(error, RequestShapeError) and _BAD_PARAMS in str(error):
            raise BadRequestError("params must be a JSON object") from None
        if route.bad_body is not None:
            raise BadRequestError(f"{route.bad_body}: {str(error).partition(': ')[2]}") from None
        raise


def is_json(content_type: str | None) -> bool:
    essence = media_type(content_type)
    return essence == Media.JSON or (essence.startswith("application/") and essence.endswith("+json"))


def media_type(content_type: str | None) -> str:
    """The media type of a header, without its parameters."""
    return (content_type or "").partition(";")[0].strip().lower()


@cache
def _kinds(shape: Hashable) -> dict[str, Any]:
    """The parameters that there are, each with the type of its values; a tuple may be given more than once."""
    fields = msgspec.structs.fields(cast(type[msgspec.Struct], shape))
    return {field.encode_name: _kind(field.type) for field in fields}


def _kind(annotation: Any) -> Any:
    """The type itself, without `None` and without its constraints."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next(_kind(choice) for choice in get_args(annotation) if choice is not types.NoneType)
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    return get_origin(annotation) or annotation
