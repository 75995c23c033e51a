"""Streams of records by line, as they come: whole lines only, the server's own error where it tells one, and an end
that is known to be the end. Pure; both transports feed it."""

from __future__ import annotations

from typing import Final

import msgspec

from omnigraph.api import wire
from omnigraph.api.history import ChangeBaseline, ChangeBaselineRecord
from omnigraph.api.service.http import received_error
from omnigraph.errors import AnswerBrokenError, BadRequestError, OmniGraphError

_ERROR: Final = b'{"error":'
"""How the last line of a stream that failed begins. Records begin with their type or edge."""


class _ErrorLine(msgspec.Struct):
    error: msgspec.Raw


class RecordLines:
    """The lines of an export."""

    def __init__(self) -> None:
        self._pending = b""
        self.received = 0

    def feed(self, chunk: bytes) -> bytes:
        """The lines that are complete now, each with its end. Raises what the server says went wrong."""
        self.received += len(chunk)
        whole, end, self._pending = (self._pending + chunk).rpartition(b"\n")
        last = whole[whole.rfind(b"\n") + 1 :]
        if last.startswith(_ERROR):
            raise self._told(last)
        return whole + end

    def _told(self, line: bytes) -> OmniGraphError:
        try:
            return received_error(bytes(wire.decode(line, _ErrorLine).error))
        except BadRequestError:
            return AnswerBrokenError(self.received, "its last line tells an error that this client can't read")

    def finish(self) -> None:
        """Nothing more comes."""
        if self._pending:
            raise AnswerBrokenError(self.received, "its last line is not complete")


class BaselineLines(RecordLines):
    """The lines of a baseline. The last one is no record: it has the cursor, and only a whole stream has it."""

    def __init__(self) -> None:
        super().__init__()
        self._held_back = b""

    def feed(self, chunk: bytes) -> bytes:
        lines = self._held_back + super().feed(chunk)
        at = lines.rfind(b"\n", 0, -1) + 1
        self._held_back = lines[at:]
        return lines[:at]

    def baseline(self) -> ChangeBaseline:
        """The record at the end."""
        self.finish()
        try:
            return wire.decode(self._held_back, ChangeBaselineRecord).baseline
        except BadRequestError:
            cause = "the stream lacks its last record, so there is no usable cursor; discard what was written"
            raise AnswerBrokenError(self.received, cause) from None


def texts(lines: bytes) -> list[str]:
    """Lines as texts, each with its end."""
    return [f"{line.decode()}\n" for line in lines.split(b"\n")[:-1]]


def counted(lines: bytes) -> int:
    return lines.count(b"\n")
