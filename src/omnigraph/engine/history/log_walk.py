"""Walking the history of a graph: listing, lookup by id, version or time, ancestry and merge bases.

Everything here reads immutable log entries, so results may be cached and reads may run in parallel.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from omnigraph.errors import BadRequestError, BranchNotFoundError, IntegrityError, NotFoundError
from omnigraph.storage.identifiers import version_in
from omnigraph.storage.log.branches import BranchHead
from omnigraph.storage.log.log import slot_path
from omnigraph.storage.models import BranchRef, ForkPoint, LogEntry, ParentLink, TableState
from omnigraph.storage.root import GraphRoot


class CommitPage(NamedTuple):
    """Newest first. `next_version` continues the listing; None at the beginning of history."""

    commits: list[LogEntry]
    next_version: int | None


def commits(root: GraphRoot, head: BranchHead, *, limit: int, before: int | None = None) -> CommitPage:
    """The branch's own line of history, inherited part included."""
    if limit < 1:
        raise BadRequestError("a page of commits needs a limit of at least 1")
    newest = min(head.entry.version, before - 1) if before is not None else head.entry.version
    oldest = max(1, newest - limit + 1)
    entries = at_versions(root, head.ref, range(newest, oldest - 1, -1))
    return CommitPage(entries, oldest if oldest > 1 else None)


def at_version(root: GraphRoot, head: BranchHead, version: int) -> LogEntry:
    newest = head.entry.version
    if not 1 <= version <= newest:
        raise NotFoundError(f"branch '{head.ref.branch}' has no version {version}; it goes from 1 to {newest}")
    return at_versions(root, head.ref, [version])[0]


def at_versions(root: GraphRoot, ref: BranchRef, versions: Sequence[int]) -> list[LogEntry]:
    """Entries that are known to exist, read in parallel."""
    addresses = [ref.locate(v) for v in versions]
    entries = []
    for address, entry in zip(addresses, root.log.entries((p.branch_id, p.version) for p in addresses), strict=True):
        if not isinstance(entry, LogEntry):
            raise IntegrityError(slot_path(address.branch_id, address.version), "the entry of a commit is missing")
        entries.append(entry)
    return entries


def in_order(root: GraphRoot, ref: BranchRef, versions: Sequence[int], at_once: int) -> Iterator[LogEntry]:
    """The same, as they are asked for: so many are read at a time."""
    for start in range(0, len(versions), at_once):
        yield from at_versions(root, ref, versions[start : start + at_once])


def at_time(root: GraphRoot, head: BranchHead, micros: int) -> LogEntry:
    """The newest commit published at or before a moment: a binary search, since times rise with versions."""
    low, high = 1, head.entry.version
    if at_version(root, head, 1).commit.published_at > micros:
        raise NotFoundError(f"branch '{head.ref.branch}' has no commit that old; the graph was created later")
    while low < high:
        middle = (low + high + 1) // 2
        if at_version(root, head, middle).commit.published_at <= micros:
            low = middle
        else:
            high = middle - 1
    return at_version(root, head, low)


def table_versions(root: GraphRoot, branch: str, entry: LogEntry) -> dict[str, int]:
    """By type key, the version in which each table last changed on the line of history that leads to an entry.

    Entries of earlier releases do not say it; there a binary search finds it, because a version of a table that was
    left never comes back. When the branch is gone meanwhile, the result is the entry's own version, an upper bound."""
    versions = dict(entry.table_versions)
    if missing := sorted(entry.tables.keys() - versions.keys()):
        try:
            ref = root.branches.head(branch).ref
        except BranchNotFoundError:
            ref = None
        if ref is None or ref.locate(entry.version) != ForkPoint(entry.branch_id, entry.version):
            versions |= dict.fromkeys(missing, entry.version)
        else:
            line = {entry.version: entry}
            versions |= {key: _last_change(root, ref, entry.tables[key], line) for key in missing}
    return {key: versions[key] for key in entry.tables}


def _last_change(root: GraphRoot, ref: BranchRef, state: TableState, line: dict[int, LogEntry]) -> int:
    """The first version that names this state of a table. `line` keeps the entries that were read."""
    low, high = 1, max(line)
    while low < high:
        middle = (low + high) // 2
        if middle not in line:
            line[middle] = at_versions(root, ref, [middle])[0]
        if any(then.path == state.path and then.version == state.version for then in line[middle].tables.values()):
            high = middle
        else:
            low = middle + 1
    return low


def is_on_line(root: GraphRoot, branch: str, newest: int, commit_id: str) -> bool:
    """Whether a commit is in the history of a branch, no later than a version."""
    version = version_in(commit_id)
    if version is None:
        raise BadRequestError(f"'{commit_id}' is not a commit id")
    if version > newest:
        return False
    return at_versions(root, root.branches.head(branch).ref, [version])[0].commit.id == commit_id


def find(root: GraphRoot, commit_id: str) -> tuple[BranchRef, LogEntry]:
    """A commit, and a live branch whose history holds it. The id says its version, so this costs one read per log."""
    version = version_in(commit_id)
    if version is not None:
        refs: dict[tuple[str, int], BranchRef] = {}
        for ref in root.branches.all():
            address = ref.locate(version)
            refs.setdefault((address.branch_id, address.version), ref)
        for ref, entry in zip(refs.values(), root.log.entries(refs), strict=True):
            if isinstance(entry, LogEntry) and entry.commit.id == commit_id:
                return ref, entry
    raise NotFoundError(f"commit '{commit_id}' not found: it is on no branch of this graph")


def merge_base(root: GraphRoot, left: LogEntry, right: LogEntry) -> LogEntry | None:
    """The best common ancestor: one that is not an ancestor of another common ancestor; of several, the one with the
    smallest sum of distances, then the larger version. The nearest ancestor would be wrong: a short way through an old
    merged branch may lead behind a point that both sides share."""
    walk = _Painting(root)
    walk.paint(left, _LEFT)
    walk.paint(right, _RIGHT)
    common = walk.best_common()
    from_left, from_right = walk.distances(left), walk.distances(right)
    return min(common, key=lambda e: (from_left[e.commit.id] + from_right[e.commit.id], -e.version), default=None)


_LEFT, _RIGHT, _BEHIND = 1, 2, 4
_COMMON = _LEFT | _RIGHT
_STEPS_ALONE, _FURTHEST_AHEAD = 4, 64


class _Painting:
    """Ancestors coloured by the side that reaches them, newest first: parents are always older, so a commit is
    looked at only when every way to it is known, and nothing behind the common ancestors is read."""

    def __init__(self, root: GraphRoot) -> None:
        self._root = root
        self._colours: dict[str, int] = {}
        self._entries: dict[str, LogEntry] = {}
        self._queue: list[tuple[int, str]] = []
        self._steps: dict[str, int] = {}

    def paint(self, entry: LogEntry, colour: int) -> None:
        commit = entry.commit
        colours = self._colours.get(commit.id, 0)
        if colours | colour != colours:
            self._colours[commit.id] = colours | colour
            self._entries[commit.id] = entry
            heapq.heappush(self._queue, (-commit.published_at, commit.id))

    def best_common(self) -> list[LogEntry]:
        common: dict[str, LogEntry] = {}
        while any(not self._colours[commit_id] & _BEHIND for _, commit_id in self._queue):
            _, commit_id = heapq.heappop(self._queue)
            entry, colour = self._entries[commit_id], self._colours[commit_id]
            if colour & _COMMON == _COMMON and not colour & _BEHIND:
                common[commit_id] = entry
                colour |= _BEHIND
            for parent in self._parents(entry):
                self.paint(parent, colour)
        return [entry for commit_id, entry in common.items() if not self._colours[commit_id] & _BEHIND]

    def distances(self, start: LogEntry) -> dict[str, int]:
        """The fewest steps from a commit to each painted ancestor."""
        distances = {start.commit.id: 0}
        queue = deque([start])
        while queue:
            entry = queue.popleft()
            for link in entry.commit.parents:
                if link.commit_id in self._entries and link.commit_id not in distances:
                    distances[link.commit_id] = distances[entry.commit.id] + 1
                    queue.append(self._entries[link.commit_id])
        return distances

    def _parents(self, entry: LogEntry) -> Iterator[LogEntry]:
        links = entry.commit.parents
        entries = self._root.log.entries([*((link.branch_id, link.version) for link in links), *self._ahead(links)])
        for position, (link, parent) in enumerate(zip(links, entries, strict=False)):
            if position and parent is None:
                continue  # a merged branch that was deleted, and whose log was swept: no other commit descends from it
            if not isinstance(parent, LogEntry) or parent.commit.id != link.commit_id:
                slot = slot_path(link.branch_id, link.version)
                raise IntegrityError(slot, f"the entry of commit {link.commit_id} is missing")
            yield parent

    def _ahead(self, links: tuple[ParentLink, ...]) -> list[tuple[str, int]]:
        """The longer the walk down one line has been, the more of that line is fetched at once, into the log's cache:
        a branch that fell a thousand commits behind is not a thousand answers to wait for."""
        if not links:
            return []
        line = links[0]
        steps = self._steps[line.branch_id] = self._steps.get(line.branch_id, 0) + 1
        window = min(steps, _FURTHEST_AHEAD)
        if steps < _STEPS_ALONE or (steps & (steps - 1) and steps % _FURTHEST_AHEAD):
            return []
        return [(line.branch_id, version) for version in range(line.version - 1, max(0, line.version - window), -1)]
