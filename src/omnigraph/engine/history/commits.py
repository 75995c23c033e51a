"""Commits as they are listed and shown: who, when, what kind, and how many entities of each type.

The counts of a fast-forward merge are not in its log entry, because making one reads no data; they are worked out from
the difference to its first parent when somebody asks. Whoever sees a part of the
graph is told how much of that part changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from omnigraph.api.history import CommitHistory, CommitList, CommitSummary, EntityCounts
from omnigraph.engine.history import log_walk
from omnigraph.engine.history.changes import parent_of
from omnigraph.engine.history.seen_deltas import deltas
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.receipts import receipt_of
from omnigraph.errors import HistoricalVersionReclaimedError
from omnigraph.storage.models import ChangeCounts


def receipts(workspace: Workspace, branch: str, *, limit: int, before: int | None) -> CommitList:
    """A page of a branch's line of history. Reads log entries and nothing else."""
    page = log_walk.commits(workspace.root, workspace.head(branch), limit=limit, before=before)
    return CommitList(tuple(receipt_of(entry) for entry in page.commits), page.next_version)


def summaries(
    workspace: Workspace, branch: str, *, limit: int, before: int | None, exact: bool = True
) -> CommitHistory:
    page = log_walk.commits(workspace.root, workspace.head(branch), limit=limit, before=before)
    commits = tuple(summary(Snapshot(workspace, entry.branch, entry), exact=exact) for entry in page.commits)
    return CommitHistory(commits, page.next_version)


def summary(state: Snapshot, *, exact: bool = True) -> CommitSummary:
    """One commit with what it did; unless that has to be exact, with what its entry says and no more."""
    entry, commit = state.entry, state.entry.commit
    counts = {key: count for key, count in commit.changes.items() if count != ChangeCounts()}
    changes: Mapping[str, ChangeCounts] | None = counts
    if (exact and commit.kind == "merge" and not commit.changes) or not state.lens.is_open:
        changes = _net_counts(state)
    told = None if changes is None else {key: _told(changes[key]) for key in sorted(changes)}
    return CommitSummary(**structs.asdict(receipt_of(entry)), kind=commit.kind, message=commit.message, changes=told)


def _net_counts(state: Snapshot) -> dict[str, ChangeCounts] | None:
    if not state.entry.commit.parents:
        return {}
    try:
        return {delta.pair.type.type_key: delta.counts for delta in deltas(parent_of(state), state) if len(delta)}
    except HistoricalVersionReclaimedError:
        return None


def _told(counts: ChangeCounts) -> EntityCounts:
    return EntityCounts(counts.inserted, counts.updated, counts.deleted)
