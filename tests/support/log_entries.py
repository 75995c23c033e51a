"""Log entries of a graph, for tests of how commits are stored. The public API shows receipts and summaries instead."""

from __future__ import annotations

from omnigraph import Graph
from omnigraph.engine.history import log_walk
from omnigraph.engine.history.log_walk import CommitPage
from omnigraph.storage.models import LogEntry


def list_commits(graph: Graph, branch: str = "main", *, limit: int = 100, before: int | None = None) -> CommitPage:
    """Log entries of a branch, newest first."""
    workspace = graph._workspace
    return log_walk.commits(workspace.root, workspace.head(branch), limit=limit, before=before)


def get_commit(graph: Graph, commit_id: str) -> LogEntry:
    """The log entry of a commit that a live branch has."""
    return graph._workspace.commit_entry(commit_id)


def merge_base(graph: Graph, left: str, right: str) -> LogEntry | None:
    """The nearest common ancestor of two branch heads."""
    heads = (graph._workspace.head(name).entry for name in (left, right))
    return log_walk.merge_base(graph._workspace.root, *heads)
