"""Branches, commits and snapshots as users see them: branches are created and deleted, the others listed and shown.

All of it is in the log, so that no table is opened and no Lance is imported, but for a merge without counts.

A fast-forward merge stores no counts, because it reads no data; they are computed from the difference to its first
parent on request. A restricted reader gets the counts of the rows it sees. The protocol of branch names is in
`storage.log.branches`; this module finds the fork point of a branch and holds it until the branch exists.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from contextlib import closing
from typing import Final

from msgspec import structs

from omnigraph.api.branches import SnapshotDataset, SnapshotListing
from omnigraph.api.commits import CommitHistory, CommitList, CommitReceipt, CommitSummary, EntityCounts
from omnigraph.api.enums import EntityKind, PolicyAction
from omnigraph.engine.history import log_walk
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.publish import held_source, receipt_of
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    HistoricalVersionReclaimedError,
    NotFoundError,
)
from omnigraph.language.catalog import TableType
from omnigraph.storage.models import FORMAT_VERSION, BranchRef, ChangeCounts, KeyUse


def receipts(workspace: Workspace, branch: str, *, limit: int, before: int | None) -> CommitList:
    """A page of a branch's line of history. Reads log entries and nothing else."""
    page = log_walk.commits(workspace.root, workspace.head(branch), limit=limit, before=before)
    return CommitList(tuple(receipt_of(entry) for entry in page.commits), page.next_version)


def summaries(workspace: Workspace, branch: str, *, limit: int, before: int | None, exact: bool) -> CommitHistory:
    page = log_walk.commits(workspace.root, workspace.head(branch), limit=limit, before=before)
    commits = tuple(summary(Snapshot(workspace, entry.branch, entry), exact=exact) for entry in page.commits)
    return CommitHistory(commits, page.next_version)


def summary(state: Snapshot, *, exact: bool = True) -> CommitSummary:
    """One commit with what it did; unless that has to be exact, with what its entry says and no more."""
    entry, commit = state.entry, state.entry.commit
    counts: dict[str, ChangeCounts] | None
    counts = {key: count for key, count in commit.changes.items() if count != ChangeCounts()}
    if (exact and commit.kind == "merge" and not commit.changes) or not state.visibility.is_unrestricted:
        from omnigraph.engine.history.changes import parent_of
        from omnigraph.engine.history.diff import deltas

        try:
            net = deltas(parent_of(state), state) if commit.parents else ()
            counts = {delta.pair.type.type_key: delta.counts for delta in net if len(delta)}
        except HistoricalVersionReclaimedError:
            counts = None
    changes = None
    if counts is not None:
        changes = {key: EntityCounts(n.inserted, n.updated, n.deleted) for key, n in sorted(counts.items())}
    return CommitSummary(**structs.asdict(receipt_of(entry)), kind=commit.kind, message=commit.message, changes=changes)


def listing(snapshot: Snapshot) -> SnapshotListing:
    """The tables of a snapshot. Versions belong to no Lance branch, so none is named."""
    published = snapshot.table_versions()
    datasets = []
    for type_key, type_ in sorted(snapshot.types_by_key().items()):
        kind, name, stored = EntityKind(type_.kind), type_.name, snapshot.entry.tables[type_key]
        count = stored.rows if snapshot.visibility.is_unrestricted else _visible_count(snapshot, type_)
        datasets.append(SnapshotDataset(kind, name, stored.path, published[type_key], stored.version, None, count))
    return SnapshotListing(snapshot.branch, snapshot.version, FORMAT_VERSION, tuple(datasets))


def _visible_count(snapshot: Snapshot, type_: TableType) -> int:
    from omnigraph.engine.query.visibility import visible_count

    return visible_count(snapshot, type_)


PIPELINE_NAME: Final = "pipeline.name"
"""The detail of a commit that says which pipeline made it."""

FARTHEST: Final = 1_000
"""How many commits are walked at most. A run that lies farther back is not found until there is a newer one."""
_PAGE: Final = 100


class PipelineRuns:
    """The last runs of the pipelines of one graph. Safe to share between threads."""

    def __init__(self) -> None:
        self._walked: dict[str, tuple[int, dict[str, CommitReceipt]]] = {}
        self._lock = threading.Lock()

    def last(self, workspace: Workspace, branch: str, names: Collection[str]) -> Mapping[str, CommitReceipt]:
        """The last commit of each of these pipelines that has one on the branch."""
        try:
            head = workspace.head(branch)
        except BranchNotFoundError:
            return {}
        with self._lock:
            walked, earlier_runs = self._walked.get(head.ref.branch_id, (0, {}))
        newest = head.entry.version
        oldest = max(walked, newest - FARTHEST)
        runs: dict[str, CommitReceipt] = {}
        before: int | None = newest + 1
        while before is not None and before - 1 > oldest and not runs.keys() >= set(names):
            page = log_walk.commits(workspace.root, head, limit=min(_PAGE, before - 1 - oldest), before=before)
            for entry in page.commits:
                if (name := entry.commit.details.get(PIPELINE_NAME)) is not None:
                    runs.setdefault(name, receipt_of(entry))
            before = page.next_version
        runs = {**earlier_runs, **runs}
        with self._lock:
            self._walked[head.ref.branch_id] = newest, runs
        return {name: runs[name] for name in names if name in runs}


def last_runs(uri: str, branches: Mapping[str, str]) -> dict[str, CommitReceipt]:
    """The last commit of each pipeline of a graph that has one; `branches` are those they load, by name."""
    runs: dict[str, CommitReceipt] = {}
    with closing(Workspace.open(uri)) as workspace:
        for branch in dict.fromkeys(branches.values()):
            names = [name for name, loaded in branches.items() if loaded == branch]
            runs |= PipelineRuns().last(workspace, branch, names)
    return runs


def create_branch(
    workspace: Workspace, name: str, source: str, *, actor: str | None = None, idempotency_key: str | None = None
) -> BranchRef | KeyUse:
    """A branch from another branch's head, or from any commit that a live branch still has."""
    name, source = name.strip(), source.strip()
    workspace.require(actor, PolicyAction.BRANCH_CREATE, source, name)
    branches = workspace.root.branches
    key = key_use(workspace, idempotency_key, actor, "branch_create", name, source)
    try:
        with held_source(workspace.root, source) as fork:
            ref = branches.new_ref(name, fork.ref, fork.entry, actor=actor, key=key)
            return branches.establish(ref, fork.age)
    except (ConflictError, NotFoundError):
        # Since the first try its source may have gone, or a part of its path may have become a branch.
        if (earlier := branches.earlier_use(name, key)) is None:
            raise
        return earlier


def find_or_create(workspace: Workspace, name: str, source: str, *, actor: str | None = None) -> None:
    """Create a branch unless it exists or another writer creates it at the same time."""
    try:
        if not branch_exists(workspace, name):
            create_branch(workspace, name, source, actor=workspace.author(actor))
    except ConflictError:
        if not branch_exists(workspace, name):
            raise


def branch_exists(workspace: Workspace, name: str) -> bool:
    """Whether there is such a branch, for those who may read it."""
    try:
        workspace.for_action(PolicyAction.READ, name.strip()).head(name)
    except BranchNotFoundError:
        return False
    return True


def delete_branch(
    workspace: Workspace, name: str, *, actor: str | None = None, idempotency_key: str | None = None
) -> KeyUse | None:
    """End a branch; the earlier use of the key when that has ended it before."""
    name = name.strip()
    workspace.require(actor, PolicyAction.BRANCH_DELETE, target_branch=name)
    key = key_use(workspace, idempotency_key, actor, "branch_delete", name)
    return workspace.root.branches.delete(name, actor=actor, key=key)


def key_use(workspace: Workspace, key: str | None, actor: str | None, kind: str, *asked: str) -> KeyUse | None:
    """What a request leaves with the name of a branch. Under rules a key is its actor's."""
    if key is None:
        return None
    from omnigraph.engine.write.change import RequestDigest

    whose = () if workspace.gate is None or actor is None else (actor,)
    return KeyUse(key, RequestDigest(kind, *asked, *whose).text, actor)
