"""Reasons: the rule that allows, or the nearest one and what it lacks."""

from __future__ import annotations

import pytest

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest
from omnigraph.policy.explanation import explain
from omnigraph.policy.gate import Lack, PolicyGate, load_gate, nearest_rule

TEXT = """\
version: 1
groups: {readers: [ana, bob], admins: [ana], nightly: [cron]}
protected_branches: [main]
rules:
  - id: admins-merge
    allow: {actors: {group: admins}, actions: [branch_merge, schema_apply], target_branch_scope: protected}
  - {id: readers-read, allow: {actors: {group: readers}, actions: [read], branch_scope: unprotected}}
  - id: nightly-export
    allow:
      actors: {group: nightly}
      actions: [read, export]
      branch_scope: protected
      rows: {Person: "region =\\n  \\"eu  \\" // both blanks count\\n  or not (age in [1,2])"}
      hide: {Person: [salary, ssn]}
"""


@pytest.fixture(scope="module")
def gate() -> PolicyGate:
    return load_gate(TEXT, "graph", "team", "kb")


def asked(action: str, branch: str | None = None, target: str | None = None) -> AccessRequest:
    return AccessRequest(PolicyAction(action), branch, target)


def test_what_is_printed(gate: PolicyGate) -> None:
    assert explain(gate, "ana", asked("branch_merge", "feature", "main")).lines() == (
        "decision: allow",
        "actor: ana",
        "action: branch_merge",
        "branch: feature",
        "target_branch: main",
        "matched_rule: admins-merge",
        "message: policy allowed action 'branch_merge' for actor 'ana'",
        "reason: rule 'admins-merge' allows it to group 'admins'",
    )
    assert explain(gate, "bob", asked("read")).lines() == (
        "decision: deny",
        "actor: bob",
        "action: read",
        "message: policy denied action 'read' for actor 'bob'",
        "reason: nearest rule 'readers-read': branch_scope is 'unprotected', and the request names no branch",
    )


def test_what_an_allowing_rule_leaves_out_is_told(gate: PolicyGate) -> None:
    assert explain(gate, "cron", asked("export", "main")).reasons == (
        "rule 'nightly-export' allows it to group 'nightly'",
        "rule 'nightly-export' shows of Person the rows with region = \"eu  \" or not (age in [1, 2])",
        "rule 'nightly-export' hides of Person salary, ssn",
    )


@pytest.mark.parametrize(
    ("actor", "request_", "rule", "kinds", "sentence"),
    [
        ("bob", asked("read", "main"), "readers-read", [Lack.BRANCH_SCOPE], "branch 'main' is protected"),
        ("cron", asked("export", "f"), "nightly-export", [Lack.BRANCH_SCOPE], "branch 'f' is not protected"),
        (
            "ana",
            asked("schema_apply", None, "f"),
            "admins-merge",
            [Lack.TARGET_BRANCH_SCOPE],
            "target_branch_scope is 'protected', and target branch 'f' is not protected",
        ),
        ("eve", asked("read", "f"), "readers-read", [Lack.GROUP], "actor 'eve' is not in group 'readers'"),
        ("bob", asked("change", "f"), "readers-read", [Lack.ACTION], "action 'change' is not listed (read)"),
        ("bob", asked("export", "main"), "nightly-export", [Lack.GROUP], "actor 'bob' is not in group 'nightly'"),
        (None, asked("read", "f"), "readers-read", [Lack.GROUP], "the request has no actor"),
        (
            "eve",
            asked("branch_merge", "main", "f"),
            "admins-merge",
            [Lack.TARGET_BRANCH_SCOPE, Lack.GROUP],
            "target branch 'f' is not protected",
        ),
    ],
)
def test_the_nearest_rule(
    gate: PolicyGate, actor: str | None, request_: AccessRequest, rule: str, kinds: list[Lack], sentence: str
) -> None:
    explained, nearest = explain(gate, actor, request_), nearest_rule(gate.bundle, actor, request_)
    assert not explained.decision.allowed
    assert nearest is not None
    rule_id, messages = nearest
    assert rule_id == rule
    assert list(messages) == kinds
    assert sentence in messages[kinds[0]]
    assert explained.reasons[0] == f"nearest rule '{rule}': {messages[kinds[0]]}"


def test_without_rules_there_is_no_nearest() -> None:
    empty = load_gate("version: 1\ngroups: {g: [a]}", "graph", "empty", "kb")
    assert explain(empty, "a", asked("read")).reasons == ("there are no rules, so everything is denied",)
