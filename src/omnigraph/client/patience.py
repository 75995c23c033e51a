"""When a request is sent again, when not, and what its caller is told in the end.

Pure but for its clock. Repeating a request can't do anything twice: it reads, or it carries an idempotency key. What
can't be sent again, or is not answered in its time, is told as open if it may have happened.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import httpx

from omnigraph.api.service.http import ErrorOutput, retry_after_seconds
from omnigraph.api.service.routes import MIN_COMMIT_HEADER
from omnigraph.api.wire import decode
from omnigraph.client.messages import Reply, Request
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
        kind = _told_type(reply)
        if reply.status == 412 and MIN_COMMIT_HEADER in self.request.headers:
            return self._pause() if self.clock() - self._began < _TO_CATCH_UP else None
        if kind in _DID_NOTHING or reply.status in _GATEWAY:
            return self._pause(retry_after_seconds(reply.header("retry-after")))
        if kind == CommitOutcomeUnknownError.error_type() and self.request.key is not None:
            return self._pause()
        return None

    def _pause(self, told: float | None = None) -> float | None:
        """A random part of a growing span, and as long as the server says; None when it does not fit the time left."""
        if not self.retries or not self.request.can_be_sent or self._made == _MOST_REPEATS:
            return None
        span = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._made)
        self._made += told is None  # a server that says when to come back expects us
        pause = max(told or 0.0, (0.5 + self.dice() / 2) * span)
        return pause if pause < self.seconds_left else None

    def _given_up(self, cause: str, was_sent: bool) -> OmniGraphError:
        if self._lost is not None:
            return self._unknown(self._lost)
        if was_sent and self.received:
            return AnswerBrokenError(self.received, cause)
        return ServerUnreachableError(self.request.url.partition("?")[0], cause)

    def _unknown(self, cause: str) -> WriteOutcomeUnknownError:
        return WriteOutcomeUnknownError(self.request.route.operation_id, self.request.key, cause)


def _told_type(reply: Reply) -> str | None:
    try:
        return decode(reply.body, ErrorOutput).type
    except BadRequestError:
        return None
