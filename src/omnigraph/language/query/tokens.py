"""Cuts query text into tokens and comments.

One scan serves the parser, its recovery and the formatter. Keywords are not recognised here: whether `match` is a
keyword depends on its position, which only the parser knows.
"""

from __future__ import annotations

import re

from lark import Token

WORD = "IDENT"
PUNCTUATION = "PUNCTUATION"
INVALID = "INVALID"
END = "$END"

# Every position matches something, and a string or comment that never closes swallows the rest: trying again one
# character further on would be quadratic.
_SCANNER = re.compile(
    r"""[ \t\r\n]*+(?:
      (?P<VAR>\$[a-z_][A-Za-z0-9_]*)
    | (?P<IDENT>[a-z_][A-Za-z0-9_]*)
    | (?P<TYPE_NAME>[A-Z][A-Za-z0-9_]*)
    | (?P<PUNCTUATION>[{}()\[\],:.?])
    | (?P<COMPARISON>>=|<=|!=|=)
    | (?P<LESS><)
    | (?P<GREATER>>)
    | (?P<STRING>"(?:[^"\\]|\\.)*+")
    | (?P<FLOAT>[0-9]+\.[0-9]+)
    | (?P<INT>[0-9]+)
    | (?P<META>@(?:description|instruction)\b)
    | (?P<COMMENT>//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)
    | (?P<INVALID>(?:"|/\*).*|@[A-Za-z0-9_]*|.)
    | \Z
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class Lexeme(Token):
    """A token with its character offsets. Lines and columns are derived when a message needs them."""

    __slots__ = ()

    start_pos: int
    end_pos: int

    def __new__(cls, kind: str, text: str, start: int, end: int) -> Lexeme:
        # lark's own constructor fills six position fields that nobody reads; it would cost a third of a parse.
        token = str.__new__(cls, text)
        token.type = kind
        token.value = text
        token.start_pos = start
        token.end_pos = end
        return token


class Scan:
    """What a text consists of: `tokens` in order, `comments` in order, and how the rest of it ends."""

    __slots__ = ("comments", "end", "tokens")

    def __init__(self, text: str) -> None:
        self.tokens: list[Lexeme] = []
        self.comments: list[Lexeme] = []
        self.end = Lexeme(END, "", len(text), len(text))
        for match in _SCANNER.finditer(text):
            kind = match.lastgroup
            if kind is None:
                break
            word = match[kind]
            end = match.end()
            lexeme = Lexeme(kind, word, end - len(word), end)
            (self.comments if kind == "COMMENT" else self.tokens).append(lexeme)
