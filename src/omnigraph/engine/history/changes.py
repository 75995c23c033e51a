"""The changes of one commit, and of two states, a page at a time.

The sequence of a commit's changes never varies: nodes before edges, then type id, then entity id. So a page token
holds positions and no ids of entities. Tokens are stateless, sealed with a checksum and bound to the graph, the ref
generation and the scope; a token that does not fit is rejected with the reason. `history.feed` reads the same
sequences commit after commit.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.api.enums import EntityKind, Operation
from omnigraph.api.history import (
    ChangeCause,
    ChangedType,
    ChangeRecord,
    ChangeScope,
    ChangeSet,
    CommitChangesPage,
    Endpoints,
    EntityImage,
)
from omnigraph.engine.history import log_walk
from omnigraph.engine.history.diff import EARLIER, TypeDelta, TypePair, deltas, diff, paired_types
from omnigraph.engine.query.visibility import visible_count
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
from omnigraph.language.query.row_filter import UNRESTRICTED, Visibility
from omnigraph.storage.log.log import slot_path
from omnigraph.storage.models import LogEntry
from omnigraph.storage.tables.rows import ROW_ID, ROW_ID_FIELD, row_ids_of

TOKEN_VERSION = 1
MAX_ENCODED = 4_096
_CHECKSUM_BYTES = 16


class CommitPosition(msgspec.Struct, frozen=True, tag_field="kind", tag="commit_page"):
    """Inside the changes of one commit: so many of them were delivered."""

    token: int
    graph: str
    commit: str
    scope: str
    delivered: int


class DiffPosition(msgspec.Struct, frozen=True, tag_field="kind", tag="diff_page"):
    """Inside the difference of two commits: so many of its changes were delivered."""

    token: int
    graph: str
    before: str
    after: str
    scope: str
    delivered: int


class _FeedPosition(msgspec.Struct, frozen=True):
    token: int
    graph: str
    branch: str
    branch_id: str
    scope: str
    version: int


class FeedCursor(_FeedPosition, frozen=True, tag_field="kind", tag="feed_cursor"):
    """After a complete commit of a branch."""

    commit: str


class FeedPosition(_FeedPosition, frozen=True, tag_field="kind", tag="feed_page"):
    """Inside a commit of a branch, on the way to the head that the poll captured when it began."""

    delivered: int
    cut: int


class _Header(msgspec.Struct):
    kind: str
    token: int


Position = TypeVar("Position", CommitPosition, DiffPosition, FeedCursor, FeedPosition)

_ENCODER = msgspec.json.Encoder()
# Made here and not on use: msgspec crashes when two threads learn the same struct at a time.
_HEADER: Final = msgspec.json.Decoder(_Header)
_POSITIONS: Final[dict[Any, msgspec.json.Decoder[Any]]] = {
    shape: msgspec.json.Decoder(shape) for shape in (CommitPosition, DiffPosition, FeedCursor, FeedPosition)
}
_NAMES = {
    "commit_page": "a commit page token",
    "diff_page": "a diff page token",
    "feed_cursor": "a feed cursor",
    "feed_page": "a feed page token",
}


def digest_of(scope: ChangeScope, visibility: Visibility = UNRESTRICTED) -> str:
    """Equal for equal scopes under equal visibilities; short enough to be bound into a token.

    A token that counts changes is bound to the visibility, because another one shows other changes.
    """
    parts = [
        sorted(scope.kinds),
        sorted(scope.types),
        sorted(scope.ops),
        *([] if visibility.is_unrestricted else [visibility.digest]),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def seal(position: CommitPosition | DiffPosition | FeedCursor | FeedPosition) -> str:
    data = _ENCODER.encode(position)
    return base64.urlsafe_b64encode(data + _checksum(data)).rstrip(b"=").decode()


def unseal(text: str, shape: type[Position]) -> Position:
    """The position in a token of this shape, or a rejection that says what is wrong with it."""
    data = _authentic(text)
    try:
        header = _HEADER.decode(data)
        if header.token != TOKEN_VERSION:
            raise ChangeCursorRejectedError(f"unsupported token version {header.token}")
        wanted = str(shape.__struct_config__.tag)
        if header.kind != wanted:
            raise ChangeCursorRejectedError(
                f"this is {_NAMES.get(header.kind, 'another kind of token')}, not {_NAMES[wanted]}"
            )
        position: Position = _POSITIONS[shape].decode(data)
        return position
    except msgspec.DecodeError:
        raise ChangeCursorRejectedError("invalid encoding") from None


def _authentic(text: str) -> bytes:
    if len(text) > MAX_ENCODED:
        raise ChangeCursorRejectedError(f"invalid encoding: longer than {MAX_ENCODED} bytes")
    try:
        sealed = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ChangeCursorRejectedError("invalid encoding") from None
    data, checksum = sealed[:-_CHECKSUM_BYTES], sealed[-_CHECKSUM_BYTES:]
    if checksum != _checksum(data):
        raise ChangeCursorRejectedError("its checksum does not match: the token was altered or cut")
    return data


def _checksum(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_CHECKSUM_BYTES]


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
class PageBudget:
    """How much a page may still take. Bytes are a packing target: one change that exceeds it comes alone."""

    changes: int
    bytes: int
    is_empty: bool = True

    @classmethod
    def of(cls, max_changes: int | None, max_bytes: int | None) -> PageBudget:
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


def checked_limit(resource: str, requested: int | None, default: int, most: int) -> int:
    if requested is None:
        return default
    if requested < 1:
        raise BadRequestError(f"{resource} must be at least 1, got {requested}")
    if requested > most:
        raise ResourceLimitError(resource, most, requested)
    return requested


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
    """The changes of a commit since its first parent, or the typed reason why they are not known."""
    # The pages of a large commit share one comparison.
    recent, key = after.resources.comparisons, (after.commit_id, digest_of(scope, after.visibility))
    if isinstance(cached := recent.get(key), CommitChanges):
        return cached
    before = parent_of(after)
    try:
        _refuse_schema_boundary(before, after, scope)
        sequences = [(delta, _sequence(delta, scope)) for delta in deltas(before, after, scope)]
    except HistoricalVersionReclaimedError as error:
        raise ChangeFeedGapError(after.commit_id) from error
    sequences.sort(key=lambda item: (item[0].pair.type.kind != "node", item[0].pair.newest.lifetime))
    changes = CommitChanges(after.entry, sequences)
    if not after.visibility.reads_the_clock:
        recent[key] = changes
    return changes


def changes_of_types(after: Snapshot, scope: ChangeScope) -> CommitChanges:
    """The same for a caller that names types: a type that neither the commit nor the branch has is refused."""
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
    budget = PageBudget.of(max_changes, max_bytes)
    graph, commit, selected = state.resources.graph_id, state.commit_id, digest_of(scope, state.visibility)
    start = 0
    if page_token is not None:
        position = unseal(page_token, CommitPosition)
        if (position.graph, position.commit) != (graph, commit):
            raise ChangeCursorRejectedError("it does not match this graph and commit")
        if position.scope != selected:
            raise ChangeCursorRejectedError("it was made for a different filter scope")
        start = position.delivered
    changes = changes_of_types(state, scope)
    taken = taken_by(budget, changes, start)
    delivered = start + len(taken)
    more = delivered < len(changes)
    token = seal(CommitPosition(TOKEN_VERSION, graph, commit, selected, delivered)) if more else None
    return CommitChangesPage(changes.cause, tuple(taken), token)


def taken_by(budget: PageBudget, changes: CommitChanges, start: int) -> list[ChangeRecord]:
    """As many changes as the page has room for, from number `start` on."""
    taken = []
    for record in changes.records(start):
        if not budget.takes(record):
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
    that the scope does not select do not matter: no image of them is shown."""
    if before.entry.schema == after.entry.schema:
        return
    selected = (pair for pair in paired_types(before, after) if scope.selects_type(pair.type.kind, pair.type.name))
    for pair in selected:
        if _is_boundary(pair, before if pair.after is None else after):
            raise ChangeSchemaBoundaryError(after.commit_id, pair.type.name)


def _is_boundary(pair: TypePair, side: Snapshot) -> bool:
    """`side` is the state that has a type which the other one has not."""
    if pair.before is None or pair.after is None:
        return visible_count(side, pair.type) > 0
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
    positions = rows.column(column)
    if state is None or positions.null_count == len(positions):
        return iter([None] * rows.num_rows)
    row_ids = row_ids_of(pa.table({ROW_ID: positions.drop_null()}))
    values = state.rows(row_ids)
    ends = [None] * len(row_ids) if state.type.kind == "node" else _endpoints(values)
    images = (EntityImage(p, e) for p, e in zip(property_values(state.type, values), ends, strict=True))
    return iter([next(images) if present else None for present in pc.is_valid(positions).to_pylist()])


def _endpoints(values: pa.Table) -> list[Endpoints]:
    return list(map(Endpoints, values.column("src").to_pylist(), values.column("dst").to_pylist()))


_MOST_REMEMBERED: Final = 200_000


def diff_page(
    before: Snapshot, after: Snapshot, scope: ChangeScope, page_token: str | None, limit: int | None
) -> ChangeSet:
    """One page of the difference, with the statistics of the whole."""
    most = checked_limit("commit_changes_page_changes", limit, DEFAULT_CHANGES, MOST_CHANGES)
    delivered = 0
    if page_token is not None:
        position = unseal(page_token, DiffPosition)
        if position.graph != before.root.identity.graph_id:
            raise ChangeCursorRejectedError("it was made for a different graph")
        if position.scope != _scope_digest(before, after, scope):
            raise ChangeCursorRejectedError("it was made for a different filter scope")
        before, after, delivered = _at(before, position.before), _at(after, position.after), position.delivered
    whole = _whole(before, after, scope)
    end = delivered + most
    token = None if end >= len(whole.changes) else _token(before, after, scope, end)
    return replace(whole, changes=whole.changes[delivered:end], next_page_token=token)


def _at(state: Snapshot, commit_id: str) -> Snapshot:
    """The state that the first page was of: the one asked for now, or an earlier one of its history."""
    if commit_id == state.commit_id:
        return state
    if not log_walk.is_on_line(state.root, state.branch, state.version, commit_id):
        raise ChangeCursorRejectedError("it was made for other states")
    return state.at(log_walk.find(state.root, commit_id).entry)


def _whole(before: Snapshot, after: Snapshot, scope: ChangeScope) -> ChangeSet:
    remembered = after.resources.comparisons
    key = (f"{before.commit_id}..{after.commit_id}", f"diff {_scope_digest(before, after, scope)}")
    cached = remembered.get(key)
    if isinstance(cached, ChangeSet):
        return cached
    difference = diff(before, after, scope)
    clocked = before.visibility.reads_the_clock or after.visibility.reads_the_clock
    if DEFAULT_CHANGES < len(difference.changes) <= _MOST_REMEMBERED and not clocked:
        remembered[key] = difference
    return difference


def _token(before: Snapshot, after: Snapshot, scope: ChangeScope, delivered: int) -> str:
    graph = before.root.identity.graph_id
    selected = _scope_digest(before, after, scope)
    return seal(DiffPosition(TOKEN_VERSION, graph, before.commit_id, after.commit_id, selected, delivered))


def _scope_digest(before: Snapshot, after: Snapshot, scope: ChangeScope) -> str:
    """A digest of the scope and of the visibility of either side."""
    sides = dict.fromkeys(digest_of(scope, state.visibility) for state in (before, after))
    return "-".join(sides)
