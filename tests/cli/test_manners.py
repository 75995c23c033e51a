"""How every command behaves: refused flags, interrupts, faults, colours, progress, `-`, and closed streams."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from omnigraph.cli.params import GlobalFlags
from omnigraph.cli.printing import progress
from omnigraph.cli.registry import COMMANDS, Capability, check_flags
from omnigraph.errors import BadRequestError
from tests.cli.conftest import Cli
from tests.support.warm_command import installed

FLAGS = {flag: flag for flag in ("server", "cluster", "graph", "store", "profile")} | {"as": "actor"}
CLASSES = {
    Capability.ANY: "data",
    Capability.SERVED: "served",
    Capability.DIRECT: "direct (storage-native)",
    Capability.CONTROL: "cluster control",
    Capability.LOCAL: "local",
}


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_refuses_every_flag_it_would_ignore(path: str) -> None:
    command = COMMANDS[path]
    refused = [flag for flag in FLAGS if flag not in command.flags]
    for flag in refused:
        with pytest.raises(BadRequestError) as error:
            check_flags(command, GlobalFlags(**{FLAGS[flag]: "x"}))
        text = str(error.value)
        if path == "alias":
            assert "uses the server, graph, and stored query" in text
            continue
        assert text.startswith(f"`{command.label}` is a {CLASSES[command.capability]} command; --{flag} ")
        assert " and does not apply." in text
        for fragment in remedies(path, command.capability):
            assert fragment in text, (path, flag)
    for flag in command.flags:
        check_flags(command, GlobalFlags(**{FLAGS[flag]: "x"}))


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_tells_wrong_usage_in_one_way(path: str, cli: Cli) -> None:
    refused = cli(*path.split(), "--nonsense")
    assert (refused.code, refused.out) == (2, "")
    said, usage, hint = refused.err.splitlines()[-3:]
    assert said.startswith("Error: No such option '--nonsense'")
    assert usage.startswith(f"Usage: omnigraph {path}")
    assert hint == f"Try 'omnigraph {path} --help'."
    told = cli(*path.split(), "--nonsense", "--json")
    assert (told.code, told.json["code"]) == (2, "bad_request")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("branch list g.omni more", "Got unexpected extra argument (more); the graph is given with --store"),
        ("load g.omni d.jsonl --mode merge", "Got unexpected extra argument (d.jsonl); data are given with --data"),
        ("query people q.gq", "Got unexpected extra argument(s) (q.gq); a file of queries is given with --query"),
        ("load g.omni --data d.jsonl", "Missing option '--mode'. Choose from: append, merge, update, overwrite"),
        ("export g.omni --json", "No such option '--json'."),
    ],
)
def test_wrong_usage_is_one_line_that_helps(line: str, told: str, cli: Cli) -> None:
    refused = cli(*line.split())
    assert (refused.code, refused.err.splitlines()[0]) == (2, f"Error: {told}")


def test_a_query_that_is_not_there_is_told_with_those_that_are(cli: Cli, g: str) -> None:
    asked = ["query", "--query", "q.gq", "--store", g]
    assert cli(*asked, "peple").err == "Error: query 'peple' not found; did you mean 'people'?\n"
    assert cli(*asked, "x").err == "Error: query 'x' not found; the source has: people, by_name, add, grow, remove\n"


def remedies(path: str, capability: Capability) -> list[str]:
    """What the specification wants to be named, by class."""
    family = path.split()[0]
    if capability is Capability.LOCAL:
        return ["does not address a graph"]
    if capability is Capability.SERVED:
        return ["--server <name|url>", "--profile <name>"]
    if capability is Capability.CONTROL:
        return ["--config <dir>"] if family == "cluster" else ["--cluster <dir|uri>"]
    if capability is Capability.DIRECT:
        both = ["--cluster <dir> --graph <id>"] if path in ("optimize", "repair", "cleanup") else []
        return ["a storage URI", *both]
    return []


# ---- interrupts and faults


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "omnigraph.cli.main", *arguments]


def test_an_interrupt_is_one_line_and_130(g: str) -> None:
    load = subprocess.Popen(
        command_line("load", g, "--data", "-", "--mode", "merge"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert load.stderr is not None
    assert load.stdin is not None
    assert load.stderr.readline() == f"omnigraph load → {g} (direct, local)\n"
    # More than a pipe holds: when it is written, the command is reading.
    load.stdin.write('{"type":"City","data":{"name":"Rome"}}\n' * 8_000)
    load.stdin.flush()
    load.send_signal(signal.SIGINT)
    out, err = load.communicate()
    assert (load.returncode, out, err) == (130, "", "Error: interrupted\n")


def start(program: str, tmp_path: Path) -> subprocess.Popen[str]:
    """A process that has said that it is where it should be interrupted."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    return process


VERSION_INSTEAD = """
import os, signal, sys, threading
from omnigraph.cli.commands import setup
from omnigraph.cli.main import main

def instead(*_):
    print("here", flush=True)
    {body}

setup.version = instead
main(["version"])
"""


def test_an_interrupt_does_not_wait_for_threads(tmp_path: Path) -> None:
    body = "threading.Thread(target=sys.stdin.read).start(); os.kill(os.getpid(), signal.SIGINT); sum(range(1000))"
    process = start(VERSION_INSTEAD.format(body=body), tmp_path)
    process.wait()
    assert process.stderr is not None
    assert (process.returncode, process.stderr.read()) == (130, "Error: interrupted\n")


class Faulty:
    """Fails where it is printed, as no error of ours does."""

    def __format__(self, spec: str) -> str:
        raise RuntimeError("out of luck")


def test_a_fault_is_one_line_and_a_trace_only_with_debug(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.cli.commands.setup.INTERNAL_SCHEMA_VERSION", Faulty())
    told = cli("version")
    assert told.code == 1
    assert told.err == (
        "Error: this is a fault of omnigraph or its surroundings: RuntimeError: out of luck; --debug shows where\n"
    )
    for arguments in (["--debug", "version"], ["version", "--debug"]):
        traced = cli(*arguments)
        assert traced.code == 1
        assert traced.err.startswith("Traceback")
        assert "setup.py" in traced.err
        assert traced.err.splitlines()[-1].startswith("Error: this is a fault")


def test_a_fault_with_json_is_an_object_too(cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.cli.printing.output.json.dumps", _once_broken(__import__("json").dumps))
    told = cli("snapshot", g, "--json")
    assert told.code == 1
    assert told.json["type"] == "omni_graph"
    assert "RuntimeError: out of luck" in told.json["error"]


def _once_broken(works: Any) -> Any:
    calls = iter([True])

    def dumps(*given: Any, **options: Any) -> Any:
        if next(calls, False):
            raise RuntimeError("out of luck")
        return works(*given, **options)

    return dumps


# ---- terminals


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with installed(tmp_path_factory.mktemp("bin") / "omnigraph") as program:
        yield program


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colours_are_for_terminals_whose_owner_wants_them(
    environment: dict[str, str], coloured: bool, program: Path, cli: Cli
) -> None:
    given = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    shown = pexpect.run(f"{program} fmt --check q.gq", env=given | environment).decode()
    assert "would reformat q.gq" in shown
    assert ("\x1b[" in shown) is coloured
    piped = subprocess.run(
        [program, "fmt", "--check", "q.gq"], capture_output=True, env=given | environment, check=False
    )
    assert piped.stdout == b"would reformat q.gq\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["load", "g.omni", "--data", "d.jsonl", "--mode", "merge"], ["checking and writing", "243/? bytes"]),
        (["export", "g.omni"], ["exporting", "/s"]),
        (["export", "g.omni", "--format", "parquet", "--out", "files", "--force"], ["exporting: ", "5/5", "/s"]),
        (["optimize", "g.omni"], ["optimize: ", "4/4", "/s"]),
        (["cleanup", "g.omni", "--keep", "1", "--confirm"], ["cleanup: marking tables", "4/4", "/s"]),
        (["repair", "g.omni"], ["repair: checking ", "4/4", "/s"]),
    ],
)
def test_progress_has_a_rate_and_goes_to_stderr(
    arguments: list[str], told: list[str], cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = cli(*arguments)
    assert (quiet.code, "\x1b[" in quiet.err) == (0, False)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    watched = cli(*arguments)
    assert watched.code == 0
    for text in told:
        assert text in watched.err
    assert "\x1b[" not in watched.out


def test_short_work_draws_nothing(cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 3600)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli("load", g, "--data", "d.jsonl", "--mode", "merge", "--quiet").err == ""


# ---- streams


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["query", "people", "--query", "-", "--store", "g.omni"],
            "query people() { match { $p: Person } return { $p } }",
        ),
        (["query", "by_name", "--query", "q.gq", "--params-file", "-", "--store", "g.omni"], '{"name": "Ada"}'),
        (["lint", "--query", "-", "--schema", "s.pg"], "query people() { match { $p: Person } return { $p } }"),
        (["schema", "plan", "g.omni", "--schema", "-"], "node Person { name: String @key }"),
        (["load", "g.omni", "--data", "-", "--mode", "merge"], '{"type":"City","data":{"name":"Bonn"}}'),
        (["fmt", "-"], "node Person { name: String @key }"),
        (["branch", "merge", "b", "--uri", "g.omni", "--resolutions", "-", "--preview"], '{"kinds": {}}'),
        (
            ["pipeline", "validate", "-", "--store", "g.omni"],
            "{version: 1, sources: {r: {format: graph, path: d.jsonl}}}",
        ),
    ],
)
def test_a_dash_is_stdin(arguments: list[str], text: str, cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert cli("branch", "create", "b", "--uri", g).code == 0
    done = cli(*arguments)
    assert done.code == 0, done.err
    assert done.out


def test_stdin_is_given_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"node P { name: String @key }")))
    refused = cli("lint", "--query", "-", "--schema", "-")
    assert (refused.code, refused.err) == (1, "Error: stdin (-) can be given for one file only\n")


def test_a_dash_is_stdout(cli: Cli, g: str) -> None:
    refused = cli("changes", "baseline", "--uri", g, "--out", "-")
    assert refused.code == 2
    assert "--out takes a file" in refused.err


def test_streams_that_are_closed_read_as_empty_and_swallow(cli: Cli) -> None:
    script = " ".join(command_line("lint", "--query", "-", "--schema", "s.pg", "<&-", ">&-"))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_reader_that_leaves_early_is_no_failure_to_talk_about(program: Path, g: str) -> None:
    script = f"set -o pipefail; {program} export {g} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout in ("0\n", "1\n")  # whether it was done before the reader left


def test_forced_repairs_without_consent_are_wrong_usage(cli: Cli, g: str) -> None:
    assert cli("repair", g, "--force").code == 2
