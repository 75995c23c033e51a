"""The handlers that read one snapshot of a graph: queries, entities, listings, exports, blobs, history and pipelines.

Each one decodes its request, makes one call of the graph for the actor of the request, and encodes the result. Large
results are streams, which are made while the client reads them. Preconditions and ranges of blobs are evaluated in the
order of the HTTP standard.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from omnigraph.api import wire
from omnigraph.api.branches import NO_RESOLUTIONS, BranchList, EntityCount, MergePreviewRequest
from omnigraph.api.commits import CommitReceipt
from omnigraph.api.enums import Dates, EntityKind, PolicyAction
from omnigraph.api.history import ChangeBaselineRecord, ChangeBaselineRequest
from omnigraph.api.queries import (
    LONGEST_READ,
    BlobCell,
    ExportRequest,
    LegacyReadOutput,
    LegacyReadRequest,
    QueryPlan,
    QueryRequest,
    ReadOutput,
    ReadPoint,
    ReadTargetOutput,
)
from omnigraph.api.schema import SchemaPlanRequest, SchemaSource
from omnigraph.api.service.http import (
    BlobParameters,
    CommitsParameters,
    CountParameters,
    EntityParameters,
    HistoryParameters,
)
from omnigraph.api.service.pipeline import ServedPipeline, ServedPipelines
from omnigraph.api.service.routes import QUERY_HEADER, SNAPSHOT_HEADER, Media
from omnigraph.engine.blobs import ExternalBlob, ManagedBlob, blob_in
from omnigraph.engine.export import export_lines
from omnigraph.engine.history.commits import listing
from omnigraph.engine.history.feed import begin_baseline
from omnigraph.engine.maintenance.index_status import index_status
from omnigraph.engine.query.read import Asked, explain_query, profile_query, stream_query
from omnigraph.engine.query.result import QueryStream
from omnigraph.engine.query.visibility import count_entities as count_entities_of
from omnigraph.engine.query.visibility import read_entity
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.statements import branch_rows, is_branch_list
from omnigraph.engine.write.publish import receipt_of
from omnigraph.errors import BadRequestError, BlobIntegrityError, BlobRangeError, ConflictError, EntityNotFoundError
from omnigraph.language.catalog import TableType
from omnigraph.language.dependents import Dependent, breakages, stored_queries
from omnigraph.language.schema.compile import accept_schema
from omnigraph.policy.gate import load_gate
from omnigraph.server.catalog import Served
from omnigraph.server.http.call import MAIN, Call, branch_name, handles
from omnigraph.server.http.responses import (
    AnyResponse,
    Response,
    StreamResponse,
    chosen_media,
    error_response,
    json_response,
    matches_strongly,
    matches_weakly,
    with_headers,
)
from omnigraph.server.http.streaming import WHOLE_BYTES, in_chunks, json_array, row_chunks, small

_NDJSON = f"{Media.NDJSON}; charset=utf-8"


def stream_response(call: Call, chunks: Iterator[bytes], media: str, headers: Mapping[str, str]) -> AnyResponse:
    """A stream in one of the slots that its graph has."""
    graph_id = call.served.graph_id
    close = call.services.budgets.open_stream(call.actor, graph_id)
    open_streams = call.services.telemetry.metrics.streams.labels(graph_id)
    open_streams.inc()

    def release() -> None:
        close()
        open_streams.dec()

    return StreamResponse(chunks, media, headers=headers, release=release)


@handles("export")
def export(call: Call) -> AnyResponse:
    request: ExportRequest = call.body
    dates = request.dates or call.parameters.dates or Dates.EPOCH

    def run(state: Snapshot) -> AnyResponse:
        lines = (line + b"\n" for line in export_lines(state, request.type_names or (), dates=dates))
        return stream_response(call, in_chunks(lines), _NDJSON, call.commit_header(state))

    return call.read(ReadPoint.of(request), run, action=PolicyAction.EXPORT, text=dates.value)


@handles("captureChangeBaseline")
def capture_baseline(call: Call) -> AnyResponse:
    request: ChangeBaselineRequest = call.body
    branch = branch_name(request.branch)
    graph = call.require(PolicyAction.EXPORT, branch)
    baseline = begin_baseline(graph._workspace, branch, request.scope)

    def lines() -> Iterator[bytes]:
        for line in baseline.lines():
            yield line + b"\n"
        # Only a stream that was written to its end has this record, so only a whole one can be continued.
        yield wire.encode(ChangeBaselineRecord(baseline.record)) + b"\n"

    return stream_response(call, in_chunks(lines()), _NDJSON, call.commit_header(baseline.state))


_NOT_OF_THE_COMMIT: Final = re.compile(r"\b(now|explain)\b")
"""Any mention of the clock, and of plans, which a newer version of the program may change. White space and comments may
come before the brackets of the function."""


@handles("query")
def query(call: Call) -> AnyResponse:
    return query_response(call, call.body)


@handles("read")
def read(call: Call) -> AnyResponse:
    request: LegacyReadRequest = call.body
    return query_response(call, request.request, legacy=True)


def query_response(call: Call, request: QueryRequest, *, legacy: bool = False) -> AnyResponse:
    """The rows in the format that the client asks for: JSON whole, every other one as a stream."""
    asked: Asked = (request.query, request.name, request.params)
    media = chosen_media(call.headers.get("accept"), call.route.media)
    respond = partial(_rows_response, call, media, legacy=legacy)
    if is_branch_list(*asked, ReadPoint.of(request)):
        return respond(branch_rows(call.graph.list_branches()), {})
    point, options = ReadPoint.of(request).normalize(), call.read_options(request.traversal_work)

    def run(state: Snapshot) -> AnyResponse:
        return respond(stream_query(state, point.target, asked, options), call.commit_header(state))

    return call.read(point, run, immutable=_NOT_OF_THE_COMMIT.search(request.query) is None, text=request.query)


def _rows_response(
    call: Call, media: Media, rows: QueryStream, headers: dict[str, str], *, legacy: bool
) -> AnyResponse:
    if media is Media.JSON:
        return json_response(_output(rows, call.limits.result_rows, legacy=legacy), headers)
    headers[QUERY_HEADER] = rows.query_name
    whole, chunks = small(row_chunks(rows, media))
    if whole is not None:
        return Response(whole, media=media, headers=headers)
    return stream_response(call, chunks, media, headers)


def _output(rows: QueryStream, most_rows: int, *, legacy: bool) -> ReadOutput | LegacyReadOutput:
    """The rows are in it as the JSON that they become: as Python values they would take many times as much memory."""
    encoded, count = json_array(rows, most_rows)
    shape = LegacyReadOutput if legacy else partial(ReadOutput, graph_commit_id=rows.graph_commit_id or None)
    return shape(
        query_name=rows.query_name,
        target=ReadTargetOutput.of(rows.target),
        row_count=count,
        columns=tuple(rows.columns),
        rows=msgspec.Raw(encoded),  # type: ignore[arg-type]
    )


@handles("explain")
def explain(call: Call) -> AnyResponse:
    request: QueryRequest = call.body
    asked: Asked = (request.query, request.name, request.params)

    def run(state: Snapshot) -> QueryPlan:
        return QueryPlan(tuple(explain_query(state, asked, call.read_options())))

    return call.read_json(ReadPoint.of(request), run, immutable=False)


@handles("profile")
def profile(call: Call) -> AnyResponse:
    request: QueryRequest = call.body
    asked: Asked = (request.query, request.name, request.params)
    point, options = ReadPoint.of(request), call.read_options(request.traversal_work)
    return call.read_json(point, lambda state: profile_query(state, asked, options), immutable=False)


@handles("getSnapshot")
def get_snapshot(call: Call) -> AnyResponse:
    return call.read_json(call.parameters, listing)


@handles("getIndexStatus")
def get_index_status(call: Call) -> AnyResponse:
    return call.read_json(call.parameters, index_status)


@handles("getSchema")
def get_schema(call: Call) -> AnyResponse:
    parameters: ReadPoint = call.parameters
    of_branch = parameters != ReadPoint()
    return call.read_json(parameters, lambda state: SchemaSource(state.schema_document.source), of_branch=of_branch)


@handles("getEntity")
def get_entity(call: Call) -> AnyResponse:
    parameters: EntityParameters = call.parameters

    def run(state: Snapshot) -> dict[str, Any]:
        type_ = _type_of(state, parameters)
        entity = read_entity(state, type_, parameters.id)
        if entity is None:
            raise EntityNotFoundError(type_.type_key.replace(":", " "), parameters.id)
        return entity

    return call.read_json(ReadPoint.of(parameters), run)


@handles("countEntities")
def count_entities(call: Call) -> AnyResponse:
    parameters: CountParameters = call.parameters

    def run(state: Snapshot) -> EntityCount:
        type_ = _type_of(state, parameters)
        return EntityCount(EntityKind(type_.kind), type_.name, count_entities_of(state, type_))

    return call.read_json(ReadPoint.of(parameters), run)


def _type_of(state: Snapshot, parameters: EntityParameters | CountParameters) -> TableType:
    kind, name = parameters.entity, parameters.type
    return state.catalog.type_named(name if kind is None else f"{kind}:{name}")


@handles("listBranches")
def list_branches(call: Call) -> AnyResponse:
    return json_response(BranchList(tuple(call.graph.list_branches())))


@handles("listCommits")
def list_commits(call: Call) -> AnyResponse:
    parameters: CommitsParameters = call.parameters
    limit = parameters.limit or call.limits.result_rows
    return json_response(call.graph.commits(branch_name(parameters.branch), limit=limit, before=parameters.before))


@handles("getCommit")
def get_commit(call: Call) -> AnyResponse:
    workspace = call.workspace.for_action(PolicyAction.READ)
    return json_response(receipt_of(workspace.commit_entry(call.path["commit_id"].strip())))


@handles("getCommitSummary")
def get_commit_summary(call: Call) -> AnyResponse:
    return json_response(call.graph.describe_commit(call.path["commit_id"].strip()))


@handles("getHistory")
def get_history(call: Call) -> AnyResponse:
    parameters: HistoryParameters = call.parameters
    branch, limit = branch_name(parameters.branch), parameters.limit or call.limits.result_rows
    history = call.graph.commit_history(branch, limit=limit, before=parameters.before, exact=parameters.exact)
    return json_response(history)


@handles("planSchema")
def plan_schema(call: Call) -> AnyResponse:
    request: SchemaPlanRequest = call.body
    branch, source = branch_name(request.branch), request.schema_source
    options = request.allow_data_loss, request.dedupe
    plan = call.graph.schema.plan(source, branch=branch, allow_data_loss=options[0], dedupe=options[1])
    state = call.graph.snapshot(branch)
    if plan.supported and plan.steps and state.visibility.is_unrestricted:
        broken = breakages(state.catalog, accept_schema(source), _dependents(call.served))
        plan = msgspec.structs.replace(plan, breaks=broken)
    return json_response(plan)


def _dependents(served: Served) -> Iterator[Dependent]:
    """What the server runs on the schema of a graph: its stored queries, and its policy."""
    for name, query in served.queries.items():
        yield from (each for each in stored_queries(query.source) if each.name == name)
    if served.policy is not None:
        gate = load_gate(served.policy.source, "graph", served.policy.name, served.graph_id)
        yield Dependent("policy", served.policy.name, gate.bind_schema)


@handles("previewMerge")
def preview_merge(call: Call) -> AnyResponse:
    request: MergePreviewRequest = call.body
    source, target = branch_name(request.source), branch_name(request.target)
    return json_response(call.graph.preview_merge(source, target, resolutions=request.resolutions or NO_RESOLUTIONS))


@handles("list_queries")
def list_queries(call: Call) -> AnyResponse:
    return json_response(call.graph.stored_queries())


@handles("listPipelines")
def list_pipelines(call: Call) -> AnyResponse:
    """An actor who may read main sees them; a last run is shown to those who may read its branch."""
    workspace, served = call.workspace.for_action(PolicyAction.READ, MAIN), call.served
    by_branch: defaultdict[str, list[str]] = defaultdict(list)
    for pipeline in served.pipelines:
        by_branch[pipeline.branch].append(pipeline.name)
    last: dict[str, CommitReceipt] = {}
    for branch, names in by_branch.items():
        if workspace.allows(PolicyAction.READ, branch):
            last |= served.runs.last(workspace, branch, names)
    listed = (
        ServedPipeline(pipeline.name, pipeline.branch, pipeline.digest, last.get(pipeline.name))
        for pipeline in sorted(served.pipelines, key=lambda pipeline: pipeline.name)
    )
    return json_response(ServedPipelines(tuple(listed)))


_RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.IGNORECASE | re.ASCII)
_LARGEST_NUMBER: Final = 2**63 - 1


class Delivery(NamedTuple):
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
    if matches_weakly(headers.get("if-none-match", ""), tag):
        return Delivery(304, 0, length)
    # A range is ignored unless `If-Range` has exactly this tag, a strong one.
    is_of_this = headers.get("if-range", tag).strip() == tag
    part = _part(headers.get("range", ""), length) if is_of_this and not is_head else None
    return Delivery(200, 0, length) if part is None else Delivery(206, *part)


def _part(header: str, length: int) -> tuple[int, int] | None:
    """The range as start and end; None for one that is malformed, which HTTP says to ignore."""
    match = _RANGE.fullmatch(header)
    if match is None or not (match[1] or match[2]):
        return None
    first, last = (int(number) if number else None for number in match.groups())
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
    blob = blob_in(call.served.graph._workspace, call.state(point), cell, point)
    content, snapshot = blob.content, {SNAPSHOT_HEADER: blob.resolved_target}
    if not isinstance(content, ExternalBlob):
        return _managed_response(call, content, snapshot)
    if content.offset or content.length is not None:
        raise BlobIntegrityError("an external reference is to a part of an object, which a redirect can't express")
    headers = {**snapshot, "Location": content.uri, "Cache-Control": "no-store"}
    return Response(status=302, media=None, headers=headers)


def _managed_response(call: Call, content: ManagedBlob, snapshot: dict[str, str]) -> AnyResponse:
    headers = {**snapshot, "ETag": content.etag, "Accept-Ranges": "bytes"}
    try:
        part = delivery(call.headers, content.etag, content.length, is_head=call.exchange.is_head)
    except BlobRangeError as error:
        refused = error_response(error, call.exchange.request_id, call.route)
        return with_headers(refused, {**headers, "Content-Range": f"bytes */{content.length}"})
    if part.status == 412:
        refused = error_response(ConflictError("the blob is not the one that If-Match names"), call.exchange.request_id)
        return with_headers(Response(refused.body, 412), headers)
    if part.status == 304:
        return Response(status=304, media=None, headers={**headers, "Content-Length": str(content.length)})
    if part.status == 206:
        headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{content.length}"
    headers["Content-Length"] = str(part.length)
    if call.exchange.is_head:
        return StreamResponse(iter(()), Media.BYTES, part.status, headers)
    if part.length <= WHOLE_BYTES:
        return Response(b"".join(_pieces(content, part)), part.status, Media.BYTES, headers)
    close = call.services.budgets.open_stream(call.actor)
    return StreamResponse(_pieces(content, part), Media.BYTES, part.status, headers, release=close)


def _pieces(content: ManagedBlob, part: Delivery) -> Iterator[bytes]:
    for start in range(part.start, part.end, LONGEST_READ):
        yield content.read_range(start, min(start + LONGEST_READ, part.end))
