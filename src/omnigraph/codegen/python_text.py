"""Python source text laid out as `ruff format` leaves it: expressions in brackets, docstrings, literals.

Brackets are on one line where that fits; otherwise every item has a line of its own and ends in a comma, which keeps
the formatter from joining them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final, TypeAlias

INDENT: Final = "    "
_WIDTH: Final = 88
_TRIPLE_QUOTE: Final = '"""'


@dataclass(frozen=True, slots=True)
class Brackets:
    """What is between two brackets, with what is written outside of them. An index (`row["x"]`) takes no comma."""

    opening: str
    items: tuple[Expression, ...]
    closing: str
    comma: bool = True

    def __str__(self) -> str:
        return f"{self.opening}{', '.join(map(str, self.items))}{self.closing}"


Expression: TypeAlias = str | Brackets


def call(function: str, *arguments: Expression) -> Brackets:
    return Brackets(f"{function}(", arguments, ")")


def index(value: str, name: str) -> Brackets:
    return Brackets(f"{value}[", (literal(name),), "]", comma=False)


def lines_of(expression: Expression, indent: str = "", *, before: str = "", after: str = "") -> Iterator[str]:
    """An expression, or the head of a definition, between two texts."""
    line = f"{indent}{before}{expression}{after}"
    if len(line) <= _WIDTH or isinstance(expression, str) or not expression.items:
        yield line
        return
    yield f"{indent}{before}{expression.opening}"
    for item in expression.items:
        yield from lines_of(item, indent + INDENT, after="," if expression.comma else "")
    yield f"{indent}{expression.closing}{after}"


def annotation(name: str, type_: str, indent: str) -> Iterator[str]:
    """The declaration of a member."""
    line = f"{indent}{name}: {type_}"
    if len(line) <= _WIDTH:
        yield line
    else:
        yield from (f"{indent}{name}: (", f"{indent}{INDENT}{type_}", f"{indent})")


def comprehension(item: Brackets, clause: str, indent: str) -> Iterator[str]:
    """The statement that returns a list of items made in a loop."""
    line = f"{indent}return [{item} {clause}]"
    if len(line) <= _WIDTH:
        yield line
        return
    inner = f"{indent}{INDENT}{item} {clause}"
    parts = [inner] if len(inner) <= _WIDTH else [*lines_of(item, indent + INDENT), f"{indent}{INDENT}{clause}"]
    yield from (f"{indent}return [", *parts, f"{indent}]")


def union(name: str, members: Sequence[str]) -> Iterator[str]:
    """A type that is one of several."""
    head, joined = f"{name}: _t.TypeAlias = ", " | ".join(members)
    if len(head + joined) <= _WIDTH:
        yield head + joined
        return
    first, *rest = members
    parts = [joined] if len(INDENT + joined) <= _WIDTH else [first, *(f"| {each}" for each in rest)]
    yield from (f"{head}(", *(f"{INDENT}{part}" for part in parts), ")")


def docstring(text: str, indent: str = "") -> Iterator[str]:
    """A text as a docstring, in lines that fit where its words do."""
    text = "".join(character if character.isprintable() else " " for character in text)
    escaped = text.replace("\\", "\\\\").replace(_TRIPLE_QUOTE, '\\"\\"\\"')
    width = _WIDTH - len(indent) - 2 * len(_TRIPLE_QUOTE) - 1
    lines = wrap(escaped, max(width, 1), break_long_words=False, break_on_hyphens=False) or ["…"]
    lines[0] = f"{' ' if lines[0].startswith(chr(34)) else ''}{lines[0]}"
    lines[-1] += " " if lines[-1].endswith('"') else ""
    text = f"\n{indent}".join(lines)
    yield from f"{indent}{_TRIPLE_QUOTE}{text}{_TRIPLE_QUOTE}".split("\n")


def literal(text: str) -> str:
    """A string in double quotes; in single ones where it holds double quotes and no single ones."""
    written = repr(text)
    if '"' in text or written.startswith('"'):
        return written if "'" not in text or '"' not in text else _double_quoted(text)
    return f'"{written[1:-1]}"'


def _double_quoted(text: str) -> str:
    """A text that holds both kinds of quotes, with as few escapes as possible: the rule of the formatter."""
    written = repr(text)[1:-1].replace("\\'", "'")
    if text.count('"') > text.count("'"):
        return "'" + written.replace("'", "\\'") + "'"
    return '"' + written.replace('"', '\\"') + '"'


def text_block(name: str, text: str) -> Iterator[str]:
    """A text of several lines under a name."""
    escaped = text.replace("\\", "\\\\").replace(_TRIPLE_QUOTE, '\\"\\"\\"')
    escaped = escaped.replace("\r", "\\r").replace("\0", "\\0")
    yield from f"{name} = {_TRIPLE_QUOTE}\\\n{escaped}\n{_TRIPLE_QUOTE}".split("\n")
