"""What every operation on one open graph shares: its storage, its limits, and what it may use.

A snapshot and a write transaction carry these, so a query on a past state embeds texts and counts memory as one on the
head does. `engine.workspace` adds how states are found and commits are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from omnigraph.api.access import AccessRequest, Gate
from omnigraph.api.enums import PolicyAction
from omnigraph.api.limits import Limits
from omnigraph.engine.query.search.embedder import Embedder
from omnigraph.engine.write.external_blobs import DENY_EXTERNAL_BLOBS, ExternalBlobPolicy
from omnigraph.errors import OmniGraphError, PolicyError
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.root import GraphRoot

DEFAULT_LIMITS: Final = Limits()
_REMEMBERED_COMPARISONS: Final = 4


def _comparisons() -> RecentlyUsed[tuple[str, str], object]:
    return RecentlyUsed(_REMEMBERED_COMPARISONS)


@dataclass(frozen=True, eq=False)
class Resources:
    """One open graph with the settings of one handle. Immutable and safe to share between threads."""

    root: GraphRoot
    limits: Limits = DEFAULT_LIMITS
    external_blobs: ExternalBlobPolicy = DENY_EXTERNAL_BLOBS
    embedder: Embedder | None = None
    gate: Gate | None = None
    """The rules that govern writes through this handle. None: whoever has the handle may do everything."""
    comparisons: RecentlyUsed[tuple[str, str], object] = field(default_factory=_comparisons, repr=False)
    """What the last commits changed and how the last states differed, for the pages of a large difference; kept and
    read by `engine.history` alone."""

    def require(
        self, actor: str | None, action: PolicyAction, branch: str | None = None, target_branch: str | None = None
    ) -> None:
        """Go on only if the rules let the actor do this. Under rules, nobody in particular may do nothing."""
        if self.gate is None:
            return
        try:
            decision = self.gate.decide(actor, AccessRequest(action, branch, target_branch))
        except OmniGraphError as error:
            raise PolicyError(f"policy: {error}") from error
        if not decision.allowed:
            raise PolicyError(f"policy: policy denied: {decision.message}")

    @property
    def uri(self) -> str:
        return self.root.location.uri

    @property
    def graph_id(self) -> str:
        return self.root.identity.graph_id
