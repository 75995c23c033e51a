"""Carries operations out, for threads and for asyncio: sends requests, retries them, and gives out streams.

A request may be sent again because it only reads, or carries an idempotency key. When it can't be sent again, or has no
response in time, the error says whether it may have happened. A stream that breaks off raises; it never ends early.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import httpx

from omnigraph import errors
from omnigraph.api.service.http import ErrorOutput, retry_after_seconds
from omnigraph.api.service.routes import MIN_COMMIT_HEADER
from omnigraph.api.wire import decode
from omnigraph.client.connection import Reply, Request, Settings, Steps, Upload


class Answer:
    """An answer that a thread takes in pieces. `head` has its status and headers, and its body if it came whole."""

    def __init__(self, head: Reply, response: httpx.Response) -> None:
        self.head = head
        self._response = response
        self._chunks = _chunks(response)

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        self._response.close()

    def __del__(self) -> None:
        """A stream that nobody reads to its end gives its connection back."""
        self.close()


def _chunks(response: httpx.Response) -> Iterator[bytes]:
    received = 0
    try:
        for chunk in response.iter_bytes():
            received += len(chunk)
            yield chunk
    except (httpx.RequestError, httpx.StreamError) as error:
        raise errors.AnswerBrokenError(received, str(error) or type(error).__name__) from error
    finally:
        response.close()


class AsyncAnswer:
    """As `Answer`, to be awaited."""

    def __init__(self, head: Reply, response: httpx.Response) -> None:
        self.head = head
        self._response = response
        self._chunks = _async_chunks(response)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def aclose(self) -> None:
        await self._response.aclose()


async def _async_chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    received = 0
    try:
        async for chunk in response.aiter_bytes():
            received += len(chunk)
            yield chunk
    except (httpx.RequestError, httpx.StreamError) as error:
        raise errors.AnswerBrokenError(received, str(error) or type(error).__name__) from error
    finally:
        await response.aclose()


NEVER_SENT: Final = (
    *(httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout),
    *(httpx.ProxyError, httpx.UnsupportedProtocol, httpx.LocalProtocolError),
)
_CONNECT_SECONDS: Final = 10.0
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
_DID_NOTHING: Final = frozenset({errors.TooManyRequestsError.error_type(), errors.UnavailableError.error_type()})


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

    def count(self, chunk: bytes) -> bytes:
        """A piece of the answer, which may come byte by byte and never end."""
        self.received += len(chunk)
        if self.seconds_left <= 0:
            raise httpx.ReadTimeout(f"the answer was not complete after {self.timeout:g} seconds")
        return chunk

    def after_failure(self, error: Exception) -> float:
        """Seconds to wait before the next attempt; raises when there is none."""
        cause = str(error) or type(error).__name__
        was_sent = not isinstance(error, NEVER_SENT)
        if self.request.writes and was_sent:
            self._lost = cause
        if (pause := self._pause()) is not None:
            return pause
        if self._lost is not None:
            raise self._unknown(self._lost) from error
        if was_sent and self.received:
            raise errors.AnswerBrokenError(self.received, cause) from error
        raise errors.ServerUnreachableError(self.request.url.partition("?")[0], cause) from error

    def after_reply(self, reply: Reply) -> float | None:
        """Seconds to wait before the next attempt; None when this reply is the answer."""
        if reply.status < 400:
            return None
        if (pause := self._pause_after(reply)) is not None:
            return pause
        if self._lost is not None and (reply.status >= 500 or reply.status in _SAYS_NOTHING_OF_BEFORE):
            raise self._unknown(f"{self._lost}; then {reply.failure()}")
        return None

    def _pause_after(self, reply: Reply) -> float | None:
        if reply.status == 412 and MIN_COMMIT_HEADER in self.request.headers:
            return self._pause() if self.clock() - self._began < _TO_CATCH_UP else None
        try:
            kind = decode(reply.body, ErrorOutput).type
        except errors.BadRequestError:
            kind = None
        if kind in _DID_NOTHING or reply.status in _GATEWAY:
            return self._pause(retry_after_seconds(reply.headers.get("retry-after")))
        if kind == errors.CommitOutcomeUnknownError.error_type() and self.request.key is not None:
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

    def _unknown(self, cause: str) -> errors.WriteOutcomeUnknownError:
        return errors.WriteOutcomeUnknownError(self.request.route.operation_id, self.request.key, cause)


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
                request = steps.send(self._exchange(request).head)
        except StopIteration as end:
            result: Result = end.value
            return result

    def open(self, request: Request) -> Answer:
        """An answer that is taken in pieces. Once it has begun, it is not asked for again."""
        answer = self._exchange(request, in_pieces=True)
        if answer.head.status != 200:
            raise answer.head.failure()
        return answer

    def _exchange(self, request: Request, *, in_pieces: bool = False) -> Answer:
        """The answer to a request, after as many attempts as are safe."""
        attempts = Attempts(request, self._settings.timeout, self._settings.retries)
        while True:
            try:
                content = request.content.pieces() if isinstance(request.content, Upload) else request.content
                response = self._client.send(_prepare(self._client, attempts, content), stream=True)
                body = b""
                if not in_pieces or response.status_code != 200:
                    with closing(response):
                        body = b"".join(map(attempts.count, response.iter_bytes()))
                answer = Answer(self._settings.reply(response, body), response)
                pause = attempts.after_reply(answer.head)
            except httpx.RequestError as error:
                pause = attempts.after_failure(error)
            if pause is None:
                return answer
            time.sleep(pause)


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
                request = steps.send((await self._exchange(request)).head)
        except StopIteration as end:
            result: Result = end.value
            return result

    async def open(self, request: Request) -> AsyncAnswer:
        """An answer that is taken in pieces. Once it has begun, it is not asked for again."""
        answer = await self._exchange(request, in_pieces=True)
        if answer.head.status != 200:
            raise answer.head.failure()
        return answer

    async def _exchange(self, request: Request, *, in_pieces: bool = False) -> AsyncAnswer:
        """The answer to a request, after as many attempts as are safe."""
        attempts = Attempts(request, self._settings.timeout, self._settings.retries)
        while True:
            try:
                content = _pieces(request.content) if isinstance(request.content, Upload) else request.content
                response = await self._client.send(_prepare(self._client, attempts, content), stream=True)
                body = b""
                if not in_pieces or response.status_code != 200:
                    async with aclosing(response):
                        body = b"".join([attempts.count(chunk) async for chunk in response.aiter_bytes()])
                answer = AsyncAnswer(self._settings.reply(response, body), response)
                pause = attempts.after_reply(answer.head)
            except httpx.RequestError as error:
                pause = attempts.after_failure(error)
            if pause is None:
                return answer
            await asyncio.sleep(pause)


def _prepare(client: httpx.Client | httpx.AsyncClient, attempts: Attempts, content: Any) -> httpx.Request:
    """The request of one attempt, with the time that is left for it."""
    attempts.received = 0
    request = attempts.request
    longest = max(0.001, min(attempts.timeout + request.wait_seconds, attempts.seconds_left))
    timeout = httpx.Timeout(longest, connect=min(_CONNECT_SECONDS, longest))
    return client.build_request(request.verb, request.url, content=content, headers=request.headers, timeout=timeout)


async def _pieces(upload: Upload) -> AsyncIterator[bytes]:
    """A file or an iterator may make its reader wait, so a thread reads it."""
    pieces = upload.pieces()
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece
