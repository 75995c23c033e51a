"""Cursors and page tokens of change reads: opaque, stateless, tamper-evident, and bound to the question asked.

A token says where to go on and for which graph, branch life and scope it was made. It holds positions, never ids of
entities, so its length does not depend on the data. Whatever does not fit is rejected with the reason.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import Any, Final, TypeVar

import msgspec

from omnigraph.api.history import ChangeScope
from omnigraph.errors import ChangeCursorRejectedError
from omnigraph.language.query.lens import OPEN, Lens

TOKEN_VERSION = 1
MAX_ENCODED = 4_096
_CHECKSUM_BYTES = 16


class CommitPosition(msgspec.Struct, frozen=True, tag_field="kind", tag="commit_page"):
    """Inside the changes of one commit: so many of them were delivered."""

    token: int
    graph: str
    commit: str
    scope: str
    delivered: int


class DiffPosition(msgspec.Struct, frozen=True, tag_field="kind", tag="diff_page"):
    """Inside the difference of two commits: so many of its changes were delivered."""

    token: int
    graph: str
    before: str
    after: str
    scope: str
    delivered: int


class _FeedPlace(msgspec.Struct, frozen=True):
    token: int
    graph: str
    branch: str
    branch_id: str
    scope: str
    version: int


class FeedCursor(_FeedPlace, frozen=True, tag_field="kind", tag="feed_cursor"):
    """After a complete commit of a branch."""

    commit: str


class FeedPosition(_FeedPlace, frozen=True, tag_field="kind", tag="feed_page"):
    """Inside a commit of a branch, on the way to the head that the poll captured when it began."""

    delivered: int
    cut: int


class _Header(msgspec.Struct):
    kind: str
    token: int


Position = TypeVar("Position", CommitPosition, DiffPosition, FeedCursor, FeedPosition)

_ENCODER = msgspec.json.Encoder()
# Made here and not on use: msgspec crashes when two threads learn the same struct at a time.
_HEADER: Final = msgspec.json.Decoder(_Header)
_POSITIONS: Final[dict[Any, msgspec.json.Decoder[Any]]] = {
    shape: msgspec.json.Decoder(shape) for shape in (CommitPosition, DiffPosition, FeedCursor, FeedPosition)
}
_NAMES = {
    "commit_page": "a commit page token",
    "diff_page": "a diff page token",
    "feed_cursor": "a feed cursor",
    "feed_page": "a feed page token",
}


def digest_of(scope: ChangeScope, lens: Lens = OPEN) -> str:
    """Equal for equal scopes that are looked at through equal lenses; short enough to be bound into a token.

    Whatever counts changes is bound to the lens, because another one shows others of them.
    """
    parts = [sorted(scope.kinds), sorted(scope.types), sorted(scope.ops), *([] if lens.is_open else [lens.digest])]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def seal(position: CommitPosition | DiffPosition | FeedCursor | FeedPosition) -> str:
    data = _ENCODER.encode(position)
    return base64.urlsafe_b64encode(data + _checksum(data)).rstrip(b"=").decode()


def unseal(text: str, shape: type[Position]) -> Position:
    """The position in a token of this shape, or a rejection that says what is wrong with it."""
    data = _authentic(text)
    try:
        header = _HEADER.decode(data)
        if header.token != TOKEN_VERSION:
            raise ChangeCursorRejectedError(f"unsupported token version {header.token}")
        wanted = str(shape.__struct_config__.tag)
        if header.kind != wanted:
            raise ChangeCursorRejectedError(
                f"this is {_NAMES.get(header.kind, 'another kind of token')}, not {_NAMES[wanted]}"
            )
        position: Position = _POSITIONS[shape].decode(data)
        return position
    except msgspec.DecodeError:
        raise ChangeCursorRejectedError("invalid encoding") from None


def _authentic(text: str) -> bytes:
    if len(text) > MAX_ENCODED:
        raise ChangeCursorRejectedError(f"invalid encoding: longer than {MAX_ENCODED} bytes")
    try:
        sealed = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ChangeCursorRejectedError("invalid encoding") from None
    data, checksum = sealed[:-_CHECKSUM_BYTES], sealed[-_CHECKSUM_BYTES:]
    if checksum != _checksum(data):
        raise ChangeCursorRejectedError("its checksum does not match: the token was altered or cut")
    return data


def _checksum(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_CHECKSUM_BYTES]
