"""The change feed of a branch: its first-parent history, oldest first, one block per commit.

A poll captures the head and walks towards it. It returns a cursor after a complete commit and a page token inside
one; nothing is kept between polls. A baseline is an export together with the cursor that continues it.

A name in a scope means a type: one that has it where the feed begins, or gets it on the way. From then on the feed
keeps to the type, whatever it is called later; a cursor has the ids of types that are called otherwise where it points.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from omnigraph.api.history import ChangeBaseline, ChangeBlock, ChangePoll, ChangeScope, PollRequest
from omnigraph.engine.export import export_lines
from omnigraph.engine.history import log_walk
from omnigraph.engine.history.changes import (
    TOKEN_VERSION,
    FeedCursor,
    FeedPosition,
    PageBudget,
    changes_of,
    checked_limit,
    digest_of,
    seal,
    unseal,
)
from omnigraph.engine.history.diff import Selection
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    ChangeCursorRejectedError,
    ChangeFeedGapError,
)
from omnigraph.language.catalog import check_type_names
from omnigraph.storage.identifiers import version_in
from omnigraph.storage.log.branches import BranchHead
from omnigraph.storage.models import BranchRef, LogEntry
from omnigraph.storage.root import GraphRoot

DEFAULT_COMMITS, MOST_COMMITS = 128, 512

_NOW, _BEGINNING, _AFTER = "now", "beginning", "after:"
_ENTRIES_AT_ONCE = 16
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class _Position(NamedTuple):
    """Where a poll goes on: `delivered` changes of the commit `version` are done, and it goes no further than `cut`.
    `selection` are the types that it is about from there on."""

    version: int
    delivered: int
    cut: int
    selection: Selection


def poll_changes(workspace: Workspace, request: PollRequest) -> ChangePoll:
    """The next blocks of a branch's feed."""
    if sum(option is not None for option in (request.start, request.cursor, request.page_token)) > 1:
        raise BadRequestError("give at most one of start, cursor and page_token")
    room = PageBudget(request.max_changes, request.max_bytes)
    commits = checked_limit("change_feed_commits_per_poll", request.max_commits, DEFAULT_COMMITS, MOST_COMMITS)
    head = workspace.head(request.branch)
    position = _beginning_of(workspace, head, request)
    if request.cursor is None and request.page_token is None:
        _check_types(workspace.root, head, request.scope, position)
    try:
        return _walk(workspace, head, position, room, commits)
    except ChangeFeedGapError as gap:
        raise ChangeFeedGapError(gap.first_unreadable_commit_id, request.cursor) from gap


def wait_for_changes(workspace: Callable[[], Workspace], request: PollRequest, seconds: float) -> ChangePoll:
    """A poll that has something to say, or the last one within some seconds. Each look costs what a poll costs."""
    deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE
    poll = poll_changes(workspace(), request)
    while not poll.blocks and poll.caught_up and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
        poll = poll_changes(workspace(), replace(request, start=None, page_token=None, cursor=poll.cursor))
    return poll


@dataclass(frozen=True, slots=True)
class CapturedBaseline:
    """A head that was captured: its entities to be written out, and the record that continues exactly after them."""

    state: Snapshot
    scope: ChangeScope
    record: ChangeBaseline

    def lines(self) -> Iterator[bytes]:
        return export_lines(self.state, self.scope.types, replace(self.scope, types=frozenset()))


def begin_baseline(workspace: Workspace, branch: str, scope: ChangeScope) -> CapturedBaseline:
    """The caller hands out the record only after the last line was read."""
    workspace.refuse_restricted("a baseline")
    head = workspace.head(branch)
    if scope.types:
        check_type_names(scope.types, workspace.root.catalog(head.entry.schema))
    record = ChangeBaseline(head.entry.commit.id, _cursor(workspace.root, head, Selection(scope), head.entry))
    return CapturedBaseline(Snapshot(workspace, head.ref.branch, head.entry), scope, record)


def _walk(workspace: Workspace, head: BranchHead, position: _Position, room: PageBudget, commits: int) -> ChangePoll:
    """One poll: commits are taken while they fit."""
    root, ref, cut, selection = workspace.root, head.ref, position.cut, position.selection
    blocks: list[ChangeBlock] = []
    last, delivered = position.version - 1, position.delivered
    for entry in log_walk.in_order(root, ref, range(position.version, min(cut, last + commits) + 1), _ENTRIES_AT_ONCE):
        try:
            changes = changes_of(Snapshot(workspace, entry.branch, entry), selection)
            taken = room.take(changes, delivered)
        except ChangeFeedGapError:
            # The poll ends before a commit that can't be read; the next poll begins with it and says so.
            if not blocks:
                raise
            break
        if not taken and delivered < len(changes):
            break
        blocks.append(ChangeBlock(changes.cause, taken, changes.schema_changes_at(delivered)))
        delivered += len(taken)
        if delivered < len(changes):
            scope = digest_of(selection.scope, workspace.visibility)
            bound = root.identity.graph_id, ref.branch, ref.branch_id, scope
            types = tuple(sorted(selection.ids))
            token = seal(FeedPosition(TOKEN_VERSION, *bound, entry.version, delivered, cut, types))
            return ChangePoll(tuple(blocks), next_page_token=token)
        last, delivered, selection = entry.version, 0, changes.selection
    cursor = _cursor(root, head, selection, log_walk.at_versions(root, ref, [last])[0])
    return ChangePoll(tuple(blocks), cursor=cursor, caught_up=last == cut and _is_head(root, ref, cut))


def _is_head(root: GraphRoot, ref: BranchRef, version: int) -> bool:
    try:
        now = root.branches.head(ref.branch)
    except BranchNotFoundError:
        return False
    return now.ref.branch_id == ref.branch_id and now.entry.version == version


def _beginning_of(workspace: Workspace, head: BranchHead, request: PollRequest) -> _Position:
    root, newest = workspace.root, head.entry.version
    if request.page_token is not None:
        position = unseal(request.page_token, FeedPosition)
        _refuse_foreign(root, head, digest_of(request.scope, workspace.visibility), position)
        selection = Selection(request.scope, frozenset(position.types), joins=True)
        return _Position(position.version, position.delivered, position.cut, selection)
    selection = Selection(request.scope, joins=True)
    if request.cursor is not None:
        cursor = unseal(request.cursor, FeedCursor)
        # A cursor points behind a whole commit, so it stays valid when rules change.
        _refuse_foreign(root, head, digest_of(request.scope), cursor)
        selection = Selection(request.scope, frozenset(cursor.types), joins=True)
        return _Position(_version_on_chain(root, head, cursor.commit) + 1, 0, newest, selection)
    start = _NOW if request.start is None else request.start
    if start == _NOW:
        return _Position(newest + 1, 0, newest, selection)
    if start == _BEGINNING:
        # The first commit of the graph has no parent and therefore no block.
        return _Position(2, 0, newest, selection)
    if start.startswith(_AFTER):
        return _Position(_version_on_chain(root, head, start.removeprefix(_AFTER)) + 1, 0, newest, selection)
    raise BadRequestError(f"unknown start '{start}'; use now, beginning or after:<commit id>")


def _check_types(root: GraphRoot, head: BranchHead, scope: ChangeScope, position: _Position) -> None:
    """Types are those of the head. One that is gone by now may still have changes where the feed begins. Cursors and
    tokens have the names that were checked then: a type may be dropped, or renamed, while its feed is read."""
    if not scope.types:
        return
    now = root.catalog(head.entry.schema)
    try:
        check_type_names(scope.types, now)
    except BadRequestError:
        (first,) = log_walk.at_versions(root, head.ref, [min(max(1, position.version - 1), head.entry.version)])
        check_type_names(scope.types, now, root.catalog(first.schema))


def _version_on_chain(root: GraphRoot, head: BranchHead, commit_id: str) -> int:
    version = version_in(commit_id)
    if version is not None and version <= head.entry.version:
        entry = log_walk.at_versions(root, head.ref, [version])[0]
        if entry.commit.id == commit_id:
            return version
    branch = head.ref.branch
    raise ChangeCursorRejectedError(f"commit '{commit_id}' is not in the first-parent history of branch '{branch}'")


def _refuse_foreign(root: GraphRoot, head: BranchHead, selected: str, token: FeedCursor | FeedPosition) -> None:
    if token.graph != root.identity.graph_id:
        raise ChangeCursorRejectedError("it was made for a different graph")
    if token.branch != head.ref.branch:
        raise ChangeCursorRejectedError(f"it was made for a different branch, '{token.branch}'")
    if token.branch_id != head.ref.branch_id:
        raise ChangeCursorRejectedError("it was made for a different branch incarnation: the branch was re-created")
    if token.scope != selected:
        raise ChangeCursorRejectedError("it was made for a different filter scope")


def _cursor(root: GraphRoot, head: BranchHead, selection: Selection, entry: LogEntry) -> str:
    bound = root.identity.graph_id, head.ref.branch, head.ref.branch_id, digest_of(selection.scope)
    types = tuple(sorted(selection.ids))
    return seal(FeedCursor(TOKEN_VERSION, *bound, entry.version, entry.commit.id, types))
