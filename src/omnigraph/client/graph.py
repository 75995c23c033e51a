"""`RemoteGraph` and `AsyncRemoteGraph`: a graph behind a server, used like one that is opened in this process.

Both take their public methods from `omnigraph.api.graph` and their operations from `operations`; here are the
transports, and the operations whose responses come in pieces.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import aclosing, closing
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from omnigraph.api.calls import Call
from omnigraph.api.graph import GraphApi, follow, next_poll
from omnigraph.api.history import ChangeBaseline, ChangePoll, ChangeRecord, ChangeScope, PollRequest, SchemaChange
from omnigraph.api.queries import BlobCell, ByteWriter, ReadPoint
from omnigraph.api.service.routes import Media
from omnigraph.client import streams
from omnigraph.client.connection import Address, Binder, Request, Settings, Steps, plain_binder
from omnigraph.client.operations import RemoteOperations, RemoteSnapshot, Rows
from omnigraph.client.rows import (
    AsyncJsonBatches,
    AsyncRemoteBatches,
    JsonBatches,
    RemoteBatches,
    awaited_batches,
    received_batches,
)
from omnigraph.client.transport import AsyncTransport, Transport

Result = TypeVar("Result")
Given = ParamSpec("Given")
AsyncBlob = streams.RemoteBlob[Coroutine[Any, Any, bytes]]


class RemoteGraph(
    RemoteOperations, GraphApi[Rows, RemoteBatches | JsonBatches, RemoteSnapshot, streams.RemoteBlob[bytes]]
):
    """A graph behind a server. Implements `omnigraph.GraphApi` as `Graph` does, over HTTP.

    A handle may be shared between threads; it keeps connections. Reads are repeated when a response is lost, within
    `timeout`, and so are writes, each of which has an idempotency key. A handle reads what it has written. Errors are
    those of the engine, with their fields.
    """

    def __init__(self, address: Address, settings: Settings | None = None, binder: Binder = plain_binder) -> None:
        super().__init__(address, binder)
        self._transport = Transport(settings or Settings(), encrypted=address.is_encrypted)

    def close(self) -> None:
        """Close the connections. Leaving a `with` block does it."""
        self._transport.close()

    def _run(self, steps: Steps[Result], *, reads_input: bool = False) -> Result:
        return self._transport.run(steps)

    # Responses that come in pieces

    def _stream(self, point: ReadPoint, call: Call, options: Any) -> RemoteBatches | JsonBatches:
        return received_batches(self._transport.open(self._query_request(point, call, options)), point.target)

    def _export(self, point: ReadPoint, types: Collection[str], epoch: bool) -> Iterator[str]:
        blocks = self._blocks(streams.export_request(self, point, types, epoch=epoch), streams.RecordLines())
        return (text for block in blocks for text in streams.texts(block))

    def _export_to(self, point: ReadPoint, types: Collection[str], epoch: bool, writer: ByteWriter) -> int:
        entities = 0
        for block in self._blocks(streams.export_request(self, point, types, epoch=epoch), streams.RecordLines()):
            writer.write(block)
            entities += block.count(b"\n")
        return entities

    def _baseline(self, writer: ByteWriter, branch: str, scope: ChangeScope) -> ChangeBaseline:
        lines = streams.BaselineLines()
        for block in self._blocks(streams.baseline_request(self, branch, scope), lines):
            writer.write(block)
        return lines.baseline()

    def _blocks(self, request: Request, lines: streams.RecordLines) -> Iterator[bytes]:
        """Whole lines as they arrive. The request is sent now, not when the first block is taken."""
        response = self._transport.open(request)

        def blocks() -> Iterator[bytes]:
            with closing(response):
                response.head.require(Media.NDJSON)
                for chunk in response:
                    yield lines.feed(chunk)
                lines.finish()

        return blocks()

    def _changes_of(self, commit_id: str, scope: ChangeScope) -> Iterator[SchemaChange | ChangeRecord]:
        first = self._changes_page(commit_id, scope, None, None, None)

        def records() -> Iterator[SchemaChange | ChangeRecord]:
            page = first
            yield from page
            while page.next_page_token is not None:
                page = self._changes_page(commit_id, scope, page.next_page_token, None, None)
                yield from page

        return records()

    def _follow(self, request: PollRequest) -> Iterator[ChangePoll]:
        return follow(self, request)

    def _blob(self, point: ReadPoint, cell: BlobCell) -> streams.RemoteBlob[bytes]:
        return streams.RemoteBlob(*self._transport.run(streams.find_blob(self, point, cell)), self._transport.run)


class _AsyncResults(GraphApi[Rows, AsyncRemoteBatches | AsyncJsonBatches, RemoteSnapshot, AsyncBlob]):
    """The signatures of the public methods with the results that an `AsyncRemoteGraph` gives. Never instantiated."""

    list_graphs = RemoteOperations.list_graphs


def await_call(
    call: Callable[Concatenate[_AsyncResults, Given], Result],
) -> Callable[Concatenate[Any, Given], Coroutine[Any, Any, Result]]:
    """A public method whose operation gives a coroutine."""

    @functools.wraps(call)
    async def method(self: Any, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return await _coroutine(call(self, *args, **kwargs))

    return method


def _coroutine(result: Result) -> Coroutine[Any, Any, Result]:
    """The result of an operation, which is a coroutine for an `AsyncRemoteGraph`."""
    return cast(Coroutine[Any, Any, Result], result)


def iterate_call(
    call: Callable[Concatenate[_AsyncResults, Given], Iterator[Result]],
) -> Callable[Concatenate[Any, Given], AsyncIterator[Result]]:
    """A public method whose operation gives an asynchronous iterator."""

    @functools.wraps(call)
    async def method(self: Any, /, *args: Given.args, **kwargs: Given.kwargs) -> AsyncIterator[Result]:
        items: Any = call(self, *args, **kwargs)
        async for item in items:
            yield item

    return method


class AsyncRemoteGraph(RemoteOperations):
    """A graph behind a server, for asyncio: the methods of `RemoteGraph`, awaited.

    A method that returns an iterator there returns an asynchronous one here: `async for line in graph.export()`.
    """

    def __init__(self, address: Address, settings: Settings | None = None, binder: Binder = plain_binder) -> None:
        super().__init__(address, binder)
        self._transport = AsyncTransport(settings or Settings(), encrypted=address.is_encrypted)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _run(self, steps: Steps[Result], *, reads_input: bool = False) -> Any:
        return self._transport.run(steps, reads_input=reads_input)

    query = await_call(_AsyncResults.query)
    stream = await_call(_AsyncResults.stream)
    explain = await_call(_AsyncResults.explain)
    profile = await_call(_AsyncResults.profile)
    entity = await_call(_AsyncResults.entity)
    count = await_call(_AsyncResults.count)
    snapshot = await_call(_AsyncResults.snapshot)
    at = await_call(_AsyncResults.at)
    listing = await_call(_AsyncResults.listing)
    resolve_snapshot = await_call(_AsyncResults.resolve_snapshot)
    version_of = await_call(_AsyncResults.version_of)
    read_blob = await_call(_AsyncResults.read_blob)
    export = iterate_call(_AsyncResults.export)
    export_to = await_call(_AsyncResults.export_to)
    export_files = _AsyncResults.export_files
    mutate = await_call(_AsyncResults.mutate)
    load = await_call(_AsyncResults.load)
    load_lenient = await_call(_AsyncResults.load_lenient)
    invoke = await_call(_AsyncResults.invoke)
    branch = await_call(_AsyncResults.branch)
    create_branch = await_call(_AsyncResults.create_branch)
    delete_branch = await_call(_AsyncResults.delete_branch)
    merge = await_call(_AsyncResults.merge)
    preview_merge = await_call(_AsyncResults.preview_merge)

    # Responses that come in pieces

    async def _stream(self, point: ReadPoint, call: Call, options: Any) -> AsyncRemoteBatches | AsyncJsonBatches:
        answer = await self._transport.open(self._query_request(point, call, options))
        return await awaited_batches(answer, point.target)

    async def _export(self, point: ReadPoint, types: Collection[str], epoch: bool) -> AsyncIterator[str]:
        async for block in self._blocks(streams.export_request(self, point, types, epoch=epoch), streams.RecordLines()):
            for text in streams.texts(block):
                yield text

    async def _export_to(self, point: ReadPoint, types: Collection[str], epoch: bool, writer: ByteWriter) -> int:
        entities = 0
        async for block in self._blocks(streams.export_request(self, point, types, epoch=epoch), streams.RecordLines()):
            writer.write(block)
            entities += block.count(b"\n")
        return entities

    async def _baseline(self, writer: ByteWriter, branch: str, scope: ChangeScope) -> ChangeBaseline:
        lines = streams.BaselineLines()
        async for block in self._blocks(streams.baseline_request(self, branch, scope), lines):
            writer.write(block)
        return lines.baseline()

    async def _blocks(self, request: Request, lines: streams.RecordLines) -> AsyncIterator[bytes]:
        """Whole lines as they arrive."""
        async with aclosing(await self._transport.open(request)) as response:
            response.head.require(Media.NDJSON)
            async for chunk in response:
                yield lines.feed(chunk)
            lines.finish()

    async def _changes_of(self, commit_id: str, scope: ChangeScope) -> AsyncIterator[SchemaChange | ChangeRecord]:
        page_token: str | None = None
        while True:
            page = await _coroutine(self._changes_page(commit_id, scope, page_token, None, None))
            for change in page:
                yield change
            page_token = page.next_page_token
            if page_token is None:
                return

    async def _follow(self, request: PollRequest) -> AsyncIterator[ChangePoll]:
        """The first poll is made when the first item is awaited, and `now` is that moment."""
        poll = await _coroutine(self._poll(request, None))
        while True:
            if poll.blocks:
                yield poll
            poll = await _coroutine(self._poll(*next_poll(request, poll)))

    async def _blob(self, point: ReadPoint, cell: BlobCell) -> AsyncBlob:
        return streams.RemoteBlob(*await self._transport.run(streams.find_blob(self, point, cell)), self._transport.run)
