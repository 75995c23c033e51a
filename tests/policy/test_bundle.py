"""The bundle file: what is refused, in which order, and at which line."""

from __future__ import annotations

import pytest

from omnigraph.api.enums import PolicyAction
from omnigraph.errors import CompileError
from omnigraph.policy.bundle import BranchScope, ScopeKind, align, read_bundle

TEAM = """\
version: 1
groups:
  readers: [act-ana, act-bob, act-ana]
  admins:  [act-ana]
protected_branches: [main]
rules:
  - id: readers-read-anything
    allow:
      actors: {group: readers}
      actions: [read]
      branch_scope: any
  - id: admins-write-protected
    allow:
      actors: {group: admins}
      actions: [branch_merge, schema_apply]
      target_branch_scope: protected
"""


def refused(text: str) -> tuple[int, str]:
    """The line and the message of the refusal."""
    with pytest.raises(CompileError) as error:
        read_bundle(text, "team.yaml")
    (found,) = error.value.diagnostics
    assert found.span is not None
    assert found.path == "team.yaml"
    assert found.code == "policy_invalid"
    return found.span.line, found.message


def test_a_bundle() -> None:
    bundle = read_bundle(TEAM)
    assert bundle.groups == {"readers": ("act-ana", "act-bob"), "admins": ("act-ana",)}
    assert set(bundle.groups_of) == {"act-ana", "act-bob"}
    assert bundle.groups_of["act-ana"] == {"readers", "admins"}
    assert bundle.protected_branches == {"main"}
    first, second = bundle.rules
    assert (first.id, first.group, first.actions) == ("readers-read-anything", "readers", (PolicyAction.READ,))
    assert (first.branch_scope, first.target_branch_scope) == (BranchScope.ANY, None)
    assert second.actions == (PolicyAction.BRANCH_MERGE, PolicyAction.SCHEMA_APPLY)
    assert (second.branch_scope, second.target_branch_scope) == (None, BranchScope.PROTECTED)
    assert not first.restricts
    assert bundle == read_bundle("# layout means nothing\n" + TEAM)


def test_a_bundle_without_rules() -> None:
    bundle = read_bundle("version: 1")
    assert (bundle.groups, bundle.rules, bundle.groups_of) == ({}, (), {})
    align(bundle, "graph")
    align(bundle, "server")


def test_rows_and_hidden_properties_are_kept() -> None:
    text = TEAM.replace(
        "      branch_scope: any\n",
        "      rows: {Person: 'region = \"eu\" or owner = $actor', Contract: public = true}\n"
        "      hide: {Person: [salary, ssn]}\n",
    )
    rule = read_bundle(text).rules[0]
    assert rule.restricts
    assert [(shown.type_name, shown.filter) for shown in rule.rows] == [
        ("Person", 'region = "eu" or owner = $actor'),
        ("Contract", "public = true"),
    ]
    assert [(masked.type_name, masked.properties) for masked in rule.hide] == [("Person", ("salary", "ssn"))]


SHAPES = [
    ("", 1, "the file is empty"),
    ("version: [1", 1, "not YAML"),
    ("version: 1\n---\nversion: 1\n", 2, "not YAML"),
    ("version: 1\ngroups: {a: [\x07b]}\n", 2, "U+0007"),
    ("- 1", 1, "the file must be a mapping"),
    ("groups: {}", 1, "lacks the key 'version'"),
    ("version: one", 1, "version must be a whole number, not 'one'"),
    ("version: 1.0", 1, "version must be a whole number"),
    ('version: "1"', 1, "version must be a whole number"),
    ("version:", 1, "version must be a whole number and is empty"),
    ("version: 1\nversion: 1", 2, "holds the key 'version' twice"),
    ("version: 1\nrulez: []", 2, "unknown key 'rulez'"),
    ("version: 1\n<<: {rules: []}", 2, "'<<'"),
    ("version: 1\ngroups: [a]", 2, "groups must be a mapping"),
    ("version: 1\ngroups:\n  a: b", 3, "groups.a must be a list, not 'b'"),
    ("version: 1\ngroups:\n  a: [b]\n  a: [c]", 4, "holds the key 'a' twice"),
    ("version: 1\ngroups:\n  a: [1]", 3, "groups.a[0] must be a text, not '1', which is a number"),
    ("version: 1\ngroups:\n  on: [b]", 3, "must be a text, not 'on', which is a flag"),
    ("version: 1\ngroups:\n  a: [~]", 3, "groups.a[0] must be a text and is empty"),
    ("version: 1\ngroups:\n  a: [2024-01-01]", 3, "which is a date"),
    ("version: 1\ngroups:\n  a: [!!binary aGk=]", 3, "must be a text"),
    ('version: 1\ngroups:\n  a: ["\\ud800"]', 3, "half of a surrogate pair"),
    ("version: 1\ngroups:", 2, "groups must be a mapping"),
    ("version: 1\nprotected_branches: main", 2, "protected_branches must be a list"),
    ("version: 1\nrules: {}", 2, "rules must be a list"),
    ("version: 1\nrules:\n  - id: r", 3, "rules[0] lacks the key 'allow'"),
    ("version: 1\nrules:\n  - id: r\n    deny: {}\n", 4, "unknown key 'deny'"),
    ("version: 1\nrules:\n  - id: r\n    allow: {actions: [read]}\n", 4, "rules[0].allow lacks the key 'actors'"),
]


@pytest.mark.parametrize(("text", "line", "fragment"), SHAPES)
def test_a_shape_that_is_wrong(text: str, line: int, fragment: str) -> None:
    found_line, message = refused(text)
    assert fragment in message
    assert found_line == line


ALLOW = "      actors: {group: readers}\n      actions: [read]\n      branch_scope: any\n"


@pytest.mark.parametrize(
    ("written", "line", "fragment"),
    [
        (ALLOW + "      brnach_scope: protected\n", 12, "unknown key 'brnach_scope'"),
        (ALLOW.replace("group: readers", "group: readers, user: x"), 9, "unknown key 'user'"),
        (ALLOW.replace("{group: readers}", "readers"), 9, "rules[0].allow.actors must be a mapping"),
        (ALLOW.replace("[read]", "[reed]"), 10, "rules[0].allow.actions[0] is 'reed' and must be one of read, export"),
        (ALLOW.replace("[read]", "[schema-apply]"), 10, "is 'schema-apply'"),
        (ALLOW.replace("[read]", "read"), 10, "actions must be a list"),
        (ALLOW.replace("any", "every"), 11, "branch_scope is 'every' and must be one of any, protected, unprotected"),
        (ALLOW.replace("branch_scope: any", "branch_scope:"), 11, "branch_scope must be a text and is empty"),
        (ALLOW + "      rows: [Person]\n", 12, "rows must be a mapping"),
        (ALLOW + "      rows: {Person: true}\n", 12, "rows.Person must be a text"),
        (ALLOW + "      hide: {Person: salary}\n", 12, "hide.Person must be a list"),
    ],
)
def test_a_rule_whose_shape_is_wrong(written: str, line: int, fragment: str) -> None:
    found_line, message = refused(TEAM.replace(ALLOW, written))
    assert fragment in message
    assert found_line == line


def test_a_near_word_is_suggested() -> None:
    with pytest.raises(CompileError) as error:
        read_bundle(TEAM.replace("branch_scope: any", "branch_scop: any"))
    assert error.value.diagnostics[0].suggestion == "did you mean 'branch_scope'?"
    assert "<input>:11:7: policy_invalid: rules[0].allow has an unknown key 'branch_scop'" in str(error.value)


CHECKS = [
    ("version: 1\n", "version: 2\n", 1, "policy version must be 1"),
    ("  readers:", "  ' ':", 3, "group names must not be blank"),
    ("[act-ana, act-bob, act-ana]", "[]", 3, "policy group 'readers' must not be empty"),
    ("act-bob", "' '", 3, "contains a blank actor id"),
    ("[main]", "[main, '']", 5, "protected branch names must not be blank"),
    ("[main]", "[side, 'main ']", 5, "protected branch 'main ' has white space around its name"),
    ("id: readers-read-anything", "id: ' '", 7, "rule ids must not be blank"),
    ("admins-write-protected", "readers-read-anything", 12, "duplicate policy rule id 'readers-read-anything'"),
    ("group: admins", "group: ''", 14, "must reference a non-blank group"),
    ("group: admins", "group: owners", 14, "references unknown group 'owners'"),
    ("actions: [read]", "actions: []", 10, "must include at least one action"),
    (
        "      target_branch_scope: protected",
        "      target_branch_scope: any\n      branch_scope: any",
        17,
        "branch_scope or target_branch_scope, not both",
    ),
    (
        "actions: [read]",
        "actions: [read, branch_merge]",
        10,
        "uses branch_scope with unsupported action 'branch_merge'",
    ),
    ("actions: [read]", "actions: [invoke_query]", 10, "uses branch_scope with unsupported action 'invoke_query'"),
    ("actions: [read]", "actions: [graph_list]", 10, "uses branch_scope with unsupported action 'graph_list'"),
    (
        "[branch_merge, schema_apply]",
        "[branch_merge, admin]",
        15,
        "uses target_branch_scope with unsupported action 'admin'",
    ),
    (
        "      actions: [read]\n      branch_scope: any",
        "      actions: [read, graph_list]",
        10,
        "mixes the server-scoped action 'graph_list' with per-graph actions; split into separate rules",
    ),
    ("branch_scope: any", "rows: {}", 7, "has an empty rows"),
    ("branch_scope: any", "hide: {}", 7, "has an empty hide"),
    ("branch_scope: any", "hide: {Person: []}", 11, "hide of Person must list at least one property"),
    ("branch_scope: any", "hide: {Person: [a, ' ']}", 11, "lists a blank property"),
    ("branch_scope: any", "hide: {Person: [a, b, a]}", 11, "lists 'a' twice"),
    ("branch_scope: any", "hide: {' ': [a]}", 11, "type names in hide must not be blank"),
    ("branch_scope: any", "rows: {Person: age >}", 11, "rows of Person at column 6: Q001: expected"),
    ("branch_scope: any", "rows: {Person: ''}", 11, "rows of Person at column 1: Q001"),
    (
        "target_branch_scope: protected",
        "rows: {Person: age > 1}",
        15,
        "uses rows with unsupported action 'branch_merge'",
    ),
    (
        "target_branch_scope: protected",
        "hide: {Person: [age]}",
        15,
        "uses hide with unsupported action 'branch_merge'",
    ),
]


@pytest.mark.parametrize(("old", "new", "line", "fragment"), CHECKS)
def test_a_check_that_fails(old: str, new: str, line: int, fragment: str) -> None:
    assert old in TEAM
    found_line, message = refused(TEAM.replace(old, new))
    assert fragment in message
    assert found_line == line


@pytest.mark.parametrize("action", [a for a in PolicyAction if a not in ("read", "export", "change")])
@pytest.mark.parametrize("key", ["rows: {P: a = 1}", "hide: {P: [a]}"])
def test_only_reads_exports_and_changes_can_be_allowed_in_part(action: PolicyAction, key: str) -> None:
    rule = f"{{id: r, allow: {{actors: {{group: g}}, actions: [{action}], {key}}}}}"
    text = f"version: 1\ngroups: {{g: [a]}}\nrules: [{rule}]"
    assert f"with unsupported action '{action}'" in refused(text)[1]


ORDER = """\
version: {version}
groups: {{{group}: [{member}]}}
protected_branches: ['{branch}']
rules:
  - id: '{id}'
    allow: {{actors: {{group: '{named}'}}, actions: [{actions}], {scopes}}}
  - id: '{id}'
    allow: {{actors: {{group: '{named}'}}, actions: [read]{unknown}}}
"""


def test_the_first_failure_is_reported() -> None:
    """Every part is wrong; mending them one by one brings the next failure to light."""
    wrong = {
        "unknown": ", rows: 1",
        "version": "3",
        "group": "' '",
        "member": "",
        "branch": " ",
        "id": "",
        "named": "",
        "actions": "",
        "scopes": "branch_scope: any, target_branch_scope: any",
    }
    steps = [
        ({"unknown": ""}, "rows must be a mapping"),
        ({"version": "1"}, "policy version must be 1"),
        ({"group": "g"}, "group names must not be blank"),
        ({"member": "' '"}, "policy group 'g' must not be empty"),
        ({"member": "a"}, "contains a blank actor id"),
        ({"branch": "main"}, "protected branch names must not be blank"),
        ({"id": "r"}, "rule ids must not be blank"),
        ({"named": "h"}, "must reference a non-blank group"),
        ({"named": "g"}, "references unknown group 'h'"),
        ({"actions": "graph_list, read"}, "must include at least one action"),
        ({"scopes": "branch_scope: any"}, "branch_scope or target_branch_scope, not both"),
        ({"scopes": "target_branch_scope: any"}, "uses branch_scope with unsupported action 'graph_list'"),
        ({"scopes": ""}, "uses target_branch_scope with unsupported action 'graph_list'"),
        ({"actions": "read"}, "mixes the server-scoped action"),
        ({}, "duplicate policy rule id 'r'"),
    ]
    for mended, fragment in steps:
        line, message = refused(ORDER.format(**wrong))
        assert fragment in message
        wrong |= mended
    assert line == 7


@pytest.mark.parametrize(
    ("kind", "actions", "fragments"),
    [
        ("graph", "[graph_list]", ("'r'", "server-scoped action 'graph_list'", "Graph policy file", "move it")),
        ("server", "[read]", ("'r'", "per-graph action 'read'", "Server policy file", "move it")),
        ("server", "[admin]", ("'r'", "per-graph action 'admin'", "Server policy file", "move it")),
    ],
)
def test_a_bundle_is_aligned_with_its_use(kind: ScopeKind, actions: str, fragments: tuple[str, ...]) -> None:
    bundle = read_bundle(
        f"version: 1\ngroups: {{g: [a]}}\nrules:\n- id: r\n  allow: {{actors: {{group: g}},\n    actions: {actions}}}"
    )
    align(bundle, "server" if kind == "graph" else "graph")
    with pytest.raises(CompileError) as error:
        align(bundle, kind)
    (found,) = error.value.diagnostics
    assert all(fragment in found.message for fragment in fragments)
    assert found.span is not None
    assert found.span.line == 6


def test_a_deep_file_is_refused_and_shared_parts_are_read() -> None:
    assert "nested too deeply" in refused("version: 1\nrules: " + "[" * 1000)[1]
    shared = read_bundle("version: 1\ngroups: {a: &m [x, y], b: *m}")
    assert shared.groups == {"a": ("x", "y"), "b": ("x", "y")}
    assert "rules[0] must be a mapping" in refused("version: 1\nrules: &r [*r]")[1]
