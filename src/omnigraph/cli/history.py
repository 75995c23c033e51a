"""Commits for people: all pages of a branch's line, the whole reachable history, and what one commit changed."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import TYPE_CHECKING, Any

from omnigraph.api.cell_text import one_line
from omnigraph.cli.commit_graph import Node
from omnigraph.errors import NotFoundError

if TYPE_CHECKING:
    from omnigraph.api.branches import BranchHead
    from omnigraph.api.commits import CommitReceipt, CommitSummary, EntityCounts
    from omnigraph.api.graph import GraphApi

_PAGE = 200
_MAIN = "main"


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


def described(graph: GraphApi, branch: str, limit: int | None) -> Iterator[str]:
    """The same line for a person, as `reachable` tells of each commit."""
    for commit in itertools.islice(_line(_history(graph), branch, limit), limit):
        yield _text(commit)


def _history(graph: GraphApi) -> Callable[..., Any]:
    def listed(name: str, **page: Any) -> Any:
        return graph.commit_history(name, exact=False, **page)

    return listed


def reachable(graph: GraphApi, branch: str, limit: int | None) -> list[Node]:
    """The branch's line and everything that was merged into it, children before parents."""
    line: list[CommitSummary] = list(itertools.islice(_line(_history(graph), branch, limit), limit))
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


def _parents(commit: CommitReceipt) -> list[str]:
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
    return Node(commit.graph_commit_id, tuple(_parents(commit)), _text(commit))


def _text(commit: CommitSummary) -> str:
    when = commit.created.strftime("%Y-%m-%d %H:%M")
    place = f"{commit.graph_branch or 'main'}@{commit.graph_manifest_version}"
    text = f"{commit.graph_commit_id} {place} {when} {commit.kind}"
    if commit.actor_id is not None:
        text += f" by {commit.actor_id}"
    counts = (commit.changes or {}).values()
    totals = [sum(getattr(c, name) for c in counts) for name in ("inserted", "updated", "deleted")]
    changed = " ".join(f"{sign}{total}" for sign, total in zip("+~-", totals, strict=True) if total)
    text += f" ({changed})" if changed else ""
    return text if commit.message is None else f"{text} {one_line(commit.message)}"


# Branches


def branch_heads(graph: GraphApi, names: Sequence[str]) -> list[BranchHead]:
    """The newest commit of each branch, and how far its line is from main's."""
    from omnigraph.api.branches import BranchHead

    lines = {name: _Line(graph, name) for name in names}
    main = lines.get(_MAIN) or _Line(graph, _MAIN)
    branched = {commit.id: commit for line in lines.values() for commit in line.own}
    heads = []
    for name, line in lines.items():
        ahead, behind = (0, 0) if name == _MAIN else _distance(line, main, branched)
        tip = line[0]
        heads.append(BranchHead(name, tip.id, tip.graph_manifest_version, tip.actor_id, tip.created_at, ahead, behind))
    return heads


def head_lines(heads: Sequence[BranchHead]) -> Iterator[str]:
    from omnigraph.api.commits import moment

    wide = max((len(head.name) for head in heads), default=0)
    for head in heads:
        when = moment(head.created_at).strftime("%Y-%m-%d %H:%M")
        far = "" if head.name == _MAIN else f", {head.ahead} ahead, {head.behind} behind"
        by = "" if head.actor_id is None else f" by {head.actor_id}"
        yield f"{head.name:<{wide}} {head.graph_commit_id} {when}{by}{far}"


class _Line:
    """The commits of a branch, newest first, listed only as far as somebody looks."""

    def __init__(self, graph: GraphApi, branch: str) -> None:
        self._rest = _line(graph.commits, branch, None)
        self._known: list[CommitReceipt] = []

    @cached_property
    def own(self) -> list[CommitReceipt]:
        """The commits since it left main's line."""
        return list(itertools.takewhile(lambda commit: commit.graph_branch is not None, self))

    def __getitem__(self, position: int) -> CommitReceipt:
        while len(self._known) <= position:
            self._known.append(next(self._rest))
        return self._known[position]

    def __iter__(self) -> Iterator[CommitReceipt]:
        for position in itertools.count():
            try:
                yield self[position]
            except StopIteration:
                return


def _distance(branch: _Line, main: _Line, branched: Mapping[str, CommitReceipt]) -> tuple[int, int]:
    """The commits since the branch left main's line, without those that a merge has taken over since."""
    fork = next((commit.id for commit in itertools.islice(branch, len(branch.own), None)), None)
    since = list(itertools.takewhile(lambda commit: commit.id != fork, main))
    return _until(branch.own, _merged(since, branched)), _until(since, _merged(branch.own, branched))


def _merged(line: Sequence[CommitReceipt], branched: Mapping[str, CommitReceipt]) -> set[str]:
    """What was merged into a line, also by way of another branch, down to where it left main's line."""
    found: set[str] = set()
    waiting = [commit.merged_parent_commit_id for commit in line if commit.merged_parent_commit_id is not None]
    while waiting:
        commit_id = waiting.pop()
        if commit_id not in found:
            found.add(commit_id)
            # The commit is unknown where it is main's, or where its branch is deleted.
            waiting += _parents(branched[commit_id]) if commit_id in branched else ()
    return found


def _until(line: Sequence[CommitReceipt], merged: Set[str]) -> int:
    """How many commits come before the first that was merged."""
    return next((n for n, commit in enumerate(line) if commit.id in merged), len(line))


def counted(counts: EntityCounts) -> str:
    parts = ((counts.inserted, "inserted"), (counts.updated, "updated"), (counts.deleted, "deleted"))
    return ", ".join(f"{count} {what}" for count, what in parts if count) or "no entities"
