"""A digest of what a caller asked for, kept with the idempotency key of a write.

It tells a repeat of a request from another request that comes with the same key. What a write is only allowed under,
such as the expected head, and who asks, are no part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec


class RequestDigest:
    """Built from the kind of a write and its parts, in an order that the kind fixes."""

    def __init__(self, kind: str, *parts: Any) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._hash.update(msgspec.json.encode([kind, *parts], order="deterministic", enc_hook=repr))

    def watching(self, pieces: bytes | Iterable[bytes]) -> bytes | Iterable[bytes]:
        """The same input, whose bytes become part of the digest as they are read."""
        if isinstance(pieces, bytes):
            self._hash.update(pieces)
            return pieces
        return self._watched(pieces)

    def _watched(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._hash.update(piece)
            yield piece

    @property
    def text(self) -> str:
        return self._hash.hexdigest()
