"""`omnigraph quickstart`: every file it writes is valid, and every command it shows works, in order, from nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.cli.registry import COMMANDS
from tests.cli.conftest import Cli
from tests.support.warm_command import installed
from tests.test_docs import steps

NEEDS_SPARK = "omnigraph pipeline run "
"""Run in tests/pipeline, where there is a session."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with installed(tmp_path_factory.mktemp("bin") / "omnigraph") as program:
        yield program


def test_what_it_shows_is_what_to_run(cli: Cli, program: Path) -> None:
    shown = cli("quickstart", "first")
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines[0] == "wrote 9 files to first; README.md explains them"
    assert shown.lines[2] == "cd first"
    commands = [line for line in shown.lines[3:] if not line.startswith("#")]
    readme = Path("first/README.md").read_text()
    scripts = [step.script for step in steps(readme)]
    # The last one serves until it is stopped.
    assert commands[:-1] == "".join(scripts).splitlines()
    for script in scripts:
        lines = [line for line in script.splitlines(keepends=True) if is_there(line) and NEEDS_SPARK not in line]
        text = "".join(lines).replace("omnigraph ", f"{program} ")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd="first",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    assert "Flo" in cli("export", "first/team.omni", "--type", "Person").out


def is_there(line: str) -> bool:
    """Whether a line runs a command of this version; what needs a cluster's graphs waits for `cluster apply`."""
    words = line.split()
    on_cluster = "graphs/" in line or words[1] == "cluster"
    return "cluster apply" in COMMANDS if on_cluster else True


def test_the_cluster_and_its_rules_are_those_of_the_specification(cli: Cli) -> None:
    from msgspec import yaml

    assert cli("quickstart", ".").code == 0
    cluster = yaml.decode(Path("cluster.yaml").read_bytes())
    assert cluster == {
        "version": 1,
        "metadata": {"name": "quickstart"},
        "graphs": {"team": {"schema": "schema.pg", "queries": "queries"}},
        "policies": {"team-rules": {"file": "policy.yaml", "applies_to": ["team"]}},
    }
    assert cli("policy", "validate", "--file", "policy.yaml", "--schema", "schema.pg").code == 0
    assert cli("lint", "--query", "queries/team.gq", "--schema", "schema.pg").code == 0
    assert cli("fmt", "--check", "schema.pg", "queries").code == 0


def test_nothing_is_overwritten(cli: Cli) -> None:
    Path("mine").mkdir()
    Path("mine/policy.yaml").write_text("precious")
    refused = cli("quickstart", "mine", "--json")
    assert refused.code == 1
    assert "'mine/policy.yaml' exists" in refused.json["error"]
    assert [path.name for path in Path("mine").iterdir()] == ["policy.yaml"]


def test_a_place_that_can_not_be_written(cli: Cli) -> None:
    Path("file").write_text("")
    assert cli("quickstart", "file/below").err.startswith("Error: can't write 'file")


def test_the_report_for_programs(cli: Cli) -> None:
    report = cli("quickstart", "first", "--json").json
    assert list(report) == ["directory", "files", "next"]
    assert {str(path.relative_to("first")) for path in Path("first").rglob("*") if path.is_file()} == {*report["files"]}
    assert report["next"][0]["commands"][0] == "omnigraph init --schema schema.pg --store team.omni"
