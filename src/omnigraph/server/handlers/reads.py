"""Queries and listings: what is read of one state of a graph."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import msgspec

from omnigraph.api.branches import BranchList
from omnigraph.api.enums import EntityKind, PolicyAction
from omnigraph.api.merge import NO_RESOLUTIONS, MergePreviewRequest
from omnigraph.api.parameters import (
    CommitsParameters,
    CountParameters,
    EntityParameters,
    HistoryParameters,
    PointParameters,
)
from omnigraph.api.query import (
    LegacyReadOutput,
    LegacyReadRequest,
    QueryPlan,
    QueryRequest,
    ReadOutput,
    ReadPoint,
    ReadTarget,
    StoredQueries,
)
from omnigraph.api.routes import QUERY_HEADER, Media
from omnigraph.api.schema import SchemaPlanRequest, SchemaSource
from omnigraph.api.snapshots import EntityCount
from omnigraph.engine.history.commits import summary
from omnigraph.engine.listing import listing
from omnigraph.engine.query.entity import count_entities as count_entities_of
from omnigraph.engine.query.entity import read_entity
from omnigraph.engine.query.read import Asked, explain_query, profile_query, stream_query
from omnigraph.engine.query.result import QueryStream
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.write.receipts import receipt_of
from omnigraph.errors import EntityNotFoundError
from omnigraph.server.answers import Answer, AnyAnswer, json_answer
from omnigraph.server.call import Call, branch_name, checked_point, handles
from omnigraph.server.handlers.streaming import stream_answer
from omnigraph.server.negotiation import chosen_media
from omnigraph.server.row_streams import json_array, row_chunks, small

_READS_THE_CLOCK: Final = re.compile(r"\bnow\b")
"""Any mention of the function. White space and comments may stand before its brackets."""


@handles("query")
def query(call: Call) -> AnyAnswer:
    request: QueryRequest = call.body
    return answer_query(call, request)


@handles("read")
def read(call: Call) -> AnyAnswer:
    request: LegacyReadRequest = call.body
    return answer_query(call, request.request, legacy=True)


def answer_query(call: Call, request: QueryRequest, *, legacy: bool = False) -> AnyAnswer:
    """The rows in the format that the client asks for: JSON whole, every other one as a stream."""
    point = checked_point(ReadPoint(request.branch, request.snapshot, request.version, request.at))
    target = ReadTarget(point.branch, point.snapshot)
    asked: Asked = (request.query, request.name, request.params)
    media = chosen_media(call.headers.get("accept"), call.route.media)

    def run(state: Snapshot) -> AnyAnswer:
        rows = stream_query(state, target, asked, call.read_options())
        if media is not Media.JSON:
            return _streamed(call, state, rows, media)
        return json_answer(_output(rows, call.limits.result_rows, legacy=legacy), call.saw(state))

    return call.read(point, run, immutable=_READS_THE_CLOCK.search(request.query) is None, text=request.query)


def _streamed(call: Call, state: Snapshot, rows: QueryStream, media: Media) -> AnyAnswer:
    headers = {**call.saw(state), QUERY_HEADER: rows.query_name}
    whole, chunks = small(row_chunks(rows, media))
    if whole is not None:
        return Answer(whole, media=media, headers=headers)
    return stream_answer(call, chunks, media, headers, last_line_tells_error=media is Media.NDJSON)


def _output(rows: QueryStream, most_rows: int, *, legacy: bool) -> ReadOutput | LegacyReadOutput:
    """The rows are in it as the JSON that they become: as Python values they would take many times as much memory."""
    encoded, count = json_array(rows, most_rows)
    shape = LegacyReadOutput if legacy else partial(ReadOutput, graph_commit_id=rows.graph_commit_id)
    return shape(
        query_name=rows.query_name,
        target=rows.target,
        row_count=count,
        columns=tuple(rows.columns),
        rows=msgspec.Raw(encoded),  # type: ignore[arg-type]
    )


@handles("explain")
def explain(call: Call) -> AnyAnswer:
    request: QueryRequest = call.body

    def run(state: Snapshot) -> AnyAnswer:
        lines = explain_query(state, (request.query, request.name, request.params), call.read_options())
        return json_answer(QueryPlan(tuple(lines)), call.saw(state))

    point = ReadPoint(request.branch, request.snapshot, request.version, request.at)
    return call.read(point, run, immutable=False)


@handles("profile")
def profile(call: Call) -> AnyAnswer:
    request: QueryRequest = call.body

    def run(state: Snapshot) -> AnyAnswer:
        measured = profile_query(state, (request.query, request.name, request.params), call.read_options())
        return json_answer(measured, call.saw(state))

    point = ReadPoint(request.branch, request.snapshot, request.version, request.at)
    return call.read(point, run, immutable=False)


@handles("getSnapshot")
def get_snapshot(call: Call) -> AnyAnswer:
    parameters: PointParameters = call.parameters
    return call.read(parameters.point, lambda state: json_answer(listing(state), call.saw(state)))


@handles("getSchema")
def get_schema(call: Call) -> AnyAnswer:
    parameters: PointParameters = call.parameters

    def run(state: Snapshot) -> AnyAnswer:
        return json_answer(SchemaSource(state.schema_document.source), call.saw(state))

    named = parameters.point != ReadPoint()
    return call.read(parameters.point, run, of_branch=named)


@handles("getEntity")
def get_entity(call: Call) -> AnyAnswer:
    parameters: EntityParameters = call.parameters
    kind, name = parameters.entity, parameters.type

    def run(state: Snapshot) -> AnyAnswer:
        type_ = state.catalog.type_named(name if kind is None else f"{kind}:{name}")
        found = read_entity(state, type_, parameters.id)
        if found is None:
            raise EntityNotFoundError(type_.type_key.replace(":", " "), parameters.id)
        return json_answer(found, call.saw(state))

    return call.read(parameters.point, run)


@handles("countEntities")
def count_entities(call: Call) -> AnyAnswer:
    parameters: CountParameters = call.parameters
    kind, name = parameters.entity, parameters.type

    def run(state: Snapshot) -> AnyAnswer:
        type_ = state.catalog.type_named(name if kind is None else f"{kind}:{name}")
        found = EntityCount(EntityKind(type_.kind), type_.name, count_entities_of(state, type_))
        return json_answer(found, call.saw(state))

    return call.read(parameters.point, run)


@handles("listBranches")
def list_branches(call: Call) -> AnyAnswer:
    call.require(PolicyAction.READ)
    return json_answer(BranchList(tuple(call.whole.list_branches())))


@handles("listCommits")
def list_commits(call: Call) -> AnyAnswer:
    parameters: CommitsParameters = call.parameters
    branch = branch_name(parameters.branch)
    call.require(PolicyAction.READ, branch)
    limit = parameters.limit or call.limits.result_rows
    return json_answer(call.whole.commits(branch, limit=limit, before=parameters.before))


@handles("getCommit")
def get_commit(call: Call) -> AnyAnswer:
    call.require(PolicyAction.READ)
    return json_answer(receipt_of(call.whole._workspace.commit_entry(call.path["commit_id"].strip())))


@handles("getCommitSummary")
def get_commit_summary(call: Call) -> AnyAnswer:
    state = call.whole._workspace.snapshot(snapshot=call.path["commit_id"].strip())
    return json_answer(summary(call.seen(state)))


@handles("getHistory")
def get_history(call: Call) -> AnyAnswer:
    parameters: HistoryParameters = call.parameters
    branch = branch_name(parameters.branch)
    graph = call.require(PolicyAction.READ, branch)
    limit = parameters.limit or call.limits.result_rows
    history = graph.commit_history(branch, limit=limit, before=parameters.before, exact=parameters.exact)
    return json_answer(history)


@handles("planSchema")
def plan_schema(call: Call) -> AnyAnswer:
    request: SchemaPlanRequest = call.body
    branch = branch_name(request.branch)
    graph = call.require(PolicyAction.READ, branch)
    return json_answer(graph.plan_schema(request.schema_source, branch=branch, allow_data_loss=request.allow_data_loss))


@handles("previewMerge")
def preview_merge(call: Call) -> AnyAnswer:
    """Whoever may read both branches may see how they differ."""
    request: MergePreviewRequest = call.body
    source, target = branch_name(request.source), branch_name(request.target)
    call.require(PolicyAction.READ, source)._workspace.refuse_narrowed("the preview of a merge")
    graph = call.require(PolicyAction.READ, target)
    return json_answer(graph.preview_merge(source, target, resolutions=request.resolutions or NO_RESOLUTIONS))


@handles("list_queries")
def list_queries(call: Call) -> AnyAnswer:
    call.require(PolicyAction.READ, "main")
    stored = call.served.queries
    return json_answer(StoredQueries(tuple(stored[name].entry for name in sorted(stored))))
