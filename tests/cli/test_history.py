"""merge, diff, commit changes, the change feed, baselines and export, as a person uses them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.api import wire
from tests.cli.conftest import Cli


def mutate(cli: Cli, g: str, name: str, params: dict[str, Any], branch: str = "main") -> str:
    command = ["mutate", name, "--query", "q.gq", "--store", g, "--branch", branch, "--json"]
    done = cli(*command, "--params", json.dumps(params))
    assert done.code == 0, done.err
    return str(done.json["commit"]["graph_commit_id"])


@pytest.fixture
def review(cli: Cli, g: str) -> str:
    """The graph with a branch `review` that has one more person."""
    assert cli("branch", "create", "review", "--uri", g).code == 0
    mutate(cli, g, "add", {"name": "Cy", "age": 5}, "review")
    return g


# -- merge


def test_a_merge_says_how_it_went(cli: Cli, review: str) -> None:
    merged = cli("branch", "merge", "review", "--uri", review, "--as", "me")
    assert merged.code == 0
    assert merged.err == f"omnigraph branch merge → {review} (direct, local)\n"
    assert merged.lines == ["merged review into main: fast_forward"]
    again = cli("branch", "merge", "review", "--uri", review, "--json", "--delete-branch").json
    assert again == {
        "source": "review",
        "target": "main",
        "outcome": "already_up_to_date",
        "actor_id": None,
        "branch_deleted": True,
    }


def test_a_merge_deletes_its_source_when_asked(cli: Cli, review: str) -> None:
    merged = cli("branch", "merge", "review", "--store", review, "--delete-branch")
    assert merged.lines[1] == "deleted branch review"
    assert cli("branch", "list", "--uri", review).lines == ["main"]


def test_a_source_that_can_not_be_deleted_is_a_warning(cli: Cli, review: str) -> None:
    cli("branch", "create", "child", "--uri", review, "--from", "review")
    merged = cli("branch", "merge", "review", "--uri", review, "--delete-branch", "--quiet")
    assert (merged.code, merged.lines) == (0, ["merged review into main: fast_forward"])
    assert merged.err.startswith("warning: merged, but could not delete branch 'review': ")
    wire = cli("branch", "merge", "review", "--uri", review, "--delete-branch", "--json").json
    assert wire["branch_deleted"] is False
    assert "still depends on it" in wire["branch_delete_error"]


@pytest.fixture
def diverged(cli: Cli, review: str) -> str:
    """Both branches changed Ada."""
    mutate(cli, review, "grow", {"name": "Ada", "age": 1}, "review")
    mutate(cli, review, "grow", {"name": "Ada", "age": 2}, "main")
    return review


def test_conflicts_fail_the_merge_and_are_listed(cli: Cli, diverged: str) -> None:
    refused = cli("branch", "merge", "review", "--uri", diverged, "--quiet")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("Error: can't merge 'review' into 'main', 1 conflict:")
    assert "  divergent_update node:Person Ada" in refused.err.splitlines()
    assert "      age: base 36, ours 2, theirs 1" in refused.err.splitlines()
    assert "--ours or --theirs" in refused.err


@pytest.mark.parametrize(
    ("settle", "age"),
    [
        (["--ours", "divergent_update"], "2"),
        (["--theirs", "all"], "1"),
        (["--resolutions", "r.json"], "1"),
    ],
)
def test_conflicts_are_settled_by_kind_or_by_entity(settle: list[str], age: str, cli: Cli, diverged: str) -> None:
    entity = {"type_key": "node:Person", "entity_id": "Ada", "take": "theirs"}
    Path("r.json").write_text(json.dumps({"entities": [entity]}))
    assert cli("branch", "merge", "review", "--uri", diverged, *settle).lines == ["merged review into main: merged"]
    shown = cli(
        "query", "by_name", "--query", "q.gq", "--store", diverged, "--params", '{"name":"Ada"}', "--format", "csv"
    )
    assert shown.lines == ["age", age]


@pytest.mark.parametrize(
    ("settle", "message"),
    [
        (["--ours", "all", "--theirs", "divergent_update"], "can't go to both sides"),
        (["--ours", "unique_violation"], "not resolved by taking a side"),
        (["--ours", "nonsense"], "unknown conflict kind 'nonsense'"),
        (["--resolutions", "q.gq"], "'q.gq' is not JSON"),
    ],
)
def test_settlements_that_make_no_sense(settle: list[str], message: str, cli: Cli, diverged: str) -> None:
    refused = cli("branch", "merge", "review", "--uri", diverged, *settle)
    assert refused.code == 1
    assert message in refused.err


def test_a_preview_changes_nothing(cli: Cli, diverged: str) -> None:
    shown = cli("branch", "merge", "review", "--uri", diverged, "--preview")
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines[0] == "merging review into main would be: merged"
    assert "  + node Person Cy" in shown.lines
    assert "1 conflict" in shown.lines
    assert any(line.startswith("  ! divergent_update: ") for line in shown.lines)
    assert "      age: base 36, ours 2, theirs 1" in shown.lines
    wire = cli("branch", "merge", "review", "--uri", diverged, "--preview", "--json").json
    assert [conflict["kind"] for conflict in wire["conflicts"]] == ["divergent_update"]
    assert cli("commit", "list", diverged, "--json").json["commits"][0]["graph_manifest_version"] == 3


def test_a_preview_says_by_its_exit_code_that_something_conflicts(cli: Cli, diverged: str) -> None:
    preview = ("branch", "merge", "review", "--store", diverged, "--preview")
    assert cli(*preview).code == 0
    told = cli(*preview, "--exit-code")
    assert (told.code, told.out) == (1, cli(*preview).out)
    assert cli(*preview, "--exit-code", "--json").code == 1
    assert cli(*preview, "--exit-code", "--theirs", "all").code == 0
    alone = cli("branch", "merge", "review", "--store", diverged, "--exit-code")
    assert (alone.code, "--exit-code goes with --preview" in alone.err) == (2, True)


def test_branches_are_listed_with_their_heads_and_how_far_they_are(cli: Cli, review: str) -> None:
    def far() -> dict[str, tuple[int, int]]:
        heads = cli("branch", "list", "--store", review, "--verbose", "--json").json["heads"]
        return {head["name"]: (head["ahead"], head["behind"]) for head in heads}

    mutate(cli, review, "add", {"name": "Di"})
    mutate(cli, review, "add", {"name": "Ed"})
    cli("branch", "create", "deeper", "--from", "review", "--store", review)
    mutate(cli, review, "add", {"name": "Flo"}, "deeper")
    assert far() == {"deeper": (2, 2), "main": (0, 0), "review": (1, 2)}
    lines = cli("branch", "list", "--store", review, "--verbose").lines
    assert re.fullmatch(r"main   [0-9A-Z]{26} \d{4}-\d\d-\d\d \d\d:\d\d", lines[1])
    assert re.fullmatch(r"review [0-9A-Z]{26} \d{4}-\d\d-\d\d \d\d:\d\d, 1 ahead, 2 behind", lines[2])
    cli("branch", "merge", "review", "--store", review)
    assert far()["review"] == (0, 3)
    cli("branch", "merge", "main", "--into", "deeper", "--store", review, "--as", "ann")
    assert far()["deeper"] == (2, 0)
    assert " by ann, 2 ahead, 0 behind" in cli("branch", "list", "--store", review, "--verbose").lines[0]
    assert cli("branch", "list", "--store", review).lines == ["deeper", "main", "review"]


def test_a_branch_that_main_took_in_by_way_of_another_is_not_ahead(cli: Cli, review: str) -> None:
    def far(name: str) -> tuple[int, int]:
        heads = cli("branch", "list", "--store", review, "--verbose", "--json").json["heads"]
        return next((head["ahead"], head["behind"]) for head in heads if head["name"] == name)

    cli("branch", "create", "child", "--from", "review", "--store", review)
    cli("branch", "create", "aside", "--store", review)
    mutate(cli, review, "add", {"name": "Di"}, "child")
    mutate(cli, review, "add", {"name": "Flo"}, "aside")
    for source in ("child", "aside"):
        assert cli("branch", "merge", source, "--into", "review", "--store", review).code == 0
    assert (far("child"), far("aside")) == ((2, 0), (1, 0))
    assert cli("branch", "merge", "review", "--store", review).code == 0
    for name in ("child", "aside"):
        preview = cli("branch", "merge", name, "--store", review, "--preview", "--json").json
        assert (preview["outcome"], far(name)) == ("already_up_to_date", (0, 1))
    mutate(cli, review, "add", {"name": "Gus"}, "child")
    assert far("child") == (1, 1)


def test_a_branch_that_took_in_main_by_way_of_another_is_not_behind(cli: Cli, review: str) -> None:
    def behind() -> int:
        heads = cli("branch", "list", "--store", review, "--verbose", "--json").json["heads"]
        return int(next(head["behind"] for head in heads if head["name"] == "review"))

    mutate(cli, review, "add", {"name": "Di"})
    cli("branch", "create", "later", "--store", review)
    mutate(cli, review, "add", {"name": "Ed"}, "later")
    mutate(cli, review, "add", {"name": "Flo"})
    assert behind() == 2
    assert cli("branch", "merge", "later", "--into", "review", "--store", review).code == 0
    assert behind() == 1
    assert cli("branch", "merge", "main", "--into", "later", "--store", review).code == 0
    assert cli("branch", "merge", "later", "--into", "review", "--store", review).code == 0
    assert behind() == 0


def test_a_merge_is_drawn(cli: Cli, review: str) -> None:
    mutate(cli, review, "add", {"name": "Di"})
    cli("branch", "merge", "review", "--uri", review)
    lines = cli("commit", "list", review, "--graph").lines
    assert [line.split(" 0")[0] for line in lines] == ["*", "|\\", "* |", "| *", "|/", "*", "*"]
    assert " merge " in lines[0]


def test_a_limited_drawing_prefers_the_newest_merge(cli: Cli, review: str) -> None:
    def branch_tip() -> str:
        return str(
            cli("commit", "list", "--branch", "review", "--json", "--limit", "1", "--uri", review).json["commits"][0][
                "graph_commit_id"
            ]
        )

    mutate(cli, review, "add", {"name": "Di"})
    cli("branch", "merge", "review", "--uri", review)
    older = branch_tip()
    newer = mutate(cli, review, "add", {"name": "Ed"}, "review")
    mutate(cli, review, "add", {"name": "Flo"})
    cli("branch", "merge", "review", "--uri", review)
    own_line = len(cli("commit", "list", review).lines)
    drawn = "\n".join(cli("commit", "list", review, "--graph", "--limit", str(own_line + 1)).lines)
    assert newer in drawn
    assert older not in drawn


def test_on_a_terminal_a_commit_tells_when_who_and_what(cli: Cli, review: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(cli, review, "add", {"name": "Di"})
    with omnigraph.open(review) as graph:
        graph.merge("review", message="cy\njoins", actor="ann")
    piped = cli("commit", "list", review).lines
    assert all(" graph_branch=main graph_manifest_version=" in line for line in piped)
    drawn = cli("commit", "list", review, "--dag").lines
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = cli("commit", "list", review)
    assert [line.split()[0] for line in shown.lines] == [line.split()[0] for line in piped]
    assert {re.sub(r"^[*|\\/ ]+", "", line) for line in drawn} > set(shown.lines)
    assert re.search(r" main@\d+ \d{4}-\d\d-\d\d \d\d:\d\d merge by ann \(\+1\) cy\\njoins$", shown.lines[0])
    assert cli("commit", "list", review, "--limit", "1").lines == shown.lines[:1]
    assert cli("commit", "list", review, "--json").json["commits"][0]["graph_commit_id"] == piped[0].split()[0]


# -- diff


def test_a_diff_of_branches_commits_and_versions(cli: Cli, review: str) -> None:
    head = mutate(cli, review, "remove", {"name": "Bob"}, "review")
    lines = cli("diff", "main", "review", "--uri", review).lines
    assert lines[0].startswith("- edge Knows ")
    assert lines[0].endswith(" Ada -> Bob")
    assert lines[1:] == ["- node Person Bob", "+ node Person Cy", "1 insert, 0 updates, 2 deletes from version 2 to 4"]
    assert cli("diff", "main", head, "--uri", review).lines == lines
    assert cli("diff", "main@2", "review@4", "--store", review).lines == lines


def test_a_diff_is_filtered_and_reported(cli: Cli, review: str) -> None:
    mutate(cli, review, "grow", {"name": "Ada", "age": 1}, "review")
    found = cli("diff", "main", "review", "--uri", review, "--json", "--op", "update", "--kind", "node").json
    assert [(change["op"], change["id"]) for change in found["changes"]] == [("update", "Ada")]
    assert found["stats"] == {"inserts": 0, "updates": 1, "deletes": 0, "types_affected": ["Person"]}
    assert cli("diff", "main", "review", "--uri", review, "--op", "upsert").code == 2
    assert "branch 'nope'" in cli("diff", "main", "nope", "--uri", review).err


# -- what one commit changed


def test_the_changes_of_a_commit_follow_all_pages(cli: Cli, g: str) -> None:
    commit = cli("commit", "list", g, "--json").json["commits"][0]["graph_commit_id"]
    whole = cli("commit", "changes", commit, "--uri", g, "--json").json
    assert list(whole) == ["cause", "changes"]
    assert len(whole["changes"]) == 5
    assert cli("commit", "changes", commit, "--uri", g, "--limit", "2", "--json").json == whole


def test_a_page_token_gives_exactly_that_page(cli: Cli, g: str) -> None:
    from omnigraph import Graph

    commit = cli("commit", "list", g, "--json").json["commits"][0]["graph_commit_id"]
    with Graph.open(g) as graph:
        token = wire.to_builtins(graph.changes.page(commit, max_changes=2))["next_page_token"]
    page = cli("commit", "changes", commit, "--uri", g, "--limit", "2", "--page-token", token, "--json").json
    assert list(page) == ["cause", "changes", "next_page_token"]
    assert len(page["changes"]) == 2
    shown = cli("commit", "changes", commit, "--uri", g, "--limit", "2", "--page-token", token)
    assert shown.lines[-1] == f"next_page_token: {page['next_page_token']}"
    refused = cli("commit", "changes", commit, "--uri", g, "--page-token", "x")
    assert (refused.code, "change cursor rejected:" in refused.err) == (1, True)


def test_the_changes_of_a_commit_for_people(cli: Cli, g: str) -> None:
    commit = mutate(cli, g, "grow", {"name": "Ada", "age": 40})
    lines = cli("commit", "changes", commit, "--uri", g).lines
    assert lines[0] == f"commit: {commit}"
    assert lines[-2:] == ["update node Person Ada", "  age: 36 -> 40"]
    genesis = cli("commit", "list", g, "--json").json["commits"][-1]["graph_commit_id"]
    assert "is the first of the graph" in cli("commit", "changes", genesis, "--uri", g).err


# -- the feed


def test_a_feed_goes_on_from_its_cursor(cli: Cli, g: str) -> None:
    poll = ["changes", "poll", "--uri", g, "--json"]
    now = cli(*poll).json
    assert (now["blocks"], now["caught_up"]) == ([], True)
    commit = mutate(cli, g, "add", {"name": "Cy"})
    later = cli(*poll, "--cursor", now["cursor"]).json
    assert list(later) == ["blocks", "cursor", "caught_up"]
    assert [block["cause"]["graph_commit_id"] for block in later["blocks"]] == [commit]
    assert cli(*poll, "--start", "beginning", "--limit", "2").json["blocks"] == [
        *cli(*poll, "--start", "beginning").json["blocks"]
    ], "a commit that is split over pages is one block again"
    assert len(cli(*poll, "--start", f"after:{commit}").json["blocks"]) == 0
    assert cli(*poll, "--start", "now", "--cursor", "x").code == 2


def test_a_feed_goes_on_over_a_schema_change(cli: Cli, g: str) -> None:
    newest = cli("commit", "list", g, "--json").json["commits"][0]["graph_commit_id"]
    poll = ["changes", "poll", "--uri", g, "--start", f"after:{newest}"]
    schema = cli("schema", "show", g).out
    Path("wider.pg").write_text(schema.replace("age: I32?", "age: I32?  nick: String?"))
    assert cli("schema", "apply", "--schema", "wider.pg", g).code == 0
    commit = mutate(cli, g, "add", {"name": "Cy"})
    lines = cli(*poll).lines
    shown = lines.index("schema node Person changed")
    assert lines[shown + 1] == "  add property 'Person.nick' (String?) on node 'Person'"
    assert lines.index("insert node Person Cy") > shown
    wider, data = cli(*poll, "--json").json["blocks"]
    assert [each["change"] for each in wider["schema_changes"]] == ["changed"]
    assert (data["cause"]["graph_commit_id"], list(data)) == (commit, ["cause", "changes"])
    changed = wider["cause"]["graph_commit_id"]
    assert cli("commit", "changes", changed, "--uri", g).lines[-2:] == lines[shown : shown + 2]
    assert cli("commit", "changes", changed, "--uri", g, "--json").json["schema_changes"] == wider["schema_changes"]


def test_a_feed_for_people(cli: Cli, g: str) -> None:
    quiet = cli("changes", "poll", "--uri", g).lines
    assert quiet[:2] == ["(no new commits)", ""]
    assert quiet[2].startswith("cursor: ")
    assert quiet[3] == "caught_up: true"
    told = cli("changes", "poll", "--uri", g, "--start", "beginning", "--type", "City").lines
    assert "insert node City Oslo" in told
    assert "insert node Person Ada" not in told


def test_a_baseline_and_its_cursor(cli: Cli, g: str) -> None:
    Path("base.jsonl").write_text("old")
    captured = cli("changes", "baseline", "--uri", g, "--out", "base.jsonl", "--json").json
    assert list(captured) == ["snapshot_commit_id", "resume_cursor"]
    assert Path("base.jsonl").read_text() == cli("export", g, "--epoch").out
    assert Path("base.jsonl.lock").exists()
    commit = mutate(cli, g, "add", {"name": "Cy"})
    following = cli("changes", "poll", "--uri", g, "--cursor", captured["resume_cursor"], "--json").json
    assert [block["cause"]["graph_commit_id"] for block in following["blocks"]] == [commit]


def test_a_baseline_that_fails_leaves_the_file_alone(cli: Cli, g: str) -> None:
    Path("base.jsonl").write_text("old")
    refused = cli("changes", "baseline", "--uri", g, "--branch", "nope", "--out", "base.jsonl")
    assert (refused.code, refused.out, Path("base.jsonl").read_text()) == (1, "", "old")


# -- export


def test_an_export_can_be_loaded_again(cli: Cli, g: str) -> None:
    exported = cli("export", g)
    assert (exported.code, exported.err) == (0, "")
    first = json.loads(exported.lines[0])
    assert (first["edge"], first["from"], first["to"]) == ("Knows", "Ada", "Bob")
    numbers = cli("export", g, "--epoch")
    assert '"since":"2001-02-03"' in exported.out
    assert '"since":11356' in numbers.out
    cli("init", "--schema", "s.pg", "again.omni")
    for out in exported.out, numbers.out:
        Path("again.ndjson").write_text(out)
        assert cli("load", "again.omni", "--data", "again.ndjson", "--mode", "overwrite").code == 0
        assert cli("export", "again.omni").out == exported.out
    refused = cli("export", g, "--epoch", "--format", "parquet", "--out", "files")
    assert (refused.code, "--epoch goes with NDJSON" in refused.err) == (2, True)


def test_a_type_that_the_graph_does_not_have_is_refused_by_every_filter(cli: Cli, g: str) -> None:
    commit = mutate(cli, g, "add", {"name": "Di", "age": 5})
    for command in (
        ("diff", "main", "main", "--store", g),
        ("commit", "changes", commit, "--store", g),
        ("changes", "poll", "--store", g),
        ("changes", "poll", "--store", g, "--start", "beginning"),
        ("changes", "baseline", "--store", g, "--out", "baseline.ndjson"),
    ):
        refused = cli(*command, "--type", "Persn")
        assert refused.code == 1, command
        assert "the graph has no type 'Persn'; did you mean 'Person'?" in refused.err
        assert cli(*command, "--type", "node:Person").err.count("did you mean 'Person'?") == 1


def test_an_export_of_some_types_or_of_the_past(cli: Cli, g: str) -> None:
    assert [json.loads(line)["type"] for line in cli("export", g, "--type", "City").lines] == ["City"]
    assert cli("export", g, "--at-version", "1").out == ""
    assert "unknown export type 'Nope'" in cli("export", g, "--type", "Nope").err
    assert "unknown export type 'Citty'; did you mean 'City'?" in cli("export", g, "--type", "Citty").err
    assert "--jsonl is deprecated" in cli("export", g, "--jsonl").err


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_an_export_as_files(format: str, cli: Cli, g: str) -> None:
    told = cli("export", g, "--format", format, "--out", "files", "--type", "Person")
    assert told.lines == [f"files/node.Person.{format}: 2 entities"]
    assert Path(f"files/node.Person.{format}").exists()
    assert cli("export", g, "--format", format).code == 2
    assert cli("export", g, "--out", "files").code == 2
    empty = cli("export", g, "--format", format, "--out", "")
    assert (empty.code, "--out is empty" in empty.err) == (2, True)
    assert cli("export", g, "--format", format, "--out", "refused", "--type", "Persn").code == 1
    assert not Path("refused").exists()
