"""The net difference of two states a page at a time, for those who can't take it whole.

A page token names the two commits, so that every page is of the same states while branches move on. The difference
between the pages is remembered; one of very many changes is found anew for each page instead.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from omnigraph.api.history import ChangeScope, ChangeSet
from omnigraph.engine.history import log_walk
from omnigraph.engine.history.changes import DEFAULT_CHANGES, MOST_CHANGES, checked_limit
from omnigraph.engine.history.diff import diff
from omnigraph.engine.history.page_tokens import TOKEN_VERSION, DiffPosition, digest_of, seal, unseal
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import ChangeCursorRejectedError

_MOST_REMEMBERED: Final = 200_000


def diff_page(
    before: Snapshot, after: Snapshot, scope: ChangeScope, page_token: str | None, limit: int | None
) -> ChangeSet:
    """One page of the difference, with the statistics of the whole."""
    room = checked_limit("commit_changes_page_changes", limit, DEFAULT_CHANGES, MOST_CHANGES)
    delivered = 0
    if page_token is not None:
        position = unseal(page_token, DiffPosition)
        if position.graph != before.root.identity.graph_id:
            raise ChangeCursorRejectedError("it was made for a different graph")
        if position.scope != _selected(before, after, scope):
            raise ChangeCursorRejectedError("it was made for a different filter scope")
        before, after, delivered = _at(before, position.before), _at(after, position.after), position.delivered
    whole = _whole(before, after, scope)
    end = delivered + room
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
    key = (f"{before.commit_id}..{after.commit_id}", f"diff {_selected(before, after, scope)}")
    known = remembered.get(key)
    if isinstance(known, ChangeSet):
        return known
    found = diff(before, after, scope)
    clocked = before.lens.reads_the_clock or after.lens.reads_the_clock
    if DEFAULT_CHANGES < len(found.changes) <= _MOST_REMEMBERED and not clocked:
        remembered[key] = found
    return found


def _token(before: Snapshot, after: Snapshot, scope: ChangeScope, delivered: int) -> str:
    graph = before.root.identity.graph_id
    selected = _selected(before, after, scope)
    return seal(DiffPosition(TOKEN_VERSION, graph, before.commit_id, after.commit_id, selected, delivered))


def _selected(before: Snapshot, after: Snapshot, scope: ChangeScope) -> str:
    """What is seen of either side, in short."""
    sides = dict.fromkeys(digest_of(scope, state.lens) for state in (before, after))
    return "-".join(sides)
