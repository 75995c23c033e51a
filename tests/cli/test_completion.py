"""Completion: Click's own, with the names of branches and of the operator's configuration, in real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from click.shell_completion import ShellComplete

from omnigraph.cli.main import app
from omnigraph.cli.params import COMPLETION_VARIABLE
from omnigraph.cli.registry import COMMANDS, FAMILIES
from tests.cli.conftest import Cli
from tests.support.warm_command import installed


def offered(line: str) -> list[str]:
    """The candidates at the end of a line."""
    *words, incomplete = line.split(" ")
    complete = ShellComplete(app, {}, "omnigraph", COMPLETION_VARIABLE)
    return [item.value for item in complete.get_completions(words, incomplete)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("qu", ["quickstart", "query", "queries"]),
        ("branch ", ["create", "list", "delete", "merge"]),
        ("--store g.omni branch me", ["merge"]),
        ("branch merge --store g.omni --in", ["--into"]),
        ("query --fo", ["--format"]),
        ("read --fo", ["--format"]),
        ("query --format ", ["table", "kv", "csv", "ndjson", "jsonl", "json"]),
        ("query --format csv --fo", []),
        ("commit changes x --kind node --ki", ["--kind"]),
        ("load --mode ", ["append", "merge", "update", "overwrite"]),
        ("blob get ", ["node", "edge"]),
        ("completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_what_fits_without_a_graph(line: str, expected: list[str], cli: Cli) -> None:
    assert offered(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "query --store g.omni --branch ",
        "branch merge --uri g.omni --into ",
        "branch create new --uri g.omni --from ",
        "branch delete --store g.omni ",
        "query --profile mine --branch ",
    ],
)
def test_branches_of_the_graph(line: str, cli: Cli, g: str, config: Callable[[str], None]) -> None:
    config("profiles: {mine: {store: g.omni}}\n")
    cli("branch", "create", "work/a", "--uri", g)
    assert offered(line) == ["main", "work/a"]
    assert offered(f"{line}w") == ["work/a"]


def test_a_graph_that_does_not_open_offers_nothing(cli: Cli, config: Callable[[str], None]) -> None:
    assert offered("query --store nowhere --branch ") == []
    config("profiles: [")
    assert offered("--profile ") == []


def test_names_of_the_configuration(cli: Cli, config: Callable[[str], None]) -> None:
    config(
        "servers: {prod: {url: https://x.example}}\nclusters: {box: {root: s3://b/c}}\n"
        "profiles: {a: {server: prod}, b: {store: g}}\n"
    )
    assert offered("--profile ") == ["a", "b"]
    assert offered("--server ") == ["prod"]
    assert offered("--cluster b") == ["box"]


def test_every_command_and_each_of_its_options_can_be_completed(cli: Cli) -> None:
    for path, command in COMMANDS.items():
        family, _, second = path.partition(" ")
        assert ((second or family) in offered(f"{family} " if second else family)) is not command.hidden, path
        assert "--help" in offered(f"{path} --"), path
    assert set(FAMILIES) <= set(offered(""))


def test_completing_an_option_loads_nothing_heavy() -> None:
    program = (
        "import sys; from omnigraph.cli.main import app; from click.shell_completion import ShellComplete\n"
        "print([item.value for item in ShellComplete(app, {}, 'omnigraph', 'X').get_completions(['query'], '--fo')])\n"
        "print([m for m in ('lance', 'pyarrow', 'lark', 'rich', 'msgspec') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['--format']", "[]"]


# ---- shells


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with installed(tmp_path_factory.mktemp("bin") / "omnigraph") as program:
        yield program


@pytest.fixture
def environment(program: Path, cli: Cli, g: str, tmp_path: Path) -> dict[str, str]:
    cli("branch", "create", "work", "--uri", g)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    home = {"HOME": str(tmp_path), "OMNIGRAPH_HOME": str(tmp_path / "operator")}
    return {**os.environ, **home, "PATH": path, "TERM": "dumb", "PS1": "ready> ", "INPUTRC": "/dev/null"}


def test_in_a_real_bash(environment: dict[str, str]) -> None:
    shell = pexpect.spawn("bash", ["--norc", "--noprofile", "-i"], env=environment, encoding="utf-8", timeout=300)
    shell.expect_exact("ready> ")
    shell.sendline(
        "source <(omnigraph completion bash); bind 'set bell-style none'; bind 'set enable-bracketed-paste off'"
    )
    shell.expect_exact("ready> ")

    def typed(text: str, then: str) -> None:
        shell.send(text + "\t")
        shell.expect_exact(then)
        shell.sendcontrol("u")

    typed("omnigraph snap", "shot ")
    typed("omnigraph query --form", "at ")
    typed("omnigraph branch merge --uri g.omni w", "ork ")
    typed("omnigraph lint --query q.", "gq ")
    shell.send("omnigraph branch \t\t")
    for command in ("create", "list", "delete", "merge"):
        shell.expect_exact(command)
    shell.sendcontrol("u")
    shell.sendline("exit")
    shell.expect(pexpect.EOF)
    shell.close()


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_in_a_real_fish(environment: dict[str, str]) -> None:
    script = "omnigraph completion fish | source; complete -C 'omnigraph branch merge --uri g.omni w'"
    done = subprocess.run(["fish", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["work"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_in_a_real_zsh(environment: dict[str, str]) -> None:
    shell = pexpect.spawn("zsh", ["-f"], env=environment, encoding="utf-8", timeout=300)
    shell.expect_exact("ready> ")
    shell.sendline("autoload -Uz compinit; compinit -u -D; source <(omnigraph completion zsh); echo do''ne")
    shell.expect_exact("done")
    shell.expect_exact("ready> ")
    shell.send("omnigraph branch merge --uri g.omni w\t")
    shell.expect_exact("work ")
    shell.close(force=True)
