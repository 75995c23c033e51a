"""schema apply, optimize, repair and cleanup: reports, exit codes, consent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import SCHEMA, Cli
from tests.conftest import Place


def grown() -> str:
    return SCHEMA.replace("node City {", "node City { country: String? ")


def test_a_schema_is_applied_once(cli: Cli, g: str) -> None:
    Path("new.pg").write_text(grown())
    applied = cli("schema", "apply", g, "--schema", "new.pg", "--as", "me")
    assert applied.code == 0
    assert applied.err == f"omnigraph schema apply → {g} (direct, local)\n"
    assert applied.lines == [
        f"schema apply for {g}",
        "supported: yes",
        "applied: yes",
        "graph_manifest_version: 3",
        "- add property 'City.country' (String?) on node 'City'",
    ]
    again = cli("schema", "apply", g, "--schema", "new.pg", "--json", "--quiet").json
    assert list(again) == ["uri", "supported", "applied", "step_count", "graph_manifest_version", "steps"]
    assert (again["uri"], again["applied"], again["step_count"]) == (g, False, 0)
    assert cli("schema", "show", g).out == grown()
    assert cli("schema", "show", g, "--at-version", "2").out == SCHEMA


def test_a_schema_that_can_not_be_applied_changes_nothing(cli: Cli, g: str) -> None:
    Path("new.pg").write_text(SCHEMA.replace("age: I32?", "age: String?"))
    refused = cli("schema", "apply", g, "--schema", "new.pg")
    assert (refused.code, refused.out) == (1, "")
    assert "Person.age" in refused.err
    assert cli("schema", "show", g).out == SCHEMA


def test_a_schema_is_applied_to_a_branch_of_its_own(cli: Cli, g: str) -> None:
    Path("new.pg").write_text(grown())
    cli("branch", "create", "next", "--uri", g)
    assert cli("schema", "apply", g, "--schema", "new.pg", "--branch", "next").code == 0
    assert cli("schema", "show", g, "--branch", "next").out == grown()
    assert cli("schema", "show", g).out == SCHEMA


def test_optimize_reports_every_dataset(cli: Cli, g: str) -> None:
    done = cli("optimize", g)
    assert done.code == 0
    assert done.err == f"omnigraph optimize → {g} (direct, local)\n"
    assert done.lines[0] == f"optimize {g} — 5 datasets"
    assert any(line.startswith("  node type 'Person'") and line.endswith("✓") for line in done.lines)
    assert done.lines[-1] == (
        "  no space was released: older versions keep their files until `omnigraph cleanup` removes them"
    )
    assert "space" not in cli("optimize", g).out
    again = cli("optimize", g, "--json", "--quiet").json
    assert again["uri"] == g
    assert {row["type_key"] for row in again["datasets"]} == {
        "edge:Knows",
        "edge:LivesIn",
        "node:City",
        "node:Person",
        "__manifest",
    }
    assert not any(row["committed"] for row in again["datasets"])
    assert list(again["datasets"][0]) == [
        "type_key",
        "fragments_removed",
        "fragments_added",
        "committed",
        "skipped",
        "published_dataset_version",
        "lance_head_version",
        "pending_indexes",
    ]


def test_cleanup_needs_a_policy(cli: Cli, g: str) -> None:
    refused = cli("cleanup", g, "--confirm")
    assert refused.code == 1
    assert "requires at least one of --keep or --older-than" in refused.err
    assert "'soon' is not a duration" in cli("cleanup", g, "--older-than", "soon").err


def test_cleanup_without_confirmation_only_says_so(cli: Cli, g: str) -> None:
    asked = cli("cleanup", g, "--keep", "1", "--older-than", "2w")
    assert (asked.code, asked.out) == (0, "")
    policy = "keep 1 version, older than 2w"
    expected = (
        f"cleanup of {g} would apply the policy: {policy}; pass --dry-run to see what would go, --confirm to remove it"
    )
    assert asked.err == expected + "\n"


def test_cleanup_removes_what_the_policy_gives_up(cli: Cli, g: str) -> None:
    cli("mutate", "grow", "--query", "q.gq", "--store", g, "--params", '{"name": "Ada", "age": 1}')
    counted = cli("cleanup", g, "--keep", "1", "--dry-run", "--json")
    assert (counted.code, counted.err) == (0, "")
    assert list(counted.json) == ["uri", "keep_versions", "older_than_secs", "datasets"]
    assert cli("query", "people", "--query", "q.gq", "--store", g, "--at-version", "2").code == 0
    done = cli("cleanup", g, "--keep", "1", "--confirm")
    assert done.code == 0
    assert done.err == f"omnigraph cleanup → {g} (direct, local)\n"
    versions = sum(row["old_versions_removed"] for row in counted.json["datasets"])
    assert versions > 0
    assert done.lines[0].startswith(f"cleanup {g} (keep 1 version) — removed {versions} version")
    gone = cli("query", "people", "--query", "q.gq", "--store", g, "--at-version", "2")
    assert gone.code == 1
    assert "cleanup" in gone.err
    assert cli("query", "people", "--query", "q.gq", "--store", g).code == 0


def test_a_confirmed_cleanup_elsewhere_needs_consent(cli: Cli, remote_place: Place) -> None:
    cli("init", "--schema", "s.pg", remote_place.uri)
    refused = cli("cleanup", remote_place.uri, "--keep", "1", "--confirm")
    assert refused.code == 1
    assert f"refusing destructive `cleanup --confirm` on {remote_place.uri}" in refused.err
    assert cli("cleanup", remote_place.uri, "--keep", "1", "--confirm", "--yes").code == 0


def test_repair_of_a_sound_graph(cli: Cli, g: str) -> None:
    looked = cli("repair", g)
    assert looked.code == 0
    assert looked.lines[0].startswith(f"repair {g} — preview mode, ")
    assert any(line.startswith("  node type 'Person' ") and line.endswith(" no_drift: no_op") for line in looked.lines)
    report = cli("repair", g, "--confirm", "--json", "--quiet").json
    assert list(report) == ["uri", "confirm", "force", "graph_manifest_version", "datasets"]
    assert {(row["classification"], row["action"]) for row in report["datasets"]} == {("no_drift", "no_op")}
    assert "--force only goes with --confirm" in cli("repair", g, "--force").err


@pytest.mark.parametrize("kind", ["data", "_versions"])
def test_repair_reports_what_it_refuses_and_fails(kind: str, cli: Cli, g: str) -> None:
    person = next(d for d in cli("snapshot", g, "--json").json["datasets"] if d["type_name"] == "Person")
    for file in (Path(g) / person["dataset_path"] / kind).iterdir():
        file.unlink()
    refused = cli("repair", g, "--confirm")
    assert refused.code == 1
    assert "repair refused 1 of" in refused.err
    assert any("node type 'Person'" in line and "unverifiable: refused" in line for line in refused.lines)
