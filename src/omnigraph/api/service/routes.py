"""The HTTP API as a table: one row per route.

The router, the OpenAPI document, the remote client and the tests are made from it. Adding a route is adding a row here
and a handler of the same operation id to the server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from omnigraph.api import branches, history, queries
from omnigraph.api.commits import CommitHistory, CommitList, CommitReceipt, CommitSummary
from omnigraph.api.enums import PolicyAction
from omnigraph.api.load import ChangeRequest, GraphBatchLoadOutput, IngestRequest, LoadReceipt, MutationReceipt
from omnigraph.api.maintenance import IndexListing
from omnigraph.api.schema import SchemaApplied, SchemaApplyRequest, SchemaPlan, SchemaPlanRequest, SchemaSource
from omnigraph.api.service import http
from omnigraph.api.service.cluster import GraphList, HealthOutput, Readiness, VersionOutput
from omnigraph.api.service.pipeline import ServedPipelines

GRAPH_PREFIX: Final = "/graphs/{graph_id}"
IF_COMMIT_HEADER: Final = "Omnigraph-If-Graph-Commit"
COMMIT_HEADER: Final = "Omnigraph-Commit"
MIN_COMMIT_HEADER: Final = "Omnigraph-Min-Commit"
QUERY_HEADER: Final = "Omnigraph-Query"
SNAPSHOT_HEADER: Final = "Omnigraph-Snapshot-Id"
IDEMPOTENCY_HEADER: Final = "Idempotency-Key"
REQUEST_ID_HEADER: Final = "X-Request-Id"


TYPE_METADATA: Final = b"omnigraph.type"
"""Where a column of an Arrow stream says its type as the language calls it."""


class Media(StrEnum):
    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    CSV = "text/csv"
    ARROW = "application/vnd.apache.arrow.stream"
    EVENTS = "text/event-stream"
    BYTES = "application/octet-stream"
    TEXT = "text/plain"


class Body(StrEnum):
    """Which ceiling a body has."""

    NONE = "none"
    REQUEST = "request"
    WHOLE_LOAD = "whole_load"
    STREAMED_LOAD = "streamed_load"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation. `path` is below the graph's own, unless the route concerns the server."""

    method: str
    path: str
    operation_id: str
    summary: str
    tag: str
    action: PolicyAction | None = None
    of_graph: bool = True
    request: type[Any] | None = None
    request_is_optional: bool = False
    request_media: tuple[Media, ...] = (Media.JSON,)
    parameters: type[Any] | None = None
    response: tuple[type[Any], ...] = ()
    media: tuple[Media, ...] = (Media.JSON,)
    errors: type[Any] = http.ErrorOutput
    body: Body = Body.NONE
    writes: bool = False
    if_commit: bool = False
    successor: str | None = None
    public: bool = False
    in_document: bool = True
    bad_parameters: str = "invalid query parameters"
    bad_body: str | None = None
    """How a body that can't be decoded is called by a route that answers 400 to all of them, and never 422."""

    def forms(self, *response: type[Any], **more: Any) -> Route:
        """The row with the structs of its responses, and with other settings."""
        return replace(self, response=response, **more)

    @property
    def full_path(self) -> str:
        return f"{GRAPH_PREFIX}{self.path}" if self.of_graph else self.path

    @property
    def document_id(self) -> str:
        """The operation id in the OpenAPI document."""
        return f"cluster_{self.operation_id}" if self.of_graph else self.operation_id

    @property
    def may_write(self) -> bool:
        """Whether it changes the graph, or could: of a stored query only its name tells. It takes a key then."""
        return self.writes or self.operation_id == "invoke_query"


_ROWS_AS: Final = (Media.JSON, Media.NDJSON, Media.CSV, Media.ARROW)


def _row(method: str, path: str, operation_id: str, summary: str, tag: str, action: PolicyAction | None) -> Route:
    return Route(method=method, path=path, operation_id=operation_id, summary=summary, tag=tag, action=action)


def _service(path: str, operation_id: str, summary: str, action: PolicyAction | None = None) -> Route:
    return replace(_row("GET", path, operation_id, summary, "management", action), of_graph=False)


def _get(path: str, operation_id: str, summary: str, tag: str) -> Route:
    return _row("GET", path, operation_id, summary, tag, PolicyAction.READ)


def _post(
    path: str, operation_id: str, summary: str, tag: str, action: PolicyAction | None = PolicyAction.READ
) -> Route:
    return replace(_row("POST", path, operation_id, summary, tag, action), body=Body.REQUEST)


def _write(path: str, operation_id: str, summary: str, tag: str, action: PolicyAction = PolicyAction.CHANGE) -> Route:
    return replace(_post(path, operation_id, summary, tag, action), writes=True)


def _agents(operation_id: str, *, of_graph: bool) -> Route:
    """The protocol of agents describes itself, so the document leaves it out. Each tool asks for its own action."""
    row = _post("/mcp", operation_id, "Tools for agents", "agents", None)
    return replace(row, of_graph=of_graph, in_document=False)


_INVOKE: Final[dict[str, Any]] = {
    "request": queries.InvokeStoredQueryRequest,
    "bad_body": "invalid stored-query invocation body",
    "request_is_optional": True,
}

ROUTES: Final[tuple[Route, ...]] = (
    _service("/healthz", "health", "Whether the process answers").forms(HealthOutput, public=True),
    _service(
        "/version", "version", "The versions of the server, of its storage format and of the query languages"
    ).forms(VersionOutput, public=True),
    _service("/readyz", "ready", "Whether graphs are served, and which are not").forms(Readiness, public=True),
    _service("/metrics", "metrics", "Counters for Prometheus").forms(media=(Media.TEXT,)),
    _service("/openapi.json", "openapi", "This document").forms(public=True, in_document=False),
    _service("/graphs", "listGraphs", "The graphs that are served", PolicyAction.GRAPH_LIST).forms(GraphList),
    # Agents: their protocol has one path, to one graph or to the server that has only one
    _agents("mcp", of_graph=True),
    _agents("mcpOfServer", of_graph=False),
    # Reads
    _get("/snapshot", "getSnapshot", "The tables of a state of the graph", "snapshots").forms(
        branches.SnapshotListing, parameters=queries.ReadPoint
    ),
    _get("/indexes", "getIndexStatus", "What the declared indexes cover, their size and recall", "snapshots").forms(
        IndexListing, parameters=queries.ReadPoint
    ),
    _get("/blob", "getBlob", "The bytes of a blob, or the address of an external one", "blobs").forms(
        parameters=http.BlobParameters, bad_parameters="invalid Blob selector query parameters", media=(Media.BYTES,)
    ),
    _get("/entity", "getEntity", "One node or edge by its id, as an export writes it", "queries").forms(
        dict[str, Any], parameters=http.EntityParameters
    ),
    _get("/count", "countEntities", "How many entities of a type there are", "queries").forms(
        branches.EntityCount, parameters=http.CountParameters
    ),
    _post("/query", "query", "Run a read query", "queries").forms(
        queries.ReadOutput, request=queries.QueryRequest, media=_ROWS_AS
    ),
    _post("/query/explain", "explain", "The plan of a read query; nothing is run", "queries").forms(
        queries.QueryPlan, request=queries.QueryRequest
    ),
    _post(
        "/query/profile",
        "profile",
        "Run a read query, and tell what each of its operators did instead of the rows",
        "queries",
    ).forms(queries.OperatorProfile, request=queries.QueryRequest),
    _post("/read", "read", "Run a read query", "queries").forms(
        queries.LegacyReadOutput, request=queries.LegacyReadRequest, media=_ROWS_AS, successor="query"
    ),
    _post("/export", "export", "Every entity of a state, one record per line", "queries", PolicyAction.EXPORT).forms(
        request=queries.ExportRequest,
        parameters=http.ExportParameters,
        bad_body="invalid export request",
        request_is_optional=True,
        media=(Media.NDJSON,),
    ),
    _get("/schema", "getSchema", "The accepted schema", "schema").forms(SchemaSource, parameters=queries.ReadPoint),
    _post(
        "/schema/plan", "planSchema", "The steps from the accepted schema to another; nothing is changed", "schema"
    ).forms(SchemaPlan, request=SchemaPlanRequest),
    _get("/branches", "listBranches", "The names of all branches", "branches").forms(branches.BranchList),
    _get("/commits", "listCommits", "The history of a branch, newest first", "commits").forms(
        CommitList, parameters=http.CommitsParameters
    ),
    _get("/commits/{commit_id}", "getCommit", "One commit", "commits").forms(CommitReceipt),
    _get(
        "/commits/{commit_id}/summary", "getCommitSummary", "One commit, with how many entities it changed", "commits"
    ).forms(CommitSummary),
    _get("/history", "getHistory", "The history of a branch, with what each commit did", "commits").forms(
        CommitHistory, parameters=http.HistoryParameters
    ),
    _get("/commits/{commit_id}/changes", "getCommitChanges", "What a commit changed", "changes").forms(
        history.CommitChangesPage, parameters=http.CommitChangesParameters, errors=http.ChangeErrorOutput
    ),
    _get("/changes", "pollChanges", "The change feed of a branch", "changes").forms(
        history.ChangePoll,
        parameters=http.ChangeFeedParameters,
        media=(Media.JSON, Media.EVENTS),
        errors=http.ChangeErrorOutput,
    ),
    _post(
        "/changes/baseline",
        "captureChangeBaseline",
        "An export and the cursor that continues it",
        "changes",
        PolicyAction.EXPORT,
    ).forms(
        request=history.ChangeBaselineRequest,
        request_is_optional=True,
        media=(Media.NDJSON,),
        errors=http.ChangeErrorOutput,
    ),
    _get("/diff", "diff", "The net difference of two states", "changes").forms(
        history.ChangeSet, parameters=http.DiffParameters
    ),
    _post(
        "/branches/merge/preview",
        "previewMerge",
        "What a merge would change and what conflicts; nothing is merged",
        "branches",
    ).forms(branches.MergePreview, request=branches.MergePreviewRequest),
    _get("/queries", "list_queries", "The stored queries", "queries").forms(queries.StoredQueries),
    _get("/pipelines", "listPipelines", "The pipelines and their last runs", "pipelines").forms(ServedPipelines),
    # Writes
    _write("/mutate", "mutate", "Run a mutation as one commit", "mutations").forms(
        MutationReceipt, request=ChangeRequest
    ),
    _write("/change", "change", "Run a mutation as one commit", "mutations").forms(
        MutationReceipt, request=ChangeRequest, successor="mutate"
    ),
    _write(
        "/mutate/if-graph-commit", "mutate_if_graph_commit", "Run a mutation if the branch is at a commit", "mutations"
    ).forms(MutationReceipt, request=ChangeRequest, if_commit=True),
    _post("/queries/{name}", "invoke_query", "Run a stored query", "queries", PolicyAction.INVOKE_QUERY).forms(
        queries.ReadOutput, MutationReceipt, **_INVOKE, media=_ROWS_AS
    ),
    _write(
        "/queries/{name}/if-graph-commit",
        "invoke_query_if_graph_commit",
        "Run a stored mutation if the branch is at a commit",
        "queries",
        PolicyAction.INVOKE_QUERY,
    ).forms(MutationReceipt, **_INVOKE, if_commit=True),
    _write(
        "/schema/apply", "applySchema", "Change the schema in one commit", "mutations", PolicyAction.SCHEMA_APPLY
    ).forms(SchemaApplied, request=SchemaApplyRequest),
    _write("/load", "load", "Load records as one commit", "mutations").forms(
        LoadReceipt, request=IngestRequest, body=Body.WHOLE_LOAD
    ),
    _write("/load/ndjson", "loadNdjson", "Load records, one per line, as one commit", "mutations").forms(
        GraphBatchLoadOutput, request_media=(Media.NDJSON,), parameters=http.LoadParameters, body=Body.STREAMED_LOAD
    ),
    _write("/load/rows", "loadRows", "Load rows of one type as one commit", "mutations").forms(
        GraphBatchLoadOutput,
        request_media=(Media.ARROW, Media.CSV, Media.NDJSON, Media.BYTES),
        parameters=http.RowsParameters,
        body=Body.STREAMED_LOAD,
    ),
    _write("/ingest", "ingest", "Load records as one commit", "mutations").forms(
        LoadReceipt, request=IngestRequest, body=Body.WHOLE_LOAD, successor="load"
    ),
    _write("/branches", "createBranch", "Create a branch", "branches", PolicyAction.BRANCH_CREATE).forms(
        branches.BranchCreated, request=branches.BranchCreateRequest
    ),
    _row(
        "DELETE", "/branches/{branch}", "deleteBranch", "Delete a branch", "branches", PolicyAction.BRANCH_DELETE
    ).forms(branches.BranchDeleted, writes=True),
    _write(
        "/branches/merge", "mergeBranches", "Merge a branch into another", "branches", PolicyAction.BRANCH_MERGE
    ).forms(branches.MergeResult, request=branches.BranchMergeRequest),
)


def route(operation_id: str) -> Route:
    """The row of one operation."""
    return _BY_ID[operation_id]


_BY_ID: Final = {each.operation_id: each for each in ROUTES}
