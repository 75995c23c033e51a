"""What an apply would do: the state it begins at, the graphs as they are, and what becomes of each change.

`plan` shows this, `approve` looks one change up in it, and `apply` carries it out; so all three speak of the same.

One run of a cluster command, from its start to its report. A run that fails anywhere still has a report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from omnigraph.api.service.cluster import ClusterChange, DesiredRevision, Diagnostics, StateObservations, is_ok
from omnigraph.cluster.config.desired import Desired, ReadPipeline, keep_unchanged_queries, load_desired
from omnigraph.cluster.config.reader import absolute_directory, survey_config
from omnigraph.cluster.ledger.ledger import STATE_FOLDER, LedgerRevision, revision_path
from omnigraph.cluster.ledger.payloads import DamagedPayload, damaged_payloads
from omnigraph.cluster.ledger.state import Resource, State, composite_digest
from omnigraph.cluster.ledger.state_builder import StateBuilder
from omnigraph.cluster.plan.approvals import Gates, find_gates
from omnigraph.cluster.plan.diff import PlanContext, classify, difference
from omnigraph.cluster.plan.reconcile import PENDING, ROLLED_FORWARD, GraphViews, Reconciliation, observe, reconcile
from omnigraph.cluster.resources import ClusterError, Diagnostic, error, graph_address, schema_address, warning
from omnigraph.cluster.session import UNREAD, Session, hold_lock, open_session


@dataclass(frozen=True)
class Preview:
    settlement: Reconciliation
    before: Mapping[str, Resource]
    """The resources that the changes begin at."""
    changes: tuple[ClusterChange, ...]
    gates: Gates
    damaged: tuple[DamagedPayload, ...]
    """Payloads of resources that stay as they are."""

    @property
    def draft(self) -> StateBuilder:
        return self.settlement.draft


def make_preview(session: Session, desired: Desired, *, actor: str | None = None, holds_up: bool = True) -> Preview:
    """Compare what is recorded, in the light of what stands, with what is desired. Writes nothing.

    With `holds_up` false, graphs in doubt hold no change up: a plan shows what is wanted, and the doubt beside it.
    """
    recorded = session.recorded
    if recorded is None:
        settlement = Reconciliation(StateBuilder(), GraphViews({}))
    else:
        views = observe(session.objects, recorded.state, desired.file.config.graphs)
        settlement = reconcile(StateBuilder.of(recorded.state), views, desired_schemas(desired), actor)
        if settlement.found:
            session.ledger.refuse_overtaken(recorded)
    before = settlement.draft.state().resources
    keep_unchanged_queries(desired, before, session.catalog)
    after = desired.resources
    changes = difference(before, after)
    gates = find_gates(session.objects, changes, desired.config_digest, settlement.draft)
    pending = settlement.pending if holds_up else set()
    decided = classify(changes, PlanContext(before, after, pending, gates.approvals))
    changing = {change.resource for change in changes}
    staying = {address: resource for address, resource in before.items() if address not in changing}
    return Preview(settlement, before, decided, gates, tuple(damaged_payloads(session.catalog, staying)))


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


def require_state(session: Session) -> LedgerRevision:
    """The state that a command begins at. Raises `ClusterError` when there is none."""
    if session.recorded is None:
        message = f"'{session.objects.location.uri}' holds no state of a cluster; run `omnigraph cluster import` first"
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


def leftover_findings(views: GraphViews) -> list[Diagnostic]:
    """What deletes that died have left behind."""
    return [
        warning("graph_delete_incomplete", folder, "files of a graph that was deleted are still there")
        for folder in views.leftovers
    ]


Outcome = TypeVar("Outcome")


@dataclass
class CommandRun:
    """What a command has come to so far; `source` is the configuration directory as it was given."""

    source: str
    desired: Desired | None = None
    session: Session | None = None
    _refused: list[Diagnostic] = field(default_factory=list)

    def run(
        self, operation: str, read_pipeline: ReadPipeline, work: Callable[[Session, Desired], Outcome]
    ) -> Outcome | None:
        """Load the configuration, take the lock, read the ledger, and do the work. A `ClusterError` on the way ends it
        and becomes part of the report."""
        try:
            self.desired = desired = load_desired(survey_config(self.source), read_pipeline)
            if not desired.is_valid:
                raise ClusterError(desired.found)
            self.session = session = open_session(self.source)
            session.found += desired.found
            with hold_lock(session, operation):
                session.recorded = session.ledger.newest()
                return work(session, desired)
        except ClusterError as problem:
            self._refused += problem.diagnostics
            return None

    @property
    def diagnostics(self) -> Diagnostics:
        return (*(self.session.found if self.session is not None else ()), *self._refused)

    @property
    def ok(self) -> bool:
        return is_ok(self.diagnostics)

    @property
    def config_dir(self) -> str:
        return absolute_directory(self.source)

    @property
    def desired_revision(self) -> DesiredRevision:
        is_whole = self.desired is not None and self.desired.is_valid
        return DesiredRevision(self.desired.config_digest if self.desired is not None and is_whole else None)

    @property
    def state_observations(self) -> StateObservations:
        return self.session.observations() if self.session is not None else UNREAD

    @property
    def state(self) -> State | None:
        """The state that the command wrote, or else the one it read."""
        recorded = self.session.recorded if self.session is not None else None
        return recorded.state if recorded is not None else None
