"""Edit distance between one token and a whole vocabulary, as many words at once as little memory allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.limits import MemoryBudget

# A table of distances has one number per word and character, and is had three times.
_TABLE_CELLS: Final = 1 << 18
_CELL_BYTES: Final = 4 * 8
_WORDS_PER_CHECK: Final = 1 << 16
_COLUMNS_PER_CHECK: Final = 64


def tokens_within(
    token: str, vocabulary: Sequence[str], max_edits: int, budget: MemoryBudget | None = None
) -> list[str]:
    """The words of a vocabulary within `max_edits` insertions, deletions or substitutions of a character."""
    budget = budget or MemoryBudget()
    found: list[str] = []
    for start in range(0, len(vocabulary), _WORDS_PER_CHECK):
        budget.check()
        part = vocabulary[start : start + _WORDS_PER_CHECK]
        found += _near(token, [word for word in part if abs(len(word) - len(token)) <= max_edits], max_edits, budget)
    return found


def _near(token: str, words: Sequence[str], max_edits: int, budget: MemoryBudget) -> list[str]:
    found: list[str] = []
    start = 0
    while start < len(words):
        stop, width = start, 1
        while stop < len(words):
            width = max(width, len(words[stop]))
            if stop > start and (stop + 1 - start) * (width + 1) > _TABLE_CELLS:
                break
            stop += 1
        part = words[start:stop]
        budget.step((max(map(len, part)) + 1) * len(part) * _CELL_BYTES)
        distances = _edit_distances(token, part, budget)
        found += [part[i] for i in np.flatnonzero(distances <= max_edits).tolist()]
        start = stop
    return found


def _edit_distances(token: str, words: Sequence[str], budget: MemoryBudget) -> NDArray[np.int64]:
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
            if j % _COLUMNS_PER_CHECK == 1:
                budget.check()
            following[:, j] = np.minimum(best[:, j - 1], following[:, j - 1] + 1)
        row = following
    distances: NDArray[np.int64] = row[np.arange(len(words)), lengths]
    return distances
