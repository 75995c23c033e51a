"""`AsyncRemoteGraph`: a graph behind a server, for programs that use asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime
from typing import Any, Self

from omnigraph.api.graph import next_poll
from omnigraph.api.history import ChangeBaseline, ChangePoll, ChangeRecord, ChangeScope
from omnigraph.api.queries import ByteWriter, ReadPoint
from omnigraph.api.service.routes import Media
from omnigraph.client import blobs, history, reads, writes
from omnigraph.client.address import Address
from omnigraph.client.answers import AsyncAnswer
from omnigraph.client.async_transport import AsyncTransport
from omnigraph.client.blobs import AsyncRemoteBlob
from omnigraph.client.methods import awaited
from omnigraph.client.record_lines import BaselineLines, RecordLines, counted, texts
from omnigraph.client.remote import MAIN, Binder, Remote, plain_binder, target_of
from omnigraph.client.rows import AsyncJsonBatches, AsyncRemoteBatches, awaited_batches
from omnigraph.client.settings import Settings
from omnigraph.client.streams import NeedsStorage, baseline_request, export_request


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
        async for block in _blocks(
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
        async for block in _blocks(
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
        async for block in _blocks(await self._transport.open(baseline_request(self, branch, scope)), lines):
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

    _find_blob = awaited(blobs.find_blob)


async def _blocks(answer: AsyncAnswer, lines: RecordLines) -> AsyncIterator[bytes]:
    """Whole lines, as they come."""
    async with answer:
        answer.head.require(Media.NDJSON)
        async for chunk in answer:
            yield lines.feed(chunk)
        lines.finish()
