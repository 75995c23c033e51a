"""Edit distance between one token and a whole vocabulary at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def tokens_within(token: str, vocabulary: Sequence[str], max_edits: int) -> list[str]:
    """The words of a vocabulary within `max_edits` insertions, deletions or substitutions of a character."""
    near = [word for word in vocabulary if abs(len(word) - len(token)) <= max_edits]
    if not near:
        return []
    distances = _edit_distances(token, near)
    return [near[i] for i in np.flatnonzero(distances <= max_edits)]


def _edit_distances(token: str, words: Sequence[str]) -> NDArray[np.int64]:
    """The classic table, computed for all words together: one row per character of the token."""
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    width = int(lengths.max())
    letters = np.array(words, dtype=f"U{max(width, 1)}").view(np.uint32).reshape(len(words), max(width, 1))
    row = np.tile(np.arange(width + 1), (len(words), 1))
    for i, letter in enumerate(token, start=1):
        following = np.empty_like(row)
        following[:, 0] = i
        substituted = row[:, :-1] + (letters[:, :width] != ord(letter))
        best = np.minimum(substituted, row[:, 1:] + 1)
        for j in range(1, width + 1):
            following[:, j] = np.minimum(best[:, j - 1], following[:, j - 1] + 1)
        row = following
    distances: NDArray[np.int64] = row[np.arange(len(words)), lengths]
    return distances
