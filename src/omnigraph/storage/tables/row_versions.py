"""In which versions the rows of a rewritten fragment were created and last updated, in few bytes.

Lance keeps both as runs of rows with equal versions, inside the manifest. Every commit has a version of its own, so a
fragment made of a thousand one-row commits has a thousand runs, and every later manifest repeats them: storage would
grow with the square of the commits. All that is ever asked of the two is whether they differ, that is whether the row
was updated since it was created (`indexes`), and that stays true here; which versions it were is forgotten.

The runs are protobuf messages (`{1: {1: {1: {1: start, 2: end}}, 2: version}}`, repeated). Whatever does not look
exactly like that is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final, TypeAlias

_CREATED: Final = "created_at_version_meta"
_UPDATED: Final = "last_updated_at_version_meta"
_CREATED_VERSION, _UPDATED_VERSION = 1, 2

Runs: TypeAlias = list[tuple[int, int]]
"""How many rows, and their version."""


def condensed(fragment: Mapping[str, Any]) -> dict[str, Any]:
    """A fragment, in its JSON form, whose rows say no more than whether they were updated."""
    created, updated = _runs(fragment.get(_CREATED)), _runs(fragment.get(_UPDATED))
    rows = fragment["physical_rows"]
    if created is None or updated is None or {_length(created), _length(updated)} != {rows}:
        return dict(fragment)
    changed = _joined((length, before != after) for length, before, after in _beside(created, updated))
    return {
        **fragment,
        _CREATED: _meta([(rows, _CREATED_VERSION)]),
        _UPDATED: _meta([(n, _UPDATED_VERSION if moved else _CREATED_VERSION) for n, moved in changed]),
    }


def _length(runs: Runs) -> int:
    return sum(length for length, _ in runs)


def _beside(left: Runs, right: Runs) -> Iterator[tuple[int, int, int]]:
    """Two sequences over the same rows as one: how many rows, and the two versions they have."""
    others = iter(right)
    rest, other = 0, 0
    for length, version in left:
        while length:
            if not rest:
                rest, other = next(others)
            together = min(length, rest)
            yield together, version, other
            length, rest = length - together, rest - together


def _joined(runs: Iterable[tuple[int, bool]]) -> list[tuple[int, bool]]:
    return [(sum(length for length, _ in same), value) for value, same in groupby(runs, key=lambda run: run[1])]


def _runs(meta: Any) -> Runs | None:
    """The runs of a sequence, None when it is stored or written in another way."""
    if not isinstance(meta, Mapping) or not isinstance(meta.get("inline"), list):
        return None
    try:
        return [_run(message) for message in _messages(bytes(meta["inline"]))]
    except (ValueError, IndexError, KeyError):
        return None


def _run(message: bytes) -> tuple[int, int]:
    run = _fields(message)
    segment = _fields(run[1])
    span = _fields(segment[1])
    if set(run) - {1, 2} or set(segment) != {1} or set(span) - {1, 2}:
        raise ValueError("rows that are not a range")
    length = span.get(2, 0) - span.get(1, 0)
    if length <= 0:
        raise ValueError("a run without rows")
    return length, run.get(2, 0)


def _messages(data: bytes) -> Iterator[bytes]:
    """The values of field 1, of which there are many."""
    at = 0
    while at < len(data):
        number, value, at = _field(data, at)
        if number != 1 or not isinstance(value, bytes):
            raise ValueError(f"field {number} is unknown")
        yield value


def _fields(data: bytes) -> dict[int, Any]:
    found: dict[int, Any] = {}
    at = 0
    while at < len(data):
        number, value, at = _field(data, at)
        if number in found:
            raise ValueError(f"field {number} stands twice")
        found[number] = value
    return found


def _field(data: bytes, at: int) -> tuple[int, int | bytes, int]:
    """One field of a message: its number, its value, and where the next one begins."""
    tag, at = _number(data, at)
    value, at = _number(data, at)
    if tag & 7 == 0:
        return tag >> 3, value, at
    if tag & 7 != 2 or at + value > len(data):
        raise ValueError("neither a number nor a message")
    return tag >> 3, data[at : at + value], at + value


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if byte < 128:
            return value, at


def _meta(runs: Runs) -> dict[str, list[int]]:
    sequence = b"".join(
        _message(1, _message(1, _message(1, b"\x10" + _encoded(length))) + b"\x10" + _encoded(version))
        for length, version in runs
    )
    return {"inline": list(sequence)}


def _message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _encoded(len(content)) + content


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
