"""query, snapshot, commit, schema show: what is shown, in which form, of which state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import SCHEMA, Cli

Config = Callable[[str], None]


def people(g: str, *more: str) -> list[str]:
    return ["query", "people", "--query", "q.gq", "--store", g, *more]


def test_a_table_by_default(cli: Cli, g: str) -> None:
    shown = cli(*people(g))
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines == [
        "2 rows from branch main via people",
        "p.name | p.age",
        "-------+------",
        "Ada    | 36   ",
        "Bob    | null ",
    ]


def test_json_is_the_read_output(cli: Cli, g: str) -> None:
    shown = cli(*people(g, "--json"))
    assert list(shown.json) == ["query_name", "target", "row_count", "columns", "rows", "graph_commit_id"]
    assert shown.json["target"] == {"branch": "main", "snapshot": None}
    assert shown.json["rows"][0] == {"p.name": "Ada", "p.age": 36}
    assert shown.out.startswith('{\n  "query_name"')
    assert cli(*people(g, "--format", "json")).out == shown.out


@pytest.mark.parametrize(
    ("format", "lines"),
    [
        ("csv", ["p.name,p.age", "Ada,36", "Bob,null"]),
        (
            "jsonl",
            [
                '{"kind":"metadata","query_name":"people","target":{"branch":"main","snapshot":null},"row_count":2}',
                '{"p.name":"Ada","p.age":36}',
                '{"p.name":"Bob","p.age":null}',
            ],
        ),
        (
            "kv",
            [
                "2 rows from branch main via people",
                "row 1",
                "p.name: Ada",
                "p.age: 36",
                "",
                "row 2",
                "p.name: Bob",
                "p.age: null",
            ],
        ),
    ],
)
def test_formats(format: str, lines: list[str], cli: Cli, g: str) -> None:
    assert cli(*people(g, "--format", format)).lines == lines


def test_the_operators_format_gives_way_to_the_flag(cli: Cli, g: str, config: Config) -> None:
    config("defaults: {output: csv}")
    assert cli(*people(g)).lines[0] == "p.name,p.age"
    assert cli(*people(g, "--format", "kv")).lines[1] == "row 1"
    assert cli(*people(g, "--json")).json["row_count"] == 2


def test_parameters(cli: Cli, g: str) -> None:
    shown = cli("query", "by_name", "--query", "q.gq", "--store", g, "--params", '{"name": "Ada"}', "--format", "csv")
    assert shown.lines == ["age", "36"]


def test_the_past_is_read_by_commit_version_or_moment(cli: Cli, g: str) -> None:
    before = cli(*people(g, "--json")).json["graph_commit_id"]
    cli("mutate", "add", "--query", "q.gq", "--store", g, "--params", '{"name": "Cy"}')
    assert cli(*people(g, "--json")).json["row_count"] == 3
    past = cli(*people(g, "--json", "--snapshot", before)).json
    assert (past["row_count"], past["target"]) == (2, {"branch": None, "snapshot": before})
    assert cli(*people(g, "--json", "--at-version", "2")).json["row_count"] == 2
    for moment in ("2999-01-01", "2999-01-01T10:00:00Z", "2999-01-01T10:00:00.5+02:00"):
        assert cli(*people(g, "--json", "--at", moment)).json["row_count"] == 3
    assert "no commit that old" in cli(*people(g, "--at", "2001-01-01T00:00:00+02:00")).err
    assert f"2 rows from snapshot {before} via people" in cli(*people(g, "--snapshot", before)).out


def test_explain_runs_nothing_and_the_profile_stays_off_stdout(cli: Cli, g: str) -> None:
    assert any("Scan $p: Person" in line for line in cli(*people(g, "--explain")).lines)
    profiled = cli(*people(g, "--profile-query", "--format", "csv"))
    assert profiled.lines[0] == "p.name,p.age"
    assert "Scan $p: Person" in profiled.err
    assert "rows" in profiled.err


def test_a_query_that_does_not_compile_points_at_the_place(cli: Cli, g: str) -> None:
    refused = cli("query", "-e", "query q() { match { $p: Persn } return { $p.name } }", "--store", g)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("Error: ")
    assert "did you mean 'Person'" in refused.err


def test_a_branch_that_does_not_exist(cli: Cli, g: str) -> None:
    refused = cli(*people(g, "--branch", "nope"))
    assert refused.code == 1
    assert "branch 'nope'" in refused.err


# -- snapshot


def test_snapshot_lists_the_tables(cli: Cli, g: str) -> None:
    shown = cli("snapshot", g, "--json").json
    assert list(shown) == ["graph_branch", "graph_manifest_version", "internal_schema_version", "datasets"]
    assert [(d["entity_kind"], d["type_name"], d["entity_count"]) for d in shown["datasets"]] == [
        ("edge", "Knows", 1),
        ("edge", "LivesIn", 1),
        ("node", "City", 1),
        ("node", "Person", 2),
    ]
    lines = cli("snapshot", g).lines
    assert lines[:3] == ["graph_branch: main", "graph_manifest_version: 2", "internal_schema_version: 6"]
    assert lines[-1].startswith("node type 'Person' published_dataset_version=")
    assert lines[-1].endswith(" entities=2")
    assert cli("snapshot", g, "--at-version", "1", "--json").json["datasets"][-1]["entity_count"] == 0


# -- commits


def test_commits_newest_first(cli: Cli, g: str) -> None:
    commits = cli("commit", "list", g, "--json").json["commits"]
    assert [c["graph_manifest_version"] for c in commits] == [2, 1]
    assert list(commits[0]) == [
        "graph_commit_id",
        "graph_branch",
        "graph_manifest_version",
        "parent_commit_id",
        "merged_parent_commit_id",
        "actor_id",
        "created_at",
    ]
    newest, oldest = cli("commit", "list", g).lines
    assert newest == f"{commits[0]['graph_commit_id']} graph_branch=main graph_manifest_version=2 actor=setup"
    assert oldest == f"{commits[1]['graph_commit_id']} graph_branch=main graph_manifest_version=1"
    assert len(cli("commit", "list", g, "--limit", "1").lines) == 1


def test_a_commit_is_shown_with_what_it_changed(cli: Cli, g: str) -> None:
    newest, genesis = cli("commit", "list", g, "--json").json["commits"]
    shown = cli("commit", "show", newest["graph_commit_id"], "--uri", g, "--json").json
    assert list(shown) == [*newest, "kind", "message", "changes"]
    assert {key: shown[key] for key in newest} == newest
    assert shown["changes"]["node:Person"] == {"inserted": 2, "updated": 0, "deleted": 0}
    lines = cli("commit", "show", newest["graph_commit_id"], "--uri", g).lines
    assert lines[0] == f"graph_commit_id: {newest['graph_commit_id']}"
    assert "actor_id: setup" in lines
    assert "  node:Person: 2 inserted" in lines
    assert "parent_commit_id" not in cli("commit", "show", genesis["graph_commit_id"], "--uri", g).out
    assert "commit 'x' not found: it is on no branch" in cli("commit", "show", "x", "--uri", g).err


def test_the_history_is_drawn(cli: Cli, g: str) -> None:
    for flag in ("--dag", "--graph"):
        lines = cli("commit", "list", g, flag).lines
        assert [line[:2] for line in lines] == ["* ", "* "]
        assert lines[0].endswith("load by setup (+5)")
    assert cli("commit", "list", g, "--dag", "--json").code == 2


# -- schema show, and lint and plan against a graph


def test_schema_show_prints_the_source_word_for_word(cli: Cli, g: str) -> None:
    assert cli("schema", "show", g).out == SCHEMA
    assert cli("schema", "show", g, "--json").json == {"schema_source": SCHEMA}


def test_lint_against_a_graph(cli: Cli, g: str) -> None:
    report = cli("lint", g, "--query", "q.gq", "--json")
    assert (report.code, report.json["schema_source"]) == (0, {"kind": "graph", "uri": g})
    Path("bad.gq").write_text("query q() { match { $p: Nope } return { $p.x } }")
    assert cli("lint", "--store", g, "--query", "bad.gq").code == 1
    assert cli("lint", g, "--schema", "s.pg", "--query", "q.gq").code == 2


def test_schema_plan_against_a_graph(cli: Cli, g: str) -> None:
    Path("new.pg").write_text(SCHEMA.replace("node City {", "node City { country: String? "))
    plan = cli("schema", "plan", g, "--schema", "new.pg", "--json").json
    assert (plan["uri"], plan["supported"], plan["step_count"]) == (g, True, 1)
    assert plan["steps"][0]["kind"] == "add_property"
    assert cli("schema", "plan", "--store", g, "--schema", "s.pg").lines[-1] == "no schema changes"
