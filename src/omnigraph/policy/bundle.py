"""Policy bundles: the rules, groups and protected branches of a YAML file, and their reading.

`read_bundle` makes the checks that hold for every bundle; `align` makes those of the scope a bundle is loaded for. Both
raise a `CompileError` with the line of the first mistake. Nothing is guessed: an overlooked key could let somebody in.
Rules are immutable and keep their positions, so that later checks can show the line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Final, Literal, NoReturn

from omnigraph.api.enums import PolicyAction
from omnigraph.errors import CompileError, Diagnostic
from omnigraph.language.query.parser import parse_row_filter
from omnigraph.language.source import SourceText, TextSpan
from omnigraph.yaml_documents import Text, Value, YamlDocument

INVALID: Final = "policy_invalid"


class BranchScope(StrEnum):
    """The branches that a rule holds for."""

    ANY = "any"
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"


@dataclass(frozen=True, slots=True)
class VisibleRows:
    """`rows`: the row filter of a type."""

    type_name: str
    filter: str
    at: TextSpan


@dataclass(frozen=True, slots=True)
class MaskedProperties:
    """`hide`: the masked properties of a type, which read as null."""

    type_name: str
    properties: tuple[str, ...]
    at: TextSpan


@dataclass(frozen=True, slots=True)
class Rule:
    """The actions that the members of a group may do. At most one of the two scopes is set; None holds for every
    branch.

    `actions_at` are the positions of the actions, one each.
    """

    id: str
    group: str
    actions: tuple[PolicyAction, ...]
    branch_scope: BranchScope | None
    target_branch_scope: BranchScope | None
    rows: tuple[VisibleRows, ...]
    hide: tuple[MaskedProperties, ...]
    actions_at: tuple[TextSpan, ...]

    @property
    def restricts(self) -> bool:
        """Whether the rule has row filters or column masks."""
        return bool(self.rows or self.hide)


@dataclass(frozen=True)
class Bundle:
    """The rules of one file."""

    groups: Mapping[str, tuple[str, ...]]
    protected_branches: frozenset[str]
    rules: tuple[Rule, ...]
    source: SourceText = field(repr=False, compare=False)

    @cached_property
    def groups_of(self) -> Mapping[str, frozenset[str]]:
        """The groups of every actor that is in a group."""
        groups_of: dict[str, frozenset[str]] = {}
        for group, members in self.groups.items():
            for actor in members:
                groups_of[actor] = groups_of.get(actor, frozenset()) | {group}
        return MappingProxyType(groups_of)

    def refuse(self, message: str, at: TextSpan) -> NoReturn:
        raise CompileError([self.source.diagnostic(INVALID, message, at)])


def filter_problem(named: str, diagnostic: Diagnostic) -> str:
    """The message about a row filter. The line is that of the bundle, so the message has the column in the filter."""
    where = "" if diagnostic.span is None else f" at column {diagnostic.span.column}"
    return f"{named}{where}: {diagnostic.code}: {diagnostic.message}"


SERVER_ACTIONS: Final = frozenset({PolicyAction.GRAPH_LIST})


ScopeKind = Literal["graph", "server"]

VERSION: Final = 1
BRANCH_ACTIONS: Final = frozenset({PolicyAction.READ, PolicyAction.EXPORT, PolicyAction.CHANGE})
TARGET_BRANCH_ACTIONS: Final = frozenset(
    {PolicyAction.SCHEMA_APPLY, PolicyAction.BRANCH_CREATE, PolicyAction.BRANCH_DELETE, PolicyAction.BRANCH_MERGE}
)
RESTRICTABLE_ACTIONS: Final = BRANCH_ACTIONS
"""The actions that rules can restrict. All others work on whole branches or on no rows."""


def read_bundle(text: str, path: str | None = None) -> Bundle:
    """The bundle of a YAML text; `path` is for messages. Raises `CompileError`. The shapes of the whole file are
    checked first, then what it says."""
    document = YamlDocument(text, path, INVALID, stops_at_first=True)
    members = document.root().members(("version", "groups", "protected_branches", "rules"), required=("version",))
    version = members["version"].whole_number()
    groups = members["groups"].entries() if "groups" in members else []
    actors_of = [(name, [actor.text() for actor in actors.items()]) for name, actors in groups]
    branches = [b.text() for b in (members["protected_branches"].items() if "protected_branches" in members else ())]
    rules = [_parse_rule(rule) for rule in (members["rules"].items() if "rules" in members else ())]
    if version != VERSION:
        document.refuse(f"policy version must be {VERSION}, not {version}", members["version"].at)
    for name, actors in actors_of:
        _check_group(document, name, actors)
    for branch in branches:
        if branch.is_blank:
            document.refuse("protected branch names must not be blank", branch.at)
        if branch.value != branch.value.strip():
            # Branch names have no white space around them, so this entry would protect nothing.
            message = f"protected branch '{branch.value}' has white space around its name, and would protect nothing"
            document.refuse(message, branch.at)
    declared = {name.value: tuple(dict.fromkeys(actor.value for actor in actors)) for name, actors in actors_of}
    seen: set[str] = set()
    for rule, parts in rules:
        _check_rule(document, rule, parts, declared, seen)
        seen.add(rule.id)
    protected = frozenset(branch.value for branch in branches)
    return Bundle(MappingProxyType(declared), protected, tuple(rule for rule, _ in rules), document.source)


def _parse_rule(value: Value) -> tuple[Rule, dict[str, Value]]:
    """A rule of the right shape, and its parts by their keys, for the positions of mistakes."""
    members = value.members(("id", "allow"), required=("id", "allow"))
    keys = ("actors", "actions", "branch_scope", "target_branch_scope", "rows", "hide")
    allow = members["allow"].members(keys, required=("actors", "actions"))
    parts = {"rule": value, **members, **allow, **allow["actors"].members(("group",), required=("group",))}
    rows = [(name, row_filter.text()) for name, row_filter in allow["rows"].entries()] if "rows" in allow else []
    hide = allow["hide"].entries() if "hide" in allow else []
    masks = [(name, [prop.text() for prop in properties.items()]) for name, properties in hide]
    actions = allow["actions"].items()
    branch_scope, target_branch_scope = (
        allow[key].choice(BranchScope) if key in allow else None for key in ("branch_scope", "target_branch_scope")
    )
    rule = Rule(
        parts["id"].text().value,
        parts["group"].text().value,
        tuple(action.choice(PolicyAction) for action in actions),
        branch_scope,
        target_branch_scope,
        tuple(VisibleRows(name.value, row_filter.value, row_filter.at) for name, row_filter in rows),
        tuple(
            MaskedProperties(
                name.value, tuple(prop.value for prop in names), TextSpan(name.at.start, (names or [name])[-1].at.end)
            )
            for name, names in masks
        ),
        tuple(action.at for action in actions),
    )
    return rule, parts


def align(bundle: Bundle, kind: ScopeKind) -> None:
    """Refuse rules that don't belong to the scope that a bundle is loaded for."""
    scoped, home = ("server-scoped", "the cluster") if kind == "graph" else ("per-graph", "a graph")
    for rule in bundle.rules:
        for action, at in zip(rule.actions, rule.actions_at, strict=True):
            if (action in SERVER_ACTIONS) is (kind == "graph"):
                bundle.refuse(
                    f"rule '{rule.id}' uses the {scoped} action '{action}' in a {kind.capitalize()} policy file; "
                    f"move it to a bundle that is bound to {home}",
                    at,
                )


def _check_group(document: YamlDocument, name: Text, actors: list[Text]) -> None:
    if name.is_blank:
        document.refuse("policy group names must not be blank", name.at)
    if not actors:
        document.refuse(f"policy group '{name.value}' must not be empty", name.at)
    for actor in actors:
        if actor.is_blank:
            document.refuse(f"policy group '{name.value}' contains a blank actor id", actor.at)


def _check_rule(
    document: YamlDocument, rule: Rule, parts: dict[str, Value], declared: Collection[str], seen: set[str]
) -> None:
    refuse = document.refuse
    if not rule.id.strip():
        refuse("policy rule ids must not be blank", parts["id"].at)
    if rule.id in seen:
        refuse(f"duplicate policy rule id '{rule.id}'", parts["id"].at)
    named = f"policy rule '{rule.id}'"
    if not rule.group.strip():
        refuse(f"{named} must reference a non-blank group", parts["group"].at)
    if rule.group not in declared:
        refuse(f"{named} references unknown group '{rule.group}'", parts["group"].at)
    if not rule.actions:
        refuse(f"{named} must include at least one action", parts["actions"].at)
    _check_scopes(document, rule, parts, named)
    for key in ("rows", "hide"):
        if key in parts:
            _check_restriction(document, rule, parts, key, named)
    for shown in rule.rows:
        try:
            parse_row_filter(shown.filter)
        except CompileError as error:
            first = error.diagnostics[0]
            refuse(filter_problem(f"{named}, rows of {shown.type_name}", first), shown.at, first.suggestion)
    for type_name, properties in parts["hide"].entries() if rule.hide else ():
        _check_masks(document, f"{named}, hide of {type_name.value}", type_name, [p.text() for p in properties.items()])


def _check_scopes(document: YamlDocument, rule: Rule, parts: dict[str, Value], named: str) -> None:
    scopes = {"branch_scope": BRANCH_ACTIONS, "target_branch_scope": TARGET_BRANCH_ACTIONS}
    used = [key for key in scopes if key in parts]
    if len(used) > 1:
        at = max((parts[key].at for key in used), key=lambda span: span.start)
        document.refuse(f"{named} may use branch_scope or target_branch_scope, not both", at)
    actions = list(zip(rule.actions, rule.actions_at, strict=True))
    for key in used:
        for action, at in actions:
            if action not in scopes[key]:
                document.refuse(f"{named} uses {key} with unsupported action '{action}'", at)
    of_server = [(action, at) for action, at in actions if action in SERVER_ACTIONS]
    if of_server and len(of_server) < len(actions):
        action, at = of_server[0]
        document.refuse(
            f"{named} mixes the server-scoped action '{action}' with per-graph actions; split into separate rules", at
        )
    if of_server and used:
        document.refuse(f"{named}: server-scoped actions have no branch context", of_server[0][1])


def _check_restriction(document: YamlDocument, rule: Rule, parts: dict[str, Value], key: str, named: str) -> None:
    for action, at in zip(rule.actions, rule.actions_at, strict=True):
        if action not in RESTRICTABLE_ACTIONS:
            document.refuse(
                f"{named} uses {key} with unsupported action '{action}': only read, export and change "
                "can be allowed in part",
                at,
            )
    types = parts[key].entries()
    if not types:
        document.refuse(f"{named} has an empty {key}: name a type, or leave it out", parts["rule"].at)
    for type_name, _ in types:
        if type_name.is_blank:
            document.refuse(f"{named}: type names in {key} must not be blank", type_name.at)


def _check_masks(document: YamlDocument, named: str, type_name: Text, properties: list[Text]) -> None:
    if not properties:
        document.refuse(f"{named} must list at least one property", type_name.at)
    seen: set[str] = set()
    for prop in properties:
        if prop.is_blank:
            document.refuse(f"{named} lists a blank property", prop.at)
        if prop.value in seen:
            document.refuse(f"{named} lists '{prop.value}' twice", prop.at)
        seen.add(prop.value)
