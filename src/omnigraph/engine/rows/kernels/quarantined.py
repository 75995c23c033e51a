"""Quarantine lines in the input of a load: rows that a pipeline rejected and a person has corrected.

A quarantine line names where a row came from and why it was rejected, and holds the row as a graph record. No graph
record has these members, so they can be recognised in any input. One line stays one line: line numbers stay right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

_SIGN: Final = b'"record"'
_LONGEST_LINE: Final = 64 << 20
"""A longer line is not a quarantine line, and is passed on as it comes: its reader knows what it may hold."""


class _QuarantineLine(msgspec.Struct):
    source: str
    row: int
    reason: str
    record: msgspec.Raw
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    edge: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_read = msgspec.json.Decoder(_QuarantineLine).decode
_read_text = msgspec.json.Decoder(str).decode


def record_of(line: bytes) -> bytes:
    """The graph record of a quarantine line, as an object or as the text of one; any other line as it is."""
    if _SIGN not in line:
        return line
    try:
        found = _read(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return line
    if found.data is not msgspec.UNSET or found.edge is not msgspec.UNSET:
        return line
    record = bytes(found.record)
    text = _read_text(record).encode() if record.startswith(b'"') else record
    # A text that holds nothing is still a record, and a bad one.
    return b" ".join(text.splitlines()) if text.strip() else b'""'


def records_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """An input of lines, in pieces of any size, with quarantine lines replaced by their records."""
    rest: list[bytes] = []
    held, is_long = 0, False
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end and is_long:
            # The line that is too long ends with the first line end here.
            first = piece.find(b"\n") + 1
            yield piece[:first] + _replaced(piece[first:end])
            rest, held, is_long = [piece[end:]], len(piece) - end, False
        elif end:
            yield _replaced(b"".join([*rest, piece[:end]]))
            rest, held = [piece[end:]], len(piece) - end
        else:
            rest.append(piece)
            held += len(piece)
        if is_long or held > _LONGEST_LINE:
            yield b"".join(rest)
            rest, held, is_long = [], 0, True
    if last := b"".join(rest):
        yield _replaced(last)


def _replaced(lines: bytes) -> bytes:
    return b"\n".join(map(record_of, lines.split(b"\n"))) if _SIGN in lines else lines
