"""Source texts of both languages: positions, diagnostics, string literals, comments, and the parsers of the grammars.

The parsers and checkers of `.pg` and `.gq` hold one `SourceText` per file and turn the `TextSpan`s of their trees into
`Span`s and `Diagnostic`s through it. Nothing here reads a user's file or decides what is an error.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from omnigraph.errors import CompileError, Diagnostic, Span
from omnigraph.process import without_collections

if TYPE_CHECKING:
    from lark import Lark

SYNTAX = "parse error"
TOO_LARGE = "limit error"
"""The code of a finding about a text, or a part of one, that exceeds a limit. The message names the limit."""

# Python strings can hold what no UTF-8 file can; it must never reach a message or a persisted catalog.
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class TextSpan(Struct, frozen=True, eq=False, gc=False):
    """The characters `text[start:end]` that a node was read from. Takes no part in comparing nodes."""

    start: int
    end: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpan)

    def __hash__(self) -> int:
        return 0


NOWHERE = TextSpan(0, 0)


class SyntaxNode(Struct, frozen=True, kw_only=True):
    """A part of a syntax tree. Its position comes last and does not count when two trees are compared."""

    at: TextSpan = NOWHERE


class Name(SyntaxNode, frozen=True):
    """An identifier as written."""

    text: str


class MalformedTokenError(Exception):
    """A text that a grammar admits and the language does not, such as an integer beyond 64 bits."""

    def __init__(self, message: str, at: TextSpan) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


class SourceText:
    """The text of one file. Offsets count characters; a `Span` reports bytes, as wire clients do."""

    def __init__(self, text: str, path: str | None = None) -> None:
        self.text = text
        self.path = path

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    @cached_property
    def _line_bytes(self) -> list[int]:
        """The byte offset at which each line starts."""
        if self.text.isascii():
            return self._line_starts
        offsets = [0]
        for start, end in pairwise(self._line_starts):
            offsets.append(offsets[-1] + _byte_length(self.text[start:end]))
        return offsets

    def span(self, start: int, end: int) -> Span:
        """The span of `text[start:end]`; a zero-width one is widened to 1: there must be something to point at."""
        line = bisect_right(self._line_starts, start)  # lines count from 1
        line_start = self._line_starts[line - 1]
        first = self._line_bytes[line - 1] + _byte_length(self.text[line_start:start])
        last = first + _byte_length(self.text[start:end])
        return Span(line=line, column=start - line_start + 1, start=first, end=max(last, first + 1))

    def line_text(self, line: int) -> str:
        start = self._line_starts[line - 1]
        end = self.text.find("\n", start)
        shown = self.text[start : len(self.text) if end < 0 else end].rstrip("\r")
        return LONE_SURROGATE.sub("\ufffd", shown)

    def check_size(self, name: str, limit: int, remedy: str) -> None:
        """Raises `CompileError` for a text of more bytes than the limit of this name allows."""
        # Characters first: a text of a hundred megabytes is not encoded to learn that it is too long.
        size = len(self.text) if len(self.text) > limit else _byte_length(self.text)
        if size > limit:
            message = f"{name}: the text has {size} bytes, the limit is {limit}"
            end = TextSpan(len(self.text), len(self.text))
            raise CompileError([self.diagnostic(TOO_LARGE, message, end, suggestion=remedy)])

    def diagnostic(self, code: str, message: str, at: TextSpan, *, suggestion: str | None = None) -> Diagnostic:
        span = self.span(at.start, at.end)
        line = self.line_text(span.line)
        return Diagnostic(
            code=code,
            message=message,
            span=span,
            source_line=line if len(line) <= LONGEST_SHOWN_LINE else None,
            suggestion=suggestion,
            path=self.path,
        )


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# A file of garbage has as many errors as words; nobody reads past the first screens.
MOST_DIAGNOSTICS = 200
# A line that fills screens is not shown: its position has to do.
LONGEST_SHOWN_LINE = 1000
# Beyond that many names of about the right length a guess costs more than it helps.
MOST_CANDIDATES = 1000
LEAST_SIMILARITY = 0.7


class DiagnosticSink:
    """Collects what the phases of one compilation find, so that a person sees every error of a file at once."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []

    def report(self, code: str, message: str, at: TextSpan, *, suggestion: str | None = None) -> None:
        """Add one finding; the compilation ends here when there are too many."""
        self.diagnostics.append(self.source.diagnostic(code, message, at, suggestion=suggestion))
        if len(self.diagnostics) >= MOST_DIAGNOSTICS:
            self.raise_if_any()

    def raise_if_any(self) -> None:
        if self.diagnostics:
            raise CompileError(in_source_order(self.diagnostics))


def in_source_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Stable by position: two findings at one place keep the order in which the phases made them."""
    return sorted(diagnostics, key=lambda d: d.span.start if d.span else -1)


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A suggestion when a known name is near `name`; None when a guess would only mislead."""
    names = sorted(set(candidates) - {name})
    folded = {candidate.casefold(): candidate for candidate in reversed(names)}
    if name.casefold() in folded:
        return f"did you mean '{folded[name.casefold()]}'?"
    similar = [candidate for candidate in names if abs(len(candidate) - len(name)) <= 1 + len(name) // 3]
    near = _most_similar(name, similar[:MOST_CANDIDATES])
    return f"did you mean '{near}'?" if near else None


def one_of(phrases: Sequence[str]) -> str:
    """The phrases as a message lists them: `a, b or c`."""
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} or {phrases[-1]}"


def _most_similar(name: str, candidates: Iterable[str]) -> str | None:
    """What `difflib.get_close_matches` puts first. Only candidates that could beat the best so far are compared in
    full, because a full comparison costs far more than the two bounds before it."""
    matcher = SequenceMatcher(b=name)
    least, best = LEAST_SIMILARITY, None
    for candidate in candidates:
        matcher.set_seq1(candidate)
        if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
            continue
        ratio = matcher.ratio()
        if ratio > least or (ratio == least and (best is None or candidate > best)):
            least, best = ratio, candidate
    return best


# A string first, so that a comment sign inside one is not a comment. An unclosed string or comment runs to the end
# of the text, and nothing backtracks: scanning is linear in any input.
_STRINGS_AND_COMMENTS = re.compile(
    r'(?P<string>"(?>[^"\\]+|\\.)*+"?)|(?P<comment>//[^\n]*|/\*(?>[^*]+|\*(?!/))*+(?:\*/)?)', re.DOTALL
)

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_UNESCAPED = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPED = {ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}


class Comment(NamedTuple):
    """One comment with its delimiters, as written."""

    start: int
    end: int
    text: str


def unquote(literal: str, start: int = 0) -> str:
    """The value of a literal with its quotes, which begins at `start`. Raises for an escape that does not exist."""
    if "\\" not in literal:
        return literal[1:-1]
    for match in _ESCAPE.finditer(literal, 1, len(literal) - 1):
        if match.group(1) not in _UNESCAPED:
            message = f"unsupported escape sequence '{match.group()}' in a string; use \\\" \\\\ \\n \\r or \\t"
            raise MalformedTokenError(message, TextSpan(start + match.start(), start + match.end()))
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


def between(first: Any, last: Any) -> TextSpan:
    """The span from one token of a parser to another."""
    return TextSpan(first.start_pos, last.end_pos)


def name_of(token: Any) -> Name:
    return Name(str(token), at=TextSpan(token.start_pos, token.end_pos))


def text_of(token: Any) -> str:
    """The value of a string token."""
    return unquote(token, token.start_pos)


def grammar_parser(package: str, transformer: object, **options: Any) -> Lark:
    """Return the LALR parser of the `grammar.lark` in a package; the transformer builds the trees while it parses.

    Lark keeps the tables of the parser in `__pycache__`, as Python keeps byte code: reading them takes a tenth of the
    time of analysing the grammar. Tables that are missing, damaged or made from another grammar are made again.
    """
    from lark import Lark

    folder = import_module(package).__path__[0]
    with open(f"{folder}/grammar.lark", encoding="utf-8") as file:
        grammar = file.read()
    tables = f"{folder}/__pycache__/grammar.{sys.implementation.cache_tag}.tables"
    with without_collections():
        return Lark(grammar, parser="lalr", transformer=transformer, cache=tables, **options)
