"""Rules as Cedar policies: the generated text and entities, and the evaluation of a request.

A bundle is compiled once and validated strictly against the Cedar schema. Cedar alone decides which rules allow a
request; nothing here inspects a rule to find out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Final

import cedarpy

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest
from omnigraph.errors import PolicyEvaluationError
from omnigraph.language.source import LONE_SURROGATE, TextSpan
from omnigraph.policy.rules import SERVER_ACTIONS, BranchScope, Bundle, Rule

_NAMESPACE: Final = "Omnigraph"
_SERVER: Final = "root"
_MOST_CACHED: Final = 100_000

SCHEMA: Final = f"""\
namespace {_NAMESPACE} {{
  type Branches = {{
    has_branch: Bool,
    branch: String,
    has_target_branch: Bool,
    target_branch: String,
    branch_is_protected: Bool,
    target_branch_is_protected: Bool,
  }};

  entity Group;
  entity Actor in [Group];
  entity Graph;
  entity Server;

  action {", ".join(f'"{action}"' for action in PolicyAction if action not in SERVER_ACTIONS)}
    appliesTo {{ principal: [Actor], resource: [Graph], context: Branches }};
  action {", ".join(f'"{action}"' for action in PolicyAction if action in SERVER_ACTIONS)}
    appliesTo {{ principal: [Actor], resource: [Server], context: Branches }};
}}
"""


@cache
def _schema() -> cedarpy.Schema:
    return cedarpy.Schema.from_str(SCHEMA)


class BranchKind(Enum):
    """The kind of a branch in a request. Rules see nothing else of a branch."""

    ABSENT = 0
    UNPROTECTED = 1
    PROTECTED = 2


class CompiledRules:
    """The compiled rules of one scope. Safe to share between threads."""

    def __init__(self, bundle: Bundle, graph_id: str) -> None:
        """Raises `CompileError` for rules that Cedar refuses."""
        _refuse_repeated_actions(bundle)
        permits = [(action, _permit(rule, action, graph_id)) for rule in bundle.rules for action in rule.actions]
        self.text = "\n".join(text for _, text in permits)
        self._bundle = bundle
        self._graph_id = graph_id
        checked = cedarpy.validate_policies(self.text, _schema())
        if not checked.validation_passed:
            lines = "".join(f"\n{error}" for error in checked.errors)
            bundle.refuse(f"policy validation failed:{lines}", TextSpan(0, 0))
        # Cedar evaluates every policy it gets. Each policy names its action, so those of other actions can be left out.
        self._policies = {
            action: cedarpy.PolicySet.from_str("".join(text for of, text in permits if of == action))
            for action in PolicyAction
        }
        self._entities = cedarpy.Entities.from_json_str(json.dumps(list(_entities(bundle, graph_id))), _schema())
        self._cache: dict[tuple[str, PolicyAction, BranchKind, BranchKind], tuple[str, ...]] = {}

    def allowing(self, actor: str, request: AccessRequest) -> tuple[str, ...]:
        """The ids of the rules that allow a request, in string order; none when it is denied.

        The actor must be in a group of the bundle. The result is cached by actor, action and the kinds of the branches.
        Raises `PolicyEvaluationError`.
        """
        key = (actor, request.action, self._branch_kind(request.branch), self._branch_kind(request.target_branch))
        rules = self._cache.get(key)
        if rules is None:
            rules = self._evaluate(actor, request, key[2], key[3])
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            self._cache[key] = rules
        return rules

    def _branch_kind(self, branch: str | None) -> BranchKind:
        if branch is None:
            return BranchKind.ABSENT
        return BranchKind.PROTECTED if branch in self._bundle.protected_branches else BranchKind.UNPROTECTED

    def _evaluate(
        self, actor: str, request: AccessRequest, branch: BranchKind, target_branch: BranchKind
    ) -> tuple[str, ...]:
        of_server = request.action in SERVER_ACTIONS
        query = {
            "principal": _uid("Actor", actor),
            "action": _uid("Action", request.action),
            "resource": _uid("Server", _SERVER) if of_server else _uid("Graph", self._graph_id),
            "context": {
                "has_branch": branch is not BranchKind.ABSENT,
                "branch": _readable(request.branch),
                "branch_is_protected": branch is BranchKind.PROTECTED,
                "has_target_branch": target_branch is not BranchKind.ABSENT,
                "target_branch": _readable(request.target_branch),
                "target_branch_is_protected": target_branch is BranchKind.PROTECTED,
            },
        }
        policies = self._policies.get(request.action, "")
        response = cedarpy.is_authorized(query, policies, self._entities, _schema())
        diagnostics = response.diagnostics
        if diagnostics.errors or response.decision is cedarpy.Decision.NoDecision:
            raise PolicyEvaluationError(diagnostics.errors or ["Cedar made no decision"])
        if not response.allowed:
            return ()
        # Cedar numbers the policies of a text; the rule ids are in the annotations.
        ids = diagnostics.id_annotations_by_reason
        missing = [reason for reason in diagnostics.reasons if reason not in ids]
        if missing or not diagnostics.reasons:
            raise PolicyEvaluationError(["Cedar allowed the request and did not name a rule"])
        return tuple(sorted({_rule_id(ids[reason]) for reason in diagnostics.reasons}))


def _permit(rule: Rule, action: PolicyAction, graph_id: str) -> str:
    """The policy of one action of one rule."""
    of_server = action in SERVER_ACTIONS
    resource = _entity("Server", _SERVER) if of_server else _entity("Graph", graph_id)
    lines = [
        f"@id({_quote(_policy_id(rule, action))})",
        "permit (",
        f"  principal in {_entity('Group', rule.group)},",
        f"  action == {_entity('Action', action)},",
        f"  resource == {resource}",
        ")",
    ]
    condition = _condition("branch", rule.branch_scope) or _condition("target_branch", rule.target_branch_scope)
    if condition is not None:
        lines.append(f"when {{ {condition} }}")
    return "\n".join(lines) + ";\n"


def _condition(branch: str, scope: BranchScope | None) -> str | None:
    match scope:
        case None:
            return None
        case BranchScope.ANY:
            return "true"
        case BranchScope.PROTECTED:
            return f"context.has_{branch} && context.{branch}_is_protected"
        case BranchScope.UNPROTECTED:
            return f"context.has_{branch} && context.{branch}_is_protected == false"


def _entities(bundle: Bundle, graph_id: str) -> Iterator[dict[str, object]]:
    for group in bundle.groups:
        yield _entity_record(_uid("Group", group))
    for actor, groups in bundle.groups_of.items():
        yield _entity_record(_uid("Actor", actor), [_uid("Group", group) for group in sorted(groups)])
    yield _entity_record(_uid("Graph", graph_id))
    if any(action in SERVER_ACTIONS for rule in bundle.rules for action in rule.actions):
        yield _entity_record(_uid("Server", _SERVER))


def _entity_record(uid: dict[str, str], parents: list[dict[str, str]] | None = None) -> dict[str, object]:
    return {"uid": uid, "attrs": {}, "parents": parents or []}


def _refuse_repeated_actions(bundle: Bundle) -> None:
    for rule in bundle.rules:
        for i, action in enumerate(rule.actions):
            if action in rule.actions[:i]:
                message = f"policy rule '{rule.id}' lists action '{action}' twice: two policies would have the id "
                bundle.refuse(f"{message}'{_policy_id(rule, action)}'", rule.actions_at[i])


def _policy_id(rule: Rule, action: PolicyAction) -> str:
    return f"{rule.id}:{action}"


def _rule_id(policy_id: str) -> str:
    """No action has a colon in its name, so the last one ends the id of the rule."""
    return policy_id.rpartition(":")[0]


def _uid(kind: str, id_: str) -> dict[str, str]:
    return {"type": f"{_NAMESPACE}::{kind}", "id": str(id_)}


def _entity(kind: str, id_: str) -> str:
    return f"{_NAMESPACE}::{kind}::{_quote(id_)}"


def _quote(text: str) -> str:
    """A Cedar string. Every character beyond printable ASCII, quotes and backslashes are escaped."""
    plain = (c if c.isascii() and c.isprintable() and c not in '"\\' else f"\\u{{{ord(c):x}}}" for c in text)
    return f'"{"".join(plain)}"'


def _readable(branch: str | None) -> str:
    """A branch name for Cedar. Lone surrogates, which Cedar refuses, are replaced."""
    return LONE_SURROGATE.sub("\ufffd", branch or "")
