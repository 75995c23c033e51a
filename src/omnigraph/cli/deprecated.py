"""Old spellings of commands, and `help COMMAND`, rewritten before anything is parsed.

Only the first two words are looked at, so that a file or a branch may be called like an old command.
"""

from __future__ import annotations

from collections.abc import Sequence

_OLD_SPELLINGS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("read",): ("query",),
    ("change",): ("mutate",),
    ("check",): ("lint",),
    ("query", "lint"): ("lint",),
    ("query", "check"): ("lint",),
}
_SYNONYMS: dict[tuple[str, ...], tuple[str, ...]] = {("schema", "get"): ("schema", "show")}


def spelled_out(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """The command line as it is spelled today, and a note when how it was typed is on its way out."""
    if tuple(arguments[:1]) == ("help",):
        return [*arguments[1:], "--help"], None
    for old, new in (_OLD_SPELLINGS | _SYNONYMS).items():
        if tuple(arguments[: len(old)]) == old:
            note = f"`omnigraph {' '.join(old)}` is deprecated; use `omnigraph {' '.join(new)}`"
            return [*new, *arguments[len(old) :]], note if old in _OLD_SPELLINGS else None
    return list(arguments), None
