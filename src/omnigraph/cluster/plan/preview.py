"""The changes that an apply would make: from the recorded state and the observed graphs to the desired state.

`plan` prints a `Preview`, `approve` looks up one change in it, and `apply` carries it out. Making one writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from omnigraph.api.service.cluster import ClusterChange
from omnigraph.cluster.command_run import Session
from omnigraph.cluster.config.desired import Desired, keep_unchanged_queries
from omnigraph.cluster.ledger.payloads import DamagedPayload, damaged_payloads
from omnigraph.cluster.ledger.state import Resource, StateBuilder
from omnigraph.cluster.plan.approvals import Gates, find_gates
from omnigraph.cluster.plan.diff import PlanContext, classify, difference
from omnigraph.cluster.plan.reconcile import PENDING, ROLLED_FORWARD, GraphViews, Reconciliation, observe, reconcile
from omnigraph.cluster.resources import Diagnostic, schema_address, warning


@dataclass(frozen=True)
class Preview:
    reconciliation: Reconciliation
    before: Mapping[str, Resource]
    """The resources that the changes start from."""
    changes: tuple[ClusterChange, ...]
    gates: Gates
    damaged: tuple[DamagedPayload, ...]
    """Damaged payloads of resources that do not change."""

    @property
    def builder(self) -> StateBuilder:
        return self.reconciliation.builder


def make_preview(session: Session, desired: Desired, *, actor: str | None = None, holds_up: bool = True) -> Preview:
    """Compare the recorded state, reconciled with the observed graphs, with the desired state. Writes nothing.

    With `holds_up` false, pending graphs block no change: a plan shows the wanted changes and the pending graphs.
    """
    recorded = session.recorded
    if recorded is None:
        reconciliation = Reconciliation(StateBuilder(), GraphViews({}))
    else:
        views = observe(session.objects, recorded.state, desired.file.config.graphs)
        reconciliation = reconcile(StateBuilder.of(recorded.state), views, desired_schemas(desired), actor)
        if reconciliation.findings:
            session.ledger.refuse_overtaken(recorded)
    before = reconciliation.builder.state().resources
    keep_unchanged_queries(desired, before, session.catalog)
    after = desired.resources
    changes = difference(before, after)
    gates = find_gates(session.objects, changes, desired.config_digest, reconciliation.builder)
    pending = reconciliation.pending if holds_up else set()
    decided = classify(changes, PlanContext(before, after, pending, gates.approvals))
    changing = {change.resource for change in changes}
    staying = {address: resource for address, resource in before.items() if address not in changing}
    return Preview(reconciliation, before, decided, gates, tuple(damaged_payloads(session.catalog, staying)))


def desired_schemas(desired: Desired) -> dict[str, str]:
    """The digests of the declared schemas, by graph."""
    return {
        graph_id: desired.resources[schema_address(graph_id)].digest
        for graph_id in desired.file.config.graphs
        if schema_address(graph_id) in desired.resources
    }


def not_recorded_yet(findings: list[Diagnostic]) -> list[Diagnostic]:
    """The findings of a reconciliation that is not recorded: the next apply will record it."""

    def adapt(finding: Diagnostic) -> Diagnostic:
        if finding.code != ROLLED_FORWARD:
            return finding
        message = finding.message.replace("it is recorded now", "the next apply records it")
        return msgspec.structs.replace(finding, code=PENDING, message=message)

    return [adapt(finding) for finding in findings]


def leftover_findings(views: GraphViews) -> list[Diagnostic]:
    """A finding for each folder that an unfinished delete left behind."""
    return [
        warning("graph_delete_incomplete", folder, "files of a graph that was deleted are still there")
        for folder in views.leftovers
    ]
