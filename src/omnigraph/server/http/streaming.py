"""Sending streams: one chunk is made while the one before it is sent, and nothing is made for a client that is gone.

The rows of a query as a stream: JSON lines, CSV or Arrow, made while the client takes them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from omnigraph.api import wire
from omnigraph.api.service.routes import TYPE_METADATA, Media, Route
from omnigraph.api.values import csv_line
from omnigraph.engine.query.result import QueryStream
from omnigraph.errors import ResourceLimitError
from omnigraph.server.admission import Pools
from omnigraph.server.http.request import ClientGoneError, Exchange
from omnigraph.server.http.responses import StreamAnswer, error_output, in_words_of_limits


class BrokenStreamError(Exception):
    """Ends a connection in the middle of an answer, so that what was sent can't be taken for all of it."""


class StreamDelivery:
    """The streams of a process, and what they still have to put away when they are over."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._closing: set[asyncio.Task[None]] = set()

    async def send(
        self,
        exchange: Exchange,
        answer: StreamAnswer,
        route: Route,
        *,
        seconds: float,
        cancel: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Send a stream to its end; every chunk has to be made in time, and its client may take as long as it likes.
        What fails before the first byte is raised, and can still be told as an error."""
        chunks = answer.chunks
        upcoming = self._pools.stream(lambda: next(chunks, None))
        try:
            chunk = await _made(upcoming, exchange, seconds)
            headers = dict(answer.headers)
            if answer.length is not None:
                headers["Content-Length"] = str(answer.length)
            await exchange.start(answer.status, headers, answer.media, route)
            try:
                while chunk is not None:
                    upcoming = self._pools.stream(lambda: next(chunks, None))
                    await exchange.chunk(chunk, more=True)
                    chunk = await _made(upcoming, exchange, seconds)
            except ClientGoneError:
                raise
            except Exception as error:
                failed(error)
                exchange.broke_off = True
                if answer.last_line_tells_error:
                    told = error_output(in_words_of_limits(error, seconds), exchange.request_id, route)
                    await exchange.chunk(wire.encode({"error": wire.to_builtins(told)}) + b"\n", more=True)
                raise BrokenStreamError from error
            await exchange.chunk(b"", more=False)
        finally:
            cancel()
            self._put_away(answer, upcoming)

    def _put_away(self, answer: StreamAnswer, upcoming: asyncio.Future[bytes | None]) -> None:
        """Close the source in its own time: a chunk that is being made can't be interrupted, only waited for."""

        async def close() -> None:
            await asyncio.wait({upcoming})
            if not upcoming.cancelled():
                upcoming.exception()
            source_close = getattr(answer.chunks, "close", None)
            try:
                if source_close is not None:
                    await self._pools.stream(source_close)
            finally:
                answer.release()

        task = asyncio.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def settle(self) -> None:
        """Wait until everything is put away."""
        while self._closing:
            await asyncio.wait(set(self._closing))


async def _made(upcoming: asyncio.Future[bytes | None], exchange: Exchange, seconds: float) -> bytes | None:
    """The next chunk, or the news that nobody is there to take it, even if it is made already."""
    gone = exchange.gone()
    either: set[asyncio.Future[Any]] = {upcoming, gone}
    await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if gone.done():
        raise ClientGoneError
    if not upcoming.done():
        raise TimeoutError
    return upcoming.result()


Chunks: TypeAlias = Generator[bytes, None, None]

CHUNK_BYTES: Final = 64 << 10
"""What a client that stops reading leaves in memory, times two."""

WHOLE_BYTES: Final = 256 << 10
"""Up to here an answer is made before it is sent, and takes no place among the streams of its graph."""

_ROW: Final = msgspec.json.Encoder()


def row_chunks(rows: QueryStream, media: Media) -> Chunks:
    """The whole stream in chunks. Only a single row that is larger makes a larger chunk."""
    return _WRITERS[media](rows)


def json_array(rows: QueryStream, most_rows: int) -> tuple[bytearray, int]:
    """All rows as one JSON array, and how many they are. It counts against the memory of the query."""
    written, count = bytearray(b"["), 0
    for row in rows.rows():
        count += 1
        if count > most_rows:
            raise ResourceLimitError(
                "query result rows",
                most_rows,
                count,
                f"ask for a stream with 'Accept: {Media.NDJSON}', add a limit to the query, or raise --result-rows",
            )
        encoded = _ROW.encode(row)
        rows.budget.hold(len(encoded))
        written += encoded
        written += b","
    written[-1:] = b"]" if count else b"[]"
    # The answer is made around it, as a copy.
    rows.budget.step(len(written))
    return written, count


def in_chunks(pieces: Iterable[bytes | memoryview], size: int = CHUNK_BYTES) -> Chunks:
    """Small pieces together, up to a size."""
    pending = bytearray()
    for piece in pieces:
        if pending and len(pending) + len(piece) > size:
            yield bytes(pending)
            pending.clear()
        pending += piece
    if pending:
        yield bytes(pending)


def small(chunks: Chunks, size: int = WHOLE_BYTES) -> tuple[bytes | None, Iterator[bytes]]:
    """A stream that is over within a size, as a whole; else None, and the stream with what was taken of it."""
    taken, length = [], 0
    for chunk in chunks:
        taken.append(chunk)
        length += len(chunk)
        if length > size:
            return None, _continued(taken, chunks)
    return b"".join(taken), iter(())


def _continued(taken: Iterable[bytes], rest: Chunks) -> Chunks:
    with contextlib.closing(rest):
        yield from taken
        yield from rest


def _ndjson(rows: QueryStream) -> Chunks:
    return in_chunks(_ROW.encode(row) + b"\n" for row in rows.rows())


def _csv(rows: QueryStream) -> Chunks:
    def lines() -> Iterator[bytes]:
        columns = rows.columns
        yield f"{csv_line(columns)}\r\n".encode()
        for row in rows.rows():
            yield f"{csv_line([row.get(column) for column in columns])}\r\n".encode()

    return in_chunks(lines())


def _arrow(rows: QueryStream) -> Chunks:
    """The columns say their types as the language calls them, which Arrow's own types do not tell."""
    sink = _Sink()
    typed = zip(rows.schema, rows.typed_columns, strict=True)
    schema = pa.schema([field.with_metadata({TYPE_METADATA: type_.encode()}) for field, (_, type_) in typed])
    with pa.ipc.new_stream(sink, schema) as writer:
        yield from sink.taken()
        for batch in rows:
            writer.write_batch(batch)
            yield from sink.taken()
    yield from sink.taken()


class _Sink:
    """A file that a writer writes to and a stream takes from."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def taken(self) -> Iterator[bytes]:
        pieces, self._pieces = self._pieces, []
        yield from in_chunks(
            memoryview(piece)[start : start + CHUNK_BYTES]
            for piece in pieces
            for start in range(0, len(piece), CHUNK_BYTES)
        )

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """The stream ends when its chunks do."""


_WRITERS: Final[dict[Media, Callable[[QueryStream], Chunks]]] = {
    Media.NDJSON: _ndjson,
    Media.CSV: _csv,
    Media.ARROW: _arrow,
}
