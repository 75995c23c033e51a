"""Responses that come in pieces: exports, baselines and blobs.

Streams of records are given out as whole lines; the error that a server writes as the last line is raised, and so is a
missing end. A blob is found by its headers and read in ranges, always of the commit it was found in. No I/O happens
here: both transports feed it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import msgspec

from omnigraph import errors
from omnigraph.api import wire
from omnigraph.api.enums import Dates, EntityKind
from omnigraph.api.history import ChangeBaseline, ChangeBaselineRecord, ChangeBaselineRequest, ChangeScope
from omnigraph.api.queries import LONGEST_READ, BlobCell, BlobDescription, BlobTarget, ExportRequest, ReadPoint
from omnigraph.api.service.http import BlobParameters, ExportParameters, received_error
from omnigraph.api.service.routes import SNAPSHOT_HEADER
from omnigraph.client.connection import Remote, Reply, Request, Steps
from omnigraph.client.operations import RemoteOperations

Content = TypeVar("Content")
"""Bytes, or a coroutine that returns them."""


def export_request(remote: Remote, /, point: ReadPoint, types: Collection[str], *, epoch: bool) -> Request:
    """All entities of a state, or those of some types. A server that does not know the parameter answers with numbers,
    which load as well."""
    body = ExportRequest(point.branch, tuple(types) or None, point.snapshot, point.version, point.at)
    return remote._reading(remote._request("export", None if epoch else ExportParameters(Dates.ISO), body), point)


def baseline_request(remote: Remote, /, branch: str, scope: ChangeScope) -> Request:
    kinds = tuple(EntityKind(kind) for kind in sorted(scope.kinds))
    body = ChangeBaselineRequest(branch, kinds, tuple(sorted(scope.types)), tuple(sorted(scope.ops)))
    return remote._reading(remote._request("captureChangeBaseline", body=body), ReadPoint(branch))


_ERROR: Final = b'{"error":'
"""How the last line of a stream that failed begins. Records begin with their type or edge."""


class _ErrorLine(msgspec.Struct):
    error: msgspec.Raw


class RecordLines:
    """The lines of an export."""

    def __init__(self) -> None:
        self._pending = b""
        self.received = 0

    def feed(self, chunk: bytes) -> bytes:
        """The lines that are complete now, each with its end. Raises what the server says went wrong."""
        self.received += len(chunk)
        whole, end, self._pending = (self._pending + chunk).rpartition(b"\n")
        last = whole[whole.rfind(b"\n") + 1 :]
        if not last.startswith(_ERROR):
            return whole + end
        try:
            reported = wire.decode(last, _ErrorLine).error
            error = received_error(bytes(reported))
        except errors.BadRequestError:
            error = errors.AnswerBrokenError(self.received, "its last line tells an error that this client can't read")
        raise error

    def finish(self) -> None:
        """Nothing more comes."""
        if self._pending:
            raise errors.AnswerBrokenError(self.received, "its last line is not complete")


class BaselineLines(RecordLines):
    """The lines of a baseline. The last one is not a record: it holds the cursor, and only a complete stream has it."""

    def __init__(self) -> None:
        super().__init__()
        self._held_back = b""

    def feed(self, chunk: bytes) -> bytes:
        lines = self._held_back + super().feed(chunk)
        at = lines.rfind(b"\n", 0, -1) + 1
        self._held_back = lines[at:]
        return lines[:at]

    def baseline(self) -> ChangeBaseline:
        """The record at the end."""
        self.finish()
        try:
            return wire.decode(self._held_back, ChangeBaselineRecord).baseline
        except errors.BadRequestError:
            cause = "the stream lacks its last record, so there is no usable cursor; discard what was written"
            raise errors.AnswerBrokenError(self.received, cause) from None


def texts(lines: bytes) -> list[str]:
    """Lines as texts, each with its end."""
    return [f"{line.decode()}\n" for line in lines.split(b"\n")[:-1]]


@dataclass(frozen=True, slots=True)
class RemoteBlob(Generic[Content]):
    """A blob cell that was found: its description, and its bytes when the graph owns them. Of an `AsyncRemoteGraph`,
    its methods are awaited."""

    description: BlobDescription
    _request: Request
    _run: Callable[[Steps[bytes]], Content]

    def read(self) -> Content:
        """The whole value."""
        return self._run(self._whole())

    def read_range(self, start: int, end: int) -> Content:
        """The bytes from `start` up to, not including, `end`. At most 4 MiB at a time."""
        return self._run(self._part(start, end))

    def _whole(self) -> Steps[bytes]:
        parts, size = [], self._size()
        for start in range(0, size, LONGEST_READ):
            parts.append((yield from self._part(start, min(start + LONGEST_READ, size))))
        return b"".join(parts)

    def _part(self, start: int, end: int) -> Steps[bytes]:
        size = self._size()
        if not 0 <= start <= end <= size:
            raise errors.BlobRangeError(start, end, size)
        if end - start > LONGEST_READ:
            raise errors.ResourceLimitError(
                "Blob read range bytes", LONGEST_READ, end - start, "read it in several ranges"
            )
        if start == end:
            return b""
        reply = yield self._request.with_headers({"Range": f"bytes={start}-{end - 1}"})
        if reply.status == 412:
            raise errors.ConflictError("Blob read target changed; retry the command")
        if reply.status not in (200, 206):
            raise _blob_failure(reply)
        content = reply.body if reply.status == 206 else reply.body[start:end]
        if len(content) != end - start:
            message = f"Blob delivery stream ended after {len(content)} bytes; expected {end - start}"
            raise errors.AnswerBrokenError(len(content), message)
        return content

    def _size(self) -> int:
        """How long the value is, when its bytes are the graph's own."""
        if self.description.size is None:
            raise self.description.not_downloaded()
        return self.description.size


def find_blob(remote: RemoteOperations, /, point: ReadPoint, cell: BlobCell) -> Steps[tuple[BlobDescription, Request]]:
    """The value of one blob cell, and the request for its bytes by range with a tag, or for an external object."""
    if cell.kind not in tuple(EntityKind):
        raise errors.BadRequestError(f"invalid Blob selector: '{cell.kind}' is neither node nor edge")
    where: dict[str, Any] = {
        "entity": EntityKind(cell.kind), "type": cell.type, "id": cell.id, "property": cell.property
    }  # fmt: skip
    asked = BlobParameters(**where, **point.keywords)
    request = remote._reading(remote._request("getBlob", asked), point)
    reply = yield replace(request, method="HEAD")
    if reply.status >= 400:
        # An answer to a HEAD has no body, so that what went wrong has to be asked for.
        reply = yield request.with_headers({"Range": "bytes=0-0"})
        if reply.status >= 400 and reply.status != 416:
            remote._forget_if_gone(request, reply, point)
            raise _blob_failure(reply)
    commit = reply.headers.get(SNAPSHOT_HEADER)
    if commit is None:
        raise errors.UnexpectedAnswerError(
            reply.status, f"no header {SNAPSHOT_HEADER}, which tells the commit that was read"
        )
    target = BlobTarget(branch=point.branch, snapshot=point.snapshot, resolved_snapshot=commit)
    if reply.status == 302:
        description = BlobDescription(selector=cell, kind="external", uri=reply.headers.get("location"), target=target)
        return description, request
    tag = reply.headers.get("etag")
    # The length of the whole value, from the headers of a part or of all of it.
    total = (reply.headers.get("content-range") or "").rpartition("/")[2] or reply.headers.get("content-length") or ""
    if not total.isdigit():
        raise errors.UnexpectedAnswerError(reply.status, "no length of the Blob")
    description = BlobDescription(selector=cell, kind="managed", size=int(total), etag=tag, target=target)
    pinned = remote._request("getBlob", BlobParameters(**where, snapshot=commit))
    return description, pinned if tag is None else pinned.with_headers({"If-Match": tag})


def _blob_failure(reply: Reply) -> errors.OmniGraphError:
    """The error of a reply, which says that it is about a blob."""
    error = reply.failure()
    if isinstance(error, errors.UnauthorizedError):
        return errors.UnauthorizedError(f"Blob read requires authentication: {error}")
    if isinstance(error, errors.PolicyError):
        return errors.PolicyError(f"Blob read is forbidden: {error}")
    return error
