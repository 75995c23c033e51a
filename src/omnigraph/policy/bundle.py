"""Reads policy bundles: from the text of a YAML file to checked rules.

`read_bundle` makes the checks that hold for every bundle; `align` makes those of the scope a bundle is loaded for. Both
raise a `CompileError` with the line of the first mistake. Nothing is guessed: an overlooked key could let somebody in.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from omnigraph.api.enums import PolicyAction
from omnigraph.errors import CompileError
from omnigraph.language.query.parser import parse_row_filter
from omnigraph.language.source import TextSpan
from omnigraph.policy.rules import (
    INVALID,
    SERVER_ACTIONS,
    BranchScope,
    Bundle,
    MaskedProperties,
    Rule,
    VisibleRows,
    filter_problem,
)
from omnigraph.yaml_documents import Text, Value, YamlDocument


@dataclass(frozen=True, slots=True)
class RuleSyntax:
    """A rule as it is written. `rows` and `hide` are None where the rule has no such key."""

    id: Text
    group: Text
    actions: tuple[tuple[PolicyAction, TextSpan], ...]
    branch_scope: tuple[BranchScope, TextSpan] | None
    target_branch_scope: tuple[BranchScope, TextSpan] | None
    rows: tuple[tuple[Text, Text], ...] | None
    hide: tuple[tuple[Text, tuple[Text, ...]], ...] | None
    actions_at: TextSpan
    at: TextSpan


@dataclass(frozen=True, slots=True)
class BundleSyntax:
    document: YamlDocument
    version: int
    version_at: TextSpan
    groups: tuple[tuple[Text, tuple[Text, ...]], ...]
    protected_branches: tuple[Text, ...]
    rules: tuple[RuleSyntax, ...]


def parse_bundle(text: str, path: str | None = None) -> BundleSyntax:
    """The syntax of a file: the right keys and words, each with its position. Raises `CompileError`."""
    document = YamlDocument(text, path, INVALID, stops_at_first=True)
    members = document.root().members(("version", "groups", "protected_branches", "rules"), required=("version",))
    version = members["version"]
    groups = members["groups"].entries() if "groups" in members else []
    branches = members["protected_branches"].items() if "protected_branches" in members else []
    rules = members["rules"].items() if "rules" in members else []
    return BundleSyntax(
        document,
        version.whole_number(),
        version.at,
        tuple((name, tuple(member.text() for member in members.items())) for name, members in groups),
        tuple(branch.text() for branch in branches),
        tuple(_parse_rule(rule) for rule in rules),
    )


def _parse_rule(value: Value) -> RuleSyntax:
    members = value.members(("id", "allow"), required=("id", "allow"))
    known = ("actors", "actions", "branch_scope", "target_branch_scope", "rows", "hide")
    allow = members["allow"].members(known, required=("actors", "actions"))
    actors = allow["actors"].members(("group",), required=("group",))
    rows = hide = None
    if "rows" in allow:
        rows = tuple((name, predicate.text()) for name, predicate in allow["rows"].entries())
    if "hide" in allow:
        hide = tuple((name, tuple(p.text() for p in names.items())) for name, names in allow["hide"].entries())
    return RuleSyntax(
        members["id"].text(),
        actors["group"].text(),
        tuple((action.choice(PolicyAction), action.at) for action in allow["actions"].items()),
        _scope(allow.get("branch_scope")),
        _scope(allow.get("target_branch_scope")),
        rows,
        hide,
        allow["actions"].at,
        value.at,
    )


def _scope(value: Value | None) -> tuple[BranchScope, TextSpan] | None:
    return None if value is None else (value.choice(BranchScope), value.at)


ScopeKind = Literal["graph", "server"]

VERSION: Final = 1
BRANCH_ACTIONS: Final = frozenset({PolicyAction.READ, PolicyAction.EXPORT, PolicyAction.CHANGE})
TARGET_BRANCH_ACTIONS: Final = frozenset(
    {
        PolicyAction.SCHEMA_APPLY,
        PolicyAction.BRANCH_CREATE,
        PolicyAction.BRANCH_DELETE,
        PolicyAction.BRANCH_MERGE,
    }
)
RESTRICTABLE_ACTIONS: Final = BRANCH_ACTIONS
"""The actions that rules can restrict. All others work on whole branches or on no rows."""


def read_bundle(text: str, path: str | None = None) -> Bundle:
    """The bundle of a YAML text; `path` is for messages. Raises `CompileError`."""
    syntax = parse_bundle(text, path)
    document = syntax.document
    if syntax.version != VERSION:
        document.refuse(f"policy version must be {VERSION}, not {syntax.version}", syntax.version_at)
    _check_groups(syntax)
    _check_protected_branches(syntax)
    declared = {name.value for name, _ in syntax.groups}
    seen: set[str] = set()
    for rule in syntax.rules:
        _check_rule(document, rule, declared, seen)
        seen.add(rule.id.value)
    groups = {name.value: tuple(dict.fromkeys(m.value for m in members)) for name, members in syntax.groups}
    return Bundle(
        MappingProxyType(groups),
        frozenset(branch.value for branch in syntax.protected_branches),
        tuple(_rule(rule) for rule in syntax.rules),
        document.source,
    )


def align(bundle: Bundle, kind: ScopeKind) -> None:
    """Refuse rules that don't belong to the scope that a bundle is loaded for."""
    for rule in bundle.rules:
        for action, at in zip(rule.actions, rule.actions_at, strict=True):
            if kind == "graph" and action in SERVER_ACTIONS:
                bundle.refuse(
                    f"rule '{rule.id}' uses the server-scoped action '{action}' in a Graph policy file; "
                    "move it to a bundle that is bound to the cluster",
                    at,
                )
            if kind == "server" and action not in SERVER_ACTIONS:
                bundle.refuse(
                    f"rule '{rule.id}' uses the per-graph action '{action}' in a Server policy file; "
                    "move it to a bundle that is bound to a graph",
                    at,
                )


def _check_groups(syntax: BundleSyntax) -> None:
    refuse = syntax.document.refuse
    for name, members in syntax.groups:
        if name.is_blank:
            refuse("policy group names must not be blank", name.at)
        if not members:
            refuse(f"policy group '{name.value}' must not be empty", name.at)
        for member in members:
            if member.is_blank:
                refuse(f"policy group '{name.value}' contains a blank actor id", member.at)


def _check_protected_branches(syntax: BundleSyntax) -> None:
    for branch in syntax.protected_branches:
        if branch.is_blank:
            syntax.document.refuse("protected branch names must not be blank", branch.at)
        if branch.value != branch.value.strip():
            # Branch names have no white space around them, so this entry would protect nothing.
            message = f"protected branch '{branch.value}' has white space around its name, and would protect nothing"
            syntax.document.refuse(message, branch.at)


def _check_rule(document: YamlDocument, rule: RuleSyntax, declared: set[str], seen: set[str]) -> None:
    refuse = document.refuse
    if rule.id.is_blank:
        refuse("policy rule ids must not be blank", rule.id.at)
    if rule.id.value in seen:
        refuse(f"duplicate policy rule id '{rule.id.value}'", rule.id.at)
    named = f"policy rule '{rule.id.value}'"
    if rule.group.is_blank:
        refuse(f"{named} must reference a non-blank group", rule.group.at)
    if rule.group.value not in declared:
        refuse(f"{named} references unknown group '{rule.group.value}'", rule.group.at)
    if not rule.actions:
        refuse(f"{named} must include at least one action", rule.actions_at)
    _check_scopes(document, rule, named)
    _check_restrictions(document, rule, named)


def _check_scopes(document: YamlDocument, rule: RuleSyntax, named: str) -> None:
    if rule.branch_scope is not None and rule.target_branch_scope is not None:
        at = max(rule.branch_scope[1], rule.target_branch_scope[1], key=lambda place: place.start)
        document.refuse(f"{named} may use branch_scope or target_branch_scope, not both", at)
    for key, scope, supported in (
        ("branch_scope", rule.branch_scope, BRANCH_ACTIONS),
        ("target_branch_scope", rule.target_branch_scope, TARGET_BRANCH_ACTIONS),
    ):
        for action, at in rule.actions:
            if scope is not None and action not in supported:
                document.refuse(f"{named} uses {key} with unsupported action '{action}'", at)
    of_server = [(action, at) for action, at in rule.actions if action in SERVER_ACTIONS]
    if of_server and len(of_server) < len(rule.actions):
        action, at = of_server[0]
        document.refuse(
            f"{named} mixes the server-scoped action '{action}' with per-graph actions; split into separate rules", at
        )
    if of_server and (rule.branch_scope or rule.target_branch_scope):
        document.refuse(f"{named}: server-scoped actions have no branch context", of_server[0][1])


def _check_restrictions(document: YamlDocument, rule: RuleSyntax, named: str) -> None:
    for key, restriction in (("rows", rule.rows), ("hide", rule.hide)):
        if restriction is None:
            continue
        for action, at in rule.actions:
            if action not in RESTRICTABLE_ACTIONS:
                document.refuse(
                    f"{named} uses {key} with unsupported action '{action}': only read, export and change "
                    "can be allowed in part",
                    at,
                )
        if not restriction:
            document.refuse(f"{named} has an empty {key}: name a type, or leave it out", rule.at)
        for type_name, _ in restriction:
            if type_name.is_blank:
                document.refuse(f"{named}: type names in {key} must not be blank", type_name.at)
    for type_name, predicate in rule.rows or ():
        try:
            parse_row_filter(predicate.value)
        except CompileError as error:
            first = error.diagnostics[0]
            message = filter_problem(f"{named}, rows of {type_name.value}", first)
            document.refuse(message, predicate.at, first.suggestion)
    for type_name, properties in rule.hide or ():
        _check_masks(document, f"{named}, hide of {type_name.value}", type_name, properties)


def _check_masks(document: YamlDocument, named: str, type_name: Text, properties: tuple[Text, ...]) -> None:
    if not properties:
        document.refuse(f"{named} must list at least one property", type_name.at)
    seen: set[str] = set()
    for prop in properties:
        if prop.is_blank:
            document.refuse(f"{named} lists a blank property", prop.at)
        if prop.value in seen:
            document.refuse(f"{named} lists '{prop.value}' twice", prop.at)
        seen.add(prop.value)


def _rule(rule: RuleSyntax) -> Rule:
    return Rule(
        rule.id.value,
        rule.group.value,
        tuple(action for action, _ in rule.actions),
        rule.branch_scope and rule.branch_scope[0],
        rule.target_branch_scope and rule.target_branch_scope[0],
        tuple(VisibleRows(name.value, predicate.value, predicate.at) for name, predicate in rule.rows or ()),
        tuple(
            MaskedProperties(name.value, tuple(p.value for p in properties), _around(name.at, properties))
            for name, properties in rule.hide or ()
        ),
        tuple(at for _, at in rule.actions),
    )


def _around(start: TextSpan, properties: tuple[Text, ...]) -> TextSpan:
    return TextSpan(start.start, properties[-1].at.end)
