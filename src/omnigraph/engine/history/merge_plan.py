"""The plan of a merge: what every table becomes, what the target gains, and what conflicts.

`merge` and `preview` call it. It reads the three pinned states and stages nothing by itself. The side whose schema
holds receives, the other gives; the receiver satisfies all rules, so only transferred entities are validated, and all
violations are reported together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow.compute as pc
from msgspec.structs import replace as replace_struct

from omnigraph.api.branches import MergeConflict, Resolutions
from omnigraph.api.enums import ConflictKind, Side
from omnigraph.api.governance import Limits
from omnigraph.api.history import EntityChange
from omnigraph.engine.history.diff import TypeDelta, TypePair, entity_changes, published_in, type_delta
from omnigraph.engine.history.merge_decision import (
    Decision,
    States,
    Transfer,
    conflict,
    decide_entities,
    schema_side,
    with_values,
)
from omnigraph.engine.resources import Resources
from omnigraph.engine.rows.kernels.records import missing_value
from omnigraph.engine.rows.kernels.typed_rows import forbidden_values
from omnigraph.engine.rows.type_state import TypeState, type_of
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
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.storage.log.branches import BranchHead
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables import StagedTable
from omnigraph.storage.tables.staging import NO_CHANGES


@dataclass(frozen=True, slots=True)
class Orphan:
    """An edge that one side has and a node that the other side deleted."""

    edge: tuple[str, str]
    node: tuple[str, str]
    edge_side: Side


@dataclass(frozen=True, slots=True)
class Validation:
    """Every violation as a conflict, and those of them that are edges without a node, which a resolution may settle.
    `subjects` are the entities that conflicts over a value are about and do not name."""

    conflicts: list[MergeConflict]
    orphans: dict[MergeConflict, Orphan]
    subjects: dict[MergeConflict, str]


def validate(receiver: WriteTxn, change: GraphChange, giving: Side) -> Validation:
    """Check `change`, which the side `giving` brings, against the receiver's state."""
    image = FinalImage(receiver, change)
    order = [change.by_type[key] for key in sorted(change.by_type)]
    validation = Validation([], {}, {})
    for type_change in order:
        for reported, entity_id in _broken_values(type_change):
            validation.conflicts.append(reported)
            validation.subjects[reported] = entity_id
    for type_change in order:
        shared = sorted(shared_values(image, type_change), key=lambda violation: violation.entity_id or "")
        validation.conflicts.extend(_as_conflict(ConflictKind.UNIQUE_VIOLATION, violation) for violation in shared)
    for violation, edge_side in _orphans(image, order, giving):
        reported = _as_conflict(ConflictKind.ORPHAN_EDGE, violation)
        validation.conflicts.append(reported)
        if violation.absent_node is not None and violation.entity_id is not None:
            edge = (violation.type_key, violation.entity_id)
            validation.orphans[reported] = Orphan(edge, violation.absent_node, edge_side)
    for type_change in order:
        for violation in miscounted_sources(image, type_change):
            # A source has the wrong number of edges, so no single edge is to blame.
            validation.conflicts.append(
                _as_conflict(ConflictKind.CARDINALITY_VIOLATION, replace(violation, entity_id=None))
            )
    return validation


def _orphans(image: FinalImage, order: Sequence[TypeChange], giving: Side) -> list[tuple[Violation, Side]]:
    """Brought edges onto nodes that are gone, and edges that stay while the change takes their node."""
    violations = [(violation, giving) for violation in dangling_edges(image, order)]
    for change in order:
        violations += [(violation, giving.other) for violation in orphaned_edges(image, change)]
    return sorted(violations, key=lambda one: (one[0].type_key, one[0].entity_id or "", one[0].reason))


def _broken_values(change: TypeChange) -> Iterator[tuple[MergeConflict, str]]:
    """`@range`, `@check` and enums; and nulls where the schema that the rows are carried into wants a value."""
    for prop in change.type.property_list:
        if not prop.type.nullable and not prop.type.is_blob:
            for row in np.flatnonzero(pc.is_null(change.rows.column(prop.column)).to_numpy()).tolist():
                sentence = missing_value(change.type, prop)
                yield _value_conflict(change, row, sentence.rule, prop.name, sentence.text(property=prop.name))
    for violation in forbidden_values(change.type, change.rows):
        yield _value_conflict(change, violation.row, violation.rule, violation.property, violation.reason)


def _value_conflict(
    change: TypeChange, row: int, rule: ConstraintRule, property: str, reason: str
) -> tuple[MergeConflict, str]:
    entity_id: str = change.ids[row].as_py()
    kind = ConflictKind.VALUE_CONSTRAINT_VIOLATION
    return conflict(kind, change.type_key, None, f"{reason} (entity '{entity_id}')", rule, property), entity_id


def _as_conflict(kind: ConflictKind, violation: Violation) -> MergeConflict:
    rule, property = violation.sentence.rule, violation.property or ", ".join(violation.members) or None
    return conflict(kind, violation.type_key, violation.entity_id, violation.reason, rule, property)


@dataclass(frozen=True)
class ThreeStates:
    """What a three-way merge looks at: two heads and their base."""

    base: Snapshot
    source: BranchHead
    target: BranchHead
    intent: Intent

    @property
    def resources(self) -> Resources:
        return self.base.resources

    @property
    def root(self) -> GraphRoot:
        return self.base.root

    def head(self, side: Side) -> BranchHead:
        return self.target if side is Side.OURS else self.source

    def snapshot(self, side: Side) -> Snapshot:
        head = self.head(side)
        return Snapshot(self.resources, head.ref.branch, head.entry)

    def txn(self, side: Side) -> WriteTxn:
        """A view of one side for the constraint stage; nothing is ever published through it."""
        head = self.head(side)
        return WriteTxn(self.resources, head.ref, head.entry, self.intent)


@dataclass
class TypeMerge:
    """One lifetime of a type that the merged graph has, read by the declaration that the merged graph has.

    `base` is None for a type that one side created; the other side's state is None then too.
    """

    root: GraphRoot
    type: TableType
    base: TableState | None
    states: Mapping[Side, TableState | None]
    overrides: dict[str, Side] = field(default_factory=dict)

    def state(self, side: Side) -> TypeState | None:
        stored = self.states[side]
        return None if stored is None else TypeState(self.root.reader, self.type, stored)

    def touched_by(self, side: Side) -> bool:
        """Whether a side has another version than the base; its rows may still be the same."""
        stored = self.states[side]
        return stored is not None and (self.base is None or stored.version != self.base.version)

    def delta(self, side: Side) -> TypeDelta:
        return self._theirs if side is Side.THEIRS else self._ours

    @cached_property
    def _theirs(self) -> TypeDelta:
        return self._since_base(Side.THEIRS)

    @cached_property
    def _ours(self) -> TypeDelta:
        return self._since_base(Side.OURS)

    def _since_base(self, side: Side) -> TypeDelta:
        before = None if self.base is None else TypeState(self.root.reader, self.type, self.base)
        return type_delta(TypePair(before, self.state(side)))

    def decide(self, resolutions: Resolutions, otherwise: Side | None = None) -> Decision:
        """By the decision of a person; for undecided entities, `otherwise` if there is one."""

        def decide(kind: ConflictKind, type_key: str, entity_id: str) -> Side | None:
            return resolutions.decide(kind, type_key, entity_id) or otherwise

        return decide_entities(self.delta(Side.THEIRS), self.delta(Side.OURS), decide, self.overrides)

    @property
    def one_sided(self) -> Side | None:
        """The only side that touched the table: its version is the merged one, whatever rows it changed."""
        touched = [side for side in Side if self.touched_by(side)]
        return touched[0] if len(touched) == 1 and not self.overrides else None


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
        return self.states.head(self.receiver).entry.schema

    def target_changes(self) -> Iterator[EntityChange]:
        """What the target gains, in the order of a diff."""
        before, theirs = published_in(self.states.base), published_in(self.states.snapshot(Side.THEIRS))
        for merge in self.types:
            decision = self.decisions.get(merge.type.type_key)
            if merge.states[Side.OURS] is None:
                yield from entity_changes(merge.delta(Side.THEIRS), before, theirs)
            elif decision is not None:
                yield from decision.to_target.entity_changes(theirs[decision.to_target.giver.state.path])

    def stage_tables(self) -> dict[str, StagedTable]:
        """The merged table of every type, staged where rows have to be written, in parallel."""
        root = self.states.root
        futures = {m.type.type_key: root.workers.submit(self._merged_table, m) for m in self.types}
        return {key: future.result() for key, future in futures.items()}

    def _merged_table(self, merge: TypeMerge) -> StagedTable:
        decision, alone = self.decisions.get(merge.type.type_key), merge.one_sided
        if decision is None:
            state = _existing(merge, alone or Side.OURS)
            created = merge.states[Side.OURS] is None
            return StagedTable(state, ChangeCounts(inserted=state.rows) if created else NO_CHANGES)
        counts = decision.to_target.counts
        carrier, transfer = self._cheaper(decision)
        if alone is not None or not len(transfer):
            return StagedTable(_existing(merge, alone or carrier), counts)
        change = transfer.change(blobs=True)
        _refuse_too_much(change.type_key, transfer, change.rows.nbytes, self.states.resources.limits)
        job = change.staging_job(self.states.root.staging)
        return StagedTable(job(_existing(merge, carrier)).state, counts)

    def _cheaper(self, decision: Decision) -> tuple[Side, Transfer]:
        """The side to build on, and what it takes over. Only the schema's own side has all columns when they differ."""
        same_schema = self.states.source.entry.schema == self.states.target.entry.schema
        receiver = self.receiver
        if same_schema and len(decision.to_source) < len(decision.to_target):
            receiver = Side.THEIRS
        return receiver, decision.to_target if receiver is Side.OURS else decision.to_source


def plan_merge(states: ThreeStates, resolutions: Resolutions) -> MergePlan:
    """Decide every type, then validate; settle what a person decided about orphans, and validate again.

    Every conflict is reported at once: where entities are in conflict, what would be broken is looked for with either
    side taken in all of them.
    """
    source, target = states.snapshot(Side.THEIRS), states.snapshot(Side.OURS)
    receiver = schema_side(states.base, source, target)
    if not isinstance(receiver, Side):
        return MergePlan(states, Side.OURS, [], {}, receiver)
    types = list(_merged_types(states, receiver))
    lost = list(_changes_of_dropped_types(states, receiver))
    while True:
        undecided = [merge for merge in types if _needs_decision(merge, receiver.other)]
        decided = states.root.workers.map(lambda merge: merge.decide(resolutions), undecided)
        decisions = {merge.type.type_key: decision for merge, decision in zip(undecided, decided, strict=True)}
        structural = [*lost, *(c for key in sorted(decisions) for c in decisions[key].conflicts)]
        if structural:
            validation = _violations_of_either_side(states, types, receiver, resolutions)
            conflicts = with_values([*structural, *validation.conflicts], _three_states(types), validation.subjects)
            return MergePlan(states, receiver, types, decisions, conflicts)
        change = _brought(decisions, receiver, states.resources.limits)
        validation = validate(states.txn(receiver), change, receiver.other)
        if not _reconcile(types, validation.orphans, resolutions):
            conflicts = with_values(validation.conflicts, _three_states(types), validation.subjects)
            return MergePlan(states, receiver, types, decisions, conflicts)


def _violations_of_either_side(
    states: ThreeStates, types: list[TypeMerge], receiver: Side, resolutions: Resolutions
) -> Validation:
    """What would be broken if one side were taken in every conflict that is open, for both sides. An orphan that a
    person decided about is settled once the rest is."""
    by_side: dict[Side, Validation] = {}
    for side in Side:
        needing = [merge for merge in types if _needs_decision(merge, receiver.other)]
        decided = states.root.workers.map(lambda merge, side=side: merge.decide(resolutions, side), needing)
        decisions = {merge.type.type_key: each for merge, each in zip(needing, decided, strict=True)}
        change = _brought(decisions, receiver, states.resources.limits)
        by_side[side] = validate(states.txn(receiver), change, receiver.other)
    all_found = Validation([], {}, {})
    known: set[MergeConflict] = set()
    for side, validation in by_side.items():
        others = set(by_side[side.other].conflicts)
        for each in validation.conflicts:
            orphan = validation.orphans.get(each)
            if orphan is not None and resolutions.decide(ConflictKind.ORPHAN_EDGE, *orphan.edge) is not None:
                continue
            if each in others:
                reported = each
            else:
                message = f"{each.message}, if {side} is taken in the conflicts of entities that both sides changed"
                reported = replace_struct(each, message=message, only_if=side)
            if reported not in known:
                known.add(reported)
                all_found.conflicts.append(reported)
                if each in validation.subjects:
                    all_found.subjects[reported] = validation.subjects[each]
    return all_found


def _three_states(types: list[TypeMerge]) -> dict[str, States]:
    return {
        merge.type.type_key: {
            "base": None if merge.base is None else TypeState(merge.root.reader, merge.type, merge.base),
            **{side.value: merge.state(side) for side in Side},
        }
        for merge in types
    }


def _merged_types(states: ThreeStates, receiver: Side) -> Iterator[TypeMerge]:
    """One per type of the receiver's schema, with the versions of the same lifetime elsewhere."""
    entry = states.head(receiver).entry
    catalog: Catalog = states.snapshot(receiver).catalog
    base = _by_lifetime(states.base.entry.tables)
    other = _by_lifetime(states.head(receiver.other).entry.tables)
    for type_key, state in sorted(entry.tables.items()):
        type_ = type_of(catalog, type_key)
        if type_ is None:
            raise AssertionError(f"the schema of commit {entry.commit.id} has no type for its table {type_key}")
        counterpart = other.get(state.table_id)
        yield TypeMerge(states.root, type_, base.get(state.table_id), {receiver: state, receiver.other: counterpart})


def _changes_of_dropped_types(states: ThreeStates, receiver: Side) -> Iterator[MergeConflict]:
    """Entities that one side changed in a type that the other side's schema no longer has."""
    kept = _by_lifetime(states.head(receiver).entry.tables)
    base = _by_lifetime(states.base.entry.tables)
    giver = states.snapshot(receiver.other)
    for type_key, state in sorted(TypeState.all_of(giver).items()):
        if state.lifetime in kept:
            continue
        before = base.get(state.lifetime)
        pair = TypePair(None if before is None else TypeState(states.root.reader, state.type, before), state)
        if before is None or len(type_delta(pair)):
            dropper = states.head(receiver).ref.branch
            message = f"{type_key} was dropped on '{dropper}' while '{giver.branch}' changed its entities"
            yield conflict(ConflictKind.SCHEMA_DIVERGENCE, type_key, None, message)


def _needs_decision(merge: TypeMerge, giver: Side) -> bool:
    """Entities are looked at where the giver brings something, the target gains something, or a person decided."""
    both_exist = all(merge.states[side] is not None for side in Side)
    return both_exist and (merge.touched_by(giver) or merge.touched_by(Side.THEIRS) or bool(merge.overrides))


def _brought(decisions: Mapping[str, Decision], receiver: Side, limits: Limits) -> GraphChange:
    """What the receiver takes over, for the constraint stage."""
    changes = []
    for type_key, decision in decisions.items():
        transfer = decision.to_target if receiver is Side.OURS else decision.to_source
        if len(transfer):
            change = transfer.change(blobs=False)
            _refuse_too_much(type_key, transfer, change.rows.nbytes, limits)
            changes.append(change)
    return GraphChange.of(*changes)


def _reconcile(types: list[TypeMerge], orphans: Mapping[MergeConflict, Orphan], resolutions: Resolutions) -> bool:
    """Turn decisions about orphans into decisions about entities: bring the node back, or let the edge go with it."""
    by_key = {merge.type.type_key: merge for merge in types}
    settled = False
    for orphan in orphans.values():
        side = resolutions.decide(ConflictKind.ORPHAN_EDGE, *orphan.edge)
        if side is None:
            continue
        type_key, entity_id = orphan.node if side is orphan.edge_side else orphan.edge
        merge = by_key[type_key]
        if merge.overrides.get(entity_id) is not side:
            merge.overrides[entity_id] = side
            settled = True
    return settled


def _existing(merge: TypeMerge, side: Side) -> TableState:
    state = merge.states[side]
    if state is None:
        raise AssertionError(f"{merge.type.type_key} does not exist on the side that was chosen for it")
    return state


def _refuse_too_much(type_key: str, transfer: Transfer, size: int, limits: Limits) -> None:
    if len(transfer) > limits.rows:
        raise ResourceLimitError(f"merged entities for {type_key}", limits.rows, len(transfer))
    if size > limits.bytes:
        raise ResourceLimitError(f"merged entity bytes for {type_key}", limits.bytes, size)


def _by_lifetime(tables: Mapping[str, TableState]) -> dict[str, TableState]:
    return {state.table_id: state for state in tables.values()}
