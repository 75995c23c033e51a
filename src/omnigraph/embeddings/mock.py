"""The offline provider: a vector made from the bytes of the text alone, the same everywhere and for ever.

It ignores model and role. Stored vectors of tests depend on every bit of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from omnigraph.embeddings.provider import Role
from omnigraph.language.values import fnv1a64

_MASK: Final = 0xFFFFFFFFFFFFFFFF


class MockProvider:
    def embed(self, texts: Sequence[str], dimension: int, role: Role) -> list[NDArray[np.float32]]:
        return [_drawn(text, dimension) for text in texts]


def _drawn(text: str, dimension: int) -> NDArray[np.float32]:
    state = fnv1a64(text)
    drawn = np.empty(dimension, np.float64)
    for i in range(dimension):
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        drawn[i] = float(state) / float(_MASK)
    return drawn.astype(np.float32) * np.float32(2) - np.float32(1)
