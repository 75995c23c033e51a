"""Rules as Cedar policies: the generated text and entities, and the evaluation of a request.

A bundle is compiled once and validated strictly against the Cedar schema. Cedar alone decides which rules allow a
request; nothing here inspects a rule to find out.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Final

import cedarpy

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest
from omnigraph.errors import PolicyEvaluationError
from omnigraph.language.source import LONE_SURROGATE, TextSpan
from omnigraph.policy.bundle import SERVER_ACTIONS, BranchScope, Bundle, Rule

_NAMESPACE: Final = "Omnigraph"
SERVER: Final = "root"
"""Stands for the server where a graph has its id."""
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


class CompiledRules:
    """The compiled rules of one scope. Safe to share between threads."""

    def __init__(self, bundle: Bundle, graph_id: str) -> None:
        """Raises `CompileError` for rules that Cedar refuses."""
        for rule in bundle.rules:
            for i, action in enumerate(rule.actions):
                if action in rule.actions[:i]:
                    message = f"policy rule '{rule.id}' lists action '{action}' twice: two policies would have the id "
                    bundle.refuse(f"{message}'{rule.id}:{action}'", rule.actions_at[i])
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
        self._entities = cedarpy.Entities.from_json_str(json.dumps(_entities(bundle, graph_id)), _schema())
        self._cache: dict[tuple[str, PolicyAction, bool | None, bool | None], tuple[str, ...]] = {}

    def allowing_ids(self, actor: str, request: AccessRequest) -> tuple[str, ...]:
        """The ids of the rules that allow a request, in string order; none when it is denied. The actor must be in a
        group of the bundle. Rules see nothing of a branch but whether it is there and protected, so the result is
        cached by that, the actor and the action. Raises `PolicyEvaluationError`."""
        key = (actor, request.action, self._is_protected(request.branch), self._is_protected(request.target_branch))
        rules = self._cache.get(key)
        if rules is None:
            rules = self._evaluate(actor, request)
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            self._cache[key] = rules
        return rules

    def _is_protected(self, branch: str | None) -> bool | None:
        return None if branch is None else branch in self._bundle.protected_branches

    def _evaluate(self, actor: str, request: AccessRequest) -> tuple[str, ...]:
        of_server = request.action in SERVER_ACTIONS
        query = {
            "principal": _uid("Actor", actor),
            "action": _uid("Action", request.action),
            "resource": _uid("Server", SERVER) if of_server else _uid("Graph", self._graph_id),
            "context": {
                "has_branch": request.branch is not None,
                "branch": _readable(request.branch),
                "branch_is_protected": bool(self._is_protected(request.branch)),
                "has_target_branch": request.target_branch is not None,
                "target_branch": _readable(request.target_branch),
                "target_branch_is_protected": bool(self._is_protected(request.target_branch)),
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
        # No action has a colon in its name, so the last one ends the id of the rule.
        return tuple(sorted({ids[reason].rpartition(":")[0] for reason in diagnostics.reasons}))


def _permit(rule: Rule, action: PolicyAction, graph_id: str) -> str:
    """The policy of one action of one rule."""
    of_server = action in SERVER_ACTIONS
    resource = _entity("Server", SERVER) if of_server else _entity("Graph", graph_id)
    lines = [
        f"@id({_quote(f'{rule.id}:{action}')})",
        "permit (",
        f"  principal in {_entity('Group', rule.group)},",
        f"  action == {_entity('Action', action)},",
        f"  resource == {resource}",
        ")",
    ]
    for branch, scope in (("branch", rule.branch_scope), ("target_branch", rule.target_branch_scope)):
        if scope is not None:
            lines.append(f"when {{ {_condition(branch, scope)} }}")
    return "\n".join(lines) + ";\n"


def _condition(branch: str, scope: BranchScope) -> str:
    if scope is BranchScope.ANY:
        return "true"
    is_protected = f"context.has_{branch} && context.{branch}_is_protected"
    return is_protected if scope is BranchScope.PROTECTED else f"{is_protected} == false"


def _entities(bundle: Bundle, graph_id: str) -> list[dict[str, object]]:
    parents_of: list[tuple[dict[str, str], list[dict[str, str]]]] = [(_uid("Group", g), []) for g in bundle.groups]
    for actor, groups in bundle.groups_of.items():
        parents_of.append((_uid("Actor", actor), [_uid("Group", group) for group in sorted(groups)]))
    parents_of.append((_uid("Graph", graph_id), []))
    if any(action in SERVER_ACTIONS for rule in bundle.rules for action in rule.actions):
        parents_of.append((_uid("Server", SERVER), []))
    return [{"uid": uid, "attrs": {}, "parents": parents} for uid, parents in parents_of]


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
