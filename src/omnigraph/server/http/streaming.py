"""Streams: rows in every format, in chunks of a bounded size, and their delivery to a client.

A pool makes each chunk while the client reads the one before. A stream that fails after its first byte ends the
connection, so that a client never takes a part of it for the whole.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from io import BytesIO
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from omnigraph.api import wire
from omnigraph.api.service.routes import TYPE_METADATA, Media
from omnigraph.api.values import csv_line
from omnigraph.engine.query.result import QueryStream
from omnigraph.errors import ResourceLimitError
from omnigraph.server.admission import Pools
from omnigraph.server.http.call import Call
from omnigraph.server.http.request import ClientGoneError, Exchange
from omnigraph.server.http.responses import StreamResponse, error_output, name_limit


class BrokenStreamError(Exception):
    """Ends a connection in the middle of a response, so that a client does not take a part for the whole."""


class StreamDelivery:
    """The streams of a process, and the cleanup of those that ended."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, call: Call, response: StreamResponse, log_failure: Callable[[BaseException], None]) -> None:
        """Send a stream to its end; every chunk has to be made in time, and its client may take as long as it likes.
        A failure before the first byte is raised, so that it can become an error response."""
        exchange, route, seconds = call.exchange, call.route, call.limits.query_seconds
        chunks = response.chunks
        upcoming = self._pools.stream(lambda: next(chunks, None))
        try:
            chunk = await _next_chunk(upcoming, exchange, seconds)
            await exchange.start(response.status, response.headers, response.media, route)
            try:
                while chunk is not None:
                    upcoming = self._pools.stream(lambda: next(chunks, None))
                    await exchange.chunk(chunk, more=True)
                    chunk = await _next_chunk(upcoming, exchange, seconds)
            except ClientGoneError:
                raise
            except Exception as error:
                log_failure(error)
                exchange.record.broke_off = True
                if response.media.startswith(Media.NDJSON):
                    output = error_output(name_limit(error, seconds), exchange.request_id, route)
                    await exchange.chunk(wire.encode({"error": wire.to_builtins(output)}) + b"\n", more=True)
                raise BrokenStreamError from error
            await exchange.chunk(b"", more=False)
        finally:
            call.cancellation.cancel()
            self._put_away(response, upcoming)

    def _put_away(self, response: StreamResponse, upcoming: asyncio.Future[bytes | None]) -> None:
        """Close the source in its own time: a chunk that is being made can't be interrupted, only waited for."""

        async def close() -> None:
            await asyncio.wait({upcoming})
            if not upcoming.cancelled():
                upcoming.exception()
            source_close = getattr(response.chunks, "close", None)
            try:
                if source_close is not None:
                    await self._pools.stream(source_close)
            finally:
                response.release()

        task = asyncio.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def wait_until_closed(self) -> None:
        """Wait until all streams are closed."""
        while self._closing:
            await asyncio.wait(set(self._closing))


async def _next_chunk(upcoming: asyncio.Future[bytes | None], exchange: Exchange, seconds: float) -> bytes | None:
    """The next chunk. Raises `ClientGoneError` if the client left, even if the chunk is ready."""
    gone = exchange.client_gone()
    either: set[asyncio.Future[Any]] = {upcoming, gone}
    await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if gone.done():
        raise ClientGoneError
    if not upcoming.done():
        raise TimeoutError
    return upcoming.result()


Chunks: TypeAlias = Generator[bytes, None, None]

CHUNK_BYTES: Final = 64 << 10
"""A client that stops reading keeps twice as much in memory."""

WHOLE_BYTES: Final = 256 << 10
"""Up to here a response is made before it is sent, and takes no place among the streams of its graph."""

_ROW: Final = msgspec.json.Encoder()


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
    # The response is made around it, as a copy.
    rows.budget.step(len(written))
    return written, count


def in_chunks(pieces: Iterable[bytes]) -> Chunks:
    """Small pieces together, up to a size."""
    pending = bytearray()
    for piece in pieces:
        if pending and len(pending) + len(piece) > CHUNK_BYTES:
            yield bytes(pending)
            pending.clear()
        pending += piece
    if pending:
        yield bytes(pending)


def small(chunks: Chunks) -> tuple[bytes | None, Iterator[bytes]]:
    """The whole stream, if it ends within `WHOLE_BYTES`; else None and the stream from its beginning."""
    taken, length = list[bytes](), 0
    for chunk in chunks:
        taken.append(chunk)
        length += len(chunk)
        if length > WHOLE_BYTES:
            break
    else:
        return b"".join(taken), iter(())

    def all_chunks() -> Chunks:
        with contextlib.closing(chunks):
            yield from taken
            yield from chunks

    return None, all_chunks()


def row_chunks(rows: QueryStream, media: Media) -> Chunks:
    """The whole stream in chunks. Only a single row that is larger makes a larger chunk."""
    match media:
        case Media.NDJSON:
            return in_chunks(_ROW.encode(row) + b"\n" for row in rows.rows())
        case Media.CSV:
            columns = rows.columns
            lines = chain[list[Any]]([columns], ([row.get(column) for column in columns] for row in rows.rows()))
            return in_chunks(f"{csv_line(line)}\r\n".encode() for line in lines)
        case _:
            return _arrow(rows)


def _arrow(rows: QueryStream) -> Chunks:
    """The metadata of the columns has the types of the language, which Arrow's own types do not express."""
    typed = zip(rows.schema, rows.typed_columns, strict=True)
    schema = pa.schema([field.with_metadata({TYPE_METADATA: type_.encode()}) for field, (_, type_) in typed])
    sink = BytesIO()

    def take() -> Chunks:
        data = memoryview(sink.getvalue())
        sink.seek(0)
        sink.truncate()
        yield from (bytes(data[start : start + CHUNK_BYTES]) for start in range(0, len(data), CHUNK_BYTES))

    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
            yield from take()
    yield from take()
