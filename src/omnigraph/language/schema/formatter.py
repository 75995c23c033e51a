"""Writes a schema in its canonical layout: one declaration style, four spaces, every comment kept.

`omnigraph fmt` calls it, and the query formatter uses its `Layout`. Formatting never changes the meaning of a schema:
the tree of the result equals the tree of the source, and formatting twice gives the same text as formatting once.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from omnigraph.language.schema.parser import parse_schema
from omnigraph.language.schema.syntax import (
    AnnotationSyntax,
    CheckSyntax,
    ColumnsRule,
    Declaration,
    EdgeSyntax,
    Member,
    NodeSyntax,
    PropertySyntax,
    TypeSyntax,
    Value,
)
from omnigraph.language.source import Comment, comments, quote, structure_of

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
        """The head of a block, whose opening brace is at `brace`."""
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


def wrap_parts(parts: list[str], width: int) -> list[str]:
    """The parts on one line when they fit, otherwise each on its own, continuation lines indented twice."""
    line = " ".join(parts)
    if len(line) <= width or len(parts) == 1:
        return [line]
    return [parts[0], *(INDENT * 2 + part for part in parts[1:])]


def format_schema(text: str, path: str | None = None) -> str:
    """The canonical text of a schema file; a file that does not parse raises its syntax errors."""
    schema = parse_schema(text, path)
    structure = structure_of(text)
    layout = Layout(text)
    previous: Declaration | None = None
    for declaration in schema.declarations:
        if previous is not None and not (_is_bare_edge(previous) and _is_bare_edge(declaration)):
            layout.blank_line()
        _write(layout, structure, declaration)
        previous = declaration
    return layout.finish()


def _is_bare_edge(declaration: Declaration) -> bool:
    return isinstance(declaration, EdgeSyntax) and declaration.members is None


def _write(layout: Layout, structure: str, declaration: Declaration) -> None:
    start, end = declaration.at.start, declaration.at.end
    head = _head(declaration)
    if declaration.members is None:
        layout.piece(wrap_parts(head, LINE_WIDTH), start, end)
        return
    brace = structure.index("{", start)
    if not declaration.members and not layout.has_comment_within(brace, end):
        layout.piece(wrap_parts([*head[:-1], head[-1] + " {}"], LINE_WIDTH), start, end)
        return
    layout.open(wrap_parts([*head[:-1], head[-1] + " {"], LINE_WIDTH), start, brace)
    for member in declaration.members:
        layout.piece(wrap_parts(_member(member), LINE_WIDTH - len(INDENT)), member.at.start, member.at.end)
    layout.close("}", end)


def _head(declaration: Declaration) -> list[str]:
    name = declaration.name.text
    if isinstance(declaration, EdgeSyntax):
        ends = f"edge {name}: {declaration.source.text} -> {declaration.target.text}"
        if declaration.card is not None:
            high = declaration.card.maximum
            ends += f" @card({declaration.card.minimum}..{'' if high is None else high})"
        return [ends, *_annotations(declaration.annotations)]
    if isinstance(declaration, NodeSyntax):
        parts = [f"node {name}", *_annotations(declaration.annotations)]
        if declaration.implements:
            parts.append("implements " + ", ".join(interface.text for interface in declaration.implements))
        return parts
    return [f"interface {name}"]


def _member(member: Member) -> list[str]:
    if isinstance(member, PropertySyntax):
        return [f"{member.name.text}: {_type(member.type)}", *_annotations(member.annotations)]
    if isinstance(member, ColumnsRule):
        return [f"@{member.rule}({', '.join(column.text for column in member.columns)})"]
    if isinstance(member, CheckSyntax):
        return [f"@check({member.column.text}, {quote(member.pattern)})"]
    return [f"@range({member.column.text}, {member.low or ''}..{member.high or ''})"]


def _type(type_: TypeSyntax) -> str:
    if type_.item is not None:
        spelled = f"[{_type(type_.item)}]"
    elif type_.arguments is not None:
        spelled = f"{type_.name}({', '.join(argument.text for argument in type_.arguments)})"
    else:
        spelled = type_.name
    return spelled + ("?" if type_.nullable else "")


def _annotations(annotations: Sequence[AnnotationSyntax]) -> list[str]:
    return [_annotation(annotation) for annotation in annotations]


def _annotation(annotation: AnnotationSyntax) -> str:
    if annotation.value is None:
        return f"@{annotation.name}"
    arguments = [_value(annotation.value), *(f"{key}={_value(value)}" for key, value in annotation.kwargs)]
    return f"@{annotation.name}({', '.join(arguments)})"


def _value(value: Value) -> str:
    return quote(value.text) if value.kind == "string" else value.text
