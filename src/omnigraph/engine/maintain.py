"""Automatic upkeep for processes that run for long: look at a graph, tidy what passed a threshold, release old history.

One call of `maintain` is one look; `engine.maintainer` looks again and again. A look at a tidy graph reads a few
manifests and writes nothing. Whether there is anything to do is read from the store and not remembered, so any number
of processes may look at one graph: who comes second finds the work done, and two at a time only waste some of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from omnigraph.engine import history
from omnigraph.engine.cleanup import CleanupReport, Retention, cleanup
from omnigraph.engine.indexes import declared_indexes, table_types
from omnigraph.engine.optimize import OptimizeReport, Progress, optimize
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import BadRequestError
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.failing import manifest_name
from omnigraph.storage.tables.upkeep import TableCondition
from omnigraph.storage.write_age import GRACE

DEFAULT_RETENTION: Final = Retention(keep_versions=100, older_than=timedelta(days=7))
"""Every state of the last week, and the last hundred versions however old they are. Branches keep all of theirs."""


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """When a table is worth tidying, and which history may go; `retention=None` keeps all of it for ever.

    A cleanup lists every file and opens every retained version, so it waits until `released_versions` of main are
    there to go.
    """

    small_fragments: int = 16
    uncovered_rows: int = 50_000
    deleted_share: float = 0.2
    retention: Retention | None = DEFAULT_RETENTION
    released_versions: int = 100
    grace: timedelta = GRACE

    def __post_init__(self) -> None:
        if self.released_versions < 1:
            raise BadRequestError("released_versions must be at least 1")

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
    workspace: Workspace,
    branch: str,
    policy: MaintenancePolicy = DEFAULT_POLICY,
    *,
    actor: str | None = None,
    progress: Progress | None = None,
    sweeps: bool = False,
) -> MaintenanceReport:
    """Tidy the tables of a branch that passed a threshold, then release history if enough of it may go.

    `sweeps` cleans up even if little history may go: deleted branches and interrupted writes leave data, too.
    """
    snapshot = workspace.snapshot(branch)
    reasons = {}
    for type_key, type_ in table_types(snapshot.catalog).items():
        condition = workspace.root.upkeep.condition(snapshot.entry.tables[type_key], declared_indexes(type_))
        if (reason := policy.reason(condition)) is not None:
            reasons[type_key] = reason
    optimized = optimize(workspace, branch, types=reasons, actor=actor, progress=progress) if reasons else None
    cleaned, retention = None, policy.retention
    if retention is not None and (
        sweeps or _has_history_to_release(workspace.root, retention, policy.released_versions)
    ):
        cleaned = cleanup(workspace, retention, grace=policy.grace)
    return MaintenanceReport(reasons, optimized, cleaned)


def _has_history_to_release(root: GraphRoot, retention: Retention, versions: int) -> bool:
    """Whether as many versions of main as that are released and still there.

    Cleanup takes the oldest first, so one look at the version that many before the first retained one tells. A branch
    may hold that very version, so its neighbour is looked at too.
    """
    main = root.branches.head(MAIN)
    first = retention.first_version(root, main, datetime.now(UTC))
    if first - versions < 2:  # the tables of version 1 are empty and never go
        return False
    looked_at = range(first - versions, min(first - versions + 2, first))
    *released, retained = history.at_versions(root, main.ref, [*looked_at, first])
    needed = {(state.path, state.version) for state in retained.tables.values()}
    return all(
        any(
            root.objects.exists(f"{state.path}/_versions/{manifest_name(state.number)}")
            for state in entry.tables.values()
            if (state.path, state.version) not in needed
        )
        for entry in released
    )
