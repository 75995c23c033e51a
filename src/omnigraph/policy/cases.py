"""Tests of a bundle: requests and what is expected of them, in a file beside it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest, Gate
from omnigraph.api.values import counted
from omnigraph.policy.document import Document, Text, Value

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
    document = Document(text, path, INVALID)
    found = document.root().members(("version", "cases"), required=("version",))
    version = found["version"].whole_number()
    written = [_written(case) for case in (found["cases"].items() if "cases" in found else [])]
    if version != VERSION:
        found["version"].refuse(f"policy test version must be {VERSION}, not {version}")
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


def _written(value: Value) -> tuple[Text, Text, PolicyCase]:
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
        value.refuse(f"{value.name} must not be blank: leave it out where a request is about no branch")
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
