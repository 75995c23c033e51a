"""The three-way table for the entities of one type.

Both sides say what they changed since the base. What one side changed alone goes to the other; equal changes agree;
different ones conflict, unless a decision settles them. The answer is two transfers, one in each direction, so that
the merged table can be built on whichever side's table needs less work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.branches import MergeConflict
from omnigraph.api.enums import ConflictKind, EntityKind, Operation, Side
from omnigraph.api.history import EntityChange
from omnigraph.engine.history.diff import ends_of
from omnigraph.engine.history.merge.resolution import conflict
from omnigraph.engine.history.type_delta import TypeDelta, equal_entities
from omnigraph.engine.rows.equality import equal_values
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.write.change import TypeChange
from omnigraph.storage.models import ChangeCounts
from omnigraph.storage.tables.rows import ROW_ID, ROW_ID_FIELD, row_ids_of

Decide: TypeAlias = Callable[[ConflictKind, str, str], Side | None]
Overrides: TypeAlias = Mapping[str, Side]

OP = "op"


@dataclass(frozen=True)
class Transfer:
    """What the table of one side takes over from the other: rows of the giver and ids to remove, in id order.

    `rows` has the system columns, the giver's row id (null for a removal) and `op`, seen from the receiver.
    """

    giver: TypeState
    rows: pa.Table

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def written(self) -> pa.Table:
        return self.rows.filter(pc.not_equal(self.rows.column(OP), Operation.DELETE.value))

    @property
    def deleted(self) -> pa.Table:
        return self.rows.filter(pc.equal(self.rows.column(OP), Operation.DELETE.value))

    @property
    def counts(self) -> ChangeCounts:
        ops = self.rows.column(OP).to_pylist()
        return ChangeCounts(ops.count("insert"), ops.count("update"), ops.count("delete"))

    def entity_changes(self, version: int) -> Iterator[EntityChange]:
        """What the receiver gains; `version` says when the giver's table last changed."""
        kind, name = EntityKind(self.giver.type.kind), self.giver.type.name
        for row in self.rows.to_pylist():
            yield EntityChange(kind, name, row["id"], Operation(row[OP]), version, ends_of(row))

    def change(self, *, blobs: bool) -> TypeChange:
        """The transfer as a change of the receiver. Without `blobs` it can be judged but not staged."""
        written = self.written
        return TypeChange(
            self.giver.type,
            self.giver.rows(row_ids_of(written), blobs=blobs),
            deleted=frozenset(self.deleted.column("id").to_pylist()),
            fresh=self.counts.updated == 0 and self.counts.deleted == 0,
        )


@dataclass(frozen=True)
class Decision:
    """The outcome for one type: what each side gives to the other, and what stays open."""

    to_target: Transfer
    to_source: Transfer
    conflicts: list[MergeConflict]


def classify(theirs: Operation, ours: Operation, *, equal: bool) -> ConflictKind | None:
    """The rows of the three-way table where both sides changed the entity; None when they agree."""
    deletes = [theirs, ours].count(Operation.DELETE)
    if deletes == 1:
        return ConflictKind.DELETE_VS_UPDATE
    if deletes == 2 or equal:
        return None
    return ConflictKind.DIVERGENT_INSERT if ours is Operation.INSERT else ConflictKind.DIVERGENT_UPDATE


def decide_entities(source: TypeDelta, target: TypeDelta, decide: Decide, overrides: Overrides) -> Decision:
    """Both deltas start at the same base. `overrides` settle entities whatever the table says."""
    theirs, ours = _changes(source), _changes(target)
    giving, taking = source.pair.newest, target.pair.newest
    settled = pa.array(list(overrides), pa.string())
    theirs_alone, ours_alone = _without(theirs, ours.column("id")), _without(ours, theirs.column("id"))
    to_target, to_source = [_without(theirs_alone, settled)], [_without(ours_alone, settled)]
    both_theirs = _without(_without(theirs, theirs_alone.column("id")), settled)
    both_ours = _without(_without(ours, ours_alone.column("id")), settled)
    conflicts = []
    for i, kind in _disagreements(giving, both_theirs, taking, both_ours):
        mine, other = both_ours.slice(i, 1), both_theirs.slice(i, 1)
        entity_id = mine.column("id")[0].as_py()
        side = decide(kind, taking.type_key, entity_id)
        if side is None:
            conflicts.append(conflict(kind, taking.type_key, entity_id, _message(kind, taking.type_key, entity_id)))
        elif side is Side.THEIRS:
            to_target.append(_seen_by(mine, other))
        else:
            to_source.append(_seen_by(other, mine))
    to_target.append(_restored([i for i, side in overrides.items() if side is Side.THEIRS], giving, taking))
    to_source.append(_restored([i for i, side in overrides.items() if side is Side.OURS], taking, giving))
    return Decision(
        Transfer(giving, pa.concat_tables(to_target).sort_by("id")),
        Transfer(taking, pa.concat_tables(to_source).sort_by("id")),
        conflicts,
    )


def _disagreements(
    source: TypeState, theirs: pa.Table, target: TypeState, ours: pa.Table
) -> Iterator[tuple[int, ConflictKind]]:
    """Of entities that both sides changed, in the same order: the positions where they do not agree, and how."""
    their_ops = [Operation(op) for op in theirs.column(OP).to_pylist()]
    our_ops = [Operation(op) for op in ours.column(OP).to_pylist()]
    alive = [i for i, ops in enumerate(zip(their_ops, our_ops, strict=True)) if Operation.DELETE not in ops]
    other, mine = theirs.take(pa.array(alive, pa.int64())), ours.take(pa.array(alive, pa.int64()))
    same = equal_entities(source, row_ids_of(other), target, row_ids_of(mine))
    for end in target.keys[1:]:
        same &= equal_values(other.column(end), mine.column(end))
    equal = dict(zip(alive, same.tolist(), strict=True))
    for i, (theirs_op, ours_op) in enumerate(zip(their_ops, our_ops, strict=True)):
        kind = classify(theirs_op, ours_op, equal=equal.get(i, False))
        if kind is not None:
            yield i, kind


def _changes(delta: TypeDelta) -> pa.Table:
    """All changes of a delta in id order: system columns, row id (null when deleted) and op."""
    schema = _schema(delta.pair.newest)
    parts = []
    for op in Operation:
        rows = delta.part(op).select([name for name in schema.names if name != OP])
        if op is Operation.DELETE:
            rows = _without_row_ids(rows)
        parts.append(rows.append_column(OP, pa.array([op.value] * rows.num_rows, pa.string())).cast(schema))
    return pa.concat_tables(parts).sort_by("id")


def _schema(state: TypeState) -> pa.Schema:
    fields = [pa.field(name, pa.string()) for name in state.keys]
    return pa.schema([*fields, ROW_ID_FIELD, pa.field(OP, pa.string())])


def _without_row_ids(rows: pa.Table) -> pa.Table:
    """A deleted entity has no row in the later state."""
    return rows.set_column(rows.column_names.index(ROW_ID), ROW_ID, pa.nulls(rows.num_rows, ROW_ID_FIELD.type))


def _without(changes: pa.Table, ids: pa.Array | pa.ChunkedArray) -> pa.Table:
    return changes.filter(pc.invert(pc.is_in(changes.column("id"), value_set=ids)))


def _seen_by(receiver: pa.Table, giver: pa.Table) -> pa.Table:
    """The giver's change as the receiver will meet it: an entity the receiver has deleted comes back as an insert."""
    if giver.column(OP)[0].as_py() == Operation.DELETE.value:
        return giver
    absent = receiver.column(OP)[0].as_py() == Operation.DELETE.value
    return _as_op(giver, Operation.INSERT if absent else Operation.UPDATE)


def _restored(ids: Sequence[str], giver: TypeState, receiver: TypeState) -> pa.Table:
    """Whatever the giver has under these ids, also when that means nothing."""
    schema = _schema(giver)
    there, here = giver.keys_among(ids), receiver.keys_among(ids)
    known = pc.is_in(there.column("id"), value_set=here.column("id"))
    removed = here.filter(pc.invert(pc.is_in(here.column("id"), value_set=there.column("id"))))
    parts = [
        _as_op(there.filter(known), Operation.UPDATE),
        _as_op(there.filter(pc.invert(known)), Operation.INSERT),
        _as_op(_without_row_ids(removed), Operation.DELETE),
    ]
    return pa.concat_tables([part.cast(schema) for part in parts])


def _as_op(rows: pa.Table, op: Operation) -> pa.Table:
    ops = pa.array([op.value] * rows.num_rows, pa.string())
    if OP in rows.column_names:
        return rows.set_column(rows.column_names.index(OP), OP, ops)
    return rows.append_column(OP, ops)


_HOW = {
    ConflictKind.DIVERGENT_INSERT: "was inserted on both branches with different values",
    ConflictKind.DIVERGENT_UPDATE: "was changed on both branches in different ways",
    ConflictKind.DELETE_VS_UPDATE: "was deleted on one branch and changed on the other",
}


def _message(kind: ConflictKind, type_key: str, entity_id: str) -> str:
    return f"{type_key} '{entity_id}' {_HOW[kind]}"
