"""Progress of work over a whole graph, and the audit log of policy decisions.

`Tally` counts one step for a caller that watches. `audit` writes one structured line per decision of a handle that
acts for an actor; it never logs data of rows. A server keeps an audit log of its own, with request ids.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from omnigraph.api.governance import AccessRequest, Decision
from omnigraph.api.maintenance import Progress as Progress


class Tally:
    """One step, counted from any thread. Does nothing without a progress callback."""

    def __init__(self, progress: Progress | None, what: str, total: int) -> None:
        self._progress = progress
        self._what = what
        self._total = total
        self._done = 0
        self._lock = threading.Lock()
        self.add(0)

    def add(self, count: int = 1, what: str | None = None) -> None:
        """Report that `count` more is done, and what it was."""
        if self._progress is not None:
            with self._lock:
                self._done += count
                self._progress(what or self._what, self._done, self._total)


AUDIT: Final = logging.getLogger("omnigraph.policy")
FIELDS: Final = "fields"
"""The attribute of a log record that holds the fields by name."""


def audit(graph_id: str, actor: str | None, request: AccessRequest, decision: Decision) -> None:
    """Log one decision of a gate."""
    if AUDIT.isEnabledFor(logging.INFO):
        fields = {
            "graph_id": graph_id,
            "actor": actor,
            "action": request.action.value,
            "branch": request.branch,
            "target_branch": request.target_branch,
            "allowed": decision.allowed,
            "rule": decision.matched_rule_id,
        }
        text = " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
        AUDIT.info("decision %s", text, extra={FIELDS: fields})
