"""An Arrow stream as it comes over a connection: its messages, and whether it is complete.

The stream format is a sequence of messages, each with its length and the length of its body in front, and a mark at
the end. They are told apart here, so that batches can be given out while more come, on any transport. Only making a
batch needs Arrow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from omnigraph.errors import AnswerBrokenError

if TYPE_CHECKING:
    import pyarrow as pa

END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_CONTINUES: Final = 0xFFFFFFFF
_SCHEMA, _BATCH = 1, 3
_HEADER_TYPE, _BODY_LENGTH = 6, 10
"""Where the table of a message's members says the place of these two: after two sizes, two bytes per member."""


class ArrowFrames:
    """The messages of one stream."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._size = 0
        self._wanted = 8
        self._ended = False
        self.received = 0

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """The messages that are complete now: their kinds, and all of their bytes."""
        self.received += len(chunk)
        self._pending.append(chunk)
        self._size += len(chunk)
        while self._size >= self._wanted and not self._ended:
            data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
            kind, length = _measured(data)
            if kind is not None and length <= len(data):
                self._keep(data[length:])
                self._ended = kind == 0
                if kind:
                    yield kind, data[:length]
            else:
                self._pending, self._wanted = [data], length

    def _keep(self, rest: bytes) -> None:
        self._pending, self._size, self._wanted = [rest], len(rest), 8

    def finish(self) -> None:
        """Nothing more comes."""
        if not self._ended:
            raise AnswerBrokenError(self.received, "the Arrow stream lacks its end")


def _measured(data: bytes) -> tuple[int | None, int]:
    """The kind and the length of the first message, 0 for the end; None and the length needed to tell, if it is short.

    The length of the body is in the message's own table (a flatbuffer), which stands behind the two lengths.
    """
    mark, metadata = struct.unpack_from("<II", data)
    if mark != _CONTINUES:
        raise AnswerBrokenError(len(data), "what came is no Arrow stream")
    if metadata == 0:
        return 0, 8
    if len(data) < 8 + metadata:
        return None, 8 + metadata
    (root,) = struct.unpack_from("<I", data, 8)
    table = 8 + root
    members = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, members)

    def member(place: int, form: str) -> int:
        (offset,) = struct.unpack_from("<H", data, members + place) if place < size else (0,)
        return int(struct.unpack_from(form, data, table + offset)[0]) if offset else 0

    return member(_HEADER_TYPE, "<B"), 8 + metadata + member(_BODY_LENGTH, "<q")


class BatchDecoder:
    """Record batches from the chunks of a stream. `schema` is there once the first message has come."""

    def __init__(self) -> None:
        self._frames = ArrowFrames()
        self.schema: pa.Schema | None = None

    @property
    def received(self) -> int:
        return self._frames.received

    def feed(self, chunk: bytes) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for kind, message in self._frames.feed(chunk):
            if kind == _SCHEMA:
                self.schema = pa.ipc.read_schema(pa.py_buffer(message))
            elif kind == _BATCH:
                yield _batch(message, self.schema)
            else:
                raise AnswerBrokenError(self.received, f"a message of kind {kind}, which this client can't read")

    def finish(self) -> None:
        self._frames.finish()


def _batch(message: bytes, schema: Any) -> Any:
    import pyarrow as pa

    return pa.ipc.read_record_batch(pa.ipc.read_message(pa.py_buffer(message)), schema)
