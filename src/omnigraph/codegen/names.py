"""Names in generated code: words in the case of a language, and scopes in which no name is used twice.

The writers of both languages use it. A name of a schema or a query keeps its letters; a scope adds an underscore where
a language, or an earlier name, has the word already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORD = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z0-9]+")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_]+")


def words(name: str) -> list[str]:
    """The words of a name in any case: `lentBooks`, `lent_books` and `Lent books` have the same two."""
    return [word.lower() for word in _WORD.findall(name)]


def snake_case(name: str) -> str:
    return _legal(name if name == name.lower() else "_".join(words(name)))


def camel_case(name: str) -> str:
    first, *rest = words(name) or [""]
    return _legal(first + "".join(map(str.capitalize, rest)))


def pascal_case(name: str) -> str:
    return _legal("".join(map(str.capitalize, words(name))) or "_")


def member_name(name: str) -> str:
    """A property or column as the name of a member: unchanged where it is an identifier, `b.title` as `b_title`."""
    return _legal(_ILLEGAL.sub("_", name).strip("_") if _ILLEGAL.search(name) else name)


def _legal(name: str) -> str:
    """An identifier: it is not empty and begins with a letter or an underscore."""
    return f"_{name}" if not name or name[0].isdigit() else name


class Scope:
    """The names of one module, class or signature. A name that is taken or reserved gets underscores at its end."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved)

    def add(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name
