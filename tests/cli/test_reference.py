"""docs/user/cli.md: the reference is what the code says."""

from __future__ import annotations

import re
import runpy
from itertools import pairwise
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_reference_is_what_the_code_says() -> None:
    made = runpy.run_path(str(DOCS / "command_reference.py"))["page"]()
    assert made == (DOCS / "user" / "cli.md").read_text(encoding="utf-8"), "run `./dev docs`"


def test_everything_written_names_a_graph_with_store() -> None:
    """An address that is an argument is for old scripts."""
    root = DOCS.parent
    places = [root / "README.md", root / "compose.yaml", *DOCS.glob("user/*.md"), *root.glob("examples/**/*.md")]
    commands = re.compile(r"omnigraph [a-z][^\n`|>#]*")
    for path in places:
        for command in commands.findall(path.read_text(encoding="utf-8")):
            words = command.split()
            arguments = [word for option, word in pairwise(words) if not option.startswith("-")]
            assert not [word for word in arguments if word == "URI" or "://" in word], f"{path.name}: {command}"
