"""Automatic upkeep for processes that run for long: look at the head of a branch, tidy what passed a threshold.

One call is one look; the caller decides how often. A look at a tidy graph reads a few manifests and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from omnigraph.engine.cleanup import CleanupReport, Retention, cleanup
from omnigraph.engine.indexes import declared_indexes, table_types
from omnigraph.engine.optimize import OptimizeReport, optimize
from omnigraph.storage.tables.upkeep import TableCondition

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """When a table is worth tidying. History is released only when a retention is given."""

    small_fragments: int = 16
    uncovered_rows: int = 50_000
    deleted_share: float = 0.2
    retention: Retention | None = None

    def reason(self, table: TableCondition) -> str | None:
        """Why a table should be tidied now; None when it can wait."""
        if table.small_fragments > self.small_fragments:
            return f"{table.small_fragments} small fragments"
        if table.uncovered_rows > self.uncovered_rows:
            return f"{table.uncovered_rows} rows outside an index"
        if table.deleted_rows > self.deleted_share * (table.rows + table.deleted_rows):
            return f"{table.deleted_rows} deleted rows beside {table.rows}"
        return None


DEFAULT_POLICY: Final = MaintenancePolicy()


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """Why which types were tidied, and what that did. Both reports are None when there was no need."""

    reasons: dict[str, str]
    optimized: OptimizeReport | None = None
    cleaned: CleanupReport | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "reasons": self.reasons,
            "optimized": None if self.optimized is None else self.optimized.to_dict(),
            "cleaned": None if self.cleaned is None else self.cleaned.to_dict(),
        }


def maintain(
    graph: Graph, branch: str, policy: MaintenancePolicy = DEFAULT_POLICY, *, actor: str | None = None
) -> MaintenanceReport:
    """Tidy the tables of a branch that passed a threshold, then release history when the policy says so."""
    snapshot = graph.snapshot(branch)
    reasons = {}
    for type_key, type_ in table_types(snapshot.catalog).items():
        condition = graph.root.upkeep.condition(snapshot.entry.tables[type_key], declared_indexes(type_))
        if (reason := policy.reason(condition)) is not None:
            reasons[type_key] = reason
    optimized = optimize(graph, branch, types=reasons, actor=actor) if reasons else None
    cleaned = None if policy.retention is None else cleanup(graph.root, policy.retention)
    return MaintenanceReport(reasons, optimized, cleaned)
