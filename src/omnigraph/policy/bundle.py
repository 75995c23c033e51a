"""The policy bundle: from the text of a file to rules that can be compiled.

`read_bundle` checks what holds for every use, in a settled order, and reports the first failure. `align` is the second
pass, for the use that a bundle is put to. Every refusal is a `CompileError` that shows the line.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, Literal

from omnigraph.api.enums import PolicyAction
from omnigraph.errors import CompileError
from omnigraph.language.query.parser import parse_row_filter
from omnigraph.language.query.syntax import Place
from omnigraph.policy.access import SERVER_ACTIONS
from omnigraph.policy.document import Document, Text
from omnigraph.policy.rules import Bundle, HiddenProperties, Rule, ShownRows, filter_problem
from omnigraph.policy.written import WrittenBundle, WrittenRule, read_shape

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
NARROWED_ACTIONS: Final = BRANCH_ACTIONS
"""What can be allowed in part. Everything else works on whole branches or on no rows at all."""


def read_bundle(text: str, path: str | None = None) -> Bundle:
    """The bundle of a YAML text; `path` only shows in messages. Raises `CompileError`."""
    written = read_shape(text, path)
    document = written.document
    if written.version != VERSION:
        document.refuse(f"policy version must be {VERSION}, not {written.version}", written.version_at)
    _check_groups(written)
    _check_protected_branches(written)
    declared = {name.value for name, _ in written.groups}
    seen: set[str] = set()
    for rule in written.rules:
        _check_rule(document, rule, declared, seen)
        seen.add(rule.id.value)
    groups = {name.value: tuple(dict.fromkeys(m.value for m in members)) for name, members in written.groups}
    return Bundle(
        MappingProxyType(groups),
        frozenset(branch.value for branch in written.protected_branches),
        tuple(_rule(rule) for rule in written.rules),
        document.source,
    )


def align(bundle: Bundle, kind: ScopeKind) -> None:
    """Refuse rules that the scope a bundle is loaded for can't have."""
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


def _check_groups(written: WrittenBundle) -> None:
    refuse = written.document.refuse
    for name, members in written.groups:
        if name.is_blank:
            refuse("policy group names must not be blank", name.at)
        if not members:
            refuse(f"policy group '{name.value}' must not be empty", name.at)
        for member in members:
            if member.is_blank:
                refuse(f"policy group '{name.value}' contains a blank actor id", member.at)


def _check_protected_branches(written: WrittenBundle) -> None:
    for branch in written.protected_branches:
        if branch.is_blank:
            written.document.refuse("protected branch names must not be blank", branch.at)
        if branch.value != branch.value.strip():
            # Branches are known without the white space around their names, so this one would be left open.
            message = f"protected branch '{branch.value}' has white space around its name, and would protect nothing"
            written.document.refuse(message, branch.at)


def _check_rule(document: Document, rule: WrittenRule, declared: set[str], seen: set[str]) -> None:
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
    _check_narrowing(document, rule, named)


def _check_scopes(document: Document, rule: WrittenRule, named: str) -> None:
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


def _check_narrowing(document: Document, rule: WrittenRule, named: str) -> None:
    for key, narrowing in (("rows", rule.rows), ("hide", rule.hide)):
        if narrowing is None:
            continue
        for action, at in rule.actions:
            if action not in NARROWED_ACTIONS:
                document.refuse(
                    f"{named} uses {key} with unsupported action '{action}': only read, export and change "
                    "can be allowed in part",
                    at,
                )
        if not narrowing:
            document.refuse(f"{named} has an empty {key}: name a type, or leave it out", rule.at)
        for type_name, _ in narrowing:
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
        _check_hidden(document, f"{named}, hide of {type_name.value}", type_name, properties)


def _check_hidden(document: Document, named: str, type_name: Text, properties: tuple[Text, ...]) -> None:
    if not properties:
        document.refuse(f"{named} must list at least one property", type_name.at)
    seen: set[str] = set()
    for prop in properties:
        if prop.is_blank:
            document.refuse(f"{named} lists a blank property", prop.at)
        if prop.value in seen:
            document.refuse(f"{named} lists '{prop.value}' twice", prop.at)
        seen.add(prop.value)


def _rule(rule: WrittenRule) -> Rule:
    return Rule(
        rule.id.value,
        rule.group.value,
        tuple(action for action, _ in rule.actions),
        rule.branch_scope and rule.branch_scope[0],
        rule.target_branch_scope and rule.target_branch_scope[0],
        tuple(ShownRows(name.value, predicate.value, predicate.at) for name, predicate in rule.rows or ()),
        tuple(
            HiddenProperties(name.value, tuple(p.value for p in properties), _around(name.at, properties))
            for name, properties in rule.hide or ()
        ),
        tuple(at for _, at in rule.actions),
    )


def _around(start: Place, properties: tuple[Text, ...]) -> Place:
    return Place(start.start, properties[-1].at.end)
