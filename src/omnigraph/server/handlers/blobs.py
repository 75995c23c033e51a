"""Blobs: the bytes of a value by range, or the address of one that lies elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.api.blobs import LONGEST_READ, BlobCell
from omnigraph.api.parameters import BlobParameters
from omnigraph.api.routes import SNAPSHOT_HEADER, Media
from omnigraph.engine.blobs import ExternalBlob, ManagedBlob, blob_in
from omnigraph.errors import BadRequestError, BlobIntegrityError, BlobRangeError, ConflictError
from omnigraph.server.answers import Answer, AnyAnswer, StreamAnswer, error_answer, with_headers
from omnigraph.server.blob_delivery import Delivery, delivery
from omnigraph.server.call import Call, checked_point, handles
from omnigraph.server.row_streams import WHOLE_BYTES


@handles("getBlob")
def get_blob(call: Call) -> AnyAnswer:
    parameters: BlobParameters = call.parameters
    cell = BlobCell(parameters.entity, parameters.type, parameters.id, parameters.property)
    try:
        point = checked_point(parameters.point)
    except BadRequestError as error:
        raise BadRequestError(f"{call.route.bad_parameters}: {error}") from None
    found = blob_in(call.whole._workspace, call.state(point), cell, point)
    snapshot = {SNAPSHOT_HEADER: found.resolved_target}
    if isinstance(found.content, ExternalBlob):
        return _redirect(found.content, snapshot)
    return _managed(call, found.content, snapshot)


def _redirect(content: ExternalBlob, snapshot: dict[str, str]) -> AnyAnswer:
    if content.offset or content.length is not None:
        raise BlobIntegrityError("an external reference is to a part of an object, which no address can tell")
    headers = {**snapshot, "Location": content.uri, "Cache-Control": "no-store"}
    return Answer(status=302, media=None, headers=headers)


def _managed(call: Call, content: ManagedBlob, snapshot: dict[str, str]) -> AnyAnswer:
    headers = {**snapshot, "ETag": content.etag, "Accept-Ranges": "bytes"}
    try:
        part = delivery(call.headers, content.etag, content.length, is_head=call.is_head)
    except BlobRangeError as error:
        refused = error_answer(error, call.request_id, call.route)
        return with_headers(refused, {**headers, "Content-Range": f"bytes */{content.length}"})
    if part.status == 412:
        refused = error_answer(ConflictError("the blob is not the one that If-Match names"), call.request_id)
        return with_headers(Answer(refused.body, 412), headers)
    if part.status == 304:
        return Answer(status=304, media=None, headers={**headers, "Content-Length": str(content.length)})
    if part.status == 206:
        headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{content.length}"
    if call.is_head:
        return StreamAnswer(iter(()), Media.BYTES, part.status, headers, length=part.length)
    if part.length <= WHOLE_BYTES:
        return Answer(b"".join(_pieces(content, part)), part.status, Media.BYTES, headers)
    close = call.services.budgets.open_stream(call.actor)
    return StreamAnswer(_pieces(content, part), Media.BYTES, part.status, headers, length=part.length, release=close)


def _pieces(content: ManagedBlob, part: Delivery) -> Iterator[bytes]:
    for start in range(part.start, part.end, LONGEST_READ):
        yield content.reader.read_range(start, min(start + LONGEST_READ, part.end))
