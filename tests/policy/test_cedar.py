"""Cedar and the rules agree, whatever names they use: a differential test against a direct reading of the bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cedarpy
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest
from omnigraph.policy.bundle import read_bundle
from omnigraph.policy.cedar import SCHEMA
from omnigraph.policy.explanation import explain
from omnigraph.policy.gate import PolicyGate, lacks

ODD = ['"', "\\", '"; permit(principal, action, resource); //', "\n", "\t", "\x00", "é", "😀", "a:read", "*", "${x}"]
NAMES = st.one_of(
    st.sampled_from(["main", "f", "a", "b", *ODD]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4),
).filter(lambda name: bool(name.strip()) or name in ("\x00",))
SCOPES = st.sampled_from([None, "any", "protected", "unprotected"])
BRANCH_ACTIONS = ["read", "export", "change"]
TARGET_ACTIONS = ["schema_apply", "branch_create", "branch_delete", "branch_merge"]
FREE_ACTIONS = [a.value for a in PolicyAction if a is not PolicyAction.GRAPH_LIST]


@dataclass(frozen=True)
class Written:
    """A bundle as plain data: the direct evaluator knows nothing else."""

    data: dict[str, Any]

    def allowing(self, actor: str, request: AccessRequest) -> list[str]:
        found = []
        for rule in self.data["rules"]:
            allow = rule["allow"]
            member = actor in self.data["groups"][allow["actors"]["group"]]
            listed = request.action.value in allow["actions"]
            branch = self.fits(allow.get("branch_scope"), request.branch)
            target = self.fits(allow.get("target_branch_scope"), request.target_branch)
            if member and listed and branch and target:
                found.append(rule["id"])
        return sorted(found)

    def fits(self, scope: str | None, branch: str | None) -> bool:
        if scope in (None, "any"):
            return True
        return branch is not None and (branch in self.data["protected_branches"]) is (scope == "protected")


@st.composite
def bundles(draw: st.DrawFn) -> Written:
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    actors = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    groups = {name: draw(st.lists(st.sampled_from(actors), min_size=1, max_size=3)) for name in names}
    rules = []
    for rule_id in draw(st.lists(NAMES, max_size=5, unique=True)):
        key, actions = draw(
            st.sampled_from(
                [("branch_scope", BRANCH_ACTIONS), ("target_branch_scope", TARGET_ACTIONS), (None, FREE_ACTIONS)]
            )
        )
        chosen = draw(st.lists(st.sampled_from(actions), min_size=1, max_size=3, unique=True))
        allow: dict[str, Any] = {"actors": {"group": draw(st.sampled_from(names))}, "actions": chosen}
        scope = draw(SCOPES)
        if key is not None and scope is not None:
            allow[key] = scope
        rules.append({"id": rule_id, "allow": allow})
    protected = draw(st.lists(NAMES.filter(lambda name: name == name.strip()), max_size=2))
    return Written({"version": 1, "groups": groups, "protected_branches": protected, "rules": rules})


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bundles(), NAMES, st.data())
def test_cedar_and_a_direct_reading_agree(written: Written, graph_id: str, data: st.DataObject) -> None:
    bundle = read_bundle(yaml.safe_dump(written.data, allow_unicode=False))
    gate = PolicyGate(bundle, graph_id)
    members = sorted({actor for group in written.data["groups"].values() for actor in group})
    branches = [*written.data["protected_branches"], "main", "f"]
    for _ in range(6):
        actor = data.draw(st.one_of(st.sampled_from(members), NAMES))
        request = AccessRequest(
            data.draw(st.sampled_from(PolicyAction)),
            data.draw(st.one_of(st.none(), st.sampled_from(branches), NAMES)),
            data.draw(st.one_of(st.none(), st.sampled_from(branches), NAMES)),
        )
        expected = written.allowing(actor, request)
        decision = gate.decide(actor, request)
        assert decision.allowed is bool(expected)
        assert decision.matched_rule_id == (expected[0] if expected else None)
        assert [rule.id for rule in gate.allowing_rules(actor, request)] == expected
        assert sorted(r.id for r in bundle.rules if not lacks(bundle, r, actor, request)) == expected
        assert explain(gate, actor, request).reasons


def test_the_generated_text() -> None:
    text = """\
version: 1
groups: {'say "hi"': [x]}
protected_branches: [main]
rules:
  - {id: r, allow: {actors: {group: 'say "hi"'}, actions: [change], branch_scope: unprotected}}
  - {id: t, allow: {actors: {group: 'say "hi"'}, actions: [branch_merge], target_branch_scope: protected}}
  - {id: n, allow: {actors: {group: 'say "hi"'}, actions: [read], branch_scope: any}}
"""
    gate = PolicyGate(read_bundle(text), "kb")
    first, second, third = gate.rules.text.split("\n\n")
    assert first == (
        '@id("r:change")\npermit (\n  principal in Omnigraph::Group::"say \\u{22}hi\\u{22}",\n'
        '  action == Omnigraph::Action::"change",\n  resource == Omnigraph::Graph::"kb"\n)\n'
        "when { context.has_branch && context.branch_is_protected == false };"
    )
    assert "when { context.has_target_branch && context.target_branch_is_protected };" in second
    assert "when { true };" in third
    assert cedarpy.validate_policies(gate.rules.text, SCHEMA).validation_passed


def test_the_schema_is_strict() -> None:
    """What a policy of another making could get wrong is found by the schema that ours are checked against."""
    for wrong in (
        "permit (principal, action, resource) when { context.branch_is_protected == 1 };",
        'permit (principal, action == Omnigraph::Action::"graph_list", resource == Omnigraph::Graph::"kb");',
        "permit (principal, action, resource) when { context.nonsense };",
    ):
        assert not cedarpy.validate_policies(wrong, SCHEMA).validation_passed
