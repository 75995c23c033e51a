"""What exactly one commit changed, relative to its first parent: every entity, with its values before and after.

The sequence of a commit's changes is fixed for ever: nodes before edges, then type id, then entity id. So a page token
only needs to count. The feed reads the same sequences, commit after commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.enums import EntityKind, Operation
from omnigraph.api.history import (
    ChangeCause,
    ChangedType,
    ChangeRecord,
    ChangeScope,
    CommitChangesPage,
    Endpoints,
    EntityImage,
)
from omnigraph.engine.history.page_tokens import TOKEN_VERSION, CommitPosition, digest_of, seal, unseal
from omnigraph.engine.history.seen_deltas import deltas
from omnigraph.engine.history.type_delta import EARLIER, TypeDelta, TypePair, paired_types
from omnigraph.engine.query.seen_entities import seen_count
from omnigraph.engine.rows.export_form import property_values
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    ChangeCursorRejectedError,
    ChangeFeedGapError,
    ChangeSchemaBoundaryError,
    CommitHasNoParentError,
    HistoricalVersionReclaimedError,
    IntegrityError,
    ResourceLimitError,
)
from omnigraph.language.catalog import Catalog, Property, check_type_names
from omnigraph.storage.log.log import slot_path
from omnigraph.storage.models import LogEntry
from omnigraph.storage.tables.rows import ROW_ID, ROW_ID_FIELD, row_ids_of

DEFAULT_CHANGES, MOST_CHANGES = 1_000, 8_192
DEFAULT_BYTES, MOST_BYTES = 4 << 20, 32 << 20

_IMAGES_AT_ONCE = 512
_IMAGES_WITH_BLOBS = 32
_OP = "op"
_encode = msgspec.json.Encoder().encode


def _cause(entry: LogEntry) -> ChangeCause:
    parents = [link.commit_id for link in entry.commit.parents]
    return ChangeCause(
        graph_commit_id=entry.commit.id,
        parent_commit_id=parents[0] if parents else None,
        merged_parent_commit_id=parents[1] if len(parents) > 1 else None,
        authored_branch=entry.branch,
        actor_id=entry.commit.actor,
        authored_at=entry.commit.authored_at,
    )


@dataclass
class PageRoom:
    """How much a page may still take. Bytes are a packing target: one change that exceeds it comes alone."""

    changes: int
    bytes: int
    is_empty: bool = True

    @classmethod
    def of(cls, max_changes: int | None, max_bytes: int | None) -> PageRoom:
        return cls(
            checked_limit("commit_changes_page_changes", max_changes, DEFAULT_CHANGES, MOST_CHANGES),
            checked_limit("commit_changes_page_bytes", max_bytes, DEFAULT_BYTES, MOST_BYTES),
        )

    def takes(self, record: ChangeRecord) -> bool:
        size = len(_encode(record))
        if self.changes < 1 or (size > self.bytes and not self.is_empty):
            return False
        self.changes -= 1
        self.bytes -= size
        self.is_empty = False
        return True


def checked_limit(resource: str, given: int | None, default: int, most: int) -> int:
    if given is None:
        return default
    if given < 1:
        raise BadRequestError(f"{resource} must be at least 1, got {given}")
    if given > most:
        raise ResourceLimitError(resource, most, given)
    return given


class CommitChanges:
    """The changes of one commit that a scope selects, in their fixed order. Images are read as they are asked for."""

    def __init__(self, entry: LogEntry, deltas: list[tuple[TypeDelta, pa.Table]]) -> None:
        self.entry = entry
        self.cause = _cause(entry)
        self._deltas = deltas

    def __len__(self) -> int:
        return sum(rows.num_rows for _, rows in self._deltas)

    def records(self, start: int = 0) -> Iterator[ChangeRecord]:
        """The changes from number `start` on."""
        try:
            for delta, rows in self._deltas:
                if start < rows.num_rows:
                    yield from _records(delta, rows.slice(start))
                start = max(0, start - rows.num_rows)
        except HistoricalVersionReclaimedError as error:
            raise ChangeFeedGapError(self.entry.commit.id) from error


def changes_of(after: Snapshot, scope: ChangeScope) -> CommitChanges:
    """What a commit changed since its first parent, or the typed reason why that can't be told."""
    # The pages of a large commit share one comparison.
    recent, key = after.resources.comparisons, (after.commit_id, digest_of(scope, after.lens))
    if isinstance(known := recent.get(key), CommitChanges):
        return known
    before = parent_of(after)
    try:
        _refuse_schema_boundary(before, after, scope)
        found = [(delta, _sequence(delta, scope)) for delta in deltas(before, after, scope)]
    except HistoricalVersionReclaimedError as error:
        raise ChangeFeedGapError(after.commit_id) from error
    found.sort(key=lambda item: (item[0].pair.type.kind != "node", item[0].pair.newest.lifetime))
    changes = CommitChanges(after.entry, found)
    if not after.lens.reads_the_clock:
        recent[key] = changes
    return changes


def changes_of_types(after: Snapshot, scope: ChangeScope) -> CommitChanges:
    """The same for a caller who names types: one that neither the commit nor the branch has is refused."""
    try:
        check_type_names(scope.types, after.catalog)
    except BadRequestError:
        # The commit may have removed the type, or the branch got it later.
        others = [parent_of(after).catalog, *_catalog_at_head(after)]
        check_type_names(scope.types, after.catalog, *others)
    return changes_of(after, scope)


def _catalog_at_head(state: Snapshot) -> list[Catalog]:
    try:
        return [state.root.catalog(state.root.branches.head(state.branch).entry.schema)]
    except BranchNotFoundError:
        return []


def commit_changes_page(
    state: Snapshot,
    scope: ChangeScope,
    page_token: str | None = None,
    max_changes: int | None = None,
    max_bytes: int | None = None,
) -> CommitChangesPage:
    """One page of a commit's changes, from its beginning or from where a token says."""
    room = PageRoom.of(max_changes, max_bytes)
    graph, commit, selected = state.resources.graph_id, state.commit_id, digest_of(scope, state.lens)
    start = 0
    if page_token is not None:
        position = unseal(page_token, CommitPosition)
        if (position.graph, position.commit) != (graph, commit):
            raise ChangeCursorRejectedError("it does not match this graph and commit")
        if position.scope != selected:
            raise ChangeCursorRejectedError("it was made for a different filter scope")
        start = position.delivered
    changes = changes_of_types(state, scope)
    taken = taken_by(room, changes, start)
    delivered = start + len(taken)
    more = delivered < len(changes)
    token = seal(CommitPosition(TOKEN_VERSION, graph, commit, selected, delivered)) if more else None
    return CommitChangesPage(changes.cause, tuple(taken), token)


def taken_by(room: PageRoom, changes: CommitChanges, start: int) -> list[ChangeRecord]:
    """As many changes as the page has room for, from number `start` on."""
    taken = []
    for record in changes.records(start):
        if not room.takes(record):
            break
        taken.append(record)
    return taken


def parent_of(state: Snapshot) -> Snapshot:
    """The state that a commit is compared with: its first parent."""
    if not state.entry.commit.parents:
        raise CommitHasNoParentError(state.commit_id)
    link = state.entry.commit.parents[0]
    parent = state.root.log.entry(link.branch_id, link.version)
    if not isinstance(parent, LogEntry):
        raise IntegrityError(slot_path(link.branch_id, link.version), "the entry of a commit is missing")
    return state.at(parent)


def _refuse_schema_boundary(before: Snapshot, after: Snapshot, scope: ChangeScope) -> None:
    """Two images are comparable only while the shape of every type, and the set of types in use, stay the same. Types
    that the scope does not select do not matter: nobody sees an image of them."""
    if before.entry.schema == after.entry.schema:
        return
    selected = (pair for pair in paired_types(before, after) if scope.selects_type(pair.type.kind, pair.type.name))
    for pair in selected:
        if _is_boundary(pair, before if pair.after is None else after):
            raise ChangeSchemaBoundaryError(after.commit_id, pair.type.name)


def _is_boundary(pair: TypePair, side: Snapshot) -> bool:
    """`side` is the state that has a type which the other one has not."""
    if pair.before is None or pair.after is None:
        return seen_count(side, pair.type) > 0
    return _shape(pair.before) != _shape(pair.after)


def _shape(state: TypeState) -> frozenset[tuple[object, ...]]:
    """What an image is made of: which properties there are and what their values can be; enum members do not count."""
    return frozenset(_property_shape(prop) for prop in state.type.property_list)


def _property_shape(prop: Property) -> tuple[object, ...]:
    kind = prop.type
    return (prop.column, kind.scalar, kind.list, kind.nullable, kind.dimension if kind.is_vector else None)


def _sequence(delta: TypeDelta, scope: ChangeScope) -> pa.Table:
    """The selected changes of a type in id order: id, op, and the row ids on either side."""
    parts = []
    for op in Operation:
        rows = delta.part(op)
        nothing = pa.nulls(rows.num_rows, ROW_ID_FIELD.type)
        before = {Operation.INSERT: nothing, Operation.DELETE: rows.column(ROW_ID)}.get(op)
        parts.append(
            pa.table(
                {
                    "id": rows.column("id").cast(pa.string()),
                    _OP: pa.array([op.value] * rows.num_rows, pa.string()),
                    EARLIER: rows.column(EARLIER) if before is None else before,
                    ROW_ID: nothing if op is Operation.DELETE else rows.column(ROW_ID),
                }
            ).slice(0, None if scope.selects_op(op) else 0)
        )
    return pa.concat_tables(parts).sort_by("id")


def _records(delta: TypeDelta, rows: pa.Table) -> Iterator[ChangeRecord]:
    pair = delta.pair
    kind, type_ = EntityKind(pair.type.kind), ChangedType(pair.newest.lifetime, pair.type.name)
    size = _IMAGES_WITH_BLOBS if pair.newest.blob_columns else _IMAGES_AT_ONCE
    for start in range(0, rows.num_rows, size):
        block = rows.slice(start, size)
        befores, afters = _images(pair.before, block, EARLIER), _images(pair.after, block, ROW_ID)
        described = zip(block.column("id").to_pylist(), block.column(_OP).to_pylist(), befores, afters, strict=True)
        for entity_id, op, before, after in described:
            yield ChangeRecord(kind, type_, entity_id, Operation(op), before, after)


def _images(state: TypeState | None, rows: pa.Table, column: str) -> Iterator[EntityImage | None]:
    """One image per row, None where the row has no place on this side."""
    places = rows.column(column)
    if state is None or places.null_count == len(places):
        return iter([None] * rows.num_rows)
    row_ids = row_ids_of(pa.table({ROW_ID: places.drop_null()}))
    values = state.rows(row_ids)
    ends = [None] * len(row_ids) if state.type.kind == "node" else _endpoints(values)
    images = (EntityImage(p, e) for p, e in zip(property_values(state.type, values), ends, strict=True))
    return iter([next(images) if present else None for present in pc.is_valid(places).to_pylist()])


def _endpoints(values: pa.Table) -> list[Endpoints]:
    return list(map(Endpoints, values.column("src").to_pylist(), values.column("dst").to_pylist()))
