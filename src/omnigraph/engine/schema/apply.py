"""Schema changes on a branch: planned against its head, checked, and applied as one commit with the data they need.

`Graph.schema` and clusters call it. The planner of the language decides what is possible, `table_changes` what is
written, `data_checks` what must hold for the stored rows. Every commit keeps its schema, so the past stays readable as
it was, and dropped data until cleanup, or until the same call for a hard drop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.api.enums import PolicyAction
from omnigraph.api.schema import Dedupe, DropProperty, DropType, SchemaApplied, SchemaApplyRequest, SchemaPlan
from omnigraph.engine.history import log_walk
from omnigraph.engine.history.changes import parent_of
from omnigraph.engine.maintenance.cleanup import purge_history
from omnigraph.engine.maintenance.declared_indexes import table_types
from omnigraph.engine.rows.columns import table_schema
from omnigraph.engine.schema.data_checks import refuse_offences, run_checks
from omnigraph.engine.schema.step_effects import with_effects
from omnigraph.engine.schema.table_changes import TableChange
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.change import RequestDigest
from omnigraph.engine.write.publish import Intent, PublishPlan, ReadSet, WriteTxn, receipt_of
from omnigraph.errors import BadRequestError, ConflictError
from omnigraph.language.catalog import Catalog
from omnigraph.language.schema.migration import Evolution, evolve
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.models import LogEntry, TableState
from omnigraph.storage.tables.staging import StagedTable

_KIND: Final = "schema_apply"
_READ_AT_ONCE: Final = 256


def plan_schema(workspace: Workspace, request: SchemaApplyRequest) -> SchemaPlan:
    """The migration from a branch's schema to this one, with what each step does to the tables. Writes nothing, and an
    impossible plan is not an error."""
    state = workspace.snapshot(request.branch)
    evolution = _evolve(state, request)
    if not evolution.plan.supported or not state.visibility.is_unrestricted:
        return evolution.plan  # effects count rows, and offences name them
    return _add_effects(state, evolution, request.dedupe)


def _evolve(state: Snapshot, request: SchemaApplyRequest) -> Evolution:
    return evolve(state.catalog, request.schema_source, allow_data_loss=request.allow_data_loss)


def _add_effects(state: Snapshot, evolution: Evolution, dedupe: Dedupe | None) -> SchemaPlan:
    changes = changed_tables(state, evolution.catalog, dedupe)
    checks = {key: run_checks(change) for key, change in changes.items()}
    return with_effects(evolution, state.catalog.format, changes, checks)


def changed_tables(state: Snapshot, desired: Catalog, dedupe: Dedupe | None) -> dict[str, TableChange]:
    """The tables that both schemas have, and whose declarations differ, by their type keys afterwards."""
    before = {type_.table_incarnation: type_ for type_ in table_types(state.catalog).values()}
    changes = {}
    for type_key, type_ in table_types(desired).items():
        old = before.get(type_.table_incarnation)
        if old is not None and old != type_:
            table = state.entry.tables[old.type_key]
            changes[type_key] = TableChange(state.root.reader, old, type_, table, dedupe)
    return changes


@dataclass(frozen=True, slots=True)
class ManagedChange:
    """The conditions of a schema change that a cluster makes. The graph has to hold the file word for word, so a change
    of a comment is a commit too. And nothing is changed when anybody changed the schema after the version `since`, also
    if it was changed back."""

    since: int
    details: Mapping[str, str]


def apply_schema(
    workspace: Workspace,
    request: SchemaApplyRequest,
    *,
    actor: str | None = None,
    managed: ManagedChange | None = None,
    idempotency_key: str | None = None,
) -> SchemaApplied:
    """Change the schema of a branch, or raise with nothing changed. The same schema again makes no commit."""
    branch = (request.branch or MAIN).strip()
    workspace.require(actor, PolicyAction.SCHEMA_APPLY, target_branch=branch)
    workspace.refuse_restricted("a schema change")
    change = _SchemaChange(request, managed)
    deduped = [request.dedupe] if request.dedupe is not None else []
    digest = RequestDigest(_KIND, branch, request.schema_source, request.allow_data_loss, *deduped).text
    details = managed.details if managed is not None else {}
    intent = Intent(kind=_KIND, actor=actor, idempotency_key=idempotency_key, request_digest=digest, details=details)
    published = workspace.commit(branch, change.prepare, intent)
    if published is not None and published.replayed:
        if published.entry.commit.kind != _KIND:
            raise ConflictError("this idempotency key belongs to a write that is not a schema change; choose another")
        # Plan once more what the earlier call did: from the state that its commit was made on.
        change.plan_from(parent_of(Snapshot(workspace, published.branch, published.entry)))
    if change.before is None or change.evolution is None:
        raise AssertionError("a schema change is always planned")
    plan = change.evolution.plan
    if published is None:
        return SchemaApplied.of(workspace.uri, plan, change.before.version, None)
    paths = _purged_tables(change.before, change.evolution)
    # What came after the change is not the past that it promised to purge.
    past = published.entry if published.replayed else None
    purged = purge_history(workspace, paths, before=past) if paths else None
    commit = receipt_of(published.entry)
    return SchemaApplied.of(workspace.uri, plan, published.version, commit, purged, replayed=published.replayed)


@dataclass
class _SchemaChange:
    """One schema change over all its attempts; every attempt plans anew against the head it captured."""

    request: SchemaApplyRequest
    managed: ManagedChange | None = None
    before: Snapshot | None = None
    evolution: Evolution | None = None

    def plan_from(self, before: Snapshot) -> Evolution:
        self.before = before
        self.evolution = _evolve(before, self.request)
        return self.evolution

    def prepare(self, txn: WriteTxn) -> PublishPlan | None:
        if self.managed is not None:
            _refuse_changed_since(txn, self.managed.since)
        evolution = self.plan_from(txn.snapshot)
        if (blocker := evolution.plan.first_blocker) is not None:
            raise BadRequestError(f"the schema can't be applied: {blocker.entity}: {blocker.blocking_reason}")
        is_said_already = self.managed is None or txn.snapshot.schema_document.source == self.request.schema_source
        if not evolution.plan.steps and is_said_already:
            return None
        plan = self._plan(txn, evolution)
        # A schema that was changed and changed back looks the same; a caller that must not miss that checks again.
        return plan if self.managed is None else replace(plan, read_set=ReadSet(everything=True))

    def _plan(self, txn: WriteTxn, evolution: Evolution) -> PublishPlan:
        desired = evolution.catalog
        changes = changed_tables(txn.snapshot, desired, self.request.dedupe)
        checked = dict(zip(changes, txn.root.workers.map(run_checks, list(changes.values())), strict=True))
        for checks in checked.values():
            refuse_offences(checks)
        staged, added, gone = _stage(txn, desired, changes)
        # Rows that were checked must still be the same when the new rules begin to hold.
        relied_on = frozenset(changes[key].old.type_key for key, checks in checked.items() if checks)
        schema = txn.root.accept_schema(self.request.schema_source, desired.to_json())
        read_set = ReadSet(tables=relied_on)
        return PublishPlan(staged=staged, added=added, dropped=gone, schema=schema, read_set=read_set)


def _refuse_changed_since(txn: WriteTxn, since: int) -> None:
    """A stalled writer must not undo what others have decided meanwhile. Free when nothing was committed since."""
    versions = range(since, txn.base.version + 1) if txn.base.version > since else range(0)
    before: LogEntry | None = None
    for entry in log_walk.in_order(txn.root, txn.ref, versions, _READ_AT_ONCE):
        if before is not None and entry.schema != before.schema:
            raise ConflictError(
                f"the schema was changed meanwhile, in version {entry.version} ({entry.commit.id}); nothing was "
                "changed here, look at the graph again"
            )
        before = entry


def _stage(
    txn: WriteTxn, desired: Catalog, changes: Mapping[str, TableChange]
) -> tuple[dict[str, StagedTable], dict[str, TableState], frozenset[str]]:
    """The tables that are written, those that only get a name or are new, and the names that are gone."""
    before = {type_.table_incarnation: type_ for type_ in table_types(txn.snapshot.catalog).values()}
    wanted = table_types(desired)
    added: dict[str, TableState] = {}
    staged: dict[str, StagedTable] = {}
    staging = {key: txn.root.workers.submit(change.stage, txn.root.staging) for key, change in changes.items()}
    for type_key, type_ in wanted.items():
        old = before.get(type_.table_incarnation)
        if old is None:
            added[type_key] = txn.root.create_table(type_key, table_schema(type_))
            continue
        state = txn.base.tables[old.type_key]
        table = staging[type_key].result() if type_key in staging else StagedTable(state)
        if table.state != state:
            staged[type_key] = table
        elif old.type_key != type_key:
            added[type_key] = state
    kept = {type_.table_incarnation for type_ in wanted.values()}
    # A name may have gone to another type.
    gone = {old.type_key for old in before.values() if old.table_incarnation not in kept or old.type_key not in wanted}
    return staged, added, frozenset(gone)


def _purged_tables(before: Snapshot, evolution: Evolution) -> frozenset[str]:
    """The tables whose past a plan says to purge."""
    now, tables = {t.table_incarnation: t for t in table_types(evolution.catalog).values()}, before.entry.tables
    named: dict[str, str] = {}
    for old in table_types(before.catalog).values():
        new = now.get(old.table_incarnation)
        named[old.type_key] = old.type_key
        if new is not None:
            named[new.type_key] = old.type_key
    paths = set()
    drops = (step for step in evolution.plan.steps if isinstance(step, DropType | DropProperty))
    for step in drops:
        if step.mode == "soft" or step.type_kind == "interface":
            continue  # an interface has no table
        if isinstance(step, DropType):
            paths.add(tables[f"{step.type_kind}:{step.name}"].path)
        else:
            paths.add(tables[named[f"{step.type_kind}:{step.type_name}"]].path)
    return frozenset(paths)
