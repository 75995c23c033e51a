"""Walking the history of a graph: listing, lookup by id, version or time, ancestry and merge bases.

Everything here reads immutable log entries, so results may be cached and reads may run in parallel.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.errors import BadRequestError, IntegrityError, NotFoundError
from omnigraph.storage.branches import BranchHead
from omnigraph.storage.identifiers import version_in
from omnigraph.storage.models import BranchRef, LogEntry, ParentLink
from omnigraph.storage.root import GraphRoot


@dataclass(frozen=True, slots=True)
class CommitPage:
    """Newest first. `next_version` continues the listing; None at the beginning of history."""

    commits: list[LogEntry]
    next_version: int | None


@dataclass(frozen=True, slots=True)
class Located:
    """A commit together with a live branch whose history holds it."""

    ref: BranchRef
    entry: LogEntry


def commits(root: GraphRoot, head: BranchHead, *, limit: int, before: int | None = None) -> CommitPage:
    """The branch's own line of history, inherited part included."""
    if limit < 1:
        raise BadRequestError("a page of commits needs a limit of at least 1")
    newest = min(head.entry.version, before - 1) if before is not None else head.entry.version
    oldest = max(1, newest - limit + 1)
    entries = at_versions(root, head.ref, list(range(newest, oldest - 1, -1)))
    return CommitPage(entries, oldest if oldest > 1 else None)


def at_version(root: GraphRoot, head: BranchHead, version: int) -> LogEntry:
    if not 1 <= version <= head.entry.version:
        raise NotFoundError(
            f"branch '{head.ref.branch}' has no version {version}; it goes from 1 to {head.entry.version}"
        )
    return at_versions(root, head.ref, [version])[0]


def at_versions(root: GraphRoot, ref: BranchRef, versions: list[int]) -> list[LogEntry]:
    """Entries that are known to exist, read in parallel."""
    places = [ref.locate(v) for v in versions]
    found = []
    for place, entry in zip(places, root.log.entries((p.branch_id, p.version) for p in places), strict=True):
        if not isinstance(entry, LogEntry):
            raise IntegrityError(f"log of {place.branch_id}", f"version {place.version} is missing")
        found.append(entry)
    return found


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


def could_be_commit(text: str) -> bool:
    return version_in(text) is not None


def find(root: GraphRoot, commit_id: str) -> Located:
    """A commit on any live branch. The id says its version, so this costs one read per log that could hold it."""
    version = version_in(commit_id)
    if version is not None:
        places: dict[tuple[str, int], BranchRef] = {}
        for ref in root.branches.all():
            place = ref.locate(version)
            places.setdefault((place.branch_id, place.version), ref)
        for ref, entry in zip(places.values(), root.log.entries(places), strict=True):
            if isinstance(entry, LogEntry) and entry.commit.id == commit_id:
                return Located(ref, entry)
    raise NotFoundError(f"commit '{commit_id}' is on no branch of this graph")


def merge_base(root: GraphRoot, left: LogEntry, right: LogEntry) -> LogEntry | None:
    """The common ancestor with the smallest sum of distances; of equally near ones the larger version."""
    sides = [_Ancestry(root, left), _Ancestry(root, right)]
    best: tuple[int, int] | None = None
    winner: LogEntry | None = None
    while True:
        for mine, other in (sides, sides[::-1]):
            for commit_id, (distance, entry) in mine.newest.items():
                if commit_id in other.seen:
                    candidate = (distance + other.seen[commit_id][0], -entry.version)
                    if best is None or candidate < best:
                        best, winner = candidate, entry
        depth = min(side.depth for side in sides if not side.exhausted) if not all(s.exhausted for s in sides) else None
        # Whatever is found from here on lies deeper than this level on at least one side.
        if depth is None or (best is not None and depth >= best[0]):
            return winner
        for side in sides:
            if not side.exhausted and side.depth == depth:
                side.deepen()


class _Ancestry:
    """Ancestors of one commit by distance, one level at a time."""

    def __init__(self, root: GraphRoot, start: LogEntry) -> None:
        self._root = root
        self.depth = 0
        self.newest = {start.commit.id: (0, start)}
        self.seen = dict(self.newest)

    @property
    def exhausted(self) -> bool:
        return not self.newest

    def deepen(self) -> None:
        self.depth += 1
        links = {p.commit_id: p for _, e in self.newest.values() for p in e.commit.parents}
        unseen = [link for link in links.values() if link.commit_id not in self.seen]
        entries = self._root.log.entries((link.branch_id, link.version) for link in unseen)
        self.newest = {}
        for link, entry in zip(unseen, entries, strict=True):
            self.newest[link.commit_id] = (self.depth, _parent(link, entry))
        self.seen |= self.newest


def _parent(link: ParentLink, entry: object) -> LogEntry:
    if not isinstance(entry, LogEntry) or entry.commit.id != link.commit_id:
        raise IntegrityError(
            f"log of {link.branch_id}", f"commit {link.commit_id} at version {link.version} is missing"
        )
    return entry
