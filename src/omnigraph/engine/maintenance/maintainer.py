"""Automatic maintenance of a graph in a process that runs for long.

`maintain` looks at the graph once, optimizes tables that passed a threshold and releases old history. `Maintainer`,
which `omnigraph.open(uri, maintain=True)` starts, repeats that in a thread until the handle is closed. The need for
work is read from the store and never remembered, so several processes may look after one graph. Failures are logged
and kept in `last_error`; they never reach the caller.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import weakref
from datetime import UTC, datetime, timedelta
from typing import Final

from omnigraph.api.maintenance import DEFAULT_POLICY, MaintenancePolicy, MaintenanceReport, Retention
from omnigraph.api.values import count_noun
from omnigraph.engine.history import log_walk
from omnigraph.engine.maintenance.cleanup import cleanup, first_retained
from omnigraph.engine.maintenance.declared_indexes import declared_indexes, table_types
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.observers import Progress
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import BadRequestError, OmniGraphError
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.models import manifest_path
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.maintenance import TableCondition


def maintain(
    workspace: Workspace,
    branch: str,
    policy: MaintenancePolicy = DEFAULT_POLICY,
    *,
    actor: str | None = None,
    progress: Progress | None = None,
    sweeps: bool = False,
) -> MaintenanceReport:
    """Optimize the tables of a branch that passed a threshold, then release history if enough of it may go. `sweeps`
    cleans up even if little history may go: deleted branches and interrupted writes leave data, too."""
    snapshot = workspace.snapshot(branch)
    reasons = {}
    for type_key, type_ in table_types(snapshot.catalog).items():
        condition = workspace.root.table_maintenance.condition(snapshot.entry.tables[type_key], declared_indexes(type_))
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
    """Why a table should be optimized now; None when it can wait."""
    if table.small_fragments > policy.small_fragments:
        return f"{table.small_fragments} small fragments"
    if table.uncovered_rows > policy.uncovered_rows:
        return f"{count_noun(table.uncovered_rows, 'row')} outside an index"
    if table.deleted_rows > policy.deleted_share * (table.rows + table.deleted_rows):
        return f"{table.deleted_rows} deleted rows beside {table.rows}"
    return None


def _has_history_to_release(root: GraphRoot, retention: Retention, versions: int) -> bool:
    """Whether at least so many released versions of main are still stored. Cleanup takes the oldest first, so it is
    enough to look at the version that many before the first retained one; a branch may hold that very version, so its
    neighbour is checked too."""
    main = root.branches.head(MAIN)
    first = first_retained(root, main, retention, datetime.now(UTC))
    if first - versions < 2:  # the tables of version 1 are empty and never go
        return False
    looked_at = range(first - versions, min(first - versions + 2, first))
    *released, retained = log_walk.at_versions(root, main.ref, [*looked_at, first])
    needed = {(state.path, state.version) for state in retained.tables.values()}
    return all(
        any(
            root.objects.exists(manifest_path(state))
            for state in entry.tables.values()
            if (state.path, state.version) not in needed
        )
        for entry in released
    )


LOOK_EVERY: Final = timedelta(minutes=5)
SWEEP_EVERY: Final = timedelta(days=1)
"""What deleted branches and interrupted writes left is looked for so often, even if no history may go."""

logger: Final = logging.getLogger("omnigraph.maintenance")


class Maintainer:
    """Looks after one branch of a graph, and after the history of the whole graph."""

    def __init__(
        self,
        workspace: Workspace,
        policy: MaintenancePolicy = DEFAULT_POLICY,
        *,
        every: timedelta = LOOK_EVERY,
        branch: str = MAIN,
        actor: str | None = None,
    ) -> None:
        if every <= timedelta(0):
            raise BadRequestError("the time between two looks at a graph must be positive")
        self._stopping = threading.Event()
        # A graph without references ends its maintainer, instead of being kept open by it.
        self._root = weakref.ref(workspace.root, lambda _: self._stopping.set())
        self._policy = policy
        self._every = every.total_seconds()
        self._branch = branch
        self._actor = actor
        self._swept_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="omnigraph-maintain", daemon=True)
        self.looks = 0
        self.last_report: MaintenanceReport | None = None
        self.last_cleanup: MaintenanceReport | None = None
        self.last_error: Exception | None = None

    def start(self) -> Maintainer:
        """Begin; closing the graph ends it."""
        if (root := self._root()) is not None:
            root.on_close(self.stop)
            self._thread.start()
        return self

    def stop(self) -> None:
        """End it, after the table or the sweep that it is busy with."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        # Processes that were started together should not all look at the same moment.
        while not self._stopping.wait(self._every * random.uniform(0.8, 1.2)):
            if (root := self._root()) is None:
                return
            self._look(Workspace(root))
            del root

    def _look(self, workspace: Workspace) -> None:
        sweeps = time.monotonic() - self._swept_at > SWEEP_EVERY.total_seconds()
        try:
            report = maintain(
                workspace, self._branch, self._policy, actor=self._actor, progress=self._between_tables, sweeps=sweeps
            )
        except _StoppedError:
            return
        except OmniGraphError as error:
            logger.warning("maintenance of %s failed and is tried again later: %s", workspace.uri, error)
            self.last_error = error
        except Exception as error:
            # The thread goes on: one odd look must not end maintenance for the rest of the process.
            logger.exception("maintenance of %s failed and is tried again later", workspace.uri)
            self.last_error = error
        else:
            self.last_report, self.last_error = report, None
            if report.cleaned is not None:
                self.last_cleanup, self._swept_at = report, time.monotonic()
            if report.optimized is not None or report.cleaned is not None:
                removed = 0 if report.cleaned is None else report.cleaned.bytes_removed
                logger.info("maintenance of %s: optimized %s, removed %d bytes", workspace.uri, report.reasons, removed)
        self.looks += 1

    def _between_tables(self, _type_key: str, _done: int, _of: int) -> None:
        if self._stopping.is_set():
            raise _StoppedError


class _StoppedError(Exception):
    """The handle is being closed; the table that was being optimized is left as it was."""
