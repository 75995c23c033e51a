"""Branches, merges and listings: requests, the resolutions that a person chooses for conflicts, and results.

The engine makes the results, the server and the command line show them. Nothing here reads a graph.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar

from msgspec import Struct, field

from omnigraph.api.commits import CommitReceipt
from omnigraph.api.enums import ConflictKind, EntityKind, MergeOutcome, Side
from omnigraph.api.history import EntityChange, counts_by_type
from omnigraph.api.values import count_noun
from omnigraph.api.wire import LOCAL
from omnigraph.errors import BadRequestError, ConstraintRule


def branch_name(name: object) -> str:
    """A name as a caller gave it, without the white space around it."""
    if not isinstance(name, str):
        raise BadRequestError(f"the name of a branch is a text, not '{type(name).__name__}'")
    return name.strip()


class BranchCreateRequest(Struct, frozen=True, omit_defaults=True):
    """`source` is a branch, or any commit that is still kept."""

    name: str
    source: str | None = field(default=None, name="from")


class BranchCreated(Struct, frozen=True, omit_defaults=True):
    """`replayed` says that an earlier request with the same idempotency key made it, and this one nothing."""

    uri: str
    source: str = field(name="from")
    name: str
    actor_id: str | None
    replayed: bool = False

    WIRE_NAME: ClassVar[str] = "BranchCreateOutput"

    def __repr__(self) -> str:
        return f"<created branch '{self.name}' from '{self.source}'{', replayed' if self.replayed else ''}>"


class BranchList(Struct, frozen=True):
    """Sorted by name; main stands where its name does."""

    branches: tuple[str, ...]

    WIRE_NAME: ClassVar[str] = "BranchListOutput"


class BranchHead(Struct, frozen=True):
    """The newest commit of a branch. `ahead` counts the commits of its line that main does not have, `behind` those of
    main's line that it does not have."""

    name: str
    graph_commit_id: str
    graph_manifest_version: int
    actor_id: str | None
    created_at: int
    ahead: int
    behind: int


class BranchHeads(Struct, frozen=True):
    """What `omnigraph branch list --verbose` prints."""

    branches: tuple[str, ...]
    heads: tuple[BranchHead, ...]


class BranchDeleted(Struct, frozen=True, omit_defaults=True):
    """`replayed` says that an earlier request with the same idempotency key deleted it, and this one nothing."""

    uri: str
    name: str
    actor_id: str | None
    replayed: bool = False

    WIRE_NAME: ClassVar[str] = "BranchDeleteOutput"

    def __repr__(self) -> str:
        return f"<deleted branch '{self.name}'{', replayed' if self.replayed else ''}>"


DECIDABLE = frozenset(
    {
        ConflictKind.DIVERGENT_INSERT,
        ConflictKind.DIVERGENT_UPDATE,
        ConflictKind.DELETE_VS_UPDATE,
        ConflictKind.ORPHAN_EDGE,
    }
)
"""The kinds where taking a side is a complete answer; a broken constraint needs a change of the data instead."""


class PropertyConflict(Struct, frozen=True):
    """One property of an entity in conflict: its value in the common base, on the target (`ours`) and on the source
    (`theirs`). Values are those of query results; long texts and lists are cut, a blob is shown by its size."""

    property: str
    base: Any
    ours: Any
    theirs: Any

    WIRE_NAME: ClassVar[str] = "MergeConflictPropertyOutput"

    def __hash__(self) -> int:  # a value may be a list
        return hash((PropertyConflict, self.property))


class MergeConflict(Struct, frozen=True, omit_defaults=True):
    """One thing that keeps two branches from merging. `entity_id` is None where no single entity is to blame.

    A broken constraint names its `rule` and `property` as a `ConstraintError` does. `properties` are the values that
    are in conflict: those that differ, those that the one side changed where the other deleted the entity, those that
    break the rule, or the ends of an edge without its node; `property` then is the only one, if there is one.
    `absent_in` says which of `base`, `ours` and `theirs` do not have the entity. A conflict with `only_if` comes up
    only if that side is taken in the conflicts of entities that both sides changed.
    """

    entity_kind: str
    type_name: str
    entity_id: str | None
    kind: str
    message: str
    rule: ConstraintRule | None = None
    property: str | None = None
    properties: tuple[PropertyConflict, ...] = ()
    absent_in: tuple[str, ...] = ()
    only_if: Side | None = None

    WIRE_NAME: ClassVar[str] = "MergeConflictOutput"

    @classmethod
    def of(
        cls,
        type_key: str,
        entity_id: str | None,
        kind: str,
        message: str,
        rule: ConstraintRule | None = None,
        property: str | None = None,
    ) -> MergeConflict:
        entity_kind, _, type_name = type_key.partition(":")
        return cls(entity_kind, type_name, entity_id, kind, message, rule, property)

    @builtins.property
    def type_key(self) -> str:
        return f"{self.entity_kind}:{self.type_name}"


class EntityResolution(Struct, frozen=True):
    """The side that one entity gets."""

    type_key: str
    entity_id: str
    take: Side


class Resolutions(Struct, frozen=True, omit_defaults=True, dict=True):
    """Decisions made before a merge, per kind of conflict or per entity; the one for the entity wins.

    Without any, every conflict is reported.
    """

    kinds: dict[ConflictKind, Side] = {}
    entities: tuple[EntityResolution, ...] = ()

    @classmethod
    def of(cls, *, kinds: Mapping[str, str] | None = None, entities: Iterable[Mapping[str, Any]] = ()) -> Resolutions:
        """From what a caller or a resolution file says.

        `kinds` maps a conflict kind to `ours` or `theirs`; each of `entities` is `{type_key, entity_id, take}`.
        """
        by_kind = {_kind(kind): _side(side) for kind, side in (kinds or {}).items()}
        by_entity = {}
        for entry in entities:
            if entry.keys() ^ {"type_key", "entity_id", "take"}:
                raise BadRequestError(
                    f"a resolution of an entity has type_key, entity_id and take; got {sorted(entry)}"
                )
            by_entity[str(entry["type_key"]), str(entry["entity_id"])] = _side(entry["take"])
        return cls(by_kind, tuple(EntityResolution(*entity, side) for entity, side in by_entity.items()))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Resolutions:
        """The content of a resolution file: `{"kinds": {...}, "entities": [...]}`, both optional."""
        if strangers := sorted(document.keys() - {"kinds", "entities"}):
            raise BadRequestError(f"unknown member '{strangers[0]}' in the resolutions; use kinds and entities")
        return cls.of(kinds=document.get("kinds"), entities=document.get("entities") or ())

    def decide(self, kind: ConflictKind, type_key: str, entity_id: str) -> Side | None:
        return self.by_entity.get((type_key, entity_id)) or self.kinds.get(kind)

    @cached_property
    def by_entity(self) -> dict[tuple[str, str], Side]:
        return {(each.type_key, each.entity_id): each.take for each in self.entities}


NO_RESOLUTIONS = Resolutions()


def _kind(text: str) -> ConflictKind:
    try:
        kind = ConflictKind(text)
    except ValueError:
        kinds = ", ".join(sorted(DECIDABLE))
        raise BadRequestError(f"unknown conflict kind '{text}'; use one of: {kinds}") from None
    if kind not in DECIDABLE:
        raise BadRequestError(f"a {kind} is not resolved by taking a side; change the data on one of the branches")
    return kind


def _side(text: object) -> Side:
    try:
        return Side(str(text))
    except ValueError:
        raise BadRequestError(f"unknown side '{text}'; take ours (the target) or theirs (the source)") from None


class BranchMergeRequest(Struct, frozen=True, omit_defaults=True):
    """A merge as a caller requests it. The actor and the idempotency key travel beside it."""

    source: str
    target: str | None = None
    delete_branch: bool = False
    resolutions: Resolutions | None = None
    message: str | None = None


class MergePreviewRequest(Struct, frozen=True, omit_defaults=True):
    """A merge that is only looked at."""

    source: str
    target: str | None = None
    resolutions: Resolutions | None = None

    WIRE_NAME: ClassVar[str] = "BranchMergePreviewRequest"


class MergeRequest(Struct, frozen=True, omit_defaults=True):
    source: str
    target: str = "main"
    delete_branch: bool = False
    resolutions: Resolutions = NO_RESOLUTIONS
    actor: str | None = None
    message: str | None = None
    idempotency_key: str | None = None


class MergeResult(Struct, frozen=True, omit_defaults=True):
    """A merge that succeeded. `branch_deleted` is None unless the deletion of the source was asked for."""

    source: str
    target: str
    outcome: MergeOutcome
    actor_id: str | None
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None
    replayed: bool = False
    commit: Annotated[CommitReceipt | None, LOCAL] = None

    WIRE_NAME: ClassVar[str] = "BranchMergeOutput"

    def __repr__(self) -> str:
        made = "" if self.commit is None else f", commit {self.commit.id}"
        deleted = f", '{self.source}' deleted" if self.branch_deleted else ""
        again = ", replayed" if self.replayed else ""
        return f"<merged '{self.source}' into '{self.target}': {self.outcome.value}{made}{deleted}{again}>"


class MergePreview(Struct, frozen=True):
    """What a merge would do: the entities that the target would gain, and what keeps it from happening."""

    source: str
    target: str
    outcome: MergeOutcome
    base_commit_id: str | None
    counts: dict[str, dict[str, int]]
    changes: tuple[EntityChange, ...]
    conflicts: tuple[MergeConflict, ...]

    def __repr__(self) -> str:
        summary = f"{count_noun(len(self.changes), 'change')}, {count_noun(len(self.conflicts), 'conflict')}"
        return f"<merging '{self.source}' into '{self.target}' would be {self.outcome.value}: {summary}>"

    @classmethod
    def of(
        cls,
        source: str,
        target: str,
        outcome: MergeOutcome,
        base_commit_id: str | None,
        changes: tuple[EntityChange, ...] = (),
        conflicts: tuple[MergeConflict, ...] = (),
    ) -> MergePreview:
        return cls(source, target, outcome, base_commit_id, counts_by_type(changes), changes, conflicts)


class SnapshotDataset(Struct, frozen=True):
    """The table of one type.

    `published_dataset_version` is the version of the graph in which the table last changed on this line of history.
    `dataset_version_id` is what Lance calls its version: a number too large for JSON, hence a text.
    """

    entity_kind: EntityKind
    type_name: str
    dataset_path: str
    published_dataset_version: int
    dataset_version_id: str
    native_dataset_branch: str | None
    entity_count: int

    WIRE_NAME: ClassVar[str] = "SnapshotDatasetOutput"


class EntityCount(Struct, frozen=True):
    """How many entities of a type a state has, as its reader sees it."""

    entity_kind: EntityKind
    type_name: str
    entity_count: int

    WIRE_NAME: ClassVar[str] = "EntityCountOutput"


class SnapshotListing(Struct, frozen=True):
    """Ordered by type key, edges before nodes."""

    graph_branch: str
    graph_manifest_version: int
    internal_schema_version: int
    datasets: tuple[SnapshotDataset, ...]

    WIRE_NAME: ClassVar[str] = "SnapshotOutput"

    def __repr__(self) -> str:
        tables = [f"  {each.entity_kind} {each.type_name}: {each.entity_count:,}" for each in self.datasets]
        head = (
            f"<branch '{self.graph_branch}', version {self.graph_manifest_version}: {count_noun(len(tables), 'table')}>"
        )
        return "\n".join([head, *tables])
