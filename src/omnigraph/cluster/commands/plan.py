"""`cluster validate`, `cluster plan` and `cluster approve`: commands that change neither graphs nor the ledger.

`validate` reads files only. `plan` prints a `Preview`, the changes from the recorded state and the observed graphs to
the desired state, with the steps of each schema change. `approve` stores the approval of one delete. `apply` carries a
preview out.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from omnigraph.api.enums import ResourceOperation
from omnigraph.api.service.cluster import (
    ApprovalRequired,
    ClusterApproved,
    ClusterChange,
    ClusterPlan,
    ClusterValidated,
)
from omnigraph.cluster.command_run import CommandRun, Session, require_state
from omnigraph.cluster.configuration import CONFIG_FILE, survey_config
from omnigraph.cluster.desired import Desired, ReadPipeline, default_deny, keep_unchanged_queries, load_desired
from omnigraph.cluster.payloads import DamagedPayload, PayloadStore, damaged_payloads
from omnigraph.cluster.plan.approvals import Approval, Gates, find_gates, root_of
from omnigraph.cluster.plan.approvals import approve as write_approval
from omnigraph.cluster.plan.diff import PlanContext, blast_radius, changed_settings, classify, difference, is_gated
from omnigraph.cluster.plan.reconcile import PENDING, ROLLED_FORWARD, GraphViews, Reconciliation, observe, reconcile
from omnigraph.cluster.resources import Address, ClusterError, Diagnostic, Kind, error, schema_address, warning
from omnigraph.cluster.state import Resource, StateBuilder
from omnigraph.engine.managed_graph import preview_change
from omnigraph.errors import BadRequestError, IntegrityError, NotFoundError, OmniGraphError, StorageError
from omnigraph.storage.location import Location


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
    message = "files of a graph that was deleted are still there"
    return [warning("graph_delete_incomplete", folder, message) for folder in views.leftovers]


@dataclass(frozen=True)
class PlanReview:
    """A plan, and for its reviewers the changed lines and settings of each resource."""

    output: ClusterPlan
    texts: dict[str, list[str]] = field(default_factory=dict)
    settings: dict[str, list[str]] = field(default_factory=dict)


def plan(source: str, read_pipeline: ReadPipeline, *, for_review: bool = False) -> PlanReview:
    command_run = CommandRun(source)
    planned_changes = command_run.run("plan", read_pipeline, partial(_plan_changes, for_review=for_review))
    changes, gates, texts, settings = planned_changes or ((), (), {}, {})
    planned = command_run.desired
    edges = planned.edges() if planned is not None else ()
    output = command_run.report(
        ClusterPlan,
        resource_digests=planned.digests if planned is not None else {},
        dependencies=edges,
        changes=changes,
        blast_radius=blast_radius(changes, edges),
        approvals_required=gates,
    )
    return PlanReview(output, texts, settings)


_Planned: TypeAlias = tuple[
    tuple[ClusterChange, ...], tuple[ApprovalRequired, ...], dict[str, list[str]], dict[str, list[str]]
]
"""Changes, gates, and the changed lines and settings of each resource."""


def _plan_changes(session: Session, desired: Desired, *, for_review: bool) -> _Planned:
    preview = make_preview(session, desired, holds_up=False)
    session.findings += [
        *not_recorded_yet(preview.reconciliation.findings),
        *leftover_findings(preview.reconciliation.views),
        *(damaged.finding("the next apply stores it again") for damaged in preview.damaged),
        *preview.gates.findings,
    ]
    changes = tuple(_with_migration(session, desired, preview, change) for change in preview.changes)
    gates = tuple(preview.gates.required)
    if not for_review:
        return changes, gates, {}, {}
    settings = {
        change.resource: changed_settings(preview.before[change.resource], desired.resources[change.resource])
        for change in changes
        if change.operation is ResourceOperation.UPDATE
    }
    return changes, gates, _changed_lines(session.catalog, desired, changes), settings


def _with_migration(session: Session, desired: Desired, preview: Preview, change: ClusterChange) -> ClusterChange:
    """A schema change with its steps, computed on the current graph."""
    address = Address.parse(change.resource)
    if address is None or address.kind is not Kind.SCHEMA or change.operation is not ResourceOperation.UPDATE:
        return change
    view = preview.reconciliation.views.graphs[address.name]
    try:
        steps = preview_change(view.uri, desired.sources[change.resource].text)
    except OmniGraphError as problem:
        message = f"its steps can't be computed: {problem}"
        session.findings.append(warning("schema_preview_unavailable", change.resource, message))
        return change
    return msgspec.structs.replace(change, migration=steps)


def _changed_lines(catalog: PayloadStore, desired: Desired, changes: tuple[ClusterChange, ...]) -> dict[str, list[str]]:
    """The changed lines of every updated query, policy and pipeline."""
    differences = {}
    for change in changes:
        before, source = change.before_digest, desired.sources.get(change.resource)
        if before is None or source is None or before == change.after_digest:
            continue
        try:
            old = catalog.read(change.resource, before).decode("utf-8")
        except (NotFoundError, IntegrityError, StorageError, UnicodeDecodeError):
            continue  # schemas have no payload, and damaged payloads are reported elsewhere
        lines = difflib.unified_diff(old.splitlines(), source.text.splitlines(), "applied", source.shown, lineterm="")
        differences[change.resource] = list(lines)
    return differences


def approve(source: str, resource: str, read_pipeline: ReadPipeline, *, approver: str) -> ClusterApproved:
    command_run = CommandRun(source)
    approval = command_run.run("approve", read_pipeline, partial(_approve, resource=resource, approver=approver))
    shown = ("approval_id", "resource", "operation", "approved_by")
    return command_run.report(ClusterApproved, **{name: getattr(approval, name, None) for name in shown})


def _approve(session: Session, desired: Desired, *, resource: str, approver: str) -> Approval:
    require_state(session)
    preview = make_preview(session, desired)
    session.findings += not_recorded_yet(preview.reconciliation.findings)
    change = next((change for change in preview.changes if change.resource == resource), None)
    if change is None or not is_gated(change, preview.changes):
        gated = [required.resource for required in preview.gates.required]
        waiting = f"waiting for approval: {', '.join(gated)}" if gated else "nothing waits for approval"
        raise ClusterError.of("approval_not_required", resource, f"no change of it needs an approval; {waiting}")
    root = root_of(change, preview.builder)
    return write_approval(session.objects, change, desired.config_digest, root, approver)


def validate(source: str, read_pipeline: ReadPipeline) -> ClusterValidated:
    command_run = CommandRun(source)
    desired: Desired | None = None
    with command_run.report_errors():
        file = survey_config(source)
        desired = load_desired(file, read_pipeline)
        if not file.findings:
            try:
                Location.parse(file.storage_root)  # its syntax; nothing is opened
            except BadRequestError as problem:
                command_run.findings.append(error("storage_root_invalid", "storage", str(problem)))
        command_run.findings += desired.findings
        if command_run.ok:
            command_run.findings += default_deny(desired)
    return command_run.report(
        ClusterValidated,
        config_file=str(Path(command_run.config_dir) / CONFIG_FILE),
        resource_digests=desired.digests if desired is not None else {},
        resources=desired.declarations() if desired is not None else (),
        dependencies=desired.edges() if desired is not None else (),
    )
