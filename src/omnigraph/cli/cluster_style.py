"""How reports of a cluster look on a terminal: a colour by what a line says, and long lines broken between words."""

from __future__ import annotations

import textwrap
from typing import Final

_BY_MARK: Final = {"+": "green", "~": "yellow", "-": "red", "ERROR": "bold red", "WARN": "yellow"}
_OF_A_FILE: Final = {"+": "green", "-": "red", "@": "cyan"}
_FILE: Final = 8
_DETAIL: Final = 6


def style(line: str) -> str:
    """By how deep a line stands, by its mark and by what it says. It may be folded, or be followed by an excerpt."""
    text = " ".join(line.split())
    depth, mark = len(line) - len(line.lstrip()), text.split(" ", 1)[0]
    if depth >= _FILE:
        return _OF_A_FILE.get(line[_FILE], "dim")
    if depth == _DETAIL:
        return "bold red" if mark == "unsupported" else _BY_MARK.get(mark, "cyan")
    if line.startswith("cluster "):
        return "bold red" if line.endswith(("failed", "invalid")) else "bold"
    if mark == "!":
        return "green" if text.endswith(" is approved") else "bold red"
    if depth and any(held in text for held in ("[Blocked", "[Deferred", "(blocked: ", ": blocked (", ": error (")):
        return "bold red"
    if depth and ": drifted (" in text:
        return "yellow"
    return "dim" if text.endswith("[Derived]") else _BY_MARK.get(mark, "")


def folded(line: str, columns: int) -> str:
    """A line that is wider than the terminal, broken between words, with what follows further in. Lines of files stay
    as they are, also the excerpt that a finding ends with."""
    line, newline, excerpt = line.partition("\n")
    depth = len(line) - len(line.lstrip())
    if len(line) > columns and depth < _FILE:
        indent = " " * (depth + 4 if depth else _DETAIL)
        line = textwrap.fill(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return f"{line}{newline}{excerpt}"
