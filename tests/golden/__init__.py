"""Golden texts: what a program that reads our JSON relies on, byte for byte.

`OMNIGRAPH_UPDATE_GOLDEN=1` writes them anew; the difference in version control is then what users would notice.
"""

from __future__ import annotations

import os
import re
from itertools import count
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Strings keep their quotes and numbers stay numbers, so a value that changes its JSON type is noticed.
_VOLATILE = (
    ("ULID", re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"), "{}-{}"),
    ("TOKEN", re.compile(r"\beyJ[A-Za-z0-9_-]{40,}"), "{}-{}"),
    ("TABLE", re.compile(r"\b[0-9a-f]{28}\b"), "{}-{}"),
    ("ETAG", re.compile(r'(?<=")[0-9a-f]{32}(?=\\?")'), "{}-{}"),
    ("VERSION", re.compile(r"(?<![0-9.])[0-9]{17,20}(?![0-9.])|(?<=_versions/d)[0-9]+"), "{}-{}"),
    ("TIME", re.compile(r"\b1[0-9]{15}\b"), "9{1:015}"),
    ("MOMENT", re.compile(r"(?:(?<=authored_at: )|(?<=created: ))[0-9T:.-]+Z"), "{}-{}"),
    ("BYTES", re.compile(r'(?<="bytes_removed": )[1-9][0-9]*'), "9{1:05}"),
)


def stable(text: str) -> str:
    """The text with everything that differs from run to run replaced, in the order of its first appearance."""
    for name, pattern, placeholder in _VOLATILE:
        numbers = count(1)
        known: dict[str, str] = {}

        def replaced(
            found: re.Match[str],
            name: str = name,
            placeholder: str = placeholder,
            known: dict[str, str] = known,
            numbers: count[int] = numbers,
        ) -> str:
            if found[0] not in known:
                known[found[0]] = placeholder.format(name, next(numbers))
            return known[found[0]]

        text = pattern.sub(replaced, text)
    return text


def assert_golden(name: str, text: str) -> None:
    """Compare with `tests/golden/<name>`."""
    path = HERE / name
    found = stable(text)
    if os.environ.get("OMNIGRAPH_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8"), f"{name} is not what was recorded"
