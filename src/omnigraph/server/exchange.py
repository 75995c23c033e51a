"""One HTTP exchange: the request as ASGI gives it, whether its client is still there, and sending the answer."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from omnigraph.api.routes import REQUEST_ID_HEADER, Route
from omnigraph.server.answers import Answer, Headers
from omnigraph.server.bodies import ClientGoneError

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class Exchange:
    """A request and the connection it came on."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, send_seconds: float) -> None:
        self.method: str = scope["method"]
        self.raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        self.query_string: bytes = scope.get("query_string", b"")
        self.all_headers = _headers(scope["headers"])
        self.headers = {name: ", ".join(values) for name, values in self.all_headers.items()}
        self.http_version: str = scope.get("http_version", "1.1")
        server = scope.get("server")
        self.local_address: str | None = None if server is None else server[0]
        """The address that the connection came to."""
        self.has_body = True
        """Whether some of the request may still be on its way."""
        self.awaits_go_ahead = self.headers.get("expect", "").lower() == "100-continue"
        """Whether the client sends its body only when it is asked for."""
        self._receive = receive
        self.began = time.perf_counter()
        self.request_id = _request_id(self.headers.get(REQUEST_ID_HEADER.lower()))
        self.operation_id = "unknown"
        self.graph_id: str | None = None
        self.actor: str | None = None
        self.status = 0
        self.received = 0
        self.sent = 0
        self.broke_off = False
        self._scope = scope
        self._send = send
        self._send_seconds = send_seconds
        self._gone: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        self.awaits_go_ahead = False
        message = await self._receive()
        self.has_body = message.get("more_body", False)
        return message

    @property
    def is_head(self) -> bool:
        return self.method == "HEAD"

    @property
    def declared_length(self) -> str | None:
        return self.headers.get("content-length")

    @property
    def hosts(self) -> Sequence[str]:
        """The `Host` header, as often as it was sent."""
        return self.all_headers.get("host", ())

    def gone(self) -> asyncio.Task[None]:
        """A task that ends when the client goes away. Only for after the body was received."""
        if self._gone is None:
            self._gone = asyncio.create_task(self._until_gone())
        return self._gone

    async def _until_gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def answer(self, answer: Answer, route: Route | None) -> None:
        """Send a whole answer. A HEAD gets the headers of one."""
        headers = dict(answer.headers)
        if answer.status == 304:
            # It tells the length of what it does not send, which HTTP servers allow in the answer to a HEAD alone.
            self._scope["method"] = "HEAD"
        else:
            headers.setdefault("Content-Length", str(len(answer.body)))
        await self.start(answer.status, headers, answer.media, route)
        await self.chunk(b"" if self.is_head else answer.body, more=False)

    async def start(self, status: int, headers: Headers, media: str | None, route: Route | None) -> None:
        told = {"X-Content-Type-Options": "nosniff", REQUEST_ID_HEADER: self.request_id, **headers}
        if media is not None:
            told["Content-Type"] = media
        if route is not None and route.successor is not None and status < 300:
            told["Deprecation"] = "true"
            told["Link"] = f'<{route.successor}>; rel="successor-version"'
        self.status = status
        raw = [(name.lower().encode("latin-1"), _header_value(value)) for name, value in told.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def chunk(self, body: bytes, *, more: bool) -> None:
        """Hand over some bytes. A client that takes none for a while has given up."""
        self.sent += len(body)
        try:
            async with asyncio.timeout(self._send_seconds):
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise ClientGoneError from None

    def close(self) -> None:
        if self._gone is not None:
            self._gone.cancel()


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for name, value in raw:
        # White space around a value is none of it, and the parser leaves what stands behind it.
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").strip(" \t"))
    return found


def _request_id(given: str | None) -> str:
    """What the caller calls its request, when that is fit for a log; else a new name."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return secrets.token_hex(8)


def _header_value(value: str) -> bytes:
    """Anything that is not allowed in a header is escaped as in a URL, so a stored value can't end a header."""
    return "".join(c if " " <= c <= "~" else "".join(f"%{b:02X}" for b in c.encode()) for c in value).encode("ascii")
