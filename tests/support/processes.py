"""Starting real processes that work on a graph, and reading what they acknowledged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import Place

REPOSITORY = Path(__file__).resolve().parents[2]


def start(place: Place, uri: str, *arguments: str, kill_at: str | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, **place.environment, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"}
    environment.pop("OMNIGRAPH_KILL_AT", None)
    environment |= {"OMNIGRAPH_TEST_QUICK_START": "1", "PYTHONFAULTHANDLER": "1"}
    if kill_at:
        environment["OMNIGRAPH_KILL_AT"] = kill_at
    return subprocess.Popen(
        [sys.executable, "-m", "tests.storage.writer", uri, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=REPOSITORY,
    )


def wait_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    if line.strip() != "ready":
        raise AssertionError(f"the process did not start: {line}{process.communicate()[1]}")


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def acknowledged(process: subprocess.Popen[str], timeout: float = 120) -> list[list[str]]:
    """The lines a process printed until it ended, split into words."""
    output, errors = process.communicate(timeout=timeout)
    if process.returncode not in (0, -9):
        raise AssertionError(f"the process failed with {process.returncode}:\n{errors}")
    return [line.split() for line in output.splitlines() if line.strip()]
