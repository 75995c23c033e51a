"""The plan of a merge: what every table becomes, what the target gains, and what conflicts.

`merge` and `preview` call it. It reads the three pinned states and stages nothing by itself. The side whose schema
holds receives, the other gives; the receiver satisfies all rules, so only transferred entities are validated, and all
violations are reported together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow.compute as pc
from msgspec.structs import replace as replace_struct

from omnigraph.api.branches import MergeConflict, Resolutions
from omnigraph.api.enums import ConflictKind, Operation, Side
from omnigraph.api.governance import Limits
from omnigraph.api.history import EntityChange
from omnigraph.engine.history.diff import OP, TypeDelta, TypePair, entity_changes, published_in, type_delta
from omnigraph.engine.history.merge_decision import (
    BASE,
    Decision,
    Finding,
    Orphan,
    States,
    decide_entities,
    schema_conflict,
    schema_side,
    with_values,
)
from omnigraph.engine.rows.kernels.records import missing_value
from omnigraph.engine.rows.kernels.typed_rows import forbidden_values
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.engine.write.constraints import (
    FinalImage,
    Violation,
    dangling_edges,
    miscounted_sources,
    orphaned_edges,
    shared_values,
)
from omnigraph.engine.write.publish import Intent, WriteTxn
from omnigraph.errors import ConstraintRule, ResourceLimitError
from omnigraph.language.catalog import TableType
from omnigraph.storage.log.branches import BranchHead
from omnigraph.storage.models import ChangeCounts, LogEntry, TableState
from omnigraph.storage.tables.rows import row_ids_of
from omnigraph.storage.tables.staging import NO_CHANGES, StagedTable


def violations(receiver: WriteTxn, change: GraphChange, giving: Side) -> Iterator[Finding]:
    """Everything that `change`, which the side `giving` brings, would break in the receiver's state."""
    image = FinalImage(receiver, change)
    order = [change.by_type[key] for key in sorted(change.by_type)]
    for type_change in order:
        yield from _broken_values(type_change)
    for type_change in order:
        for violation in sorted(shared_values(image, type_change), key=lambda violation: violation.entity_id or ""):
            yield Finding(_as_conflict(ConflictKind.UNIQUE_VIOLATION, violation))
    # Edges that are brought onto nodes that are gone, and edges that stay while the change takes their node.
    orphans = [(violation, giving) for violation in dangling_edges(image, order)]
    orphans += [(violation, giving.other) for each in order for violation in orphaned_edges(image, each)]
    orphans.sort(key=lambda orphan: (orphan[0].type_key, orphan[0].entity_id or "", orphan[0].reason))
    for violation, edge_side in orphans:
        orphan = None
        if violation.absent_node is not None and violation.entity_id is not None:
            orphan = Orphan((violation.type_key, violation.entity_id), violation.absent_node, edge_side)
        yield Finding(_as_conflict(ConflictKind.ORPHAN_EDGE, violation), orphan=orphan)
    for type_change in order:
        for violation in miscounted_sources(image, type_change):
            # A source has the wrong number of edges, so no single edge is to blame.
            yield Finding(_as_conflict(ConflictKind.CARDINALITY_VIOLATION, replace(violation, entity_id=None)))


def _broken_values(change: TypeChange) -> Iterator[Finding]:
    """`@range`, `@check` and enums; and nulls where the schema that the rows are carried into wants a value."""

    def finding(row: int, rule: ConstraintRule, property: str, reason: str) -> Finding:
        entity_id: str = change.ids[row].as_py()
        kind, message = ConflictKind.VALUE_CONSTRAINT_VIOLATION.value, f"{reason} (entity '{entity_id}')"
        return Finding(MergeConflict.of(change.type_key, None, kind, message, rule, property), entity_id)

    for prop in change.type.property_list:
        if not prop.type.nullable and not prop.type.is_blob:
            sentence = missing_value(change.type, prop)
            for row in np.flatnonzero(pc.is_null(change.rows.column(prop.column)).to_numpy()).tolist():
                yield finding(row, sentence.rule, prop.name, sentence.text(property=prop.name))
    for violation in forbidden_values(change.type, change.rows):
        yield finding(violation.row, violation.rule, violation.property, violation.reason)


def _as_conflict(kind: ConflictKind, violation: Violation) -> MergeConflict:
    rule, property = violation.sentence.rule, violation.property or ", ".join(violation.members) or None
    return MergeConflict.of(violation.type_key, violation.entity_id, kind.value, violation.reason, rule, property)


@dataclass(frozen=True)
class ThreeStates:
    """What a three-way merge looks at: two heads and their base."""

    base: Snapshot
    heads: Mapping[Side, BranchHead]
    intent: Intent

    def entry(self, side: Side) -> LogEntry:
        return self.heads[side].entry

    def snapshot(self, side: Side) -> Snapshot:
        return Snapshot(self.base.resources, self.heads[side].ref.branch, self.entry(side))

    def txn(self, side: Side) -> WriteTxn:
        """A view of one side for the constraint stage; nothing is ever published through it."""
        return WriteTxn(self.base.resources, self.heads[side].ref, self.entry(side), self.intent)


@dataclass
class TypeMerge:
    """One lifetime of a type, read by the declaration that the merged graph has. The base is None for a type that one
    side created; the other side's state is None then too."""

    type: TableType
    states: States
    overrides: dict[str, Side] = field(default_factory=dict)
    taken_from: Side | None = None
    """The side whose table is taken as it is, because the other one brings nothing."""
    _deltas: dict[Side, TypeDelta] = field(default_factory=dict)

    def touched_by(self, side: Side) -> bool:
        """Whether a side has another version than the base; its rows may still be the same."""
        base, state = self.states[BASE], self.states[side]
        return state is not None and (base is None or state.state.version != base.state.version)

    def delta(self, side: Side) -> TypeDelta:
        """The changes of a side since the base."""
        if side not in self._deltas:
            self._deltas[side] = type_delta(TypePair(self.states[BASE], self.states[side]))
        return self._deltas[side]

    def needs_decision(self, giver: Side) -> bool:
        """Entities are compared where the giver brings something, the target gains something, or a person decided."""
        if self.taken_from is not None:
            return False
        both_exist = all(self.states[side] is not None for side in Side)
        return both_exist and (self.touched_by(giver) or self.touched_by(Side.THEIRS) or bool(self.overrides))

    def table_on(self, side: Side) -> TableState:
        state = self.states[side]
        if state is None:
            raise AssertionError(f"{self.type.type_key} does not exist on the side that was chosen for it")
        return state.state


@dataclass(frozen=True)
class MergePlan:
    """A merge that is decided. With conflicts it goes no further."""

    states: ThreeStates
    receiver: Side
    types: list[TypeMerge]
    decisions: Mapping[str, Decision]
    conflicts: list[MergeConflict]

    @property
    def schema(self) -> str:
        return self.states.entry(self.receiver).schema

    def target_changes(self) -> Iterator[EntityChange]:
        """What the target gains, in the order of a diff."""
        theirs = published_in(self.states.snapshot(Side.THEIRS))
        for merge in self.types:
            decision = self.decisions.get(merge.type.type_key)
            if merge.states[Side.OURS] is None:
                yield from entity_changes(merge.delta(Side.THEIRS), theirs, theirs)
            elif decision is not None:
                yield from entity_changes(decision.to_target, theirs, theirs)

    def stage_tables(self) -> dict[str, StagedTable]:
        """The merged table of every type, staged where rows have to be written, in parallel."""
        workers = self.states.base.root.workers
        futures = {merge.type.type_key: workers.submit(self._merged_table, merge) for merge in self.types}
        return {key: future.result() for key, future in futures.items()}

    def _merged_table(self, merge: TypeMerge) -> StagedTable:
        if merge.taken_from is not None:
            return StagedTable(merge.table_on(merge.taken_from))
        decision = self.decisions.get(merge.type.type_key)
        # The version of the only side that touched a table is the merged one, whatever rows it changed.
        touched = [side for side in Side if merge.touched_by(side)]
        alone = touched[0] if len(touched) == 1 and not merge.overrides else None
        if decision is None:
            state = merge.table_on(alone or Side.OURS)
            created = merge.states[Side.OURS] is None
            return StagedTable(state, ChangeCounts(inserted=state.rows) if created else NO_CHANGES)
        counts, carrier = decision.to_target.counts, self.receiver
        # The side with less to take over carries. Only the schema's own side has all columns when the schemas differ.
        same_schema = self.states.entry(Side.OURS).schema == self.states.entry(Side.THEIRS).schema
        if same_schema and len(decision.to_source) < len(decision.to_target):
            carrier = Side.THEIRS
        transfer = decision.taken_by(carrier)
        if alone is not None or not len(transfer):
            return StagedTable(merge.table_on(alone or carrier), counts)
        change = _change_by(transfer, self.states.base.resources.limits, blobs=True)
        job = change.staging_job(self.states.base.root.staging)
        return StagedTable(job(merge.table_on(carrier)).state, counts)


def plan_merge(states: ThreeStates, resolutions: Resolutions) -> MergePlan:
    """Decide every type, then validate; settle what a person decided about orphans, and validate again. Every conflict
    is reported at once: where entities are in conflict, both sides are tried to find out what would be broken."""
    receiver = schema_side(states.base, states.snapshot(Side.THEIRS), states.snapshot(Side.OURS))
    if not isinstance(receiver, Side):
        return MergePlan(states, Side.OURS, [], {}, receiver)
    types = list(_merged_types(states, receiver))
    lost = [*_changes_of_dropped_types(states, receiver), *_changes_under_another_key(states, types, receiver)]
    while True:
        decisions = _decide(states, types, receiver, resolutions)
        structural = [*lost, *(each for key in sorted(decisions) for each in decisions[key].conflicts)]
        if structural:
            findings = [Finding(each) for each in structural]
            findings += _violations_of_either_side(states, types, receiver, resolutions)
        else:
            findings = _violations_of(states, decisions, receiver)
            if _reconcile(types, findings, resolutions):
                continue
        conflicts = with_values(findings, {merge.type.type_key: merge.states for merge in types})
        return MergePlan(states, receiver, types, decisions, conflicts)


def _decide(
    states: ThreeStates, types: list[TypeMerge], receiver: Side, resolutions: Resolutions, otherwise: Side | None = None
) -> dict[str, Decision]:
    """By the decision of a person; for undecided entities, `otherwise` if there is one."""

    def decide(merge: TypeMerge) -> Decision:
        theirs, ours = merge.delta(Side.THEIRS), merge.delta(Side.OURS)
        return decide_entities(theirs, ours, merge.overrides, resolutions, otherwise)

    undecided = [merge for merge in types if merge.needs_decision(receiver.other)]
    decided = states.base.root.workers.map(decide, undecided)
    return {merge.type.type_key: decision for merge, decision in zip(undecided, decided, strict=True)}


def _violations_of(states: ThreeStates, decisions: Mapping[str, Decision], receiver: Side) -> list[Finding]:
    """What would be broken by what the receiver takes over."""
    limits = states.base.resources.limits
    transfers = [decision.taken_by(receiver) for decision in decisions.values()]
    change = GraphChange.of(*(_change_by(each, limits, blobs=False) for each in transfers if len(each)))
    return list(violations(states.txn(receiver), change, receiver.other))


def _violations_of_either_side(
    states: ThreeStates, types: list[TypeMerge], receiver: Side, resolutions: Resolutions
) -> Iterator[Finding]:
    """What would be broken if one side were taken in every conflict that is open, for both sides. An orphan that a
    person decided about is settled once the rest is."""
    by_side = {
        side: _violations_of(states, _decide(states, types, receiver, resolutions, side), receiver) for side in Side
    }
    reported: set[MergeConflict] = set()
    for side, findings in by_side.items():
        others = {each.conflict for each in by_side[side.other]}
        for each in findings:
            conflict = each.conflict
            if each.orphan and resolutions.decide(ConflictKind.ORPHAN_EDGE, *each.orphan.edge):
                continue
            if conflict not in others:
                message = f"{conflict.message}, if {side} is taken in the conflicts of entities that both sides changed"
                conflict = replace_struct(conflict, message=message, only_if=side)
            if conflict not in reported:
                reported.add(conflict)
                yield Finding(conflict, each.subject)


def _merged_types(states: ThreeStates, receiver: Side) -> Iterator[TypeMerge]:
    """One per type of the receiver's schema, with the versions of the same lifetime elsewhere."""
    entry, catalog, reader = states.entry(receiver), states.snapshot(receiver).catalog, states.base.root.reader
    others = {BASE: _by_lifetime(states.base.entry), receiver.other: _by_lifetime(states.entry(receiver.other))}
    for type_key, state in sorted(entry.tables.items()):
        type_ = catalog.type_of_key(type_key)
        if type_ is None:
            raise AssertionError(f"the schema of commit {entry.commit.id} has no type for its table {type_key}")
        stored = {receiver: state} | {name: tables.get(state.table_id) for name, tables in others.items()}
        by_name = {
            name: None if each is None else TypeState(reader, type_, each, carries=name != receiver)
            for name, each in stored.items()
        }
        yield TypeMerge(type_, by_name)


def _changes_of_dropped_types(states: ThreeStates, receiver: Side) -> Iterator[MergeConflict]:
    """Entities that one side changed in a type that the other side's schema no longer has."""
    kept, base = _by_lifetime(states.entry(receiver)), _by_lifetime(states.base.entry)
    giver, dropper = states.snapshot(receiver.other), states.heads[receiver].ref.branch
    for type_key, state in sorted(TypeState.all_of(giver).items()):
        if state.lifetime in kept:
            continue
        before = base.get(state.lifetime)
        if before is None or len(type_delta(TypePair(TypeState(state.reader, state.type, before), state))):
            message = f"{type_key} was dropped on '{dropper}' while '{giver.branch}' changed its entities"
            yield schema_conflict(type_key, message)


def _changes_under_another_key(
    states: ThreeStates, types: Sequence[TypeMerge], receiver: Side
) -> Iterator[MergeConflict]:
    """Edges that one side changed while the other gave their type a key, and so every edge another id. Where nothing
    was changed the side with the key is taken as it is."""
    giver, base = states.snapshot(receiver.other), states.base
    theirs = {each.lifetime: each for each in TypeState.all_of(giver).values()}
    before = {each.lifetime: each for each in TypeState.all_of(base).values()}
    for merge in types:
        lifetime = merge.table_on(receiver).table_id
        old, new = before.get(lifetime), theirs.get(lifetime)
        if old is None or new is None or bool(new.type.key) == bool(merge.type.key):
            continue
        merge.taken_from = receiver
        if len(type_delta(TypePair(old, new))):
            type_key, branch = merge.type.type_key, giver.branch
            message = (
                f"{type_key} got a key on '{states.heads[receiver].ref.branch}' while '{branch}' changed its edges; "
                f"apply the same schema to '{branch}' first, then merge"
            )
            yield schema_conflict(type_key, message)


def _reconcile(types: list[TypeMerge], findings: Sequence[Finding], resolutions: Resolutions) -> bool:
    """Turn decisions about orphans into decisions about entities: bring the node back, or let the edge go with it."""
    by_key = {merge.type.type_key: merge for merge in types}
    settled = False
    for orphan in (each.orphan for each in findings if each.orphan):
        side = resolutions.decide(ConflictKind.ORPHAN_EDGE, *orphan.edge)
        if side is None:
            continue
        type_key, entity_id = orphan.node if side is orphan.edge_side else orphan.edge
        if by_key[type_key].overrides.get(entity_id) is not side:
            by_key[type_key].overrides[entity_id] = side
            settled = True
    return settled


def _change_by(transfer: TypeDelta, limits: Limits, *, blobs: bool) -> TypeChange:
    """A transfer as a change of the receiver. Without `blobs` it can be checked, but not staged."""
    giver, rows, counts = transfer.pair.newest, transfer.rows, transfer.counts
    deleted = pc.equal(rows.column(OP), Operation.DELETE.value)
    written = giver.rows(row_ids_of(rows.filter(pc.invert(deleted))), blobs=blobs)
    if len(transfer) > limits.rows:
        raise ResourceLimitError(f"merged entities for {giver.type_key}", limits.rows, len(transfer))
    if written.nbytes > limits.bytes:
        raise ResourceLimitError(f"merged entity bytes for {giver.type_key}", limits.bytes, written.nbytes)
    removed = frozenset(rows.filter(deleted).column("id").to_pylist())
    return TypeChange(giver.type, written, deleted=removed, fresh=counts.updated == 0 and counts.deleted == 0)


def _by_lifetime(entry: LogEntry) -> dict[str, TableState]:
    return {state.table_id: state for state in entry.tables.values()}
