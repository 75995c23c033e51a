"""The HTTP API as a table: one row per route.

The router, the OpenAPI document, the remote client and the tests are made from it. Adding a route is adding a row here
and a handler of the same operation id to the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from omnigraph.api.branches import (
    BranchCreated,
    BranchCreateRequest,
    BranchDeleted,
    BranchList,
    BranchMergeRequest,
    EntityCount,
    MergePreview,
    MergePreviewRequest,
    MergeResult,
    SnapshotListing,
)
from omnigraph.api.enums import PolicyAction
from omnigraph.api.history import (
    ChangeBaselineRequest,
    ChangePoll,
    ChangeSet,
    CommitChangesPage,
    CommitHistory,
    CommitList,
    CommitReceipt,
    CommitSummary,
)
from omnigraph.api.load import ChangeRequest, GraphBatchLoadOutput, IngestRequest, LoadReceipt, MutationReceipt
from omnigraph.api.queries import (
    ExportRequest,
    InvokeStoredQueryRequest,
    LegacyReadOutput,
    LegacyReadRequest,
    OperatorProfile,
    QueryPlan,
    QueryRequest,
    ReadOutput,
    ReadPoint,
    StoredQueries,
)
from omnigraph.api.schema import SchemaApplied, SchemaApplyRequest, SchemaPlan, SchemaPlanRequest, SchemaSource
from omnigraph.api.service.cluster import GraphList, HealthOutput, Readiness
from omnigraph.api.service.http import (
    BlobParameters,
    ChangeErrorOutput,
    ChangeFeedParameters,
    CommitChangesParameters,
    CommitsParameters,
    CountParameters,
    DiffParameters,
    EntityParameters,
    ErrorOutput,
    ExportParameters,
    HistoryParameters,
    LoadParameters,
    RowsParameters,
)
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
    errors: type[Any] = ErrorOutput
    body: Body = Body.NONE
    admission: bool = False
    if_commit: bool = False
    successor: str | None = None
    public: bool = False
    in_document: bool = True
    bad_parameters: str = "invalid query parameters"
    bad_body: str | None = None
    """How a body that can't be decoded is called by a route that answers 400 to all of them, and never 422."""

    @property
    def full_path(self) -> str:
        return f"{GRAPH_PREFIX}{self.path}" if self.of_graph else self.path

    @property
    def document_id(self) -> str:
        """The operation id in the OpenAPI document."""
        return f"cluster_{self.operation_id}" if self.of_graph else self.operation_id

    @property
    def writes(self) -> bool:
        return self.admission

    @property
    def may_write(self) -> bool:
        """Whether it changes the graph, or could: of a stored query only its name tells. It takes a key then."""
        return self.writes or self.operation_id == "invoke_query"


_ROWS_AS: Final = (Media.JSON, Media.NDJSON, Media.CSV, Media.ARROW)


def _row(method: str, path: str, operation_id: str, summary: str, tag: str, *response: Any, **more: Any) -> Route:
    return Route(
        method=method, path=path, operation_id=operation_id, summary=summary, tag=tag, response=response, **more
    )


def _service(path: str, operation_id: str, summary: str, *response: Any, **more: Any) -> Route:
    return _row("GET", path, operation_id, summary, "management", *response, of_graph=False, **more)


def _get(
    path: str, operation_id: str, summary: str, tag: str, response: Any, parameters: Any = None, **more: Any
) -> Route:
    more = {"action": PolicyAction.READ, "parameters": parameters, **more}
    return _row("GET", path, operation_id, summary, tag, response, **more)


def _post(path: str, operation_id: str, summary: str, tag: str, request: Any, *response: Any, **more: Any) -> Route:
    more = {"action": PolicyAction.READ, "request": request, "body": Body.REQUEST, **more}
    return _row("POST", path, operation_id, summary, tag, *response, **more)


def _write(path: str, operation_id: str, summary: str, tag: str, request: Any, *response: Any, **more: Any) -> Route:
    more = {"action": PolicyAction.CHANGE, "admission": True, **more}
    return _post(path, operation_id, summary, tag, request, *response, **more)


def _agents(path: str, operation_id: str, *, of_graph: bool = True) -> Route:
    """The protocol of agents describes itself, so the document leaves it out. Each tool asks for its own action."""
    more: dict[str, Any] = {"of_graph": of_graph, "body": Body.REQUEST, "in_document": False}
    return _row("POST", path, operation_id, "Tools for agents", "agents", **more)


_INVOKE: Final[dict[str, Any]] = {
    "action": PolicyAction.INVOKE_QUERY,
    "bad_body": "invalid stored-query invocation body",
    "request_is_optional": True,
}

ROUTES: Final[tuple[Route, ...]] = (
    _service("/healthz", "health", "Whether the process answers", HealthOutput, public=True),
    _service("/readyz", "ready", "Whether graphs are served, and which are not", Readiness, public=True),
    _service("/metrics", "metrics", "Counters for Prometheus", media=(Media.TEXT,)),
    _service("/openapi.json", "openapi", "This document", public=True, in_document=False),
    _service("/graphs", "listGraphs", "The graphs that are served", GraphList, action=PolicyAction.GRAPH_LIST),
    # Agents: their protocol has one path, to one graph or to the server that has only one
    _agents("/mcp", "mcp"),
    _agents("/mcp", "mcpOfServer", of_graph=False),
    # Reads
    _get("/snapshot", "getSnapshot", "The tables of a state of the graph", "snapshots", SnapshotListing, ReadPoint),
    _row(
        "GET",
        "/blob",
        "getBlob",
        "The bytes of a blob, or the address of an external one",
        "blobs",
        action=PolicyAction.READ,
        parameters=BlobParameters,
        bad_parameters="invalid Blob selector query parameters",
        media=(Media.BYTES,),
    ),
    _get(
        "/entity",
        "getEntity",
        "One node or edge by its id, as an export writes it",
        "queries",
        dict[str, Any],
        EntityParameters,
    ),
    _get("/count", "countEntities", "How many entities of a type there are", "queries", EntityCount, CountParameters),
    _post("/query", "query", "Run a read query", "queries", QueryRequest, ReadOutput, media=_ROWS_AS),
    _post("/query/explain", "explain", "The plan of a read query; nothing is run", "queries", QueryRequest, QueryPlan),
    _post(
        "/query/profile",
        "profile",
        "Run a read query, and tell what each of its operators did instead of the rows",
        "queries",
        QueryRequest,
        OperatorProfile,
    ),
    _post(
        "/read",
        "read",
        "Run a read query",
        "queries",
        LegacyReadRequest,
        LegacyReadOutput,
        media=_ROWS_AS,
        successor="query",
    ),
    _post(
        "/export",
        "export",
        "Every entity of a state, one record per line",
        "queries",
        ExportRequest,
        action=PolicyAction.EXPORT,
        parameters=ExportParameters,
        bad_body="invalid export request",
        request_is_optional=True,
        media=(Media.NDJSON,),
    ),
    _get("/schema", "getSchema", "The accepted schema", "schema", SchemaSource, ReadPoint),
    _post(
        "/schema/plan",
        "planSchema",
        "The steps from the accepted schema to another; nothing is changed",
        "schema",
        SchemaPlanRequest,
        SchemaPlan,
    ),
    _get("/branches", "listBranches", "The names of all branches", "branches", BranchList),
    _get("/commits", "listCommits", "The history of a branch, newest first", "commits", CommitList, CommitsParameters),
    _get("/commits/{commit_id}", "getCommit", "One commit", "commits", CommitReceipt),
    _get(
        "/commits/{commit_id}/summary",
        "getCommitSummary",
        "One commit, with how many entities it changed",
        "commits",
        CommitSummary,
    ),
    _get(
        "/history",
        "getHistory",
        "The history of a branch, with what each commit did",
        "commits",
        CommitHistory,
        HistoryParameters,
    ),
    _get(
        "/commits/{commit_id}/changes",
        "getCommitChanges",
        "What a commit changed",
        "changes",
        CommitChangesPage,
        CommitChangesParameters,
        errors=ChangeErrorOutput,
    ),
    _get(
        "/changes",
        "pollChanges",
        "The change feed of a branch",
        "changes",
        ChangePoll,
        ChangeFeedParameters,
        media=(Media.JSON, Media.EVENTS),
        errors=ChangeErrorOutput,
    ),
    _post(
        "/changes/baseline",
        "captureChangeBaseline",
        "An export and the cursor that continues it",
        "changes",
        ChangeBaselineRequest,
        action=PolicyAction.EXPORT,
        request_is_optional=True,
        media=(Media.NDJSON,),
        errors=ChangeErrorOutput,
    ),
    _get("/diff", "diff", "The net difference of two states", "changes", ChangeSet, DiffParameters),
    _post(
        "/branches/merge/preview",
        "previewMerge",
        "What a merge would change and what conflicts; nothing is merged",
        "branches",
        MergePreviewRequest,
        MergePreview,
    ),
    _get("/queries", "list_queries", "The stored queries", "queries", StoredQueries),
    _get("/pipelines", "listPipelines", "The pipelines and their last runs", "pipelines", ServedPipelines),
    # Writes
    _write("/mutate", "mutate", "Run a mutation as one commit", "mutations", ChangeRequest, MutationReceipt),
    _write(
        "/change",
        "change",
        "Run a mutation as one commit",
        "mutations",
        ChangeRequest,
        MutationReceipt,
        successor="mutate",
    ),
    _write(
        "/mutate/if-graph-commit",
        "mutate_if_graph_commit",
        "Run a mutation if the branch is at a commit",
        "mutations",
        ChangeRequest,
        MutationReceipt,
        if_commit=True,
    ),
    _post(
        "/queries/{name}",
        "invoke_query",
        "Run a stored query",
        "queries",
        InvokeStoredQueryRequest,
        ReadOutput,
        MutationReceipt,
        **_INVOKE,
        media=_ROWS_AS,
    ),
    _write(
        "/queries/{name}/if-graph-commit",
        "invoke_query_if_graph_commit",
        "Run a stored mutation if the branch is at a commit",
        "queries",
        InvokeStoredQueryRequest,
        MutationReceipt,
        **_INVOKE,
        if_commit=True,
    ),
    _write(
        "/schema/apply",
        "applySchema",
        "Change the schema in one commit",
        "mutations",
        SchemaApplyRequest,
        SchemaApplied,
        action=PolicyAction.SCHEMA_APPLY,
    ),
    _write(
        "/load", "load", "Load records as one commit", "mutations", IngestRequest, LoadReceipt, body=Body.WHOLE_LOAD
    ),
    _write(
        "/load/ndjson",
        "loadNdjson",
        "Load records, one per line, as one commit",
        "mutations",
        None,
        GraphBatchLoadOutput,
        request_media=(Media.NDJSON,),
        parameters=LoadParameters,
        body=Body.STREAMED_LOAD,
    ),
    _write(
        "/load/rows",
        "loadRows",
        "Load rows of one type as one commit",
        "mutations",
        None,
        GraphBatchLoadOutput,
        request_media=(Media.ARROW, Media.CSV, Media.NDJSON, Media.BYTES),
        parameters=RowsParameters,
        body=Body.STREAMED_LOAD,
    ),
    _write(
        "/ingest",
        "ingest",
        "Load records as one commit",
        "mutations",
        IngestRequest,
        LoadReceipt,
        body=Body.WHOLE_LOAD,
        successor="load",
    ),
    _write(
        "/branches",
        "createBranch",
        "Create a branch",
        "branches",
        BranchCreateRequest,
        BranchCreated,
        action=PolicyAction.BRANCH_CREATE,
    ),
    _row(
        "DELETE",
        "/branches/{branch}",
        "deleteBranch",
        "Delete a branch",
        "branches",
        BranchDeleted,
        action=PolicyAction.BRANCH_DELETE,
        admission=True,
    ),
    _write(
        "/branches/merge",
        "mergeBranches",
        "Merge a branch into another",
        "branches",
        BranchMergeRequest,
        MergeResult,
        action=PolicyAction.BRANCH_MERGE,
    ),
)


def route(operation_id: str) -> Route:
    """The row of one operation."""
    return _BY_ID[operation_id]


_BY_ID: Final = {each.operation_id: each for each in ROUTES}
