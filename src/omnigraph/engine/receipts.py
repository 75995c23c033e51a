"""What a write tells its caller: the commit it published and what it counted, with their wire forms.

The receipt of a write is recorded in its commit, so that a repeat with the same idempotency key is told exactly what
the first call was told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.models import LogEntry


class LoadMode(StrEnum):
    """What a load does with ids that exist: refuse them, replace those entities, or replace everything."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class CommitReceipt:
    """The commit that a call published."""

    graph_commit_id: str
    graph_branch: str | None
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int

    @property
    def id(self) -> str:
        return self.graph_commit_id

    @classmethod
    def of(cls, entry: LogEntry) -> CommitReceipt:
        parents = [parent.commit_id for parent in entry.commit.parents]
        return cls(
            graph_commit_id=entry.commit.id,
            graph_branch=None if entry.branch == MAIN else entry.branch,
            graph_manifest_version=entry.version,
            parent_commit_id=parents[0] if parents else None,
            merged_parent_commit_id=parents[1] if len(parents) > 1 else None,
            actor_id=entry.commit.actor,
            created_at=entry.commit.authored_at,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "graph_commit_id": self.graph_commit_id,
            "graph_branch": self.graph_branch,
            "graph_manifest_version": self.graph_manifest_version,
            "parent_commit_id": self.parent_commit_id,
            "merged_parent_commit_id": self.merged_parent_commit_id,
            "actor_id": self.actor_id,
            "created_at": self.created_at,
        }


@dataclass(frozen=True, slots=True)
class LoadReceipt:
    """A published load. Counts are input records per declared type."""

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: LoadMode
    nodes_loaded: Mapping[str, int]
    edges_loaded: Mapping[str, int]
    commit: CommitReceipt

    @property
    def total_entities(self) -> int:
        return sum(self.nodes_loaded.values()) + sum(self.edges_loaded.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "branch": self.branch,
            "base_branch": self.base_branch,
            "branch_created": self.branch_created,
            "mode": self.mode.value,
            "nodes": _listed(self.nodes_loaded),
            "edges": _listed(self.edges_loaded),
            "total_entities": self.total_entities,
            "actor_id": self.commit.actor_id,
            "commit": self.commit.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class MutationReceipt:
    """A mutation that ran. `commit` is None when no statement matched anything."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: CommitReceipt | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            "actor_id": self.actor_id,
            "commit": None if self.commit is None else self.commit.to_dict(),
        }


def _listed(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "entities_loaded": count} for name, count in sorted(counts.items())]
