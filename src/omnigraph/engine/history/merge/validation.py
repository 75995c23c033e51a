"""Constraint checks of a merge, on the entities that one side takes over from the other.

The receiving side satisfies all rules by itself, so only the transferred entities, and what they touch, can break one.
All violations are reported together: values, uniqueness, endpoints, cardinality, each by type and id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc

from omnigraph.api.branches import MergeConflict
from omnigraph.api.enums import ConflictKind, Side
from omnigraph.engine.history.merge.resolution import conflict
from omnigraph.engine.rows.kernels.typed import missing_value
from omnigraph.engine.rows.kernels.values import forbidden_values
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.engine.write.constraints import FinalImage
from omnigraph.engine.write.constraints.cardinality import miscounted_sources
from omnigraph.engine.write.constraints.endpoints import dangling_edges, orphaned_edges
from omnigraph.engine.write.constraints.uniqueness import shared_values
from omnigraph.engine.write.constraints.violation import Violation
from omnigraph.engine.write.publish import WriteTxn
from omnigraph.errors import ConstraintRule


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
    found = Validation([], {}, {})
    for type_change in order:
        for reported, entity_id in _broken_values(type_change):
            found.conflicts.append(reported)
            found.subjects[reported] = entity_id
    for type_change in order:
        shared = sorted(shared_values(image, type_change), key=lambda violation: violation.entity_id or "")
        found.conflicts.extend(_as_conflict(ConflictKind.UNIQUE_VIOLATION, violation) for violation in shared)
    for violation, edge_side in _orphans(image, order, giving):
        reported = _as_conflict(ConflictKind.ORPHAN_EDGE, violation)
        found.conflicts.append(reported)
        if violation.absent_node is not None and violation.entity_id is not None:
            edge = (violation.type_key, violation.entity_id)
            found.orphans[reported] = Orphan(edge, violation.absent_node, edge_side)
    for type_change in order:
        for violation in miscounted_sources(image, type_change):
            # A source has the wrong number of edges, so no single edge is to blame.
            found.conflicts.append(_as_conflict(ConflictKind.CARDINALITY_VIOLATION, replace(violation, entity_id=None)))
    return found


def _orphans(image: FinalImage, order: Sequence[TypeChange], giving: Side) -> list[tuple[Violation, Side]]:
    """Brought edges onto nodes that are gone, and edges that stay while the change takes their node."""
    found = [(violation, giving) for violation in dangling_edges(image, order)]
    for change in order:
        found += [(violation, giving.other) for violation in orphaned_edges(image, change)]
    return sorted(found, key=lambda one: (one[0].type_key, one[0].entity_id or "", one[0].reason))


def _broken_values(change: TypeChange) -> Iterator[tuple[MergeConflict, str]]:
    """`@range`, `@check` and enums; and nulls where the schema that the rows are carried into wants a value."""
    for prop in change.type.property_list:
        if not prop.type.nullable and not prop.type.is_blob:
            for row in np.flatnonzero(pc.is_null(change.rows.column(prop.column)).to_numpy()).tolist():
                sentence = missing_value(change.type, prop)
                yield _value_conflict(change, row, sentence.rule, prop.name, sentence.text(property=prop.name))
    for found in forbidden_values(change.type, change.rows):
        yield _value_conflict(change, found.row, found.rule, found.property, found.reason)


def _value_conflict(
    change: TypeChange, row: int, rule: ConstraintRule, property: str, reason: str
) -> tuple[MergeConflict, str]:
    entity_id: str = change.ids[row].as_py()
    kind = ConflictKind.VALUE_CONSTRAINT_VIOLATION
    return conflict(kind, change.type_key, None, f"{reason} (entity '{entity_id}')", rule, property), entity_id


def _as_conflict(kind: ConflictKind, violation: Violation) -> MergeConflict:
    rule, property = violation.sentence.rule, violation.property or ", ".join(violation.members) or None
    return conflict(kind, violation.type_key, violation.entity_id, violation.reason, rule, property)
