"""Branches, commits and changes, described once for threads and for asyncio.

Each function is a call: it yields requests, is sent their replies, and returns its result. It does no I/O.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from msgspec.structs import replace

from omnigraph.api.branches import NO_RESOLUTIONS, BranchList, MergePreview, MergePreviewRequest, Resolutions
from omnigraph.api.enums import EntityKind
from omnigraph.api.history import (
    EVERYTHING,
    ChangePoll,
    ChangeScope,
    ChangeSet,
    CommitChangesPage,
    CommitHistory,
    CommitList,
    CommitSummary,
)
from omnigraph.api.service import http as api_parameters
from omnigraph.client.connection import MAIN, Remote, Steps
from omnigraph.client.reads import RemoteSnapshot
from omnigraph.client.writes import settled


def list_branches(remote: Remote, /) -> Steps[list[str]]:
    """The names of all branches, sorted."""
    reply = yield remote._request("listBranches")
    return list(reply.decoded(BranchList).branches)


def preview_merge(
    remote: Remote, /, source: str, target: str = MAIN, *, resolutions: Resolutions = NO_RESOLUTIONS
) -> Steps[MergePreview]:
    """What a merge would change and what conflicts, without doing it."""
    reply = yield remote._request("previewMerge", body=MergePreviewRequest(source, target, settled(resolutions)))
    return reply.decoded(MergePreview)


def commits(remote: Remote, /, branch: str = MAIN, *, limit: int = 100, before: int | None = None) -> Steps[CommitList]:
    """The commits of a branch's line of history, newest first."""
    reply = yield remote._request("listCommits", api_parameters.CommitsParameters(branch, limit, before))
    return reply.decoded(CommitList)


def commit_history(
    remote: Remote,
    /,
    branch: str = MAIN,
    *,
    limit: int = 100,
    before: int | None = None,
    exact: bool = True,
) -> Steps[CommitHistory]:
    """As `commits`, with their kind, their message, and how many entities of each type they changed.

    A fast-forward merge does not record how many: unless `exact` is false, they are counted now.
    """
    reply = yield remote._request("getHistory", api_parameters.HistoryParameters(branch, limit, before, exact))
    return reply.decoded(CommitHistory)


def describe_commit(remote: Remote, /, commit_id: str) -> Steps[CommitSummary]:
    """One commit, with what it did."""
    reply = yield remote._request("getCommitSummary", commit_id=commit_id)
    return reply.decoded(CommitSummary)


def diff(
    remote: Remote, /, before: str | RemoteSnapshot, after: str | RemoteSnapshot, filter: ChangeScope | None = None
) -> Steps[ChangeSet]:
    """The net difference of two states: branches, commit ids or snapshots, in any direction."""
    asked = api_parameters.DiffParameters(before=_state(before), after=_state(after), **_scoped(filter))
    reply = yield remote._request("diff", asked)
    whole = page = reply.decoded(ChangeSet)
    while page.next_page_token is not None:
        reply = yield remote._request("diff", replace(asked, page_token=page.next_page_token))
        page = reply.decoded(ChangeSet)
        whole = replace(whole, changes=(*whole.changes, *page.changes), next_page_token=None)
    return whole


def _state(state: str | RemoteSnapshot) -> str:
    return state.commit_id if isinstance(state, RemoteSnapshot) else state


def commit_changes(
    remote: Remote,
    /,
    commit_id: str,
    *,
    scope: ChangeScope | None = None,
    page_token: str | None = None,
    max_changes: int | None = None,
    max_bytes: int | None = None,
) -> Steps[CommitChangesPage]:
    """One page of what a commit changed relative to its first parent, with images before and after."""
    asked = api_parameters.CommitChangesParameters(
        page_token=page_token, limit=max_changes, max_bytes=max_bytes, **_scoped(scope)
    )
    reply = yield remote._request("getCommitChanges", asked, commit_id=commit_id)
    return reply.decoded(CommitChangesPage)


def poll_changes(
    remote: Remote,
    /,
    *,
    branch: str = MAIN,
    start: str | None = None,
    cursor: str | None = None,
    page_token: str | None = None,
    scope: ChangeScope | None = None,
    max_changes: int | None = None,
    max_bytes: int | None = None,
    max_commits: int | None = None,
    wait_ms: int | None = None,
) -> Steps[ChangePoll]:
    """The next commits of a branch's feed. `start` is `now` (the default), `beginning` or `after:<commit id>`.

    With `wait_ms` the server holds an empty answer back until something happens, for at most so long.
    """
    asked = api_parameters.ChangeFeedParameters(
        branch=branch,
        start=start,
        cursor=cursor,
        page_token=page_token,
        limit=max_changes,
        max_bytes=max_bytes,
        max_commits=max_commits,
        wait_ms=wait_ms,
        **_scoped(scope),
    )
    reply = yield dataclasses.replace(remote._request("pollChanges", asked), wait_seconds=(wait_ms or 0) / 1000)
    return reply.decoded(ChangePoll)


def _scoped(scope: ChangeScope | None) -> dict[str, Any]:
    """A scope as the parameters of a query string."""
    chosen = scope or EVERYTHING
    return {
        "kind": tuple(EntityKind(kind) for kind in sorted(chosen.kinds)),
        "type": tuple(sorted(chosen.types)),
        "op": tuple(sorted(chosen.ops)),
    }
