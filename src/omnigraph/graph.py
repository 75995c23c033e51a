"""`omnigraph.Graph`: the handle everything else is reached through, and nothing but a face.

Each method finds the state it is about and calls one operation of the engine. What a read does not need (merges,
schema changes, upkeep, mutations, Spark) is imported when one of those methods is called. A handle is safe to share
between threads and holds no state of the graph that could go stale: naming a branch always means its newest head.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import structs

from omnigraph.api import maintenance
from omnigraph.api.branches import (
    NO_RESOLUTIONS,
    BranchCreated,
    BranchDeleted,
    MergePreview,
    MergeRequest,
    MergeResult,
    Resolutions,
    SnapshotListing,
    branch_name,
)
from omnigraph.api.enums import Dates, Grammar, PolicyAction
from omnigraph.api.governance import Gate, Limits
from omnigraph.api.graph import Branch, GraphApi, GraphViews, follow, old_name
from omnigraph.api.history import (
    EVERYTHING,
    ChangeBaseline,
    ChangePoll,
    ChangeRecord,
    ChangeScope,
    ChangeSet,
    CommitChangesPage,
    CommitHistory,
    CommitList,
    CommitSummary,
    PollRequest,
    required_commit,
)
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
from omnigraph.api.schema import SchemaApplied, SchemaPlan
from omnigraph.engine.blobs import BlobRead, read_blob
from omnigraph.engine.export import export_files as write_files
from omnigraph.engine.export import export_lines, export_text, write_lines
from omnigraph.engine.history import log_walk
from omnigraph.engine.history.branches import branch_names, create_branch, delete_branch, find_or_create
from omnigraph.engine.history.changes import changes_of_types, commit_changes_page
from omnigraph.engine.history.commits import receipts, summaries, summary
from omnigraph.engine.history.diff import diff_of
from omnigraph.engine.history.log_walk import CommitPage
from omnigraph.engine.query.read import DEFAULT_OPTIONS as DEFAULT_READ_OPTIONS
from omnigraph.engine.query.read import (
    ReadOptions,
    describe_stored_query,
    explain_query,
    profile_query,
    run_query,
    stream_query,
)
from omnigraph.engine.query.result import QueryResult, QueryStream
from omnigraph.engine.query.search.embedder import Embedder
from omnigraph.engine.query.visibility import listing as tables_of
from omnigraph.engine.resources import Caller
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect
from omnigraph.engine.snapshot import Snapshot as PinnedState
from omnigraph.engine.workspace import StorageOptions, Workspace
from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
from omnigraph.engine.write.load import LoadInput, LoadRequest, load_input, load_mode, record_input
from omnigraph.engine.write.load import load as run_load
from omnigraph.errors import NotFoundError, PolicyError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query.row_filter import Visibility
from omnigraph.snapshot import Snapshot
from omnigraph.sources import Call, Queries, Query, call, schema_source
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.log.tracing import Trace
from omnigraph.storage.models import KeyUse, LogEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.api.service.pipeline import Progress as RunProgress
    from omnigraph.engine.observers import Progress
    from omnigraph.engine.schema_apply import SchemaPreview
    from omnigraph.pipeline import Pipeline, PipelineReport


class Graph(GraphViews):
    """A versioned graph of typed tables at one location. Implements `omnigraph.GraphApi`."""

    def __init__(
        self,
        workspace: Workspace,
        queries: Queries | None = None,
        read_options: ReadOptions = DEFAULT_READ_OPTIONS,
    ) -> None:
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
        """A new graph with this schema, without what `omnigraph.init` configures by itself.

        Refuses a location that holds a graph already. `force` accepts what an interrupted init left behind.
        """
        options: dict[str, Any] = {"actor": actor, "force": force, "storage_options": storage_options, "trace": trace}
        return cls(Workspace.init(uri, *schema_source(schema), **options))

    @classmethod
    def open(cls, uri: str | Path, *, storage_options: StorageOptions = None, trace: Trace | None = None) -> Self:
        """An existing graph, without what `omnigraph.open` configures by itself."""
        return cls(Workspace.open(uri, storage_options=storage_options, trace=trace))

    def with_external_blobs(self, policy: ExternalBlobPolicy) -> Self:
        """A handle on the same graph that admits external blobs by this policy."""
        return self._with(external_blobs=policy)

    def with_limits(self, limits: Limits) -> Self:
        """A handle on the same graph with other ceilings for what one write may hold in memory."""
        return self._with(limits=limits)

    def with_embedding(self, embedder: Embedder) -> Self:
        """A handle on the same graph that embeds the texts of `nearest` with this client."""
        return self._with(embedder=embedder)

    def with_queries(self, queries: Queries) -> Self:
        """A handle on the same graph that offers these queries by name, as a server offers its stored queries."""
        return type(self)(self._workspace, queries, self._read_options)

    def _restricted_to(self, visibility: Visibility) -> Self:
        """A handle on the same graph that shows, and lets be changed, what a lens shows. What can't be done in part
        is refused."""
        return self._with(visibility=visibility, caller=None)

    def _with_gate(self, gate: Gate | None) -> Self:
        """A handle on the same graph whose writes these rules govern; each has to say who its actor is. None: no
        rules."""
        return self._with(gate=gate)

    def acting_for(self, actor: str) -> Self:
        """A handle on the same graph for one actor: it writes in its name, and where rules govern the graph, everything
        that is done is done as they allow it to this actor, and shows what they show it."""
        return self._with(caller=Caller(actor))

    def _acting_for(self, caller: Caller, read_options: ReadOptions | None = None) -> Self:
        """The same, with an observer of decisions and with limits of reads; a server also has anonymous callers."""
        workspace = replace(self._workspace, caller=caller)
        return type(self)(workspace, self._queries, read_options or self._read_options)

    def _allowed(self, action: PolicyAction, branch: str | None = None, target_branch: str | None = None) -> Self:
        """A handle on the same graph for one operation that its caller may do, which is decided now and not again."""
        return type(self)(self._acting(action, branch, target_branch), self._queries, self._read_options)

    def close(self) -> None:
        """End the background work and the threads of the handle. Leaving a `with` block does it."""
        self._workspace.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def uri(self) -> str:
        """Where the graph is."""
        return self._workspace.uri

    @property
    def id(self) -> str:
        """The id that the graph was created with. A graph that is made again at the same place has another one."""
        return self._workspace.graph_id

    @property
    def embedder(self) -> Embedder | None:
        """What turns texts into vectors; None when nothing does."""
        return self._workspace.embedder

    @property
    def limits(self) -> Limits:
        """What one write may hold in memory."""
        return self._workspace.limits

    @property
    def external_blobs(self) -> ExternalBlobPolicy:
        """Which references to external objects are admitted."""
        return self._workspace.external_blobs

    def schema_text(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> str:
        """The accepted schema text of a branch, now or in the past."""
        return self._workspace.snapshot(branch, snapshot=snapshot, version=version, at=at).schema_document.source

    @property
    def catalog(self) -> Catalog:
        """The compiled schema of main."""
        return self.snapshot().catalog

    def __repr__(self) -> str:
        return f"<graph {self.uri}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Names of the last release, for one more."""
            return old_name(self, name)

    # Reading

    def snapshot(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> Snapshot:
        """A pinned state: a branch's head, or one of a commit id, a version or a moment (at most one of them).

        Raises `NotFoundError` where there is no such branch, commit, version or moment.
        """
        return _face_of(self._workspace.snapshot(branch, snapshot=snapshot, version=version, at=at))

    def at(
        self,
        version: int | None = None,
        *,
        snapshot: str | None = None,
        time: datetime | None = None,
        branch: str | None = None,
    ) -> Snapshot:
        """The graph as it was: at a version or a moment of a branch (main when not said), or at a commit by its id.

        What comes back is read like the graph, with the same settings, and never changes.
        """
        return self.snapshot(branch, snapshot=snapshot, version=version, at=time)

    def query(
        self,
        source: str | Query,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: ReadOptions | None = None,
        **parameters: Any,
    ) -> QueryResult:
        """Run a read query on one pinned state.

        The query is a handle of `omnigraph.queries`, or a text with the name of one of its queries (which a text with
        one query can do without). Parameters are keywords, or a mapping as `params`: `g.query(q.books_of,
        author="lem")`. One that is called like an option of this method has to be in `params`.

        Raises `CompileError` for a text that does not parse or does not fit the schema, `BadRequestError` for wrong
        parameters, `NotFoundError` for a state that is not there, and `ResourceLimitError` for a query that needs more
        memory than its options allow.
        """
        point = ReadPoint(branch, snapshot, version, at)
        asked = self._bound(source, name, params, parameters, {**structs.asdict(point), "options": options})

        def run(state: PinnedState) -> QueryResult:
            return run_query(state, point.target, asked, options or self._read_options)

        return self._workspace.read(run, point)

    def stream(
        self,
        source: str | Query,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: ReadOptions | None = None,
        **parameters: Any,
    ) -> QueryStream:
        """As `query`, a batch at a time: for results that should not be in memory at once."""
        point = ReadPoint(branch, snapshot, version, at)
        asked = self._bound(source, name, params, parameters, {**structs.asdict(point), "options": options})
        state = self._workspace.state_at(point)
        return stream_query(state, point.target, asked, options or self._read_options)

    def explain(
        self,
        source: str | Query,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: ReadOptions | None = None,
        **parameters: Any,
    ) -> list[str]:
        """The plan of a read query as lines of an indented tree. Nothing is run."""
        point = ReadPoint(branch, snapshot, version, at)
        asked = self._bound(source, name, params, parameters, {**structs.asdict(point), "options": options})
        return explain_query(self._workspace.state_at(point), asked, options or self._read_options)

    def profile(
        self,
        source: str | Query,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: ReadOptions | None = None,
        **parameters: Any,
    ) -> OperatorProfile:
        """Run a read query, drop its rows and tell what each operator did."""
        point = ReadPoint(branch, snapshot, version, at)
        asked = self._bound(source, name, params, parameters, {**structs.asdict(point), "options": options})
        return profile_query(self._workspace.state_at(point), asked, options or self._read_options)

    def entity(
        self,
        type_key: str,
        entity_id: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> dict[str, Any] | None:
        """One node or edge by its type (`Book`, or `node:Book`) and id, in export form; None when there is none.

        Raises `BadRequestError` for a type that the state does not have.
        """
        point = ReadPoint(branch, snapshot, version, at)
        return self._workspace.read(lambda state: _face_of(state).entity(type_key, entity_id), point)

    def count(
        self,
        type_name: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> int:
        """How many entities of a type (`Book`, or `node:Book`) there are."""
        point = ReadPoint(branch, snapshot, version, at)
        return self._workspace.read(lambda state: _face_of(state).count(type_name), point)

    def listing(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> SnapshotListing:
        """The tables of a state, with their versions and sizes."""
        return self._workspace.read(tables_of, ReadPoint(branch, snapshot, version, at))

    def resolve_snapshot(
        self, branch: str | None = None, *, version: int | None = None, at: datetime | None = None
    ) -> str:
        """The commit id of a branch's head, or of its past. The commit stays readable after the branch has moved on."""
        if version is None and at is None:
            name = MAIN if branch is None else branch
            return self._acting(PolicyAction.READ, name).head(name).entry.commit.id
        return self.snapshot(branch, version=version, at=at).commit_id

    def version_of(self, branch: str | None = None, *, snapshot: str | None = None, at: datetime | None = None) -> int:
        """The version of a branch's head, of a commit, or of a branch at a moment."""
        return self.snapshot(branch, snapshot=snapshot, at=at).version

    # Writing

    def mutate(
        self,
        source: str | Query,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        **parameters: Any,
    ) -> MutationReceipt:
        """Run a mutation as one commit, only if the branch head is `if_commit` when that is given.

        The query and its parameters are given as to `query`. A repeat with the same `idempotency_key` writes nothing
        and returns what the first call returned.

        Raises `ConstraintError` for data that breaks a rule of the schema, `PreconditionFailedError` when another
        commit is the head than `if_commit`, and `ReadSetChangedError` when another writer changed what the mutation
        relied on. Whatever is raised as a `ConflictError` or a `BadRequestError`, nothing was written.
        """
        options = {"branch": branch, "if_commit": if_commit, "actor": actor, "idempotency_key": idempotency_key}
        asked = self._bound(source, name, params, parameters, options)
        return self._mutate(asked, branch, if_commit, actor, idempotency_key)

    def _mutate(
        self,
        asked: Call,
        branch: str | None,
        if_commit: str | None,
        actor: str | None,
        idempotency_key: str | None,
        *,
        stored: bool = False,
    ) -> MutationReceipt:
        from omnigraph.engine.write.mutation import MutationRequest
        from omnigraph.engine.write.mutation import mutate as run_mutation

        target = MAIN if branch is None else branch
        required = None if if_commit is None else required_commit(if_commit, "if_commit")
        request = MutationRequest(*asked, target, required, self._author(actor), idempotency_key, stored=stored)
        return run_mutation(self._acting(PolicyAction.CHANGE, target), request)

    def load(
        self,
        data: Any,
        *,
        mode: str,
        type: str | None = None,
        branch: str = MAIN,
        base: str | None = None,
        format: str | None = None,
        csv: CsvDialect | None = None,
        embed: bool = False,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> LoadReceipt:
        """Load data as one commit, all or nothing.

        With `type`, the data are rows of that type: an Arrow table or reader, a pandas or Polars frame, a list or
        iterator of dictionaries, or the path of a csv, parquet, arrow or ndjson file. Columns are properties by name;
        `from` and `to`, or `src` and `dst`, are the ends of an edge. Without it they are graph records, one JSON object
        per line, as text, bytes, pieces of them, or a path.

        `base` names the branch (or commit) to create a missing target from; the target then exists only if the load
        succeeds. `format` and `csv` say how a file of rows is written, where its name does not tell. `embed` computes
        every missing vector whose `@embed` source has a text; those of `on_write=true` are computed in any case.

        Raises `ConstraintError` for a row that breaks a rule of the schema, `KeyConflictError` for an id that `append`
        finds taken, and `ResourceLimitError` for more than the handle's `limits`. Nothing was written then.
        """
        opened = load_input(data, type, format=format, csv=csv, graph=self._workspace.root.location)
        request = LoadRequest(opened, load_mode(mode), branch, base, self._author(actor), idempotency_key, embed=embed)
        return run_load(self._acting(PolicyAction.CHANGE, branch), request)

    def load_lenient(
        self,
        data: LoadInput,
        *,
        mode: str,
        branch: str = MAIN,
        base: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> LoadReceipt:
        """As `load`, in the lenient grammar that old exports need: a value of a wrong type becomes null, and members
        that the type does not have are left out. The receipt counts both (`values_nulled`, `values_dropped`)."""
        opened, grammar = record_input(data), Grammar.LENIENT
        author = self._author(actor)
        request = LoadRequest(opened, load_mode(mode), branch, base, author, idempotency_key, grammar)
        return run_load(self._acting(PolicyAction.CHANGE, branch), request)

    # Stored queries

    def stored_queries(self) -> StoredQueries:
        """The queries that the handle was given to offer by name (`queries=` of `open`), as a server tells its own."""
        queries = self._queries or Queries(())
        if queries._entries is not None:
            self._acting(PolicyAction.READ, MAIN)
            return queries._entries
        state = self.snapshot()
        found = [describe_stored_query(state, query.source, query.name, queries._origin) for query in queries]
        return StoredQueries(tuple(sorted(found, key=lambda query: query.name)))

    def invoke(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        if_commit: str | None = None,
        expect_mutation: bool | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> QueryResult | MutationReceipt:
        """Run a stored query: rows of a read, or the receipt of a mutation.

        `expect_mutation` refuses a query of the other kind. Raises `NotFoundError` for a name that is not offered.
        """
        try:
            self._acting(PolicyAction.INVOKE_QUERY)
        except PolicyError:
            raise NotFoundError("stored query not found") from None
        if self._queries is None or name not in self._queries:
            raise NotFoundError("stored query not found")
        query = self._queries[name]
        require_kind(name, query.is_mutation, expect_mutation)
        if not query.is_mutation and if_commit is None:
            return self.query(query.source, name, params, branch=branch, snapshot=snapshot, version=version, at=at)
        require_branch(name, query.is_mutation, ReadPoint(branch, snapshot, version, at))
        asked = self._bound(query.source, name, params, {}, {})
        return self._mutate(asked, branch, if_commit, actor, idempotency_key, stored=True)

    # Branches and history

    def branch(self, name: str, *, create: bool = False, source: str | None = None, actor: str | None = None) -> Branch:
        """A branch to work on. `create` makes it from `source` (main when not said), unless it is there already;
        otherwise a branch that is not there raises `BranchNotFoundError`."""
        name = branch_name(name)
        if create:
            find_or_create(self._workspace, name, MAIN if source is None else source, actor=actor)
        else:
            self._acting(PolicyAction.READ, name).head(name)
        return Branch(self, name)

    def create_branch(
        self,
        name: str,
        *,
        source: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> BranchCreated:
        """A branch from another branch's head, or from any commit that a live branch still has.

        A repeat with the same `idempotency_key` makes nothing, also when the branch was deleted since. Raises
        `ConflictError` where the name is taken, `NotFoundError` for a source that is not there.
        """
        source, author = MAIN if source is None else source, self._author(actor)
        made = create_branch(self._workspace, name, source, actor=author, idempotency_key=idempotency_key)
        who, replayed = (made.actor, True) if isinstance(made, KeyUse) else (author, False)
        return BranchCreated(self.uri, source.strip(), name.strip(), who, replayed)

    def list_branches(self) -> list[str]:
        """The names of all branches, sorted."""
        return branch_names(self._acting(PolicyAction.READ))

    def delete_branch(
        self, name: str, *, actor: str | None = None, idempotency_key: str | None = None
    ) -> BranchDeleted:
        """Delete a branch. Commits that another branch has stay.

        A repeat with the same `idempotency_key` deletes nothing, also when a new branch has the name since. Raises
        `BranchNotFoundError` where there is none, `ConflictError` while another branch depends on it.
        """
        author = self._author(actor)
        earlier = delete_branch(self._workspace, name, actor=author, idempotency_key=idempotency_key)
        who, replayed = (author, False) if earlier is None else (earlier.actor, True)
        return BranchDeleted(self.uri, name.strip(), who, replayed)

    def _list_commits(self, branch: str = MAIN, *, limit: int = 100, before: int | None = None) -> CommitPage:
        """Log entries of a branch, newest first. They tell how much every table holds; `commits` is for readers."""
        workspace = self._whole(PolicyAction.READ, "log entries", branch)
        return log_walk.commits(workspace.root, workspace.head(branch), limit=limit, before=before)

    def _get_commit(self, commit_id: str) -> LogEntry:
        """The log entry of a commit; `describe_commit` is for readers."""
        return self._whole(PolicyAction.READ, "log entries").commit_entry(commit_id)

    def _merge_base(self, left: str, right: str) -> LogEntry | None:
        """The nearest common ancestor of two branch heads."""
        heads = (self._whole(PolicyAction.READ, "log entries", name).head(name).entry for name in (left, right))
        return log_walk.merge_base(self._workspace.root, *heads)

    def verify(self) -> maintenance.Verification:
        """Check that everything the graph names is there and whole. Reads only; the report tells what is wrong."""
        from omnigraph.engine.maintenance.verify import verify

        return verify(self._acting(PolicyAction.ADMIN))

    def _acting(self, action: PolicyAction, branch: str | None = None, target_branch: str | None = None) -> Workspace:
        """The workspace for one thing, if the actor of this handle may do it."""
        return self._workspace.acting(action, branch and branch.strip(), target_branch and target_branch.strip())

    def _bound(
        self,
        source: str | Query,
        name: str | None,
        params: Mapping[str, Any] | None,
        given: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Call:
        """A query with its parameters; a keyword is one of those only if no option of the call has its name."""
        return call(source, name, params, given, options)

    def _author(self, actor: str | None) -> str | None:
        return self._workspace.author(actor)

    def _whole(self, action: PolicyAction, what: str, branch: str | None = None) -> Workspace:
        """The same for what is about everything there is."""
        workspace = self._acting(action, branch)
        workspace.refuse_restricted(what)
        return workspace

    # Upkeep

    def ensure_indices(
        self, branch: str | None = None, *, actor: str | None = None
    ) -> list[maintenance.PendingProperty]:
        """Build the declared indexes of a branch, in one commit; returns those that have to wait."""
        from omnigraph.engine.maintenance.optimize import ensure_indices

        workspace = self._acting(PolicyAction.ADMIN)
        return ensure_indices(workspace, (MAIN if branch is None else branch).strip(), actor=self._author(actor))

    def optimize(
        self,
        branch: str | None = None,
        *,
        types: Collection[str] | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> maintenance.OptimizeReport:
        """Compact the tables of a branch and make their indexes whole, in one commit that changes no content."""
        from omnigraph.engine.maintenance.optimize import optimize

        workspace, name = self._acting(PolicyAction.ADMIN), (MAIN if branch is None else branch).strip()
        return optimize(workspace, name, types=types, actor=self._author(actor), progress=progress)

    # Merging, changes and export

    def merge(
        self,
        source: str,
        target: str = MAIN,
        *,
        delete_branch: bool = False,
        resolutions: Resolutions = NO_RESOLUTIONS,
        actor: str | None = None,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Merge a branch into another as one commit.

        Raises `MergeConflictsError` with every conflict at once; nothing has changed then.
        """
        from omnigraph.engine.history.merge import merge as run_merge

        author = self._author(actor)
        request = MergeRequest(source, target, delete_branch, resolutions, author, message, idempotency_key)
        return run_merge(self._acting(PolicyAction.BRANCH_MERGE, source, target), request)

    def preview_merge(
        self, source: str, target: str = MAIN, *, resolutions: Resolutions = NO_RESOLUTIONS
    ) -> MergePreview:
        """What a merge would change and what conflicts, without doing it."""
        from omnigraph.engine.history.merge import preview as preview_of_merge

        self._whole(PolicyAction.READ, "the preview of a merge", source)
        workspace = self._whole(PolicyAction.READ, "the preview of a merge", target)
        return preview_of_merge(workspace, MergeRequest(source, target, resolutions=resolutions))

    def diff(self, before: str | PinnedState, after: str | PinnedState, filter: ChangeScope | None = None) -> ChangeSet:
        """The net difference of two states: branches, commit ids or snapshots, in any direction."""
        return diff_of(self._workspace, before, after, filter or EVERYTHING)

    def commits(self, branch: str = MAIN, *, limit: int = 100, before: int | None = None) -> CommitList:
        """The commits of a branch's line of history, newest first."""
        return receipts(self._acting(PolicyAction.READ, branch), branch, limit=limit, before=before)

    def commit_history(
        self, branch: str = MAIN, *, limit: int = 100, before: int | None = None, exact: bool = True
    ) -> CommitHistory:
        """As `commits`, with their kind, their message, and how many entities of each type they changed.

        A fast-forward merge does not record how many: unless `exact` is false, they are counted now.
        """
        acting = self._acting(PolicyAction.READ, branch)
        return summaries(acting, branch, limit=limit, before=before, exact=exact)

    def describe_commit(self, commit_id: str) -> CommitSummary:
        """One commit, with what it did. Raises `NotFoundError` for one that no branch has."""
        return summary(self.snapshot(snapshot=commit_id))

    def commit_changes(
        self,
        commit_id: str,
        *,
        scope: ChangeScope | None = None,
        page_token: str | None = None,
        max_changes: int | None = None,
        max_bytes: int | None = None,
    ) -> CommitChangesPage:
        """One page of what a commit changed relative to its first parent, with images before and after.

        Raises `ChangeFeedGapError` when cleanup has released what it would compare.
        """
        state = self.snapshot(snapshot=commit_id)
        return commit_changes_page(state, scope or EVERYTHING, page_token, max_changes, max_bytes)

    def iter_commit_changes(self, commit_id: str, *, scope: ChangeScope | None = None) -> Iterator[ChangeRecord]:
        """Everything a commit changed, one after another."""
        return changes_of_types(self.snapshot(snapshot=commit_id), scope or EVERYTHING).records()

    def poll_changes(
        self,
        *,
        branch: str = MAIN,
        start: str | None = None,
        cursor: str | None = None,
        page_token: str | None = None,
        scope: ChangeScope | None = None,
        max_changes: int | None = None,
        max_bytes: int | None = None,
        max_commits: int | None = None,
        wait_ms: int | None = None,
    ) -> ChangePoll:
        """The next commits of a branch's feed. `start` is `now` (the default), `beginning` or `after:<commit id>`.

        With `wait_ms`, an answer that would be empty waits until something happens, for at most so long.
        Raises `ChangeFeedGapError` when cleanup has released the commits that come next: begin again with a baseline.
        """
        request = PollRequest(
            branch, start, cursor, page_token, scope or EVERYTHING, max_changes, max_bytes, max_commits
        )
        from omnigraph.engine.history.feed import wait_for_changes

        return wait_for_changes(lambda: self._acting(PolicyAction.READ, branch), request, (wait_ms or 0) / 1000)

    def follow(
        self,
        *,
        branch: str = MAIN,
        start: str | None = None,
        cursor: str | None = None,
        scope: ChangeScope | None = None,
        max_changes: int | None = None,
    ) -> Iterator[ChangePoll]:
        """The changes of a branch as they happen from this call on, without end.

        Each item has blocks; one that ends a commit has a `cursor`, which a later `follow` goes on from. While nothing
        happens, the branch is looked at once a second.
        """
        return follow(self, start, cursor, branch=branch, scope=scope, max_changes=max_changes)

    def capture_baseline(
        self, writer: ByteWriter, *, branch: str = MAIN, scope: ChangeScope | None = None
    ) -> ChangeBaseline:
        """Write an export of the branch's head, and return the cursor that continues exactly after it."""
        from omnigraph.engine.history.feed import capture_baseline as write_baseline

        return write_baseline(self._acting(PolicyAction.EXPORT, branch), branch, scope or EVERYTHING, writer)

    def export(
        self,
        *,
        branch: str | None = None,
        types: Collection[str] = (),
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        epoch: bool = False,
    ) -> Iterator[str]:
        """The lines of an export, each with its line end. They can be loaded as they are. Dates and times are texts of
        ISO 8601; with `epoch`, days and milliseconds since 1970."""
        return export_text(
            self._workspace.state_at(ReadPoint(branch, snapshot, version, at), PolicyAction.EXPORT), types, epoch=epoch
        )

    def export_to(
        self,
        writer: ByteWriter,
        *,
        branch: str | None = None,
        types: Collection[str] = (),
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        epoch: bool = False,
    ) -> int:
        """Write an export in chunks of at most 64 KiB; how many entities that were."""
        state = self._workspace.state_at(ReadPoint(branch, snapshot, version, at), PolicyAction.EXPORT)
        return write_lines(export_lines(state, types, dates=Dates.EPOCH if epoch else Dates.ISO), writer)

    def export_files(
        self,
        directory: str | Path,
        *,
        format: str = "parquet",
        branch: str | None = None,
        types: Collection[str] = (),
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        progress: Progress | None = None,
        force: bool = False,
    ) -> list[ExportedFile]:
        """One Parquet, Arrow or CSV file per type in a local directory. A file that exists is replaced only with
        `force`."""
        state = self._workspace.state_at(ReadPoint(branch, snapshot, version, at), PolicyAction.EXPORT)
        return write_files(state, directory, format, types, progress, force=force)

    def plan_schema(self, text: str, *, branch: str = MAIN, allow_data_loss: bool = False) -> SchemaPlan:
        """The steps from a branch's schema to this one; also when some of them are not possible."""
        from omnigraph.engine.schema_apply import plan_schema

        return plan_schema(self._workspace, text, branch.strip(), allow_data_loss=allow_data_loss)

    def _preview_schema(self, text: str, *, branch: str = MAIN, allow_data_loss: bool = False) -> SchemaPreview:
        """The same, with the catalog the branch would have afterwards."""
        from omnigraph.engine.schema_apply import preview_schema

        return preview_schema(self._workspace, text, branch.strip(), allow_data_loss=allow_data_loss)

    def apply_schema(
        self,
        text: str,
        *,
        branch: str = MAIN,
        allow_data_loss: bool = False,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> SchemaApplied:
        """Change the schema of a branch in one commit, together with the data change it needs.

        Raises `CompileError` for a schema that is wrong, `BadRequestError` for a change that is not possible.
        """
        from omnigraph.engine.schema_apply import apply_schema

        return apply_schema(
            self._acting(PolicyAction.SCHEMA_APPLY, target_branch=branch),
            text,
            branch.strip(),
            allow_data_loss=allow_data_loss,
            actor=self._author(actor),
            idempotency_key=idempotency_key,
        )

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than: timedelta | str | int | None = None,
        grace: timedelta = maintenance.GRACE,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> maintenance.CleanupReport:
        """Delete table data that no retained snapshot needs. A dry run only says how much that is."""
        span = None if older_than is None else maintenance.duration(older_than)
        from omnigraph.engine.maintenance.cleanup import cleanup

        workspace = self._acting(PolicyAction.ADMIN)
        retention = maintenance.Retention(keep_versions, span)
        return cleanup(workspace, retention, grace=grace, dry_run=dry_run, progress=progress)

    def repair(
        self,
        *,
        confirm: bool = False,
        force: bool = False,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> maintenance.RepairReport:
        """Show what other tools did to main's tables; with both flags, load the rows they brought."""
        from omnigraph.engine.maintenance.repair import repair

        workspace, author = self._acting(PolicyAction.ADMIN), self._author(actor)
        return repair(workspace, confirm=confirm, force=force, actor=author, progress=progress)

    def maintain(
        self,
        policy: maintenance.MaintenancePolicy = maintenance.DEFAULT_POLICY,
        *,
        branch: str = MAIN,
        actor: str | None = None,
    ) -> maintenance.MaintenanceReport:
        """Tidy what passed a threshold of the policy. Meant to be called now and then by a long-running process."""
        from omnigraph.engine.maintenance.maintainer import maintain

        return maintain(self._acting(PolicyAction.ADMIN), branch.strip(), policy, actor=self._author(actor))

    def read_blob(
        self,
        kind: str,
        type: str,
        id: str,
        property: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> BlobRead:
        """The value of one blob cell: bytes by range with a tag, or the reference to an external object.

        Raises `NotFoundError` for an entity that is not there or holds no value, `BadRequestError` for a property that
        is no blob.
        """
        point = ReadPoint(branch, snapshot, version, at)
        return read_blob(self._workspace, BlobCell(kind, type, id, property), point)

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
        """A type as a DataFrame, pinned to the state it has now; on the active session, or on a new local one."""
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
        """Run a pipeline, or the file of one, into this graph as one commit, whatever graph the file names."""
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


def _face_of(state: PinnedState) -> Snapshot:
    """A state as users see it."""
    return Snapshot(state.resources, state.branch, state.entry, state.unbound_visibility, state.governed_by)


if TYPE_CHECKING:

    def _implements(graph: Graph) -> GraphApi:
        return graph
