"""Rows that came over HTTP: whole results, and streams of batches. Arrow is loaded when they are looked at.

`BatchDecoder` makes batches of an Arrow stream as chunks arrive, on any transport, and notices a missing end.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec import Struct

from omnigraph.api import wire
from omnigraph.api.enums import Integers
from omnigraph.api.queries import ArrowBatches, QueryRows, ReadPoint, ReadTargetOutput, json_rows
from omnigraph.api.service.routes import COMMIT_HEADER, QUERY_HEADER, TYPE_METADATA, Media
from omnigraph.api.values import Columns
from omnigraph.client.connection import Reply
from omnigraph.client.transport import Answer, AsyncAnswer
from omnigraph.errors import AnswerBrokenError

if TYPE_CHECKING:
    import pyarrow as pa


END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_CONTINUES: Final = 0xFFFFFFFF
_SCHEMA, _BATCH = 1, 3
_HEADER_TYPE, _BODY_LENGTH = 6, 10
"""Where the table of a message's members says the place of these two: after two sizes, two bytes per member."""


class BatchDecoder:
    """Record batches from the chunks of a stream. `schema` is set once the first message has come.

    It splits the stream into messages by itself, because Arrow's own reader pulls from a file and can't be fed.
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._size = 0
        self._wanted = 8
        self._ended = False
        self.received = 0
        self.schema: pa.Schema | None = None

    def feed(self, chunk: bytes) -> Iterator[pa.RecordBatch]:
        """The batches that are complete now."""
        import pyarrow as pa

        for kind, message in self._messages(chunk):
            if kind == _SCHEMA:
                self.schema = pa.ipc.read_schema(pa.py_buffer(message))
            elif kind == _BATCH:
                yield pa.ipc.read_record_batch(pa.ipc.read_message(pa.py_buffer(message)), self.schema)
            else:
                raise AnswerBrokenError(self.received, f"a message of kind {kind}, which this client can't read")

    def _messages(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """The messages that are complete now: their kinds, and all of their bytes."""
        self.received += len(chunk)
        self._pending.append(chunk)
        self._size += len(chunk)
        while self._size >= self._wanted and not self._ended:
            data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
            kind, length = _measure(data)
            if kind is not None and length <= len(data):
                rest = data[length:]
                self._pending, self._size, self._wanted = [rest], len(rest), 8
                self._ended = kind == 0
                if kind:
                    yield kind, data[:length]
            else:
                self._pending, self._wanted = [data], length

    def finish(self) -> None:
        """Nothing more comes."""
        if not self._ended:
            raise AnswerBrokenError(self.received, "the Arrow stream lacks its end")
        if self.schema is None:
            raise AnswerBrokenError(self.received, "the Arrow stream has no schema")


def _measure(data: bytes) -> tuple[int | None, int]:
    """The kind and the length of the first message, 0 for the end; None and the length needed to tell, if it is short.

    The length of the body is in the message's own table (a flatbuffer), which follows the two lengths.
    """
    mark, metadata = struct.unpack_from("<II", data)
    if mark != _CONTINUES:
        raise AnswerBrokenError(len(data), "what came is not an Arrow stream")
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


class _Origin:
    """Where rows come from: what was read, a branch or a commit, and what the headers of the answer say. Rows that are
    of no state, such as those of `branch list`, name no commit."""

    def __init__(self, reply: Reply, target: ReadPoint) -> None:
        self.query_name = reply.headers.get(QUERY_HEADER) or ""
        self.graph_commit_id = reply.headers.get(COMMIT_HEADER) or ""
        self.target = target if self.graph_commit_id else ReadPoint()


class RemoteRows(_Origin, QueryRows):
    """The rows of one query, in order, as the server sent them.

    Iterating gives a dictionary per row; `result[0]` is one, `result[1:3]` is a list of them. Values are plain Python
    values: dates and times as ISO texts, which `to_arrow`, `to_pandas` and `to_polars` give as real ones.
    """

    def __init__(self, reply: Reply, target: ReadPoint) -> None:
        reply.require(Media.ARROW, Media.JSON)
        if not reply.body.endswith(END):
            raise AnswerBrokenError(len(reply.body), "the Arrow stream lacks its end")
        super().__init__(reply, target)
        self._stream = reply.body

    @cached_property
    def _raw_table(self) -> pa.Table:
        import pyarrow as pa

        table = pa.ipc.open_stream(pa.py_buffer(self._stream)).read_all()
        del self._stream
        return table

    @cached_property
    def table(self) -> pa.Table:
        return self._raw_table.cast(_plain(self._raw_table.schema))

    @cached_property
    def typed_columns(self) -> Columns:
        return _column_types(self._raw_table.schema)


class AnsweredRows(Struct, frozen=True):
    """The rows of a query in JSON, as servers of all versions send them."""

    rows: list[dict[str, Any]]
    columns: tuple[str, ...] | None = None
    query_name: str = ""
    target: ReadTargetOutput | None = None
    graph_commit_id: str | None = None


class JsonRows(_Origin, QueryRows):
    """The rows of one query from a server, or a proxy, that sent JSON where Arrow was asked for.

    Values are those of JSON. Types are not said there, so those of `to_arrow`, `to_pandas` and `to_polars` are guessed
    from the values.
    """

    def __init__(self, reply: Reply, target: ReadPoint) -> None:
        answered = reply.decode(AnsweredRows)
        super().__init__(reply, target)
        self._rows = answered.rows
        self._names = list(answered.columns or dict.fromkeys(name for row in self._rows for name in row))
        self.query_name = self.query_name or answered.query_name
        self.graph_commit_id = self.graph_commit_id or answered.graph_commit_id or ""
        where = answered.target
        self.target = target if where is None else ReadPoint(where.branch, where.snapshot)

    @cached_property
    def table(self) -> pa.Table:
        import pyarrow as pa

        return pa.table({name: _guess_column([row.get(name) for row in self._rows]) for name in self._names})

    @property
    def typed_columns(self) -> Columns:
        return [(field.name, str(field.type)) for field in self.table.schema]

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in projection order."""
        return list(self._names)

    def rows(self, integers: Integers = Integers.NATIVE) -> list[dict[str, Any]]:
        """One dictionary per row, keys in projection order."""
        if integers is not Integers.NATIVE:
            return super().rows(integers)
        return [{name: row.get(name) for name in self._names} for row in self._rows]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __getitem__(self, at: Any) -> Any:
        return self.rows()[at]

    def __len__(self) -> int:
        return len(self._rows)


def _guess_column(values: list[Any]) -> pa.Array:
    """A column of values that JSON gave; as their texts where they are of different kinds."""
    import pyarrow as pa

    for type_ in (None, pa.uint64()):  # Arrow makes 64 bits with a sign of integers by itself
        with suppress(pa.ArrowException, OverflowError):
            return pa.array(values, type_)
    return pa.array([None if value is None else wire.encode(value).decode() for value in values], pa.string())


def received_rows(reply: Reply, target: ReadPoint) -> RemoteRows | JsonRows:
    """The rows of an answer, as its media type says them."""
    return JsonRows(reply, target) if reply.media == Media.JSON else RemoteRows(reply, target)


def holds_rows(reply: Reply) -> bool:
    """Whether the answer to a stored query has rows, or is the receipt of a mutation."""
    return reply.media == Media.ARROW or reply.decode(dict[str, Any]).get("rows") is not None


class _Batches(_Origin, ArrowBatches):
    """What both kinds of streams know. `first` are batches that came with the schema."""

    def __init__(self, reply: Reply, target: ReadPoint, decoder: BatchDecoder, first: list[pa.RecordBatch]) -> None:
        super().__init__(reply, target)
        self._decoder = decoder
        self._first = first

    @property
    def schema(self) -> pa.Schema:
        return _plain(self._decoder.schema)

    @property
    def typed_columns(self) -> Columns:
        return _column_types(self._decoder.schema)


class RemoteBatches(_Batches):
    """The rows of one query as Arrow record batches, taken from the connection as they are asked for.

    A stream is read once, by whichever of its methods comes first. One that breaks off raises; it never ends early.
    """

    def __init__(self, answer: Answer, target: ReadPoint) -> None:
        self._answer = answer
        answer.head.require(Media.ARROW, Media.JSON)
        decoder, first = BatchDecoder(), list[Any]()
        for chunk in answer:
            first += decoder.feed(chunk)
            if decoder.schema is not None:
                break
        else:
            decoder.finish()
        super().__init__(answer.head, target, decoder, first)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with closing(self._answer) as answer:
            first, self._first = self._first, []
            schema = self.schema
            yield from (batch.cast(schema) for batch in first)
            for chunk in answer:
                yield from (batch.cast(schema) for batch in self._decoder.feed(chunk))
            self._decoder.finish()

    def rows(self, integers: Integers = Integers.NATIVE) -> Iterator[dict[str, Any]]:
        """A dictionary per row, one after another."""
        for batch in self:
            yield from json_rows(batch, self.columns, integers)

    def reader(self) -> pa.RecordBatchReader:
        """For everything that consumes Arrow streams: DuckDB, Polars, a Flight server, a Parquet writer."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """As `reader`, for libraries that ask for it themselves."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Take no more of it."""
        self._answer.close()


class AsyncRemoteBatches(_Batches):
    """The rows of one query as Arrow record batches: `async for batch in stream`. One that breaks off raises."""

    _answer: AsyncAnswer

    @classmethod
    async def open(cls, answer: AsyncAnswer, target: ReadPoint) -> Self:
        """The stream, once its first message says what its columns are."""
        decoder, first = BatchDecoder(), list[Any]()
        try:
            answer.head.require(Media.ARROW, Media.JSON)
            async for chunk in answer:
                first += decoder.feed(chunk)
                if decoder.schema is not None:
                    break
            else:
                decoder.finish()
        except BaseException:
            await answer.aclose()  # nobody else has it
            raise
        batches = cls(answer.head, target, decoder, first)
        batches._answer = answer
        return batches

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        async with aclosing(self._answer) as answer:
            first, self._first = self._first, []
            schema = self.schema
            for batch in first:
                yield batch.cast(schema)
            async for chunk in answer:
                for batch in self._decoder.feed(chunk):
                    yield batch.cast(schema)
            self._decoder.finish()

    async def rows(self, integers: Integers = Integers.NATIVE) -> AsyncIterator[dict[str, Any]]:
        """A dictionary per row, one after another."""
        async for batch in self:
            for row in json_rows(batch, self.columns, integers):
                yield row

    async def aclose(self) -> None:
        """Take no more of it."""
        await self._answer.aclose()


class JsonBatches(_Origin, ArrowBatches):
    """As `RemoteBatches`, of an answer in JSON, which comes whole."""

    def __init__(self, reply: Reply, target: ReadPoint) -> None:
        super().__init__(reply, target)
        self._whole = JsonRows(reply, target)
        self.query_name, self.graph_commit_id = self._whole.query_name, self._whole.graph_commit_id
        self.target = self._whole.target

    @property
    def schema(self) -> pa.Schema:
        return self._whole.table.schema

    @property
    def typed_columns(self) -> Columns:
        return self._whole.typed_columns

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._whole.table.to_batches())

    def rows(self, integers: Integers = Integers.NATIVE) -> Iterator[dict[str, Any]]:
        """A dictionary per row, one after another."""
        return iter(self._whole.rows(integers))

    def reader(self) -> pa.RecordBatchReader:
        """For everything that consumes Arrow streams."""
        return self._whole.table.to_reader()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """As `reader`, for libraries that ask for it themselves."""
        return self._whole.__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """It is here already."""


class AsyncJsonBatches(JsonBatches):
    """As `AsyncRemoteBatches`, of an answer in JSON, which comes whole."""

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        for batch in self:
            yield batch

    async def rows(self, integers: Integers = Integers.NATIVE) -> AsyncIterator[dict[str, Any]]:  # type: ignore[override]
        """A dictionary per row, one after another."""
        for row in self._whole.rows(integers):
            yield row

    async def aclose(self) -> None:
        """It is here already."""


def received_batches(answer: Answer, target: ReadPoint) -> RemoteBatches | JsonBatches:
    """The rows of an answer in pieces, as its media type says them."""
    if answer.head.media != Media.JSON:
        return RemoteBatches(answer, target)
    return JsonBatches(replace(answer.head, body=b"".join(answer)), target)


async def awaited_batches(answer: AsyncAnswer, target: ReadPoint) -> AsyncRemoteBatches | AsyncJsonBatches:
    """The same for asyncio."""
    if answer.head.media != Media.JSON:
        return await AsyncRemoteBatches.open(answer, target)
    return AsyncJsonBatches(replace(answer.head, body=b"".join([chunk async for chunk in answer])), target)


def _column_types(schema: Any) -> Columns:
    """The columns with their types as the language calls them; as Arrow does where the server does not say."""
    return [
        (field.name, (field.metadata or {}).get(TYPE_METADATA, str(field.type).encode()).decode()) for field in schema
    ]


def _plain(schema: Any) -> Any:
    """The schema without what only our columns say of themselves."""
    import pyarrow as pa

    return pa.schema([field.remove_metadata() for field in schema])
