"""`omnigraph.Graph` and `omnigraph.Snapshot`: a graph that is opened in this process.

The public methods are those of `omnigraph.api.graph`; here, each operation finds the state it is about and calls the
engine. What works on tables is imported by the operation that needs it, and Lance and Arrow with it: branches and
commits are in the log alone. A handle is safe to share between threads and caches no head: naming a branch always means
its newest one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from msgspec import structs

from omnigraph.api import branches, history, maintenance
from omnigraph.api.calls import Author, Call, GraphCalls, LoadInput, LoadOptions, SnapshotApi
from omnigraph.api.commits import CommitHistory, CommitList, CommitSummary, required_commit
from omnigraph.api.enums import Dates, Grammar, PolicyAction
from omnigraph.api.governance import Gate, Limits
from omnigraph.api.graph import Branch, GraphApi, follow
from omnigraph.api.load import LoadReceipt, MutationReceipt
from omnigraph.api.queries import (
    BlobCell,
    ByteWriter,
    ExportedFile,
    OperatorProfile,
    ReadPoint,
    StoredQueries,
    require_branch,
    require_kind,
)
from omnigraph.api.schema import SchemaApplied, SchemaApplyRequest, SchemaPlan, SchemaPlanRequest
from omnigraph.api.values import plain_id
from omnigraph.engine.history.commits import (
    create_branch,
    delete_branch,
    find_or_create,
    listing,
    receipts,
    summaries,
    summary,
)
from omnigraph.engine.resources import Caller
from omnigraph.engine.snapshot import Snapshot as PinnedState
from omnigraph.engine.workspace import StorageOptions, Workspace
from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
from omnigraph.errors import NotFoundError, PolicyError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query.row_filter import Visibility
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.log.tracing import Trace
from omnigraph.storage.models import KeyUse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.api.service.pipeline import Progress as RunProgress
    from omnigraph.engine.blobs import BlobRead
    from omnigraph.engine.query.read import ReadOptions
    from omnigraph.engine.query.result import QueryResult, QueryStream
    from omnigraph.engine.query.search.embedder import Embedder
    from omnigraph.pipeline import Pipeline, PipelineReport
    from omnigraph.sources import Queries

Result = TypeVar("Result")


class Snapshot(PinnedState, SnapshotApi["QueryResult", "QueryStream"]):
    """A state that never changes, for as long as cleanup keeps it: `branch`, `version` and `commit_id` identify it.

    `Graph.at` and `Graph.snapshot` return it, with the settings of the graph.
    """

    _PUBLIC: Final = (
        *("branch", "version", "commit_id"),
        *("query", "stream", "explain", "profile", "entity", "count", "listing", "export"),
    )

    def _reader(self) -> tuple[GraphCalls[QueryResult, QueryStream, Any, Any], ReadPoint]:
        return _PinnedGraph(self), ReadPoint(snapshot=self.commit_id)

    def count(self, type_name: str, filter: str | None = None) -> int:
        """The number of entities of a type. A filter names stored columns: it needs an actor who sees all rows."""
        is_unrestricted = self.visibility.is_unrestricted
        if type_name in self.entry.tables and is_unrestricted:
            return super().count(type_name, filter)
        type_ = self.catalog.type_named(type_name)
        if filter is not None or is_unrestricted:
            return super().count(type_.type_key, filter)
        from omnigraph.engine.query.visibility import visible_count

        return visible_count(self, type_)

    def __dir__(self) -> list[str]:
        """Completion shows how a snapshot is read, not how it is stored."""
        return [*self._PUBLIC, *(name for name in super().__dir__() if name.startswith("__"))]

    def __repr__(self) -> str:
        return f"<snapshot of {self.root.location.uri}: branch '{self.branch}', version {self.version}>"


class Graph(GraphApi["QueryResult", "QueryStream", Snapshot, "BlobRead"]):
    """A versioned graph of typed tables at one location. Implements `omnigraph.GraphApi`."""

    def __init__(
        self, workspace: Workspace, queries: Queries | None = None, read_options: ReadOptions | None = None
    ) -> None:
        """Without `read_options`, reads have the limits that they have by default."""
        self._workspace = workspace
        self._queries = queries
        self._read_options = read_options

    def _with(self, **changes: Any) -> Self:
        """A handle on the same graph with other settings."""
        return type(self)(replace(self._workspace, **changes), self._queries, self._read_options)

    # Lifecycle

    @classmethod
    def init(
        cls,
        uri: str | Path,
        schema: str | PathLike[str],
        *,
        actor: str | None = None,
        force: bool = False,
        storage_options: StorageOptions = None,
        trace: Trace | None = None,
    ) -> Self:
        """Create a graph with this schema, without the settings that `omnigraph.init` adds.

        A location that holds a graph already is refused. `force` accepts what an interrupted init left behind.
        """
        from omnigraph.sources import schema_source

        options: dict[str, Any] = {"actor": actor, "force": force, "storage_options": storage_options, "trace": trace}
        return cls(Workspace.init(uri, *schema_source(schema), **options))

    @classmethod
    def open(cls, uri: str | Path, *, storage_options: StorageOptions = None, trace: Trace | None = None) -> Self:
        """Open an existing graph, without the settings that `omnigraph.open` adds."""
        return cls(Workspace.open(uri, storage_options=storage_options, trace=trace))

    def with_external_blobs(self, policy: ExternalBlobPolicy) -> Self:
        """A handle on the same graph that admits external blobs by this policy."""
        return self._with(external_blobs=policy)

    def with_limits(self, limits: Limits) -> Self:
        """A handle on the same graph with other limits on what one write may hold in memory."""
        return self._with(limits=limits)

    def with_embedding(self, embedder: Embedder) -> Self:
        """A handle on the same graph that embeds the texts of `nearest` with this client."""
        return self._with(embedder=embedder)

    def with_queries(self, queries: Queries) -> Self:
        """A handle on the same graph that offers these queries by name, as a server offers its stored queries."""
        return type(self)(self._workspace, queries, self._read_options)

    def _restricted_to(self, visibility: Visibility) -> Self:
        """A handle on the same graph that reads and writes only visible rows. Operations on whole tables are
        refused."""
        return self._with(visibility=visibility, caller=None)

    def _with_gate(self, gate: Gate | None) -> Self:
        """A handle on the same graph whose writes need an actor that these rules allow. None: no rules."""
        return self._with(gate=gate)

    def acting_for(self, actor: str) -> Self:
        """A handle on the same graph for one actor: writes are recorded under this name, and where a policy governs
        the graph, the handle does and shows only what the policy allows this actor."""
        return self._with(caller=Caller(actor))

    def _acting_for(self, caller: Caller, read_options: ReadOptions | None = None) -> Self:
        """The same, with an observer of decisions and with limits of reads; a server also has anonymous callers."""
        workspace = replace(self._workspace, caller=caller)
        return type(self)(workspace, self._queries, read_options or self._read_options)

    def _allow(self, action: PolicyAction, branch: str | None = None, target_branch: str | None = None) -> Self:
        """A handle on the same graph for one operation that its caller may do, which is decided now and not again."""
        return type(self)(self._workspace_for(action, branch, target_branch), self._queries, self._read_options)

    def close(self) -> None:
        """End the background work and the threads of the handle. Leaving a `with` block does it."""
        self._workspace.close()

    @property
    def uri(self) -> str:
        """The address of the graph."""
        return self._workspace.uri

    @property
    def id(self) -> str:
        """The id that the graph was created with. A graph that is created again at the same address has another one."""
        return self._workspace.graph_id

    @property
    def embedder(self) -> Embedder | None:
        """The client that turns texts into vectors, if there is one."""
        return self._workspace.embedder

    @property
    def limits(self) -> Limits:
        """The limits on what one write may hold in memory."""
        return self._workspace.limits

    @property
    def external_blobs(self) -> ExternalBlobPolicy:
        """Which references to external objects are admitted."""
        return self._workspace.external_blobs

    @property
    def catalog(self) -> Catalog:
        """The compiled schema of main."""
        return self.snapshot().catalog

    def __repr__(self) -> str:
        return f"<graph {self.uri}>"

    # Which state, and who acts

    def _state(self, point: ReadPoint, action: PolicyAction = PolicyAction.READ) -> PinnedState:
        return self._workspace.state_at(point, action)

    def _read(self, point: ReadPoint, read: Callable[[PinnedState], Result]) -> Result:
        return self._workspace.read(read, point)

    def _workspace_for(
        self, action: PolicyAction, branch: str | None = None, target_branch: str | None = None
    ) -> Workspace:
        """The workspace for one operation, if the actor of this handle may do it."""
        return self._workspace.for_action(action, branch and branch.strip(), target_branch and target_branch.strip())

    def _bind(
        self,
        source: Any,
        name: str | None,
        params: Mapping[str, Any] | None,
        arguments: Mapping[str, Any],
        options: Mapping[str, object],
    ) -> Call:
        from omnigraph.sources import bind_call

        return bind_call(source, name, params, arguments, options)

    # Reads

    def _snapshot(self, point: ReadPoint) -> Snapshot:
        return _public(self._state(point))

    def _query(self, point: ReadPoint, call: Call, options: ReadOptions | None) -> QueryResult:
        from omnigraph.engine.query.read import run_query
        from omnigraph.engine.statements import branch_rows, is_branch_list

        if is_branch_list(*call, point):
            return branch_rows(self.list_branches()).collect()
        return self._read(point, lambda state: run_query(state, point.target, call, options or self._read_options))

    def _stream(self, point: ReadPoint, call: Call, options: ReadOptions | None) -> QueryStream:
        from omnigraph.engine.query.read import stream_query
        from omnigraph.engine.statements import branch_rows, is_branch_list

        if is_branch_list(*call, point):
            return branch_rows(self.list_branches())
        return stream_query(self._state(point), point.target, call, options or self._read_options)

    def _explain(self, point: ReadPoint, call: Call, options: ReadOptions | None) -> list[str]:
        from omnigraph.engine.query.read import explain_query

        return explain_query(self._state(point), call, options or self._read_options)

    def _profile(self, point: ReadPoint, call: Call, options: ReadOptions | None) -> OperatorProfile:
        from omnigraph.engine.query.read import profile_query

        return profile_query(self._state(point), call, options or self._read_options)

    def _entity(self, point: ReadPoint, type_name: str, entity_id: str) -> dict[str, Any] | None:
        from omnigraph.engine.query.visibility import read_entity

        return self._read(
            point, lambda state: read_entity(state, state.catalog.type_named(type_name), plain_id(entity_id))
        )

    def _count(self, point: ReadPoint, type_name: str, filter: str | None) -> int:
        return self._read(point, lambda state: _public(state).count(type_name, filter))

    def _listing(self, point: ReadPoint) -> branches.SnapshotListing:
        return self._read(point, listing)

    def _index_status(self, point: ReadPoint) -> maintenance.IndexListing:
        from omnigraph.engine.maintenance.index_status import index_status

        return self._read(point, index_status)

    def _schema_text(self, point: ReadPoint) -> str:
        return self._state(point).schema_document.source

    def _commit_id(self, point: ReadPoint) -> str:
        if point.is_head:
            name = MAIN if point.branch is None else point.branch
            return self._workspace_for(PolicyAction.READ, name).head(name).entry.commit.id
        return self._state(point).commit_id

    def _version(self, point: ReadPoint) -> int:
        return self._state(point).version

    def _blob(self, point: ReadPoint, cell: BlobCell) -> BlobRead:
        from omnigraph.engine.blobs import blob_in

        # A caller who may read the state may know how its branch names the cell now.
        return blob_in(replace(self._workspace, caller=None), self._state(point), cell, point)

    def _export(self, point: ReadPoint, types: Collection[str], epoch: bool) -> Iterator[str]:
        return (f"{line.decode()}\n" for line in self._export_lines(point, types, epoch))

    def _export_to(self, point: ReadPoint, types: Collection[str], epoch: bool, writer: ByteWriter) -> int:
        from omnigraph.engine.export import write_lines

        return write_lines(self._export_lines(point, types, epoch), writer)

    def _export_lines(self, point: ReadPoint, types: Collection[str], epoch: bool) -> Iterator[bytes]:
        from omnigraph.engine.export import export_lines

        dates = Dates.EPOCH if epoch else Dates.ISO
        return export_lines(self._state(point, PolicyAction.EXPORT), types, dates=dates)

    def _export_files(
        self,
        point: ReadPoint,
        types: Collection[str],
        directory: str | Path,
        format: str,
        progress: maintenance.Progress | None,
        force: bool,
    ) -> list[ExportedFile]:
        from omnigraph.engine.export import export_files

        state = self._state(point, PolicyAction.EXPORT)
        return export_files(state, directory, format, types, progress, force=force)

    # Writes

    def _mutate(
        self, call: Call, branch: str | None, if_commit: str | None, author: Author, *, stored: bool = False
    ) -> MutationReceipt:
        from omnigraph.engine.statements import branch_write, run_branch_write

        if (statement := branch_write(*call, branch, if_commit)) is not None:
            return run_branch_write(self, statement, author)
        from omnigraph.engine.query.read import DEFAULT_OPTIONS
        from omnigraph.engine.write.mutation import MutationRequest, mutate

        target, actor = MAIN if branch is None else branch, self._workspace.author(author.actor)
        required = None if if_commit is None else required_commit(if_commit, "if_commit")
        key, reading = author.idempotency_key, self._read_options or DEFAULT_OPTIONS
        request = MutationRequest(*call, target, required, actor, key, stored=stored, reading=reading)
        return mutate(self._workspace_for(PolicyAction.CHANGE, target), request)

    def _load(self, data: Any, options: LoadOptions, author: Author) -> LoadReceipt:
        from omnigraph.engine.write.load import load_input

        location = self._workspace.root.location
        rows = load_input(data, options.type, format=options.format, csv=options.csv, graph=location)
        return self._run_load(rows, options, author, embed=options.embed)

    def _load_lenient(self, data: LoadInput, options: LoadOptions, author: Author) -> LoadReceipt:
        from omnigraph.engine.write.load import record_input

        return self._run_load(record_input(data), options, author, grammar=Grammar.LENIENT)

    def _run_load(self, rows: Any, options: LoadOptions, author: Author, **more: Any) -> LoadReceipt:
        from omnigraph.engine.write.load import LoadRequest, load, load_mode

        actor, key = self._workspace.author(author.actor), author.idempotency_key
        request = LoadRequest(rows, load_mode(options.mode), options.branch, options.base, actor, key, **more)
        return load(self._workspace_for(PolicyAction.CHANGE, options.branch), request)

    def stored_queries(self) -> StoredQueries:
        from omnigraph.engine.query.read import describe_stored_query
        from omnigraph.sources import Queries

        queries = self._queries or Queries(())
        if queries._entries is not None:
            self._workspace_for(PolicyAction.READ, MAIN)
            return queries._entries
        state = self.snapshot()
        entries = [describe_stored_query(state, query.source, query.name, queries._origin) for query in queries]
        return StoredQueries(tuple(sorted(entries, key=lambda entry: entry.name)))

    def _invoke(
        self,
        point: ReadPoint,
        name: str,
        params: Mapping[str, Any] | None,
        if_commit: str | None,
        expect_mutation: bool | None,
        author: Author,
    ) -> QueryResult | MutationReceipt:
        try:
            self._workspace_for(PolicyAction.INVOKE_QUERY)
        except PolicyError:
            raise NotFoundError("stored query not found") from None
        if self._queries is None or name not in self._queries:
            raise NotFoundError("stored query not found")
        query = self._queries[name]
        require_kind(name, query.is_mutation, expect_mutation)
        call = self._bind(query.source, name, params, {}, {})
        if not query.is_mutation and if_commit is None:
            return self._query(point, call, None)
        require_branch(name, query.is_mutation, point)
        return self._mutate(call, point.branch, if_commit, author, stored=True)

    # Branches and history

    def _find_branch(
        self, name: str, create: bool, source: str | None, actor: str | None
    ) -> Branch[QueryResult, QueryStream]:
        if create:
            find_or_create(self._workspace, name, MAIN if source is None else source, actor=actor)
        else:
            self._workspace_for(PolicyAction.READ, name).head(name)
        return Branch(self, name)

    def _create_branch(self, name: str, source: str | None, author: Author) -> branches.BranchCreated:
        source, actor = MAIN if source is None else source, self._workspace.author(author.actor)
        made = create_branch(self._workspace, name, source, actor=actor, idempotency_key=author.idempotency_key)
        creator, replayed = (made.actor, True) if isinstance(made, KeyUse) else (actor, False)
        return branches.BranchCreated(self.uri, source.strip(), name.strip(), creator, replayed)

    def list_branches(self) -> list[str]:
        return self._workspace_for(PolicyAction.READ).root.branches.names()

    def _delete_branch(self, name: str, author: Author) -> branches.BranchDeleted:
        actor = self._workspace.author(author.actor)
        earlier = delete_branch(self._workspace, name, actor=actor, idempotency_key=author.idempotency_key)
        who, replayed = (actor, False) if earlier is None else (earlier.actor, True)
        return branches.BranchDeleted(self.uri, name.strip(), who, replayed)

    def _merge(self, request: branches.MergeRequest) -> branches.MergeResult:
        from omnigraph.engine.history.merge import merge

        request = structs.replace(request, actor=self._workspace.author(request.actor))
        return merge(self._workspace_for(PolicyAction.BRANCH_MERGE, request.source, request.target), request)

    def _preview_merge(self, request: branches.MergeRequest) -> branches.MergePreview:
        from omnigraph.engine.history.merge import preview

        self._workspace_for(PolicyAction.READ, request.source).refuse_restricted("the preview of a merge")
        return preview(self._workspace_for(PolicyAction.READ, request.target), request)

    def diff(
        self, before: str | PinnedState, after: str | PinnedState, filter: history.ChangeScope | None = None
    ) -> history.ChangeSet:
        from omnigraph.engine.history.diff import diff_of

        return diff_of(self._workspace, before, after, filter or history.EVERYTHING)

    def commits(self, branch: str = MAIN, *, limit: int = 100, before: int | None = None) -> CommitList:
        return receipts(self._workspace_for(PolicyAction.READ, branch), branch, limit=limit, before=before)

    def commit_history(
        self, branch: str = MAIN, *, limit: int = 100, before: int | None = None, exact: bool = True
    ) -> CommitHistory:
        workspace = self._workspace_for(PolicyAction.READ, branch)
        return summaries(workspace, branch, limit=limit, before=before, exact=exact)

    def describe_commit(self, commit_id: str) -> CommitSummary:
        return summary(self.snapshot(snapshot=commit_id))

    # Changes

    def _changes_of(
        self, commit_id: str, scope: history.ChangeScope
    ) -> Iterator[history.SchemaChange | history.ChangeRecord]:
        from omnigraph.engine.history.changes import changes_of_types

        return iter(changes_of_types(self.snapshot(snapshot=commit_id), scope))

    def _changes_page(
        self,
        commit_id: str,
        scope: history.ChangeScope,
        page_token: str | None,
        max_changes: int | None,
        max_bytes: int | None,
    ) -> history.CommitChangesPage:
        from omnigraph.engine.history.changes import commit_changes_page

        return commit_changes_page(self.snapshot(snapshot=commit_id), scope, page_token, max_changes, max_bytes)

    def _poll(self, request: history.PollRequest, wait_ms: int | None) -> history.ChangePoll:
        from omnigraph.engine.history.feed import wait_for_changes

        return wait_for_changes(
            lambda: self._workspace_for(PolicyAction.READ, request.branch), request, (wait_ms or 0) / 1000
        )

    def _follow(self, request: history.PollRequest) -> Iterator[history.ChangePoll]:
        return follow(self, request)

    def _baseline(self, writer: ByteWriter, branch: str, scope: history.ChangeScope) -> history.ChangeBaseline:
        from omnigraph.engine.export import write_lines
        from omnigraph.engine.history.feed import begin_baseline

        baseline = begin_baseline(self._workspace_for(PolicyAction.EXPORT, branch), branch, scope)
        write_lines(baseline.lines(), writer)
        return baseline.record

    # Schema

    def _plan_schema(self, request: SchemaPlanRequest) -> SchemaPlan:
        from omnigraph.engine.schema.apply import plan_schema

        return plan_schema(self._workspace, request)

    def _apply_schema(self, request: SchemaApplyRequest, author: Author) -> SchemaApplied:
        from omnigraph.engine.schema.apply import apply_schema

        workspace = self._workspace_for(PolicyAction.SCHEMA_APPLY, target_branch=request.branch)
        actor, key = self._workspace.author(author.actor), author.idempotency_key
        return apply_schema(workspace, request, actor=actor, idempotency_key=key)

    # Maintenance

    def _maintenance(self, actor: str | None) -> tuple[Workspace, str | None]:
        """The workspace and the author of a maintenance operation, if the actor may do it."""
        return self._workspace_for(PolicyAction.ADMIN), self._workspace.author(actor)

    def _optimize(
        self, branch: str, types: Collection[str] | None, actor: str | None, progress: maintenance.Progress | None
    ) -> maintenance.OptimizeReport:
        from omnigraph.engine.maintenance.optimize import optimize

        workspace, author = self._maintenance(actor)
        return optimize(workspace, branch.strip(), types=types, actor=author, progress=progress)

    def _ensure_indices(self, branch: str, actor: str | None) -> list[maintenance.PendingProperty]:
        from omnigraph.engine.maintenance.optimize import ensure_indices

        workspace, author = self._maintenance(actor)
        return ensure_indices(workspace, branch.strip(), actor=author)

    def _cleanup(
        self, retention: maintenance.Retention, grace: timedelta, dry_run: bool, progress: maintenance.Progress | None
    ) -> maintenance.CleanupReport:
        from omnigraph.engine.maintenance.cleanup import cleanup

        workspace = self._workspace_for(PolicyAction.ADMIN)
        return cleanup(workspace, retention, grace=grace, dry_run=dry_run, progress=progress)

    def _maintain(
        self, policy: maintenance.MaintenancePolicy, branch: str, actor: str | None
    ) -> maintenance.MaintenanceReport:
        from omnigraph.engine.maintenance.maintainer import maintain

        workspace, author = self._maintenance(actor)
        return maintain(workspace, branch.strip(), policy, actor=author)

    def _verify(self) -> maintenance.Verification:
        from omnigraph.engine.maintenance.verify import verify

        return verify(self._workspace_for(PolicyAction.ADMIN))

    def _repair(
        self, confirm: bool, force: bool, actor: str | None, progress: maintenance.Progress | None
    ) -> maintenance.RepairReport:
        from omnigraph.engine.maintenance.repair import repair

        workspace, author = self._maintenance(actor)
        return repair(workspace, confirm=confirm, force=force, actor=author, progress=progress)

    # Spark

    def to_spark(
        self,
        type_name: str,
        spark: SparkSession | None = None,
        *,
        columns: Sequence[str] | None = None,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> DataFrame:
        """A type as a DataFrame, pinned to its current state; on the active session, or on a new local one."""
        from omnigraph.pipeline import current_session, to_spark

        return to_spark(self, type_name, current_session(spark), columns=columns, branch=branch, snapshot=snapshot)

    def register_views(self, spark: SparkSession, branch: str | None = None, prefix: str = "") -> list[str]:
        """Temporary views of every type for Spark SQL, all of one snapshot; returns their names."""
        from omnigraph.pipeline import register_views

        return register_views(spark, self, branch, prefix)

    def run_pipeline(
        self,
        pipeline: Pipeline | str | Path,
        *,
        branch: str | None = None,
        mode: str | None = None,
        spark: SparkSession | None = None,
        actor: str | None = None,
        run_key: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        progress: RunProgress | None = None,
    ) -> PipelineReport:
        """Run a pipeline, or the file of one, into this graph as one commit, even if the file names another graph."""
        from omnigraph.pipeline import run

        return run(
            pipeline,
            graph=self,
            branch=branch,
            mode=mode,
            spark=spark,
            actor=actor,
            run_key=run_key,
            force=force,
            dry_run=dry_run,
            progress=progress,
        )


class _PinnedGraph(Graph):
    """A graph whose reads are all of one state that was found already."""

    def __init__(self, state: PinnedState) -> None:
        self._pinned = state
        self._read_options = None

    def _state(self, point: ReadPoint, action: PolicyAction = PolicyAction.READ) -> PinnedState:
        return self._pinned if action is PolicyAction.READ else self._pinned.for_action(action)

    def _read(self, point: ReadPoint, read: Callable[[PinnedState], Result]) -> Result:
        return read(self._pinned)


def _public(state: PinnedState) -> Snapshot:
    """A state of the engine with the reads of the public API."""
    return Snapshot(state.resources, state.branch, state.entry, state.unbound_visibility, state.governed_by)
