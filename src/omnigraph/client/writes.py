"""Writes, described once for threads and for asyncio: each is one commit, or nothing.

Each function is a call: it yields requests, is sent their replies, and returns its result. It does no I/O.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from omnigraph.api.branches import (
    NO_RESOLUTIONS,
    BranchCreated,
    BranchCreateRequest,
    BranchDeleted,
    BranchMergeRequest,
    MergeResult,
    Resolutions,
)
from omnigraph.api.enums import LoadMode
from omnigraph.api.graph import LoadInput
from omnigraph.api.history import required_commit
from omnigraph.api.load import ChangeRequest, GraphBatchLoadOutput, IngestRequest, LoadReceipt, MutationReceipt
from omnigraph.api.queries import InvokeStoredQueryRequest, ReadPoint
from omnigraph.api.schema import SchemaApplied, SchemaApplyRequest
from omnigraph.api.service import http as api_parameters
from omnigraph.api.service.routes import IF_COMMIT_HEADER
from omnigraph.api.values import plain_parameters
from omnigraph.client.messages import Request, Steps, Upload
from omnigraph.client.reads import ROWS, read
from omnigraph.client.remote import MAIN, Remote, branch_of, require_json, target_of
from omnigraph.client.row_upload import row_upload
from omnigraph.client.rows import JsonRows, RemoteRows, holds_rows, received_rows
from omnigraph.errors import BadRequestError


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
    asked = remote._bound(source, name, params, parameters, options)
    plain = None if asked.params is None else dict(asked.params)
    target = branch_of(branch)
    if if_commit is None:
        # The first spelling of a mutation, which servers of all versions take.
        body = ChangeRequest(params=plain, branch=target, query_source=asked.source, query_name=asked.name)
        request = remote._request("change", body=body)
    else:
        body = ChangeRequest(asked.source, asked.name, plain, target)
        request = _conditional(remote._request("mutate_if_graph_commit", body=body), if_commit)
    reply = yield remote._writing(request, actor=actor, key=idempotency_key)
    remote._wrote(target, reply)
    return reply.decoded(MutationReceipt)


def _conditional(request: Request, if_commit: str) -> Request:
    return request.with_headers({IF_COMMIT_HEADER: required_commit(if_commit, "if_commit")})


def load(
    remote: Remote,
    /,
    data: Any,
    *,
    mode: str,
    type: str | None = None,
    branch: str = MAIN,
    base: str | None = None,
    format: str | None = None,
    csv: Any = None,
    embed: bool = False,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[LoadReceipt]:
    """Load data as one commit, all or nothing; what it takes is what `Graph.load` takes.

    With `type`, the data are rows of that type: a frame, an Arrow table or reader, dictionaries, or the path of a local
    csv, parquet, arrow or ndjson file. Without it they are graph records: text, bytes, pieces of them, or a `Path`.
    Both are sent as they are read: memory stays bounded. An iterator can be read only once, so a load from one is not
    repeated when its answer is lost. `embed` has the server compute every missing vector whose `@embed` source has a
    text.
    """
    target = branch_of(branch)
    said: dict[str, Any] = {"branch": target, "base": base, "mode": _mode(mode), "embed": embed or None}
    content: Upload
    if type is not None:
        content = rows = row_upload(data, format, csv)
        request = remote._request("loadRows", api_parameters.RowsParameters(type=type, **said, **rows.parameters))
    elif format is not None or csv is not None:
        raise BadRequestError("format and csv are for rows of one type: name it with type=")
    else:
        content, request = Upload(data), remote._request("loadNdjson", api_parameters.LoadParameters(**said))
    reply = yield remote._writing(request, actor=actor, key=idempotency_key, content=content)
    remote._wrote(target, reply)
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
    """As `load`, in the lenient grammar that old exports need: a value of a wrong type becomes null, and members that
    the type does not have are left out. The receipt counts both (`values_nulled`, `values_dropped`). The records travel
    in one piece.
    """
    target = branch_of(branch)
    try:
        text = b"".join(Upload(data).pieces()).decode()
    except UnicodeDecodeError as error:
        raise BadRequestError(f"the records are not UTF-8 text (byte {error.start})") from None
    request = remote._request("ingest", body=IngestRequest(text, target, base, _mode(mode)))
    reply = yield remote._writing(request, actor=actor, key=idempotency_key)
    remote._wrote(target, reply)
    return replace(reply.decoded(LoadReceipt), uri=None)


def _mode(text: str) -> LoadMode:
    try:
        return LoadMode(text)
    except ValueError:
        raise BadRequestError(f"unknown load mode '{text}'; use one of: {', '.join(LoadMode)}") from None


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
) -> Steps[RemoteRows | JsonRows | MutationReceipt]:
    """Run a stored query: rows of a read, or the receipt of a mutation.

    `expect_mutation` refuses a query of the other kind. A mutation carries an idempotency key and is repeated when
    its answer is lost.
    """
    point = ReadPoint(branch, snapshot, version, at)
    plain = None if params is None else plain_parameters(params)
    require_json(plain or {})
    body = InvokeStoredQueryRequest(plain, branch, snapshot, version, at, expect_mutation)
    if if_commit is None:
        request = remote._reading(remote._request("invoke_query", body=body, name=name), point)
    else:
        request = _conditional(remote._request("invoke_query_if_graph_commit", body=body, name=name), if_commit)
    request = remote._writing(request, actor=actor, key=idempotency_key).with_headers(ROWS)
    # Of a query that can only read nothing stays open when its answer is lost.
    reply = yield from read(remote, dataclasses.replace(request, writes=expect_mutation is not False), point)
    if holds_rows(reply):
        return received_rows(reply, target_of(point))
    remote._wrote(branch_of(branch), reply)
    return reply.decoded(MutationReceipt)


def create_branch(
    remote: Remote,
    /,
    name: str,
    *,
    source: str | None = None,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[BranchCreated]:
    """A branch from another branch's head, or from any commit that a live branch still has."""
    request = remote._request("createBranch", body=BranchCreateRequest(name, source))
    reply = yield remote._writing(request, actor=actor, key=idempotency_key)
    remote._forget(branch_of(name))
    return replace(reply.decoded(BranchCreated), uri=remote.uri)


def delete_branch(
    remote: Remote, /, name: str, *, actor: str | None = None, idempotency_key: str | None = None
) -> Steps[BranchDeleted]:
    """Delete a branch. Commits that another branch has stay."""
    reply = yield remote._writing(remote._request("deleteBranch", branch=name), actor=actor, key=idempotency_key)
    remote._forget(branch_of(name))
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
    body = BranchMergeRequest(source, target, delete_branch, settled(resolutions), message)
    reply = yield remote._writing(remote._request("mergeBranches", body=body), actor=actor, key=idempotency_key)
    remote._wrote(branch_of(target), reply)
    result = reply.decoded(MergeResult)
    if result.branch_deleted:
        remote._forget(branch_of(source))
    return result


def settled(resolutions: Resolutions) -> Resolutions | None:
    return None if resolutions == NO_RESOLUTIONS else resolutions


def apply_schema(
    remote: Remote,
    /,
    text: str,
    *,
    branch: str = MAIN,
    allow_data_loss: bool = False,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[SchemaApplied]:
    """Change the schema of a branch in one commit, together with the data change it needs.

    A server that serves a cluster refuses it: there the schema is changed by `omnigraph cluster apply`.
    """
    body = SchemaApplyRequest(text, allow_data_loss, None if branch_of(branch) == MAIN else branch)
    reply = yield remote._writing(remote._request("applySchema", body=body), actor=actor, key=idempotency_key)
    remote._wrote(branch_of(branch), reply)
    return replace(reply.decoded(SchemaApplied), uri=remote.uri)
