"""Why a request is allowed or denied: the rules that allow it, or the nearest rule and what it lacks.

The decision itself is Cedar's; what a rule lacks is found by `nearest`.

Why an actor sees a row, or does not: what each rule that allows the request shows of it.

Tests of a bundle: requests and what is expected of them, in a file beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest, Decision, Gate
from omnigraph.api.values import counted
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.language.query.row_filter import Visibility
from omnigraph.policy.gate import NearestRule, PolicyGate, describe_lacks, nearest_rule
from omnigraph.policy.rules import Rule
from omnigraph.yaml_documents import Text, Value, YamlDocument


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and its reasons. Either rules allow the request, or `nearest` is the best that was found."""

    actor: str | None
    request: AccessRequest
    decision: Decision
    allowing: tuple[Rule, ...] = ()
    nearest: NearestRule | None = None

    def reasons(self) -> tuple[str, ...]:
        """Sentences, the most important one first."""
        if self.allowing:
            return tuple(sentence for rule in self.allowing for sentence in _describe_rule(rule))
        return describe_lacks(self.nearest)

    def lines(self) -> tuple[str, ...]:
        """`key: value`, as `policy explain` prints it; what is absent has no line."""
        values = [
            ("decision", "allow" if self.decision.allowed else "deny"),
            ("actor", self.actor),
            ("action", self.request.action.value),
            ("branch", self.request.branch),
            ("target_branch", self.request.target_branch),
            ("matched_rule", self.decision.matched_rule_id),
            ("message", self.decision.message),
        ]
        told = [f"{key}: {value}" for key, value in values if value is not None]
        return (*told, *(f"reason: {reason}" for reason in self.reasons()))


def explain(gate: PolicyGate, actor: str | None, request: AccessRequest) -> Explanation:
    """Raises `PolicyEvaluationError`, as the decision would."""
    decision = gate.decide(actor, request)
    if decision.allowed:
        return Explanation(actor, request, decision, gate.matching(actor, request))
    return Explanation(actor, request, decision, nearest=nearest_rule(gate.bundle, actor, request))


def _describe_rule(rule: Rule) -> Iterator[str]:
    yield f"rule '{rule.id}' allows it to group '{rule.group}'"
    for shown in rule.rows:
        yield f"rule '{rule.id}' shows of {shown.type_name} the rows with {' '.join(shown.filter.split())}"
    for hide in rule.hide:
        yield f"rule '{rule.id}' hides of {hide.type_name} {', '.join(hide.properties)}"


Shows: TypeAlias = Callable[[Visibility], bool]
"""Whether a row is visible. The caller that has the row answers this."""


@dataclass(frozen=True, slots=True)
class RowVisibility:
    """One row for one actor. `shown_by` and `not_shown_by` are the rules that allow the request."""

    type: TableType
    visible: bool
    shown_by: tuple[Rule, ...]
    not_shown_by: tuple[Rule, ...]
    masked: tuple[str, ...]

    def lines(self) -> tuple[str, ...]:
        """`key: value`, as they follow the lines of an explanation."""
        told = [f"row: {'visible' if self.visible else 'not visible'}"]
        told += [f"reason: rule '{rule.id}' shows it" for rule in self.shown_by]
        told += [f"reason: rule '{rule.id}' does not show it{self._wanted(rule)}" for rule in self.not_shown_by]
        if self.visible and self.masked:
            told.append(f"hidden: {', '.join(self.masked)}")
        return tuple(told)

    def _wanted(self, rule: Rule) -> str:
        names = (self.type.name, self.type.type_key)
        wanted = next((shown.filter for shown in rule.rows if shown.type_name in names), None)
        return ", or not both of its ends" if wanted is None else f": it shows those with {' '.join(wanted.split())}"


def row_visibility(
    gate: PolicyGate, actor: str, request: AccessRequest, catalog: Catalog, type_: TableType, shows: Shows
) -> RowVisibility:
    """Raises as `PolicyGate.visibility` does: who may not do it sees no row."""
    visibility = gate.visibility(actor, request, catalog)
    by_rule = {rule: gate.visibility_of_rule(actor, rule, catalog) for rule in gate.matching(actor, request)}
    shown = {rule.id: shows(seen) for rule, seen in by_rule.items()}
    return RowVisibility(
        type_,
        shows(visibility),
        tuple(rule for rule in by_rule if shown[rule.id]),
        tuple(rule for rule in by_rule if not shown[rule.id]),
        tuple(sorted(visibility.of(type_).masked)),
    )


INVALID: Final = "policy_tests_invalid"
VERSION: Final = 1


class Expectation(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """One request of one actor, and the answer it should get."""

    id: str
    actor: str
    request: AccessRequest
    expect: Expectation


@dataclass(frozen=True, slots=True)
class CaseReport:
    """How many cases ran, and a line for each that failed."""

    cases: int
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.failures

    def lines(self) -> tuple[str, ...]:
        if self.passed:
            return (f"policy tests passed: {counted(self.cases, 'case')}",)
        return ("policy tests failed:", *self.failures)


def read_cases(text: str, path: str | None = None) -> tuple[PolicyCase, ...]:
    """The cases of a YAML text; `path` only shows in messages. Raises `CompileError`, which shows the line."""
    document = YamlDocument(text, path, INVALID, stops_at_first=True)
    found = document.root().members(("version", "cases"), required=("version",))
    version = found["version"].whole_number()
    written = [_parse_case(case) for case in (found["cases"].items() if "cases" in found else [])]
    if version != VERSION:
        document.refuse(f"policy test version must be {VERSION}, not {version}", found["version"].at)
    seen: set[str] = set()
    for id_, actor, case in written:
        if id_.is_blank:
            document.refuse("policy test case ids must not be blank", id_.at)
        if case.id in seen:
            document.refuse(f"duplicate policy test case id '{case.id}'", id_.at)
        seen.add(case.id)
        if actor.is_blank:
            document.refuse(f"policy test case '{case.id}' must not use a blank actor", actor.at)
    return tuple(case for _, _, case in written)


def _parse_case(value: Value) -> tuple[Text, Text, PolicyCase]:
    known = ("id", "actor", "action", "branch", "target_branch", "expect")
    found = value.members(known, required=("id", "actor", "action", "expect"))
    id_, actor = found["id"].text(), found["actor"].text()
    request = AccessRequest(
        found["action"].choice(PolicyAction), _branch(found.get("branch")), _branch(found.get("target_branch"))
    )
    return id_, actor, PolicyCase(id_.value, actor.value, request, found["expect"].choice(Expectation))


def _branch(value: Value | None) -> str | None:
    """A branch as requests name it: white space around a name is no part of it."""
    if value is None:
        return None
    name = value.text()
    if name.is_blank:
        message = f"{value.name} must not be blank; leave it out if the request has no branch"
        value.document.refuse(message, value.at)
    return name.value.strip()


def run_cases(gate: Gate, cases: tuple[PolicyCase, ...]) -> CaseReport:
    """Ask the gate about every case. Raises when the rules can't be evaluated: that is no answer to any of them."""
    failures = []
    for case in cases:
        allowed = gate.decide(case.actor, case.request).allowed
        got = Expectation.ALLOW if allowed else Expectation.DENY
        if got is not case.expect:
            failures.append(f"{case.id}: expected {case.expect.capitalize()} but got {got}")
    return CaseReport(len(cases), tuple(failures))
