"""The demo is the first thing a newcomer runs: it must work, and what it prints must be true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def test_the_demo_runs_and_shows_its_results() -> None:
    run = subprocess.run(
        [sys.executable, "examples/demo.py"], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True
    )
    assert "Roadside Picnic" in run.stdout
    assert "clean" in run.stdout.splitlines()[-1]


def test_the_dev_script_explains_itself() -> None:
    run = subprocess.run([sys.executable, "dev", "--help"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for command in ("demo", "test", "lint", "bench", "run -- CMD"):
        assert f"./dev {command}" in run.stdout
