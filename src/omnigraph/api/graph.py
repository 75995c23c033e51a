"""`GraphApi`: every public method of a graph, declared and documented once for embedded and remote graphs.

Each method turns its keywords into a request and hands it to `GraphCalls`. `Branch` and the areas `g.schema`,
`g.changes` and `g.maintenance` are views of the same operations. Nothing is decided here; of an `AsyncRemoteGraph`,
the results are awaited or iterated with `async for`.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self

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
from omnigraph.api.calls import (
    Author,
    Batches,
    Blob,
    GraphCalls,
    LoadInput,
    LoadOptions,
    QueryBatches,
    QueryHandle,
    QueryRows,
    Reads,
    Rows,
    SnapshotApi,
    State,
)
from omnigraph.api.commits import CommitHistory, CommitList, CommitSummary
from omnigraph.api.history import (
    EVERYTHING,
    ChangeBaseline,
    ChangePoll,
    ChangeRecord,
    ChangeScope,
    ChangeSet,
    CommitChangesPage,
    PollRequest,
    SchemaChange,
)
from omnigraph.api.load import LoadReceipt, MutationReceipt
from omnigraph.api.queries import BlobCell, ByteWriter, ExportedFile, OperatorProfile, ReadPoint, StoredQueries
from omnigraph.api.schema import Dedupe, SchemaApplied, SchemaApplyRequest, SchemaPlan, SchemaPlanRequest
from omnigraph.errors import DirectAccessError

__all__ = ["GraphApi", "LoadInput", "QueryBatches", "QueryRows", "SnapshotApi"]

MAIN: Final = "main"


class Branch(Reads[Rows, Batches]):
    """A branch of a graph: read it, write to it, compare it, merge it, delete it. Every call is about its newest
    head."""

    def __init__(self, graph: GraphApi[Rows, Batches, State, Blob], name: str) -> None:
        self._graph: GraphApi[Rows, Batches, Any, Any] = graph
        self.name = name

    def __repr__(self) -> str:
        return f"<branch '{self.name}' of {self._graph.uri}>"

    def _reader(self) -> tuple[GraphCalls[Rows, Batches, Any, Any], ReadPoint]:
        return self._graph, ReadPoint(self.name)

    def head(self) -> str:
        """The id of the newest commit."""
        return self._graph._commit_id(ReadPoint(self.name))

    def at(self, version: int | None = None, *, time: datetime | None = None) -> SnapshotApi[Rows, Batches]:
        """The branch as it was at a version or a moment; as it is now when neither is given."""
        snapshot: SnapshotApi[Rows, Batches] = self._graph._snapshot(ReadPoint(self.name, None, version, time))
        return snapshot

    def mutate(
        self,
        /,
        source: str | QueryHandle,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        if_commit: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        **parameters: Any,
    ) -> MutationReceipt:
        """Run a mutation as one commit on the branch; see `Graph.mutate`."""
        options = {"if_commit": if_commit, "actor": actor, "idempotency_key": idempotency_key}
        call = self._graph._bind(source, name, params, parameters, options)
        return self._graph._mutate(call, self.name, if_commit, Author(actor, idempotency_key))

    def load(
        self,
        data: Any,
        *,
        mode: str,
        type: str | None = None,
        format: str | None = None,
        csv: Any = None,
        embed: bool = False,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> LoadReceipt:
        """Load rows or graph records as one commit on the branch; see `Graph.load`."""
        options = LoadOptions(mode, self.name, None, type, format, csv, embed)
        return self._graph._load(data, options, Author(actor, idempotency_key))

    def history(self, *, limit: int = 100, before: int | None = None) -> CommitHistory:
        """The commits of the branch, newest first, with what each of them did."""
        return self._graph.commit_history(self.name, limit=limit, before=before)

    def diff(self, base: Any = MAIN, scope: ChangeScope | None = None) -> ChangeSet:
        """The difference between `base`, a branch, a commit or a snapshot, and this branch."""
        return self._graph.diff(base, self.name, scope)

    def preview_merge(self, target: str = MAIN, *, resolutions: Resolutions = NO_RESOLUTIONS) -> MergePreview:
        """What a merge into another branch would change, and what conflicts."""
        return self._graph.preview_merge(self.name, target, resolutions=resolutions)

    def merge_into(
        self,
        target: str = MAIN,
        *,
        delete: bool = False,
        resolutions: Resolutions = NO_RESOLUTIONS,
        actor: str | None = None,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Merge the branch into another one as one commit, and delete it if asked; see `Graph.merge`."""
        return self._graph._merge(MergeRequest(self.name, target, delete, resolutions, actor, message, idempotency_key))

    def delete(self, *, actor: str | None = None, idempotency_key: str | None = None) -> BranchDeleted:
        """Delete the branch. Commits that another branch has stay."""
        return self._graph._delete_branch(self.name, Author(actor, idempotency_key))


class _Area:
    """A group of calls of one graph."""

    _NAMES = ""

    def __init__(self, graph: GraphCalls[Any, Any, Any, Any]) -> None:
        self._graph = graph

    def __repr__(self) -> str:
        return f"<{type(self).__name__.removesuffix('Area').lower()} of {self._graph.uri}: {self._NAMES}>"


class SchemaArea(_Area):
    """`g.schema`: the types of the graph, and how they change."""

    _NAMES = "show, plan, apply"

    def show(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> str:
        """The accepted schema text of a branch, now or in the past."""
        return self._graph._schema_text(ReadPoint(branch, snapshot, version, at))

    def plan(
        self, text: str, *, branch: str = MAIN, allow_data_loss: bool = False, dedupe: Dedupe | None = None
    ) -> SchemaPlan:
        """The steps from a branch's schema to this one, with what each of them writes and checks; also when some of
        them are not possible, or stored rows fail a check."""
        return self._graph._plan_schema(SchemaPlanRequest(text, allow_data_loss, branch, dedupe))

    def apply(
        self,
        text: str,
        *,
        branch: str = MAIN,
        allow_data_loss: bool = False,
        dedupe: Dedupe | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> SchemaApplied:
        """Change the schema of a branch in one commit, together with the data change it needs.

        `dedupe` says which edge stays (`"first"` or `"last"` written) where an edge type gets a key that several edges
        share. Raises `CompileError` for a schema that is wrong, `BadRequestError` for a change that is not possible,
        `ConstraintError` if stored rows break a new rule. A server of a cluster refuses it: there,
        `omnigraph cluster apply` changes schemas.
        """
        request = SchemaApplyRequest(text, allow_data_loss, branch, dedupe)
        return self._graph._apply_schema(request, Author(actor, idempotency_key))


class ChangesArea(_Area):
    """`g.changes`: what commits changed, for one commit or as a feed."""

    _NAMES = "of, page, poll, follow, baseline"

    def of(self, commit_id: str, *, scope: ChangeScope | None = None) -> Iterator[SchemaChange | ChangeRecord]:
        """Everything that a commit changed relative to its first parent: what it did to types, then the changes of
        entities, one after another."""
        return self._graph._changes_of(commit_id, scope or EVERYTHING)

    def page(
        self,
        commit_id: str,
        *,
        scope: ChangeScope | None = None,
        page_token: str | None = None,
        max_changes: int | None = None,
        max_bytes: int | None = None,
    ) -> CommitChangesPage:
        """One page of what a commit changed relative to its first parent, with images before and after.
        `schema_changes` of the first page are what it did to types.

        Raises `ChangeFeedGapError` when cleanup has reclaimed the data that it would compare.
        """
        return self._graph._changes_page(commit_id, scope or EVERYTHING, page_token, max_changes, max_bytes)

    def poll(
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
        The types of a scope are followed when they are renamed.

        With `wait_ms`, a poll that finds nothing waits for a new commit, for at most that long. Raises
        `ChangeFeedGapError` when cleanup has reclaimed the commits that come next: begin again with a baseline.
        """
        limits = (max_changes, max_bytes, max_commits)
        request = PollRequest(branch, start, cursor, page_token, scope or EVERYTHING, *limits)
        return self._graph._poll(request, wait_ms)

    def follow(
        self,
        *,
        branch: str = MAIN,
        start: str | None = None,
        cursor: str | None = None,
        scope: ChangeScope | None = None,
        max_changes: int | None = None,
    ) -> Iterator[ChangePoll]:
        """The changes of a branch as they happen, without end. `poll.cursor` is where a later `follow` continues.

        The feed begins with this call; for asyncio, when its first item is awaited.
        """
        return self._graph._follow(PollRequest(branch, start, cursor, None, scope or EVERYTHING, max_changes))

    def baseline(self, writer: ByteWriter, *, branch: str = MAIN, scope: ChangeScope | None = None) -> ChangeBaseline:
        """Write an export of the branch's head, and return the cursor that continues exactly after it.

        If it raises, discard what was written: only a complete stream has a cursor.
        """
        return self._graph._baseline(writer, branch, scope or EVERYTHING)


class MaintenanceArea(_Area):
    """`g.maintenance`: compaction, indexes, retention, and checks of the stored data. A server's operator does these;
    a client has `index_status` and raises `DirectAccessError` for the others."""

    _NAMES = "optimize, ensure_indices, index_status, cleanup, maintain, verify, repair"

    def optimize(
        self,
        branch: str = MAIN,
        *,
        types: Collection[str] | None = None,
        actor: str | None = None,
        progress: maintenance.Progress | None = None,
    ) -> maintenance.OptimizeReport:
        """Compact the tables of a branch and complete their indexes, in one commit that changes no content."""
        return self._graph._optimize(branch, types, actor, progress)

    def ensure_indices(self, branch: str = MAIN, *, actor: str | None = None) -> list[maintenance.PendingProperty]:
        """Build the declared indexes of a branch, in one commit; returns those that have to wait."""
        return self._graph._ensure_indices(branch, actor)

    def index_status(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> maintenance.IndexListing:
        """The declared indexes of a state: what they cover, their size and measured recall, and what they wait for.
        Reads no rows."""
        return self._graph._index_status(ReadPoint(branch, snapshot, version, at))

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than: timedelta | str | int | None = None,
        grace: timedelta = maintenance.GRACE,
        dry_run: bool = False,
        progress: maintenance.Progress | None = None,
    ) -> maintenance.CleanupReport:
        """Delete table data that no retained snapshot needs. A dry run only reports how much that is."""
        span = None if older_than is None else maintenance.duration(older_than)
        return self._graph._cleanup(maintenance.Retention(keep_versions, span), grace, dry_run, progress)

    def maintain(
        self,
        policy: maintenance.MaintenancePolicy = maintenance.DEFAULT_POLICY,
        *,
        branch: str = MAIN,
        actor: str | None = None,
    ) -> maintenance.MaintenanceReport:
        """Do the maintenance for which a threshold of the policy has been passed. A long-running process should call
        it now and then."""
        return self._graph._maintain(policy, branch, actor)

    def verify(self) -> maintenance.Verification:
        """Open everything that the branch heads refer to, and report what is missing or foreign. Reads only."""
        return self._graph._verify()

    def repair(
        self,
        *,
        confirm: bool = False,
        force: bool = False,
        actor: str | None = None,
        progress: maintenance.Progress | None = None,
    ) -> maintenance.RepairReport:
        """Show what other tools did to main's tables; with both flags, load the rows they added."""
        return self._graph._repair(confirm, force, actor, progress)


_DEPRECATED: Final = {
    "schema_text": "schema.show",
    "plan_schema": "schema.plan",
    "apply_schema": "schema.apply",
    "commit_changes": "changes.page",
    "iter_commit_changes": "changes.of",
    "poll_changes": "changes.poll",
    "follow": "changes.follow",
    "capture_baseline": "changes.baseline",
    **{name: f"maintenance.{name}" for name in ("optimize", "ensure_indices", "cleanup")},
    **{name: f"maintenance.{name}" for name in ("maintain", "verify", "repair")},
}
"""Methods of the last release, which work for one more, and what to use instead."""


class GraphAreas:
    """The areas of a graph, and the deprecated names of their methods."""

    @property
    def schema(self) -> SchemaArea:
        """The types of the graph, and how they change."""
        return SchemaArea(self)  # type: ignore[arg-type]

    @property
    def changes(self) -> ChangesArea:
        """What commits changed, for one commit or as a feed."""
        return ChangesArea(self)  # type: ignore[arg-type]

    @property
    def maintenance(self) -> MaintenanceArea:
        """Compaction, indexes, retention, and checks of the stored data."""
        return MaintenanceArea(self)  # type: ignore[arg-type]

    _storage_only: ClassVar[frozenset[str]] = frozenset()
    """Members of an embedded graph that a remote one refuses."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A method under its deprecated name, with a warning."""
            if name in self._storage_only:
                raise DirectAccessError(name)
            if name not in _DEPRECATED:
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
            now = _DEPRECATED[name]
            text = f"Graph.{name} is deprecated and will be removed in the next release; use Graph.{now}"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return attrgetter(now)(self)


class GraphApi(GraphAreas, GraphCalls[Rows, Batches, State, Blob], Generic[Rows, Batches, State, Blob]):
    """A versioned graph of typed tables, embedded or behind a server.

    Reads are of the head of main, unless they name a `branch`, and a `version` or a moment (`at`) of it, or a commit
    (`snapshot`).
    """

    @abstractmethod
    def close(self) -> None:
        """Release what the handle holds. Leaving a `with` block does it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading

    def snapshot(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> State:
        """A pinned state: a branch's head, or one of a commit id, a version or a moment (at most one of them).

        Raises `NotFoundError` where there is no such branch, commit, version or moment.
        """
        return self._snapshot(ReadPoint(branch, snapshot, version, at))

    def at(
        self,
        version: int | None = None,
        *,
        snapshot: str | None = None,
        time: datetime | None = None,
        branch: str | None = None,
    ) -> State:
        """The graph as it was: at a version or a moment of a branch (main by default), or at a commit by its id.

        The result is read like the graph, with the same settings, and never changes.
        """
        return self._snapshot(ReadPoint(branch, snapshot, version, time))

    def query(
        self,
        /,
        source: str | QueryHandle,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: Any = None,
        **parameters: Any,
    ) -> Rows:
        """Run a read query on one pinned state.

        The query is a handle of `omnigraph.queries`, or a text with the name of one of its queries (which may be left
        out when the text has only one). Parameters are keywords, or a mapping as `params`: `g.query(q.books_of,
        author="lem")`. A parameter with the name of an option of this method must be in `params`. `options` are
        `ReadOptions`, of which a server takes `traversal_work` alone.

        Raises `CompileError` for a text that does not parse or does not fit the schema, `BadRequestError` for wrong
        parameters, `NotFoundError` for a state that does not exist, and `ResourceLimitError` for a query that needs
        more memory, or traverses more, than its options allow.
        """
        point = ReadPoint(branch, snapshot, version, at)
        call = self._bind(source, name, params, parameters, {**point.keywords, "options": options})
        return self._query(point, call, options)

    def stream(
        self,
        /,
        source: str | QueryHandle,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: Any = None,
        **parameters: Any,
    ) -> Batches:
        """Like `query`, a batch at a time: for results that should not be in memory at once."""
        point = ReadPoint(branch, snapshot, version, at)
        call = self._bind(source, name, params, parameters, {**point.keywords, "options": options})
        return self._stream(point, call, options)

    def explain(
        self,
        /,
        source: str | QueryHandle,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: Any = None,
        **parameters: Any,
    ) -> list[str]:
        """The plan of a read query as lines of an indented tree. The query does not run."""
        point = ReadPoint(branch, snapshot, version, at)
        call = self._bind(source, name, params, parameters, {**point.keywords, "options": options})
        return self._explain(point, call, options)

    def profile(
        self,
        /,
        source: str | QueryHandle,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: Any = None,
        **parameters: Any,
    ) -> OperatorProfile:
        """Run a read query, drop its rows and report what each operator did."""
        point = ReadPoint(branch, snapshot, version, at)
        call = self._bind(source, name, params, parameters, {**point.keywords, "options": options})
        return self._profile(point, call, options)

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
        """One node or edge by its type (`Book`, or `node:Book`) and id, in export form; None when it does not exist.

        Raises `BadRequestError` for a type that the schema does not have.
        """
        return self._entity(ReadPoint(branch, snapshot, version, at), type_key, entity_id)

    def count(
        self,
        type_name: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> int:
        """The number of entities of a type (`Book`, or `node:Book`)."""
        return self._count(ReadPoint(branch, snapshot, version, at), type_name, None)

    def listing(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> SnapshotListing:
        """The tables of a state, with their versions and sizes."""
        return self._listing(ReadPoint(branch, snapshot, version, at))

    def resolve_snapshot(
        self, branch: str | None = None, *, version: int | None = None, at: datetime | None = None
    ) -> str:
        """The commit id of a branch's head, or of its past. The commit stays readable after the branch has moved on."""
        return self._commit_id(ReadPoint(branch, None, version, at))

    def version_of(self, branch: str | None = None, *, snapshot: str | None = None, at: datetime | None = None) -> int:
        """The version of a branch's head, of a commit, or of a branch at a moment."""
        return self._version(ReadPoint(branch, snapshot, None, at))

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
    ) -> Blob:
        """The value of one blob cell: bytes by range with a tag, or the reference to an external object.

        Raises `NotFoundError` for an entity that does not exist or holds no value, `BadRequestError` for a property
        that is not a blob.
        """
        return self._blob(ReadPoint(branch, snapshot, version, at), BlobCell(kind, type, id, property))

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
        """The lines of an export, each with its line end, ready to be loaded. Dates and times are ISO 8601 texts; with
        `epoch`, days and milliseconds since 1970."""
        return self._export(ReadPoint(branch, snapshot, version, at), types, epoch)

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
        """Write an export in small chunks; returns the number of entities."""
        return self._export_to(ReadPoint(branch, snapshot, version, at), types, epoch, writer)

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
        progress: maintenance.Progress | None = None,
        force: bool = False,
    ) -> list[ExportedFile]:
        """One Parquet, Arrow or CSV file per type in a local directory. Only `force` replaces a file that exists. Of a
        remote graph it raises `DirectAccessError`."""
        point = ReadPoint(branch, snapshot, version, at)
        return self._export_files(point, types, directory, format, progress, force)

    # Writing

    def mutate(
        self,
        /,
        source: str | QueryHandle,
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
        and returns what the first call returned; a remote graph makes a key itself when none is given.

        Raises `ConstraintError` for data that breaks a rule of the schema, `PreconditionFailedError` when another
        commit is the head than `if_commit`, and `ReadSetChangedError` when another writer changed what the mutation
        relied on. After a `ConflictError` or a `BadRequestError`, nothing was written.
        """
        options = {"branch": branch, "if_commit": if_commit, "actor": actor, "idempotency_key": idempotency_key}
        call = self._bind(source, name, params, parameters, options)
        return self._mutate(call, branch, if_commit, Author(actor, idempotency_key))

    def load(
        self,
        data: Any,
        *,
        mode: str,
        type: str | None = None,
        branch: str = MAIN,
        base: str | None = None,
        format: str | None = None,
        csv: Any = None,
        embed: bool = False,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> LoadReceipt:
        """Load data as one commit, all or nothing.

        With `type`, the data are rows of that type: an Arrow table or reader, a pandas or Polars frame, a list or
        iterator of dictionaries, or the path of a csv, parquet, arrow or ndjson file. Columns are properties by name;
        `from` and `to`, or `src` and `dst`, are the ends of an edge. Without it they are graph records, one JSON object
        per line, as text, bytes, pieces of them, or a path. A remote graph sends them as they are read; an iterator can
        be read only once, so such a load is not repeated when its response is lost.

        `mode` says what happens to ids that exist: `append` refuses them, `merge` replaces those entities as a whole,
        `update` changes only the properties that a record or a frame has, of entities that exist, and `overwrite`
        replaces every type that the data mention. The receipt counts what was inserted, updated and unchanged; a load
        that changes nothing makes no commit.

        `base` names the branch (or commit) to create a missing target from; the target then exists only if the load
        succeeds. `format` and `csv` (a `CsvDialect`) describe a file of rows whose name does not. `embed` computes
        every missing vector whose `@embed` source has a text; those of `on_write=true` are computed in any case.

        Raises `ConstraintError` for a row that breaks a rule of the schema, `KeyConflictError` for an id that `append`
        finds taken, and `ResourceLimitError` for more than the handle's `limits`. Nothing was written then.
        """
        options = LoadOptions(mode, branch, base, type, format, csv, embed)
        return self._load(data, options, Author(actor, idempotency_key))

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
        """Like `load`, in the lenient grammar that old exports need: a value of a wrong type becomes null, and members
        that the type does not have are left out. The receipt counts both (`values_nulled`, `values_dropped`)."""
        return self._load_lenient(data, LoadOptions(mode, branch, base), Author(actor, idempotency_key))

    # Stored queries

    @abstractmethod
    def stored_queries(self) -> StoredQueries:
        """The queries that are offered by name: by a server, or by the handle (`queries=` of `open`)."""

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
    ) -> Rows | MutationReceipt:
        """Run a stored query: rows of a read, or the receipt of a mutation.

        `expect_mutation` refuses a query of the other kind. Raises `NotFoundError` for a name that is not offered.
        """
        point, author = ReadPoint(branch, snapshot, version, at), Author(actor, idempotency_key)
        return self._invoke(point, name, params, if_commit, expect_mutation, author)

    # Branches and history

    def branch(
        self, name: str, *, create: bool = False, source: str | None = None, actor: str | None = None
    ) -> Branch[Rows, Batches]:
        """A branch to work on. `create` makes it from `source` (main by default), unless it exists already; otherwise
        a branch that does not exist raises `BranchNotFoundError`."""
        branch: Branch[Rows, Batches] = self._find_branch(branch_name(name), create, source, actor)
        return branch

    def create_branch(
        self, name: str, *, source: str | None = None, actor: str | None = None, idempotency_key: str | None = None
    ) -> BranchCreated:
        """Create a branch from another branch's head, or from any commit that a live branch still has.

        A repeat with the same `idempotency_key` creates nothing, even when the branch was deleted since. Raises
        `ConflictError` where the name is taken, `NotFoundError` for a source that does not exist.
        """
        return self._create_branch(name, source, Author(actor, idempotency_key))

    @abstractmethod
    def list_branches(self) -> list[str]:
        """The names of all branches, sorted."""

    def delete_branch(
        self, name: str, *, actor: str | None = None, idempotency_key: str | None = None
    ) -> BranchDeleted:
        """Delete a branch. Commits that another branch has stay.

        A repeat with the same `idempotency_key` deletes nothing, even when a new branch has the name since. Raises
        `BranchNotFoundError` where there is none, `ConflictError` while another branch depends on it.
        """
        return self._delete_branch(name, Author(actor, idempotency_key))

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
        return self._merge(MergeRequest(source, target, delete_branch, resolutions, actor, message, idempotency_key))

    def preview_merge(
        self, source: str, target: str = MAIN, *, resolutions: Resolutions = NO_RESOLUTIONS
    ) -> MergePreview:
        """What a merge would change and what conflicts, without doing it."""
        return self._preview_merge(MergeRequest(source, target, resolutions=resolutions))

    @abstractmethod
    def commits(self, branch: str = MAIN, *, limit: int = 100, before: int | None = None) -> CommitList:
        """The commits of a branch's line of history, newest first."""

    @abstractmethod
    def commit_history(
        self, branch: str = MAIN, *, limit: int = 100, before: int | None = None, exact: bool = True
    ) -> CommitHistory:
        """Like `commits`, with their kind, their message, and how many entities of each type they changed.

        A fast-forward merge does not record how many: unless `exact` is false, they are counted now.
        """

    @abstractmethod
    def describe_commit(self, commit_id: str) -> CommitSummary:
        """One commit, with what it did. Raises `NotFoundError` for a commit that no branch has."""

    @abstractmethod
    def diff(self, before: Any, after: Any, filter: ChangeScope | None = None) -> ChangeSet:
        """The net difference of two states: branches, commit ids or snapshots, in any direction."""


# Following a feed

WAIT_MS: Final = 30_000


def next_poll(request: PollRequest, poll: ChangePoll) -> tuple[PollRequest, int | None]:
    """The request that continues a poll: at once within a commit, else from its cursor, waiting if it was caught up."""
    token, cursor = poll.next_page_token, None if poll.next_page_token is not None else poll.cursor
    following = PollRequest(request.branch, None, cursor, token, request.scope, request.max_changes)
    return following, WAIT_MS if token is None and poll.caught_up else None


def follow(graph: GraphCalls[Any, Any, Any, Any], request: PollRequest) -> Iterator[ChangePoll]:
    """The polls of a feed that have changes. The first poll is made here and does not wait, so that there is a cursor
    before anything can be missed."""
    first = graph._poll(request, None)

    def polls() -> Iterator[ChangePoll]:
        poll = first
        while True:
            if poll.blocks:
                yield poll
            poll = graph._poll(*next_poll(request, poll))

    return polls()
