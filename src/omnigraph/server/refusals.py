"""Answers that no application gives: to what is no request yet, and to whoever comes when the server ends."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Final

from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

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
