"""Retries of a provider: attempts, pauses, a timeout for each attempt and a deadline for all of them.

The HTTP provider calls it. The variables are read for every client, whichever way its provider was chosen.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from omnigraph.errors import EmbeddingError

Answer = TypeVar("Answer")

DEADLINE_MS: Final = "OMNIGRAPH_EMBED_DEADLINE_MS"
TIMEOUT_MS: Final = "OMNIGRAPH_EMBED_TIMEOUT_MS"
RETRY_ATTEMPTS: Final = "OMNIGRAPH_EMBED_RETRY_ATTEMPTS"
RETRY_BACKOFF_MS: Final = "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS"

_MOST_DOUBLINGS: Final = 10
_LONGEST_REQUESTED_PAUSE: Final = 300.0
_LARGEST: Final = 2**53


class TransientError(Exception):
    """An attempt that failed in a way that another one may not; `retry_after` seconds were asked to pass."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """`attempts` include the first. A deadline of 0 is none."""

    attempts: int = 4
    backoff_ms: int = 200
    timeout_ms: int = 30_000
    deadline_ms: int = 60_000

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """A value that is not a number keeps its default, and so does 0 where it has no meaning."""
        default, deadline = cls(), _number(environment, DEADLINE_MS)
        return cls(
            attempts=_number(environment, RETRY_ATTEMPTS) or default.attempts,
            backoff_ms=_number(environment, RETRY_BACKOFF_MS) or default.backoff_ms,
            timeout_ms=_number(environment, TIMEOUT_MS) or default.timeout_ms,
            deadline_ms=default.deadline_ms if deadline is None else deadline,
        )

    def pause(self, attempt: int, failure: TransientError) -> float:
        """Seconds to wait after a failed attempt, or longer if the provider asked for it."""
        backoff: float = self.backoff_ms * 2 ** min(attempt - 1, _MOST_DOUBLINGS) / 1000
        return max(backoff, min(failure.retry_after, _LONGEST_REQUESTED_PAUSE))

    def answer(self, attempt: Callable[[float], Answer], on_retry: Callable[[int, float], None], called: str) -> Answer:
        """The result of `attempt(timeout in seconds)`, tried again while there are attempts and time left.

        A pause that would end after the deadline is not begun. `called` says in a message whom the deadline was for.
        """
        ends = time.monotonic() + self.deadline_ms / 1000 if self.deadline_ms else float("inf")
        for number in range(1, self.attempts + 1):
            left = ends - time.monotonic()
            try:
                return attempt(min(self.timeout_ms / 1000, max(left, 0.001)))
            except TransientError as failure:
                pause = self.pause(number, failure)
                left = ends - time.monotonic()
                last = number == self.attempts
                if left <= 0 or (left <= pause and not last):
                    raise EmbeddingError(
                        f"embedding deadline exceeded after {self.deadline_ms} ms ({called}); the last answer was: "
                        f"{failure}"
                    ) from None
                if last:
                    raise EmbeddingError(str(failure)) from None
            on_retry(number, pause)
            time.sleep(pause)
        raise AssertionError("there is at least one attempt")


def _number(environment: Mapping[str, str], variable: str) -> int | None:
    text = environment.get(variable, "").strip()
    number = int(text) if re.fullmatch(r"\+?[0-9]{1,18}", text) else None
    return number if number is None or number <= _LARGEST else None
