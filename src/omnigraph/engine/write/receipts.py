"""Commits as callers are told of them, made from what the log holds."""

from __future__ import annotations

from omnigraph.api.history import CommitReceipt
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.models import LogEntry


def receipt_of(entry: LogEntry) -> CommitReceipt:
    parents = [parent.commit_id for parent in entry.commit.parents]
    return CommitReceipt(
        graph_commit_id=entry.commit.id,
        graph_branch=None if entry.branch == MAIN else entry.branch,
        graph_manifest_version=entry.version,
        parent_commit_id=parents[0] if parents else None,
        merged_parent_commit_id=parents[1] if len(parents) > 1 else None,
        actor_id=entry.commit.actor,
        created_at=entry.commit.authored_at,
    )
