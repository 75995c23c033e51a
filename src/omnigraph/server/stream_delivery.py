"""Sending streams: one chunk is made while the one before it is sent, and nothing is made for a client that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from omnigraph.api import wire
from omnigraph.api.routes import Route
from omnigraph.server.answers import StreamAnswer, error_output, in_words_of_limits
from omnigraph.server.bodies import ClientGoneError
from omnigraph.server.exchange import Exchange
from omnigraph.server.pools import Pools


class BrokenStreamError(Exception):
    """Ends a connection in the middle of an answer, so that what was sent can't be taken for all of it."""


class StreamDelivery:
    """The streams of a process, and what they still have to put away when they are over."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._closing: set[asyncio.Task[None]] = set()

    async def send(
        self,
        exchange: Exchange,
        answer: StreamAnswer,
        route: Route,
        *,
        seconds: float,
        cancel: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Send a stream to its end; every chunk has to be made in time, and its client may take as long as it likes.
        What fails before the first byte is raised, and can still be told as an error."""
        chunks = answer.chunks
        upcoming = self._pools.stream(lambda: next(chunks, None))
        try:
            chunk = await _made(upcoming, exchange, seconds)
            headers = dict(answer.headers)
            if answer.length is not None:
                headers["Content-Length"] = str(answer.length)
            await exchange.start(answer.status, headers, answer.media, route)
            try:
                while chunk is not None:
                    upcoming = self._pools.stream(lambda: next(chunks, None))
                    await exchange.chunk(chunk, more=True)
                    chunk = await _made(upcoming, exchange, seconds)
            except ClientGoneError:
                raise
            except Exception as error:
                failed(error)
                exchange.broke_off = True
                if answer.last_line_tells_error:
                    told = error_output(in_words_of_limits(error, seconds), exchange.request_id, route)
                    await exchange.chunk(wire.encode({"error": wire.to_builtins(told)}) + b"\n", more=True)
                raise BrokenStreamError from error
            await exchange.chunk(b"", more=False)
        finally:
            cancel()
            self._put_away(answer, upcoming)

    def _put_away(self, answer: StreamAnswer, upcoming: asyncio.Future[bytes | None]) -> None:
        """Close the source in its own time: a chunk that is being made can't be interrupted, only waited for."""

        async def close() -> None:
            await asyncio.wait({upcoming})
            if not upcoming.cancelled():
                upcoming.exception()
            source_close = getattr(answer.chunks, "close", None)
            try:
                if source_close is not None:
                    await self._pools.stream(source_close)
            finally:
                answer.release()

        task = asyncio.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def settle(self) -> None:
        """Wait until everything is put away."""
        while self._closing:
            await asyncio.wait(set(self._closing))


async def _made(upcoming: asyncio.Future[bytes | None], exchange: Exchange, seconds: float) -> bytes | None:
    """The next chunk, or the news that nobody is there to take it, even if it is made already."""
    gone = exchange.gone()
    either: set[asyncio.Future[Any]] = {upcoming, gone}
    await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if gone.done():
        raise ClientGoneError
    if not upcoming.done():
        raise TimeoutError
    return upcoming.result()
