"""The examples in the help of every command: each works, in the directory that `omnigraph quickstart` makes."""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from omnigraph import Graph
from omnigraph.cli.main import app, run
from omnigraph.cli.params import split_global_flags
from omnigraph.cli.registry import COMMANDS
from tests.cli.conftest import Cli
from tests.support.warm_command import installed

ONLY_PARSED = {
    "serve": "runs until it is stopped; tests/server",
    "mcp": "waits for an agent; tests/mcp_server",
    "lsp": "waits for an editor; tests/editor",
    "pipeline run": "needs Spark; tests/pipeline",
    "pipeline explain": "needs Spark; tests/pipeline",
    "cluster approve": "needs something to approve; tests/cluster",
    "cluster force-unlock": "needs somebody who died; tests/cluster",
    "graphs list": "needs a server",
    "alias": "needs a server",
    "login": "its own test has a credentials file",
    "logout": "its own test has a credentials file",
}
LINES = [(path, line) for path, command in COMMANDS.items() for line in command.examples]


def test_every_command_has_one_to_three() -> None:
    assert [path for path, command in COMMANDS.items() if not 1 <= len(command.examples) <= 3] == []


def test_help_shows_them(cli: Cli) -> None:
    for path, line in LINES:
        assert line in cli(*path.split(), "--help").out, path


@pytest.mark.parametrize(("path", "line"), LINES, ids=[line for _, line in LINES])
def test_examples_parse(path: str, line: str) -> None:
    for words in commands(line):
        _, rest = split_global_flags(words)
        command: click.Command | None = app
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(command), rest.pop(0))
        assert command is not None
        command.make_context(path, rest)


def commands(line: str) -> Iterator[list[str]]:
    """The command lines of a line of shell, without the name of the program."""
    words: list[str] = []
    line = line.removeprefix("source <(").removesuffix(")")
    for word in [*shlex.split(line), "|"]:
        if word in ("|", ">"):
            if words[:1] == ["omnigraph"]:
                yield words[1:]
            words = []
        else:
            words.append(word)


def test_a_line_is_cut_into_its_commands() -> None:
    assert list(commands("omnigraph a 'b|c' | omnigraph d > e")) == [["a", "b|c"], ["d"]]
    assert list(commands("source <(omnigraph a bash)")) == [["a", "bash"]]


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What quickstart writes, with a graph, a branch, a blob and an applied cluster."""
    place = tmp_path_factory.mktemp("examples") / "quickstart"
    assert run(["quickstart", str(place)]) == 0
    schema = (place / "schema.pg").read_text()
    handbook = {"name": "handbook", "body": f"base64:{base64.b64encode(b'read me').decode()}"}
    with Graph.init(place / "team.omni", f"{schema}\nnode Document {{ name: String @key  body: Blob? }}\n") as graph:
        graph.load((place / "data/team.jsonl").read_text(), mode="append")
        graph.load(json.dumps({"type": "Document", "data": handbook}), mode="append")
        graph.create_branch("hiring")
        graph.mutate((place / "queries/team.gq").read_text(), "hire", {"name": "Flo", "code": "web"}, branch="hiring")
        schema_of_copies = graph.schema.show()
    Graph.init(place / "copy.omni", schema_of_copies).close()
    spec = {"dimension": 4, "types": {"Project": {"target": "vector", "fields": ["title"]}}}
    (place / "embed.json").write_text(json.dumps(spec))
    assert run(["cluster", "import", "--config", str(place)]) == 0
    assert run(["cluster", "apply", "--config", str(place), "--as", "lea"]) == 0
    return place


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with installed(tmp_path_factory.mktemp("bin") / "omnigraph") as program:
        yield program


RUN = [(path, line) for path, line in LINES if path not in ONLY_PARSED and "s3://" not in line]


@pytest.mark.parametrize(("path", "line"), RUN, ids=[line for _, line in RUN])
def test_examples_work(
    path: str, line: str, directory: Path, cli: Cli, program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(directory, "here")
    monkeypatch.chdir("here")
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator" / "config.yaml").write_text("profiles: {team: {store: team.omni}}\n")
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    if path == "cluster import":
        shutil.rmtree("__cluster")
    if "COMMIT" in line:
        with Graph.open("team.omni") as graph:
            line = line.replace("COMMIT", graph.resolve_snapshot())
    if any(sign in line for sign in "|><"):
        script = line.replace("| source", "> /dev/null")  # fish's spelling
        path_with_program = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env={**os.environ, "PATH": path_with_program},
            capture_output=True,
            text=True,
            check=False,
        )
        code, told = done.returncode, done.stdout + done.stderr
    else:
        monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115
        shown = cli(*shlex.split(line)[1:])
        code, told = shown.code, shown.out + shown.err
    assert code == (1 if "--check" in line and "would" in told else 0), told
