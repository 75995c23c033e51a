"""The changes of one commit, and of two states, a page at a time.

The sequence of a commit's changes never varies: nodes before edges, then type id, then entity id. So a page token
holds positions and no ids of entities. Records of what the commit did to the schema come before it (`schema_changes`).
Tokens are stateless, sealed with a checksum and bound to the graph, the ref generation and the scope; a token that does
not fit is rejected with the reason. `history.feed` reads the same sequences commit after commit.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import repeat
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph import errors
from omnigraph.api import history
from omnigraph.api.enums import EntityKind, Operation
from omnigraph.engine.history import log_walk
from omnigraph.engine.history.diff import EARLIER, OP, Selection, TypeDelta, TypePair, deltas, diff, paired_types
from omnigraph.engine.history.schema_changes import schema_changes as schema_changes_of
from omnigraph.engine.rows.export_form import end_columns, property_values
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.write.publish import receipt_of
from omnigraph.language.catalog import EdgeType, check_type_names
from omnigraph.language.query.row_filter import UNRESTRICTED, Visibility
from omnigraph.storage.log.log import slot_path
from omnigraph.storage.models import LogEntry
from omnigraph.storage.tables.rows import ROW_ID, row_ids_of

TOKEN_VERSION = 1
MAX_ENCODED = 4_096
_CHECKSUM_BYTES = 16


class CommitPosition(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="commit_page"):
    """Inside the changes of one commit: so many of them were delivered. `types` are the ids of selected types that the
    scope does not name as they are called there."""

    token: int
    graph: str
    commit: str
    scope: str
    delivered: int
    types: tuple[int, ...] = ()


class DiffPosition(msgspec.Struct, frozen=True, tag_field="kind", tag="diff_page"):
    """Inside the difference of two commits: so many of its changes were delivered."""

    token: int
    graph: str
    before: str
    after: str
    scope: str
    delivered: int


class _FeedPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    token: int
    graph: str
    branch: str
    branch_id: str
    scope: str
    version: int


class FeedCursor(_FeedPosition, frozen=True, omit_defaults=True, tag_field="kind", tag="feed_cursor"):
    """After a complete commit of a branch. `types` are the ids of selected types that got another name than those of
    the scope."""

    commit: str
    types: tuple[int, ...] = ()


class FeedPosition(_FeedPosition, frozen=True, omit_defaults=True, tag_field="kind", tag="feed_page"):
    """Inside a commit of a branch, on the way to the head that the poll captured when it began. `types` are as of the
    commit before."""

    delivered: int
    cut: int
    types: tuple[int, ...] = ()


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


def digest_of(scope: history.ChangeScope, visibility: Visibility = UNRESTRICTED) -> str:
    """Equal for equal scopes under equal visibilities. A token that counts changes is bound to the visibility, because
    another one shows other changes."""
    parts: list[object] = [sorted(scope.kinds), sorted(scope.types), sorted(scope.ops)]
    if not visibility.is_unrestricted:
        parts.append(visibility.digest)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def seal(position: CommitPosition | DiffPosition | FeedCursor | FeedPosition) -> str:
    data = _ENCODER.encode(position)
    return base64.urlsafe_b64encode(data + _checksum(data)).rstrip(b"=").decode()


def unseal(text: str, shape: type[Position]) -> Position:
    """The position in a token of this shape, or a rejection that says what is wrong with it."""
    if len(text) > MAX_ENCODED:
        raise errors.ChangeCursorRejectedError(f"invalid encoding: longer than {MAX_ENCODED} bytes")
    try:
        sealed = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        data, checksum = sealed[:-_CHECKSUM_BYTES], sealed[-_CHECKSUM_BYTES:]
        if checksum != _checksum(data):
            raise errors.ChangeCursorRejectedError("its checksum does not match: the token was altered or cut")
        header = _HEADER.decode(data)
        if header.token != TOKEN_VERSION:
            raise errors.ChangeCursorRejectedError(f"unsupported token version {header.token}")
        wanted = str(shape.__struct_config__.tag)
        if header.kind != wanted:
            name = _NAMES.get(header.kind, "another kind of token")
            raise errors.ChangeCursorRejectedError(f"this is {name}, not {_NAMES[wanted]}")
        position: Position = _POSITIONS[shape].decode(data)
        return position
    except (UnicodeEncodeError, binascii.Error, msgspec.DecodeError):
        raise errors.ChangeCursorRejectedError("invalid encoding") from None


def _checksum(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_CHECKSUM_BYTES]


DEFAULT_CHANGES, MOST_CHANGES = 1_000, 8_192
DEFAULT_BYTES, MOST_BYTES = 4 << 20, 32 << 20

_IMAGES_AT_ONCE = 512
_IMAGES_WITH_BLOBS = 32


class PageBudget:
    """How much a page may still take. Bytes are a packing target: one change that exceeds it comes alone."""

    def __init__(self, max_changes: int | None, max_bytes: int | None) -> None:
        self._changes = checked_limit("commit_changes_page_changes", max_changes, DEFAULT_CHANGES, MOST_CHANGES)
        self._bytes = checked_limit("commit_changes_page_bytes", max_bytes, DEFAULT_BYTES, MOST_BYTES)
        self._is_empty = True

    def take(self, changes: CommitChanges, start: int) -> tuple[history.ChangeRecord, ...]:
        """As many changes as the page has room for, from number `start` on. Records of schema changes come with the
        first one, and leave less room for what follows the commit."""
        taken = []
        for record in changes.records(start):
            size = len(_ENCODER.encode(record))
            if self._changes < 1 or (size > self._bytes and not self._is_empty):
                break
            self._changes -= 1
            self._bytes -= size
            self._is_empty = False
            taken.append(record)
        if changes.schema_changes and start == 0 and (taken or not len(changes)):
            self._bytes -= len(_ENCODER.encode(changes.schema_changes))
            self._is_empty = False
        return tuple(taken)


def checked_limit(resource: str, requested: int | None, default: int, most: int) -> int:
    if requested is None:
        return default
    if requested < 1:
        raise errors.BadRequestError(f"{resource} must be at least 1, got {requested}")
    if requested > most:
        raise errors.ResourceLimitError(resource, most, requested)
    return requested


class CommitChanges:
    """The changes of one commit that a scope selects, in their fixed order: first `schema_changes`, then those of
    entities, whose images are read as they are asked for. `selection` selects the same types in later commits."""

    def __init__(
        self,
        entry: LogEntry,
        deltas: list[TypeDelta],
        selection: Selection,
        schema_changes: tuple[history.SchemaChange, ...],
    ) -> None:
        receipt = receipt_of(entry)
        self.cause = history.ChangeCause(
            graph_commit_id=entry.commit.id,
            parent_commit_id=receipt.parent_commit_id,
            merged_parent_commit_id=receipt.merged_parent_commit_id,
            authored_branch=entry.branch,
            actor_id=entry.commit.actor,
            authored_at=entry.commit.authored_at,
        )
        self.selection = selection
        self.schema_changes = schema_changes
        self._deltas = deltas

    def __len__(self) -> int:
        return sum(map(len, self._deltas))

    def __iter__(self) -> Iterator[history.SchemaChange | history.ChangeRecord]:
        yield from self.schema_changes
        yield from self.records()

    def schema_changes_at(self, start: int) -> tuple[history.SchemaChange, ...]:
        """Those of the part that begins with change number `start`."""
        return self.schema_changes if start == 0 else ()

    def records(self, start: int = 0) -> Iterator[history.ChangeRecord]:
        """The changes of entities from number `start` on."""
        try:
            for delta in self._deltas:
                if start < len(delta):
                    yield from _records(delta.pair, delta.rows.slice(start))
                start = max(0, start - len(delta))
        except errors.HistoricalVersionReclaimedError as error:
            raise errors.ChangeFeedGapError(self.cause.graph_commit_id) from error


def changes_of(after: Snapshot, selection: Selection) -> CommitChanges:
    """The changes of a commit since its first parent, or the typed reason why they are not known."""
    # The pages of a large commit share one comparison.
    types = (sorted(selection.ids), selection.joins) if selection.scope.types else ()
    question = digest_of(selection.scope, after.visibility), after.visibility_digest, types
    recent, key = after.resources.comparisons, (after.commit_id, repr(question))
    if isinstance(cached := recent.get(key), CommitChanges):
        return cached
    before = parent_of(after)
    changes_schema = before.entry.schema != after.entry.schema
    schema_changes: tuple[history.SchemaChange, ...] = ()
    following = selection
    if changes_schema:
        selected = list(selection.select(paired_types(before, after)))
        schema_changes, following = schema_changes_of(before, after, selected), selection.following(selected)
    try:
        sequence = sorted(
            deltas(before, after, selection, are_recorded=changes_schema),
            key=lambda delta: (delta.pair.type.kind != "node", delta.pair.newest.lifetime),
        )
    except errors.HistoricalVersionReclaimedError as error:
        raise errors.ChangeFeedGapError(after.commit_id) from error
    changes = CommitChanges(after.entry, sequence, following, schema_changes)
    if not after.visibility.reads_the_clock:
        recent[key] = changes
    return changes


def changes_of_types(after: Snapshot, scope: history.ChangeScope) -> CommitChanges:
    """The same for a caller that names types: a type that neither the commit nor the branch has is refused."""
    return changes_of(after, selection_of(after, scope))


def selection_of(after: Snapshot, scope: history.ChangeScope) -> Selection:
    """The types that a scope names in a single commit. A name that neither the commit nor its parent has is that of a
    type at the head of the branch, which may have had another one then."""
    with suppress(errors.BadRequestError):
        check_type_names(scope.types, after.catalog)
        return Selection(scope)
    # The commit may have removed or renamed the type, or the branch did it later.
    catalogs, ids = [after.catalog, parent_of(after).catalog], frozenset[int]()
    with suppress(errors.BranchNotFoundError):
        head = after.root.catalog(after.root.branches.head(after.branch).entry.schema)
        ids = head.ids_of([name for name in scope.types if not any(each.ids_of([name]) for each in catalogs)])
        catalogs.append(head)
    check_type_names(scope.types, *catalogs)
    return Selection(scope, ids)


def commit_changes_page(
    state: Snapshot,
    scope: history.ChangeScope,
    page_token: str | None = None,
    max_changes: int | None = None,
    max_bytes: int | None = None,
) -> history.CommitChangesPage:
    """One page of a commit's changes, from its beginning or from where a token says."""
    budget = PageBudget(max_changes, max_bytes)
    graph, commit, selected = state.resources.graph_id, state.commit_id, digest_of(scope, state.visibility)
    start = 0
    if page_token is not None:
        position = unseal(page_token, CommitPosition)
        if (position.graph, position.commit) != (graph, commit):
            raise errors.ChangeCursorRejectedError("it does not match this graph and commit")
        if position.scope != selected:
            raise errors.ChangeCursorRejectedError("it was made for a different filter scope")
        start, selection = position.delivered, Selection(scope, frozenset(position.types))
    else:
        selection = selection_of(state, scope)
    changes = changes_of(state, selection)
    taken = budget.take(changes, start)
    end, token = start + len(taken), None
    if end < len(changes):
        token = seal(CommitPosition(TOKEN_VERSION, graph, commit, selected, end, tuple(sorted(selection.ids))))
    return history.CommitChangesPage(changes.cause, taken, token, changes.schema_changes_at(start))


def parent_of(state: Snapshot) -> Snapshot:
    """The state that a commit is compared with: its first parent."""
    if not state.entry.commit.parents:
        raise errors.CommitHasNoParentError(state.commit_id)
    link = state.entry.commit.parents[0]
    parent = state.root.log.entry(link.branch_id, link.version)
    if not isinstance(parent, LogEntry):
        raise errors.IntegrityError(slot_path(link.branch_id, link.version), "the entry of a commit is missing")
    return state.at(parent)


def _records(pair: TypePair, rows: pa.Table) -> Iterator[history.ChangeRecord]:
    kind, type_ = EntityKind(pair.type.kind), history.ChangedType(pair.newest.lifetime, pair.type.name)
    size = _IMAGES_WITH_BLOBS if pair.newest.blob_columns else _IMAGES_AT_ONCE
    for start in range(0, rows.num_rows, size):
        block = rows.slice(start, size)
        befores, afters = _images(pair.before, block, EARLIER), _images(pair.after, block, ROW_ID)
        described = zip(block.column("id").to_pylist(), block.column(OP).to_pylist(), befores, afters, strict=True)
        for entity_id, op, before, after in described:
            yield history.ChangeRecord(kind, type_, entity_id, Operation(op), before, after)


def _images(state: TypeState | None, rows: pa.Table, column: str) -> Iterator[history.EntityImage | None]:
    """One image per row, None where the row has no row id on this side."""
    positions = rows.column(column)
    if state is None or positions.null_count == len(positions):
        return iter([None] * rows.num_rows)
    values = state.rows(row_ids_of(pa.table({ROW_ID: positions.drop_null()})))
    ends: Iterable[history.Endpoints | None] = repeat(None, values.num_rows)
    if isinstance(state.type, EdgeType):
        columns = {name: column.to_pylist() for name, column in end_columns(state.type, values).items()}
        nothing = [None] * values.num_rows
        ends = map(history.Endpoints, *(columns.get(name, nothing) for name in ("from", "to", "from_type", "to_type")))
    images = map(history.EntityImage, property_values(state.type, values), ends)
    return iter([next(images) if present else None for present in pc.is_valid(positions).to_pylist()])


_MOST_REMEMBERED: Final = 200_000


def diff_page(
    before: Snapshot, after: Snapshot, scope: history.ChangeScope, page_token: str | None, limit: int | None
) -> history.ChangeSet:
    """One page of the difference, with the statistics of the whole."""
    most = checked_limit("commit_changes_page_changes", limit, DEFAULT_CHANGES, MOST_CHANGES)
    graph, selected, delivered = before.root.identity.graph_id, _scope_digest(before, after, scope), 0
    if page_token is not None:
        position = unseal(page_token, DiffPosition)
        if position.graph != graph:
            raise errors.ChangeCursorRejectedError("it was made for a different graph")
        if position.scope != selected:
            raise errors.ChangeCursorRejectedError("it was made for a different filter scope")
        before, after, delivered = _at(before, position.before), _at(after, position.after), position.delivered
        # The visibility of an earlier state may be bound to another schema.
        selected = _scope_digest(before, after, scope)
    whole = _whole(before, after, scope, selected)
    end, token = delivered + most, None
    if end < len(whole.changes):
        token = seal(DiffPosition(TOKEN_VERSION, graph, before.commit_id, after.commit_id, selected, end))
    return replace(whole, changes=whole.changes[delivered:end], next_page_token=token)


def _at(state: Snapshot, commit_id: str) -> Snapshot:
    """The state that the first page was of: the one asked for now, or an earlier one of its history."""
    if commit_id == state.commit_id:
        return state
    if not log_walk.is_on_line(state.root, state.branch, state.version, commit_id):
        raise errors.ChangeCursorRejectedError("it was made for other states")
    return state.at(log_walk.find(state.root, commit_id)[1])


def _whole(before: Snapshot, after: Snapshot, scope: history.ChangeScope, selected: str) -> history.ChangeSet:
    remembered, key = after.resources.comparisons, (f"{before.commit_id}..{after.commit_id}", f"diff {selected}")
    if isinstance(cached := remembered.get(key), history.ChangeSet):
        return cached
    difference = diff(before, after, scope)
    clocked = before.visibility.reads_the_clock or after.visibility.reads_the_clock
    if DEFAULT_CHANGES < len(difference.changes) <= _MOST_REMEMBERED and not clocked:
        remembered[key] = difference
    return difference


def _scope_digest(before: Snapshot, after: Snapshot, scope: history.ChangeScope) -> str:
    """A digest of the scope and of the visibility of either side."""
    return "-".join(dict.fromkeys(digest_of(scope, state.visibility) for state in (before, after)))
