"""A YAML file of rules or of tests, read strictly: whatever is not expected is refused, and by its place.

A bundle that means something else than it says could let somebody in, so nothing is guessed: no key is overlooked, none
may come twice, and what YAML takes for a number, a flag or nothing is no text. Reading ends at the first mistake.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, TypeVar

import yaml
from yaml.constructor import SafeConstructor
from yaml.reader import ReaderError

from omnigraph.errors import CompileError
from omnigraph.language.query.syntax import Place
from omnigraph.language.source import LONE_SURROGATE, SourceText, did_you_mean

_TAG = "tag:yaml.org,2002:"
_KINDS = {yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list"}
_SCALARS = {"null": "empty", "bool": "a flag", "int": "a number", "float": "a number", "timestamp": "a date"}

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Text:
    """A text and where it stands."""

    value: str
    at: Place

    @property
    def is_blank(self) -> bool:
        return not self.value.strip()


class Document:
    """One file. `code` is the code of everything that is found wrong with it."""

    def __init__(self, text: str, path: str | None, code: str) -> None:
        self.source = SourceText(text, path)
        self.code = code

    def refuse(self, message: str, at: Place, suggestion: str | None = None) -> NoReturn:
        raise CompileError([self.source.diagnostic(self.code, message, at.start, at.end, suggestion=suggestion)])

    def root(self) -> Value:
        try:
            node = yaml.compose(self.source.text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            start = 0 if mark is None else mark.index
            self.refuse(f"this is not YAML: {error.problem or error.context}", Place(start, start))
        except ReaderError as error:
            at = Place(error.position, error.position + 1)
            self.refuse(f"this is not YAML: it holds the character U+{error.character:04X}", at)
        except RecursionError:
            self.refuse("this is not YAML: it is nested too deeply", Place(0, 0))
        if node is None:
            self.refuse("the file is empty", Place(0, 0))
        return Value(self, node, "the file")


def _place(node: yaml.Node) -> Place:
    return Place(node.start_mark.index, node.end_mark.index)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the file. `name` is how messages call it."""

    document: Document
    node: yaml.Node
    name: str

    @property
    def at(self) -> Place:
        return _place(self.node)

    def refuse(self, message: str, suggestion: str | None = None) -> NoReturn:
        self.document.refuse(message, self.at, suggestion)

    def entries(self) -> list[tuple[Text, Value]]:
        """The members of a mapping whose names are free, in file order."""
        if not isinstance(self.node, yaml.MappingNode):
            self._expected("a mapping (name: value)")
        seen: set[str] = set()
        entries = []
        for key, value in self.node.value:
            name = Value(self.document, key, f"a key of {self.name}").text()
            if name.value in seen:
                self.document.refuse(f"{self.name} holds the key '{name.value}' twice", name.at)
            seen.add(name.value)
            entries.append((name, Value(self.document, value, self._inner(name.value))))
        return entries

    def members(self, known: Collection[str], required: Collection[str] = ()) -> dict[str, Value]:
        """The members of a mapping whose names are settled."""
        found: dict[str, Value] = {}
        for name, value in self.entries():
            if name.value not in known:
                hint = did_you_mean(name.value, known) or f"known here: {', '.join(known)}"
                self.document.refuse(f"{self.name} has an unknown key '{name.value}'", name.at, hint)
            found[name.value] = value
        for wanted in required:
            if wanted not in found:
                self.refuse(f"{self.name} lacks the key '{wanted}'")
        return found

    def items(self) -> list[Value]:
        if not isinstance(self.node, yaml.SequenceNode):
            self._expected("a list")
        return [Value(self.document, item, f"{self.name}[{i}]") for i, item in enumerate(self.node.value)]

    def text(self) -> Text:
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != f"{_TAG}str":
            self._expected("a text")
        if LONE_SURROGATE.search(self.node.value):
            self.refuse(f"{self.name} holds half of a surrogate pair, which is no character")
        return Text(self.node.value, self.at)

    def whole_number(self) -> int:
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != f"{_TAG}int":
            self._expected("a whole number")
        try:
            return int(SafeConstructor().construct_yaml_int(self.node))
        except ValueError:
            self._expected("a whole number")

    def choice(self, kind: type[Choice]) -> Choice:
        """One of the words of an enumeration."""
        given = self.text().value
        words = [member.value for member in kind]
        if given not in words:
            self.refuse(f"{self.name} is '{given}' and must be one of {', '.join(words)}", did_you_mean(given, words))
        return kind(given)

    def _inner(self, name: str) -> str:
        return name if self.name == "the file" else f"{self.name}.{name}"

    def _expected(self, wanted: str) -> NoReturn:
        if not isinstance(self.node, yaml.ScalarNode):
            self.refuse(f"{self.name} must be {wanted}, not {_KINDS[type(self.node)]}")
        kind = _SCALARS.get(self.node.tag.removeprefix(_TAG))
        written = f"'{LONE_SURROGATE.sub(chr(0xFFFD), self.node.value)}'"
        if self.node.tag == f"{_TAG}null":
            self.refuse(f"{self.name} must be {wanted} and is empty")
        quotes = "put it in quotes" if wanted == "a text" and kind is not None else None
        self.refuse(f"{self.name} must be {wanted}, not {written}" + (f", which is {kind}" if kind else ""), quotes)
