"""Receiving bodies: within their ceiling, and not slower than a client with something to say."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from starlette.types import Receive

from omnigraph.errors import RequestTimeoutError, ResourceLimitError

SLOWEST_BYTES_PER_SECOND: Final = 16 << 10
_TAKEN_UNWANTED: Final = 1 << 20
_UNWANTED_SECONDS: Final = 0.5
_WRITTEN_AT_ONCE: Final = 1 << 20


class ClientGoneError(Exception):
    """The client closed the connection before it had its answer. There is nobody to be told anything."""


class Ceiling:
    """How large a body may become; the name is what the client is told was exceeded, the flag what raises it."""

    def __init__(self, resource: str, limit: int, flag: str) -> None:
        self.resource = resource
        self.limit = limit
        self.flag = flag

    def check(self, size: int) -> None:
        if size > self.limit:
            raise ResourceLimitError(self.resource, self.limit, size, f"send less, or raise {self.flag}")


async def pieces(receive: Receive, ceiling: Ceiling, declared: str | None, seconds: float) -> AsyncIterator[bytes]:
    """The body as it comes. One that is declared too large is refused before it is received."""
    if declared is not None and declared.isdigit():
        ceiling.check(int(declared))
    clock = asyncio.get_running_loop().time
    began, received, more = clock(), 0, True
    while more:
        until = began + seconds + received / SLOWEST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout_at(until):
                message: dict[str, Any] = dict(await receive())
        except TimeoutError:
            raise RequestTimeoutError(f"the body did not come within {until - began:.0f} seconds") from None
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body: bytes = message.get("body", b"")
        received += len(body)
        ceiling.check(received)
        if body:
            yield body
        more = message.get("more_body", False)


async def is_received(receive: Receive, declared: str | None) -> bool:
    """Take what is left of a body that nobody wants, if it is small and on its way. A connection that is closed with
    bytes unread is reset, and the client may lose the answer with it."""
    if declared is not None and (not declared.isdigit() or int(declared) > _TAKEN_UNWANTED):
        return False
    taken = 0
    try:
        async with asyncio.timeout(_UNWANTED_SECONDS):
            while taken <= _TAKEN_UNWANTED:
                message = await receive()
                taken += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return True
    except TimeoutError:
        pass
    return False


async def whole_body(receive: Receive, ceiling: Ceiling, declared: str | None, seconds: float) -> bytes:
    found = [piece async for piece in pieces(receive, ceiling, declared, seconds)]
    return found[0] if len(found) == 1 else b"".join(found)


@asynccontextmanager
async def body_in_file(
    receive: Receive, ceiling: Ceiling, declared: str | None, seconds: float
) -> AsyncIterator[tuple[Path, int]]:
    """The body in a temporary file and its size: a slow client holds neither memory nor a thread while it sends."""
    loop = asyncio.get_running_loop()
    with tempfile.NamedTemporaryFile("wb", prefix="omnigraph-load-") as file:
        size, pending = 0, bytearray()
        async for piece in pieces(receive, ceiling, declared, seconds):
            size += len(piece)
            pending += piece
            if len(pending) >= _WRITTEN_AT_ONCE:
                await loop.run_in_executor(None, file.write, bytes(pending))
                pending.clear()
        file.write(bytes(pending))
        file.flush()
        yield Path(file.name), size
