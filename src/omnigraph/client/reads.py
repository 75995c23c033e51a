"""Reads of one state, and what a server tells of itself, described once for threads and for asyncio.

Each function is a call: it yields requests, is sent their replies, and returns its result. It does no I/O.

`RemoteSnapshot`: a pinned state of a graph behind a server. Each read is a call of the graph for one commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, cast

from msgspec import structs

from omnigraph.api.branches import BranchCreateRequest, EntityCount, SnapshotListing, branch_name
from omnigraph.api.calls import GraphCalls, QueryBatches, QueryRows
from omnigraph.api.enums import EntityKind
from omnigraph.api.graph import Branch
from omnigraph.api.history import CommitReceipt
from omnigraph.api.queries import OperatorProfile, QueryPlan, QueryRequest, ReadPoint, StoredQueries
from omnigraph.api.schema import SchemaPlan, SchemaPlanRequest, SchemaSource
from omnigraph.api.service import http as api_parameters
from omnigraph.api.service.cluster import GraphInfo, GraphList
from omnigraph.api.service.routes import COMMIT_HEADER, MIN_COMMIT_HEADER, Media
from omnigraph.api.values import plain_id
from omnigraph.client.connection import MAIN, Remote, Reply, Request, Steps, branch_of, target_of
from omnigraph.client.rows import JsonRows, RemoteRows, received_rows
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    DirectAccessError,
    EntityNotFoundError,
    UnexpectedAnswerError,
)


class RemoteSnapshot:
    """A state that never changes, for as long as cleanup keeps it: `branch`, `version` and `commit_id` say which.

    What `RemoteGraph.at` and `RemoteGraph.snapshot` return. Of an `AsyncRemoteGraph` the calls are awaited.
    """

    def __init__(self, graph: GraphCalls, branch: str, version: int, commit_id: str) -> None:
        self._graph = graph
        self.branch = branch
        self.version = version
        self.commit_id = commit_id

    def __repr__(self) -> str:
        return f"<snapshot of {self._graph.uri}: branch '{self.branch}', version {self.version}>"

    def query(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: Any = None,
        **parameters: Any,
    ) -> QueryRows:
        """Run a read query on this state; see `Graph.query`."""
        asked = self._graph._bound(source, name, params, parameters, {"options": options})
        return self._graph.query(*asked, snapshot=self.commit_id, options=options)

    def stream(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: Any = None,
        **parameters: Any,
    ) -> QueryBatches:
        """As `query`, a batch at a time: for results that should not be in memory at once."""
        asked = self._graph._bound(source, name, params, parameters, {"options": options})
        return self._graph.stream(*asked, snapshot=self.commit_id, options=options)

    def explain(
        self, source: Any, name: str | None = None, params: Mapping[str, Any] | None = None, **parameters: Any
    ) -> list[str]:
        """The plan of a read query as lines of an indented tree. Nothing is run."""
        return self._graph.explain(*self._graph._bound(source, name, params, parameters, {}), snapshot=self.commit_id)

    def profile(
        self, source: Any, name: str | None = None, params: Mapping[str, Any] | None = None, **parameters: Any
    ) -> OperatorProfile:
        """Run a read query, drop its rows and tell what each operator did."""
        return self._graph.profile(*self._graph._bound(source, name, params, parameters, {}), snapshot=self.commit_id)

    def entity(self, type_name: str, entity_id: str) -> dict[str, Any] | None:
        """One node or edge in export form, by its type (`Book`, or `node:Book`) and id; None when it is not there."""
        return self._graph.entity(type_name, entity_id, snapshot=self.commit_id)

    def count(self, type_name: str, filter: str | None = None) -> int:
        """How many entities of a type there are. A filter is about stored columns, so it needs the storage itself."""
        if filter is not None:
            raise DirectAccessError("counting by a filter of stored columns")
        return self._graph.count(type_name, snapshot=self.commit_id)

    def listing(self) -> SnapshotListing:
        """The tables of this state with their versions, and how many entities each has."""
        return self._graph.listing(snapshot=self.commit_id)

    def export(self, types: Collection[str] = (), *, epoch: bool = False) -> Iterator[str]:
        """The lines of an export, each with its line end; with `epoch`, dates and times are numbers."""
        return self._graph.export(snapshot=self.commit_id, types=types, epoch=epoch)


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
    options: Any = None,
    **parameters: Any,
) -> Steps[RemoteRows | JsonRows]:
    """Run a read query on one state; the query and its parameters are given as to `Graph.query`."""
    point = ReadPoint(branch, snapshot, version, at)
    reply = yield from read(remote, query_request(remote, source, name, params, point, parameters, options), point)
    return received_rows(reply, target_of(point))


def query_request(
    remote: Remote,
    /,
    source: Any,
    name: str | None,
    params: Mapping[str, Any] | None,
    point: ReadPoint,
    given: Mapping[str, Any],
    options: Any = None,
    operation_id: str = "query",
) -> Request:
    """A query, to be answered with rows, with its plan or with its profile."""
    asked = remote._bound(source, name, params, given, {**structs.asdict(point), "options": options})
    if options is not None:
        raise DirectAccessError("a read with options of its own")
    plain = None if asked.params is None else dict(asked.params)
    body = QueryRequest(asked.source, asked.name, plain, point.branch, point.snapshot, point.version, point.at)
    request = remote._reading(remote._request(operation_id, body=body), point)
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
    options: Any = None,
    **parameters: Any,
) -> Steps[list[str]]:
    """The plan of a read query as lines of an indented tree. Nothing is run."""
    point = ReadPoint(branch, snapshot, version, at)
    reply = yield from read(
        remote, query_request(remote, source, name, params, point, parameters, options, "explain"), point
    )
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
    options: Any = None,
    **parameters: Any,
) -> Steps[OperatorProfile]:
    """Run a read query, drop its rows and tell what each operator did."""
    point = ReadPoint(branch, snapshot, version, at)
    reply = yield from read(
        remote, query_request(remote, source, name, params, point, parameters, options, "profile"), point
    )
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
    """One node or edge by its type (`Book`, or `node:Book`) and id, in export form; None when there is none."""
    point = ReadPoint(branch, snapshot, version, at)
    known, bare = _kind_and_name(type_key)
    asked = api_parameters.EntityParameters(
        entity=known,
        type=bare,
        id=plain_id(entity_id),
        branch=branch,
        snapshot=snapshot,
        version=version,
        at=at,
    )
    try:
        reply = yield from read(remote, remote._reading(remote._request("getEntity", asked), point), point)
    except EntityNotFoundError:
        return None
    return reply.decoded(dict[str, Any])


def count(
    remote: Remote,
    /,
    type_name: str,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
    version: int | None = None,
    at: datetime | None = None,
) -> Steps[int]:
    """How many entities of a type (`Book`, or `node:Book`) there are."""
    point = ReadPoint(branch, snapshot, version, at)
    known, bare = _kind_and_name(type_name)
    asked = api_parameters.CountParameters(
        entity=known, type=bare, branch=branch, snapshot=snapshot, version=version, at=at
    )
    reply = yield from read(remote, remote._reading(remote._request("countEntities", asked), point), point)
    return reply.decoded(EntityCount).entity_count


def _kind_and_name(type_name: str) -> tuple[EntityKind | None, str]:
    kind, _, bare = type_name.rpartition(":")
    return (EntityKind(kind), bare) if kind in tuple(EntityKind) else (None, type_name)


def snapshot(
    remote: Remote,
    /,
    branch: str | None = None,
    *,
    snapshot: str | None = None,
    version: int | None = None,
    at: datetime | None = None,
) -> Steps[RemoteSnapshot]:
    """A pinned state: a branch's head, or one of a commit id, a version or a moment (at most one of them).

    Raises `NotFoundError` where there is no such branch, commit, version or moment.
    """
    reply = yield from _read_point(remote, "getSnapshot", ReadPoint(branch, snapshot, version, at))
    listed = reply.decoded(SnapshotListing)
    return RemoteSnapshot(cast(GraphCalls, remote), listed.graph_branch, listed.graph_manifest_version, _commit(reply))


def at(
    remote: Remote,
    /,
    version: int | None = None,
    *,
    snapshot: str | None = None,
    time: datetime | None = None,
    branch: str | None = None,
) -> Steps[RemoteSnapshot]:
    """The graph as it was: at a version or a moment of a branch (main when not said), or at a commit by its id.

    What comes back is read like the graph and never changes.
    """
    return (yield from _snapshot(remote, branch, snapshot=snapshot, version=version, at=time))


_snapshot = snapshot


def branch(
    remote: Remote,
    /,
    name: str,
    *,
    create: bool = False,
    source: str | None = None,
    actor: str | None = None,
) -> Steps[Branch]:
    """A branch to work on. `create` makes it from `source` (main when not said), unless it is there already;
    otherwise a branch that is not there raises `BranchNotFoundError`."""
    name = branch_name(name)
    try:
        yield from _commit_of(remote, ReadPoint(name))
    except BranchNotFoundError:
        if not create:
            raise
        request = remote._request("createBranch", body=BranchCreateRequest(name, source))
        reply = yield remote._writing(request, actor=actor)
        try:
            reply.checked()
        except ConflictError as error:
            try:
                yield from _commit_of(remote, ReadPoint(name))  # somebody else made it meanwhile
            except BranchNotFoundError:
                raise error from None
        remote._forget(name)
    return Branch(cast(GraphCalls, remote), name)


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
    reply = yield remote._request("getCommit", commit_id=commit_id)
    return reply.decoded(CommitReceipt).graph_manifest_version


def _commit_of(remote: Remote, /, point: ReadPoint) -> Steps[str]:
    """Every read of a state says which commit that is; the one of the schema is the cheapest."""
    return _commit((yield from _read_point(remote, "getSchema", point)))


def _commit(reply: Reply) -> str:
    commit_id = reply.header(COMMIT_HEADER)
    if commit_id is None:
        raise UnexpectedAnswerError(reply.status, f"no header {COMMIT_HEADER}, which tells the commit that was read")
    return commit_id


def _read_point(remote: Remote, /, operation_id: str, point: ReadPoint) -> Steps[Reply]:
    asked = point
    return (yield from read(remote, remote._reading(remote._request(operation_id, asked), point), point))


def read(remote: Remote, /, request: Request, point: ReadPoint) -> Steps[Reply]:
    """One read of a state."""
    reply = yield request
    forget_if_gone(remote, request, reply, point)
    return reply.checked()


def forget_if_gone(remote: Remote, /, request: Request, reply: Reply, point: ReadPoint) -> None:
    """A branch that lacks a commit of this client was made anew by somebody: said once, then it is as it is."""
    if reply.status == 412 and MIN_COMMIT_HEADER in request.headers:
        remote._forget(branch_of(point.branch))


def plan_schema(
    remote: Remote, /, text: str, *, branch: str = MAIN, allow_data_loss: bool = False
) -> Steps[SchemaPlan]:
    """The steps from a branch's schema to this one; also when some of them are not possible."""
    reply = yield remote._request("planSchema", body=SchemaPlanRequest(text, allow_data_loss, branch))
    return reply.decoded(SchemaPlan)


def stored_queries(remote: Remote, /) -> Steps[StoredQueries]:
    """The queries that the server offers by name."""
    reply = yield remote._request("list_queries")
    return reply.decoded(StoredQueries)


def list_graphs(remote: Remote, /) -> Steps[list[GraphInfo]]:
    """The graphs of the server, for those who may know."""
    reply = yield remote._request("listGraphs")
    return list(reply.decoded(GraphList).graphs)
