"""Conflicts as a merge finds them. What a person may decide about them is `omnigraph.api.merge.Resolutions`."""

from __future__ import annotations

from omnigraph.api.enums import ConflictKind
from omnigraph.api.merge import MergeConflict


def conflict(kind: ConflictKind, type_key: str, entity_id: str | None, message: str) -> MergeConflict:
    return MergeConflict.of(type_key, entity_id, kind.value, message)
