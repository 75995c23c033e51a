"""The rules of a bundle (groups, protected branches, rules), and the gate of a scope without a bundle.

`bundle` reads and checks the rules. They are immutable and keep their positions, so that later checks can show the
line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NoReturn

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest, Decision
from omnigraph.errors import CompileError, Diagnostic, PolicyError
from omnigraph.language.source import SourceText, TextSpan

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


@dataclass(frozen=True, slots=True)
class Bundle:
    """The rules of one file."""

    groups: Mapping[str, tuple[str, ...]]
    protected_branches: frozenset[str]
    rules: tuple[Rule, ...]
    source: SourceText = field(repr=False, compare=False)
    groups_of: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)
    """The groups of every actor that is in a group."""

    def __post_init__(self) -> None:
        groups_of: dict[str, set[str]] = {}
        for group, members in self.groups.items():
            for actor in members:
                groups_of.setdefault(actor, set()).add(group)
        frozen = {actor: frozenset(groups) for actor, groups in groups_of.items()}
        object.__setattr__(self, "groups_of", MappingProxyType(frozen))

    @property
    def actors(self) -> frozenset[str]:
        return frozenset(self.groups_of)

    def rule(self, rule_id: str) -> Rule:
        return next(rule for rule in self.rules if rule.id == rule_id)

    def refuse(self, message: str, at: TextSpan) -> NoReturn:
        raise CompileError([self.source.diagnostic(INVALID, message, at)])


def filter_problem(named: str, found: Diagnostic) -> str:
    """The message about a row filter. The line is that of the bundle, so the message has the column in the filter."""
    where = "" if found.span is None else f" at column {found.span.column}"
    return f"{named}{where}: {found.code}: {found.message}"


SERVER_ACTIONS: Final = frozenset({PolicyAction.GRAPH_LIST})


class WithoutRules:
    """The gate of a scope without a bundle: an authenticated actor may read, and do nothing else.

    Without an actor there is no authentication at all, so everything is allowed.
    """

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
