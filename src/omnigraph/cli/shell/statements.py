"""Lines to statements: when what was typed is complete, and what of it is a query.

A line that begins with `:` is a command. A `query … { }` ends with its last brace. Anything else, the body of a query
or the call of one, ends with its line if its brackets are closed, else with `;` or an empty line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from omnigraph.language.lexical import structure_of

_OPEN, _CLOSED = "{([", "})]"
_BODY = re.compile(r"(match|insert|update|delete)\b")
_CALL = re.compile(r"([A-Za-z_]\w*)\s*(.*)", re.DOTALL)


class Statement:
    """The lines of one statement, until it is complete."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    @property
    def is_empty(self) -> bool:
        return not structure_of(self.text).strip()

    def take(self, line: str) -> str | None:
        """The statement, if this line completes one."""
        if not self._lines and not line.strip():
            return None
        self._lines.append(line)
        if not self._is_complete(line):
            return None
        taken, self._lines = self.text.strip(), []
        if taken.startswith(":"):
            return taken
        # The semicolon is the shell's, not the language's.
        return taken[: structure_of(taken).rstrip().rfind(";")] if _ends_here(taken) else taken

    def rest(self) -> str | None:
        """What was begun and never completed: nothing more will come."""
        left, self._lines = self.text.strip(), []
        return left or None

    def _is_complete(self, line: str) -> bool:
        if self.text.lstrip().startswith(":"):
            return True
        if self.is_empty:
            return False
        if not line.strip() or _ends_here(self.text):
            return True
        structure = structure_of(self.text)
        if _depth(structure) > 0:
            return False
        if structure.split(None, 1)[0] == "query":
            return "{" in structure
        return len(self._lines) == 1


def _ends_here(text: str) -> bool:
    return structure_of(text).rstrip().endswith(";")


def _depth(structure: str) -> int:
    return sum(structure.count(sign) for sign in _OPEN) - sum(structure.count(sign) for sign in _CLOSED)


def statements(lines: Iterable[str]) -> Iterator[str]:
    """The statements of a text that nobody types."""
    begun = Statement()
    for line in lines:
        if (whole := begun.take(line.rstrip("\r\n"))) is not None:
            yield whole
    if (left := begun.rest()) is not None:
        yield left


def as_query(text: str) -> str:
    """The body of a query as a query; a whole one as it is."""
    return f"query shell() {{ {text} }}" if _BODY.match(structure_of(text).lstrip()) else text


def as_call(text: str) -> tuple[str, str] | None:
    """The name of a query and what is behind it, if that is what the text can be."""
    found = _CALL.fullmatch(text.strip())
    return None if found is None or found[1] == "query" else (found[1], found[2])
