"""A bundle as its file has it: shape, keys and words are right, and every part knows its place.

What the parts mean together is not looked at here.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.api.enums import PolicyAction
from omnigraph.language.query.syntax import Place
from omnigraph.policy.document import Document, Text, Value
from omnigraph.policy.rules import INVALID, BranchScope


@dataclass(frozen=True, slots=True)
class WrittenRule:
    """`rows` and `hide` are None where the rule has no such key."""

    id: Text
    group: Text
    actions: tuple[tuple[PolicyAction, Place], ...]
    branch_scope: tuple[BranchScope, Place] | None
    target_branch_scope: tuple[BranchScope, Place] | None
    rows: tuple[tuple[Text, Text], ...] | None
    hide: tuple[tuple[Text, tuple[Text, ...]], ...] | None
    actions_at: Place
    at: Place


@dataclass(frozen=True, slots=True)
class WrittenBundle:
    document: Document
    version: int
    version_at: Place
    groups: tuple[tuple[Text, tuple[Text, ...]], ...]
    protected_branches: tuple[Text, ...]
    rules: tuple[WrittenRule, ...]


def read_shape(text: str, path: str | None = None) -> WrittenBundle:
    """The parts of a file. Raises `CompileError` at the first one that is none."""
    document = Document(text, path, INVALID)
    found = document.root().members(("version", "groups", "protected_branches", "rules"), required=("version",))
    version = found["version"]
    groups = found["groups"].entries() if "groups" in found else []
    branches = found["protected_branches"].items() if "protected_branches" in found else []
    rules = found["rules"].items() if "rules" in found else []
    return WrittenBundle(
        document,
        version.whole_number(),
        version.at,
        tuple((name, tuple(member.text() for member in members.items())) for name, members in groups),
        tuple(branch.text() for branch in branches),
        tuple(_written_rule(rule) for rule in rules),
    )


def _written_rule(value: Value) -> WrittenRule:
    found = value.members(("id", "allow"), required=("id", "allow"))
    known = ("actors", "actions", "branch_scope", "target_branch_scope", "rows", "hide")
    allow = found["allow"].members(known, required=("actors", "actions"))
    actors = allow["actors"].members(("group",), required=("group",))
    rows = hide = None
    if "rows" in allow:
        rows = tuple((name, predicate.text()) for name, predicate in allow["rows"].entries())
    if "hide" in allow:
        hide = tuple((name, tuple(p.text() for p in names.items())) for name, names in allow["hide"].entries())
    return WrittenRule(
        found["id"].text(),
        actors["group"].text(),
        tuple((action.choice(PolicyAction), action.at) for action in allow["actions"].items()),
        _scope(allow.get("branch_scope")),
        _scope(allow.get("target_branch_scope")),
        rows,
        hide,
        allow["actions"].at,
        value.at,
    )


def _scope(value: Value | None) -> tuple[BranchScope, Place] | None:
    return None if value is None else (value.choice(BranchScope), value.at)
