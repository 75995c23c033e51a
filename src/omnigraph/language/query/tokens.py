"""Cuts query text into tokens.

Keywords are not recognised here: whether `match` is a keyword depends on its position, which only the parser knows.
"""

from __future__ import annotations

import re

from lark import Token

WORD = "IDENT"
VARIABLE = "VAR"
EDGE_VARIABLE = "EDGE_VAR"
LESS = "LESS"
ANGLE = "ANGLE"
PUNCTUATION = "PUNCTUATION"
INVALID = "INVALID"
END = "$END"

RESERVED_WORDS = frozenset({"and", "or", "not", "is", "null", "in", "case"})
"""They name something only where nothing but a name may be: behind a dot, before a colon, behind `query`."""

# Every position matches something, and a string or comment that never closes swallows the rest: trying again one
# character further on would be quadratic.
_SCANNER = re.compile(
    r"""[ \t\r\n]*+(?:
      (?P<VAR>\$[a-z_][A-Za-z0-9_]*)
    | (?P<IDENT>[a-z_][A-Za-z0-9_]*)
    | (?P<TYPE_NAME>[A-Z][A-Za-z0-9_]*)
    | (?P<PUNCTUATION>[{}()\[\],:.?|;*-])
    | (?P<EQUAL>=)
    | (?P<COMPARISON>>=|<=|!=)
    | (?P<LESS><)
    | (?P<GREATER>>)
    | (?P<STRING>"(?:[^"\\]|\\.)*+")
    | (?P<FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    | (?P<INT>[0-9]+)
    | (?P<META>@(?:description|instruction)\b)
    | (?P<FIELD>@(?:id|src|dst|type)\b)
    | (?P<COMMENT>//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)
    | (?P<INVALID>(?:"|/\*).*|@[A-Za-z0-9_]*|[^+/%])
    | (?P<ARITHMETIC>[+/%])
    | \Z
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class Lexeme(Token):
    """A token with its character offsets. Lines and columns are derived when a message needs them."""

    __slots__ = ()

    # Lexemes are looked up by their text all the time, and lark's own comparison is a function of Python.
    __eq__ = str.__eq__
    __hash__ = str.__hash__

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
