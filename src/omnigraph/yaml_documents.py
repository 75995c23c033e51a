"""YAML texts whose every value knows its position: policy bundles, cluster configurations, pipeline files.

A reader asks a `Value` for the shape it expects. Any other shape becomes a finding with line, column and remedy, and
the reader gets a placeholder, so that one pass finds every mistake; a document with findings must never be used.
Nothing here knows what a file is for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import yaml
from yaml.reader import ReaderError

from omnigraph.errors import CompileError, Diagnostic
from omnigraph.language.source import LONE_SURROGATE, SourceText, TextSpan, did_you_mean, in_source_order

_TAG: Final = "tag:yaml.org,2002:"
_KINDS: Final = {"null": "empty", "bool": "a flag", "int": "a number", "float": "a number", "timestamp": "a date"}

Choice = TypeVar("Choice", bound=StrEnum)
Placeholder = TypeVar("Placeholder")


class Flaw(StrEnum):
    """The kinds of mistakes that a document finds by itself."""

    SYNTAX = "syntax"
    SHAPE = "shape"
    REPEATED_KEY = "repeated_key"
    CHOICE = "choice"
    UNKNOWN_KEY = "unknown_key"
    MISSING_KEY = "missing_key"


class Finding(NamedTuple):
    """A mistake. `key` is the dotted name of the value or key that it is about."""

    code: str
    key: str
    diagnostic: Diagnostic


@dataclass(frozen=True, slots=True)
class Text:
    """A text and its position."""

    value: str
    at: TextSpan

    @property
    def is_blank(self) -> bool:
        return not self.value.strip()


@dataclass(eq=False)
class YamlDocument:
    """One file. `codes` are the codes of its findings, by flaw, or one code for all of them; `name` is how messages
    call the document. With `stops_at_first` the first finding is raised. With `scalars_are_texts` numbers, flags and
    dates count as the texts that were written. Without `shows_values` no message quotes a value, which may be a secret.
    With `empty_is_absent` a key without a value is ignored."""

    text: InitVar[str]
    path: InitVar[str | None] = None
    codes: str | Mapping[Flaw, str] = ""
    _: KW_ONLY
    name: str = "the file"
    stops_at_first: bool = False
    scalars_are_texts: bool = False
    shows_values: bool = True
    empty_is_absent: bool = False
    source: SourceText = field(init=False)
    findings: list[Finding] = field(default_factory=list, init=False)

    def __post_init__(self, text: str, path: str | None) -> None:
        self.source = SourceText(text, path)

    def root(self) -> Value:
        """The outermost value. Raises `CompileError` for a text that is empty or not YAML."""
        try:
            node = yaml.compose(self.source.text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            start = 0 if mark is None else mark.index
            message, at = f"this is not YAML: {error.problem or error.context}", TextSpan(start, start)
        except ReaderError as error:
            message = f"this is not YAML: it holds the character U+{error.character:04X}"
            at = TextSpan(error.position, error.position + 1)
        except (yaml.YAMLError, ValueError):
            message, at = "this is not YAML", TextSpan(0, 0)
        except RecursionError:
            message, at = "this is not YAML: it is nested too deeply", TextSpan(0, 0)
        else:
            root = None if node is None else Value(self, node, self.name)
            if root is not None and not root.is_empty:
                return root
            message, at = f"{self.name} is empty", TextSpan(0, 0)
        remedy = "begin with `version: 1`" if message.endswith("is empty") else None
        raise CompileError([self._diagnostic(self.code(Flaw.SYNTAX), message, at, remedy)])

    def code(self, flaw: Flaw) -> str:
        return self.codes if isinstance(self.codes, str) else self.codes[flaw]

    def refuse(self, message: str, at: TextSpan, suggestion: str | None = None) -> NoReturn:
        """End the reading here."""
        raise CompileError([self._diagnostic(self.code(Flaw.SHAPE), message, at, suggestion)])

    def report(self, code: str, message: str, at: TextSpan, suggestion: str | None = None, key: str = "") -> None:
        diagnostic = self._diagnostic(code, message, at, suggestion)
        if self.stops_at_first:
            raise CompileError([diagnostic])
        self.findings.append(Finding(code, key, diagnostic))

    def raise_any(self) -> None:
        if self.findings:
            raise CompileError(in_source_order(finding.diagnostic for finding in self.findings))

    def _diagnostic(self, code: str, message: str, at: TextSpan, suggestion: str | None) -> Diagnostic:
        return self.source.diagnostic(code, message, at, suggestion=suggestion)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a document. `name` is how messages call it."""

    document: YamlDocument
    node: yaml.Node
    name: str

    @property
    def at(self) -> TextSpan:
        return TextSpan(self.node.start_mark.index, self.node.end_mark.index)

    @property
    def is_empty(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == f"{_TAG}null"

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def report(self, code: str, message: str, suggestion: str | None = None) -> None:
        self.document.report(code, message, self.at, suggestion, self.name)

    def plain(self) -> Any:
        """The value as Python objects, by the rules of safe YAML."""
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(self.node, deep=True)
        finally:
            loader.dispose()

    def find(self, *keys: str) -> Value | None:
        """The value at a path of keys, without findings; None when a key is absent or its value is empty."""
        value = self
        for wanted in keys:
            member = next((member for key, member in value.entries_quietly() if key == wanted), None)
            if member is None:
                return None
            value = member
        return None if value.is_empty else value

    def entries_quietly(self) -> list[tuple[str, Value]]:
        """The members of a mapping by their keys as they were written, without findings; none of any other value."""
        members = self.node.value if self.is_mapping else ()
        named = ((str(key.value), node) for key, node in members)
        return [(name, Value(self.document, node, self._member_name(name))) for name, node in named]

    def entries(self) -> list[tuple[Text, Value]]:
        """The members of a mapping with free names, in file order."""
        if self.is_empty and self.document.empty_is_absent:
            return []
        if not self.is_mapping:
            return self._expect("a mapping (name: value)", [])
        seen: set[str] = set()
        entries = []
        for key_node, node in self.node.value:
            count = len(self.document.findings)
            key = Value(self.document, key_node, f"a key of {self.name}").text()
            if len(self.document.findings) > count:
                continue
            if key.value in seen:
                self._report_key(Flaw.REPEATED_KEY, f"{self.name} holds the key '{key.value}' twice", key)
            seen.add(key.value)
            entries.append((key, Value(self.document, node, self._member_name(key.value))))
        return entries

    def members(
        self, names: Collection[str], required: Collection[str] = (), ignored: Collection[str] = ()
    ) -> dict[str, Value]:
        """The members of a mapping with fixed names. `ignored` names are left to the caller."""
        members: dict[str, Value] = {}
        for key, value in self.entries():
            if key.value in names:
                members[key.value] = value
            elif key.value not in ignored:
                hint = did_you_mean(key.value, names) or f"known here: {', '.join(names)}"
                self._report_key(Flaw.UNKNOWN_KEY, f"{self.name} has an unknown key '{key.value}'", key, hint)
        if self.document.empty_is_absent:
            members = {name: value for name, value in members.items() if not value.is_empty}
        for name in required if self.is_mapping or self.is_empty else ():
            if name not in members:
                self.report(self.document.code(Flaw.MISSING_KEY), f"{self.name} lacks the key '{name}'")
        return members

    def items(self) -> list[Value]:
        if not self.is_list:
            return self._expect("a list", [])
        return [Value(self.document, item, f"{self.name}[{i}]") for i, item in enumerate(self.node.value)]

    def text(self) -> Text:
        is_text = isinstance(self.node, yaml.ScalarNode) and (
            self.node.tag == f"{_TAG}str" or (self.document.scalars_are_texts and not self.is_empty)
        )
        text = str(self.node.value) if is_text else ""
        if not is_text:
            self._expect("a text", text)
        elif LONE_SURROGATE.search(text):
            self.report(self.document.code(Flaw.SHAPE), f"{self.name} holds half of a surrogate pair")
            text = ""
        return Text(text, self.at)

    def whole_number(self) -> int:
        try:
            number = self.plain() if isinstance(self.node, yaml.ScalarNode) else None
        except ValueError:
            number = None
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            return number
        return self._expect("a whole number", 0)

    def flag(self) -> bool:
        if isinstance(self.node, yaml.ScalarNode) and self.node.tag == f"{_TAG}bool":
            return bool(self.plain())
        return self._expect("true or false", False)

    def choice(self, kind: type[Choice]) -> Choice:
        """One of the words of an enumeration."""
        text = self.text().value
        words = [member.value for member in kind]
        if text in words:
            return kind(text)
        if text:
            of_value = f"is '{text}' and must" if self.document.shows_values else "must"
            message = f"{self.name} {of_value} be one of {', '.join(words)}"
            self.report(self.document.code(Flaw.CHOICE), message, did_you_mean(text, words))
        return next(iter(kind))

    def _member_name(self, name: str) -> str:
        return name if self.name == self.document.name else f"{self.name}.{name}"

    def _report_key(self, flaw: Flaw, message: str, key: Text, suggestion: str | None = None) -> None:
        dotted = self._member_name(key.value)
        self.document.report(self.document.code(flaw), message, key.at, suggestion, dotted)

    def _expect(self, wanted: str, placeholder: Placeholder) -> Placeholder:
        """Report that the value has another shape."""
        kind = _KINDS.get(self.node.tag.removeprefix(_TAG))
        quotes = None
        if self.is_empty:
            message = f"{self.name} must be {wanted} and is empty"
        elif not isinstance(self.node, yaml.ScalarNode):
            message = f"{self.name} must be {wanted}, not {'a mapping' if self.is_mapping else 'a list'}"
        else:
            quotes = "put it in quotes" if wanted == "a text" and kind is not None else None
            shown = f"'{LONE_SURROGATE.sub(chr(0xFFFD), self.node.value)}'" + (f", which is {kind}" if kind else "")
            message = f"{self.name} must be {wanted}, not {shown if self.document.shows_values else kind or 'a text'}"
        self.report(self.document.code(Flaw.SHAPE), message, quotes)
        return placeholder
