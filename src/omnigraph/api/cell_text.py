"""The text of one cell: as JSON writes it, on one line, within a width of a terminal.

Pure functions over plain values; results at a prompt, tables of the command line and CSV are made of them.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any


def cell_text(value: Any) -> str:
    if value is None:
        return "null"
    return value if isinstance(value, str) else compact_json(value)


def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def one_line(text: str) -> str:
    return text.replace("\n", "\\n")


def cut_to_width(text: str, width: int) -> str:
    """The longest beginning that fits."""
    taken = 0
    for i, character in enumerate(text):
        taken += _character_width(character)
        if taken > width:
            return text[:i]
    return text


def padded(text: str, width: int) -> str:
    return text + " " * (width - text_width(text))


def text_width(text: str) -> int:
    """Columns of a terminal: wide characters take two, combining marks none."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
