"""`./dev` is the first thing a newcomer runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def test_the_dev_script_explains_itself() -> None:
    run = subprocess.run([sys.executable, "dev", "--help"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for command in ("demo", "test", "lint", "bench", "docs", "run -- CMD"):
        assert f"./dev {command}" in run.stdout
