"""What every operation on one open graph shares: its storage, its limits, and what it may use.

A snapshot and a write transaction carry these, so a query on a past state embeds texts and counts memory as one on the
head does. `engine.workspace` adds how states are found and commits are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Protocol, Self, runtime_checkable

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest, Gate, Limits
from omnigraph.engine.observers import audited
from omnigraph.engine.query.search.embedder import Embedder
from omnigraph.engine.write.external_blobs import DENY_EXTERNAL_BLOBS, ExternalBlobPolicy
from omnigraph.errors import PolicyError, PolicyEvaluationError
from omnigraph.language.query.row_filter import OPEN, Lens
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.root import GraphRoot

DEFAULT_LIMITS: Final = Limits()
_REMEMBERED_COMPARISONS: Final = 4
_ASKED_BY_OPERATIONS: Final = frozenset(PolicyAction) - {PolicyAction.READ, PolicyAction.EXPORT, PolicyAction.ADMIN}


def _comparisons() -> RecentlyUsed[tuple[str, str], object]:
    return RecentlyUsed(_REMEMBERED_COMPARISONS)


@runtime_checkable
class SightedGate(Gate, Protocol):
    """Rules that may allow a part of the graph only."""

    def sight(self, actor: str | None, request: AccessRequest) -> Lens:
        """What an actor that may do this sees. Raises when that can't be told."""
        ...


@dataclass(frozen=True, eq=False)
class Resources:
    """One open graph with the settings of one handle. Immutable and safe to share between threads."""

    root: GraphRoot
    limits: Limits = DEFAULT_LIMITS
    external_blobs: ExternalBlobPolicy = DENY_EXTERNAL_BLOBS
    embedder: Embedder | None = None
    gate: Gate | None = None
    """The rules that govern writes through this handle. None: whoever has the handle may do everything."""
    acts_for: str | None = None
    """The actor of everything that is done through this handle. The rules then govern reads as well."""
    settled: bool = False
    """Whether it was asked what the actor may do now: `lens` is what it sees then."""
    lens: Lens = OPEN
    """What is seen and may be changed through this handle. Who makes it narrow also says whose it is."""
    comparisons: RecentlyUsed[tuple[str, str], object] = field(default_factory=_comparisons, repr=False)
    """What the last commits changed and how the last states differed, for the pages of a large difference; kept and
    read by `engine.history` alone."""

    def require(
        self,
        actor: str | None,
        action: PolicyAction,
        branch: str | None = None,
        target_branch: str | None = None,
        *,
        audit: bool = True,
    ) -> None:
        """Go on only if the rules let the actor do this. Under rules, nobody in particular may do nothing."""
        if self.gate is None:
            return
        request = AccessRequest(action, branch, target_branch)
        try:
            decision = self.gate.decide(actor, request)
        except PolicyEvaluationError as error:
            raise PolicyError(str(error)) from error
        if self.acts_for is not None and (audit or not decision.allowed):
            audited(self.graph_id, actor, request, decision)
        if not decision.allowed:
            raise PolicyError(f"policy: policy denied: {decision.message}", decision.reasons)

    def sight(self, action: PolicyAction, branch: str | None = None, target_branch: str | None = None) -> Lens:
        """What the actor of this handle sees when it does this, if it may; through a handle that acts for nobody,
        whatever the handle shows."""
        if self.acts_for is None or self.gate is None or self.settled:
            return self.lens
        # Operations that write ask themselves, with the actor of the write; that is noted then.
        self.require(self.acts_for, action, branch, target_branch, audit=action not in _ASKED_BY_OPERATIONS)
        if not isinstance(self.gate, SightedGate):
            return self.lens
        return self.gate.sight(self.acts_for, AccessRequest(action, branch, target_branch))

    def sees_all(self, actor: str | None, branch: str) -> bool:
        """Whether an actor may read a branch, and all of it."""
        if self.gate is None:
            return self.lens.is_open
        request = AccessRequest(PolicyAction.READ, branch)
        if not self.gate.decide(actor, request).allowed:
            return False
        return not isinstance(self.gate, SightedGate) or self.gate.sight(actor, request).is_open

    def acting(self, action: PolicyAction, branch: str | None = None, target_branch: str | None = None) -> Self:
        """This handle for one thing that its actor does: settled whether it may, and what it sees then."""
        if self.acts_for is None:
            return self
        return replace(self, lens=self.sight(action, branch, target_branch), settled=True)

    def author(self, actor: str | None) -> str | None:
        """Who a write is recorded for. Who acts for somebody can't write in another name."""
        if self.acts_for is None:
            return actor
        if actor not in (None, self.acts_for):
            raise PolicyError(f"policy: this handle acts for '{self.acts_for}' and can't write for '{actor}'")
        return self.acts_for

    def refuse_narrowed(self, what: str) -> None:
        """For operations that show or change everything, and can't do so in part."""
        if not self.lens.is_open:
            raise narrowed_error(what)

    @property
    def uri(self) -> str:
        return self.root.location.uri

    @property
    def graph_id(self) -> str:
        return self.root.identity.graph_id


def narrowed_error(what: str) -> PolicyError:
    return PolicyError(f"policy: {what} needs a rule without rows and hide: it is about everything there is")
