"""Access requests and decisions: what is asked before anything is done, and the answer. `omnigraph.policy` answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from omnigraph.api.enums import PolicyAction


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """What an actor wants to do: the action, and the branches it is about where it is about any."""

    action: PolicyAction
    branch: str | None = None
    target_branch: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, the sentence that says so, and the rule that allowed it.

    `reasons` say what the nearest rule lacks to allow it, if the actor may read the rules.
    """

    allowed: bool
    message: str
    matched_rule_id: str | None = None
    reasons: tuple[str, ...] = ()


class Gate(Protocol):
    """The rules of one scope: the server, or one graph."""

    def decide(self, actor: str | None, request: AccessRequest) -> Decision:
        """Whether the actor may do it. Raises `PolicyEvaluationError` when that can't be told, which is no denial."""
        ...
