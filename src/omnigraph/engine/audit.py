"""The audit trail of handles that act for somebody: one structured line per decision, without data of any row.

A server keeps its own, with the ids of requests; a program that opens a graph with a policy sends this logger where it
wants.
"""

from __future__ import annotations

import logging
from typing import Final

from omnigraph.api.governance import AccessRequest, Decision

AUDIT: Final = logging.getLogger("omnigraph.policy")
FIELDS: Final = "fields"
"""The attribute of a log record that holds what is told, by name."""


def audited(graph_id: str, actor: str | None, request: AccessRequest, decision: Decision) -> None:
    """A gate was asked."""
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
        told = " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
        AUDIT.info("decision %s", told, extra={FIELDS: fields})
