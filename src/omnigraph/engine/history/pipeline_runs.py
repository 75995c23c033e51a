"""Which commit each pipeline made last on a branch, found by walking back from its head.

Commits never change, so what was walked once is remembered: asking again reads what has come since.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import closing
from typing import Final

from omnigraph.api.history import CommitReceipt
from omnigraph.engine.history import log_walk
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.receipts import receipt_of
from omnigraph.errors import BranchNotFoundError

PIPELINE_NAME: Final = "pipeline.name"
"""The detail of a commit that says which pipeline made it."""

FARTHEST: Final = 1_000
"""How many commits are walked at most. A run that lies farther back is not found until there is a newer one."""
_PAGE: Final = 100


class PipelineRuns:
    """The last runs of the pipelines of one graph. Safe to share between threads."""

    def __init__(self) -> None:
        self._walked: dict[str, tuple[int, dict[str, CommitReceipt]]] = {}
        self._lock = threading.Lock()

    def last(self, workspace: Workspace, branch: str, names: Collection[str]) -> Mapping[str, CommitReceipt]:
        """The last commit of each of these pipelines that has one on the branch."""
        try:
            head = workspace.head(branch)
        except BranchNotFoundError:
            return {}
        with self._lock:
            walked, known = self._walked.get(head.ref.branch_id, (0, {}))
        newest = head.entry.version
        oldest = max(walked, newest - FARTHEST)
        found: dict[str, CommitReceipt] = {}
        before: int | None = newest + 1
        while before is not None and before - 1 > oldest and not found.keys() >= set(names):
            limit = min(_PAGE, before - 1 - oldest)
            page = log_walk.commits(workspace.root, head, limit=limit, before=before)
            for entry in page.commits:
                if (name := entry.commit.details.get(PIPELINE_NAME)) is not None:
                    found.setdefault(name, receipt_of(entry))
            before = page.next_version
        found = {**known, **found}
        with self._lock:
            self._walked[head.ref.branch_id] = newest, found
        return {name: found[name] for name in names if name in found}


def last_runs(uri: str, branches: Mapping[str, str]) -> dict[str, CommitReceipt]:
    """The last commit of each pipeline of a graph that has one; `branches` are those they load, by name."""
    by_branch: defaultdict[str, list[str]] = defaultdict(list)
    for name, branch in branches.items():
        by_branch[branch].append(name)
    runs, found = PipelineRuns(), dict[str, CommitReceipt]()
    with closing(Workspace.open(uri)) as workspace:
        for branch, names in by_branch.items():
            found |= runs.last(workspace, branch, names)
    return found
