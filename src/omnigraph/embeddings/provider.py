"""The provider protocol, the checks that make a response a unit vector, usage counters, retries, and the mock provider.

The client and all providers use it. The mock makes a vector from the bytes of the text alone, whatever the model and
role; stored vectors of tests depend on every bit of it, so it must never change.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from omnigraph.errors import EmbeddingError
from omnigraph.language.values import fnv1a64

SMALLEST_NORM: Final = float(np.finfo(np.float32).eps)


class Role(Enum):
    """The purpose of an embedded text; some providers embed questions and documents differently."""

    QUERY = "query"
    DOCUMENT = "document"


class BatchRefusedError(EmbeddingError):
    """A provider did not take several texts at once. Each of them alone may still be answered."""


class Provider(Protocol):
    def embed(self, texts: Sequence[str], dimension: int, role: Role) -> Sequence[NDArray[np.float32] | None]:
        """One vector per text as it came, neither checked nor normalised; EmbeddingError when there is none. Of several
        texts, None is one that the response leaves out; BatchRefusedError asks for them one by one."""
        ...


def unit_vector(answer: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """A provider's vector as a unit vector of the asked dimension. Each failed check is final."""
    if answer.shape != (dimension,):
        raise EmbeddingError(f"embedding dimension mismatch: expected {dimension}, got {answer.size}")
    finite = np.isfinite(answer)
    if not finite.all():
        raise EmbeddingError(f"embedding component {int(np.argmin(finite))} is not finite")
    # The length is summed in order in double precision and rounded once.
    norm = np.float32(np.sqrt(np.cumsum(answer.astype(np.float64) ** 2)[-1]))
    if norm <= SMALLEST_NORM:
        raise EmbeddingError("embedding has zero norm")
    return answer / norm


@dataclass
class Usage:
    """Counters of one client. `reused` texts cost nothing; `tokens` stay None until a provider reports them."""

    texts: int = 0
    reused: int = 0
    requests: int = 0
    retries: int = 0
    tokens: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(
        self, *, texts: int = 0, reused: int = 0, requests: int = 0, retries: int = 0, tokens: int | None = None
    ) -> None:
        with self._lock:
            self.texts += texts
            self.reused += reused
            self.requests += requests
            self.retries += retries
            if tokens is not None:
                self.tokens = (self.tokens or 0) + tokens


_MASK: Final = 0xFFFFFFFFFFFFFFFF


class MockProvider:
    def embed(self, texts: Sequence[str], dimension: int, role: Role) -> list[NDArray[np.float32]]:
        drawn = np.empty((len(texts), dimension), np.float64)
        for row, text in enumerate(texts):
            state = fnv1a64(text)
            for i in range(dimension):
                state ^= (state << 13) & _MASK
                state ^= state >> 7
                state ^= (state << 17) & _MASK
                drawn[row, i] = float(state) / float(_MASK)
        return list(drawn.astype(np.float32) * np.float32(2) - np.float32(1))


Answer = TypeVar("Answer")

RETRY_VARIABLES: Final = {
    "attempts": "OMNIGRAPH_EMBED_RETRY_ATTEMPTS",
    "backoff_ms": "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS",
    "timeout_ms": "OMNIGRAPH_EMBED_TIMEOUT_MS",
    "deadline_ms": "OMNIGRAPH_EMBED_DEADLINE_MS",
}
_MOST_DOUBLINGS: Final = 10
_LONGEST_REQUESTED_PAUSE: Final = 300.0
_LARGEST: Final = 2**53


class TransientError(Exception):
    """A failed attempt that may be repeated; the provider asked for a pause of `retry_after` seconds."""

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
        """A value that is not a number keeps its default, and so does 0 except as a deadline."""
        numbers = {}
        for name, variable in RETRY_VARIABLES.items():
            text = environment.get(variable, "").strip()
            number = int(text) if re.fullmatch(r"\+?[0-9]{1,18}", text) else -1
            if (0 if name == "deadline_ms" else 1) <= number <= _LARGEST:
                numbers[name] = number
        return cls(**numbers)

    def pause(self, attempt: int, failure: TransientError) -> float:
        """Seconds to wait after a failed attempt, or longer if the provider asked for it."""
        backoff: float = self.backoff_ms * 2 ** min(attempt - 1, _MOST_DOUBLINGS) / 1000
        return max(backoff, min(failure.retry_after, _LONGEST_REQUESTED_PAUSE))

    def answer(self, attempt: Callable[[float], Answer], on_retry: Callable[[int, float], None], called: str) -> Answer:
        """The result of `attempt(timeout in seconds)`, tried again while there are attempts and time left. A pause that
        would end after the deadline is not begun. `called` names the provider in a message."""
        ends = time.monotonic() + self.deadline_ms / 1000 if self.deadline_ms else float("inf")
        for number in range(1, self.attempts + 1):
            try:
                return attempt(min(self.timeout_ms / 1000, max(ends - time.monotonic(), 0.001)))
            except TransientError as failure:
                pause = self.pause(number, failure)
                left, last = ends - time.monotonic(), number == self.attempts
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
