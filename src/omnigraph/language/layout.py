"""Lays out formatted lines and puts every comment of the source back where it belongs.

A formatter writes through it: it says which source range a line stands for, and the layout keeps comments, their
order and at most one blank line between pieces. It never looks inside a line.
"""

from __future__ import annotations

import re
from collections import deque

from omnigraph.language.lexical import Comment, comments

INDENT = "    "
LINE_WIDTH = 100

_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_SAME_LINE = re.compile(r"[ \t,]*")


class Layout:
    """The output of one formatting run. Pieces must arrive in source order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._comments: deque[Comment] = deque(comments(text))
        self._lines: list[str] = []
        self._depth = 0
        self._end = 0
        # At the start of a block there is never a blank line; between declarations there always is one.
        self._blank: bool | None = False

    def piece(self, lines: list[str], start: int, end: int) -> None:
        """Lines that stand for `text[start:end]`; comments inside that range move before them."""
        self._comments_before(end)
        self._separate(start)
        self._lines.extend(INDENT * self._depth + line for line in lines)
        self._end = end
        self._trailing_comments()

    def open(self, lines: list[str], start: int, brace: int) -> None:
        """The head of a block, whose opening brace stands at `brace`."""
        self.piece(lines, start, brace + 1)
        self._depth += 1
        self._blank = False

    def close(self, line: str, end: int) -> None:
        """The last line of a block, whose closing brace ends at `end`."""
        self._comments_before(end)
        self._depth -= 1
        self._lines.append(INDENT * self._depth + line)
        self._end = end
        self._blank = None
        self._trailing_comments()

    def blank_line(self) -> None:
        """Ask for a blank line before the next piece, whatever the source has."""
        if self._lines:
            self._blank = True

    def has_comment_within(self, start: int, end: int) -> bool:
        return any(start <= comment.start < end for comment in self._comments)

    def finish(self) -> str:
        self._comments_before(len(self._text) + 1)
        return "".join(f"{line}\n" for line in self._lines)

    def _comments_before(self, offset: int) -> None:
        while self._comments and self._comments[0].start < offset:
            comment = self._comments.popleft()
            self._separate(comment.start)
            self._lines.append(INDENT * self._depth + comment.text)
            self._end = max(self._end, comment.end)

    def _trailing_comments(self) -> None:
        while self._comments:
            comment = self._comments[0]
            gap = _SAME_LINE.match(self._text, self._end)
            if gap is None or gap.end() != comment.start or "\n" in comment.text:
                return
            self._comments.popleft()
            self._lines[-1] += "  " + comment.text
            self._end = comment.end
            if comment.text.startswith("//"):
                return

    def _separate(self, start: int) -> None:
        if self._blank or (self._blank is None and _BLANK_LINE.search(self._text, self._end, max(start, self._end))):
            self._lines.append("")
        self._blank = None


def wrapped(parts: list[str], width: int) -> list[str]:
    """The parts on one line when they fit, otherwise each on its own, continuation lines indented twice."""
    line = " ".join(parts)
    if len(line) <= width or len(parts) == 1:
        return [line]
    return [parts[0], *(INDENT * 2 + part for part in parts[1:])]
