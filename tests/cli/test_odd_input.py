"""Input that no person writes: an error in words, exit code 1 or 2, and never a stack trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

DEEP = 20_000


@pytest.mark.parametrize("text", ["[" * DEEP, '{"a":' * DEEP, "[" * DEEP + "]" * DEEP])
def test_params_that_are_nested_too_deeply(cli: Cli, g: str, text: str) -> None:
    Path("p.json").write_text(text)
    for option in (["--params", text], ["--params-file", "p.json"]):
        refused = cli("query", "by_name", "--store", g, "--query", "q.gq", *option)
        assert (refused.code, refused.out) == (1, "")
        assert "nested too deeply" in refused.err


def test_numbers_of_thousands_of_digits(cli: Cli, g: str) -> None:
    refused = cli("query", "by_name", "--store", g, "--query", "q.gq", "--params", '{"name": ' + "9" * 10_000 + "}")
    assert (refused.code, refused.out) == (1, "")
    assert "thousands of digits" in refused.err
    Path("p.yaml").write_text("version: " + "9" * 10_000)
    refused = cli("pipeline", "validate", "p.yaml")
    assert refused.code == 1
    assert "Traceback" not in refused.err


def test_a_character_that_yaml_does_not_know_is_shown_at_its_place(cli: Cli) -> None:
    Path("p.yaml").write_text("version: 1\nx: \0")
    refused = cli("pipeline", "validate", "p.yaml")
    assert refused.code == 1
    assert "p.yaml:2:4: " in refused.err


def test_an_actor_that_is_no_text(cli: Cli, g: str) -> None:
    # What Python makes of an argument whose bytes are not UTF-8.
    refused = cli("mutate", "add", "--store", g, "--query", "q.gq", "--params", '{"name": "x"}', "--as", "\udcff")
    assert (refused.code, refused.out) == (2, "")
    assert "not UTF-8" in refused.err


def test_records_files_and_programs_that_are_nested_too_deeply(cli: Cli, g: str) -> None:
    Path("d.jsonl").write_text('{"type":"Person","data":' + "[" * DEEP)
    Path("deep.gq").write_text("query a() { match { $p: Person } return { " + "(" * DEEP + " } }")
    Path("deep.pg").write_text("node A { x: " + "[" * DEEP + " }")
    Path("deep.yaml").write_text("version: 1\nsources: " + "[" * DEEP)
    Path("r.json").write_text("[" * DEEP)
    cli("branch", "create", "--uri", g, "side")
    for command in (
        ["load", g, "--data", "d.jsonl", "--mode", "append"],
        ["query", "a", "--store", g, "--query", "deep.gq"],
        ["lint", "--schema", "deep.pg", "--query", "q.gq"],
        ["init", "--schema", "deep.pg", "h"],
        ["pipeline", "validate", "deep.yaml"],
        ["branch", "merge", "--uri", g, "side", "--resolutions", "r.json"],
    ):
        refused = cli(*command)
        assert refused.code in (1, 2), command
        assert "Traceback" not in refused.err


@pytest.mark.parametrize("name", [".", "..", " ", "", "a//b", "/", "a/.", "\t", "ü", "x" * 300, "a\nb", "__x"])
def test_branch_names_that_can_not_be(cli: Cli, g: str, name: str) -> None:
    for command in (
        ["branch", "create", "--uri", g, "--", name],
        ["branch", "delete", "--uri", g, "--yes", "--", name],
        ["branch", "merge", "--uri", g, "--", name],
        ["query", "people", "--store", g, "--query", "q.gq", "--branch", name],
        ["mutate", "add", "--store", g, "--query", "q.gq", "--branch", name, "--params", '{"name": "x"}'],
        ["export", g, "--branch", name],
        ["diff", "--uri", g, "main", name],
    ):
        refused = cli(*command)
        assert refused.code in (1, 2), command
        assert "Error: " in refused.err, command
        assert "branch" in refused.err, command
    assert cli("branch", "list", "--uri", g).lines == ["main"]
    assert len(cli("export", g).lines) == 5


@pytest.mark.parametrize("name", ["x" * 300, "é" * 200])
def test_paths_that_can_not_be(cli: Cli, name: str) -> None:
    for command in (["snapshot", name], ["init", "--schema", "s.pg", name], ["fmt", name], ["lint", "--query", name]):
        refused = cli(*command)
        assert refused.code in (1, 2), command
        assert "Error: " in refused.err, command
