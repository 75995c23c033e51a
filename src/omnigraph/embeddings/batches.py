"""Texts in the groups that one request takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

MOST_TEXTS: Final = 64
MOST_BYTES: Final = 256 << 10


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in order, at most 64 of them and 256 KiB together. A text that is larger goes alone."""
    batch: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode("utf-8", "replace"))
        if batch and (len(batch) == MOST_TEXTS or size + length > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += length
    if batch:
        yield batch
