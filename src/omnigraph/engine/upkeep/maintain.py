"""Automatic upkeep for processes that run for long: look at a graph, tidy what passed a threshold, release old history.

One call of `maintain` is one look; `engine.upkeep.maintainer` looks again and again. A look at a tidy graph reads a few
manifests and writes nothing. Whether there is anything to do is read from the store and not remembered, so any number
of processes may look at one graph: the second finds the work done, and two at a time only waste some of it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from omnigraph.api.maintenance import DEFAULT_POLICY, MaintenancePolicy, MaintenanceReport, Retention
from omnigraph.api.values import counted
from omnigraph.engine.history import log_walk
from omnigraph.engine.progress import Progress
from omnigraph.engine.schema.declared_indexes import declared_indexes, table_types
from omnigraph.engine.upkeep.cleanup import cleanup, first_retained
from omnigraph.engine.upkeep.optimize import optimize
from omnigraph.engine.workspace import Workspace
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.lance_errors import manifest_name
from omnigraph.storage.tables.upkeep import TableCondition


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
        if (reason := _reason(policy, condition)) is not None:
            reasons[type_key] = reason
    optimized = optimize(workspace, branch, types=reasons, actor=actor, progress=progress) if reasons else None
    cleaned, retention = None, policy.retention
    if retention is not None and (
        sweeps or _has_history_to_release(workspace.root, retention, policy.released_versions)
    ):
        cleaned = cleanup(workspace, retention, grace=policy.grace)
    return MaintenanceReport(reasons, optimized, cleaned)


def _reason(policy: MaintenancePolicy, table: TableCondition) -> str | None:
    """Why a table should be tidied now; None when it can wait."""
    if table.small_fragments > policy.small_fragments:
        return f"{table.small_fragments} small fragments"
    if table.uncovered_rows > policy.uncovered_rows:
        return f"{counted(table.uncovered_rows, 'row')} outside an index"
    if table.deleted_rows > policy.deleted_share * (table.rows + table.deleted_rows):
        return f"{table.deleted_rows} deleted rows beside {table.rows}"
    return None


def _has_history_to_release(root: GraphRoot, retention: Retention, versions: int) -> bool:
    """Whether as many versions of main as that are released and still there.

    Cleanup takes the oldest first, so one look at the version that many before the first retained one tells. A branch
    may hold that very version, so its neighbour is looked at too.
    """
    main = root.branches.head(MAIN)
    first = first_retained(root, main, retention, datetime.now(UTC))
    if first - versions < 2:  # the tables of version 1 are empty and never go
        return False
    looked_at = range(first - versions, min(first - versions + 2, first))
    *released, retained = log_walk.at_versions(root, main.ref, [*looked_at, first])
    needed = {(state.path, state.version) for state in retained.tables.values()}
    return all(
        any(
            root.objects.exists(f"{state.path}/_versions/{manifest_name(state.number)}")
            for state in entry.tables.values()
            if (state.path, state.version) not in needed
        )
        for entry in released
    )
