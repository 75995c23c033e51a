"""Completion: what is offered where, that it costs little, and that real shells take it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

from omnigraph.cli.completion.answers import answer
from omnigraph.cli.main import app
from omnigraph.cli.registry import COMMANDS, FAMILIES
from tests.cli.conftest import Cli
from tests.support.warm_command import installed


def offered(line: str) -> list[str]:
    """The candidates at the end of a line."""
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    return [found.partition("\t")[0] for found in answer(app, words, len(words))]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("qu", ["quickstart", "query", "queries"]),
        ("branch ", ["create", "list", "delete", "merge"]),
        ("--store g.omni branch me", ["merge"]),
        ("query --fo", ["--format"]),
        ("read --fo", ["--format"]),
        ("query --format ", ["table", "kv", "csv", "ndjson", "jsonl", "json"]),
        ("query --format=js", ["jsonl", "json"]),
        ("query --format = js", ["jsonl", "json"]),
        ("query --format csv --fo", []),
        ("commit changes x --kind node --ki", ["--kind"]),
        ("load --mode ", ["append", "merge", "overwrite"]),
        ("query --store ", [":files"]),
        ("load ", [":files"]),
        ("load g.omni --data ", [":files"]),
        ("schema plan g.omni --from ", [":files"]),
        ("query --query q.gq ", ["people", "by_name"]),
        ("mutate --query q.gq gr", ["grow"]),
        ("query --store g.omni ", []),
        ("version --sto", []),
        ("query --as", []),
        ("mutate --as", ["--as"]),
        ("blob get ", ["node", "edge"]),
        ("branch merge --ours o", ["orphan_edge"]),
        ("completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_what_fits_without_a_graph(line: str, expected: list[str], cli: Cli) -> None:
    assert offered(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("query --store g.omni --branch ", ["main", "work/a"]),
        ("branch delete --uri g.omni w", ["work/a"]),
        ("branch merge --uri=g.omni --into ", ["main", "work/a"]),
        ("branch create new --uri g.omni --from ", ["main", "work/a"]),
        ("diff --uri g.omni main ", ["main", "work/a"]),
        ("export g.omni --type ", ["Person", "City", "LivesIn", "Knows"]),
        ("blob get --store g.omni node Pe", ["Person"]),
        ("query --profile mine --branch ", ["main", "work/a"]),
        ("query --store nowhere --branch ", None),
    ],
)
def test_what_a_graph_is_asked_for(
    line: str, expected: list[str] | None, cli: Cli, g: str, config: Callable[[str], None]
) -> None:
    config("profiles: {mine: {store: g.omni}}\n")
    cli("branch", "create", "work/a", "--uri", g)
    if expected is None:
        with pytest.raises(Exception, match="no graph"):
            offered(line)
    else:
        assert offered(line) == expected


def test_names_of_the_configuration(cli: Cli, config: Callable[[str], None]) -> None:
    config(
        "servers: {prod: {url: https://x.example}}\nclusters: {box: {root: s3://b/c}}\n"
        "profiles: {a: {server: prod}, b: {store: g}}\naliases: {staff: {server: prod, query: staff}}\n"
    )
    assert offered("alias ") == ["staff"]
    assert offered("login ") == ["prod"]
    assert offered("query --profile ") == ["a", "b"]
    assert offered("profile show ") == ["a", "b"]
    assert offered("query --server ") == ["prod"]
    assert offered("optimize --cluster b") == ["box"]
    assert offered("optimize --cluster x") == [":files"]


def test_every_command_and_each_of_its_options_can_be_completed(cli: Cli) -> None:
    for path in COMMANDS:
        family, _, second = path.partition(" ")
        assert (second or family) in offered(f"{family} " if second else family) or path == "ingest", path
        assert "--help" in offered(f"{path} --"), path
    assert offered("--he") == ["--help"]
    assert set(FAMILIES) <= set(offered(" "))


def ask(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys; from omnigraph.cli.main import complete; complete(sys.argv[1:])\n"
        "print([m for m in ('lance', 'pyarrow', 'lark', 'rich', 'pydantic') if m in sys.modules])"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "OMNIGRAPH_COMPLETE": str(len(words)), **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def test_only_names_of_a_graph_load_lance_and_nothing_is_ever_said_of_a_failure(tmp_path: Path) -> None:
    assert ask(["query", "--fo"]).stdout.splitlines() == ["--format\tHow rows are shown", "[]"]
    (tmp_path / "config.yaml").write_text("profiles: [")
    broken = ask(["query", "--profile", ""], OMNIGRAPH_HOME=str(tmp_path))
    assert (broken.stdout, broken.stderr) == ("[]\n", "")


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
    typed("omnigraph query --format=js\t", "=json")
    typed("omnigraph branch merge --uri g.omni w", "ork ")
    typed("omnigraph query --query q.gq by", "_name ")
    typed("omnigraph load g.om", "ni/")
    shell.send("omnigraph branch \t\t")
    for command in ("create", "delete", "list", "merge"):
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
