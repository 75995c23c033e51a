"""Carries operations out, for threads and for asyncio: sends requests, retries them, and gives out streams.

A request may be sent again because it only reads, or carries an idempotency key. When it can't be sent again, or has no
response in time, the error says whether it may have happened. A stream that breaks off raises; it never ends early.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self, TypeVar

import httpx

from omnigraph.api.service.http import ErrorOutput, retry_after_seconds
from omnigraph.api.service.routes import MIN_COMMIT_HEADER
from omnigraph.api.wire import decode
from omnigraph.client.connection import Reply, Request, Settings, Steps, Upload
from omnigraph.errors import (
    AnswerBrokenError,
    BadRequestError,
    CommitOutcomeUnknownError,
    OmniGraphError,
    ServerUnreachableError,
    TooManyRequestsError,
    UnavailableError,
    WriteOutcomeUnknownError,
)


class Answer:
    """An answer from which a thread takes pieces; `head` is its status and headers."""

    def __init__(self, head: Reply, response: httpx.Response) -> None:
        self.head = head
        self._response = response
        self._chunks = response.iter_bytes()
        self._received = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except (httpx.RequestError, httpx.StreamError) as error:
            self.close()
            raise AnswerBrokenError(self._received, str(error) or type(error).__name__) from error
        except StopIteration:
            self.close()
            raise
        self._received += len(chunk)
        return chunk

    def close(self) -> None:
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        """A stream that nobody reads to its end gives its connection back."""
        self.close()


class AsyncAnswer:
    """As `Answer`, to be awaited."""

    def __init__(self, head: Reply, response: httpx.Response) -> None:
        self.head = head
        self._response = response
        self._chunks = response.aiter_bytes()
        self._received = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except (httpx.RequestError, httpx.StreamError) as error:
            await self.aclose()
            raise AnswerBrokenError(self._received, str(error) or type(error).__name__) from error
        except StopAsyncIteration:
            await self.aclose()
            raise
        self._received += len(chunk)
        return chunk

    async def aclose(self) -> None:
        await self._response.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


NEVER_SENT: Final = (
    *(httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout),
    *(httpx.ProxyError, httpx.UnsupportedProtocol, httpx.LocalProtocolError),
)
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_MOST_REPEATS: Final = 8
"""Some ten seconds of pauses: a server that starts again is waited for, one that is gone is reported."""
_TO_CATCH_UP: Final = 5.0
"""Seconds that another worker may take to see a commit that was made through this client."""
_GATEWAY: Final = frozenset({429, 502, 503, 504})
"""What stands before a server answers so for it, in words of its own."""
_SAYS_NOTHING_OF_BEFORE: Final = frozenset({401, 403, 404, 408, 413, 415, 429})
"""Refusals that come before the server looks an idempotency key up."""
_DID_NOTHING: Final = frozenset({TooManyRequestsError.error_type(), UnavailableError.error_type()})


@dataclass(slots=True)
class Attempts:
    """The attempts at one request, within its time."""

    request: Request
    timeout: float
    retries: bool = True
    clock: Callable[[], float] = time.monotonic
    dice: Callable[[], float] = random.random
    received: int = 0
    """Bytes of the answer that came in the attempt under way."""
    _began: float = field(init=False)
    _made: int = field(default=0, init=False)
    _lost: str | None = field(default=None, init=False)
    """Why the answer to a write that may have happened did not come."""

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def seconds_left(self) -> float:
        return self.timeout + self.request.wait_seconds - (self.clock() - self._began)

    def check_time(self) -> None:
        """For an answer that comes byte by byte and never ends."""
        if self.seconds_left <= 0:
            raise httpx.ReadTimeout(f"the answer was not complete after {self.timeout:g} seconds")

    def after_failure(self, error: Exception) -> float:
        """Seconds to wait before the next attempt; raises when there is none."""
        cause = str(error) or type(error).__name__
        was_sent = not isinstance(error, NEVER_SENT)
        if self.request.writes and was_sent:
            self._lost = cause
        pause = self._pause()
        if pause is None:
            raise self._given_up(cause, was_sent) from error
        return pause

    def after_reply(self, reply: Reply) -> float | None:
        """Seconds to wait before the next attempt; None when this reply is the answer."""
        if reply.status < 400:
            return None
        pause = self._pause_after(reply)
        if pause is not None:
            return pause
        if self._lost is not None and (reply.status >= 500 or reply.status in _SAYS_NOTHING_OF_BEFORE):
            raise self._unknown(f"{self._lost}; then {reply.failure()}")
        return None

    def _pause_after(self, reply: Reply) -> float | None:
        kind = _error_type(reply)
        if reply.status == 412 and MIN_COMMIT_HEADER in self.request.headers:
            return self._pause() if self.clock() - self._began < _TO_CATCH_UP else None
        if kind in _DID_NOTHING or reply.status in _GATEWAY:
            return self._pause(retry_after_seconds(reply.header("retry-after")))
        if kind == CommitOutcomeUnknownError.error_type() and self.request.key is not None:
            return self._pause()
        return None

    def _pause(self, retry_after: float | None = None) -> float | None:
        """A random part of a growing span, and as long as the server says; None when it does not fit the time left."""
        if not self.retries or not self.request.can_be_sent or self._made == _MOST_REPEATS:
            return None
        span = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._made)
        self._made += retry_after is None  # a server that says when to come back expects us
        pause = max(retry_after or 0.0, (0.5 + self.dice() / 2) * span)
        return pause if pause < self.seconds_left else None

    def _given_up(self, cause: str, was_sent: bool) -> OmniGraphError:
        if self._lost is not None:
            return self._unknown(self._lost)
        if was_sent and self.received:
            return AnswerBrokenError(self.received, cause)
        return ServerUnreachableError(self.request.url.partition("?")[0], cause)

    def _unknown(self, cause: str) -> WriteOutcomeUnknownError:
        return WriteOutcomeUnknownError(self.request.route.operation_id, self.request.key, cause)


def _error_type(reply: Reply) -> str | None:
    try:
        return decode(reply.body, ErrorOutput).type
    except BadRequestError:
        return None


Result = TypeVar("Result")


class Transport:
    """One pool of connections to one server. Safe to share between threads."""

    def __init__(self, settings: Settings, *, encrypted: bool) -> None:
        self._settings = settings
        self._client = httpx.Client(**settings.client_options(encrypted=encrypted))

    def close(self) -> None:
        self._client.close()

    def run(self, steps: Steps[Result]) -> Result:
        """Carry out a call to its result."""
        try:
            request = next(steps)
            while True:
                request = steps.send(self.exchange(request))
        except StopIteration as end:
            result: Result = end.value
            return result

    def exchange(self, request: Request) -> Reply:
        """One request with as many attempts as are safe, and the whole answer."""
        attempts = self._attempts(request)
        while True:
            try:
                reply = self._once(request, attempts)
            except httpx.RequestError as error:
                pause: float | None = attempts.after_failure(error)
            else:
                pause = attempts.after_reply(reply)
                if pause is None:
                    return reply
            time.sleep(pause or 0.0)

    def open(self, request: Request) -> Answer:
        """The same for an answer that is taken in pieces. Once it has begun, it is not asked for again."""
        attempts = self._attempts(request)
        while True:
            try:
                response = self._send(request, attempts)
                if response.status_code == 200:
                    return Answer(self._settings.reply(response.status_code, response.headers), response)
                reply = self._whole(response, attempts)
            except httpx.RequestError as error:
                pause: float | None = attempts.after_failure(error)
            else:
                pause = attempts.after_reply(reply)
                if pause is None:
                    raise reply.failure()
            time.sleep(pause or 0.0)

    def _attempts(self, request: Request) -> Attempts:
        return Attempts(request, self._settings.timeout, self._settings.retries)

    def _once(self, request: Request, attempts: Attempts) -> Reply:
        return self._whole(self._send(request, attempts), attempts)

    def _send(self, request: Request, attempts: Attempts) -> httpx.Response:
        attempts.received = 0
        content = request.content.pieces() if isinstance(request.content, Upload) else request.content
        timeout = self._settings.timeouts(request, attempts.seconds_left)
        made = self._client.build_request(
            request.verb, request.url, content=content, headers=request.headers, timeout=timeout
        )
        return self._client.send(made, stream=True)

    def _whole(self, response: httpx.Response, attempts: Attempts) -> Reply:
        try:
            chunks = []
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                attempts.received += len(chunk)
                attempts.check_time()
        finally:
            response.close()
        return self._settings.reply(response.status_code, response.headers, b"".join(chunks))


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
                response = await self._send(request, attempts)
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
        return await self._whole(await self._send(request, attempts), attempts)

    async def _send(self, request: Request, attempts: Attempts) -> httpx.Response:
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
