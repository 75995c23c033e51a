"""The handler of blobs: the bytes of a value by range, or a redirect to a value that is stored elsewhere.

Preconditions and ranges of HTTP are evaluated in the order of the standard. `delivery` is pure: it takes the headers of
a request, the tag and the length of the value, and returns the status and the part to send.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph.api.queries import LONGEST_READ, BlobCell, ReadPoint
from omnigraph.api.service.http import BlobParameters
from omnigraph.api.service.routes import SNAPSHOT_HEADER, Media
from omnigraph.engine.blobs import ExternalBlob, ManagedBlob, blob_in
from omnigraph.errors import BadRequestError, BlobIntegrityError, BlobRangeError, ConflictError
from omnigraph.server.http.call import Call, handles
from omnigraph.server.http.responses import (
    AnyResponse,
    Response,
    StreamResponse,
    error_response,
    is_this_strong_tag,
    matches_strongly,
    matches_weakly,
    with_headers,
)
from omnigraph.server.http.streaming import WHOLE_BYTES

_RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.IGNORECASE | re.ASCII)
_LARGEST_NUMBER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Delivery:
    """The bytes from `start` up to, not including, `end` are sent, unless the status says that nothing is."""

    status: int
    start: int = 0
    end: int = 0

    @property
    def length(self) -> int:
        return self.end - self.start


def delivery(headers: Mapping[str, str], tag: str, length: int, *, is_head: bool) -> Delivery:
    """The status and the part for a request. Raises `BlobRangeError` for a range outside the value."""
    if (wanted := headers.get("if-match")) is not None and not matches_strongly(wanted, tag):
        return Delivery(412)
    if (known := headers.get("if-none-match")) is not None and matches_weakly(known, tag):
        return Delivery(304, 0, length)
    whole = Delivery(200, 0, length)
    if is_head or (asked := headers.get("range")) is None:
        return whole
    if (of := headers.get("if-range")) is not None and not is_this_strong_tag(of, tag):
        return whole
    part = _part(asked, length)
    return whole if part is None else Delivery(206, *part)


def _part(header: str, length: int) -> tuple[int, int] | None:
    """The range as start and end; None for one that is malformed, which HTTP says to ignore."""
    found = _RANGE.fullmatch(header)
    if found is None or not (found[1] or found[2]):
        return None
    first, last = (int(number) if number else None for number in found.groups())
    if (first or 0) > _LARGEST_NUMBER or (last or 0) >= _LARGEST_NUMBER:
        return None
    if first is None:
        size = min(last or 0, length)
        if size == 0:
            raise BlobRangeError(length, length, length)
        return length - size, length
    if last is not None and last < first:
        return None
    end = length if last is None else last + 1
    if first >= length:
        raise BlobRangeError(first, end, length)
    return first, min(end, length)


@handles("getBlob")
def get_blob(call: Call) -> AnyResponse:
    parameters: BlobParameters = call.parameters
    cell = BlobCell(parameters.entity, parameters.type, parameters.id, parameters.property)
    try:
        point = ReadPoint.of(parameters).normalize()
    except BadRequestError as error:
        raise BadRequestError(f"{call.route.bad_parameters}: {error}") from None
    found = blob_in(call.served.graph._workspace, call.state(point), cell, point)
    snapshot = {SNAPSHOT_HEADER: found.resolved_target}
    if isinstance(found.content, ExternalBlob):
        return _redirect(found.content, snapshot)
    return _managed_response(call, found.content, snapshot)


def _redirect(content: ExternalBlob, snapshot: dict[str, str]) -> AnyResponse:
    if content.offset or content.length is not None:
        raise BlobIntegrityError("an external reference is to a part of an object, which a redirect can't express")
    headers = {**snapshot, "Location": content.uri, "Cache-Control": "no-store"}
    return Response(status=302, media=None, headers=headers)


def _managed_response(call: Call, content: ManagedBlob, snapshot: dict[str, str]) -> AnyResponse:
    headers = {**snapshot, "ETag": content.etag, "Accept-Ranges": "bytes"}
    try:
        part = delivery(call.headers, content.etag, content.length, is_head=call.is_head)
    except BlobRangeError as error:
        refused = error_response(error, call.request_id, call.route)
        return with_headers(refused, {**headers, "Content-Range": f"bytes */{content.length}"})
    if part.status == 412:
        refused = error_response(ConflictError("the blob is not the one that If-Match names"), call.request_id)
        return with_headers(Response(refused.body, 412), headers)
    if part.status == 304:
        return Response(status=304, media=None, headers={**headers, "Content-Length": str(content.length)})
    if part.status == 206:
        headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{content.length}"
    if call.is_head:
        return StreamResponse(iter(()), Media.BYTES, part.status, headers, length=part.length)
    if part.length <= WHOLE_BYTES:
        return Response(b"".join(_pieces(content, part)), part.status, Media.BYTES, headers)
    close = call.services.budgets.open_stream(call.actor)
    return StreamResponse(_pieces(content, part), Media.BYTES, part.status, headers, length=part.length, release=close)


def _pieces(content: ManagedBlob, part: Delivery) -> Iterator[bytes]:
    for start in range(part.start, part.end, LONGEST_READ):
        yield content.reader.read_range(start, min(start + LONGEST_READ, part.end))
