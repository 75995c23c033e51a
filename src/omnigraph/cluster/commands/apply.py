"""`cluster apply`: bring a cluster in line with its configuration, and record it.

The order of the steps makes it safe to be killed, stopped for a day, or run beside another apply:

1. Graphs are created and schemas changed. The next apply finds such changes if this one can't record them.
2. Payloads are stored before a state names them.
3. The next revision is created. If another apply was faster, this one stops here.
4. The folders of graphs that the new revision no longer has are removed. Their names are never used again, so a removal
   that is late or repeated does no harm.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from omnigraph.api.enums import ChangeDisposition, ResourceOperation
from omnigraph.api.service.cluster import ClusterApplied, ClusterChange, GraphObservation
from omnigraph.cluster.command_run import CommandRun, Session, refuse_uncovered, require_state
from omnigraph.cluster.commands.plan import Preview, leftover_findings, make_preview
from omnigraph.cluster.config_files import Source
from omnigraph.cluster.desired import Desired, ReadPipeline
from omnigraph.cluster.payloads import Damage, payload_path
from omnigraph.cluster.plan.approvals import Approval, mark_spent
from omnigraph.cluster.plan.diff import (
    RECOVERY_PENDING,
    address_of,
    block,
    bound_until_deleted,
    demote,
    difference,
    unapplied_findings,
)
from omnigraph.cluster.plan.reconcile import GraphViews
from omnigraph.cluster.resources import (
    Address,
    ClusterError,
    Diagnostic,
    Kind,
    error,
    graph_address,
    schema_address,
    warning,
)
from omnigraph.cluster.state import ApprovalRecord, GraphTombstone, StateBuilder, StatusKind, Written, file_digest
from omnigraph.cluster.state_ledger import LedgerRevision, timestamp
from omnigraph.cluster.storage_root import graph_folder, remove_graph_folder
from omnigraph.engine.export import RUNNING_EXPORTS
from omnigraph.engine.managed_graph import change_schema, look_at, make
from omnigraph.errors import OmniGraphError, StorageError
from omnigraph.storage.identifiers import new_ulid


class Step(NamedTuple):
    """The codes of a step that failed, and of one that was not tried."""

    failed: str
    skipped: str


CREATE: Final = Step("graph_create_failed", "graph_create_skipped")
CHANGE: Final = Step("schema_apply_failed", "schema_apply_skipped")
DELETE: Final = Step("graph_delete_failed", "graph_delete_skipped")


@dataclass
class GraphChanges:
    """Creates graphs and changes schemas. `failed` has a reason for each resource that was not changed.

    After the first failure no other step is tried. A step whose response is lost, or that another apply has taken, is
    judged by the graph as it is afterwards."""

    desired: Desired
    views: GraphViews
    actor: str | None
    failed: dict[str, str] = field(default_factory=dict)
    observations: dict[str, GraphObservation] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)

    def run(self, changes: tuple[ClusterChange, ...]) -> None:
        for change in of_kind(changes, Kind.GRAPH, ResourceOperation.CREATE):
            self._step(change, CREATE)
        for change in of_kind(changes, Kind.SCHEMA, ResourceOperation.UPDATE):
            self._step(change, CHANGE)

    def refuse_exported(self, changes: tuple[ClusterChange, ...]) -> None:
        """Refuse to delete a graph while this process exports it."""
        for change in of_kind(changes, Kind.GRAPH, ResourceOperation.DELETE):
            graph = self.views.graphs[address_of(change).name].observed
            if graph is not None and graph.identity is not None and graph.identity in RUNNING_EXPORTS:
                message = "this process is exporting it; run apply again when the export is done"
                self.findings.append(error("graph_delete_export_in_progress", change.resource, message))
                self.failed[change.resource] = DELETE.failed

    def _step(self, change: ClusterChange, step: Step) -> None:
        if self.failed:
            self.skip(change.resource, step)
            return
        graph_id = address_of(change).name
        view, source = self.views.graphs[graph_id], self.desired.sources[schema_address(graph_id)]
        version: int | None = None
        try:
            source.refuse_changed(change.resource)
            if step is CREATE:
                make(view.uri, source.text, new_ulid(), self.actor)
                version = 1
            else:
                assert view.observed is not None, "a graph that was not observed is pending"
                applied = change_schema(view.uri, view.observed, source.text, new_ulid(), self.actor)
                version = applied.graph_manifest_version
        except ClusterError as problem:
            self.findings += problem.diagnostics
        except (OmniGraphError, OSError) as problem:
            version = _version_with_schema(view.uri, source)
            if version is None:
                self.findings.append(error(step.failed, change.resource, str(problem)))
        if version is None:
            self.failed[change.resource] = step.failed
            return
        address = graph_address(graph_id)
        self.observations[address] = GraphObservation(
            address=address,
            graph_uri=view.uri,
            observed_at=timestamp(),
            exists=True,
            graph_manifest_version=version,
            schema_digest=source.digest,
            desired_schema_digest=source.digest,
            schema_matches_desired=True,
        )

    def skip(self, resource: str, step: Step) -> None:
        message = "it was not tried, because an earlier step failed; run apply again"
        self.findings.append(warning(step.skipped, resource, message))
        self.failed[resource] = step.skipped


def _version_with_schema(uri: str, source: Source) -> int | None:
    """The version of the graph, if it has the wanted schema after all."""
    try:
        graph = look_at(uri)
    except OmniGraphError:
        return None  # the failure of the step itself is reported
    is_wanted = graph.schema is not None and file_digest(graph.schema.encode()) == source.digest
    return graph.version if is_wanted else None


def of_kind(changes: tuple[ClusterChange, ...], kind: Kind, operation: ResourceOperation) -> list[ClusterChange]:
    """The changes of a kind that will be applied, in the order of their addresses."""
    return [
        change
        for change in changes
        if change.disposition is ChangeDisposition.APPLIED
        and change.operation is operation
        and address_of(change).kind is kind
    ]


_WRITES_AT_ONCE: Final = 8


def apply(source: str, read_pipeline: ReadPipeline, *, actor: str | None = None) -> ClusterApplied:
    command_run = CommandRun(source)
    run: _Run | None = None

    def carry_out(session: Session, desired: Desired) -> None:
        nonlocal run  # the report of a failed run includes what it has done
        recorded = require_state(session)
        refuse_uncovered(recorded.state)
        run = _Run(session, desired, recorded, actor)
        try:
            run.carry_out()
        except ClusterError as problem:
            run.give_up(problem.codes[0])
            raise

    command_run.run("apply", read_pipeline, carry_out)
    changes = run.changes if run is not None else ()
    held = (ChangeDisposition.DEFERRED, ChangeDisposition.BLOCKED)
    return command_run.report(
        ClusterApplied,
        actor=actor,
        changes=changes,
        applied_count=sum(change.disposition is ChangeDisposition.APPLIED for change in changes),
        deferred_count=sum(change.disposition in held for change in changes),
        converged=run is not None and run.converged and command_run.ok,
        state_written=run is not None and run.state_written,
    )


@dataclass
class _Run:
    """One apply. Its fields are valid for a report at any moment."""

    session: Session
    desired: Desired
    base: LedgerRevision
    actor: str | None
    changes: tuple[ClusterChange, ...] = ()
    converged: bool = False
    state_written: bool = False

    def carry_out(self) -> None:
        session, desired = self.session, self.desired
        preview = make_preview(session, desired, actor=self.actor)
        session.findings += [*preview.reconciliation.findings, *preview.gates.findings]
        session.findings += [damaged.finding("it is stored again") for damaged in preview.damaged]
        self.changes = preview.changes
        graph_changes = GraphChanges(desired, preview.reconciliation.views, self.actor)
        deletes = of_kind(preview.changes, Kind.GRAPH, ResourceOperation.DELETE)
        if deletes or any(of_kind(preview.changes, kind, operation) for kind, operation in _MOVING):
            session.ledger.refuse_overtaken(self.base)
        graph_changes.run(preview.changes)
        if graph_changes.failed:
            session.ledger.refuse_overtaken(self.base)
            for change in deletes:
                graph_changes.skip(change.resource, DELETE)
        else:
            graph_changes.refuse_exported(preview.changes)
        session.findings += graph_changes.findings
        self.changes = demote(preview.changes, graph_changes.failed, preview.before, desired.resources)
        session.findings += unapplied_findings(self.changes)
        self._store_payloads(preview)
        deleted = of_kind(self.changes, Kind.GRAPH, ResourceOperation.DELETE)
        approvals = {change.resource: _approval(preview, change) for change in deleted}
        builder = self._next_state(preview, graph_changes, approvals)
        if builder.differs_from(self.base.state):
            written = Written("apply", self.actor, timestamp())
            session.recorded = session.ledger.create(builder.state(written), self.base)
            self.state_written = True
        self._remove(preview, deleted)
        for approval in approvals.values():
            session.findings += mark_spent(session.objects, approval, builder.approval_records[approval.approval_id])

    def give_up(self, reason: str) -> None:
        """Report nothing as applied, because no state was created. The next apply finds the changed graphs."""
        self.changes = tuple(
            block(change, reason) if change.disposition is ChangeDisposition.APPLIED else change
            for change in self.changes
        )

    def _store_payloads(self, preview: Preview) -> None:
        """Store the payloads of the next state, and replace damaged ones of the last."""
        changed = [
            change.resource
            for change in self.changes
            if change.disposition is ChangeDisposition.APPLIED and change.operation is not ResourceOperation.DELETE
        ]
        repaired = [damaged.address for damaged in preview.damaged if damaged.damage is not Damage.READ_ERROR]

        def write(resource: str) -> list[Diagnostic]:
            source = self.desired.sources.get(resource)
            if source is None or payload_path(resource, source.digest) is None:
                return []
            try:
                source.refuse_changed(resource)
                self.session.catalog.write(resource, source.data)
            except ClusterError as problem:
                return list(problem.diagnostics)
            except StorageError as problem:
                return [error("resource_payload_write_error", resource, str(problem))]
            return []

        with ThreadPoolExecutor(_WRITES_AT_ONCE, thread_name_prefix="omnigraph-catalog") as writers:
            findings = [finding for findings in writers.map(write, [*changed, *repaired]) for finding in findings]
        if findings:
            raise ClusterError(findings)

    def _next_state(self, preview: Preview, made: GraphChanges, approvals: dict[str, Approval]) -> StateBuilder:
        """The next state: with the applied changes, without deleted resources, with the status of blocked changes."""
        builder, desired = preview.builder, self.desired
        for change in self.changes:
            self._record(builder, change)
        builder.observations.update(made.observations)
        for resource, approval in approvals.items():
            builder.forget_graph(resource.removeprefix("graph."))
            now, approval_id = timestamp(), approval.approval_id
            builder.approval_records[approval_id] = ApprovalRecord(now, "apply")
            builder.observations[resource] = GraphTombstone(deleted_at=now, approval_id=approval_id, actor=self.actor)
        self._record_settings(builder)
        residual = {change.resource for change in difference(builder.state().resources, desired.resources)}
        damaged = {payload.address for payload in preview.damaged if payload.damage is Damage.READ_ERROR}
        _update_statuses(builder, {*residual, *damaged}, preview.reconciliation.pending)
        self.converged = not residual and not preview.reconciliation.pending
        if self.converged:
            builder.config_digest = desired.config_digest
        return builder

    def _record(self, builder: StateBuilder, change: ClusterChange) -> None:
        if change.disposition is ChangeDisposition.APPLIED:
            if change.operation is ResourceOperation.DELETE:
                builder.forget(change.resource)
            else:
                wanted, had = self.desired.resources[change.resource], builder.resources.get(change.resource)
                if had is not None and (kept := bound_until_deleted(had, self.changes)):
                    scopes = tuple(sorted({*(wanted.applies_to or ()), *kept}))
                    wanted = msgspec.structs.replace(wanted, applies_to=scopes)
                builder.resources[change.resource] = wanted
                builder.set_status(change.resource, StatusKind.APPLIED)
        elif change.disposition is not ChangeDisposition.DERIVED and change.reason != RECOVERY_PENDING:
            builder.set_status(change.resource, StatusKind.BLOCKED, change.reason)

    def _record_settings(self, builder: StateBuilder) -> None:
        """Record the settings of graphs. A graph whose change is blocked keeps its blob policy."""
        held = {change.resource for change in self.changes if change.disposition is ChangeDisposition.BLOCKED}
        for graph_id in self.desired.file.config.graphs:
            address = graph_address(graph_id)
            if (had := builder.resources.get(address)) is not None:
                wanted = self.desired.resources[address]
                is_held = not held.isdisjoint((address, schema_address(graph_id)))
                builder.resources[address] = msgspec.structs.replace(
                    had,
                    embedding_provider=wanted.embedding_provider,
                    external_blob_policy=had.external_blob_policy if is_held else wanted.external_blob_policy,
                )

    def _remove(self, preview: Preview, deleted: list[ClusterChange]) -> None:
        """Remove the folders of deleted graphs, including those that an earlier apply did not remove."""
        views = preview.reconciliation.views
        self.session.findings += leftover_findings(views)
        for change in deleted:
            graph_id = address_of(change).name
            self._remove_root(change.resource, graph_folder(graph_id, self.base.state.generation(graph_id)))
        for folder in views.leftovers:
            self._remove_root(folder, folder)

    def _remove_root(self, path: str, folder: str) -> None:
        try:
            remove_graph_folder(self.session.objects, folder)
        except StorageError as problem:
            remains = f"files below {folder} are still there; the next apply removes them ({problem})"
            self.session.findings.append(error(DELETE.failed, path, f"it is deleted, but {remains}"))


def _update_statuses(builder: StateBuilder, open_: Collection[str], pending: Collection[str]) -> None:
    """Mark resources that match the configuration as applied; drop the status of deleted ones."""
    for text in {*builder.resources, *builder.resource_statuses}:
        address = Address.parse(text)
        if text in open_ or (address is not None and address.graph in pending):
            continue
        if text in builder.resources:
            builder.set_status(text, StatusKind.APPLIED)
        else:
            del builder.resource_statuses[text]


_MOVING: Final = ((Kind.GRAPH, ResourceOperation.CREATE), (Kind.SCHEMA, ResourceOperation.UPDATE))


def _approval(preview: Preview, change: ClusterChange) -> Approval:
    """The approval of a delete. The classification has checked it already; no delete relies on a single check."""
    approval = preview.gates.approvals.get(change.resource)
    if approval is None or approval.consumed_at is not None or approval.resource != change.resource:
        message = "its delete has no approval; nothing was recorded or removed"
        raise ClusterError.of("apply_approval_invariant_violation", change.resource, message)
    return approval
