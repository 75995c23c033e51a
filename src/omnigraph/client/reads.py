"""Reads of one state, and what a server tells of itself, described once for threads and for asyncio.

Each function is a call: it yields requests, is sent their replies, and returns its result. It does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import structs

from omnigraph.api import parameters as api_parameters
from omnigraph.api.commits import CommitReceipt
from omnigraph.api.enums import EntityKind
from omnigraph.api.query import OperatorProfile, QueryPlan, QueryRequest, ReadPoint, StoredQueries
from omnigraph.api.routes import COMMIT_HEADER, MIN_COMMIT_HEADER, Media
from omnigraph.api.schema import SchemaPlan, SchemaPlanRequest, SchemaSource
from omnigraph.api.service import GraphInfo, GraphList
from omnigraph.api.snapshots import SnapshotListing
from omnigraph.client.messages import Reply, Request, Steps
from omnigraph.client.remote import MAIN, Remote, branch_of, target_of
from omnigraph.client.rows import RemoteRows
from omnigraph.errors import EntityNotFoundError, UnexpectedAnswerError

ROWS: Final = {"Accept": f"{Media.ARROW.value}, {Media.JSON.value};q=0.1"}


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
    """A query, to be answered with rows, with its plan or with its profile."""
    asked = remote.asked(source, name, params, given, structs.asdict(point))
    plain = None if asked.params is None else dict(asked.params)
    body = QueryRequest(asked.source, asked.name, plain, point.branch, point.snapshot, point.version, point.at)
    request = remote.reading(remote.request(operation_id, body=body), point)
    return request.with_headers(ROWS) if operation_id == "query" else request


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


def profile(
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
) -> Steps[OperatorProfile]:
    """Run a read query, drop its rows and tell what each operator did."""
    point = ReadPoint(branch, snapshot, version, at)
    reply = yield from read(remote, query_request(remote, source, name, params, point, parameters, "profile"), point)
    return reply.decoded(OperatorProfile)


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


def read(remote: Remote, /, request: Request, point: ReadPoint) -> Steps[Reply]:
    """One read of a state."""
    reply = yield request
    forget_if_gone(remote, request, reply, point)
    return reply.checked()


def forget_if_gone(remote: Remote, /, request: Request, reply: Reply, point: ReadPoint) -> None:
    """A branch that lacks a commit of this client was made anew by somebody: said once, then it is as it is."""
    if reply.status == 412 and MIN_COMMIT_HEADER in request.headers:
        remote.forget(branch_of(point.branch))


def plan_schema(
    remote: Remote, /, text: str, *, branch: str = MAIN, allow_data_loss: bool = False
) -> Steps[SchemaPlan]:
    """The steps from a branch's schema to this one; also when some of them are not possible."""
    reply = yield remote.request("planSchema", body=SchemaPlanRequest(text, allow_data_loss, branch))
    return reply.decoded(SchemaPlan)


def stored_queries(remote: Remote, /) -> Steps[StoredQueries]:
    """The queries that the server offers by name."""
    reply = yield remote.request("list_queries")
    return reply.decoded(StoredQueries)


def list_graphs(remote: Remote, /) -> Steps[list[GraphInfo]]:
    """The graphs of the server, for those who may know."""
    reply = yield remote.request("listGraphs")
    return list(reply.decoded(GraphList).graphs)
