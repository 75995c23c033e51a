"""What an apply would do: the state it begins at, the graphs as they are, and what becomes of each change.

`plan` shows this, `approve` looks one change up in it, and `apply` carries it out; so all three speak of the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from omnigraph.api.cluster import ClusterChange
from omnigraph.cluster.addresses import graph_address, schema_address
from omnigraph.cluster.approvals import Gates, find_gates
from omnigraph.cluster.desired import Desired, keep_unchanged_queries
from omnigraph.cluster.diagnostics import ClusterError, Diagnostic, error, warning
from omnigraph.cluster.diff import difference
from omnigraph.cluster.digests import composite_digest
from omnigraph.cluster.dispositions import Outlook, classified
from omnigraph.cluster.draft import Draft
from omnigraph.cluster.ledger import STATE_FOLDER, Recorded, revision_path
from omnigraph.cluster.observe import Views, observe
from omnigraph.cluster.payloads import DamagedPayload, damaged_payloads
from omnigraph.cluster.session import Session
from omnigraph.cluster.settle import PENDING, ROLLED_FORWARD, Settlement, settle
from omnigraph.cluster.state import Resource, State


@dataclass(frozen=True)
class Prospect:
    settlement: Settlement
    before: Mapping[str, Resource]
    """The resources that the changes begin at."""
    changes: tuple[ClusterChange, ...]
    gates: Gates
    damaged: tuple[DamagedPayload, ...]
    """Payloads of resources that stay as they are."""

    @property
    def draft(self) -> Draft:
        return self.settlement.draft


def look_ahead(session: Session, desired: Desired, *, actor: str | None = None, holds_up: bool = True) -> Prospect:
    """Compare what is recorded, in the light of what stands, with what is desired. Writes nothing.

    With `holds_up` false, graphs in doubt hold no change up: a plan shows what is wanted, and the doubt beside it.
    """
    recorded = session.recorded
    if recorded is None:
        settlement = Settlement(Draft(), Views({}))
    else:
        views = observe(session.store, recorded.state, desired.file.config.graphs)
        settlement = settle(Draft.of(recorded.state), views, desired_schemas(desired), actor)
        if settlement.found:
            session.ledger.refuse_overtaken(recorded)
    before = settlement.draft.state().resources
    keep_unchanged_queries(desired, before, session.catalog)
    after = desired.resources
    changes = difference(before, after)
    gates = find_gates(session.store, changes, desired.config_digest, settlement.draft)
    pending = settlement.pending if holds_up else set()
    decided = classified(changes, Outlook(before, after, pending, gates.approvals))
    changing = {change.resource for change in changes}
    staying = {address: resource for address, resource in before.items() if address not in changing}
    return Prospect(settlement, before, decided, gates, tuple(damaged_payloads(session.catalog, staying)))


def desired_schemas(desired: Desired) -> dict[str, str]:
    """The digests of the declared schemas, by graph."""
    return {
        graph_id: desired.resources[schema_address(graph_id)].digest
        for graph_id in desired.file.config.graphs
        if schema_address(graph_id) in desired.resources
    }


def not_recorded_yet(found: list[Diagnostic]) -> list[Diagnostic]:
    """The findings of a settlement that nobody records: what an apply would, it still has to."""

    def told(finding: Diagnostic) -> Diagnostic:
        if finding.code != ROLLED_FORWARD:
            return finding
        message = finding.message.replace("it is recorded now", "the next apply records it")
        return msgspec.structs.replace(finding, code=PENDING, message=message)

    return [told(finding) for finding in found]


def require_state(session: Session) -> Recorded:
    """The state that a command begins at. Raises `ClusterError` when there is none."""
    if session.recorded is None:
        message = f"'{session.store.uri}' holds no state of a cluster; run `omnigraph cluster import` first"
        raise ClusterError.of("state_missing", STATE_FOLDER, message)
    return session.recorded


def refuse_uncovered(state: State) -> None:
    """A digest covers everything that is recorded of its graph; where it does not, somebody edited the ledger."""
    found = [
        error(
            "external_blob_policy_digest_mismatch",
            graph_address(graph_id),
            f"its digest does not cover what is recorded of it: {revision_path(state.state_revision)} was edited; put "
            "back what was written there",
        )
        for graph_id in state.graph_ids
        if composite_digest(state.resources, graph_id) != state.resources[graph_address(graph_id)].digest
    ]
    if found:
        raise ClusterError(found)


def leftover_findings(views: Views) -> list[Diagnostic]:
    """What deletes that died have left behind."""
    return [
        warning("graph_delete_incomplete", folder, "files of a graph that was deleted are still there")
        for folder in views.leftovers
    ]
