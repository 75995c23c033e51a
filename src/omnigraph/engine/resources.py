"""The resources of one open graph: storage, limits, embedder, policy gate and visibility, for every operation.

A snapshot and a write transaction carry them, so a query on a past state has the same limits and rules as one on the
head. The gate is asked here and nowhere else in the engine. `engine.workspace` adds snapshots and commits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias, runtime_checkable

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest, Decision, Gate, Limits
from omnigraph.engine.observers import audit
from omnigraph.engine.write.external_blobs import DENY_EXTERNAL_BLOBS, ExternalBlobPolicy
from omnigraph.errors import OmniGraphError, PolicyError, PolicyEvaluationError
from omnigraph.language.query.row_filter import UNRESTRICTED, Visibility
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.root import GraphRoot

if TYPE_CHECKING:
    from omnigraph.engine.query.search.embedder import Embedder

DEFAULT_LIMITS: Final = Limits()
_REMEMBERED_COMPARISONS: Final = 4


@runtime_checkable
class RestrictingGate(Gate, Protocol):
    """Rules that may allow a part of the graph only."""

    def visibility(self, actor: str | None, request: AccessRequest) -> Visibility:
        """The part of the graph that an actor sees when it does this. Raises when the rules can't be evaluated."""
        ...


DecisionObserver: TypeAlias = Callable[[str | None, AccessRequest, Decision], None]
"""Called with the actor, the request and the decision, once for every decision."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The one actor that a handle acts for; None is an anonymous one. Without an observer, each decision is written to
    the audit log of `engine.observers`."""

    actor: str | None
    observer: DecisionObserver | None = None

    def decide(self, gate: Gate, request: AccessRequest, scope: str) -> Decision:
        """One decision about a graph or a server, which is observed once. Rules that can't be evaluated don't deny."""
        try:
            decision = gate.decide(self.actor, request)
        except OmniGraphError:
            raise
        except Exception as error:
            raise PolicyEvaluationError([f"the rules for '{request.action}' broke: {error}"]) from error
        if self.observer is not None:
            self.observer(self.actor, request, decision)
        else:
            audit(scope, self.actor, request, decision)
        return decision


@dataclass(frozen=True, eq=False)
class Resources:
    """One open graph with the settings of one handle. Immutable and safe to share between threads."""

    root: GraphRoot
    limits: Limits = DEFAULT_LIMITS
    external_blobs: ExternalBlobPolicy = DENY_EXTERNAL_BLOBS
    embedder: Embedder | None = None
    gate: Gate | None = None
    """The rules that govern writes through this handle. None: everything is allowed."""
    caller: Caller | None = None
    """The actor of everything that is done through this handle. The gate then governs reads as well."""
    allowed: frozenset[AccessRequest] = frozenset()
    """Requests that the gate has allowed the caller. They are not decided again; `visibility` is what it sees."""
    visibility: Visibility = UNRESTRICTED
    """The part of the graph that this handle reads and may change. Code that restricts it also sets the actor."""
    comparisons: RecentlyUsed[tuple[str, str], object] = field(
        default_factory=lambda: RecentlyUsed(_REMEMBERED_COMPARISONS), repr=False
    )
    """What the last commits changed and how the last states differed, for the pages of a large difference; kept and
    read by `engine.history` alone."""

    def require(
        self, actor: str | None, action: PolicyAction, branch: str | None = None, target_branch: str | None = None
    ) -> None:
        """Raise `PolicyError` unless the gate lets the actor do this. Behind a gate, anonymous actors are denied."""
        request = AccessRequest(action, branch, target_branch)
        if self.gate is None or request in self.allowed:
            return
        if self.caller is not None:
            decision = self.caller.decide(self.gate, request, self.graph_id)
            if not decision.allowed:
                raise PolicyError(decision.message, decision.reasons)
            return
        try:
            decision = self.gate.decide(actor, request)
        except PolicyEvaluationError as error:
            raise PolicyError(str(error)) from error
        if not decision.allowed:
            raise PolicyError(f"policy: policy denied: {decision.message}", decision.reasons)

    def allows(self, action: PolicyAction, branch: str | None = None, target_branch: str | None = None) -> bool:
        """Whether the caller of this handle may do this."""
        request = AccessRequest(action, branch, target_branch)
        if self.gate is None or self.caller is None or request in self.allowed:
            return True
        return self.caller.decide(self.gate, request, self.graph_id).allowed

    def for_action(self, action: PolicyAction, branch: str | None = None, target_branch: str | None = None) -> Self:
        """This handle for one operation that its caller may do, with what the caller sees then."""
        request = AccessRequest(action, branch, target_branch)
        if self.caller is None or request in self.allowed:
            return self
        self.require(self.caller.actor, action, branch, target_branch)
        visibility = self.visibility
        if isinstance(self.gate, RestrictingGate):
            visibility = self.gate.visibility(self.caller.actor, request)
        return replace(self, visibility=visibility, allowed=self.allowed | {request})

    def visibility_for(self, action: PolicyAction, branch: str | None) -> Visibility:
        """What the caller sees of a branch. A handle that was allowed an operation keeps what it shows for that."""
        return self.visibility if self.allowed else self.for_action(action, branch).visibility

    def sees_all(self, actor: str | None, branch: str) -> bool:
        """Whether an actor may read a branch, and all of it."""
        if self.gate is None:
            return self.visibility.is_unrestricted
        request = AccessRequest(PolicyAction.READ, branch)
        if not self.gate.decide(actor, request).allowed:
            return False
        return not isinstance(self.gate, RestrictingGate) or self.gate.visibility(actor, request).is_unrestricted

    def author(self, actor: str | None) -> str | None:
        """The actor that a write is recorded for. A handle that acts for one actor can't write for another."""
        if self.caller is None:
            return actor
        if actor not in (None, self.caller.actor):
            raise PolicyError(f"policy: this handle acts for '{self.caller.actor}' and can't write for '{actor}'")
        return self.caller.actor

    def refuse_restricted(self, what: str) -> None:
        """For operations that show or change everything, and can't do so in part."""
        if not self.visibility.is_unrestricted:
            raise restricted_error(what)

    @property
    def uri(self) -> str:
        return self.root.location.uri

    @property
    def graph_id(self) -> str:
        return self.root.identity.graph_id


def restricted_error(what: str) -> PolicyError:
    return PolicyError(f"policy: {what} needs a rule without rows and hide: it is about everything there is")
