"""Why a request is allowed or denied: the rules that allow it, or the nearest rule and what it lacks.

The decision itself is Cedar's. Only what a rule lacks is found by looking at its parts, one by one, and the two agree:
a rule that lacks nothing is one that allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.api.access import AccessRequest, Decision
from omnigraph.policy.gate import PolicyGate
from omnigraph.policy.rules import BranchScope, Bundle, Rule


class Lack(StrEnum):
    """A part of a rule that a request does not meet. The order is from nearest to farthest."""

    BRANCH_SCOPE = "branch_scope"
    TARGET_BRANCH_SCOPE = "target_branch_scope"
    GROUP = "group"
    ACTION = "action"


@dataclass(frozen=True, slots=True)
class Lacking:
    """One thing a rule lacks to allow a request, and the sentence that says so."""

    kind: Lack
    message: str


@dataclass(frozen=True, slots=True)
class NearestRule:
    """The rule that comes closest to allowing a request."""

    rule_id: str
    lacks: tuple[Lacking, ...]


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
        if self.nearest is None:
            return ("there are no rules, so everything is denied",)
        return tuple(f"nearest rule '{self.nearest.rule_id}': {lack.message}" for lack in self.nearest.lacks)

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
    return Explanation(actor, request, decision, nearest=_nearest(gate.bundle, actor, request))


def lacks(bundle: Bundle, rule: Rule, actor: str | None, request: AccessRequest) -> tuple[Lacking, ...]:
    """What stands between a rule and a request, nearest first; nothing for a rule that allows it."""
    return tuple(sorted(_lacks(bundle, rule, actor, request), key=lambda lack: _RANK[lack.kind]))


_RANK = {lack: rank for rank, lack in enumerate(Lack)}


def _nearest(bundle: Bundle, actor: str | None, request: AccessRequest) -> NearestRule | None:
    """The rule that lacks least; among equals the one whose lack is nearest, then the first in the file."""
    found = [NearestRule(rule.id, lacks(bundle, rule, actor, request)) for rule in bundle.rules]
    return min(found, key=lambda near: (len(near.lacks), [_RANK[lack.kind] for lack in near.lacks]), default=None)


def _lacks(bundle: Bundle, rule: Rule, actor: str | None, request: AccessRequest) -> Iterator[Lacking]:
    if actor is None:
        yield Lacking(Lack.GROUP, f"nobody said who asks, and only members of group '{rule.group}' may")
    elif rule.group not in bundle.groups_of.get(actor, frozenset()):
        yield Lacking(Lack.GROUP, f"actor '{actor}' is not in group '{rule.group}'")
    if request.action not in rule.actions:
        listed = ", ".join(rule.actions)
        yield Lacking(Lack.ACTION, f"action '{request.action}' is not listed ({listed})")
    for kind, scope, named, branch in (
        (Lack.BRANCH_SCOPE, rule.branch_scope, "branch", request.branch),
        (Lack.TARGET_BRANCH_SCOPE, rule.target_branch_scope, "target branch", request.target_branch),
    ):
        if scope is None or scope is BranchScope.ANY:
            continue
        if branch is None:
            yield Lacking(kind, f"{kind} is '{scope}', and the request names no {named}")
        elif (branch in bundle.protected_branches) is not (scope is BranchScope.PROTECTED):
            standing = "protected" if branch in bundle.protected_branches else "not protected"
            yield Lacking(kind, f"{kind} is '{scope}', and {named} '{branch}' is {standing}")


def _shown_by(rule: Rule) -> Iterator[str]:
    yield f"rule '{rule.id}' allows it to group '{rule.group}'"
    for shown in rule.rows:
        yield f"rule '{rule.id}' shows of {shown.type_name} the rows with {' '.join(shown.filter.split())}"
    for hide in rule.hide:
        yield f"rule '{rule.id}' hides of {hide.type_name} {', '.join(hide.properties)}"
