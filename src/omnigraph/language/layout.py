"""The printer of both formatters: writes lines while it walks a syntax tree and the comments beside it.

Pieces must arrive in source order. A comment stays beside the code it was written beside; one inside a piece moves
above it. Blank lines are kept, several as one.
"""

from __future__ import annotations

import re
from collections import deque

from omnigraph.language.source import TextSpan, comments

WIDTH = 100
INDENT = "    "

_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_BESIDE = re.compile(r"[ \t,]*")


class Layout:
    """The output of one formatting run.

    Schemas keep the short comments of a line beside it, and a blank line where the source has one. A `loose` layout, as
    queries have it, keeps only the first comment beside a line, and takes two line breaks for a blank line.
    """

    def __init__(self, text: str, *, loose: bool = False) -> None:
        self._text = text
        self._loose = loose
        self._comments = deque(comments(text))
        self._lines: list[str] = []
        self._depth = 0
        self._end = 0
        # At the start of a block there is never a blank line; None leaves it to the source.
        self._blank: bool | None = False

    @property
    def width(self) -> int:
        """What is left of a line beside its indentation."""
        return WIDTH - len(INDENT) * self._depth

    def piece(self, at: TextSpan, *lines: str) -> None:
        """Lines that stand for the text at a position; comments inside it move before them."""
        self.comments_before(at.end)
        self.separate(at.start)
        self.put(*lines)
        self.finish_piece(at.end)

    def put(self, *lines: str) -> None:
        self._lines.extend(INDENT * self._depth + line for line in lines)
        self._blank = None

    def indent(self) -> None:
        """Begin a block."""
        self._depth += 1
        self._blank = False

    def dedent(self) -> None:
        self._depth -= 1

    def close(self, end: int, line: str) -> None:
        """The last line of a block, whose closing brace ends at `end`."""
        self.comments_before(end)
        self.dedent()
        self.put(line)
        self.finish_piece(end)

    def blank_line(self) -> None:
        """Ask for a blank line before the next piece, even if the source has none."""
        if self._lines:
            self._blank = True

    def separate(self, start: int) -> None:
        """The blank line before what begins at `start`, if there is to be one."""
        if self._blank or (self._blank is None and self._has_blank_line_before(start)):
            self._lines.append("")
        self._blank = None

    def _has_blank_line_before(self, start: int) -> bool:
        if self._loose:
            return self._text.count("\n", self._end, start) >= 2
        return _BLANK_LINE.search(self._text, self._end, max(start, self._end)) is not None

    def has_comment_before(self, end: int) -> bool:
        return bool(self._comments) and self._comments[0].start < end

    def comments_before(self, offset: int) -> None:
        while self.has_comment_before(offset):
            comment = self._comments.popleft()
            self.separate(comment.start)
            self.put(comment.text)
            self._end = max(self._end, comment.end)

    def finish_piece(self, end: int) -> None:
        """The source has been written up to `end`; comments beside that stay there."""
        self._end = max(self._end, end)
        while self._comments and _BESIDE.fullmatch(self._text, self._end, self._comments[0].start):
            if "\n" in self._comments[0].text and not self._loose:
                return
            comment = self._comments.popleft()
            self._lines[-1] += f"  {comment.text}"
            self._end = comment.end
            if self._loose or comment.text.startswith("//"):
                return

    def finish(self) -> str:
        self.comments_before(len(self._text) + 1)
        return "".join(f"{line}\n" for line in self._lines)
