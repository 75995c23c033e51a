"""query, snapshot, commit, schema show: what is shown, in which form, of which state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
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
        ("csv", ["p.name,p.age", "Ada,36", "Bob,"]),
        ("ndjson", ['{"p.name":"Ada","p.age":36}', '{"p.name":"Bob","p.age":null}']),
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


def test_the_traversal_work_of_a_query(cli: Cli, g: str) -> None:
    text = "query q() { match { $a: Person  $a knows $b } return { $b.name as b } }"
    asked = ["query", "-e", text, "--store", g, "--format", "csv", "--traversal-work"]
    assert cli(*asked, "9").lines[0] == "b"
    assert cli(*asked, "9", "--profile-query").lines[0] == "b"
    refused = cli(*asked, "0")
    assert (refused.code, refused.out) == (1, "")
    assert "resource limit exceeded for traversal_work: actual 1, limit 0" in refused.err
    stored = cli("query", "people", "--traversal-work", "9", "--store", g)
    assert (stored.code, "take the source of the query" in stored.err) == (2, True)


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
    moment = datetime.fromtimestamp(newest["created_at"] // 1_000 / 1_000, UTC)
    assert f"created: {moment.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}" in lines
    assert "  node:Person: 2 inserted" in lines
    assert "parent_commit_id" not in cli("commit", "show", genesis["graph_commit_id"], "--uri", g).out
    assert "commit 'x' not found: it is on no branch" in cli("commit", "show", "x", "--uri", g).err


def test_the_history_is_drawn(cli: Cli, g: str) -> None:
    for flag in ("--dag", "--graph"):
        lines = cli("commit", "list", g, flag).lines
        assert [line[:2] for line in lines] == ["* ", "* "]
        assert lines[0].endswith("load by setup (+5)")
    assert cli("commit", "list", g, "--dag", "--json").code == 2


# -- naming the graph, and parameters


@pytest.mark.parametrize(
    "command",
    [
        ["query", "people", "--query", "q.gq"],
        ["query", "-e", "query q() { match { $p: Person } return { $p.name } }"],
        ["blob", "stat", "node", "Person", "Ada", "name"],
        ["branch", "list"],
        ["branch", "merge", "main", "--preview"],
        ["commit", "list"],
        ["commit", "show", "{commit}"],
        ["commit", "changes", "{commit}"],
        ["changes", "poll", "--start", "beginning"],
        ["changes", "baseline", "--out", "base.ndjson"],
        ["diff", "main@1", "main"],
        ["snapshot"],
        ["export"],
        ["schema", "show"],
        ["schema", "plan", "--schema", "s.pg"],
        ["lint", "--query", "q.gq"],
        ["repair"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_graph_is_named_with_store_and_as_an_argument_by_old_scripts(command: list[str], cli: Cli, g: str) -> None:
    commit = cli("commit", "list", "--store", g, "--json").json["commits"][0]["graph_commit_id"]
    command = [part.format(commit=commit) if part == "{commit}" else part for part in command]
    told = cli(*command, "--store", g)
    assert "no graph addressed" not in told.err
    assert cli(*command, g) == told
    both = cli(*command, g, "--store", g)
    assert (both.code, "mutually exclusive" in both.err) == (1, True)
    shown = cli(*command[: 2 if command[0] in ("blob", "branch", "commit", "changes", "schema") else 1], "--help").out
    assert "--uri" not in shown
    assert "URI" not in shown.splitlines()[0]
    assert "\n  URI " not in shown


def test_a_pipeline_takes_its_graph_as_an_argument_from_old_scripts(cli: Cli, g: str) -> None:
    Path("p.yaml").write_text(
        "{version: 1, sources: {r: {format: csv, path: d.csv}}, nodes: {Nobody: {from: r, select: {name: a}}}}"
    )
    for work in ("validate", "explain"):
        told = cli("pipeline", work, "p.yaml", "--store", g)
        assert (told.code, "Nobody" in told.err) == (1, True), "mappings are checked against the schema of the graph"
        assert cli("pipeline", work, "p.yaml", g) == told
    for work in ("run", "validate", "explain"):
        both = cli("pipeline", work, "p.yaml", g, "--store", g)
        assert (both.code, "URI and --store are mutually exclusive" in both.err) == (2, True)


def test_a_name_and_a_graph_are_told_apart(cli: Cli, g: str) -> None:
    told = cli(*people(g))
    assert cli("query", "people", g, "--query", "q.gq") == cli("query", g, "people", "--query", "q.gq") == told
    added = cli("mutate", g, "add", "--query", "q.gq", "--param", "name=Di")
    assert added.lines == ["changed main via add: 1 node, 0 edges"]


def test_parameters_by_name_are_read_as_their_declared_types(cli: Cli, g: str) -> None:
    add = ("mutate", "add", "--query", "q.gq", "--store", g)
    assert cli(*add, "--param", "name=36", "--param", "age=41").code == 0
    assert cli(*add, "--params", '{"name": "null"}', "--param", "$age=null").code == 0
    by_name = ("query", "by_name", "--query", "q.gq", "--store", g, "--format", "csv", "--param")
    assert cli(*by_name, "name=36").lines == ["age", "41"]
    assert cli(*by_name, "name=null").lines == ["age", ""]
    text = """query q($a: [String], $b: Date, $c: F64, $d: Bool) {
      match { $p: Person { name: "Ada" } } return { $p.name as name } }"""
    given = ['a=["x", "y"]', "b=2020-01-02", "c=1.5", "d=true"]
    named = [part for each in given for part in ("--param", each)]
    assert cli("query", "-e", text, "--store", g, "--format", "csv", *named).lines == ["name", "Ada"]
    for wrong, code, message in (
        (["--param", "age=x"], 1, "--param age: expected I32 as JSON writes it, got 'x'"),
        (["--param", "age"], 2, "--param takes NAME=VALUE, not 'age'"),
        (["--param", "age=1", "--param", "age=2"], 2, "the parameter 'age' is given twice"),
        (["--params", '{"name": "x"}', "--param", "name=y"], 2, "the parameter 'name' is given twice"),
    ):
        refused = cli(*add, *wrong)
        assert (refused.code, message in refused.err) == (code, True), refused.err


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
