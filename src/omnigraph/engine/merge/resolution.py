"""Conflicts and what a person may decide about them: take the target's side (ours) or the source's (theirs).

A decision is made per kind of conflict or per entity; the one for the entity wins. Only kinds where taking a side is
a complete answer can be decided; a broken constraint needs a change of the data instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from omnigraph.errors import BadRequestError, ConstraintRule, MergeConflict


class ConflictKind(StrEnum):
    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    ORPHAN_EDGE = "orphan_edge"
    UNIQUE_VIOLATION = "unique_violation"
    CARDINALITY_VIOLATION = "cardinality_violation"
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"
    SCHEMA_DIVERGENCE = "schema_divergence"


DECIDABLE = frozenset(
    {
        ConflictKind.DIVERGENT_INSERT,
        ConflictKind.DIVERGENT_UPDATE,
        ConflictKind.DELETE_VS_UPDATE,
        ConflictKind.ORPHAN_EDGE,
    }
)


class Side(StrEnum):
    """Whose state an entity gets: the target's or the source's."""

    OURS = "ours"
    THEIRS = "theirs"

    @property
    def other(self) -> Side:
        return Side.THEIRS if self is Side.OURS else Side.OURS


def conflict(
    kind: ConflictKind,
    type_key: str,
    entity_id: str | None,
    message: str,
    rule: ConstraintRule | None = None,
    property: str | None = None,
) -> MergeConflict:
    """A conflict of two branches; a broken constraint names its rule and property."""
    return MergeConflict(type_key, entity_id, kind.value, message, rule, property)


@dataclass(frozen=True, slots=True)
class Resolutions:
    """Decisions made before a merge. Without any, every conflict is reported."""

    kinds: Mapping[ConflictKind, Side] = field(default_factory=dict)
    entities: Mapping[tuple[str, str], Side] = field(default_factory=dict)

    @classmethod
    def of(cls, *, kinds: Mapping[str, str] | None = None, entities: Iterable[Mapping[str, Any]] = ()) -> Resolutions:
        """From what a caller or a resolution file says.

        `kinds` maps a conflict kind to `ours` or `theirs`; each of `entities` is `{type_key, entity_id, take}`.
        """
        by_kind = {_kind(kind): _side(side) for kind, side in (kinds or {}).items()}
        by_entity = {}
        for entry in entities:
            unknown = entry.keys() ^ {"type_key", "entity_id", "take"}
            if unknown:
                raise BadRequestError(
                    f"a resolution of an entity has type_key, entity_id and take; got {sorted(entry)}"
                )
            by_entity[str(entry["type_key"]), str(entry["entity_id"])] = _side(entry["take"])
        return cls(by_kind, by_entity)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Resolutions:
        """The content of a resolution file: `{"kinds": {...}, "entities": [...]}`, both optional."""
        if strangers := sorted(document.keys() - {"kinds", "entities"}):
            raise BadRequestError(f"unknown member '{strangers[0]}' in the resolutions; use kinds and entities")
        return cls.of(kinds=document.get("kinds"), entities=document.get("entities") or ())

    def decide(self, kind: ConflictKind, type_key: str, entity_id: str) -> Side | None:
        return self.entities.get((type_key, entity_id)) or self.kinds.get(kind)


NO_RESOLUTIONS = Resolutions()


def _kind(text: str) -> ConflictKind:
    try:
        kind = ConflictKind(text)
    except ValueError:
        known = ", ".join(sorted(DECIDABLE))
        raise BadRequestError(f"unknown conflict kind '{text}'; use one of: {known}") from None
    if kind not in DECIDABLE:
        raise BadRequestError(f"a {kind} is not resolved by taking a side; change the data on one of the branches")
    return kind


def _side(text: object) -> Side:
    try:
        return Side(str(text))
    except ValueError:
        raise BadRequestError(f"unknown side '{text}'; take ours (the target) or theirs (the source)") from None
