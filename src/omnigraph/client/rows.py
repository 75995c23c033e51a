"""Rows that came over HTTP: whole results, and streams of batches. Arrow is loaded when they are looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from omnigraph.api.arrow_rows import ArrowBatches, ArrowRows, json_rows
from omnigraph.api.enums import Integers
from omnigraph.api.query import ReadTarget
from omnigraph.api.result_table import Columns
from omnigraph.api.routes import COMMIT_HEADER, QUERY_HEADER, TYPE_METADATA, Media
from omnigraph.client.answers import Answer, AsyncAnswer
from omnigraph.client.arrow_frames import END, BatchDecoder
from omnigraph.client.messages import Reply
from omnigraph.errors import AnswerBrokenError, UnexpectedAnswerError

if TYPE_CHECKING:
    import pyarrow as pa


class _Origin:
    """What the headers of an answer with rows say."""

    def __init__(self, reply: Reply, target: ReadTarget) -> None:
        self._target = target
        self._query_name = reply.header(QUERY_HEADER) or ""
        self._graph_commit_id = reply.header(COMMIT_HEADER) or ""

    @property
    def query_name(self) -> str:
        return self._query_name

    @property
    def target(self) -> ReadTarget:
        """What is read: a branch, or a commit."""
        return self._target

    @property
    def graph_commit_id(self) -> str:
        """The commit that the read sees."""
        return self._graph_commit_id


class RemoteRows(_Origin, ArrowRows):
    """The rows of one query, in order, as the server sent them.

    Iterating gives a dictionary per row; `result[0]` is one, `result[1:3]` is a list of them. Values are plain Python
    values: dates and times as ISO texts, which `to_arrow`, `to_pandas` and `to_polars` give as real ones.
    """

    def __init__(self, reply: Reply, target: ReadTarget) -> None:
        require_arrow(reply)
        if not reply.body.endswith(END):
            raise AnswerBrokenError(len(reply.body), "the Arrow stream lacks its end")
        super().__init__(reply, target)
        self._stream = reply.body

    @cached_property
    def _received(self) -> pa.Table:
        import pyarrow as pa

        table = pa.ipc.open_stream(pa.py_buffer(self._stream)).read_all()
        del self._stream
        return table

    @cached_property
    def table(self) -> pa.Table:
        return self._received.cast(_plain(self._received.schema))

    @cached_property
    def typed_columns(self) -> Columns:
        return _typed(self._received.schema)


def require_arrow(reply: Reply) -> None:
    if reply.media != Media.ARROW:
        text = f"rows as '{reply.media}', and not as Arrow, which this client reads"
        raise UnexpectedAnswerError(reply.status, text)


class _Batches(_Origin, ArrowBatches):
    """What both kinds of streams know. `first` are batches that came with the schema."""

    def __init__(self, reply: Reply, target: ReadTarget, decoder: BatchDecoder, first: list[Any]) -> None:
        super().__init__(reply, target)
        self._decoder = decoder
        self._first = first

    @property
    def schema(self) -> pa.Schema:
        return _plain(self._decoder.schema)

    @property
    def typed_columns(self) -> Columns:
        return _typed(self._decoder.schema)


class RemoteBatches(_Batches):
    """The rows of one query as Arrow record batches, taken from the connection as they are asked for.

    A stream is read once, by whichever of its methods comes first. One that breaks off raises; it never ends early.
    """

    def __init__(self, answer: Answer, target: ReadTarget) -> None:
        decoder = BatchDecoder()
        first: list[Any] = []
        self._answer = answer
        require_arrow(answer.head)
        for chunk in answer:
            first += decoder.feed(chunk)
            if decoder.schema is not None:
                break
        else:
            decoder.finish()
            raise AnswerBrokenError(decoder.received, "the Arrow stream has no schema")
        super().__init__(answer.head, target, decoder, first)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with self._answer as answer:
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

    def __init__(self, answer: AsyncAnswer, target: ReadTarget, decoder: BatchDecoder, first: list[Any]) -> None:
        super().__init__(answer.head, target, decoder, first)
        self._answer = answer

    @classmethod
    async def opened(cls, answer: AsyncAnswer, target: ReadTarget) -> AsyncRemoteBatches:
        """The stream, once its first message says what its columns are."""
        decoder = BatchDecoder()
        first: list[Any] = []
        try:
            require_arrow(answer.head)
            async for chunk in answer:
                first += decoder.feed(chunk)
                if decoder.schema is not None:
                    return cls(answer, target, decoder, first)
            decoder.finish()
            raise AnswerBrokenError(decoder.received, "the Arrow stream has no schema")
        except BaseException:
            await answer.aclose()  # nobody else has it
            raise

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        async with self._answer as answer:
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


def _typed(schema: Any) -> Columns:
    """The columns with their types as the language calls them; as Arrow does where the server does not say."""
    return [
        (field.name, (field.metadata or {}).get(TYPE_METADATA, str(field.type).encode()).decode()) for field in schema
    ]


def _plain(schema: Any) -> Any:
    """The schema without what only our columns say of themselves."""
    import pyarrow as pa

    return pa.schema([field.remove_metadata() for field in schema])
