"""init, load, ingest, mutate and the branch commands that write: results, echo, consent, exit codes."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from tests.cli.conftest import QUERIES, RECORDS, SCHEMA, Cli
from tests.conftest import Place

# -- init


def test_init_makes_parent_directories_and_says_where(cli: Cli) -> None:
    made = cli("init", "--schema", "s.pg", "deep/er/g.omni")
    assert (made.code, made.out, made.err) == (0, "initialized deep/er/g.omni\n", "")
    assert cli("schema", "show", "deep/er/g.omni").out == SCHEMA


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_init_never_replaces_a_graph(force: list[str], cli: Cli, g: str) -> None:
    refused = cli("init", "--schema", "s.pg", g, *force)
    assert (refused.code, refused.out) == (1, "")
    assert "already holds a graph" in refused.err
    assert cli("commit", "list", g, "--json").json["commits"][0]["graph_manifest_version"] == 2


def test_init_shows_a_schema_mistake_with_its_file(cli: Cli) -> None:
    Path("bad.pg").write_text("node A { x: Strng }")
    refused = cli("init", "--schema", "bad.pg", "g")
    assert refused.code == 1
    assert refused.err.startswith("Error: bad.pg:1:13:")
    assert not Path("g").exists()


def test_init_and_schema_apply_refuse_a_place_inside_a_cluster(cli: Cli) -> None:
    Path("box/__cluster").mkdir(parents=True)
    Path("box/__cluster/state.json").write_text("{}")
    for command in (["init", "--schema", "s.pg"], ["schema", "apply", "--schema", "s.pg"]):
        refused = cli(*command, "box/graphs/kb.omni")
        assert refused.code == 1
        assert "is inside cluster" in refused.err
    assert not Path("box/graphs").exists()


# -- load


def test_load_says_what_it_loaded_and_where(cli: Cli) -> None:
    cli("init", "--schema", "s.pg", "g")
    loaded = cli("load", "g", "--data", "d.jsonl", "--mode", "append")
    assert loaded.code == 0
    assert loaded.err == "omnigraph load → g (direct, local)\n"
    assert loaded.lines == [
        "loaded g on branch main with append: 5 entities across 2 node types and 2 edge types",
        "5 inserted, 0 updated, 0 unchanged",
    ]


def test_load_reports_json(cli: Cli, g: str) -> None:
    loaded = cli("load", g, "--data", "d.jsonl", "--mode", "overwrite", "--json", "--quiet", "--as", "me")
    assert (loaded.code, loaded.err) == (0, "")
    assert list(loaded.json) == [
        "uri",
        "branch",
        "mode",
        "branch_created",
        "nodes",
        "edges",
        "total_entities",
        "inserted",
        "updated",
        "unchanged",
        "deleted",
        "commit",
    ]
    assert loaded.json["uri"] == g
    assert loaded.json["nodes"] == [
        {"name": "City", "entities_loaded": 1, "inserted": 0, "updated": 0, "unchanged": 1, "deleted": 0},
        {"name": "Person", "entities_loaded": 2, "inserted": 0, "updated": 0, "unchanged": 2, "deleted": 0},
    ]
    assert loaded.json["commit"]["graph_manifest_version"] == 3
    assert loaded.json["commit"]["actor_id"] == "me"


def test_load_creates_a_missing_branch_only_when_told_from_where(cli: Cli, g: str) -> None:
    load = ["load", g, "--data", "d.jsonl", "--mode", "merge", "--branch", "review", "--quiet"]
    refused = cli(*load)
    assert refused.code == 1
    assert "branch 'review'" in refused.err
    created = cli(*load, "--from", "main")
    assert created.lines[-1] == "branch review created from main"
    assert cli(*load, "--from", "main", "--json").json["branch_created"] is False


def test_a_bad_record_is_named_by_its_line_and_changes_nothing(cli: Cli, g: str) -> None:
    Path("bad.jsonl").write_text('{"type":"City","data":{"name":"Rome"}}\n{"type":"Town"}\n')
    refused = cli("load", g, "--data", "bad.jsonl", "--mode", "append")
    assert refused.code == 1
    assert "line 2" in refused.err
    assert cli("commit", "list", g, "--json").json["commits"][0]["graph_manifest_version"] == 2


def test_a_file_without_records_makes_no_commit(cli: Cli, g: str) -> None:
    Path("none.jsonl").write_text("\n")
    before = cli("commit", "list", g, "--json").json
    told = cli("load", g, "--data", "none.jsonl", "--mode", "merge")
    assert told.err.splitlines()[-1].endswith("the data hold no records: no commit was made")
    assert told.lines == [f"loaded {g} on branch main with merge: 0 entities across 0 node types and 0 edge types"]
    assert cli("load", g, "--data", "none.jsonl", "--mode", "merge", "--json").json["commit"] is None
    assert cli("ingest", g, "--data", "none.jsonl", "--as", "me").lines[-1] == "actor_id: me"
    assert cli("commit", "list", g, "--json").json == before


def test_a_missing_data_file_is_named(cli: Cli, g: str) -> None:
    refused = cli("load", g, "--data", "absent.jsonl", "--mode", "append", "--quiet")
    assert (refused.code, refused.err) == (1, "Error: 'absent.jsonl' does not exist\n")


def test_ingest_is_forgiving_and_deprecated(cli: Cli, g: str) -> None:
    Path("old.jsonl").write_text(
        '{"type":"City",\n"data":{"name":"Rome","mayor":"?"}} {"type":"City","data":{"name":"Bern"}}'
    )
    done = cli("ingest", g, "--data", "old.jsonl", "--branch", "old", "--as", "me")
    assert done.code == 0
    assert done.err.splitlines()[0].startswith("warning: `omnigraph ingest` is deprecated")
    assert done.lines == [
        f"ingested 2 entities from {g} into branch old from main with merge (branch created)",
        "  node City: 2",
        "actor_id: me",
    ]
    assert done.err.splitlines()[-1] == (
        "warning: not everything was loaded: values of a wrong type that became null: 0, "
        "unknown or repeated members that were left out: 1"
    )
    again = cli("ingest", g, "--data", "old.jsonl", "--branch", "old", "--json").json
    assert list(again)[:5] == ["uri", "branch", "base_branch", "branch_created", "mode"]
    assert again["branch_created"] is False
    assert (again["values_nulled"], again["values_dropped"]) == (0, 1)


# -- mutate


def mutate(g: str, name: str, params: str, *more: str) -> list[str]:
    return ["mutate", name, "--query", "q.gq", "--store", g, "--params", params, *more]


def test_mutate_counts_what_it_changed(cli: Cli, g: str) -> None:
    done = cli(*mutate(g, "add", '{"name": "Cy", "age": 5}', "--as", "me"))
    assert (done.code, done.err) == (0, "")
    assert done.lines == ["changed main via add: 1 node, 0 edges", "actor_id: me"]
    removed = cli(*mutate(g, "remove", '{"name": "Ada"}'))
    assert removed.lines == ["changed main via remove: 1 node, 2 edges"]


def test_mutate_reports_json_and_null_for_no_commit(cli: Cli, g: str) -> None:
    done = cli(*mutate(g, "grow", '{"name": "Nobody", "age": 1}', "--json")).json
    assert list(done) == ["branch", "query_name", "affected_nodes", "affected_edges", "actor_id", "commit"]
    assert (done["query_name"], done["affected_nodes"], done["commit"]) == ("grow", 0, None)


def test_a_lost_race_exits_with_4(cli: Cli, g: str) -> None:
    head = cli("commit", "list", g, "--json").json["commits"][0]["graph_commit_id"]
    won = cli(*mutate(g, "add", '{"name": "A"}', "--if-commit", head, "--json"))
    assert won.code == 0
    now = won.json["commit"]["graph_commit_id"]
    lost = cli(*mutate(g, "add", '{"name": "B"}', "--if-commit", head, "--json"))
    assert lost.code == 4
    assert lost.json["precondition_failure"] == {"expected": head, "actual": now}
    assert list(lost.json) == ["error", "precondition_failure", "type", "fields"]
    assert lost.err == f"Error: {lost.json['error']}\n"
    told = cli(*mutate(g, "add", '{"name": "B"}', "--if-commit", head))
    assert (told.code, told.out) == (4, "")
    assert told.err.startswith(f"Error: branch 'main' is at commit {now}")


@pytest.mark.parametrize("command", ["query", "mutate"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "provide a {kind} name"),
        (["stored"], "by-name invocation needs a server"),
        (["-e", "  "], "--query-string must not be empty"),
        (["--query", "q.gq"], "multiple queries"),
        (["nope", "--query", "q.gq"], "query 'nope' not found"),
        (["by_name", "--query", "q.gq", "--params", "[1]"], "params must be a JSON object"),
        (["by_name", "--query", "q.gq", "--params", "{"], "--params is not JSON"),
        (["by_name", "--query", "q.gq", "--params-file", "absent"], "'absent' does not exist"),
    ],
)
def test_what_to_run_must_be_clear(command: str, arguments: list[str], message: str, cli: Cli, g: str) -> None:
    refused = cli(command, *arguments, "--store", g)
    assert (refused.code, refused.out) == (1, "")
    assert message.format(kind="query" if command == "query" else "mutation") in refused.err


def test_reads_and_mutations_are_not_mixed_up(cli: Cli, g: str) -> None:
    assert "is a read" in cli("mutate", "people", "--query", "q.gq", "--store", g).err
    assert "contains mutations" in cli("query", "add", "--query", "q.gq", "--store", g).err


def test_parameters_may_come_from_a_file_or_stdin(cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("p.json").write_text('{"name": "Cy"}')
    run = ["mutate", "add", "-e", QUERIES, "--store", g, "--json", "--params-file"]
    assert cli(*run, "p.json").json["affected_nodes"] == 1
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"name": "Di"}')))
    assert cli(*run, "-").json["affected_nodes"] == 1


# -- branches


def test_branches_come_and_go(cli: Cli, g: str) -> None:
    created = cli("branch", "create", "review", "--uri", g, "--as", "me")
    assert (created.code, created.out) == (0, "created branch review from main\n")
    assert created.err == f"omnigraph branch create → {g} (direct, local)\n"
    assert cli("branch", "list", "--uri", g).lines == ["main", "review"]
    assert cli("branch", "list", "--uri", g, "--json").json == {"branches": ["main", "review"]}
    deleted = cli("branch", "delete", "review", "--store", g, "--json", "--quiet")
    assert (deleted.code, deleted.err) == (0, "")
    assert deleted.json == {"uri": g, "name": "review", "actor_id": None}


def test_a_branch_may_start_at_any_commit(cli: Cli, g: str) -> None:
    first = cli("commit", "list", g, "--json").json["commits"][-1]["graph_commit_id"]
    made = cli("branch", "create", "past", "--uri", g, "--from", first, "--json").json
    assert made == {"uri": g, "from": first, "name": "past", "actor_id": None}
    assert cli("snapshot", g, "--branch", "past", "--json").json["graph_manifest_version"] == 1


# -- consent, on a place that others may share


@pytest.fixture
def remote(cli: Cli, remote_place: Place) -> str:
    assert cli("init", "--schema", "s.pg", remote_place.uri).code == 0
    return remote_place.uri


def test_a_destructive_write_elsewhere_needs_consent(cli: Cli, remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    overwrite = ["load", remote, "--data", "d.jsonl", "--mode", "overwrite"]
    refused = cli(*overwrite, "--json")
    assert (refused.code, refused.json["code"]) == (1, "conflict")
    assert refused.err.splitlines()[0] == f"omnigraph load → {remote} (direct, remote)"
    expected = f"Error: refusing destructive `load --mode overwrite` on {remote} without consent; pass --yes"
    assert refused.err.splitlines()[1] == expected
    assert cli(*overwrite, "--yes").code == 0
    cli("branch", "create", "b", "--uri", remote)
    assert "refusing destructive `branch delete`" in cli("branch", "delete", "b", "--uri", remote).err
    # On a terminal one is asked.
    for answer, code in (("no\n", 1), ("YES\n", 0)):
        stdin = io.StringIO(answer)
        monkeypatch.setattr(stdin, "isatty", lambda: True)
        monkeypatch.setattr("sys.stdin", stdin)
        asked = cli("branch", "delete", "b", "--uri", remote)
        assert asked.code == code
        assert "`branch delete` on s3://" in asked.err
        assert ("aborted: destructive" in asked.err) is (code == 1)


def test_a_harmless_write_elsewhere_needs_none(cli: Cli, remote: str) -> None:
    assert cli("load", remote, "--data", "d.jsonl", "--mode", "merge").code == 0


def test_progress_is_drawn_for_a_person_and_results_stay_clean(
    cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    loaded = cli("load", g, "--data", "d.jsonl", "--mode", "merge", "--json")
    assert loaded.code == 0
    assert loaded.json["total_entities"] == len(RECORDS.splitlines())
    assert os.path.exists("d.jsonl")
