"""Carries calls out for asyncio; `transport` is the same for threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import httpx

from omnigraph.client.answers import AsyncAnswer
from omnigraph.client.messages import Reply, Request, Steps, Upload
from omnigraph.client.patience import Attempts
from omnigraph.client.settings import Settings

Result = TypeVar("Result")


class AsyncTransport:
    """One pool of connections to one server, for one event loop."""

    def __init__(self, settings: Settings, *, encrypted: bool) -> None:
        self._settings = settings
        self._client = httpx.AsyncClient(**settings.client_options(encrypted=encrypted))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def run(self, steps: Steps[Result], *, reads_input: bool = False) -> Result:
        """Carry out a call to its result. One that reads an input may have to wait for it, so a thread begins it."""
        try:
            request = await asyncio.to_thread(next, steps) if reads_input else next(steps)
            while True:
                request = steps.send(await self.exchange(request))
        except StopIteration as end:
            result: Result = end.value
            return result

    async def exchange(self, request: Request) -> Reply:
        """One request with as many attempts as are safe, and the whole answer."""
        attempts = self._attempts(request)
        while True:
            try:
                reply = await self._once(request, attempts)
            except httpx.RequestError as error:
                pause: float | None = attempts.after_failure(error)
            else:
                pause = attempts.after_reply(reply)
                if pause is None:
                    return reply
            await asyncio.sleep(pause or 0.0)

    async def open(self, request: Request) -> AsyncAnswer:
        """The same for an answer that is taken in pieces. Once it has begun, it is not asked for again."""
        attempts = self._attempts(request)
        while True:
            try:
                response = await self._sent(request, attempts)
                if response.status_code == 200:
                    return AsyncAnswer(self._settings.reply(response.status_code, response.headers), response)
                reply = await self._whole(response, attempts)
            except httpx.RequestError as error:
                pause: float | None = attempts.after_failure(error)
            else:
                pause = attempts.after_reply(reply)
                if pause is None:
                    raise reply.failure()
            await asyncio.sleep(pause or 0.0)

    def _attempts(self, request: Request) -> Attempts:
        return Attempts(request, self._settings.timeout, self._settings.retries)

    async def _once(self, request: Request, attempts: Attempts) -> Reply:
        return await self._whole(await self._sent(request, attempts), attempts)

    async def _sent(self, request: Request, attempts: Attempts) -> httpx.Response:
        attempts.received = 0
        content = _pieces(request.content) if isinstance(request.content, Upload) else request.content
        timeout = self._settings.timeouts(request, attempts.seconds_left)
        made = self._client.build_request(
            request.verb, request.url, content=content, headers=request.headers, timeout=timeout
        )
        return await self._client.send(made, stream=True)

    async def _whole(self, response: httpx.Response, attempts: Attempts) -> Reply:
        try:
            chunks = []
            async for chunk in response.aiter_bytes():
                chunks.append(chunk)
                attempts.received += len(chunk)
                attempts.check_time()
        finally:
            await response.aclose()
        return self._settings.reply(response.status_code, response.headers, b"".join(chunks))


async def _pieces(upload: Upload) -> AsyncIterator[bytes]:
    """A file or an iterator may make its reader wait, so a thread reads it."""
    pieces = upload.pieces()
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece
