"""What a gate answers: the worked table, the words, and what never allows anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import cedarpy
import pytest

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest
from omnigraph.errors import CompileError, PolicyEvaluationError
from omnigraph.policy.bundle import read_bundle
from omnigraph.policy.gate import PolicyGate, load_gate

WORKED = """\
version: 1
groups: {w: [a]}
protected_branches: [main]
rules:
  - {id: R1, allow: {actors: {group: w}, actions: [read], branch_scope: any}}
  - {id: R2, allow: {actors: {group: w}, actions: [change], branch_scope: unprotected}}
  - {id: R3, allow: {actors: {group: w}, actions: [branch_merge], target_branch_scope: unprotected}}
  - {id: R4, allow: {actors: {group: w}, actions: [branch_create]}}
"""


@pytest.fixture(scope="module")
def worked() -> PolicyGate:
    return load_gate(WORKED, "graph", "worked", "kb")


def asked(action: str, branch: str | None = None, target: str | None = None) -> AccessRequest:
    return AccessRequest(PolicyAction(action), branch, target)


@pytest.mark.parametrize(
    ("actor", "request_", "rule", "message"),
    [
        ("a", asked("read", "main"), "R1", "policy allowed action 'read' for actor 'a'"),
        ("a", asked("read"), "R1", "policy allowed action 'read' for actor 'a'"),
        ("a", asked("change", "main"), None, "policy denied action 'change' on branch 'main' for actor 'a'"),
        ("a", asked("change", "f"), "R2", "policy allowed action 'change' for actor 'a'"),
        (
            "a",
            asked("branch_merge", "f", "main"),
            None,
            "policy denied action 'branch_merge' on branch 'f' targeting branch 'main' for actor 'a'",
        ),
        ("a", asked("branch_merge", "main", "f"), "R3", "policy allowed action 'branch_merge' for actor 'a'"),
        ("a", asked("branch_create", "main", "x"), "R4", "policy allowed action 'branch_create' for actor 'a'"),
        ("a", asked("export", "f"), None, "policy denied action 'export' on branch 'f' for actor 'a'"),
        ("z", asked("read", "f"), None, "policy denied action 'read' for unknown actor 'z'"),
        ("", asked("read", "f"), None, "policy denied action 'read' for unknown actor ''"),
        ("a", asked("graph_list"), None, "policy denied action 'graph_list' for actor 'a'"),
        ("a", asked("schema_apply", None, "main"), None, "targeting branch 'main' for actor 'a'"),
    ],
)
def test_the_worked_table(
    worked: PolicyGate, actor: str, request_: AccessRequest, rule: str | None, message: str
) -> None:
    decision = worked.decide(actor, request_)
    assert (decision.allowed, decision.matched_rule_id) == (rule is not None, rule)
    assert decision.message.endswith(message)


def test_without_an_actor_nothing_is_allowed(worked: PolicyGate) -> None:
    decision = worked.decide(None, asked("read", "main"))
    assert not decision.allowed
    assert decision.message.startswith("policy denied action 'read' on branch 'main'")
    assert worked.allowing_rules(None, asked("read")) == ()


SCOPES = """\
version: 1
groups: {w: [a]}
protected_branches: [main]
rules:
  - {id: p, allow: {actors: {group: w}, actions: [read], branch_scope: protected}}
  - {id: u, allow: {actors: {group: w}, actions: [export], branch_scope: unprotected}}
  - {id: s, allow: {actors: {group: w}, actions: [schema_apply, branch_delete], target_branch_scope: unprotected}}
  - {id: m, allow: {actors: {group: w}, actions: [branch_merge, branch_create], target_branch_scope: protected}}
"""


@pytest.mark.parametrize(
    ("request_", "allowed"),
    [
        (asked("read"), False),
        (asked("read", "main"), True),
        (asked("read", "MAIN"), False),
        (asked("read", "f"), False),
        (asked("read", "f", "main"), False),
        (asked("export"), False),
        (asked("export", "f"), True),
        (asked("export", ""), True),
        (asked("export", "main"), False),
        (asked("schema_apply", None, "main"), False),
        (asked("schema_apply", "f"), False),
        (asked("branch_delete", None, "f"), True),
        (asked("branch_merge", "main", "f"), False),
        (asked("branch_merge", "f", "main"), True),
        (asked("branch_create", "f", "main"), True),
        (asked("branch_create", "main", "g"), False),
    ],
)
def test_scopes_look_at_one_branch_and_need_it(request_: AccessRequest, allowed: bool) -> None:
    assert load_gate(SCOPES, "graph", "scopes", "kb").decide("a", request_).allowed is allowed


def test_the_smallest_rule_is_named() -> None:
    ids = ["b", "a:read", "ä", "B", "a"]
    rules = [f"  - {{id: '{i}', allow: {{actors: {{group: g}}, actions: [read, export]}}}}" for i in ids]
    gate = load_gate("version: 1\ngroups: {g: [x]}\nrules:\n" + "\n".join(rules), "graph", "many", "kb")
    assert gate.decide("x", asked("read")).matched_rule_id == "B"
    assert [rule.id for rule in gate.allowing_rules("x", asked("read"))] == ["B", "a", "a:read", "b", "ä"]


def test_a_server_bundle() -> None:
    text = "version: 1\ngroups: {g: [x]}\nrules:\n  - {id: l, allow: {actors: {group: g}, actions: [graph_list]}}"
    gate = load_gate(text, "server", "top")
    assert gate.decide("x", asked("graph_list")).matched_rule_id == "l"
    assert not gate.decide("x", asked("read")).allowed
    assert 'resource == Omnigraph::Server::"root"' in gate.rules.text


def test_a_bundle_without_rules_denies_everything() -> None:
    gate = load_gate("version: 1\ngroups: {g: [x]}", "graph", "empty", "kb")
    assert not any(gate.decide("x", AccessRequest(action, "f", "f")).allowed for action in PolicyAction)


def test_what_cannot_be_evaluated_is_no_denial(worked: PolicyGate) -> None:
    unknown = AccessRequest(cast(PolicyAction, "dance"), "main")
    with pytest.raises(PolicyEvaluationError, match=r"^policy: policy evaluation failed: .*dance"):
        worked.decide("a", unknown)


def test_an_action_that_a_rule_repeats_is_refused_when_it_is_compiled() -> None:
    bundle = read_bundle(
        "version: 1\ngroups: {g: [x]}\nrules:\n- id: r\n  allow:\n    actors: {group: g}\n    actions:\n"
        "    - read\n    - export\n    - read\n"
    )
    with pytest.raises(CompileError, match="two policies would have the id 'r:read'") as error:
        PolicyGate(bundle, "kb")
    assert error.value.span is not None
    assert error.value.span.line == 10


def test_cedar_is_asked_once_for_each_actor_action_and_standing(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = 0
    real: Callable[..., Any] = cedarpy.is_authorized

    def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal asks
        asks += 1
        return real(*arguments, **more)

    monkeypatch.setattr(cedarpy, "is_authorized", counted)
    gate = load_gate(WORKED, "graph", "worked", "kb")
    for i in range(200):
        assert gate.decide("a", asked("change", f"branch-{i}")).allowed
        assert f"branch '{i}'" in gate.decide("a", asked("export", str(i))).message
        assert not gate.decide("a", asked("change", "main")).allowed
        assert not gate.decide(f"stranger-{i}", asked("read")).allowed
    assert asks == 3


def test_a_branch_whose_name_is_no_text_is_a_branch_like_others() -> None:
    gate = load_gate(WORKED, "graph", "worked", "kb")
    assert gate.decide("a", asked("change", "\ud800")).allowed
    assert not gate.decide("\ud800", asked("read")).allowed
