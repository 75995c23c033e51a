"""Answers for clients of HTTP/1.0, which know no chunks: to them a body ends with its connection."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

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
