"""Global flags, the guard, the legend, old spellings, exit codes: what holds for every command."""

from __future__ import annotations

import pytest

from omnigraph.cli.params import split_global_flags
from omnigraph.cli.registry import COMMANDS, FAMILIES, Capability
from tests.cli.conftest import Cli


def test_every_family_has_commands_and_every_command_of_two_words_a_family() -> None:
    assert {path.split()[0] for path in COMMANDS if " " in path} == set(FAMILIES)


def test_the_list_of_commands_shows_the_first_sentence_of_each_help(cli: Cli) -> None:
    for path, command in COMMANDS.items():
        if not command.hidden:
            listed = " ".join(cli(*path.split()[:-1], "--help").out.split())
            assert f" {path.split()[-1]} {command.summary} " in f"{listed} ", path
        assert f"{command.summary}." in " ".join(cli(*path.split(), "--help").out.split()), path


def test_every_level_has_help(cli: Cli) -> None:
    for path in [*FAMILIES, *COMMANDS]:
        shown = cli(*path.split(), "--help")
        assert shown.code == 0, path
        assert shown.out.startswith(f"Usage: omnigraph {path}"), path


def test_the_legend_names_every_visible_command_under_its_class(cli: Cli) -> None:
    legend = cli("--help").out.split("COMMANDS BY CAPABILITY")[1]
    section = ""
    listed: dict[str, str] = {}
    for line in legend.strip("\n").splitlines():
        if line.strip().split(" ")[0] in list(Capability):
            section = line.split()[0]
        else:
            listed[section] = listed.get(section, "") + " " + line.strip()
    assert list(listed) == list(Capability)
    for path, command in COMMANDS.items():
        family = path.split(" ")[0]
        assert (family in listed[command.capability]) is not command.hidden, path


def test_a_command_says_which_global_flags_apply(cli: Cli) -> None:
    assert "--server, --graph, --store, --profile" in " ".join(cli("query", "--help").out.split())
    assert "Global flags that apply: --store." in cli("init", "--help").out
    assert "Global flags" not in cli("version", "--help").out


@pytest.mark.parametrize(
    ("typed", "front", "rest"),
    [
        (["query", "--store", "g", "x"], ["--store", "g"], ["query", "x"]),
        (["--store=g", "query"], ["--store=g"], ["query"]),
        (["branch", "delete", "b", "--yes", "--quiet"], ["--yes", "--quiet"], ["branch", "delete", "b"]),
        (["query", "--", "--store", "g"], [], ["query", "--", "--store", "g"]),
        (["query", "--store"], ["--store"], []),
        (["query", "--store", "--json"], ["--store"], []),
        (["commit", "list", "g", "--graph"], [], ["commit", "list", "g", "--dag"]),
        (["commit", "list", "--graph", "--json"], [], ["commit", "list", "--dag", "--json"]),
        (["commit", "list", "--graph", "id"], ["--graph", "id"], ["commit", "list"]),
    ],
)
def test_global_flags_may_be_given_anywhere(typed: list[str], front: list[str], rest: list[str]) -> None:
    assert split_global_flags(typed) == (front, rest)


@pytest.mark.parametrize("arguments", [["snapshot", "--store", "{g}"], ["--store", "{g}", "snapshot"]])
def test_a_flag_before_the_subcommand_means_the_same(arguments: list[str], cli: Cli, g: str) -> None:
    shown = cli(*(a.format(g=g) for a in arguments))
    assert (shown.code, shown.lines[0]) == (0, "graph_branch: main")


def test_a_missing_value_is_wrong_usage(cli: Cli) -> None:
    refused = cli("snapshot", "--store")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("Error: Option '--store' requires an argument")


@pytest.mark.parametrize(
    ("arguments", "flag", "fragments"),
    [
        (["query", "--as", "me"], "--as", ["`query` is a data command"]),
        (["commit", "list", "--as", "me"], "--as", ["`commit` is a data command"]),
        (["blob", "stat", "node", "T", "i", "p", "--as", "me"], "--as", ["`blob stat` is a data command"]),
        (["load", "--data", "d", "--mode", "merge", "--cluster", "c"], "--cluster", ["`load` is a data command"]),
        (["branch", "list", "--cluster", "c"], "--cluster", ["`branch` is a data command"]),
        (
            ["optimize", "--server", "s"],
            "--server",
            [
                "`optimize` is a direct (storage-native) command",
                "Give a storage URI with --store <uri>, or --cluster <dir> --graph <id>.",
            ],
        ),
        (
            ["lint", "--query", "q.gq", "--as", "me"],
            "--as",
            ["`lint` is a direct", "URI with --store <uri>."],
        ),
        (["schema", "plan", "--schema", "s.pg", "--as", "x"], "--as", ["`schema plan` is a data command"]),
        (
            ["init", "--schema", "s.pg", "--graph", "x"],
            "--graph",
            ["`init` is a direct", "a storage URI with --store <uri>."],
        ),
        (["pipeline", "run", "f", "--server", "x"], "--server", ["`pipeline` is a direct", "with --store <uri>."]),
        (["version", "--profile", "p"], "--profile", ["`version` is a local command", "does not address a graph"]),
        (["profile", "list", "--store", "p"], "--store", ["`profile` is a local command", "does not address a graph"]),
        (["fmt", ".", "--graph", "p"], "--graph", ["`fmt` is a local command"]),
        # Of several, the first in the order server, cluster, graph, store, as, profile.
        (["version", "--profile", "p", "--as", "a", "--graph", "g"], "--graph", ["`version` is a local"]),
    ],
)
def test_a_flag_that_would_be_ignored_is_refused(
    arguments: list[str], flag: str, fragments: list[str], cli: Cli
) -> None:
    refused = cli(*arguments)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("Error: `")
    assert f"; {flag} " in refused.err
    assert "does not apply" in refused.err
    for fragment in fragments:
        assert fragment in refused.err


def test_an_ambient_profile_never_triggers_the_guard(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "somewhere")
    assert cli("version").code == 0


@pytest.mark.parametrize(
    ("old", "new"), [(["read", "people"], "query"), (["change", "add", "--params", '{"name":"Z"}'], "mutate")]
)
def test_old_spellings_run_the_new_command(old: list[str], new: str, cli: Cli, g: str) -> None:
    done = cli(*old, "--query", "q.gq", "--store", g)
    assert done.code == 0
    assert done.err.startswith(f"warning: `omnigraph {old[0]}` is deprecated; use `omnigraph {new}`")


def test_help_of_a_command_by_its_name(cli: Cli) -> None:
    assert cli("help", "branch", "merge").out == cli("branch", "merge", "--help").out
    assert cli("help").out == cli("--help").out


def test_schema_get_is_schema_show_without_a_note(cli: Cli, g: str) -> None:
    shown = cli("schema", "get", g)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == cli("schema", "show", g).out


@pytest.mark.parametrize(
    "arguments",
    [
        ["query", "--format", "xml", "-e", "x"],
        ["query", "--format", "csv", "--json", "-e", "x"],
        ["query", "-e", "x", "--query", "q.gq"],
        ["query", "-e", "x", "--params", "{}", "--params-file", "p"],
        ["query", "-e", "x", "--branch", "b", "--snapshot", "s"],
        ["query", "-e", "x", "--snapshot", "s", "--at-version", "3"],
        ["query", "-e", "x", "--at", "yesterday"],
        ["load", "--data", "d.jsonl"],
        ["load", "--mode", "merge"],
        ["load", "--data", "d.jsonl", "--mode", "replace"],
        ["init", "g"],
        ["branch", "create"],
        ["graphs", "lost"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], cli: Cli) -> None:
    refused = cli(*arguments)
    assert refused.code == 2
    assert refused.err.startswith("Error:")
    if "--json" in arguments:
        assert refused.err.startswith(f"Error: {refused.json['error']}")
        assert refused.json["code"] == "bad_request"
    else:
        assert refused.out == ""


def test_the_choices_of_options_are_those_of_the_engine() -> None:
    from omnigraph.api.enums import CellLayout, FileFormat, ReadFormat
    from omnigraph.cli.commands.export import Format as ExportFormat
    from omnigraph.cli.config import FORMATS, LAYOUTS
    from omnigraph.pipeline.bulk_export import BulkFormat

    assert list(ReadFormat) == list(FORMATS)
    assert list(CellLayout) == list(LAYOUTS)
    assert {*ExportFormat} == {*FileFormat, *BulkFormat}
