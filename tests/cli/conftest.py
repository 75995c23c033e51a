"""A command line to run in process, in a directory of its own, and a small graph to run it on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.main import run

SCHEMA = """\
node Person { name: String @key  age: I32?  level: enum(junior, senior)? }
node City { name: String @key }
edge LivesIn: Person -> City { since: Date? }
edge Knows: Person -> Person
"""

RECORDS = """\
{"type":"Person","data":{"name":"Ada","age":36}}
{"type":"Person","data":{"name":"Bob"}}
{"type":"City","data":{"name":"Oslo"}}
{"edge":"LivesIn","from":"Ada","to":"Oslo","data":{"since":"2001-02-03"}}
{"edge":"Knows","from":"Ada","to":"Bob"}
"""

QUERIES = """\
query people() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }
query by_name($name: String) { match { $p: Person { name: $name } } return { $p.age as age } }
query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }
query grow($name: String, $age: I32) { update Person set { age: $age } where name = $name }
query remove($name: String) { delete Person where name = $name }
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _own_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the configuration of the person who runs it."""
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "operator"))
    monkeypatch.delenv("OMNIGRAPH_PROFILE", raising=False)


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], None]:
    """Writes the operator configuration."""

    def write(text: str) -> None:
        (tmp_path / "operator").mkdir(exist_ok=True)
        (tmp_path / "operator" / "config.yaml").write_text(text)

    return write


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs one command line in a fresh working directory that holds the example's files."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    for name, text in (("s.pg", SCHEMA), ("d.jsonl", RECORDS), ("q.gq", QUERIES)):
        (work / name).write_text(text, encoding="utf-8")

    def call(*arguments: str) -> Outcome:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from omnigraph import Graph

    place = tmp_path_factory.mktemp("template") / "g.omni"
    with Graph.init(place, SCHEMA) as graph:
        graph.load(RECORDS, mode="append", actor="setup")
    return place


@pytest.fixture
def g(cli: Cli, _template: Path) -> str:
    """The URI of a graph with the example's records, relative to the working directory."""
    shutil.copytree(_template, "g.omni")
    return "g.omni"
