"""Commits for people: all pages of a branch's line, the whole reachable history, and what one commit changed."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from omnigraph.cli.commit_graph import Node
from omnigraph.errors import NotFoundError

if TYPE_CHECKING:
    from omnigraph.api.commits import CommitReceipt, CommitSummary, EntityCounts
    from omnigraph.api.graph import GraphApi

_PAGE = 200


def newest_first(graph: GraphApi, branch: str, limit: int | None) -> list[CommitReceipt]:
    """The branch's own line of history, the inherited part included."""
    return list(itertools.islice(_line(graph.commits, branch, limit), limit))


def _line(listed: Callable[..., Any], branch: str, limit: int | None) -> Iterator[Any]:
    before: int | None = None
    while True:
        page = listed(branch, limit=_PAGE if limit is None else min(limit, _PAGE), before=before)
        yield from page.commits
        if page.next_version is None:
            return
        before = page.next_version


def reachable(graph: GraphApi, branch: str, limit: int | None) -> list[Node]:
    """The branch's line and everything that was merged into it, children before parents."""

    def listed(name: str, **page: Any) -> Any:
        return graph.commit_history(name, exact=False, **page)

    line: list[CommitSummary] = list(itertools.islice(_line(listed, branch, limit), limit))
    found = {commit.graph_commit_id: commit for commit in line}
    merged = [commit.merged_parent_commit_id for commit in line if commit.merged_parent_commit_id is not None]
    while merged and (limit is None or len(found) < limit):
        commit_id = merged.pop()
        if commit_id in found:
            continue
        try:
            commit = graph.describe_commit(commit_id)
        except NotFoundError:
            continue  # its branch is deleted; the merge commit still holds what it brought
        found[commit_id] = commit
        merged += _parents(commit)
    return [_node(commit) for commit in _children_first(found)]


def _parents(commit: CommitSummary) -> list[str]:
    return [parent for parent in (commit.parent_commit_id, commit.merged_parent_commit_id) if parent is not None]


def _children_first(found: dict[str, CommitSummary]) -> Iterator[CommitSummary]:
    """The newest commit none of whose children is still to come."""
    waiting = Counter(parent for commit in found.values() for parent in _parents(commit))
    ready = [(-commit.created_at, id) for id, commit in found.items() if not waiting[id]]
    heapq.heapify(ready)
    while ready:
        commit = found[heapq.heappop(ready)[1]]
        yield commit
        for parent in _parents(commit):
            waiting[parent] -= 1
            if not waiting[parent] and parent in found:
                heapq.heappush(ready, (-found[parent].created_at, parent))


def _node(commit: CommitSummary) -> Node:
    when = datetime.fromtimestamp(commit.created_at / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M")
    place = f"{commit.graph_branch or 'main'}@{commit.graph_manifest_version}"
    text = f"{commit.graph_commit_id} {place} {when} {commit.kind}"
    if commit.actor_id is not None:
        text += f" by {commit.actor_id}"
    counts = (commit.changes or {}).values()
    totals = [sum(getattr(c, name) for c in counts) for name in ("inserted", "updated", "deleted")]
    changed = " ".join(f"{sign}{total}" for sign, total in zip("+~-", totals, strict=True) if total)
    text += f" ({changed})" if changed else ""
    text += f" {commit.message}" if commit.message is not None else ""
    return Node(commit.graph_commit_id, tuple(_parents(commit)), text)


def counted(counts: EntityCounts) -> str:
    parts = ((counts.inserted, "inserted"), (counts.updated, "updated"), (counts.deleted, "deleted"))
    return ", ".join(f"{count} {what}" for count, what in parts if count) or "no entities"
