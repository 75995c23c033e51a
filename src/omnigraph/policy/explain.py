"""Why a request is allowed or denied: the rules that allow it, or the nearest rule and what it lacks.

The decision itself is Cedar's; what a rule lacks is found by `nearest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.api.governance import AccessRequest, Decision
from omnigraph.policy.gate import PolicyGate
from omnigraph.policy.nearest import NearestRule, nearest_rule, told_lacks
from omnigraph.policy.rules import Rule


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and its reasons. Either rules allow the request, or `nearest` is the best that was found."""

    actor: str | None
    request: AccessRequest
    decision: Decision
    allowing: tuple[Rule, ...] = ()
    nearest: NearestRule | None = None

    def reasons(self) -> tuple[str, ...]:
        """Sentences, the most important one first."""
        if self.allowing:
            return tuple(sentence for rule in self.allowing for sentence in _shown_by(rule))
        return told_lacks(self.nearest)

    def lines(self) -> tuple[str, ...]:
        """`key: value`, as `policy explain` prints it; what is absent has no line."""
        values = [
            ("decision", "allow" if self.decision.allowed else "deny"),
            ("actor", self.actor),
            ("action", self.request.action.value),
            ("branch", self.request.branch),
            ("target_branch", self.request.target_branch),
            ("matched_rule", self.decision.matched_rule_id),
            ("message", self.decision.message),
        ]
        told = [f"{key}: {value}" for key, value in values if value is not None]
        return (*told, *(f"reason: {reason}" for reason in self.reasons()))


def explain(gate: PolicyGate, actor: str | None, request: AccessRequest) -> Explanation:
    """Raises `PolicyEvaluationError`, as the decision would."""
    decision = gate.decide(actor, request)
    if decision.allowed:
        return Explanation(actor, request, decision, gate.matching(actor, request))
    return Explanation(actor, request, decision, nearest=nearest_rule(gate.bundle, actor, request))


def _shown_by(rule: Rule) -> Iterator[str]:
    yield f"rule '{rule.id}' allows it to group '{rule.group}'"
    for shown in rule.rows:
        yield f"rule '{rule.id}' shows of {shown.type_name} the rows with {' '.join(shown.filter.split())}"
    for hide in rule.hide:
        yield f"rule '{rule.id}' hides of {hide.type_name} {', '.join(hide.properties)}"
