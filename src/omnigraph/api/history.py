"""Changes: the difference of two states, the changes of a commit, and the change feed.

The engine makes them, and every client sees the same shapes. Nothing here reads a graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any, ClassVar

from msgspec import Struct, field

from omnigraph.api.commits import moment
from omnigraph.api.enums import EntityKind, Operation, TypeChange
from omnigraph.api.schema import PossibleStep
from omnigraph.api.values import count_noun
from omnigraph.errors import BadRequestError


class ChangeScope(Struct, frozen=True, omit_defaults=True):
    """Conditions on changes. An absent dimension (empty) lets everything through; `types` are bare type names.

    A scope is a set, so order and duplicates do not matter, and naming everything is naming nothing. It selects what
    is shown; it never changes which commits are walked.
    """

    kinds: frozenset[str] = field(default=frozenset(), name="kind")
    types: frozenset[str] = field(default=frozenset(), name="type")
    ops: frozenset[Operation] = field(default=frozenset(), name="op")

    def __post_init__(self) -> None:
        _require_known("kind", self.kinds, tuple(EntityKind))
        _require_known("operation", self.ops, tuple(Operation))

    @classmethod
    def of(
        cls, *, kinds: Iterable[str] | None = None, types: Iterable[str] | None = None, ops: Iterable[str] | None = None
    ) -> ChangeScope:
        """A scope from what a caller wrote; unknown kinds and operations are refused."""
        chosen_kinds = _require_known("kind", kinds or (), tuple(EntityKind))
        chosen_ops = frozenset(Operation(op) for op in _require_known("operation", ops or (), tuple(Operation)))
        return cls(
            kinds=frozenset() if len(chosen_kinds) == len(EntityKind) else chosen_kinds,
            types=frozenset(types or ()),
            ops=frozenset() if len(chosen_ops) == len(Operation) else chosen_ops,
        )

    def selects_type(self, kind: str, name: str) -> bool:
        return (not self.kinds or kind in self.kinds) and (not self.types or name in self.types)


def _require_known(what: str, names: Iterable[str], valid_names: Collection[str]) -> frozenset[str]:
    chosen = frozenset(str(item) for item in names)
    if strangers := sorted(chosen - set(valid_names)):
        raise BadRequestError(f"unknown {what} '{strangers[0]}'; use one of: {', '.join(sorted(valid_names))}")
    return chosen


EVERYTHING = ChangeScope()


# The net difference of two states


def _ends_text(*ends: tuple[str, str | None]) -> str:
    """The ends of an edge on one line: `ada -> intro (Post)`."""
    return " -> ".join(node_id if type_name is None else f"{node_id} ({type_name})" for node_id, type_name in ends)


class ChangedEnds(Struct, frozen=True, omit_defaults=True):
    """The nodes that a changed edge connects, with their types where an end is an interface."""

    src: str
    dst: str
    src_type: str | None = None
    dst_type: str | None = None

    def __str__(self) -> str:
        return _ends_text((self.src, self.src_type), (self.dst, self.dst_type))


class EntityChange(Struct, frozen=True, omit_defaults=True):
    """One entity that differs between two states. No values: those are asked for per commit, or by entity.

    `published_dataset_version` is the version of the graph in which the entity's table last changed, on the line of
    history of the state that has the entity.
    """

    kind: EntityKind
    type_name: str
    id: str
    op: Operation
    published_dataset_version: int
    endpoints: ChangedEnds | None = None

    WIRE_NAME: ClassVar[str] = "EntityDifferenceOutput"

    @property
    def type_key(self) -> str:
        return f"{self.kind}:{self.type_name}"

    @property
    def src(self) -> str | None:
        return None if self.endpoints is None else self.endpoints.src

    @property
    def dst(self) -> str | None:
        return None if self.endpoints is None else self.endpoints.dst


class ChangeStats(Struct, frozen=True):
    inserts: int
    updates: int
    deletes: int
    types_affected: tuple[str, ...]


class ChangeSet(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The net difference between two states: edges before nodes, types by name, entities by id.

    A page of one has the statistics of the whole; without a token it is the last one.
    """

    from_graph_manifest_version: int
    to_graph_manifest_version: int
    graph_branch: str | None = None
    changes: tuple[EntityChange, ...]
    stats: ChangeStats
    next_page_token: str | None = None

    WIRE_NAME: ClassVar[str] = "DiffOutput"

    def __repr__(self) -> str:
        stats = self.stats
        counts = f"+{stats.inserts} ~{stats.updates} -{stats.deletes}"
        versions = f"version {self.from_graph_manifest_version} to {self.to_graph_manifest_version}"
        return f"<difference {counts} from {versions}: {', '.join(stats.types_affected) or 'nothing'}>"

    @classmethod
    def of(cls, before: int, after: int, graph_branch: str | None, changes: tuple[EntityChange, ...]) -> ChangeSet:
        """The difference from version `before` to version `after`; `graph_branch` is None on main."""
        ops = Counter(change.op for change in changes)
        affected = tuple(sorted({change.type_name for change in changes}))
        return cls(
            from_graph_manifest_version=before,
            to_graph_manifest_version=after,
            graph_branch=graph_branch,
            changes=changes,
            stats=ChangeStats(ops[Operation.INSERT], ops[Operation.UPDATE], ops[Operation.DELETE], affected),
        )

    @property
    def types_affected(self) -> list[str]:
        """The names of the types that differ, sorted."""
        return list(self.stats.types_affected)

    def count(self, op: Operation) -> int:
        """How many entities were inserted, updated or deleted."""
        counts = self.stats
        return {"insert": counts.inserts, "update": counts.updates, "delete": counts.deletes}[op]


def counts_by_type(changes: Iterable[EntityChange]) -> dict[str, dict[str, int]]:
    """Per type key, how many entities are inserted, updated and deleted."""
    tally = Counter((change.type_key, change.op) for change in changes)
    return {key: {op.value: tally[key, op] for op in Operation} for key in sorted({key for key, _ in tally})}


# The changes of commits


class ChangeCause(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The commit behind some changes. `authored_branch` is where it was made, not where it is read; `authored_at` is
    in microseconds since 1970."""

    graph_commit_id: str
    parent_commit_id: str | None = None
    merged_parent_commit_id: str | None = None
    authored_branch: str
    actor_id: str | None = None
    authored_at: int

    WIRE_NAME: ClassVar[str] = "ChangeCauseOutput"

    @property
    def authored(self) -> datetime:
        """When the commit was made, as `authored_at` counts it."""
        return moment(self.authored_at)


class Endpoints(Struct, frozen=True, omit_defaults=True):
    """The nodes that an edge connects, with their types where an end is an interface."""

    source: str = field(name="from")
    target: str = field(name="to")
    source_type: str | None = field(name="from_type", default=None)
    target_type: str | None = field(name="to_type", default=None)

    def __str__(self) -> str:
        return _ends_text((self.source, self.source_type), (self.target, self.target_type))

    WIRE_NAME: ClassVar[str] = "ChangeEndpointsOutput"


class EntityImage(Struct, frozen=True, omit_defaults=True):
    """A complete entity in export form; an edge has its endpoints."""

    properties: dict[str, Any]
    endpoints: Endpoints | None = None

    WIRE_NAME: ClassVar[str] = "ChangeImageOutput"


class ChangedType(Struct, frozen=True):
    """A type by an opaque id that survives renames, and by its name."""

    id: str
    name: str

    WIRE_NAME: ClassVar[str] = "ChangeTypeOutput"


class ChangeRecord(Struct, frozen=True, omit_defaults=True):
    """One change: an insert has only `after`, a delete only `before`."""

    kind: EntityKind
    type: ChangedType
    id: str
    op: Operation
    before: EntityImage | None = None
    after: EntityImage | None = None

    WIRE_NAME: ClassVar[str] = "EntityChangeOutput"

    @property
    def type_name(self) -> str:
        return self.type.name


class SchemaChange(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="op", tag="schema_change"):
    """What a commit did to a type. It comes before the commit's entity changes, whose `before` has the old form and
    whose `after` has the new one.

    To apply it: forget all entities of a dropped type, or let those of any other have the new names, without the
    dropped properties and with null for the new ones. Then apply the entity changes. Digests identify the accepted
    schemas of the commit's first parent and of the commit.
    """

    kind: EntityKind
    type: ChangedType
    """By the name that the type has in the commit; a dropped one by its last."""
    change: TypeChange
    renamed_from: str | None = None
    entities: int | None = None
    """Of a dropped type, how many entities went with it. A restricted actor does not learn it."""
    steps: tuple[PossibleStep, ...] = ()
    schema_before: str
    schema_after: str

    WIRE_NAME: ClassVar[str] = "SchemaChangeOutput"

    @property
    def op(self) -> str:
        """`schema_change`, where a `ChangeRecord` has its operation."""
        return str(self.__struct_config__.tag)

    @property
    def type_name(self) -> str:
        return self.type.name

    @property
    def name_before(self) -> str | None:
        """The name in the commit's first parent; None for a new type."""
        return None if self.change is TypeChange.ADDED else self.renamed_from or self.type.name

    @property
    def name_after(self) -> str | None:
        """The name in the commit; None for a dropped type."""
        return None if self.change is TypeChange.DROPPED else self.type.name


class ChangeBlock(Struct, frozen=True, omit_defaults=True):
    """Changes of one commit: all of them, or the part that a page had room for. Changes of the schema are in the first
    part."""

    cause: ChangeCause
    changes: tuple[ChangeRecord, ...]
    schema_changes: tuple[SchemaChange, ...] = ()

    WIRE_NAME: ClassVar[str] = "ChangeBlockOutput"

    def __iter__(self) -> Iterator[SchemaChange | ChangeRecord]:
        """The changes in the order in which they are applied."""
        yield from self.schema_changes
        yield from self.changes


class CommitChangesPage(Struct, frozen=True, omit_defaults=True):
    """A page of one commit's changes; without a token it is the last one."""

    cause: ChangeCause
    changes: tuple[ChangeRecord, ...]
    next_page_token: str | None = None
    schema_changes: tuple[SchemaChange, ...] = ()

    WIRE_NAME: ClassVar[str] = "CommitChangesOutput"

    def __iter__(self) -> Iterator[SchemaChange | ChangeRecord]:
        yield from self.schema_changes
        yield from self.changes

    def __repr__(self) -> str:
        state = "the last page" if self.next_page_token is None else "more to come"
        return f"<{_sizes(self)} of commit {self.cause.graph_commit_id}, {state}>"

    @property
    def block(self) -> ChangeBlock:
        """The page as a block of the change feed."""
        return ChangeBlock(self.cause, self.changes, self.schema_changes)

    def followed_by(self, page: CommitChangesPage) -> CommitChangesPage:
        """Two pages as one."""
        schema_changes = (*self.schema_changes, *page.schema_changes)
        return CommitChangesPage(page.cause, (*self.changes, *page.changes), page.next_page_token, schema_changes)


def _sizes(*parts: ChangeBlock | CommitChangesPage) -> str:
    """How much they hold, for a person."""
    changes = count_noun(sum(len(part.changes) for part in parts), "change")
    schema_changes = sum(len(part.schema_changes) for part in parts)
    return f"{changes} and {count_noun(schema_changes, 'schema change')}" if schema_changes else changes


class PollRequest(Struct, frozen=True, omit_defaults=True):
    """At most one of `start`, `cursor` and `page_token`; none of them means `start="now"`, never the beginning."""

    branch: str = "main"
    start: str | None = None
    cursor: str | None = None
    page_token: str | None = None
    scope: ChangeScope = EVERYTHING
    max_changes: int | None = None
    max_bytes: int | None = None
    max_commits: int | None = None


class ChangePoll(Struct, frozen=True, omit_defaults=True):
    """Some blocks, and how to go on: a page token inside a commit, else a cursor."""

    blocks: tuple[ChangeBlock, ...]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None

    WIRE_NAME: ClassVar[str] = "ChangeFeedOutput"

    def __repr__(self) -> str:
        state = "caught up" if self.caught_up else "more to come"
        return f"<{_sizes(*self.blocks)} of {count_noun(len(self.blocks), 'commit')}, {state}>"

    def followed_by(self, page: ChangePoll) -> ChangePoll:
        """Two pages as one; a commit that was split over them is one block again."""
        blocks, more = self.blocks, page.blocks
        if blocks and more and blocks[-1].cause == more[0].cause:
            last, rest = blocks[-1], more[0]
            schema_changes = (*last.schema_changes, *rest.schema_changes)
            whole = ChangeBlock(last.cause, (*last.changes, *rest.changes), schema_changes)
            blocks, more = (*blocks[:-1], whole), more[1:]
        return ChangePoll((*blocks, *more), page.next_page_token, page.cursor, page.caught_up)


class ChangeBaseline(Struct, frozen=True):
    """Exactly the state of one commit was written; the cursor continues after it."""

    snapshot_commit_id: str
    resume_cursor: str

    WIRE_NAME: ClassVar[str] = "ChangeBaselineOutput"


class ChangeBaselineRecord(Struct, frozen=True):
    """The last line of a baseline stream. A stream without it must be discarded."""

    baseline: ChangeBaseline


class ChangeBaselineRequest(Struct, frozen=True, omit_defaults=True):
    """The body of a baseline request."""

    branch: str | None = None
    kind: tuple[EntityKind, ...] = ()
    type: tuple[str, ...] = ()
    op: tuple[Operation, ...] = ()

    @property
    def scope(self) -> ChangeScope:
        return ChangeScope.of(kinds=self.kind, types=self.type, ops=self.op)
