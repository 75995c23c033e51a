"""Cuts query text into tokens.

Keywords are not recognised here: whether `match` is a keyword depends on its position, which only the parser knows.
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


def scan(text: str) -> tuple[list[Lexeme], Lexeme]:
    """The tokens of a text in order, and the one that ends them."""
    tokens: list[Lexeme] = []
    for match in _SCANNER.finditer(text):
        kind = match.lastgroup
        if kind is None:
            break
        if kind != "COMMENT":
            word = match[kind]
            end = match.end()
            tokens.append(Lexeme(kind, word, end - len(word), end))
    return tokens, Lexeme(END, "", len(text), len(text))
