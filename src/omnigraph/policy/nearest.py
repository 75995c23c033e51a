"""The rule that comes closest to allowing a request, and what it lacks.

It is found by looking at the parts of rules, one by one. Cedar decides without it, and the two agree: a rule that lacks
nothing is one that allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.api.governance import AccessRequest
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


def lacks(bundle: Bundle, rule: Rule, actor: str | None, request: AccessRequest) -> tuple[Lacking, ...]:
    """What stands between a rule and a request, nearest first; nothing for a rule that allows it."""
    return tuple(sorted(_lacks(bundle, rule, actor, request), key=lambda lack: _RANK[lack.kind]))


_RANK = {lack: rank for rank, lack in enumerate(Lack)}


def nearest_rule(bundle: Bundle, actor: str | None, request: AccessRequest) -> NearestRule | None:
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


def told_lacks(nearest: NearestRule | None) -> tuple[str, ...]:
    """What stands in the way, as sentences."""
    if nearest is None:
        return ("there are no rules, so everything is denied",)
    return tuple(f"nearest rule '{nearest.rule_id}': {lack.message}" for lack in nearest.lacks)
