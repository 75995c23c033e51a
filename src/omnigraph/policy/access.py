"""The gate: one question per check, answered before the engine is asked for anything.

A gate governs one scope, the server or one graph. Faces ask it and never decide themselves; which rules stand behind
it is its own business.
"""

from __future__ import annotations

from typing import Final

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest, Decision
from omnigraph.errors import PolicyError

SERVER_ACTIONS: Final = frozenset({PolicyAction.GRAPH_LIST})


class WithoutRules:
    """A scope to which no rules are bound: those who prove who they are may read, and nothing else is governed.

    With `actor` None nobody has to prove anything, so everything is allowed.
    """

    def decide(self, actor: str | None, request: AccessRequest) -> Decision:
        action = request.action
        if actor is not None and action in SERVER_ACTIONS:
            return Decision(False, f"policy denied action '{action}': no rules are bound to the server itself")
        if actor is not None and action is not PolicyAction.READ:
            return Decision(False, f"policy denied action '{action}' for actor '{actor}': default-deny, no rules bound")
        return Decision(True, f"policy allowed action '{action}'")


WITHOUT_RULES: Final = WithoutRules()


def require(decision: Decision) -> None:
    """Raise what a caller gets to see when the answer is no."""
    if not decision.allowed:
        raise PolicyError(decision.message, decision.reasons)
