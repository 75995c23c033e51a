"""One call of an operation: the decoded request, its actor, and the graph as the engine shows it to that actor.

Handlers get a `Call` and nothing else. What an actor may do with a graph is decided by the engine behind `call.graph`;
only the scope of the server itself is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest
from omnigraph.api.queries import ReadPoint
from omnigraph.api.service.routes import COMMIT_HEADER, IDEMPOTENCY_HEADER, MIN_COMMIT_HEADER, Media, Route
from omnigraph.engine.history.log_walk import is_on_line
from omnigraph.engine.query.limits import Cancellation
from omnigraph.engine.query.read import ReadOptions
from omnigraph.engine.resources import Caller
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import BadRequestError, PreconditionFailedError
from omnigraph.graph import Graph
from omnigraph.policy.gate import require
from omnigraph.server.admission import Budgets
from omnigraph.server.catalog import Served
from omnigraph.server.http.request import Exchange
from omnigraph.server.http.responses import AnyResponse, Response, json_response, matches_weakly, tag_of, with_headers
from omnigraph.server.reload import HeldServing, ServingSets
from omnigraph.server.runtime.context import Telemetry
from omnigraph.server.settings import ServerLimits

MAIN: Final = "main"
BRANCH_OPERATION_BYTES: Final = 256
"""The bytes that an operation on branches counts for in the budget of its actor."""
_LONGEST_KEY: Final = 256


@dataclass(frozen=True, slots=True)
class Services:
    """The services that all calls of a process share."""

    states: ServingSets
    limits: ServerLimits
    budgets: Budgets
    telemetry: Telemetry
    version: str
    source_version: str | None = None


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """The branch of a load and the graph for an actor who may load into it. `creates_from` is the base only if the
    branch did not exist: a branch that is deleted while the body comes is not created again."""

    branch: str
    base: str | None
    creates_from: str | None
    graph: Graph


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """The body of a load that was too large to be kept in memory while it came, and where it goes."""

    path: Path
    size: int
    target: LoadTarget
    media: Media


@dataclass(frozen=True, slots=True)
class Call:
    """One request, its actor, and the services that it may use."""

    route: Route
    exchange: Exchange
    path: Mapping[str, str]
    services: Services
    held: HeldServing
    target: Served | None = None
    parameters: Any = None
    body: Any = None
    raw_request: bytes = b""
    cancellation: Cancellation = field(default_factory=Cancellation)

    @property
    def actor(self) -> str | None:
        return self.exchange.record.actor

    @property
    def headers(self) -> Mapping[str, str]:
        return self.exchange.headers

    @property
    def served(self) -> Served:
        if self.target is None:
            raise AssertionError(f"{self.route.operation_id} is not about a graph")
        return self.target

    @property
    def graph(self) -> Graph:
        """The graph for the actor of this request: the engine decides what the actor may do, and the server logs it."""
        return self.served.graph._acting_for(self._caller, self.read_options())

    @property
    def workspace(self) -> Workspace:
        return self.graph._workspace

    @property
    def _caller(self) -> Caller:
        return Caller(self.actor, partial(self.services.telemetry.log_decision, self.exchange.request_id))

    @property
    def writes(self) -> bool:
        """Whether this call changes the graph. For a stored query that depends on the query."""
        if self.route.operation_id != "invoke_query":
            return self.route.writes
        stored = self.served.queries.get(self.path["name"])
        return stored is not None and stored.entry.mutation

    @property
    def limits(self) -> ServerLimits:
        return self.services.limits

    # Policy

    def require(self, action: PolicyAction, branch: str | None = None, target_branch: str | None = None) -> Graph:
        """The graph for one operation that the actor may do; for operations that wait for admission after that."""
        return self.graph._allow(action, branch, target_branch)

    def require_of_server(self, action: PolicyAction) -> None:
        """Raise unless the actor may do this with the server itself, which is a scope of its own."""
        require(self._caller.decide(self.held.serving.gate, AccessRequest(action), "server"))

    @property
    def idempotency_key(self) -> str | None:
        """The name that the caller gave this write, so that it can be repeated safely."""
        key = self.headers.get(IDEMPOTENCY_HEADER.lower())
        if key is None:
            return None
        if not 0 < len(key) <= _LONGEST_KEY or not key.isprintable():
            raise BadRequestError(f"the header {IDEMPOTENCY_HEADER} must hold 1 to {_LONGEST_KEY} printable characters")
        return key

    # Reading

    def read_options(self, traversal_work: int | None = None) -> ReadOptions:
        """The limits of a read. A request may lower the traversal work, but not raise it."""
        most = self.limits.traversal_work
        return ReadOptions(
            memory_bytes=self.limits.query_memory_bytes,
            traversal_work=most if traversal_work is None else min(most, traversal_work),
            cancellation=self.cancellation,
            feed_seconds=self.limits.query_seconds,
            returns_at_once=False,
        )

    def state(self, point: ReadPoint) -> Snapshot:
        """The snapshot that a read is of, if the actor may read it."""
        point = point.normalize()
        return self._recent_enough(point, self.workspace.state_at(point))

    def read(
        self,
        point: ReadPoint,
        read: Callable[[Snapshot], AnyResponse],
        *,
        action: PolicyAction = PolicyAction.READ,
        immutable: bool = True,
        of_branch: bool = True,
        text: str = "",
    ) -> AnyResponse:
        """One read of one snapshot, if the actor may read it.

        The content of a commit never changes, so its response gets a tag, and a client that has it already gets a 304.
        Another version of the program may give another response, so it gives another tag.
        `text` is the query where the request only names it. Without `of_branch`, the decision is about no branch.
        """
        point = point.normalize()
        if point.snapshot is None:
            workspace = self.workspace.for_action(action, point.branch if of_branch else None)
            return workspace.read(lambda state: read(self._recent_enough(point, state)), point)
        state = self.workspace.state_at(point, action)
        if not immutable or state.visibility.reads_the_clock:
            return read(state)
        accept = self.headers.get("accept", "")
        program, shown = self.services.version, state.visibility.digest
        tag = tag_of(program, state.commit_id, self.route.operation_id, accept, self.raw_request, text, shown)
        if matches_weakly(self.headers.get("if-none-match", ""), tag):
            return Response(status=304, media=None, headers={"ETag": tag, **self.commit_header(state)})
        return with_headers(read(state), {"ETag": tag})

    def read_json(self, point: ReadPoint, read: Callable[[Snapshot], Any], **options: Any) -> AnyResponse:
        """As `read`, of a value that is sent as JSON with the commit that it was read at."""
        return self.read(point, lambda state: json_response(read(state), self.commit_header(state)), **options)

    def _recent_enough(self, point: ReadPoint, state: Snapshot) -> Snapshot:
        """A client that names a commit it has read never reads an older head of the branch."""
        wanted = self.headers.get(MIN_COMMIT_HEADER.lower(), "").strip()
        if not wanted or point.snapshot is not None:
            return state
        if not is_on_line(state.root, state.branch, state.version, wanted):
            raise PreconditionFailedError(state.branch, wanted, state.commit_id)
        return state

    def commit_header(self, state: Snapshot) -> dict[str, str]:
        """The header with the commit that a read saw."""
        return {COMMIT_HEADER: state.commit_id}


def branch_name(name: str | None, default: str = MAIN) -> str:
    """A branch as rules, budgets and the engine know it: without the white space around it."""
    if name is None:
        return default
    trimmed = name.strip()
    if not trimmed:
        raise BadRequestError("a branch name must not be blank")
    return trimmed


Handler = Callable[[Call], AnyResponse]

HANDLERS: Final[dict[str, Handler]] = {}


def handles(*operation_ids: str) -> Callable[[Handler], Handler]:
    """Register the handler of some operations."""

    def register(handler: Handler) -> Handler:
        assert not HANDLERS.keys() & set(operation_ids), operation_ids
        HANDLERS.update(dict.fromkeys(operation_ids, handler))
        return handler

    return register
