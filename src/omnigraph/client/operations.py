"""Every call of the contract that is made of whole requests and answers, described once.

A call is a generator: it yields requests, is sent their replies, and returns its result. It does no I/O, so the same
description serves threads and asyncio, whose graphs have each of these functions as a method.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from omnigraph.api import parameters as api_parameters
from omnigraph.api.branches import BranchCreated, BranchCreateRequest, BranchDeleted, BranchList
from omnigraph.api.changes import EVERYTHING, ChangePoll, ChangeScope, ChangeSet, CommitChangesPage
from omnigraph.api.commits import CommitHistory, CommitList, CommitReceipt, CommitSummary
from omnigraph.api.enums import EntityKind, LoadMode
from omnigraph.api.graph import LoadInput
from omnigraph.api.load import ChangeRequest, GraphBatchLoadOutput, IngestRequest, LoadReceipt, MutationReceipt
from omnigraph.api.merge import (
    NO_RESOLUTIONS,
    BranchMergeRequest,
    MergePreview,
    MergePreviewRequest,
    MergeResult,
    Resolutions,
)
from omnigraph.api.parameter_values import plain_parameters
from omnigraph.api.query import InvokeStoredQueryRequest, QueryPlan, QueryRequest, ReadPoint, StoredQueries
from omnigraph.api.routes import COMMIT_HEADER, IF_COMMIT_HEADER, MIN_COMMIT_HEADER, Media
from omnigraph.api.schema import SchemaApplied, SchemaApplyRequest, SchemaPlan, SchemaPlanRequest, SchemaSource
from omnigraph.api.service import GraphInfo, GraphList
from omnigraph.api.snapshots import SnapshotListing
from omnigraph.client.messages import Reply, Request, Steps, Upload, header_text
from omnigraph.client.remote import MAIN, Remote, branch_of, target_of
from omnigraph.client.rows import RemoteRows
from omnigraph.errors import BadRequestError, EntityNotFoundError, UnexpectedAnswerError

_ROWS: Final = {"Accept": f"{Media.ARROW.value}, {Media.JSON.value};q=0.1"}


# Reading


def query(
    remote: Remote,
    /,
    source: Any,
    name: str | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
    version: int | None = None,
    at: datetime | None = None,
    **parameters: Any,
) -> Steps[RemoteRows]:
    """Run a read query on one state; the query and its parameters are given as to `Graph.query`."""
    point = ReadPoint(branch, snapshot, version, at)
    reply = yield from read(remote, query_request(remote, source, name, params, point, parameters), point)
    return RemoteRows(reply, target_of(point))


def query_request(
    remote: Remote,
    /,
    source: Any,
    name: str | None,
    params: Mapping[str, Any] | None,
    point: ReadPoint,
    given: Mapping[str, Any],
    operation_id: str = "query",
) -> Request:
    """A query, to be answered with rows or with its plan."""
    options = {"branch": point.branch, "snapshot": point.snapshot, "version": point.version, "at": point.at}
    asked = remote.asked(source, name, params, given, options)
    plain = None if asked.params is None else dict(asked.params)
    body = QueryRequest(asked.source, asked.name, plain, point.branch, point.snapshot, point.version, point.at)
    request = remote.reading(remote.request(operation_id, body=body), point)
    return request if operation_id == "explain" else request.with_headers(_ROWS)


def read(remote: Remote, /, request: Request, point: ReadPoint) -> Steps[Reply]:
    """One read of a state."""
    reply = yield request
    forget_if_gone(remote, request, reply, point)
    return reply.checked()


def forget_if_gone(remote: Remote, /, request: Request, reply: Reply, point: ReadPoint) -> None:
    """A branch that lacks a commit of this client was made anew by somebody: said once, then it is as it is."""
    if reply.status == 412 and MIN_COMMIT_HEADER in request.headers:
        remote.forget(branch_of(point.branch))


def explain(
    remote: Remote,
    /,
    source: Any,
    name: str | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
    version: int | None = None,
    at: datetime | None = None,
    **parameters: Any,
) -> Steps[list[str]]:
    """The plan of a read query as lines of an indented tree. Nothing is run."""
    point = ReadPoint(branch, snapshot, version, at)
    reply = yield from read(remote, query_request(remote, source, name, params, point, parameters, "explain"), point)
    return list(reply.decoded(QueryPlan).plan)


def entity(
    remote: Remote,
    /,
    type_key: str,
    entity_id: str,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
    version: int | None = None,
    at: datetime | None = None,
) -> Steps[dict[str, Any] | None]:
    """One node or edge (`node:Person`, its id) in export form, None when the type or the id is not there."""
    point = ReadPoint(branch, snapshot, version, at)
    kind, _, bare = type_key.rpartition(":")
    known = EntityKind(kind) if kind in tuple(EntityKind) else None
    asked = api_parameters.EntityParameters(
        entity=known,
        type=bare if known is not None else type_key,
        id=entity_id,
        branch=branch,
        snapshot=snapshot,
        version=version,
        at=at,
    )
    try:
        reply = yield from read(remote, remote.reading(remote.request("getEntity", asked), point), point)
    except EntityNotFoundError:
        return None
    return reply.decoded(dict[str, Any])


def listing(
    remote: Remote,
    /,
    branch: str | None = None,
    *,
    snapshot: str | None = None,
    version: int | None = None,
    at: datetime | None = None,
) -> Steps[SnapshotListing]:
    """The tables of a state, with their versions and sizes."""
    reply = yield from _read_point(remote, "getSnapshot", ReadPoint(branch, snapshot, version, at))
    return reply.decoded(SnapshotListing)


def schema_text(
    remote: Remote,
    /,
    branch: str | None = None,
    *,
    snapshot: str | None = None,
    version: int | None = None,
    at: datetime | None = None,
) -> Steps[str]:
    """The accepted schema text of a branch, now or in the past."""
    reply = yield from _read_point(remote, "getSchema", ReadPoint(branch, snapshot, version, at))
    return reply.decoded(SchemaSource).schema_source


def resolve_snapshot(
    remote: Remote, /, branch: str | None = None, *, version: int | None = None, at: datetime | None = None
) -> Steps[str]:
    """The commit id of a branch's head, or of its past. The commit stays readable after the branch has moved on."""
    return (yield from _commit_of(remote, ReadPoint(branch, None, version, at)))


def version_of(
    remote: Remote, /, branch: str | None = None, *, snapshot: str | None = None, at: datetime | None = None
) -> Steps[int]:
    """The version of a branch's head, of a commit, or of a branch at a moment."""
    commit_id = yield from _commit_of(remote, ReadPoint(branch, snapshot, None, at))
    reply = yield remote.request("getCommit", commit_id=commit_id)
    return reply.decoded(CommitReceipt).graph_manifest_version


def _commit_of(remote: Remote, /, point: ReadPoint) -> Steps[str]:
    """Every read of a state says which commit that is; the one of the schema is the cheapest."""
    reply = yield from _read_point(remote, "getSchema", point)
    commit_id = reply.header(COMMIT_HEADER)
    if commit_id is None:
        raise UnexpectedAnswerError(reply.status, f"no header {COMMIT_HEADER}, which tells the commit that was read")
    return commit_id


def _read_point(remote: Remote, /, operation_id: str, point: ReadPoint) -> Steps[Reply]:
    asked = api_parameters.PointParameters(point.branch, point.snapshot, point.version, point.at)
    return (yield from read(remote, remote.reading(remote.request(operation_id, asked), point), point))


# Writing


def mutate(
    remote: Remote,
    /,
    source: Any,
    name: str | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    branch: str | None = None,
    if_commit: str | None = None,
    actor: str | None = None,
    idempotency_key: str | None = None,
    **parameters: Any,
) -> Steps[MutationReceipt]:
    """Run a mutation as one commit, only if the branch head is `if_commit` when that is given.

    The write carries an idempotency key, one of its own when none is given, so a lost answer is asked for again.
    """
    options = {"branch": branch, "if_commit": if_commit, "actor": actor, "idempotency_key": idempotency_key}
    asked = remote.asked(source, name, params, parameters, options)
    plain = None if asked.params is None else dict(asked.params)
    target = branch_of(branch)
    if if_commit is None:
        # The first spelling of a mutation, which servers of all versions take.
        body = ChangeRequest(params=plain, branch=target, query_source=asked.source, query_name=asked.name)
        request = remote.request("change", body=body)
    else:
        body = ChangeRequest(asked.source, asked.name, plain, target)
        request = _conditional(remote.request("mutate_if_graph_commit", body=body), if_commit)
    reply = yield remote.writing(request, actor=actor, key=idempotency_key)
    remote.wrote(target, reply)
    return reply.decoded(MutationReceipt)


def _conditional(request: Request, if_commit: str) -> Request:
    return request.with_headers({IF_COMMIT_HEADER: header_text(if_commit, "if_commit")})


def load(
    remote: Remote,
    /,
    data: LoadInput,
    *,
    mode: str,
    branch: str = MAIN,
    base: str | None = None,
    embed: bool = False,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[LoadReceipt]:
    """Load graph records, one JSON object per line, as one commit, all or nothing.

    They are text, bytes, pieces of them, or a `Path`, and are sent as they are read: memory stays bounded. An iterator
    can be read only once, so a load from one is not repeated when its answer is lost. `embed` has the server compute
    every missing vector whose `@embed` source has a text.
    """
    target = branch_of(branch)
    asked = api_parameters.LoadParameters(branch=target, base=base, mode=_mode(mode), embed=embed or None)
    request = remote.request("loadNdjson", asked)
    reply = yield remote.writing(request, actor=actor, key=idempotency_key, content=Upload(data))
    remote.wrote(target, reply)
    told = reply.decoded(GraphBatchLoadOutput)
    return LoadReceipt(**{each: getattr(told, each) for each in GraphBatchLoadOutput.__struct_fields__})


def load_lenient(
    remote: Remote,
    /,
    data: LoadInput,
    *,
    mode: str,
    branch: str = MAIN,
    base: str | None = None,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[LoadReceipt]:
    """As `load`, in the forgiving grammar that old exports need. The records travel in one piece."""
    target = branch_of(branch)
    try:
        text = b"".join(Upload(data).pieces()).decode()
    except UnicodeDecodeError as error:
        raise BadRequestError(f"the records are not UTF-8 text (byte {error.start})") from None
    request = remote.request("ingest", body=IngestRequest(text, target, base, _mode(mode)))
    reply = yield remote.writing(request, actor=actor, key=idempotency_key)
    remote.wrote(target, reply)
    return replace(reply.decoded(LoadReceipt), uri=None)


def _mode(text: str) -> LoadMode:
    try:
        return LoadMode(text)
    except ValueError:
        raise BadRequestError(f"unknown load mode '{text}'; use one of: {', '.join(LoadMode)}") from None


# Stored queries


def stored_queries(remote: Remote, /) -> Steps[StoredQueries]:
    """The queries that the server offers by name."""
    reply = yield remote.request("list_queries")
    return reply.decoded(StoredQueries)


def invoke(
    remote: Remote,
    /,
    name: str,
    params: Mapping[str, Any] | None = None,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
    version: int | None = None,
    at: datetime | None = None,
    if_commit: str | None = None,
    expect_mutation: bool | None = None,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[RemoteRows | MutationReceipt]:
    """Run a stored query: rows of a read, or the receipt of a mutation.

    `expect_mutation` refuses a query of the other kind. A mutation carries an idempotency key and is repeated when
    its answer is lost.
    """
    point = ReadPoint(branch, snapshot, version, at)
    plain = None if params is None else plain_parameters(params)
    body = InvokeStoredQueryRequest(plain, branch, snapshot, version, at, expect_mutation)
    if if_commit is None:
        request = remote.reading(remote.request("invoke_query", body=body, name=name), point)
    else:
        request = _conditional(remote.request("invoke_query_if_graph_commit", body=body, name=name), if_commit)
    request = remote.writing(request, actor=actor, key=idempotency_key).with_headers(_ROWS)
    # Of a query that can only read nothing stays open when its answer is lost.
    reply = yield from read(remote, dataclasses.replace(request, writes=expect_mutation is not False), point)
    if reply.media == Media.ARROW:
        return RemoteRows(reply, target_of(point))
    remote.wrote(branch_of(branch), reply)
    return reply.decoded(MutationReceipt)


# Branches and history


def create_branch(
    remote: Remote, /, name: str, *, source: str | None = None, actor: str | None = None
) -> Steps[BranchCreated]:
    """A branch from another branch's head, or from any commit that a live branch still has."""
    reply = yield remote.writing(remote.request("createBranch", body=BranchCreateRequest(name, source)), actor=actor)
    remote.forget(branch_of(name))
    return replace(reply.decoded(BranchCreated), uri=remote.uri)


def list_branches(remote: Remote, /) -> Steps[list[str]]:
    """The names of all branches, sorted."""
    reply = yield remote.request("listBranches")
    return list(reply.decoded(BranchList).branches)


def delete_branch(remote: Remote, /, name: str, *, actor: str | None = None) -> Steps[BranchDeleted]:
    """Delete a branch. Commits that another branch has stay."""
    reply = yield remote.writing(remote.request("deleteBranch", branch=name), actor=actor)
    remote.forget(branch_of(name))
    return replace(reply.decoded(BranchDeleted), uri=remote.uri)


def merge(
    remote: Remote,
    /,
    source: str,
    target: str = MAIN,
    *,
    delete_branch: bool = False,
    resolutions: Resolutions = NO_RESOLUTIONS,
    actor: str | None = None,
    message: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[MergeResult]:
    """Merge a branch into another as one commit, or raise every conflict at once with nothing changed."""
    body = BranchMergeRequest(source, target, delete_branch, _settled(resolutions), message)
    reply = yield remote.writing(remote.request("mergeBranches", body=body), actor=actor, key=idempotency_key)
    remote.wrote(branch_of(target), reply)
    result = reply.decoded(MergeResult)
    if result.branch_deleted:
        remote.forget(branch_of(source))
    return result


def preview_merge(
    remote: Remote, /, source: str, target: str = MAIN, *, resolutions: Resolutions = NO_RESOLUTIONS
) -> Steps[MergePreview]:
    """What a merge would change and what conflicts, without doing it."""
    reply = yield remote.request("previewMerge", body=MergePreviewRequest(source, target, _settled(resolutions)))
    return reply.decoded(MergePreview)


def _settled(resolutions: Resolutions) -> Resolutions | None:
    return None if resolutions == NO_RESOLUTIONS else resolutions


def commits(remote: Remote, /, branch: str = MAIN, *, limit: int = 100, before: int | None = None) -> Steps[CommitList]:
    """The commits of a branch's line of history, newest first."""
    reply = yield remote.request("listCommits", api_parameters.CommitsParameters(branch, limit, before))
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
    reply = yield remote.request("getHistory", api_parameters.HistoryParameters(branch, limit, before, exact))
    return reply.decoded(CommitHistory)


def describe_commit(remote: Remote, /, commit_id: str) -> Steps[CommitSummary]:
    """One commit, with what it did."""
    reply = yield remote.request("getCommitSummary", commit_id=commit_id)
    return reply.decoded(CommitSummary)


def diff(remote: Remote, /, before: str, after: str, filter: ChangeScope | None = None) -> Steps[ChangeSet]:
    """The net difference of two states: branches or commit ids, in any direction."""
    asked = api_parameters.DiffParameters(before=before, after=after, **_scoped(filter))
    reply = yield remote.request("diff", asked)
    whole = page = reply.decoded(ChangeSet)
    while page.next_page_token is not None:
        reply = yield remote.request("diff", replace(asked, page_token=page.next_page_token))
        page = reply.decoded(ChangeSet)
        whole = replace(whole, changes=(*whole.changes, *page.changes), next_page_token=None)
    return whole


# Changes


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
    reply = yield remote.request("getCommitChanges", asked, commit_id=commit_id)
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
    reply = yield dataclasses.replace(remote.request("pollChanges", asked), wait_seconds=(wait_ms or 0) / 1000)
    return reply.decoded(ChangePoll)


def _scoped(scope: ChangeScope | None) -> dict[str, Any]:
    """A scope as the parameters of a query string."""
    chosen = scope or EVERYTHING
    return {
        "kind": tuple(EntityKind(kind) for kind in sorted(chosen.kinds)),
        "type": tuple(sorted(chosen.types)),
        "op": tuple(sorted(chosen.ops)),
    }


# Schema


def plan_schema(
    remote: Remote, /, text: str, *, branch: str = MAIN, allow_data_loss: bool = False
) -> Steps[SchemaPlan]:
    """The steps from a branch's schema to this one; also when some of them are not possible."""
    reply = yield remote.request("planSchema", body=SchemaPlanRequest(text, allow_data_loss, branch))
    return reply.decoded(SchemaPlan)


def apply_schema(
    remote: Remote, /, text: str, *, branch: str = MAIN, allow_data_loss: bool = False, actor: str | None = None
) -> Steps[SchemaApplied]:
    """Change the schema of a branch in one commit, together with the data change it needs.

    A server that serves a cluster refuses it: there the schema is changed by `omnigraph cluster apply`.
    """
    body = SchemaApplyRequest(text, allow_data_loss, None if branch_of(branch) == MAIN else branch)
    reply = yield remote.writing(remote.request("applySchema", body=body), actor=actor)
    remote.wrote(branch_of(branch), reply)
    return replace(reply.decoded(SchemaApplied), uri=remote.uri)


# The server


def list_graphs(remote: Remote, /) -> Steps[list[GraphInfo]]:
    """The graphs of the server, for those who may know."""
    reply = yield remote.request("listGraphs")
    return list(reply.decoded(GraphList).graphs)
