"""The workspace: an open graph with the settings of one handle, and how operations reach its snapshots and commit.

Every operation that writes takes a workspace, every operation that only reads takes a snapshot. A workspace holds no
state that could go stale: naming a branch always means its newest head. It knows no operation; the public API imports
those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, Self, TypeAlias, TypeVar

from omnigraph.api.enums import PolicyAction
from omnigraph.api.queries import ReadPoint
from omnigraph.engine.history import log_walk
from omnigraph.engine.resources import Resources
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.write import publish
from omnigraph.engine.write.publish import Intent, Prepare, PublishedCommit, PublishPlan, WriteTxn, held_source
from omnigraph.errors import CommitOutcomeUnknownError, HistoricalVersionReclaimedError, StorageError
from omnigraph.language.catalog import TableType
from omnigraph.storage.cache import SHARED_MEMORY, SharedMemory
from omnigraph.storage.disk.disk_cache import DiskCache, disk_caches
from omnigraph.storage.identifiers import MAIN, version_in
from omnigraph.storage.location import Location
from omnigraph.storage.log.branches import BranchHead
from omnigraph.storage.log.tracing import Trace
from omnigraph.storage.log.writer_queue import BRANCH_LOCKS, Waits
from omnigraph.storage.models import LogEntry
from omnigraph.storage.root import GraphRoot

Answer = TypeVar("Answer")

StorageOptions: TypeAlias = Mapping[str, object] | None
"""How the store of a location is reached; what is left out is taken from the environment."""


@dataclass(frozen=True, eq=False)
class Workspace(Resources):
    """One open graph: what operations share, the states they read, and the commits they make."""

    # Opening and closing

    @classmethod
    def open(cls, uri: str | Path, *, storage_options: StorageOptions = None, trace: Trace | None = None) -> Self:
        return cls(GraphRoot.open(Location.parse(uri, storage_options=storage_options), trace))

    @classmethod
    def init(
        cls,
        uri: str | Path,
        schema: str,
        path: str | None = None,
        *,
        actor: str | None = None,
        details: Mapping[str, str] | None = None,
        force: bool = False,
        storage_options: StorageOptions = None,
        trace: Trace | None = None,
    ) -> Self:
        """A new graph with this schema. Refuses a location that holds one already. `details` go into the commit;
        `path`, the file of the schema, only shows in messages."""
        from omnigraph.engine.rows.columns import table_schema
        from omnigraph.language.schema.compile import accept_schema
        from omnigraph.storage.creation import create_root

        catalog = accept_schema(schema, path)
        types: list[TableType] = [*catalog.nodes.values(), *catalog.edges.values()]
        root = create_root(
            Location.parse(uri, storage_options=storage_options),
            {type_.type_key: table_schema(type_) for type_ in types},
            source=schema,
            catalog=catalog.to_json(),
            actor=actor,
            details=details,
            force=force,
            trace=trace,
        )
        return cls(root)

    def close(self) -> None:
        self.root.close()

    # States

    def head(self, branch: str) -> BranchHead:
        return self.root.branches.head(branch.strip())

    def snapshot(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        action: PolicyAction = PolicyAction.READ,
    ) -> Snapshot:
        """A pinned state: a branch's head, or one of a commit id, a version or a moment (at most one of them). Its
        caller must be allowed the action on it."""
        return self.state_at(ReadPoint(branch, snapshot, version, at), action)

    def state_at(self, point: ReadPoint, action: PolicyAction = PolicyAction.READ) -> Snapshot:
        """The same for a read point."""
        point = point.normalize()
        if point.snapshot is not None:
            ref, entry = log_walk.find(self.root, point.snapshot)
            # A commit is governed by the branch it was made on.
            return Snapshot(self, ref.branch, entry, self.visibility_for(action, entry.branch), entry.branch)
        name = point.branch or MAIN
        # Only an actor who may read a branch learns whether it exists.
        visibility = self.visibility_for(action, name)
        head = self.head(name)
        entry = head.entry
        if point.version is not None:
            entry = log_walk.at_version(self.root, head, point.version)
        elif point.at is not None:
            entry = log_walk.at_time(self.root, head, round(point.at.timestamp() * 1_000_000))
        return Snapshot(self, head.ref.branch, entry, visibility)

    def read(self, read: Callable[[Snapshot], Answer], point: ReadPoint) -> Answer:
        """Read one state. When a branch moved on and a cleanup released the head just captured, its new head is read;
        a commit, version or moment that was asked for is read or not."""
        state = self.state_at(point)
        try:
            return read(state)
        except HistoricalVersionReclaimedError:
            if not point.is_head:
                raise
            newer = self.snapshot(point.branch)
            if newer.commit_id == state.commit_id:
                raise
            return read(newer)

    def state_of(self, target: str | Snapshot) -> Snapshot:
        """The head of a branch, or a commit by its id; a snapshot is one already."""
        if isinstance(target, Snapshot):
            return target
        target = target.strip()
        is_commit = target != MAIN and version_in(target) is not None
        return self.snapshot(snapshot=target) if is_commit else self.snapshot(target)

    def commit_entry(self, commit_id: str) -> LogEntry:
        """A commit that a live branch has."""
        return log_walk.find(self.root, commit_id)[1]

    # Commits

    def begin(self, branch: str, intent: Intent) -> WriteTxn:
        """Capture a branch head to write against. Most writers want `commit`."""
        return publish.begin(self, branch.strip(), intent)

    def publish(self, txn: WriteTxn, plan: PublishPlan, prepare_again: Prepare | None = None) -> PublishedCommit:
        """Publish a plan that was prepared without holding up other writers: they wait for the publish alone."""
        with BRANCH_LOCKS.hold(self.lock_key(txn.ref.branch)):
            return publish.publish(txn, plan, prepare_again)

    def commit(
        self, branch: str, prepare: Callable[[WriteTxn], PublishPlan | None], intent: Intent, *, strict: bool = False
    ) -> PublishedCommit | None:
        """One write from head to commit; None when `prepare` found nothing to do. `prepare` may run again on a newer
        head unless the write is strict. Writers of one branch in this process wait for each other for the whole of it,
        so they never redo work because of each other."""
        branch = branch.strip()
        with BRANCH_LOCKS.hold(self.lock_key(branch)):
            return publish.commit(self, branch, prepare, intent, strict=strict)

    def commit_on_new_branch(
        self, name: str, source: str, prepare: Callable[[WriteTxn], PublishPlan | None], intent: Intent
    ) -> PublishedCommit | None:
        """A new branch whose first commit is this write. Either both come into being or neither does. When `prepare`
        found nothing to do, only the branch is created, and the result is None."""
        name, branches = name.strip(), self.root.branches
        with BRANCH_LOCKS.hold(self.lock_key(name)), held_source(self.root, source) as fork:
            ref = branches.new_ref(name, fork.ref, fork.entry, actor=intent.actor)
            txn = WriteTxn(self, ref, fork.entry, intent)
            plan = prepare(txn)
            # No reader finds the log of a drafted branch, so the commit is not visible before the branch is.
            published = None if plan is None else publish.publish(txn, plan)
            try:
                branches.establish(ref, fork.age)
            except StorageError as error:
                if error.may_have_happened and published is not None:
                    raise CommitOutcomeUnknownError(published.commit_id, str(error)) from error
                raise
            return published

    def lock_key(self, branch: str) -> tuple[str, str]:
        """Writers of one branch lock its name: before a write has read the head it knows nothing else of the branch."""
        return self.graph_id, branch


class GraphHandle(Protocol):
    """An open graph outside the engine, such as `omnigraph.Graph`."""

    @property
    def _workspace(self) -> Workspace: ...


def open_workspace(graph: GraphHandle | str | Path) -> AbstractContextManager[Workspace]:
    """The workspace of an open graph; of a location, one that is open for as long as the block runs."""
    return closing(Workspace.open(graph)) if isinstance(graph, str | Path) else nullcontext(graph._workspace)


def waits_of_writers() -> Waits:
    """How writers of one branch in this process have waited for each other so far."""
    return BRANCH_LOCKS.waits


def disk_caches_of_process() -> list[DiskCache]:
    """The caches on this machine's disk that handles of this process use."""
    return disk_caches()


def shared_memory() -> SharedMemory:
    """The caches of derived data that all handles of this process share."""
    return SHARED_MEMORY
