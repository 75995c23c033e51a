"""`omnigraph policy`: which bundle is meant, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph
from tests.cli.conftest import Cli
from tests.support.clusters import make_cluster

SCHEMA = "node Person { name: String @key  region: String?  pay: I32? }\nedge Knows: Person -> Person\n"
RULES = """\
version: 1
groups: {eu: [ana], staff: [ana, bob]}
rules:
  - id: eu-reads
    allow: {actors: {group: eu}, actions: [read], rows: {Person: region = "eu"}, hide: {Person: [pay]}}
  - id: mine
    allow: {actors: {group: eu}, actions: [read], rows: {Person: name = $actor}}
  - id: staff-writes
    allow: {actors: {group: staff}, actions: [change], branch_scope: any}
"""
OTHER = "version: 1\ngroups: {staff: [bob]}\n"
SERVER = (
    "version: 1\ngroups: {staff: [bob]}\nrules: [{id: list, allow: {actors: {group: staff}, actions: [graph_list]}}]\n"
)
PEOPLE = """\
{"type": "Person", "data": {"name": "ana", "region": "us"}}
{"type": "Person", "data": {"name": "bob", "region": "us"}}
{"type": "Person", "data": {"name": "cy", "region": "eu"}}
{"edge": "Knows", "from": "ana", "to": "bob", "data": {"id": "k"}}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rules for one graph, others for a second, and some for the server itself."""
    folder = tmp_path_factory.mktemp("cluster")
    policies = {"team": (RULES, ("graph.kb",)), "other": (OTHER, ("graph.lab",)), "server": (SERVER, ("cluster",))}
    made = make_cluster(folder, dict.fromkeys(("kb", "lab", "bare"), SCHEMA), {}, policies=policies)
    with omnigraph.open(made.graph_uri("kb")) as graph:
        graph.load(PEOPLE, mode="append")
    return str(folder)


def test_the_bundle_of_a_graph_is_the_one_that_is_bound_to_it(cli: Cli, cluster: str) -> None:
    assert (
        cli("policy", "validate", "--cluster", cluster, "--graph", "kb").out
        == "policy valid: bundle 'team' [2 actors]\n"
    )
    assert "bundle 'other' [1 actors]" in cli("policy", "validate", "--cluster", cluster, "--graph", "lab").out


def test_without_a_graph_one_bundle_must_be_all_there_is(cli: Cli, cluster: str, tmp_path: Path) -> None:
    refused = cli("policy", "show", "--cluster", cluster)
    assert (refused.code, refused.out) == (1, "")
    assert "other, server, team" in refused.err
    assert "pass --graph <id> to select one" in refused.err
    one = make_cluster(_folder(tmp_path / "one"), {"kb": SCHEMA}, {}, policies={"team": (RULES, ("graph.kb",))})
    assert cli("policy", "show", "--cluster", one.root).out == RULES
    none = make_cluster(_folder(tmp_path / "none"), {"kb": SCHEMA}, {})
    assert "has no applied policy bundles" in cli("policy", "validate", "--cluster", none.root).err
    assert (
        "no policy bundle is bound to graph 'kb'"
        in cli("policy", "validate", "--cluster", none.root, "--graph", "kb").err
    )


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_rules_of_the_server_are_no_rules_of_a_graph(cli: Cli, cluster: str) -> None:
    refused = cli("policy", "validate", "--cluster", cluster, "--graph", "bare")
    assert refused.code == 1
    assert "server-scoped action 'graph_list' in a Graph policy file" in refused.err


def test_a_profile_or_a_name_of_the_configuration_leads_to_a_cluster(
    cli: Cli, cluster: str, config: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = "profiles:\n  p: {cluster: lib, default_graph: kb}\n  s: {store: x}\n"
    config(f"clusters:\n  lib: {{root: {cluster}}}\n{profiles}")
    told = "policy valid: bundle 'team' [2 actors]\n"
    assert cli("policy", "validate", "--cluster", "lib", "--graph", "kb").out == told
    assert cli("policy", "validate", "--profile", "p").out == told
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "p")
    assert cli("policy", "validate").out == told
    refused = cli("policy", "validate", "--profile", "s")
    assert (refused.code, "needs a cluster" in refused.err) == (1, True)


@pytest.mark.parametrize("flags", [("--server", "x"), ("--store", "x"), ("--as", "x")])
def test_flags_that_would_mean_nothing_are_refused(cli: Cli, cluster: str, flags: tuple[str, str]) -> None:
    refused = cli("policy", "validate", "--cluster", cluster, *flags)
    assert refused.code == 1
    assert "--cluster <dir|uri>" in refused.err


def test_what_rules_show_is_checked_against_the_schema(cli: Cli, tmp_path: Path) -> None:
    rules, schema = tmp_path / "team.policy.yaml", tmp_path / "s.pg"
    rules.write_text(RULES)
    schema.write_text(SCHEMA.replace("region", "area"))
    assert cli("policy", "validate", "--file", str(rules)).out == "policy valid: bundle 'team' [2 actors]\n"
    refused = cli("policy", "validate", "--file", str(rules), "--schema", str(schema))
    assert (refused.code, refused.out) == (1, "")
    assert "region" in refused.err
    assert "team.policy.yaml:5" in refused.err
    made = make_cluster(_folder(tmp_path / "c"), {"kb": schema.read_text()}, {}, policies={"t": (RULES, ("graph.kb",))})
    assert "region" in cli("policy", "validate", "--cluster", made.root, "--graph", "kb").err


def test_cases_that_fail_are_listed(cli: Cli, tmp_path: Path) -> None:
    rules, cases = tmp_path / "r.yaml", tmp_path / "t.yaml"
    rules.write_text(RULES)
    cases.write_text(
        "version: 1\ncases:\n"
        "  - {id: one, actor: ana, action: read, expect: deny}\n"
        "  - {id: two, actor: bob, action: read, expect: allow}\n"
        "  - {id: three, actor: bob, action: change, branch: main, expect: allow}\n"
    )
    failed = cli("policy", "test", "--file", str(rules), "--tests", str(cases))
    assert failed.code == 1
    assert failed.lines == [
        "policy tests failed:",
        "one: expected Deny but got allow",
        "two: expected Allow but got deny",
    ]


def explain(cli: Cli, cluster: str, *arguments: str) -> list[str]:
    done = cli("policy", "explain", "--cluster", cluster, "--graph", "kb", *arguments)
    assert done.code == 0, done.err
    return done.lines


def test_actions_are_spelled_either_way(cli: Cli, cluster: str) -> None:
    for action in ("branch-merge", "branch_merge"):
        assert "action: branch_merge" in explain(cli, cluster, "--actor", "ana", "--action", action)
    unknown = cli("policy", "explain", "--cluster", cluster, "--graph", "kb", "--actor", "ana", "--action", "fly")
    assert unknown.code == 2


def test_a_branch_is_judged_as_in_a_request(cli: Cli, cluster: str) -> None:
    for branch in ("main", " main "):
        lines = explain(cli, cluster, "--actor", "ana", "--action", "change", "--branch", branch)
        assert "branch: main" in lines
        merge = explain(cli, cluster, "--actor", "ana", "--action", "branch-merge", "--target-branch", branch)
        assert "target_branch: main" in merge


def visibility(cli: Cli, cluster: str, *row: str) -> list[str]:
    lines = explain(cli, cluster, "--actor", "ana", "--action", "read", "--branch", "main", "--type", *row)
    return lines[next(i for i, line in enumerate(lines) if line.startswith("row: ")) :]


def test_a_stored_row_is_explained_rule_by_rule(cli: Cli, cluster: str) -> None:
    assert visibility(cli, cluster, "Person", "--id", "ana") == [
        "row: visible",
        "reason: rule 'mine' shows it",
        "reason: rule 'eu-reads' does not show it: it shows those with region = \"eu\"",
    ]
    assert visibility(cli, cluster, "Person", "--id", "bob") == [
        "row: not visible",
        "reason: rule 'eu-reads' does not show it: it shows those with region = \"eu\"",
        "reason: rule 'mine' does not show it: it shows those with name = $actor",
    ]
    assert visibility(cli, cluster, "Knows", "--id", "k") == [
        "row: not visible",
        "reason: rule 'eu-reads' does not show it, or not both of its ends",
        "reason: rule 'mine' does not show it, or not both of its ends",
    ]


def test_a_row_that_is_told_needs_no_graph(cli: Cli, cluster: str, tmp_path: Path) -> None:
    assert visibility(cli, cluster, "Person", "--row", '{"region": "eu"}')[0] == "row: visible"
    assert visibility(cli, cluster, "Person", "--row", '{"pay": 3}')[0] == "row: not visible"
    rules, schema = tmp_path / "r.yaml", tmp_path / "s.pg"
    rules.write_text(RULES.split("  - id: mine")[0])
    schema.write_text(SCHEMA)
    offline = ("policy", "explain", "--file", str(rules), "--actor", "ana", "--action", "read", "--type", "Person")
    shown = cli(*offline, "--schema", str(schema), "--row", '{"region": "eu"}').lines
    assert shown[-3:] == ["row: visible", "reason: rule 'eu-reads' shows it", "hidden: pay"]
    for wrong, code, words in (
        (("--row", '{"region": "eu"}'), 2, "give --schema <file>, or a graph"),
        (("--schema", str(schema), "--row", '{"colour": "red"}'), 1, "no property 'colour'"),
        (("--schema", str(schema), "--row", '{"pay": "much"}'), 1, "Person.pay"),
        ((), 2, "give --type with --row or with --id"),
        (("--id", "x"), 2, "--cluster <dir|uri> --graph <id>"),
    ):
        refused = cli(*offline, *wrong)
        assert (refused.code, words in refused.err) == (code, True), refused.err
    missing = cli(
        "policy", "explain", "--cluster", cluster, "--graph", "kb", "--actor", "ana", "--action", "read",
        "--type", "Person", "--id", "nobody",
    )  # fmt: skip
    assert (missing.code, "no node Person with the id 'nobody'" in missing.err) == (1, True)


def test_the_cedar_of_a_bundle_can_be_seen(cli: Cli, cluster: str) -> None:
    printed = cli("policy", "show", "--cedar", "--cluster", cluster, "--graph", "kb").out
    assert printed.startswith("namespace Omnigraph {")
    assert '@id("staff-writes:change")' in printed
    assert 'resource == Omnigraph::Graph::"kb"' in printed
