"""The history of the graph as the store holds it: every log entry and every life of a branch name, also of dead ones.

Read from the objects themselves and kept, so that nothing that was once there can go without being missed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from omnigraph import Graph
from omnigraph.storage.log.ref_generations import RefGenerations
from omnigraph.storage.models import BranchRef, LogEntry, Tombstone, decode

LOGS = "__manifest/log"


class History:
    def __init__(self, graph: Graph) -> None:
        self._root = graph._workspace.root
        self.logs: dict[str, dict[int, LogEntry | Tombstone]] = defaultdict(dict)
        self.commits: dict[str, LogEntry] = {}
        self.by_actor: dict[str, list[LogEntry]] = defaultdict(list)
        self.lives: dict[str, BranchRef] = {}
        self._names = RefGenerations(graph._workspace.root.objects)
        self._main = graph._workspace.root.identity.main

    def refresh(self) -> list[LogEntry]:
        """Take what is new; the commits among it, parents before children."""
        new = []
        for stored in self._root.objects.below(LOGS):
            branch_id, _, leaf = stored.path.removeprefix(f"{LOGS}/").partition("/")
            version = int(leaf.removesuffix(".json"))
            if version in self.logs[branch_id]:
                continue
            data = self._root.objects.get(stored.path)
            assert data is not None, f"{stored.path} went away"
            entry: LogEntry | Tombstone = decode(stored.path, data, LogEntry | Tombstone)  # type: ignore[arg-type]
            self.logs[branch_id][version] = entry
            if isinstance(entry, LogEntry):
                new.append(entry)
        self._refresh_lives()
        for entry in new:
            self.commits[entry.commit.id] = entry
            self.by_actor[entry.commit.actor or ""].append(entry)
        return sorted(new, key=lambda entry: entry.commit.published_at)

    def _refresh_lives(self) -> None:
        """Every life that became a branch, living or dead. One that lost its name to another never did, and so has no
        tombstone."""
        listed = self._names.list_all()
        self.lives = {self._main.branch_id: self._main}
        for life in [life for lives in listed.values() for life in lives if not (life.is_path or life.is_pending)]:
            ref = self._names.read(life.name, life.number)
            if ref is not None and (self.tombstone(ref.branch_id) or not self._names.is_overridden(life, listed)):
                self.lives[ref.branch_id] = ref

    def stands(self, entry: LogEntry) -> bool:
        """Whether a commit is in the history of a branch that came into being; a draft's are in nobody's."""
        return entry.branch_id in self.lives

    def tombstone(self, branch_id: str) -> Tombstone | None:
        newest = self.logs[branch_id][max(self.logs[branch_id])] if self.logs.get(branch_id) else None
        return newest if isinstance(newest, Tombstone) else None

    def tombstones(self) -> list[Tombstone]:
        return [stone for branch_id in self.lives if (stone := self.tombstone(branch_id)) is not None]

    def live(self) -> list[BranchRef]:
        return [ref for ref in self.lives.values() if self.tombstone(ref.branch_id) is None]

    def own(self, branch_id: str) -> list[LogEntry]:
        return [e for _, e in sorted(self.logs.get(branch_id, {}).items()) if isinstance(e, LogEntry)]

    def head(self, ref: BranchRef) -> LogEntry:
        own = self.own(ref.branch_id)
        if own:
            return own[-1]
        assert ref.fork is not None
        entry = self.logs[ref.fork.branch_id][ref.fork.version]
        assert isinstance(entry, LogEntry)
        return entry

    def parents(self, entry: LogEntry) -> list[LogEntry] | None:
        """None as long as one of them was not seen."""
        found = [self.commits.get(link.commit_id) for link in entry.commit.parents]
        return None if None in found else [e for e in found if e is not None]

    def bases(self, left: str, right: str) -> list[str]:
        """The best common ancestors of two commits: no ancestor of another one, and the least far away of those."""
        far, near = self._distances(left), self._distances(right)
        common = far.keys() & near.keys()
        behind: set[str] = set()
        for commit in common:
            behind |= self._distances(commit).keys() - {commit} if commit not in behind else set()
        best = [commit for commit in common if commit not in behind]
        least = min((far[c] + near[c] for c in best), default=0)
        tied = [c for c in best if far[c] + near[c] == least]
        newest = max((self.commits[c].version for c in tied), default=0)
        return [c for c in tied if self.commits[c].version == newest]

    def _distances(self, start: str) -> dict[str, int]:
        steps = {start: 0}
        queue = deque([start])
        while queue:
            commit = queue.popleft()
            for link in self.commits[commit].commit.parents:
                if link.commit_id not in steps and link.commit_id in self.commits:
                    steps[link.commit_id] = steps[commit] + 1
                    queue.append(link.commit_id)
        return steps

    def disorder(self) -> Iterable[str]:
        """What is wrong with the logs as such."""
        for branch_id, ref in self.lives.items():
            log = self.logs.get(branch_id, {})
            versions = sorted(log)
            first = ref.first_own_version
            if versions != list(range(first, first + len(versions))):
                yield f"the log of '{ref.branch}' has versions {versions}, not those from {first} on"
            buried = [v for v in versions if isinstance(log[v], Tombstone)]
            if buried and buried != versions[-1:]:
                yield f"the log of '{ref.branch}' goes on after its tombstone at {buried[0]}"
            for entry in self.own(branch_id):
                link = entry.commit.parents[0] if entry.commit.parents else None
                before = ref.locate(entry.version - 1)
                if link is not None and (link.branch_id, link.version) != (before.branch_id, before.version):
                    yield f"commit {entry.commit.id} of '{ref.branch}' does not follow the one before it"
