"""Blob cells of a remote graph: found by their headers, read in ranges, always of the commit they were found in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from omnigraph.api.enums import EntityKind
from omnigraph.api.queries import LONGEST_READ, BlobCell, BlobDescription, BlobTarget, ReadPoint
from omnigraph.api.service.http import BlobParameters
from omnigraph.api.service.routes import SNAPSHOT_HEADER
from omnigraph.client.messages import Reply, Request, Steps
from omnigraph.client.reads import forget_if_gone
from omnigraph.client.remote import Remote
from omnigraph.errors import (
    AnswerBrokenError,
    BadRequestError,
    BlobRangeError,
    ConflictError,
    OmniGraphError,
    PolicyError,
    ResourceLimitError,
    UnauthorizedError,
    UnexpectedAnswerError,
)

if TYPE_CHECKING:
    from omnigraph.client.async_transport import AsyncTransport
    from omnigraph.client.transport import Transport

_FIRST_BYTE: Final = {"Range": "bytes=0-0"}


@dataclass(frozen=True, slots=True)
class FoundBlob:
    """A cell that holds a value, and how its bytes are asked for."""

    description: BlobDescription
    request: Request

    def part(self, start: int, end: int) -> Steps[bytes]:
        """The bytes from `start` up to, not including, `end`. At most 4 MiB at a time."""
        size = self._size()
        if not 0 <= start <= end <= size:
            raise BlobRangeError(start, end, size)
        if end - start > LONGEST_READ:
            raise ResourceLimitError("Blob read range bytes", LONGEST_READ, end - start, "read it in several ranges")
        if start == end:
            return b""
        reply = yield self.request.with_headers({"Range": f"bytes={start}-{end - 1}"})
        if reply.status == 412:
            raise ConflictError("Blob read target changed; retry the command")
        if reply.status not in (200, 206):
            raise _blob_failure(reply)
        content = reply.body if reply.status == 206 else reply.body[start:end]
        if len(content) != end - start:
            raise AnswerBrokenError(
                len(content), f"Blob delivery stream ended after {len(content)} bytes; expected {end - start}"
            )
        return content

    def whole(self) -> Steps[bytes]:
        """The whole value, in consecutive ranges."""
        parts = []
        for start, end in self._ranges():
            parts.append((yield from self.part(start, end)))
        return b"".join(parts)

    def _ranges(self) -> Iterator[tuple[int, int]]:
        size = self._size()
        return ((start, min(start + LONGEST_READ, size)) for start in range(0, size, LONGEST_READ))

    def _size(self) -> int:
        """How long the value is, when its bytes are the graph's own."""
        if self.description.size is None:
            raise self.description.not_downloaded()
        return self.description.size


def find_blob(
    remote: Remote,
    /,
    kind: str,
    type: str,
    id: str,
    property: str,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
    version: int | None = None,
    at: datetime | None = None,
) -> Steps[FoundBlob]:
    """The value of one blob cell: bytes by range with a tag, or the reference to an external object."""
    if kind not in tuple(EntityKind):
        raise BadRequestError(f"invalid Blob selector: '{kind}' is neither node nor edge")
    point = ReadPoint(branch, snapshot, version, at)
    asked = BlobParameters(
        entity=EntityKind(kind), type=type, id=id, property=property, branch=branch, snapshot=snapshot,
        version=version, at=at,
    )  # fmt: skip
    request = remote._reading(remote._request("getBlob", asked), point)
    reply = yield replace(request, method="HEAD")
    if reply.status >= 400:
        # An answer to a HEAD has no body, so that what went wrong has to be asked for.
        reply = yield request.with_headers(_FIRST_BYTE)
        if reply.status >= 400 and reply.status != 416:
            forget_if_gone(remote, request, reply, point)
            raise _blob_failure(reply)
    commit = reply.header(SNAPSHOT_HEADER)
    if commit is None:
        raise UnexpectedAnswerError(reply.status, f"no header {SNAPSHOT_HEADER}, which tells the commit that was read")
    cell = BlobCell(kind, type, id, property)
    target = BlobTarget(branch=branch, snapshot=snapshot, resolved_snapshot=commit)
    if reply.status == 302:
        told = BlobDescription(selector=cell, kind="external", uri=reply.header("location"), target=target)
        return FoundBlob(told, request)
    tag = reply.header("etag")
    told = BlobDescription(selector=cell, kind="managed", size=_length(reply), etag=tag, target=target)
    pinned = remote._request(
        "getBlob", BlobParameters(entity=EntityKind(kind), type=type, id=id, property=property, snapshot=commit)
    )
    return FoundBlob(told, pinned if tag is None else pinned.with_headers({"If-Match": tag}))


def _blob_failure(reply: Reply) -> OmniGraphError:
    """What went wrong, in the words of blobs where the server's own are of anything."""
    error = reply.failure()
    if isinstance(error, UnauthorizedError):
        return UnauthorizedError(f"Blob read requires authentication: {error}")
    if isinstance(error, PolicyError):
        return PolicyError(f"Blob read is forbidden: {error}")
    return error


def _length(reply: Reply) -> int:
    """The length of the whole value, from the headers of a part or of all of it."""
    total = (reply.header("content-range") or "").rpartition("/")[2] or reply.header("content-length") or ""
    if not total.isdigit():
        raise UnexpectedAnswerError(reply.status, "no length of the Blob")
    return int(total)


@dataclass(frozen=True, slots=True)
class RemoteBlob:
    """A blob cell that was found: its description, and its bytes when the graph owns them."""

    _found: FoundBlob
    _transport: Transport

    @property
    def description(self) -> BlobDescription:
        """What is known of the value without reading it."""
        return self._found.description

    def read(self) -> bytes:
        """The whole value."""
        return self._transport.run(self._found.whole())

    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to, not including, `end`. At most 4 MiB at a time."""
        return self._transport.run(self._found.part(start, end))


@dataclass(frozen=True, slots=True)
class AsyncRemoteBlob:
    """As `RemoteBlob`, to be awaited."""

    _found: FoundBlob
    _transport: AsyncTransport

    @property
    def description(self) -> BlobDescription:
        """What is known of the value without reading it."""
        return self._found.description

    async def read(self) -> bytes:
        """The whole value."""
        return await self._transport.run(self._found.whole())

    async def read_range(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to, not including, `end`. At most 4 MiB at a time."""
        return await self._transport.run(self._found.part(start, end))
