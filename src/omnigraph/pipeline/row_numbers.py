"""The row numbers of a fragment in few bytes: the runs they mostly are."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray


def packed_positions(numbers: NDArray[np.int64]) -> bytes:
    """Row numbers of a fragment, in order, as the runs they mostly are: each by its first number and its length."""
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2) != 1)
    lengths = np.diff(starts, append=len(numbers))
    return zlib.compress(np.stack([numbers[starts], lengths]).astype("<i8").tobytes(), 1)


def unpacked_positions(packed: bytes) -> NDArray[np.int64]:
    firsts, lengths = np.frombuffer(zlib.decompress(packed), "<i8").reshape(2, -1)
    before = np.cumsum(lengths) - lengths
    return np.repeat(firsts - before, lengths) + np.arange(lengths.sum())
