"""Conflicts as a merge finds them. What a person may decide about them is `omnigraph.api.branches.Resolutions`."""

from __future__ import annotations

from omnigraph.api.branches import MergeConflict
from omnigraph.api.enums import ConflictKind
from omnigraph.errors import ConstraintRule


def conflict(
    kind: ConflictKind,
    type_key: str,
    entity_id: str | None,
    message: str,
    rule: ConstraintRule | None = None,
    property: str | None = None,
) -> MergeConflict:
    """A conflict of two branches; a broken constraint names its rule and property."""
    return MergeConflict.of(type_key, entity_id, kind.value, message, rule, property)
