"""Named points of the write path that an observer may watch.

Production code announces where it is (`trace.reach("publish.before")`) and nobody listens by default. Crash tests
listen and kill the process there, so each durable step has a name that a test can hit.
"""

from __future__ import annotations

from collections.abc import Callable

POINTS = (
    "init.table.after",
    "init.schema.after",
    "init.genesis.after",
    "init.claim.after",
    "stage.before",
    "stage.data.after",
    "stage.commit.after",
    "stage.compaction.after",
    "stage.all.after",
    "publish.before",
    "publish.after",
    "branch.create.before",
    "branch.create.claimed",
    "branch.create.after",
    "branch.tombstone.before",
    "branch.tombstone.after",
    "branch.delete.after",
)

NAMING_POINTS = ("branch.claim.after",)
"""The points of taking a name that was a path, which few branches pass."""

MAINTENANCE_POINTS = ("cleanup.record.after", "cleanup.look.after", "cleanup.delete.after", "cleanup.after")
"""The points of maintenance, which a write never passes."""


class Trace:
    """One observer for a whole graph handle."""

    def __init__(self) -> None:
        self.observer: Callable[[str], None] | None = None

    def reach(self, point: str) -> None:
        if self.observer is not None:
            self.observer(point)
