"""Differences: the changes of a commit, the feed of a branch, and the net difference of two states."""

from __future__ import annotations

from omnigraph.api.changes import ChangePoll
from omnigraph.api.enums import PolicyAction
from omnigraph.api.parameters import ChangeFeedParameters, CommitChangesParameters, DiffParameters
from omnigraph.api.query import ReadPoint
from omnigraph.engine.history.changes import commit_changes_page
from omnigraph.engine.history.diff_pages import diff_page
from omnigraph.engine.history.log_walk import could_be_commit
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import NotFoundError
from omnigraph.server.answers import AnyAnswer, json_answer
from omnigraph.server.call import Call, branch_name, handles


@handles("getCommitChanges")
def get_commit_changes(call: Call) -> AnyAnswer:
    parameters: CommitChangesParameters = call.parameters
    commit_id = call.path["commit_id"].strip()
    state = call.whole._workspace.snapshot(snapshot=commit_id)
    if not call.decision(PolicyAction.READ, state.entry.branch).allowed:
        raise NotFoundError(f"commit '{commit_id}' not found: it is on no branch of this graph")
    state = state.through(call.sight(PolicyAction.READ, state.entry.branch))
    page = commit_changes_page(state, parameters.scope, parameters.page_token, parameters.limit, parameters.max_bytes)
    return json_answer(page, call.saw(state))


@handles("pollChanges")
def poll_changes(call: Call) -> AnyAnswer:
    require_feed(call)
    return json_answer(polled(call, call.parameters))


def require_feed(call: Call) -> None:
    """Ask once whether the actor may follow the branch, before anything is told of it."""
    parameters: ChangeFeedParameters = call.parameters
    call.require(PolicyAction.READ, branch_name(parameters.branch))


def polled(call: Call, parameters: ChangeFeedParameters) -> ChangePoll:
    """One poll of a branch's feed, for an actor who may follow it."""
    branch = branch_name(parameters.branch)
    return call.whole._through(call.sight(PolicyAction.READ, branch)).poll_changes(
        branch=branch,
        start=parameters.start,
        cursor=parameters.cursor,
        page_token=parameters.page_token,
        scope=parameters.scope,
        max_changes=parameters.limit,
        max_bytes=parameters.max_bytes,
        max_commits=parameters.max_commits,
    )


@handles("diff")
def diff(call: Call) -> AnyAnswer:
    parameters: DiffParameters = call.parameters
    before, after = (_state_of(call, branch_name(name)) for name in (parameters.before, parameters.after))
    return json_answer(diff_page(before, after, parameters.scope, parameters.page_token, parameters.limit))


def _state_of(call: Call, name: str) -> Snapshot:
    """A branch's head or a commit, once the actor may read it."""
    return call.allowed_state(ReadPoint(snapshot=name) if could_be_commit(name) else ReadPoint(name), PolicyAction.READ)
