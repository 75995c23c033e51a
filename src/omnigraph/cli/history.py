"""Commits for people: all pages of a branch's line, the whole reachable history, and what one commit changed."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from omnigraph.cli.commit_graph import Node
from omnigraph.errors import NotFoundError

if TYPE_CHECKING:
    from omnigraph.api.commits import EntityCounts
    from omnigraph.graph import Graph
    from omnigraph.storage.models import LogEntry

_PAGE = 200


def newest_first(graph: Graph, branch: str, limit: int | None) -> list[LogEntry]:
    """The branch's own line of history, the inherited part included."""
    return list(itertools.islice(_line(graph, branch), limit))


def _line(graph: Graph, branch: str) -> Iterator[LogEntry]:
    before: int | None = None
    while True:
        page = graph.list_commits(branch, limit=_PAGE, before=before)
        yield from page.commits
        if page.next_version is None:
            return
        before = page.next_version


def reachable(graph: Graph, branch: str, limit: int | None) -> list[Node]:
    """The branch's line and everything that was merged into it, children before parents."""
    found = {entry.commit.id: entry for entry in newest_first(graph, branch, limit)}
    merged = [parent.commit_id for entry in found.values() for parent in entry.commit.parents[1:]]
    while merged and (limit is None or len(found) < limit):
        commit_id = merged.pop()
        if commit_id in found:
            continue
        try:
            entry = graph.get_commit(commit_id)
        except NotFoundError:
            continue  # its branch is deleted; the merge commit still holds what it brought
        found[commit_id] = entry
        merged += [parent.commit_id for parent in entry.commit.parents]
    return [_node(entry) for entry in _children_first(found)]


def _children_first(found: dict[str, LogEntry]) -> Iterator[LogEntry]:
    """The newest commit none of whose children is still to come."""
    waiting = Counter(parent.commit_id for entry in found.values() for parent in entry.commit.parents)
    ready = [(-entry.commit.published_at, id) for id, entry in found.items() if not waiting[id]]
    heapq.heapify(ready)
    while ready:
        entry = found[heapq.heappop(ready)[1]]
        yield entry
        for parent in entry.commit.parents:
            waiting[parent.commit_id] -= 1
            if not waiting[parent.commit_id] and parent.commit_id in found:
                heapq.heappush(ready, (-found[parent.commit_id].commit.published_at, parent.commit_id))


def _node(entry: LogEntry) -> Node:
    commit = entry.commit
    when = datetime.fromtimestamp(commit.authored_at / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M")
    text = f"{commit.id} {entry.branch}@{entry.version} {when} {commit.kind}"
    if commit.actor is not None:
        text += f" by {commit.actor}"
    totals = [sum(getattr(c, name) for c in commit.changes.values()) for name in ("inserted", "updated", "deleted")]
    changed = " ".join(f"{sign}{total}" for sign, total in zip("+~-", totals, strict=True) if total)
    text += f" ({changed})" if changed else ""
    text += f" {commit.message}" if commit.message is not None else ""
    return Node(commit.id, tuple(parent.commit_id for parent in commit.parents), text)


def counted(counts: EntityCounts) -> str:
    parts = ((counts.inserted, "inserted"), (counts.updated, "updated"), (counts.deleted, "deleted"))
    return ", ".join(f"{count} {what}" for count, what in parts if count) or "no entities"
