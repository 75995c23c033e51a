"""Test files of bundles: their format, and what running them reports."""

from __future__ import annotations

import pytest

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest
from omnigraph.errors import CompileError
from omnigraph.policy.explanation import Expectation, PolicyCase, read_cases, run_cases
from omnigraph.policy.gate import PolicyGate, load_gate

BUNDLE = """\
version: 1
groups: {readers: [act-ana, act-bob], admins: [act-ana]}
protected_branches: [main]
rules:
  - {id: read, allow: {actors: {group: readers}, actions: [read], branch_scope: any}}
  - {id: merge, allow: {actors: {group: admins}, actions: [branch_merge], target_branch_scope: protected}}
"""
CASES = """\
version: 1
cases:
  - id: reader-cannot-write-main
    actor: act-bob
    action: change
    branch: main
    expect: deny
  - id: admin-merges
    actor: act-ana
    action: branch_merge
    branch: feature
    target_branch: main
    expect: allow
"""


@pytest.fixture(scope="module")
def gate() -> PolicyGate:
    return load_gate(BUNDLE, "graph", "team", "kb")


def test_cases_that_pass(gate: PolicyGate) -> None:
    cases = read_cases(CASES)
    assert cases[1] == PolicyCase(
        "admin-merges", "act-ana", AccessRequest(PolicyAction.BRANCH_MERGE, "feature", "main"), Expectation.ALLOW
    )
    report = run_cases(gate, cases)
    assert report.passed
    assert report.lines() == ("policy tests passed: 2 cases",)


def test_every_failing_case_has_a_line(gate: PolicyGate) -> None:
    wrong = CASES.replace("deny", "?").replace("allow", "deny").replace("?", "allow")
    report = run_cases(gate, read_cases(wrong))
    assert not report.passed
    assert report.lines() == (
        "policy tests failed:",
        "reader-cannot-write-main: expected Allow but got deny",
        "admin-merges: expected Deny but got allow",
    )


def test_white_space_is_no_part_of_a_branch(gate: PolicyGate) -> None:
    """As in requests, which are judged without it."""
    assert read_cases(CASES.replace("branch: main", "branch: ' main '")) == read_cases(CASES)


def test_no_cases_pass(gate: PolicyGate) -> None:
    assert run_cases(gate, read_cases("version: 1")).lines() == ("policy tests passed: 0 cases",)


@pytest.mark.parametrize(
    ("old", "new", "line", "fragment"),
    [
        ("version: 1", "version: 2", 1, "policy test version must be 1"),
        ("version: 1\n", "", 1, "lacks the key 'version'"),
        ("reader-cannot-write-main", "' '", 3, "case ids must not be blank"),
        ("admin-merges", "reader-cannot-write-main", 8, "duplicate policy test case id 'reader-cannot-write-main'"),
        ("act-bob", "''", 4, "must not use a blank actor"),
        ("    actor: act-ana\n", "", 8, "cases[1] lacks the key 'actor'"),
        ("action: change", "action: chnge", 5, "cases[0].action is 'chnge'"),
        ("branch_merge", "branch-merge", 10, "is 'branch-merge'"),
        ("expect: deny", "expect: Deny", 7, "expect is 'Deny' and must be one of allow, deny"),
        ("branch: main\n    expect", "brunch: main\n    expect", 6, "unknown key 'brunch'"),
        ("branch: feature", "branch: 1", 11, "cases[1].branch must be a text"),
        ("branch: feature", "branch: ' '", 11, "cases[1].branch must not be blank"),
    ],
)
def test_a_file_that_is_wrong(old: str, new: str, line: int, fragment: str) -> None:
    assert old in CASES
    with pytest.raises(CompileError) as error:
        read_cases(CASES.replace(old, new, 1), "team.tests.yaml")
    (found,) = error.value.diagnostics
    assert fragment in found.message
    assert found.span is not None
    assert (found.path, found.code, found.span.line) == ("team.tests.yaml", "policy_tests_invalid", line)
