"""The documents of an editor: their kinds, the positions in their texts, findings about them and edits of them.

Every function of this package counts characters of a text. Only here are they turned into the positions of the
protocol, which counts lines and code units.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from omnigraph.cluster.configuration import CONFIG_FILE
from omnigraph.errors import Diagnostic
from omnigraph.language.lint_rules import Severity
from omnigraph.language.source import TextSpan

# ---- kinds ----------------------------------------------------------------------------------------------


class Kind(StrEnum):
    SCHEMA = "schema"
    QUERIES = "queries"
    PIPELINE = "pipeline"
    POLICY = "policy"
    POLICY_TESTS = "policy tests"
    CLUSTER = "cluster"


YAML_SUFFIXES: Final = (".yaml", ".yml")
_SUFFIXES: Final = {".pg": Kind.SCHEMA, ".gq": Kind.QUERIES}
_LANGUAGES: Final = {"omnigraph-schema": Kind.SCHEMA, "omnigraph-query": Kind.QUERIES}
"""The language ids of documents that have no file name yet."""
_TOP_KEY: Final = re.compile(r"^([a-z_]+)[ \t]*:", re.MULTILINE)


def kind_of(path: Path, text: str, language: str = "") -> Kind | None:
    """The kind of a file: by its name, and of a YAML file by its name or by the keys that only one kind has; None for a
    file of something else."""
    kind = _SUFFIXES.get(path.suffix) or _LANGUAGES.get(language)
    if kind is not None or path.suffix not in YAML_SUFFIXES:
        return kind
    if path.name == CONFIG_FILE:
        return Kind.CLUSTER
    stem = path.stem
    if stem == "policy" or stem.endswith(".policy"):
        return Kind.POLICY
    if stem.endswith(".tests"):
        return Kind.POLICY_TESTS
    if stem == "pipeline" or stem.endswith(".pipeline"):
        return Kind.PIPELINE
    keys = set(_TOP_KEY.findall(text))
    if "sources" in keys and keys & {"version", "nodes", "edges"}:
        return Kind.PIPELINE
    if "version" in keys and "rules" in keys and keys & {"groups", "protected_branches"}:
        return Kind.POLICY
    return None


# ---- positions ------------------------------------------------------------------------------------------


class Encoding(StrEnum):
    """The code units in which a client counts the characters of a line."""

    UTF8 = "utf-8"
    UTF16 = "utf-16"
    UTF32 = "utf-32"


class Position(NamedTuple):
    """A line and a number of code units before the position on it, both from 0."""

    line: int
    character: int


_LINE_BREAK: Final = re.compile(r"\r\n|\r|\n")


def _units(character: str, encoding: Encoding) -> int:
    point = ord(character)
    if encoding is Encoding.UTF16:
        return 2 if point > 0xFFFF else 1
    if encoding is Encoding.UTF8:
        return 1 if point < 0x80 else 2 if point < 0x800 else 3 if point <= 0xFFFF else 4
    return 1


class Lines:
    """The lines of a text as the protocol sees them: they end in LF, CR LF or CR, and in no other character."""

    def __init__(self, text: str) -> None:
        self.text = text
        breaks = list(_LINE_BREAK.finditer(text))
        self._starts = [0, *(match.end() for match in breaks)]
        self._ends = [*(match.start() for match in breaks), len(text)]

    def position(self, offset: int, encoding: Encoding) -> Position:
        line = bisect_right(self._starts, offset) - 1
        start, end = self._starts[line], min(offset, self._ends[line])
        before = self.text[start:end]
        count = len(before) if before.isascii() else sum(_units(character, encoding) for character in before)
        return Position(line, count)

    def offset(self, position: Position, encoding: Encoding) -> int:
        """The character at a position. One beyond the end of its line is at this end, as the protocol asks; one within
        a character is before it."""
        if position.line >= len(self._starts):
            return len(self.text)
        offset, end = self._starts[position.line], self._ends[position.line]
        left = position.character
        if self.text[offset:end].isascii():
            return min(offset + left, end)
        while offset < end and (width := _units(self.text[offset], encoding)) <= left:
            left -= width
            offset += 1
        return offset


class Document(Struct, frozen=True, dict=True):
    """One text. `version` is that of the editor; a text from the disk has none."""

    path: Path
    text: str
    version: int | None = None
    language: str = ""

    @cached_property
    def kind(self) -> Kind | None:
        return kind_of(self.path, self.text, self.language)

    @cached_property
    def lines(self) -> Lines:
        return Lines(self.text)

    @cached_property
    def _bytes(self) -> bytes:
        return self.text.encode("utf-8", "surrogatepass")

    def character(self, byte: int) -> int:
        """The character that a byte of the text belongs to. Compilers report bytes."""
        if self.text.isascii():
            return min(byte, len(self.text))
        return len(self._bytes[:byte].decode("utf-8", "ignore"))

    def problem(self, diagnostic: Diagnostic, severity: Severity = "error") -> Problem:
        """A finding of a compiler. One without a position is about the whole text, and shown at its first line."""
        if (span := diagnostic.span) is None:
            at = first_line(self.text)
        else:
            start = self.character(span.start)
            end = max(start, self.character(span.end))
            if start >= len(self.text):
                # A finding about the end of the text is shown at the last character that can be seen.
                end = len(self.text.rstrip())
                start = max(0, end - 1)
            at = TextSpan(start, min(max(end, start + 1), len(self.text)))
        return Problem(at, severity, diagnostic.code, diagnostic.message, diagnostic.suggestion)


def first_line(text: str) -> TextSpan:
    """The first line that says something."""
    match = re.search(r"[^\s][^\r\n]*", text)
    return TextSpan(0, 0) if match is None else TextSpan(*match.span())


# ---- findings and edits ---------------------------------------------------------------------------------


class Problem(Struct, frozen=True):
    """One finding about a document, as an editor shows it."""

    at: TextSpan
    severity: Severity
    code: str
    message: str
    suggestion: str | None = None

    @property
    def text(self) -> str:
        return self.message if self.suggestion is None else f"{self.message}\nhelp: {self.suggestion}"


class Edit(Struct, frozen=True):
    """Replace the text at a position by another one."""

    at: TextSpan
    text: str


Edits = Mapping[Path, Sequence[Edit]]


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text after edits that don't overlap."""
    for edit in sorted(edits, key=lambda edit: (edit.at.start, edit.at.end), reverse=True):
        text = text[: edit.at.start] + edit.text + text[edit.at.end :]
    return text


def minimal_edits(before: str, after: str) -> tuple[Edit, ...]:
    """One edit of what differs, so that an editor keeps the cursor where the text stays."""
    if before == after:
        return ()
    start = 0
    shortest = min(len(before), len(after))
    while start < shortest and before[start] == after[start]:
        start += 1
    same = 0
    while same < shortest - start and before[-1 - same] == after[-1 - same]:
        same += 1
    # A position between CR and LF does not exist in the protocol.
    if before[start - 1 : start + 1] == "\r\n":
        start -= 1
    if before[len(before) - same - 1 : len(before) - same + 1] == "\r\n":
        same -= 1
    return (Edit(TextSpan(start, len(before) - same), after[start : len(after) - same]),)


class Location(Struct, frozen=True):
    """A part of a file."""

    path: Path
    at: TextSpan
