"""docs/user/cli.md: the reference is what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_reference_is_what_the_code_says() -> None:
    made = runpy.run_path(str(DOCS / "command_reference.py"))["page"]()
    assert made == (DOCS / "user" / "cli.md").read_text(encoding="utf-8"), "run `./dev docs`"
