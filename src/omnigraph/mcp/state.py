"""Which state a tool reads: a branch as it is now, a commit, or on later pages exactly what the first page read.

A later page of a branch names a version of that branch and not the commit alone. Rules govern a commit by the branch it
was made on, and a young branch has the commits of the branch it came from: who may read the one may still go on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from omnigraph.errors import BadRequestError, ConflictError
from omnigraph.language.catalog import Catalog
from omnigraph.mcp.graph import AgentGraph, Rows
from omnigraph.mcp.paging import Place
from omnigraph.mcp.schema import catalog_of
from omnigraph.mcp.terms import MAIN

_LOOKED_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class State:
    """One of a branch and a snapshot. A pinned one has a `commit`; that of a branch also has the `version` which must
    turn out to be this commit."""

    branch: str | None = None
    snapshot: str | None = None
    version: int | None = None
    commit: str | None = None

    @classmethod
    def of(cls, branch: str | None, snapshot: str | None, place: Place | None = None) -> State:
        """What is asked for; what the first page read where there was one."""
        if branch is not None and snapshot is not None:
            raise BadRequestError("give a branch or a snapshot, not both")
        if snapshot is not None:
            return cls(snapshot=snapshot.strip())
        named = MAIN if branch is None else branch.strip()
        if place is None or not place.pins:
            return cls(named)
        commit, version = place.pins
        return cls(named, None, int(version), commit)

    @property
    def options(self) -> dict[str, Any]:
        """As calls of a graph take them."""
        return {"branch": self.branch, "snapshot": self.snapshot, "version": self.version}

    def catalog(self, graph: AgentGraph) -> Catalog:
        """The schema of this state, which need not be that of main."""
        return catalog_of(graph.schema_text(**self.options))

    def pinned(self, graph: AgentGraph) -> State:
        """The same state for several reads, whatever becomes of the branch meanwhile."""
        if self.branch is None:
            return replace(self, commit=self.snapshot)
        if self.version is not None:
            return self
        head = graph.commits(self.branch, limit=1).commits[0]
        return State(self.branch, None, head.version, head.id)

    def rows(self, rows: Rows) -> Rows:
        """Rows that were read here, once it is certain that they were."""
        if self.branch is not None and self.commit is not None and rows.graph_commit_id != self.commit:
            raise self._gone(self.commit)
        return rows

    def at(self, graph: AgentGraph, commit: str) -> State:
        """The same state for further reads, pinned to what a first read saw."""
        if self.branch is None or self.version is not None:
            return replace(self, commit=commit)
        before: int | None = None
        while True:
            page = graph.commits(self.branch, limit=_LOOKED_AT_ONCE, before=before)
            for found in page.commits:
                if found.id == commit:
                    return State(self.branch, None, found.version, commit)
            if (before := page.next_version) is None:
                raise self._gone(commit)

    @property
    def pins(self) -> list[str]:
        """What a continuation has to name of a pinned state."""
        return [str(each) for each in (self.commit, self.version) if each is not None]

    def _gone(self, commit: str) -> ConflictError:
        return ConflictError(
            f"branch '{self.branch}' is not the one of commit {commit} any more: it was deleted and made again; "
            "ask again without a continuation"
        )


def head_of(graph: AgentGraph, branch: str) -> str:
    """The commit that a branch is at now."""
    return graph.commits(branch.strip(), limit=1).commits[0].id
