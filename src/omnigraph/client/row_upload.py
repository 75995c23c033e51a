"""Rows of one type on their way to a server: frames as an Arrow stream, dictionaries mostly by line, files as
they are.

Parquet and Arrow files become an Arrow stream here, because a server does not unpack what strangers send. The types
that only save memory (dictionaries, views, runs) become plain ones for the same reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from omnigraph.api.load import (
    GivenBatches,
    GivenRecords,
    column_file,
    column_format,
    compression_of,
    directory_error,
    given_rows,
    local_pieces,
    open_file_name,
    plain_array,
    plain_type,
)
from omnigraph.api.service.routes import Media
from omnigraph.client.messages import Upload
from omnigraph.client.record_rows import lines, sent_records
from omnigraph.errors import BadRequestError, DirectAccessError

_PIECE_BYTES: Final = 256 << 10


class RowUpload(Upload):
    """A body of rows. `parameters` say how it is written, as far as its media type does not."""

    def __init__(
        self, pieces: Callable[[], Iterator[bytes]], media: Media, *, once: bool = False, **parameters: Any
    ) -> None:
        self._pieces = pieces
        self._once = once
        self._opened = False
        self.media = media
        self.parameters = {name: value for name, value in parameters.items() if value is not None}

    @property
    def can_be_sent(self) -> bool:
        return not (self._once and self._opened)

    def pieces(self) -> Iterator[bytes]:
        self._opened = True
        return self._pieces()


def row_upload(data: Any, format: str | None, csv: Any) -> RowUpload:
    """What a caller gave as rows of one type. The server finds out what a file is that holds no columns."""
    if isinstance(data, str | os.PathLike):
        return _file(os.fspath(data), format, csv)
    if hasattr(data, "read") and not isinstance(data, Mapping):
        return _open_file(data, format, csv)
    if format is not None or csv is not None:
        raise BadRequestError("format and csv say how a file is written; this input is not a file")
    given = given_rows(data)
    sent = sent_records(given) if isinstance(given, GivenRecords) else given
    if isinstance(sent, GivenRecords):
        return RowUpload(lambda: lines(sent.rows), Media.NDJSON, once=sent.once)
    return RowUpload(lambda: _arrow_stream(sent), Media.ARROW, once=sent.once)


def _file(text: str, format: str | None, csv: Any) -> RowUpload:
    path = unquote(text.removeprefix("file://")) if text.startswith("file://") else text
    if "://" in path:
        raise DirectAccessError(f"loading from '{path}'")
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        raise directory_error(text)
    if (columns := column_format(path, format)) is not None:
        return RowUpload(lambda: _column_stream(_columns_at(path), columns, text), Media.ARROW, file=text)
    # A compressed file is unpacked here, because a server does not unpack what strangers send.
    return RowUpload(lambda: local_pieces(path), Media.BYTES, file=text, format=format, **_dialect(csv))


def _open_file(file: Any, format: str | None, csv: Any) -> RowUpload:
    """A file that the caller opened, stdin for one: it is read once."""
    shown = open_file_name(file, format)
    if (columns := column_format(shown, format)) is not None:
        return RowUpload(lambda: _column_stream(file, columns, shown), Media.ARROW, once=True, file=shown)

    def pieces() -> Iterator[bytes]:
        for piece in iter(lambda: file.read(_PIECE_BYTES), b""):
            if not piece:
                return
            yield piece.encode() if isinstance(piece, str) else piece

    return RowUpload(pieces, Media.BYTES, once=True, file=shown, format=format, **_dialect(csv))


def _dialect(csv: Any) -> dict[str, Any]:
    """A `CsvDialect` as parameters: an empty quote stands for none."""
    if csv is None:
        return {}
    said = {name: getattr(csv, name) for name in ("delimiter", "header", "encoding", "null")}
    return {**said, "quote": "" if csv.quote is None else csv.quote}


# Arrow


def _arrow_stream(given: GivenBatches) -> Iterator[bytes]:
    import pyarrow as pa

    schema = pa.schema([pa.field(field.name, plain_type(field.type)) for field in given.schema])
    sink = _Sink()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in given.read():
            try:
                plain = pa.record_batch(list(map(plain_array, batch.columns)), schema)
            except pa.ArrowException as error:
                raise BadRequestError(f"can't send these rows: {str(error).splitlines()[0]}; cast them") from error
            writer.write_batch(plain)
            yield from sink.taken()
    yield from sink.taken()


def _columns_at(path: str) -> Any:
    """A file that can be read at any place: one that is compressed only when it is unpacked."""
    import pyarrow as pa

    return path if compression_of(path) is None else pa.BufferReader(b"".join(local_pieces(path)))


def _column_stream(source: Any, format: str, name: str) -> Iterator[bytes]:
    with column_file(source, format, name) as given:
        yield from _arrow_stream(given)


class _Sink:
    """Keeps what is written to it until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def flush(self) -> None:
        """Nothing is held back."""

    def taken(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        return pieces
