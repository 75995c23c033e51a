"""`RemoteGraph`: a graph behind a server, used like one that is opened here.

`AsyncRemoteGraph`: a graph behind a server, for programs that use asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from omnigraph.api.graph import follow, next_poll
from omnigraph.api.history import ChangeBaseline, ChangePoll, ChangeRecord, ChangeScope
from omnigraph.api.queries import ByteWriter, ReadPoint
from omnigraph.api.service.routes import Media
from omnigraph.client import history, reads, streams, writes
from omnigraph.client.connection import MAIN, Address, Binder, Remote, Settings, plain_binder, target_of
from omnigraph.client.rows import (
    AsyncJsonBatches,
    AsyncRemoteBatches,
    JsonBatches,
    RemoteBatches,
    awaited_batches,
    received_batches,
)
from omnigraph.client.streams import (
    AsyncRemoteBlob,
    BaselineLines,
    NeedsStorage,
    RecordLines,
    RemoteBlob,
    baseline_request,
    counted,
    export_request,
    texts,
)
from omnigraph.client.transport import Answer, AsyncAnswer, AsyncTransport, Transport, awaited, sent

if TYPE_CHECKING:
    from omnigraph.api.graph import GraphApi


class RemoteGraph(NeedsStorage, Remote):
    """A graph behind a server. Implements `omnigraph.GraphApi` as `Graph` does, over HTTP.

    A handle may be shared between threads; it keeps connections. Reads are repeated when an answer is lost, within
    `timeout`, and so are writes, each of which has an idempotency key. What a handle has written it also reads. Errors
    are those of the engine, with their fields.
    """

    def __init__(self, address: Address, settings: Settings | None = None, binder: Binder = plain_binder) -> None:
        super().__init__(address, binder)
        self._transport = Transport(settings or Settings(), encrypted=address.is_encrypted)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    query = sent(reads.query)
    explain = sent(reads.explain)
    profile = sent(reads.profile)
    entity = sent(reads.entity)
    count = sent(reads.count)
    snapshot = sent(reads.snapshot)
    at = sent(reads.at)
    listing = sent(reads.listing)

    mutate = sent(writes.mutate)
    load = sent(writes.load)
    load_lenient = sent(writes.load_lenient)

    stored_queries = sent(reads.stored_queries)
    invoke = sent(writes.invoke)

    branch = sent(reads.branch)
    create_branch = sent(writes.create_branch)
    list_branches = sent(history.list_branches)
    delete_branch = sent(writes.delete_branch)
    merge = sent(writes.merge)
    preview_merge = sent(history.preview_merge)

    resolve_snapshot = sent(reads.resolve_snapshot)
    version_of = sent(reads.version_of)
    commits = sent(history.commits)
    commit_history = sent(history.commit_history)
    describe_commit = sent(history.describe_commit)
    diff = sent(history.diff)

    commit_changes = sent(history.commit_changes)
    poll_changes = sent(history.poll_changes)

    schema_text = sent(reads.schema_text)
    plan_schema = sent(reads.plan_schema)
    apply_schema = sent(writes.apply_schema)

    list_graphs = sent(reads.list_graphs)

    # What comes in pieces

    def stream(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: Any = None,
        **parameters: Any,
    ) -> RemoteBatches | JsonBatches:
        """As `query`, a batch at a time: for results that should not be in memory at once."""
        point = ReadPoint(branch, snapshot, version, at)
        answer = self._transport.open(reads.query_request(self, source, name, params, point, parameters, options))
        return received_batches(answer, target_of(point))

    def export(
        self,
        *,
        branch: str | None = None,
        types: Collection[str] = (),
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        epoch: bool = False,
    ) -> Iterator[str]:
        """The lines of an export, each with its line end. They can be loaded as they are. Dates and times are texts of
        ISO 8601; with `epoch`, days and milliseconds since 1970."""
        point = ReadPoint(branch, snapshot, version, at)
        blocks = _blocks(self._transport.open(export_request(self, point, types, epoch=epoch)), RecordLines())
        return (text for block in blocks for text in texts(block))

    def export_to(
        self,
        writer: ByteWriter,
        *,
        branch: str | None = None,
        types: Collection[str] = (),
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        epoch: bool = False,
    ) -> int:
        """Write an export as it comes; how many entities that were."""
        point = ReadPoint(branch, snapshot, version, at)
        entities = 0
        for block in _blocks(self._transport.open(export_request(self, point, types, epoch=epoch)), RecordLines()):
            writer.write(block)
            entities += counted(block)
        return entities

    def capture_baseline(
        self, writer: ByteWriter, *, branch: str = MAIN, scope: ChangeScope | None = None
    ) -> ChangeBaseline:
        """Write an export of the branch's head, and return the cursor that continues exactly after it.

        If it raises, discard what was written: only a whole stream has a cursor.
        """
        lines = BaselineLines()
        for block in _blocks(self._transport.open(baseline_request(self, branch, scope)), lines):
            writer.write(block)
        return lines.baseline()

    def iter_commit_changes(self, commit_id: str, *, scope: ChangeScope | None = None) -> Iterator[ChangeRecord]:
        """Everything a commit changed, one after another."""
        page = self.commit_changes(commit_id, scope=scope)

        def records() -> Iterator[ChangeRecord]:
            shown = page
            yield from shown.changes
            while shown.next_page_token is not None:
                shown = self.commit_changes(commit_id, scope=scope, page_token=shown.next_page_token)
                yield from shown.changes

        return records()

    def follow(
        self,
        *,
        branch: str = MAIN,
        start: str | None = None,
        cursor: str | None = None,
        scope: ChangeScope | None = None,
        max_changes: int | None = None,
    ) -> Iterator[ChangePoll]:
        """The changes of a branch as they happen from this call on, without end.

        Each item has blocks; one that ends a commit has a `cursor`, which a later `follow` goes on from. A connection
        that is lost is made again there.
        """
        return follow(self, start, cursor, branch=branch, scope=scope, max_changes=max_changes)

    def read_blob(
        self,
        kind: str,
        type: str,
        id: str,
        property: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> RemoteBlob:
        """The value of one blob cell: bytes by range with a tag, or the reference to an external object."""
        point: dict[str, Any] = {"branch": branch, "snapshot": snapshot, "version": version, "at": at}
        return RemoteBlob(self._find_blob(kind, type, id, property, **point), self._transport)

    _find_blob = sent(streams.find_blob)


def _blocks(answer: Answer, lines: RecordLines) -> Iterator[bytes]:
    """Whole lines, as they come."""
    with answer:
        answer.head.require(Media.NDJSON)
        for chunk in answer:
            yield lines.feed(chunk)
        lines.finish()


if TYPE_CHECKING:

    def _implements(graph: RemoteGraph) -> GraphApi:
        return graph


class AsyncRemoteGraph(NeedsStorage, Remote):
    """A graph behind a server, for asyncio: the methods of `RemoteGraph`, awaited.

    What gives an iterator there gives an asynchronous one here: `async for line in graph.export()`.
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

    query = awaited(reads.query)
    explain = awaited(reads.explain)
    profile = awaited(reads.profile)
    entity = awaited(reads.entity)
    count = awaited(reads.count)
    snapshot = awaited(reads.snapshot)
    at = awaited(reads.at)
    listing = awaited(reads.listing)

    mutate = awaited(writes.mutate)
    load = awaited(writes.load, reads_input=True)
    load_lenient = awaited(writes.load_lenient, reads_input=True)

    stored_queries = awaited(reads.stored_queries)
    invoke = awaited(writes.invoke)

    branch = awaited(reads.branch)
    create_branch = awaited(writes.create_branch)
    list_branches = awaited(history.list_branches)
    delete_branch = awaited(writes.delete_branch)
    merge = awaited(writes.merge)
    preview_merge = awaited(history.preview_merge)

    resolve_snapshot = awaited(reads.resolve_snapshot)
    version_of = awaited(reads.version_of)
    commits = awaited(history.commits)
    commit_history = awaited(history.commit_history)
    describe_commit = awaited(history.describe_commit)
    diff = awaited(history.diff)

    commit_changes = awaited(history.commit_changes)
    poll_changes = awaited(history.poll_changes)

    schema_text = awaited(reads.schema_text)
    plan_schema = awaited(reads.plan_schema)
    apply_schema = awaited(writes.apply_schema)

    list_graphs = awaited(reads.list_graphs)

    # What comes in pieces

    async def stream(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: Any = None,
        **parameters: Any,
    ) -> AsyncRemoteBatches | AsyncJsonBatches:
        """As `query`, a batch at a time: `async for batch in await graph.stream(…)`"""
        point = ReadPoint(branch, snapshot, version, at)
        answer = await self._transport.open(reads.query_request(self, source, name, params, point, parameters, options))
        return await awaited_batches(answer, target_of(point))

    async def export(
        self,
        *,
        branch: str | None = None,
        types: Collection[str] = (),
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        epoch: bool = False,
    ) -> AsyncIterator[str]:
        """The lines of an export, each with its line end. They can be loaded as they are."""
        point = ReadPoint(branch, snapshot, version, at)
        async for block in _async_blocks(
            await self._transport.open(export_request(self, point, types, epoch=epoch)), RecordLines()
        ):
            for text in texts(block):
                yield text

    async def export_to(
        self,
        writer: ByteWriter,
        *,
        branch: str | None = None,
        types: Collection[str] = (),
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        epoch: bool = False,
    ) -> int:
        """Write an export as it comes; how many entities that were."""
        point = ReadPoint(branch, snapshot, version, at)
        entities = 0
        async for block in _async_blocks(
            await self._transport.open(export_request(self, point, types, epoch=epoch)), RecordLines()
        ):
            writer.write(block)
            entities += counted(block)
        return entities

    async def capture_baseline(
        self, writer: ByteWriter, *, branch: str = MAIN, scope: ChangeScope | None = None
    ) -> ChangeBaseline:
        """Write an export of the branch's head, and return the cursor that continues exactly after it.

        If it raises, discard what was written: only a whole stream has a cursor.
        """
        lines = BaselineLines()
        async for block in _async_blocks(await self._transport.open(baseline_request(self, branch, scope)), lines):
            writer.write(block)
        return lines.baseline()

    async def iter_commit_changes(
        self, commit_id: str, *, scope: ChangeScope | None = None
    ) -> AsyncIterator[ChangeRecord]:
        """Everything a commit changed, one after another."""
        page_token: str | None = None
        while True:
            page = await self.commit_changes(commit_id, scope=scope, page_token=page_token)
            for change in page.changes:
                yield change
            page_token = page.next_page_token
            if page_token is None:
                return

    async def follow(
        self,
        *,
        branch: str = MAIN,
        start: str | None = None,
        cursor: str | None = None,
        scope: ChangeScope | None = None,
        max_changes: int | None = None,
    ) -> AsyncIterator[ChangePoll]:
        """The changes of a branch as they happen, without end; see `RemoteGraph.follow`.

        Nothing is asked before the first item is awaited, and `now` is that moment: to miss nothing from an earlier
        one, give the `cursor` of an awaited `changes.poll`.
        """
        options: dict[str, Any] = {"branch": branch, "scope": scope, "max_changes": max_changes}
        poll = await self.poll_changes(start=start, cursor=cursor, **options)
        while True:
            if poll.blocks:
                yield poll
            poll = await self.poll_changes(**next_poll(poll), **options)

    async def read_blob(
        self,
        kind: str,
        type: str,
        id: str,
        property: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> AsyncRemoteBlob:
        """The value of one blob cell: bytes by range with a tag, or the reference to an external object."""
        point: dict[str, Any] = {"branch": branch, "snapshot": snapshot, "version": version, "at": at}
        return AsyncRemoteBlob(await self._find_blob(kind, type, id, property, **point), self._transport)

    _find_blob = awaited(streams.find_blob)


async def _async_blocks(answer: AsyncAnswer, lines: RecordLines) -> AsyncIterator[bytes]:
    """Whole lines, as they come."""
    async with answer:
        answer.head.require(Media.NDJSON)
        async for chunk in answer:
            yield lines.feed(chunk)
        lines.finish()
