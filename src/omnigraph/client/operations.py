"""The operations of a graph behind a server, written once for threads and for asyncio.

Each operation is a generator: it yields requests, receives their replies, and returns its result. It does no I/O;
`_run` of the two graphs in `omnigraph.client.graph` carries it out.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from msgspec.structs import replace

from omnigraph.api import branches, history
from omnigraph.api.calls import Author, Call, GraphCalls, LoadInput, LoadOptions, SnapshotApi, StorageCalls
from omnigraph.api.commits import CommitHistory, CommitList, CommitReceipt, CommitSummary, required_commit
from omnigraph.api.enums import EntityKind, LoadMode
from omnigraph.api.graph import MAIN, Branch, GraphAreas
from omnigraph.api.load import ChangeRequest, GraphBatchLoadOutput, IngestRequest, LoadReceipt, MutationReceipt
from omnigraph.api.maintenance import IndexListing
from omnigraph.api.queries import (
    InvokeStoredQueryRequest,
    OperatorProfile,
    QueryPlan,
    QueryRequest,
    ReadPoint,
    StoredQueries,
)
from omnigraph.api.schema import SchemaApplied, SchemaApplyRequest, SchemaPlan, SchemaPlanRequest, SchemaSource
from omnigraph.api.service import http as parameters
from omnigraph.api.service.cluster import GraphInfo, GraphList
from omnigraph.api.service.routes import COMMIT_HEADER, IF_COMMIT_HEADER, MIN_COMMIT_HEADER, Media
from omnigraph.api.values import plain_id, plain_parameters
from omnigraph.client.connection import Remote, Reply, Request, Steps, Upload, branch_of, require_json
from omnigraph.client.rows import JsonBatches, JsonRows, RemoteBatches, RemoteRows, holds_rows, received_rows
from omnigraph.client.uploads import record_upload, row_upload
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    ConflictError,
    DirectAccessError,
    EntityNotFoundError,
    UnexpectedAnswerError,
)

Rows = RemoteRows | JsonRows
ROWS_HEADERS: Final = {"Accept": f"{Media.ARROW.value}, {Media.JSON.value};q=0.1"}
_STORAGE_ONLY: Final = frozenset(
    {
        *("to_spark", "register_views", "run_pipeline", "with_limits", "with_embedding", "with_external_blobs"),
        *("with_queries", "acting_for", "id", "catalog", "embedder", "limits", "external_blobs"),
    }
)
"""Members of an embedded `Graph` that work on storage. A client raises `DirectAccessError` for them."""

Self_ = TypeVar("Self_", bound=Remote)
Given = ParamSpec("Given")
Result = TypeVar("Result")


def operation(steps: Callable[Concatenate[Self_, Given], Steps[Result]]) -> Callable[Concatenate[Self_, Given], Result]:
    """A method that carries a generator of requests out, as its graph does."""

    @functools.wraps(steps)
    def method(self: Self_, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return self._run(steps(self, *args, **kwargs))

    return method


class RemoteSnapshot(SnapshotApi[Rows, RemoteBatches | JsonBatches]):
    """A state that never changes, for as long as cleanup keeps it: `branch`, `version` and `commit_id` identify it.

    `RemoteGraph.at` and `RemoteGraph.snapshot` return it. Of an `AsyncRemoteGraph`, its calls are awaited.
    """

    branch: str
    version: int
    commit_id: str

    def __init__(self, graph: Any, branch: str, version: int, commit_id: str) -> None:
        self._graph: GraphCalls[Rows, RemoteBatches | JsonBatches, Any, Any] = graph
        self.branch, self.version, self.commit_id = branch, version, commit_id

    def __repr__(self) -> str:
        return f"<snapshot of {self._graph.uri}: branch '{self.branch}', version {self.version}>"

    def _reader(self) -> tuple[GraphCalls[Rows, RemoteBatches | JsonBatches, Any, Any], ReadPoint]:
        return self._graph, ReadPoint(snapshot=self.commit_id)


class RemoteOperations(Remote, GraphAreas, StorageCalls):
    """The operations of a graph behind a server, as far as each is a sequence of requests."""

    _storage_only = _STORAGE_ONLY

    # Reads

    @operation
    def _query(self, point: ReadPoint, call: Call, options: Any) -> Steps[Rows]:
        reply = yield from self._ask(self._query_request(point, call, options), point)
        return received_rows(reply, point.target)

    def _query_request(self, point: ReadPoint, call: Call, options: Any, operation_id: str = "query") -> Request:
        """The request for the rows, the plan or the profile of a query."""
        params = None if call.params is None else dict(call.params)
        work = None if options is None else _traversal_work(options)
        body = QueryRequest(call.source, call.name, params, traversal_work=work, **point.keywords)
        request = self._reading(self._request(operation_id, body=body), point)
        return request.with_headers(ROWS_HEADERS) if operation_id == "query" else request

    @operation
    def _explain(self, point: ReadPoint, call: Call, options: Any) -> Steps[list[str]]:
        reply = yield from self._ask(self._query_request(point, call, options, "explain"), point)
        return list(reply.decode(QueryPlan).plan)

    @operation
    def _profile(self, point: ReadPoint, call: Call, options: Any) -> Steps[OperatorProfile]:
        reply = yield from self._ask(self._query_request(point, call, options, "profile"), point)
        return reply.decode(OperatorProfile)

    @operation
    def _entity(self, point: ReadPoint, type_name: str, entity_id: str) -> Steps[dict[str, Any] | None]:
        kind, name = _kind_and_name(type_name)
        asked = parameters.EntityParameters(entity=kind, type=name, id=plain_id(entity_id), **point.keywords)
        try:
            reply = yield from self._get("getEntity", asked, point)
        except EntityNotFoundError:
            return None
        return reply.decode(dict[str, Any])

    @operation
    def _count(self, point: ReadPoint, type_name: str, filter: str | None) -> Steps[int]:
        if filter is not None:
            raise DirectAccessError("counting by a filter of stored columns")
        kind, name = _kind_and_name(type_name)
        asked = parameters.CountParameters(entity=kind, type=name, **point.keywords)
        reply = yield from self._get("countEntities", asked, point)
        return reply.decode(branches.EntityCount).entity_count

    @operation
    def _snapshot(self, point: ReadPoint) -> Steps[RemoteSnapshot]:
        reply = yield from self._get("getSnapshot", point, point)
        listing = reply.decode(branches.SnapshotListing)
        return RemoteSnapshot(self, listing.graph_branch, listing.graph_manifest_version, _commit(reply))

    @operation
    def _listing(self, point: ReadPoint) -> Steps[branches.SnapshotListing]:
        return (yield from self._get("getSnapshot", point, point)).decode(branches.SnapshotListing)

    @operation
    def _index_status(self, point: ReadPoint) -> Steps[IndexListing]:
        return (yield from self._get("getIndexStatus", point, point)).decode(IndexListing)

    @operation
    def _schema_text(self, point: ReadPoint) -> Steps[str]:
        return (yield from self._get("getSchema", point, point)).decode(SchemaSource).schema_source

    @operation
    def _version(self, point: ReadPoint) -> Steps[int]:
        commit_id = yield from self._find_commit(point)
        reply = yield self._request("getCommit", commit_id=commit_id)
        return reply.decode(CommitReceipt).graph_manifest_version

    def _find_commit(self, point: ReadPoint) -> Steps[str]:
        """Every read of a state names its commit; the read of the schema is the cheapest."""
        return _commit((yield from self._get("getSchema", point, point)))

    _commit_id = operation(_find_commit)

    def _get(self, operation_id: str, query: Any, point: ReadPoint) -> Steps[Reply]:
        return (yield from self._ask(self._reading(self._request(operation_id, query), point), point))

    def _ask(self, request: Request, point: ReadPoint) -> Steps[Reply]:
        """One read of a state."""
        reply = yield request
        self._forget_if_gone(request, reply, point)
        return reply.check()

    def _forget_if_gone(self, request: Request, reply: Reply, point: ReadPoint) -> None:
        """Forget the commits of a branch that was deleted and created again: this is reported once."""
        if reply.status == 412 and MIN_COMMIT_HEADER in request.headers:
            self._forget(branch_of(point.branch))

    # Writes

    def _write(
        self, request: Request, author: Author, branch: str, shape: type[Result], content: Upload | None = None
    ) -> Steps[Result]:
        """One write. Its commit is remembered for the branch."""
        reply = yield self._writing(request, author, content)
        self._remember(branch, reply)
        return reply.decode(shape)

    @operation
    def _mutate(self, call: Call, branch: str | None, if_commit: str | None, author: Author) -> Steps[MutationReceipt]:
        params = None if call.params is None else dict(call.params)
        # A text may be a statement about branches, which says itself what it changes.
        target = None if branch is None else branch_of(branch)
        if if_commit is None:
            # The first spelling of a mutation, which servers of all versions take.
            body = ChangeRequest(params=params, branch=target, query_source=call.source, query_name=call.name)
            request = self._request("change", body=body)
        else:
            body = ChangeRequest(call.source, call.name, params, target)
            request = _if_commit(self._request("mutate_if_graph_commit", body=body), if_commit)
        reply = yield self._writing(request, author)
        receipt = reply.decode(MutationReceipt)
        if receipt.outcome is None:
            self._remember(branch_of(branch), reply)
        elif receipt.outcome.kind == "merged":
            self._remember(receipt.branch, reply)
        else:
            self._forget(receipt.branch)
        return receipt

    def _load(self, data: Any, options: LoadOptions, author: Author) -> LoadReceipt:
        return self._run(self._load_steps(data, options, author), reads_input=True)

    def _load_steps(self, data: Any, options: LoadOptions, author: Author) -> Steps[LoadReceipt]:
        target = branch_of(options.branch)
        query: dict[str, Any] = {"branch": target, "base": options.base, "mode": _mode(options.mode)}
        query["embed"] = options.embed or None
        if options.type is not None:
            is_partial = query["mode"] is LoadMode.UPDATE
            content = row_upload(data, options.format, options.csv, partial=is_partial)
            asked = parameters.RowsParameters(type=options.type, **query, **content.parameters)
            request = self._request("loadRows", asked)
        elif options.format is not None or options.csv is not None:
            raise BadRequestError("format and csv are for rows of one type: name it with type=")
        else:
            content, request = record_upload(data), self._request("loadNdjson", parameters.LoadParameters(**query))
        output = yield from self._write(request, author, target, GraphBatchLoadOutput, content)
        return LoadReceipt(**{name: getattr(output, name) for name in GraphBatchLoadOutput.__struct_fields__})

    def _load_lenient(self, data: LoadInput, options: LoadOptions, author: Author) -> LoadReceipt:
        return self._run(self._lenient_steps(data, options, author), reads_input=True)

    def _lenient_steps(self, data: LoadInput, options: LoadOptions, author: Author) -> Steps[LoadReceipt]:
        target = branch_of(options.branch)
        try:
            text = b"".join(record_upload(data).pieces()).decode()
        except UnicodeDecodeError as error:
            raise BadRequestError(f"the records are not UTF-8 text (byte {error.start})") from None
        body = IngestRequest(text, target, options.base, _mode(options.mode))
        receipt = yield from self._write(self._request("ingest", body=body), author, target, LoadReceipt)
        return replace(receipt, uri=None)

    @operation
    def stored_queries(self) -> Steps[StoredQueries]:
        return (yield self._request("list_queries")).decode(StoredQueries)

    @operation
    def _invoke(
        self,
        point: ReadPoint,
        name: str,
        params: Mapping[str, Any] | None,
        if_commit: str | None,
        expect_mutation: bool | None,
        author: Author,
    ) -> Steps[Rows | MutationReceipt]:
        plain = None if params is None else plain_parameters(params)
        require_json(plain or {})
        body = InvokeStoredQueryRequest(plain, **point.keywords, expect_mutation=expect_mutation)
        if if_commit is None:
            request = self._reading(self._request("invoke_query", body=body, name=name), point)
        else:
            request = _if_commit(self._request("invoke_query_if_graph_commit", body=body, name=name), if_commit)
        request = self._writing(request, author).with_headers(ROWS_HEADERS)
        # A query that can only read leaves nothing open when its response is lost.
        reply = yield from self._ask(dataclasses.replace(request, writes=expect_mutation is not False), point)
        if holds_rows(reply):
            return received_rows(reply, point.target)
        self._remember(branch_of(point.branch), reply)
        return reply.decode(MutationReceipt)

    # Branches and history

    @operation
    def _find_branch(
        self, name: str, create: bool, source: str | None, actor: str | None
    ) -> Steps[Branch[Rows, RemoteBatches | JsonBatches]]:
        try:
            yield from self._find_commit(ReadPoint(name))
        except BranchNotFoundError:
            if not create:
                raise
            request = self._request("createBranch", body=branches.BranchCreateRequest(name, source))
            reply = yield self._writing(request, Author(actor))
            try:
                reply.check()
            except ConflictError as error:
                try:
                    yield from self._find_commit(ReadPoint(name))  # another client created it meanwhile
                except BranchNotFoundError:
                    raise error from None
            self._forget(name)
        graph: Any = self
        return Branch(graph, name)

    @operation
    def _create_branch(self, name: str, source: str | None, author: Author) -> Steps[branches.BranchCreated]:
        reply = yield self._writing(
            self._request("createBranch", body=branches.BranchCreateRequest(name, source)), author
        )
        self._forget(branch_of(name))
        return replace(reply.decode(branches.BranchCreated), uri=self.uri)

    @operation
    def _delete_branch(self, name: str, author: Author) -> Steps[branches.BranchDeleted]:
        reply = yield self._writing(self._request("deleteBranch", branch=name), author)
        self._forget(branch_of(name))
        return replace(reply.decode(branches.BranchDeleted), uri=self.uri)

    @operation
    def list_branches(self) -> Steps[list[str]]:
        return list((yield self._request("listBranches")).decode(branches.BranchList).branches)

    @operation
    def _merge(self, request: branches.MergeRequest) -> Steps[branches.MergeResult]:
        resolutions = _unless_empty(request.resolutions)
        body = branches.BranchMergeRequest(
            request.source, request.target, request.delete_branch, resolutions, request.message
        )
        author, merge = Author(request.actor, request.idempotency_key), self._request("mergeBranches", body=body)
        result = yield from self._write(merge, author, branch_of(request.target), branches.MergeResult)
        if result.branch_deleted:
            self._forget(branch_of(request.source))
        return result

    @operation
    def _preview_merge(self, request: branches.MergeRequest) -> Steps[branches.MergePreview]:
        body = branches.MergePreviewRequest(request.source, request.target, _unless_empty(request.resolutions))
        return (yield self._request("previewMerge", body=body)).decode(branches.MergePreview)

    @operation
    def commits(self, branch: str = MAIN, *, limit: int = 100, before: int | None = None) -> Steps[CommitList]:
        asked = parameters.CommitsParameters(branch, limit, before)
        return (yield self._request("listCommits", asked)).decode(CommitList)

    @operation
    def commit_history(
        self, branch: str = MAIN, *, limit: int = 100, before: int | None = None, exact: bool = True
    ) -> Steps[CommitHistory]:
        asked = parameters.HistoryParameters(branch, limit, before, exact)
        return (yield self._request("getHistory", asked)).decode(CommitHistory)

    @operation
    def describe_commit(self, commit_id: str) -> Steps[CommitSummary]:
        return (yield self._request("getCommitSummary", commit_id=commit_id)).decode(CommitSummary)

    @operation
    def diff(self, before: Any, after: Any, filter: history.ChangeScope | None = None) -> Steps[history.ChangeSet]:
        # A branch or a commit by its name, a snapshot by its commit.
        names = [state.commit_id if isinstance(state, RemoteSnapshot) else state for state in (before, after)]
        asked = parameters.DiffParameters(before=names[0], after=names[1], **_scope(filter or history.EVERYTHING))
        reply = yield self._request("diff", asked)
        whole = page = reply.decode(history.ChangeSet)
        while page.next_page_token is not None:
            reply = yield self._request("diff", replace(asked, page_token=page.next_page_token))
            page = reply.decode(history.ChangeSet)
            whole = replace(whole, changes=(*whole.changes, *page.changes), next_page_token=None)
        return whole

    # Changes and schema

    @operation
    def _changes_page(
        self,
        commit_id: str,
        scope: history.ChangeScope,
        page_token: str | None,
        max_changes: int | None,
        max_bytes: int | None,
    ) -> Steps[history.CommitChangesPage]:
        asked = parameters.CommitChangesParameters(
            page_token=page_token, limit=max_changes, max_bytes=max_bytes, **_scope(scope)
        )
        return (yield self._request("getCommitChanges", asked, commit_id=commit_id)).decode(history.CommitChangesPage)

    @operation
    def _poll(self, request: history.PollRequest, wait_ms: int | None) -> Steps[history.ChangePoll]:
        asked = parameters.ChangeFeedParameters(
            branch=request.branch,
            start=request.start,
            cursor=request.cursor,
            page_token=request.page_token,
            limit=request.max_changes,
            max_bytes=request.max_bytes,
            max_commits=request.max_commits,
            wait_ms=wait_ms,
            **_scope(request.scope),
        )
        reply = yield dataclasses.replace(self._request("pollChanges", asked), wait_seconds=(wait_ms or 0) / 1000)
        return reply.decode(history.ChangePoll)

    @operation
    def _plan_schema(self, request: SchemaPlanRequest) -> Steps[SchemaPlan]:
        return (yield self._request("planSchema", body=request)).decode(SchemaPlan)

    @operation
    def _apply_schema(self, request: SchemaApplyRequest, author: Author) -> Steps[SchemaApplied]:
        branch = branch_of(request.branch)
        body = replace(request, branch=None if branch == MAIN else request.branch)
        sent = self._request("applySchema", body=body)
        return replace((yield from self._write(sent, author, branch, SchemaApplied)), uri=self.uri)

    @operation
    def list_graphs(self) -> Steps[list[GraphInfo]]:
        """The graphs of the server that the caller may list."""
        return list((yield self._request("listGraphs")).decode(GraphList).graphs)


def _traversal_work(options: Any) -> int:
    """How much a read may traverse: the one option that a server takes. The others have to be as they are by
    default."""
    work: int = options.traversal_work
    if options != type(options)(traversal_work=work):
        raise DirectAccessError("a read with options other than traversal_work")
    return work


def _kind_and_name(type_name: str) -> tuple[EntityKind | None, str]:
    kind, _, bare = type_name.rpartition(":")
    return (EntityKind(kind), bare) if kind in tuple(EntityKind) else (None, type_name)


def _commit(reply: Reply) -> str:
    commit_id = reply.headers.get(COMMIT_HEADER)
    if commit_id is None:
        raise UnexpectedAnswerError(reply.status, f"no header {COMMIT_HEADER}, which names the commit that was read")
    return commit_id


def _if_commit(request: Request, if_commit: str) -> Request:
    return request.with_headers({IF_COMMIT_HEADER: required_commit(if_commit, "if_commit")})


def _mode(text: str) -> LoadMode:
    try:
        return LoadMode(text)
    except ValueError:
        raise BadRequestError(f"unknown load mode '{text}'; use one of: {', '.join(LoadMode)}") from None


def _unless_empty(resolutions: branches.Resolutions) -> branches.Resolutions | None:
    return None if resolutions == branches.NO_RESOLUTIONS else resolutions


def _scope(scope: history.ChangeScope) -> dict[str, Any]:
    """A scope as the parameters of a query string."""
    return {
        "kind": tuple(EntityKind(kind) for kind in sorted(scope.kinds)),
        "type": tuple(sorted(scope.types)),
        "op": tuple(sorted(scope.ops)),
    }
