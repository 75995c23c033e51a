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
from omnigraph.api.service import http
from omnigraph.api.service.cluster import GraphList, HealthOutput, Readiness
from omnigraph.api.service.http import ChangeErrorOutput, ErrorOutput
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


def _get(path: str, operation_id: str, summary: str, tag: str, **more: Any) -> Route:
    return Route(
        method="GET", path=path, operation_id=operation_id, summary=summary, tag=tag, action=PolicyAction.READ, **more
    )


def _service(path: str, operation_id: str, summary: str, **more: Any) -> Route:
    return Route(
        method="GET", path=path, operation_id=operation_id, summary=summary, tag="management", of_graph=False, **more
    )


def _post(path: str, operation_id: str, summary: str, tag: str, action: PolicyAction, **more: Any) -> Route:
    return Route(
        method="POST",
        path=path,
        operation_id=operation_id,
        summary=summary,
        tag=tag,
        action=action,
        **{"body": Body.REQUEST, **more},
    )


def _mutation(path: str, operation_id: str, summary: str, **more: Any) -> Route:
    return _post(
        path,
        operation_id,
        summary,
        "mutations",
        PolicyAction.CHANGE,
        **{
            "request": ChangeRequest,
            "response": (MutationReceipt,),
            "admission": True,
            **more,
        },
    )


def _agents(path: str, operation_id: str, *, of_graph: bool = True) -> Route:
    """The protocol of agents describes itself, so the document leaves it out; what a tool does asks for its action."""
    return Route(
        method="POST",
        path=path,
        operation_id=operation_id,
        summary="Tools for agents",
        tag="agents",
        of_graph=of_graph,
        body=Body.REQUEST,
        in_document=False,
    )


ROUTES: Final[tuple[Route, ...]] = (
    _service("/healthz", "health", "Whether the process answers", response=(HealthOutput,), public=True),
    _service("/readyz", "ready", "Whether graphs are served, and which are not", response=(Readiness,), public=True),
    _service("/metrics", "metrics", "Counters for Prometheus", media=(Media.TEXT,)),
    _service("/openapi.json", "openapi", "This document", public=True, in_document=False),
    _service(
        "/graphs", "listGraphs", "The graphs that are served", response=(GraphList,), action=PolicyAction.GRAPH_LIST
    ),
    # Agents: their protocol has one path, to one graph or to the server that has only one
    _agents("/mcp", "mcp"),
    _agents("/mcp", "mcpOfServer", of_graph=False),
    # Reads
    _get(
        "/snapshot",
        "getSnapshot",
        "The tables of a state of the graph",
        "snapshots",
        parameters=ReadPoint,
        response=(SnapshotListing,),
    ),
    _get(
        "/blob",
        "getBlob",
        "The bytes of a blob, or the address of an external one",
        "blobs",
        parameters=http.BlobParameters,
        bad_parameters="invalid Blob selector query parameters",
        media=(Media.BYTES,),
    ),
    _get(
        "/entity",
        "getEntity",
        "One node or edge by its id, as an export writes it",
        "queries",
        parameters=http.EntityParameters,
        response=(dict[str, Any],),
    ),
    _get(
        "/count",
        "countEntities",
        "How many entities of a type there are",
        "queries",
        parameters=http.CountParameters,
        response=(EntityCount,),
    ),
    _post(
        "/query",
        "query",
        "Run a read query",
        "queries",
        PolicyAction.READ,
        request=QueryRequest,
        response=(ReadOutput,),
        media=_ROWS_AS,
    ),
    _post(
        "/query/explain",
        "explain",
        "The plan of a read query; nothing is run",
        "queries",
        PolicyAction.READ,
        request=QueryRequest,
        response=(QueryPlan,),
    ),
    _post(
        "/query/profile",
        "profile",
        "Run a read query, and tell what each of its operators did instead of the rows",
        "queries",
        PolicyAction.READ,
        request=QueryRequest,
        response=(OperatorProfile,),
    ),
    _post(
        "/read",
        "read",
        "Run a read query",
        "queries",
        PolicyAction.READ,
        request=LegacyReadRequest,
        response=(LegacyReadOutput,),
        media=_ROWS_AS,
        successor="query",
    ),
    _post(
        "/export",
        "export",
        "Every entity of a state, one record per line",
        "queries",
        PolicyAction.EXPORT,
        parameters=http.ExportParameters,
        request=ExportRequest,
        bad_body="invalid export request",
        request_is_optional=True,
        media=(Media.NDJSON,),
    ),
    _get(
        "/schema",
        "getSchema",
        "The accepted schema",
        "schema",
        parameters=ReadPoint,
        response=(SchemaSource,),
    ),
    _post(
        "/schema/plan",
        "planSchema",
        "The steps from the accepted schema to another; nothing is changed",
        "schema",
        PolicyAction.READ,
        request=SchemaPlanRequest,
        response=(SchemaPlan,),
    ),
    _get("/branches", "listBranches", "The names of all branches", "branches", response=(BranchList,)),
    _get(
        "/commits",
        "listCommits",
        "The history of a branch, newest first",
        "commits",
        parameters=http.CommitsParameters,
        response=(CommitList,),
    ),
    _get("/commits/{commit_id}", "getCommit", "One commit", "commits", response=(CommitReceipt,)),
    _get(
        "/commits/{commit_id}/summary",
        "getCommitSummary",
        "One commit, with how many entities it changed",
        "commits",
        response=(CommitSummary,),
    ),
    _get(
        "/history",
        "getHistory",
        "The history of a branch, with what each commit did",
        "commits",
        parameters=http.HistoryParameters,
        response=(CommitHistory,),
    ),
    _get(
        "/commits/{commit_id}/changes",
        "getCommitChanges",
        "What a commit changed",
        "changes",
        parameters=http.CommitChangesParameters,
        response=(CommitChangesPage,),
        errors=ChangeErrorOutput,
    ),
    _get(
        "/changes",
        "pollChanges",
        "The change feed of a branch",
        "changes",
        parameters=http.ChangeFeedParameters,
        response=(ChangePoll,),
        media=(Media.JSON, Media.EVENTS),
        errors=ChangeErrorOutput,
    ),
    _post(
        "/changes/baseline",
        "captureChangeBaseline",
        "An export and the cursor that continues it",
        "changes",
        PolicyAction.EXPORT,
        request=ChangeBaselineRequest,
        request_is_optional=True,
        media=(Media.NDJSON,),
        errors=ChangeErrorOutput,
    ),
    _get(
        "/diff",
        "diff",
        "The net difference of two states",
        "changes",
        parameters=http.DiffParameters,
        response=(ChangeSet,),
    ),
    _post(
        "/branches/merge/preview",
        "previewMerge",
        "What a merge would change and what conflicts; nothing is merged",
        "branches",
        PolicyAction.READ,
        request=MergePreviewRequest,
        response=(MergePreview,),
    ),
    _get("/queries", "list_queries", "The stored queries", "queries", response=(StoredQueries,)),
    _get("/pipelines", "listPipelines", "The pipelines and their last runs", "pipelines", response=(ServedPipelines,)),
    # Writes
    _mutation("/mutate", "mutate", "Run a mutation as one commit"),
    _mutation("/change", "change", "Run a mutation as one commit", successor="mutate"),
    _mutation(
        "/mutate/if-graph-commit",
        "mutate_if_graph_commit",
        "Run a mutation if the branch is at a commit",
        if_commit=True,
    ),
    _post(
        "/queries/{name}",
        "invoke_query",
        "Run a stored query",
        "queries",
        PolicyAction.INVOKE_QUERY,
        request=InvokeStoredQueryRequest,
        bad_body="invalid stored-query invocation body",
        request_is_optional=True,
        response=(ReadOutput, MutationReceipt),
        media=_ROWS_AS,
    ),
    _post(
        "/queries/{name}/if-graph-commit",
        "invoke_query_if_graph_commit",
        "Run a stored mutation if the branch is at a commit",
        "queries",
        PolicyAction.INVOKE_QUERY,
        request=InvokeStoredQueryRequest,
        bad_body="invalid stored-query invocation body",
        request_is_optional=True,
        response=(MutationReceipt,),
        admission=True,
        if_commit=True,
    ),
    _post(
        "/schema/apply",
        "applySchema",
        "Change the schema in one commit",
        "mutations",
        PolicyAction.SCHEMA_APPLY,
        request=SchemaApplyRequest,
        response=(SchemaApplied,),
        admission=True,
    ),
    _mutation(
        "/load",
        "load",
        "Load records as one commit",
        request=IngestRequest,
        response=(LoadReceipt,),
        body=Body.WHOLE_LOAD,
    ),
    _mutation(
        "/load/ndjson",
        "loadNdjson",
        "Load records, one per line, as one commit",
        request=None,
        request_media=(Media.NDJSON,),
        parameters=http.LoadParameters,
        response=(GraphBatchLoadOutput,),
        body=Body.STREAMED_LOAD,
    ),
    _mutation(
        "/load/rows",
        "loadRows",
        "Load rows of one type as one commit",
        request=None,
        request_media=(Media.ARROW, Media.CSV, Media.NDJSON, Media.BYTES),
        parameters=http.RowsParameters,
        response=(GraphBatchLoadOutput,),
        body=Body.STREAMED_LOAD,
    ),
    _mutation(
        "/ingest",
        "ingest",
        "Load records as one commit",
        request=IngestRequest,
        response=(LoadReceipt,),
        body=Body.WHOLE_LOAD,
        successor="load",
    ),
    _post(
        "/branches",
        "createBranch",
        "Create a branch",
        "branches",
        PolicyAction.BRANCH_CREATE,
        request=BranchCreateRequest,
        response=(BranchCreated,),
        admission=True,
    ),
    Route(
        method="DELETE",
        path="/branches/{branch}",
        operation_id="deleteBranch",
        summary="Delete a branch",
        tag="branches",
        action=PolicyAction.BRANCH_DELETE,
        response=(BranchDeleted,),
        admission=True,
    ),
    _post(
        "/branches/merge",
        "mergeBranches",
        "Merge a branch into another",
        "branches",
        PolicyAction.BRANCH_MERGE,
        request=BranchMergeRequest,
        response=(MergeResult,),
        admission=True,
    ),
)


def route(operation_id: str) -> Route:
    """The row of one operation."""
    return _BY_ID[operation_id]


_BY_ID: Final = {each.operation_id: each for each in ROUTES}
