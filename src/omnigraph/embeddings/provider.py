"""The provider protocol, the checks that make an answer a unit vector, usage counters, and the mock provider.

The client and all providers use it. The mock makes a vector from the bytes of the text alone, whatever the model and
role; stored vectors of tests depend on every bit of it, so it must never change.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

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
        """One answer per text as it came, neither checked nor normalised; EmbeddingError when there is none.

        Of several texts, None is one that the answer leaves out, and BatchRefusedError says that they have to
        be asked for one by one.
        """
        ...


def norm_of(vector: NDArray[np.float32]) -> np.float32:
    """The length, summed in order in double precision and rounded once."""
    squares = np.cumsum(vector.astype(np.float64) ** 2)
    return np.float32(np.sqrt(squares[-1])) if squares.size else np.float32(0)


def unit_vector(answer: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """A provider's answer as a unit vector of the asked dimension. Each failed check is final."""
    if answer.shape != (dimension,):
        raise EmbeddingError(f"embedding dimension mismatch: expected {dimension}, got {answer.size}")
    finite = np.isfinite(answer)
    if not finite.all():
        raise EmbeddingError(f"embedding component {int(np.argmin(finite))} is not finite")
    norm = norm_of(answer)
    if norm <= SMALLEST_NORM:
        raise EmbeddingError("embedding has zero norm")
    return answer / norm


@dataclass
class Usage:
    """Counters of one client. `reused` texts were answered before and cost nothing; `tokens` stay None until a provider
    tells them."""

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
        return [_draw(text, dimension) for text in texts]


def _draw(text: str, dimension: int) -> NDArray[np.float32]:
    state = fnv1a64(text)
    drawn = np.empty(dimension, np.float64)
    for i in range(dimension):
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        drawn[i] = float(state) / float(_MASK)
    return drawn.astype(np.float32) * np.float32(2) - np.float32(1)
