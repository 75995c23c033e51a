"""Explains decisions and the visibility of single rows, and runs the tests of a bundle.

`policy explain` and `policy test` call it. The gate makes the decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest, Decision, Gate
from omnigraph.api.values import count_noun
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.language.query.formatter import spell
from omnigraph.language.query.parser import parse_row_filter
from omnigraph.language.query.row_filter import Visibility
from omnigraph.policy.bundle import VisibleRows
from omnigraph.policy.gate import PolicyGate, describe_lacks, nearest_rule
from omnigraph.yaml_documents import Text, Value, YamlDocument


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision, and the reasons for it as sentences, the most important one first."""

    actor: str | None
    request: AccessRequest
    decision: Decision
    reasons: tuple[str, ...]

    def lines(self) -> tuple[str, ...]:
        """`key: value`, as `policy explain` prints it; an absent value has no line."""
        values = [
            ("decision", "allow" if self.decision.allowed else "deny"),
            ("actor", self.actor),
            ("action", self.request.action.value),
            ("branch", self.request.branch),
            ("target_branch", self.request.target_branch),
            ("matched_rule", self.decision.matched_rule_id),
            ("message", self.decision.message),
        ]
        lines = [f"{key}: {value}" for key, value in values if value is not None]
        return (*lines, *(f"reason: {reason}" for reason in self.reasons))


def explain(gate: PolicyGate, actor: str | None, request: AccessRequest) -> Explanation:
    """By the rules that allow the request, or by the nearest rule. Raises `PolicyEvaluationError`, as the decision
    would."""
    decision = gate.decide(actor, request)
    if not decision.allowed:
        return Explanation(actor, request, decision, describe_lacks(nearest_rule(gate.bundle, actor, request)))
    reasons = []
    for rule in gate.allowing_rules(actor, request):
        named = f"rule '{rule.id}'"
        reasons.append(f"{named} allows it to group '{rule.group}'")
        reasons += [f"{named} shows of {rows.type_name} the rows with {_one_line(rows)}" for rows in rule.rows]
        reasons += [f"{named} hides of {masked.type_name} {', '.join(masked.properties)}" for masked in rule.hide]
    return Explanation(actor, request, decision, tuple(reasons))


def _one_line(rows: VisibleRows) -> str:
    """A row filter without its line breaks and comments."""
    return spell(parse_row_filter(rows.filter))


Shows: TypeAlias = Callable[[Visibility], bool]
"""Whether a row is visible. The caller that has the row answers this."""


def describe_row_visibility(
    gate: PolicyGate, actor: str, request: AccessRequest, catalog: Catalog, type_: TableType, shows: Shows
) -> tuple[str, ...]:
    """Whether an actor sees one row, and which of the rules that allow the request show it: `key: value`, after the
    lines of an explanation. Raises as `PolicyGate.visibility` does: an actor that may not do it sees no row."""
    visibility = gate.visibility(actor, request, catalog)
    visible, masked = shows(visibility), sorted(visibility.of(type_).masked)
    shown, not_shown = [], []
    for rule in gate.allowing_rules(actor, request):
        if shows(gate.restrictions.visibility(actor, (rule,), catalog)):
            shown.append(f"reason: rule '{rule.id}' shows it")
            continue
        filters = (rows for rows in rule.rows if rows.type_name in (type_.name, type_.type_key))
        wanted = next((f": it shows those with {_one_line(rows)}" for rows in filters), None)
        not_shown.append(f"reason: rule '{rule.id}' does not show it{wanted or ', or not both of its ends'}")
    hidden = [f"hidden: {', '.join(masked)}"] if visible and masked else []
    return (f"row: {'visible' if visible else 'not visible'}", *shown, *not_shown, *hidden)


INVALID: Final = "policy_tests_invalid"
VERSION: Final = 1


class Expectation(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """One request of one actor, and the expected decision."""

    id: str
    actor: str
    request: AccessRequest
    expect: Expectation


@dataclass(frozen=True, slots=True)
class CaseReport:
    """The number of cases, and a line for each failed case."""

    cases: int
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.failures

    def lines(self) -> tuple[str, ...]:
        if self.passed:
            return (f"policy tests passed: {count_noun(self.cases, 'case')}",)
        return ("policy tests failed:", *self.failures)


def read_cases(text: str, path: str | None = None) -> tuple[PolicyCase, ...]:
    """The cases of a YAML text; `path` is for messages. Raises `CompileError` with the line."""
    document = YamlDocument(text, path, INVALID, stops_at_first=True)
    members = document.root().members(("version", "cases"), required=("version",))
    version = members["version"].whole_number()
    parsed = [_parse_case(case) for case in (members["cases"].items() if "cases" in members else [])]
    if version != VERSION:
        document.refuse(f"policy test version must be {VERSION}, not {version}", members["version"].at)
    seen: set[str] = set()
    for id_, actor, case in parsed:
        if id_.is_blank:
            document.refuse("policy test case ids must not be blank", id_.at)
        if case.id in seen:
            document.refuse(f"duplicate policy test case id '{case.id}'", id_.at)
        seen.add(case.id)
        if actor.is_blank:
            document.refuse(f"policy test case '{case.id}' must not use a blank actor", actor.at)
    return tuple(case for _, _, case in parsed)


def _parse_case(value: Value) -> tuple[Text, Text, PolicyCase]:
    keys = ("id", "actor", "action", "branch", "target_branch", "expect")
    members = value.members(keys, required=("id", "actor", "action", "expect"))
    id_, actor = members["id"].text(), members["actor"].text()
    request = AccessRequest(
        members["action"].choice(PolicyAction), _branch(members.get("branch")), _branch(members.get("target_branch"))
    )
    return id_, actor, PolicyCase(id_.value, actor.value, request, members["expect"].choice(Expectation))


def _branch(value: Value | None) -> str | None:
    """A branch name without the white space around it, as in requests."""
    if value is None:
        return None
    name = value.text()
    if name.is_blank:
        message = f"{value.name} must not be blank; leave it out if the request has no branch"
        value.document.refuse(message, value.at)
    return name.value.strip()


def run_cases(gate: Gate, cases: tuple[PolicyCase, ...]) -> CaseReport:
    """Decide every case. Raises `PolicyEvaluationError` when a rule can't be evaluated."""
    failures = []
    for case in cases:
        allowed = gate.decide(case.actor, case.request).allowed
        got = Expectation.ALLOW if allowed else Expectation.DENY
        if got is not case.expect:
            failures.append(f"{case.id}: expected {case.expect.capitalize()} but got {got}")
    return CaseReport(len(cases), tuple(failures))
