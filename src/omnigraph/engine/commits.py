"""Commits as they are listed and shown: who, when, what kind, and how many entities of each type.

The counts of a fast-forward merge are not in its log entry, because making one reads no data; they are worked out from
the difference to its first parent when somebody asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.engine import history
from omnigraph.engine.changes import parent_of
from omnigraph.engine.diff import paired_types, type_delta
from omnigraph.engine.receipts import CommitReceipt
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import HistoricalVersionReclaimedError
from omnigraph.storage.models import ChangeCounts


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """One commit. `changes` is None when cleanup has reclaimed what they would be counted from."""

    commit: CommitReceipt
    kind: str
    message: str | None
    changes: Mapping[str, ChangeCounts] | None

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.commit.to_dict(),
            "kind": self.kind,
            "message": self.message,
            "changes": None
            if self.changes is None
            else {key: _wire(self.changes[key]) for key in sorted(self.changes)},
        }


@dataclass(frozen=True, slots=True)
class CommitHistory:
    """Newest first. `next_version` continues the listing; None at the beginning of history."""

    commits: tuple[CommitSummary, ...]
    next_version: int | None

    def to_dict(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"commits": [commit.to_dict() for commit in self.commits]}
        return wire if self.next_version is None else {**wire, "next_version": self.next_version}


def summaries(workspace: Workspace, branch: str, *, limit: int, before: int | None) -> CommitHistory:
    page = history.commits(workspace.root, workspace.head(branch), limit=limit, before=before)
    commits = tuple(summary(Snapshot(workspace, entry.branch, entry)) for entry in page.commits)
    return CommitHistory(commits, page.next_version)


def summary(state: Snapshot) -> CommitSummary:
    entry, commit = state.entry, state.entry.commit
    counts = {key: count for key, count in commit.changes.items() if count != ChangeCounts()}
    changes: Mapping[str, ChangeCounts] | None = counts
    if commit.kind == "merge" and not commit.changes:
        changes = _net_counts(state)
    return CommitSummary(CommitReceipt.of(entry), commit.kind, commit.message, changes)


def _net_counts(state: Snapshot) -> dict[str, ChangeCounts] | None:
    try:
        deltas = [type_delta(pair) for pair in paired_types(parent_of(state), state) if not pair.unchanged]
    except HistoricalVersionReclaimedError:
        return None
    return {delta.pair.type.type_key: delta.counts for delta in deltas if len(delta)}


def _wire(counts: ChangeCounts) -> dict[str, int]:
    return {"inserted": counts.inserted, "updated": counts.updated, "deleted": counts.deleted}
