"""The gates of scopes with and without a bundle: decisions with their messages, and the visibility of an actor.

Servers and handles make one with `load_gate` and share it between requests; it is immutable. Cedar makes the decisions.
The nearest rule of a denied request is found by comparing the parts of the rules, and never decides anything.
"""

from __future__ import annotations

from copy import copy
from enum import StrEnum
from typing import Final

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest, Decision
from omnigraph.errors import CompileError, PolicyError, PolicyEvaluationError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query.row_filter import UNRESTRICTED, Visibility
from omnigraph.policy.bundle import SERVER_ACTIONS, BranchScope, Bundle, Rule, ScopeKind, align, read_bundle
from omnigraph.policy.cedar import SERVER, CompiledRules
from omnigraph.policy.visibility import Restrictions, resolve_restrictions


class Lack(StrEnum):
    """A part of a rule that a request does not meet, from nearest to farthest."""

    BRANCH_SCOPE = "branch_scope"
    TARGET_BRANCH_SCOPE = "target_branch_scope"
    GROUP = "group"
    ACTION = "action"


def lacks(bundle: Bundle, rule: Rule, actor: str | None, request: AccessRequest) -> dict[Lack, str]:
    """The reasons why a rule does not allow a request, nearest first; none for a rule that allows it."""
    messages: dict[Lack, str] = {}
    for kind, scope, named, branch in (
        (Lack.BRANCH_SCOPE, rule.branch_scope, "branch", request.branch),
        (Lack.TARGET_BRANCH_SCOPE, rule.target_branch_scope, "target branch", request.target_branch),
    ):
        if scope is None or scope is BranchScope.ANY:
            continue
        if branch is None:
            messages[kind] = f"{kind} is '{scope}', and the request names no {named}"
        elif (branch in bundle.protected_branches) is not (scope is BranchScope.PROTECTED):
            standing = "protected" if branch in bundle.protected_branches else "not protected"
            messages[kind] = f"{kind} is '{scope}', and {named} '{branch}' is {standing}"
    if actor is None:
        messages[Lack.GROUP] = f"the request has no actor, and only members of group '{rule.group}' may"
    elif rule.group not in bundle.groups_of.get(actor, frozenset()):
        messages[Lack.GROUP] = f"actor '{actor}' is not in group '{rule.group}'"
    if request.action not in rule.actions:
        messages[Lack.ACTION] = f"action '{request.action}' is not listed ({', '.join(rule.actions)})"
    return messages


def nearest_rule(bundle: Bundle, actor: str | None, request: AccessRequest) -> tuple[str, dict[Lack, str]] | None:
    """The rule with the fewest lacks, and these; among equals the one with the nearest lack, then the first in the
    file."""
    candidates = [(rule.id, lacks(bundle, rule, actor, request)) for rule in bundle.rules]
    return min(candidates, key=lambda near: (len(near[1]), [list(Lack).index(lack) for lack in near[1]]), default=None)


def describe_lacks(nearest: tuple[str, dict[Lack, str]] | None) -> tuple[str, ...]:
    """The reasons of a denial, as sentences."""
    if nearest is None:
        return ("there are no rules, so everything is denied",)
    rule_id, messages = nearest
    return tuple(f"nearest rule '{rule_id}': {message}" for message in messages.values())


class WithoutRules:
    """The gate of a scope without a bundle: an authenticated actor may read, and do nothing else. Without an actor
    there is no authentication at all, so everything is allowed."""

    def decide(self, actor: str | None, request: AccessRequest) -> Decision:
        action = request.action
        if actor is not None and action in SERVER_ACTIONS:
            return Decision(False, f"policy denied action '{action}': no rules are bound to the server itself")
        if actor is not None and action is not PolicyAction.READ:
            return Decision(False, f"policy denied action '{action}' for actor '{actor}': default-deny, no rules bound")
        return Decision(True, f"policy allowed action '{action}'")


WITHOUT_RULES: Final = WithoutRules()


def require(decision: Decision) -> None:
    """Raise `PolicyError` for a denial."""
    if not decision.allowed:
        raise PolicyError(decision.message, decision.reasons)


class PolicyGate:
    """The rules of a bundle for one scope. Raises `CompileError` when they can't be compiled."""

    def __init__(self, bundle: Bundle, graph_id: str = SERVER) -> None:
        self.bundle = bundle
        self.rules = CompiledRules(bundle, graph_id)
        self.restrictions = Restrictions(bundle)
        self._by_id = {rule.id: rule for rule in bundle.rules}
        self._has_admins = any(PolicyAction.ADMIN in rule.actions for rule in bundle.rules)
        self._catalog: Catalog | None = None

    @property
    def restricts(self) -> bool:
        """Whether any rule has row filters or column masks."""
        return any(rule.restricts for rule in self.bundle.rules)

    def bind_schema(self, catalog: Catalog) -> PolicyGate:
        """The same rules for a graph with this schema. Raises `CompileError` when their restrictions don't fit it."""
        resolve_restrictions(self.bundle, catalog)
        gate = copy(self)
        gate._catalog = catalog
        return gate

    def decide(self, actor: str | None, request: AccessRequest) -> Decision:
        """Decide a request. Raises `PolicyEvaluationError` when a rule can't be evaluated, which is not a denial."""
        if actor is None:
            return Decision(False, f"{_denial(request)}: the request has no actor")
        if actor not in self.bundle.groups_of:
            return Decision(False, f"policy denied action '{request.action}' for unknown actor '{actor}'")
        rules = self.rules.allowing_ids(actor, request)
        if not rules:
            reasons: tuple[str, ...] = ()
            # Only an actor that may read the rules, that is, one that may `admin`, learns what the nearest rule lacks.
            if self._has_admins and self.rules.allowing_ids(actor, AccessRequest(PolicyAction.ADMIN)):
                reasons = describe_lacks(nearest_rule(self.bundle, actor, request))
            return Decision(False, f"{_denial(request)} for actor '{actor}'", reasons=reasons)
        return Decision(True, f"policy allowed action '{request.action}' for actor '{actor}'", rules[0])

    def allowing_rules(self, actor: str | None, request: AccessRequest) -> tuple[Rule, ...]:
        """The rules that allow a request, in the order of their ids."""
        if actor is None or actor not in self.bundle.groups_of:
            return ()
        return tuple(self._by_id[rule_id] for rule_id in self.rules.allowing_ids(actor, request))

    def visibility(self, actor: str | None, request: AccessRequest, catalog: Catalog | None = None) -> Visibility:
        """The visibility of an actor for a request, under the bound schema or another one. Raises `PolicyError` when
        the request is denied, and `PolicyEvaluationError` when the restrictions don't fit the schema."""
        if catalog is None:
            if not self.restricts:
                return UNRESTRICTED
            if self._catalog is None:
                raise PolicyEvaluationError(["the rules have restrictions and are not bound to a schema"])
            catalog = self._catalog
        require(self.decide(actor, request))
        assert actor is not None, "a request without an actor is always denied"
        try:
            return self.restrictions.visibility(actor, self.allowing_rules(actor, request), catalog)
        except CompileError as error:
            # The caller must not learn which rows a rule shows.
            message = "a restriction of a rule does not fit the schema; validate the bundle against it"
            raise PolicyEvaluationError([message]) from error


def _denial(request: AccessRequest) -> str:
    on = "" if request.branch is None else f" on branch '{request.branch}'"
    targeting = "" if request.target_branch is None else f" targeting branch '{request.target_branch}'"
    return f"policy denied action '{request.action}'{on}{targeting}"


def load_gate(source: str, kind: ScopeKind, label: str, graph_id: str | None = None) -> PolicyGate:
    """The gate of a bundle. `label` names the bundle in messages; without a graph id the gate is the server's."""
    bundle = read_bundle(source, label)
    align(bundle, kind)
    return PolicyGate(bundle, SERVER if kind == "server" or graph_id is None else graph_id)
