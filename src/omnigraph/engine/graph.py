"""`Graph`: the handle everything else is reached through.

A handle is safe to share between threads. It holds no state of the graph that could go stale: naming a branch always
means its newest head.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from omnigraph.engine import history
from omnigraph.engine.blobs import BlobCell, BlobRead, read_blob
from omnigraph.engine.blobs import ReadTarget as BlobTarget
from omnigraph.engine.changes import ChangeRecord, CommitChangesPage, changes_of, commit_changes_page
from omnigraph.engine.cleanup import CleanupReport, Retention, cleanup, duration
from omnigraph.engine.columns import table_schema
from omnigraph.engine.commits import CommitHistory, CommitSummary, summaries, summary
from omnigraph.engine.diff import ChangeSet
from omnigraph.engine.diff import diff as diff_states
from omnigraph.engine.export import ByteWriter, ExportedFile, export_lines, write_lines
from omnigraph.engine.export import export_files as write_files
from omnigraph.engine.external_blobs import DENY_EXTERNAL_BLOBS, ExternalBlobPolicy
from omnigraph.engine.feed import ChangeBaseline, ChangePoll, PollRequest
from omnigraph.engine.feed import capture_baseline as write_baseline
from omnigraph.engine.feed import poll_changes as run_poll
from omnigraph.engine.held_source import held_source
from omnigraph.engine.history import CommitPage
from omnigraph.engine.indexes import PendingProperty
from omnigraph.engine.kernels import Grammar, Limits
from omnigraph.engine.kernels.csv_rows import CsvDialect
from omnigraph.engine.load import LoadInput, LoadRequest, file_pieces, load_input, load_mode, reopenable
from omnigraph.engine.load import load as run_load
from omnigraph.engine.maintain import DEFAULT_POLICY, MaintenancePolicy, MaintenanceReport, maintain
from omnigraph.engine.merge import MergePreview, MergeRequest, MergeResult, Resolutions
from omnigraph.engine.merge import merge as run_merge
from omnigraph.engine.merge import preview as preview_of_merge
from omnigraph.engine.merge.resolution import NO_RESOLUTIONS
from omnigraph.engine.mutate import MutationRequest
from omnigraph.engine.mutate import mutate as run_mutation
from omnigraph.engine.optimize import OptimizeReport, Progress, ensure_indices, optimize
from omnigraph.engine.publish import Intent, Prepare, PublishedCommit, PublishPlan, WriteTxn
from omnigraph.engine.publish import begin as begin_write
from omnigraph.engine.publish import commit as commit_write
from omnigraph.engine.publish import publish as publish_plan
from omnigraph.engine.query.embedding import Embedder
from omnigraph.engine.query.read import DEFAULT_OPTIONS as DEFAULT_READ_OPTIONS
from omnigraph.engine.query.read import ReadOptions, explain_query, run_query, stream_query
from omnigraph.engine.query.result import QueryResult, QueryStream, ReadTarget
from omnigraph.engine.receipts import LoadReceipt, MutationReceipt
from omnigraph.engine.repair import RepairReport, repair
from omnigraph.engine.schema_apply import SchemaApplied, SchemaPreview, apply_schema, plan_schema, preview_schema
from omnigraph.engine.scope import EVERYTHING, ChangeScope
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.turns import PROCESS_TURNS
from omnigraph.engine.verify import Verification, verify
from omnigraph.errors import (
    BadRequestError,
    ChangeFeedGapError,
    CommitOutcomeUnknownError,
    HistoricalVersionReclaimedError,
    StorageError,
)
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.language.migration import MigrationPlan
from omnigraph.language.schema.compile import accept_schema
from omnigraph.storage.branches import BranchHead
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.location import Location
from omnigraph.storage.models import BranchRef, LogEntry
from omnigraph.storage.root import GraphRoot, create_root, open_root
from omnigraph.storage.tracing import Trace
from omnigraph.storage.write_age import GRACE

DEFAULT_LIMITS = Limits()

Answer = TypeVar("Answer")


class Graph:
    """A versioned graph of typed tables at one location."""

    def __init__(
        self,
        root: GraphRoot,
        *,
        external_blobs: ExternalBlobPolicy = DENY_EXTERNAL_BLOBS,
        limits: Limits = DEFAULT_LIMITS,
        embedder: Embedder | None = None,
    ) -> None:
        self._root = root
        self.external_blobs = external_blobs
        self.limits = limits
        self.embedder = embedder

    # Lifecycle

    @classmethod
    def init(
        cls,
        uri: str | Path,
        schema: str,
        *,
        actor: str | None = None,
        force: bool = False,
        trace: Trace | None = None,
    ) -> Self:
        """A new graph with this schema. Refuses a location that holds one already.

        `force` only accepts the leavings of an interrupted init.
        """
        catalog = accept_schema(schema)
        types: list[TableType] = [*catalog.nodes.values(), *catalog.edges.values()]
        tables = {type_.type_key: table_schema(type_) for type_ in types}
        return cls.create(uri, tables, source=schema, catalog=catalog.to_json(), actor=actor, force=force, trace=trace)

    @classmethod
    def create(
        cls,
        uri: str | Path,
        tables: Mapping[str, pa.Schema],
        *,
        source: str = "",
        catalog: bytes = b"null",
        actor: str | None = None,
        force: bool = False,
        trace: Trace | None = None,
    ) -> Self:
        """A new graph with one empty table per type key (`node:Person`, `edge:Knows`).

        Every table has a string column `id`. `source` and `catalog` are the accepted schema, stored beside it.
        """
        for type_key, schema in tables.items():
            if "id" not in schema.names or schema.field("id").type != pa.string():
                raise BadRequestError(f"table '{type_key}' needs a string column 'id'")
        location = Location.parse(uri)
        options = {"source": source, "catalog": catalog, "actor": actor, "force": force, "trace": trace}
        return cls(create_root(location, tables, **options))  # type: ignore[arg-type]

    @classmethod
    def open(cls, uri: str | Path, *, trace: Trace | None = None) -> Self:
        return cls(open_root(Location.parse(uri), trace))

    def with_external_blobs(self, policy: ExternalBlobPolicy) -> Self:
        """A handle on the same graph that admits external blobs by this policy."""
        return type(self)(self._root, external_blobs=policy, limits=self.limits, embedder=self.embedder)

    def with_limits(self, limits: Limits) -> Self:
        """A handle on the same graph with other ceilings for what one write may hold in memory."""
        return type(self)(self._root, external_blobs=self.external_blobs, limits=limits, embedder=self.embedder)

    def with_embedding(self, embedder: Embedder) -> Self:
        """A handle on the same graph that embeds the texts of `nearest` with this client."""
        return type(self)(self._root, external_blobs=self.external_blobs, limits=self.limits, embedder=embedder)

    def close(self) -> None:
        self._root.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def uri(self) -> str:
        return self._root.location.uri

    @property
    def id(self) -> str:
        return self._root.identity.graph_id

    @property
    def root(self) -> GraphRoot:
        """The storage parts of this handle, for the engine's own modules and for tests."""
        return self._root

    @property
    def schema_source(self) -> str:
        """The accepted schema text of main."""
        return self.snapshot().schema_document.source

    @property
    def catalog(self) -> Catalog:
        """The compiled schema of main."""
        return self.snapshot().catalog

    # Reading

    def snapshot(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> Snapshot:
        """A pinned state: a branch's head, or one of a commit id, a version or a moment (at most one of them)."""
        if sum(x is not None for x in (snapshot, version, at)) > 1:
            raise BadRequestError("give at most one of snapshot, version and at")
        if snapshot is not None:
            if branch is not None:
                raise BadRequestError("a snapshot is a commit id and needs no branch")
            located = history.find(self._root, snapshot)
            return Snapshot(self._root, located.ref.branch, located.entry)
        head = self._head(MAIN if branch is None else branch)
        if version is not None:
            entry = history.at_version(self._root, head, version)
        elif at is not None:
            if at.tzinfo is None:
                raise BadRequestError("the moment to read at needs a time zone")
            entry = history.at_time(self._root, head, round(at.timestamp() * 1_000_000))
        else:
            entry = head.entry
        return Snapshot(self._root, head.ref.branch, entry)

    def query(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: ReadOptions = DEFAULT_READ_OPTIONS,
    ) -> QueryResult:
        """Run a named read query on one pinned state; without a name, the only query there is."""

        def run(state: Snapshot) -> QueryResult:
            target = ReadTarget(None, snapshot) if snapshot is not None else ReadTarget(state.branch, None)
            return run_query(state, target, source, name, params, self._reading(options))

        return self._read(run, branch, snapshot, version, at)

    def stream(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: ReadOptions = DEFAULT_READ_OPTIONS,
    ) -> QueryStream:
        """As `query`, a batch at a time: for results that should not be in memory at once."""
        state, target = self._read_state(branch, snapshot, version, at)
        return stream_query(state, target, source, name, params, self._reading(options))

    def explain(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: ReadOptions = DEFAULT_READ_OPTIONS,
    ) -> list[str]:
        """The plan of a read query as lines of an indented tree. Nothing is run."""
        state, _ = self._read_state(branch, snapshot, version, at)
        return explain_query(state, source, name, params, self._reading(options))

    def query_at(
        self, version: int, source: str, name: str | None = None, params: Mapping[str, object] | None = None
    ) -> QueryResult:
        """As `query`, at a past version of main."""
        return self.query(source, name, params, version=version)

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
        """One node or edge (`node:Person`, its id) in export form, None when the type or the id is not there."""
        return self._read(lambda state: state.entity(type_key, entity_id), branch, snapshot, version, at)

    def entity_at(self, type_key: str, entity_id: str, version: int) -> dict[str, Any] | None:
        """As `entity`, at a past version of main."""
        return self.entity(type_key, entity_id, version=version)

    def resolve_snapshot(self, branch: str = MAIN) -> str:
        """The commit id of a branch's head, which stays readable after the branch has moved on."""
        return self._head(branch).entry.commit.id

    def version_of(self, branch: str | None = None, *, snapshot: str | None = None, at: datetime | None = None) -> int:
        """The version of a branch's head, of a commit, or of a branch at a moment."""
        return self.snapshot(branch, snapshot=snapshot, at=at).version

    def _read_state(
        self, branch: str | None, snapshot: str | None, version: int | None, at: datetime | None
    ) -> tuple[Snapshot, ReadTarget]:
        state = self.snapshot(branch, snapshot=snapshot, version=version, at=at)
        return state, ReadTarget(None, snapshot) if snapshot is not None else ReadTarget(state.branch, None)

    def _read(
        self,
        read: Callable[[Snapshot], Answer],
        branch: str | None,
        snapshot: str | None,
        version: int | None,
        at: datetime | None,
    ) -> Answer:
        """Read one state. When a branch moved on and a cleanup released the head just captured, its new head is read;
        a commit, version or moment that was asked for is read or not."""
        state = self.snapshot(branch, snapshot=snapshot, version=version, at=at)
        try:
            return read(state)
        except HistoricalVersionReclaimedError:
            if snapshot is not None or version is not None or at is not None:
                raise
            newer = self.snapshot(branch)
            if newer.commit_id == state.commit_id:
                raise
            return read(newer)

    def _reading(self, options: ReadOptions) -> ReadOptions:
        return options if options.embedder is not None else replace(options, embedder=self.embedder)

    # Writing

    def begin(self, branch: str = MAIN, intent: Intent | None = None) -> WriteTxn:
        """Capture a branch head to write against. Most callers want `commit`."""
        return begin_write(self._root, branch, intent or Intent(kind="write"))

    def publish(self, txn: WriteTxn, plan: PublishPlan, prepare_again: Prepare | None = None) -> PublishedCommit:
        """Publish a plan that was prepared at leisure. Only the publish itself takes a turn."""
        with PROCESS_TURNS.turn((self.id, txn.ref.branch_id)):
            return publish_plan(txn, plan, prepare_again)

    def commit(
        self,
        branch: str,
        prepare: Callable[[WriteTxn], PublishPlan | None],
        intent: Intent,
        *,
        strict: bool = False,
    ) -> PublishedCommit | None:
        """One write from head to commit. `prepare` may run again on a newer head unless the write is strict.

        None when `prepare` found nothing to do. Writers of one branch in this process take turns for the whole of
        it, so they never redo work because of each other.
        """
        branch = branch.strip()
        with PROCESS_TURNS.turn((self.id, branch)):
            return commit_write(self._root, branch, prepare, intent, strict=strict)

    def commit_on_new_branch(
        self, name: str, source: str, prepare: Callable[[WriteTxn], PublishPlan], intent: Intent
    ) -> PublishedCommit:
        """A new branch whose first commit is this write. Either both come into being or neither does."""
        name = name.strip()
        with PROCESS_TURNS.turn((self.id, name)), held_source(self._root, source) as fork:
            ref = self._root.branches.draft(name, fork.ref, fork.entry, actor=intent.actor)
            txn = WriteTxn(self._root, ref, fork.entry, intent)
            # Nobody can find the log of a drafted branch, so the commit is not visible before the branch is.
            published = publish_plan(txn, prepare(txn))
            try:
                self._root.branches.establish(ref, fork.age)
            except StorageError as error:
                if error.may_have_happened:
                    raise CommitOutcomeUnknownError(published.commit_id, str(error)) from error
                raise
            return published

    def mutate(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = MAIN,
        if_commit: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> MutationReceipt:
        """Run a named mutation as one commit, only if the branch head is `if_commit` when that is given."""
        return run_mutation(self, MutationRequest(source, name, params, branch, if_commit, actor, idempotency_key))

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
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> LoadReceipt:
        """Load data as one commit, all or nothing.

        With `type`, the data are rows of that type: an Arrow table or reader, a pandas or Polars frame, a list or
        iterator of dictionaries, or the path of a csv, parquet or ndjson file. Columns are properties by name; `from`
        and `to`, or `src` and `dst`, are the ends of an edge. Without it they are graph records, one JSON object per
        line, as text, bytes, pieces of them, or a path.

        `base` names the branch (or commit) to create a missing target from; the target then exists only if the load
        succeeds. `format` and `csv` say how a file of rows is written, where its name does not tell.
        """
        opened = load_input(data, type, format=format, csv=csv, graph=self._root.location)
        return run_load(self, LoadRequest(opened, load_mode(mode), branch, base, actor, idempotency_key))

    def load_file(
        self,
        path: str | Path,
        *,
        mode: str,
        branch: str = MAIN,
        base: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> LoadReceipt:
        """As `load`, from a local file that is read in pieces."""
        opened = file_pieces(path)
        return run_load(self, LoadRequest(opened, load_mode(mode), branch, base, actor, idempotency_key))

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
        """As `load`, in the forgiving grammar that old exports need."""
        opened, grammar = reopenable(data), Grammar.LENIENT
        return run_load(self, LoadRequest(opened, load_mode(mode), branch, base, actor, idempotency_key, grammar))

    # Branches and history

    def create_branch(self, name: str, *, source: str | None = None, actor: str | None = None) -> BranchRef:
        """A branch from another branch's head, or from any commit that a live branch still has."""
        with held_source(self._root, MAIN if source is None else source) as fork:
            ref = self._root.branches.draft(name, fork.ref, fork.entry, actor=actor)
            return self._root.branches.establish(ref, fork.age)

    def list_branches(self) -> list[str]:
        return self._root.branches.names()

    def delete_branch(self, name: str, *, actor: str | None = None) -> None:
        self._root.branches.delete(name, actor=actor)

    def list_commits(self, branch: str = MAIN, *, limit: int = 100, before: int | None = None) -> CommitPage:
        return history.commits(self._root, self._head(branch), limit=limit, before=before)

    def get_commit(self, commit_id: str) -> LogEntry:
        return history.find(self._root, commit_id).entry

    def merge_base(self, left: str, right: str) -> LogEntry | None:
        """The nearest common ancestor of two branch heads."""
        return history.merge_base(self._root, self._head(left).entry, self._head(right).entry)

    def verify(self) -> Verification:
        return verify(self._root)

    def _head(self, branch: str) -> BranchHead:
        return self._root.branches.head(branch.strip())

    # Upkeep

    def ensure_indices(self, branch: str | None = None, *, actor: str | None = None) -> list[PendingProperty]:
        """Build the declared indexes of a branch, in one commit; returns those that have to wait."""
        return ensure_indices(self, (MAIN if branch is None else branch).strip(), actor=actor)

    def optimize(
        self,
        branch: str | None = None,
        *,
        types: Collection[str] | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> OptimizeReport:
        """Compact the tables of a branch and make their indexes whole, in one commit that changes no content."""
        return optimize(self, (MAIN if branch is None else branch).strip(), types=types, actor=actor, progress=progress)

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
        """Merge a branch into another as one commit, or raise every conflict at once with nothing changed."""
        request = MergeRequest(source, target, delete_branch, resolutions, actor, message, idempotency_key)
        return run_merge(self, request)

    def preview_merge(
        self, source: str, target: str = MAIN, *, resolutions: Resolutions = NO_RESOLUTIONS
    ) -> MergePreview:
        """What a merge would change and what conflicts, without doing it."""
        return preview_of_merge(self, MergeRequest(source, target, resolutions=resolutions))

    def diff(self, before: str | Snapshot, after: str | Snapshot, filter: ChangeScope | None = None) -> ChangeSet:
        """The net difference of two states: branches, commit ids or snapshots, in any direction."""
        states = self.state_of(before), self.state_of(after)
        try:
            return diff_states(self._root, *states, filter or EVERYTHING)
        except ChangeFeedGapError:
            newer = self.state_of(before), self.state_of(after)
            if [state.commit_id for state in newer] == [state.commit_id for state in states]:
                raise
            return diff_states(self._root, *newer, filter or EVERYTHING)  # a branch moved on, and its head was released

    def diff_commits(self, before: str, after: str, filter: ChangeScope | None = None) -> ChangeSet:
        """The net difference of two commits of any live branches."""
        states = self.snapshot(snapshot=before), self.snapshot(snapshot=after)
        return diff_states(self._root, *states, filter or EVERYTHING)

    def commit_history(self, branch: str = MAIN, *, limit: int = 100, before: int | None = None) -> CommitHistory:
        """As `list_commits`, with who, when, and how many entities of each type."""
        return summaries(self._root, self._head(branch), limit=limit, before=before)

    def describe_commit(self, commit_id: str) -> CommitSummary:
        return summary(self._root, self.get_commit(commit_id))

    def commit_changes(
        self,
        commit_id: str,
        *,
        scope: ChangeScope | None = None,
        page_token: str | None = None,
        max_changes: int | None = None,
        max_bytes: int | None = None,
    ) -> CommitChangesPage:
        """One page of what a commit changed relative to its first parent, with images before and after."""
        entry = self.get_commit(commit_id)
        return commit_changes_page(self._root, entry, scope or EVERYTHING, page_token, max_changes, max_bytes)

    def iter_commit_changes(self, commit_id: str, *, scope: ChangeScope | None = None) -> Iterator[ChangeRecord]:
        """Everything a commit changed, one after another."""
        return changes_of(self._root, self.get_commit(commit_id), scope or EVERYTHING).records()

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
    ) -> ChangePoll:
        """The next commits of a branch's feed. `start` is `now` (the default), `beginning` or `after:<commit id>`."""
        request = PollRequest(
            branch, start, cursor, page_token, scope or EVERYTHING, max_changes, max_bytes, max_commits
        )
        return run_poll(self._root, request)

    def capture_baseline(
        self, writer: ByteWriter, *, branch: str = MAIN, scope: ChangeScope | None = None
    ) -> ChangeBaseline:
        """Write an export of the branch's head, and return the cursor that continues exactly after it."""
        return write_baseline(self._root, branch, scope or EVERYTHING, writer)

    def export(
        self,
        *,
        branch: str | None = None,
        types: Collection[str] = (),
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> Iterator[str]:
        """The lines of an export, each with its line end. They can be loaded as they are."""
        state = self.snapshot(branch, snapshot=snapshot, version=version, at=at)
        return (f"{line.decode()}\n" for line in export_lines(self._root, state, types))

    def export_to(
        self,
        writer: ByteWriter,
        *,
        branch: str | None = None,
        types: Collection[str] = (),
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> int:
        """Write an export in chunks of at most 64 KiB; how many entities that were."""
        state = self.snapshot(branch, snapshot=snapshot, version=version, at=at)
        return write_lines(export_lines(self._root, state, types), writer)

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
    ) -> list[ExportedFile]:
        """One Parquet or Arrow file per type in a local directory."""
        state = self.snapshot(branch, snapshot=snapshot, version=version, at=at)
        return write_files(self._root, state, directory, format, types)

    def state_of(self, target: str | Snapshot) -> Snapshot:
        """The head of a branch, or a commit by its id; a snapshot is one already."""
        if isinstance(target, Snapshot):
            return target
        target = target.strip()
        is_commit = target != MAIN and history.could_be_commit(target)
        return self.snapshot(snapshot=target) if is_commit else self.snapshot(target)

    def plan_schema(self, text: str, *, branch: str = MAIN, allow_data_loss: bool = False) -> MigrationPlan:
        """The steps from a branch's schema to this one; also when some of them are not possible."""
        return plan_schema(self, text, branch.strip(), allow_data_loss=allow_data_loss)

    def preview_schema(self, text: str, *, branch: str = MAIN, allow_data_loss: bool = False) -> SchemaPreview:
        """The same, with the catalog the branch would have afterwards."""
        return preview_schema(self, text, branch.strip(), allow_data_loss=allow_data_loss)

    def apply_schema(
        self, text: str, *, branch: str = MAIN, allow_data_loss: bool = False, actor: str | None = None
    ) -> SchemaApplied:
        """Change the schema of a branch in one commit, together with the data change it needs."""
        return apply_schema(self, text, branch.strip(), allow_data_loss=allow_data_loss, actor=actor)

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than: timedelta | str | int | None = None,
        grace: timedelta = GRACE,
        dry_run: bool = False,
    ) -> CleanupReport:
        """Delete table data that no retained snapshot needs. A dry run only says how much that is."""
        span = None if older_than is None else duration(older_than)
        return cleanup(self._root, Retention(keep_versions, span), grace=grace, dry_run=dry_run)

    def repair(self, *, confirm: bool = False, force: bool = False, actor: str | None = None) -> RepairReport:
        """Show what other tools did to main's tables; with both flags, load the rows they brought."""
        return repair(self, confirm=confirm, force=force, actor=actor)

    def maintain(
        self, policy: MaintenancePolicy = DEFAULT_POLICY, *, branch: str = MAIN, actor: str | None = None
    ) -> MaintenanceReport:
        """Tidy what passed a threshold of the policy. Meant to be called now and then by a long-running process."""
        return maintain(self, branch.strip(), policy, actor=actor)

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
        """The value of one blob cell: bytes by range with a tag, or the reference to an external object."""
        return read_blob(self, BlobCell(kind, type, id, property), BlobTarget(branch, snapshot, version, at))
