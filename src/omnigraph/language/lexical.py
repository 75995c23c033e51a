"""The lexical rules that both languages share: string literals, comments, and what surrounds a token.

The parsers use it to read and write string literals, the formatters to keep comments. It knows nothing
about either grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# A string first, so that a comment sign inside one is not a comment. An unclosed string or comment runs to the end
# of the text, and nothing backtracks: scanning is linear in any input.
_STRINGS_AND_COMMENTS = re.compile(
    r'(?P<string>"(?>[^"\\]+|\\.)*+"?)|(?P<comment>//[^\n]*|/\*(?>[^*]+|\*(?!/))*+(?:\*/)?)', re.DOTALL
)

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_UNESCAPED = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPED = {ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}


class Comment(NamedTuple):
    """One comment with its signs, as it stands in the text."""

    start: int
    end: int
    text: str


class UnsupportedEscape(NamedTuple):
    """An escape that no string literal knows; `offset` counts from the opening quote."""

    offset: int
    sequence: str

    @property
    def message(self) -> str:
        return f"unsupported escape sequence '{self.sequence}' in a string; use \\\" \\\\ \\n \\r or \\t"


def unquote(literal: str) -> str | UnsupportedEscape:
    """The value of a literal with its quotes, or the first escape in it that does not exist."""
    if "\\" not in literal:
        return literal[1:-1]
    for match in _ESCAPE.finditer(literal, 1, len(literal) - 1):
        if match.group(1) not in _UNESCAPED:
            return UnsupportedEscape(match.start(), match.group())
    return _ESCAPE.sub(lambda match: _UNESCAPED[match.group(1)], literal[1:-1])


def quote(text: str) -> str:
    """The literal whose value is `text`, on one line."""
    return f'"{text.translate(_ESCAPED)}"'


def comments(text: str) -> Iterator[Comment]:
    """Every comment of a text, in order; comment signs inside strings don't count."""
    for match in _STRINGS_AND_COMMENTS.finditer(text):
        if match.lastgroup == "comment":
            yield Comment(match.start(), match.end(), match.group().rstrip())


def structure_of(text: str) -> str:
    """The text with comments blanked and strings masked, offsets kept: what structure can be searched in.

    A comment that is never closed stays visible as a mask, because it is an error and not nothing.
    """

    def mask(match: re.Match[str]) -> str:
        length = match.end() - match.start()
        if match.lastgroup == "string":
            return '"' * length
        closed = match.group().startswith("//") or (length >= 4 and match.group().endswith("*/"))
        return (" " if closed else "*") * length

    return _STRINGS_AND_COMMENTS.sub(mask, text)
