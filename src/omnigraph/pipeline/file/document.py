"""A YAML file whose every value knows where it stands.

The model asks for what it expects (`text`, `mapping`, `choice`) and gets it, or a finding with line and column is
noted and reading goes on: a user sees all mistakes of a file at once. Nothing here knows what a pipeline is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.reader import ReaderError

from omnigraph.errors import CompileError, Diagnostic, Span
from omnigraph.language.source import did_you_mean


@dataclass
class Findings:
    """The mistakes of one file, and the text they are shown in."""

    text: str
    path: str | None
    found: list[Diagnostic] = field(default_factory=list)

    def add(self, code: str, message: str, mark: yaml.Mark, end: yaml.Mark | None = None, help: str = "") -> None:
        lines = self.text.splitlines()
        shown = lines[mark.line] if mark.line < len(lines) else ""
        stop = end.index if end is not None and end.line == mark.line else mark.index + 1
        span = Span(mark.line + 1, mark.column + 1, mark.index, stop)
        self.found.append(Diagnostic(code, message, span, shown, help or None, self.path))

    def raise_any(self) -> None:
        if self.found:
            raise CompileError(sorted(self.found, key=lambda d: (d.span.line, d.span.column) if d.span else (0, 0)))


@dataclass(frozen=True)
class Located:
    """A YAML value and its place. `name` is how messages call it."""

    node: yaml.Node
    name: str
    findings: Findings

    def complain(self, code: str, message: str, help: str = "") -> None:
        self.findings.add(code, message, self.node.start_mark, self.node.end_mark, help)

    @property
    def value(self) -> Any:
        return _VALUES.construct(self.node)

    def text(self) -> str | None:
        """A scalar as text; numbers and dates as they were written."""
        if isinstance(self.node, yaml.ScalarNode) and self.node.tag != "tag:yaml.org,2002:null":
            return str(self.node.value)
        self._expected("a text")
        return None

    def flag(self) -> bool | None:
        if isinstance(value := self.value, bool):
            return value
        self._expected("true or false")
        return None

    def whole_number(self) -> int | None:
        value = self.value
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        self._expected("a whole number, 0 or more")
        return None

    def choice(self, allowed: Iterable[str]) -> str | None:
        given, known = self.text(), list(allowed)
        if given is None or given in known:
            return given
        hint = did_you_mean(given, known) or ""
        self.complain("P004", f"{self.name} must be one of {', '.join(known)}, not '{given}'", hint)
        return None

    def mapping(self) -> dict[str, Located]:
        """Members in file order. A repeated one is a mistake, and the last counts."""
        if not isinstance(self.node, yaml.MappingNode):
            self._expected("a mapping (name: value)")
            return {}
        members: dict[str, Located] = {}
        for key, value in self.node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if not name:
                self.findings.add("P002", f"a name in {self.name} must be a text", key.start_mark)
            elif name in members:
                self.findings.add("P003", f"{self.name} holds '{name}' twice", key.start_mark, key.end_mark)
            members[name] = Located(value, f"{self.name}.{name}" if self.name != "the file" else name, self.findings)
        return members

    def members(self, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Located]:
        """As `mapping`, for a fixed set of names."""
        names = list(known)
        found = self.mapping()
        for name, member in found.items():
            if name and name not in names:
                hint = did_you_mean(name, names) or f"known here: {', '.join(names)}"
                key = next(k for k, v in self.node.value if v is member.node)
                self.findings.add("P005", f"{self.name} has no setting '{name}'", key.start_mark, key.end_mark, hint)
        if isinstance(self.node, yaml.MappingNode):
            for name in required:
                if name not in found:
                    self.complain("P006", f"{self.name} needs '{name}'")
        return {name: member for name, member in found.items() if name in names}

    def items(self) -> Iterator[Located]:
        if not isinstance(self.node, yaml.SequenceNode):
            self._expected("a list")
            return
        for number, item in enumerate(self.node.value):
            yield Located(item, f"{self.name}[{number}]", self.findings)

    def _expected(self, what: str) -> None:
        kinds = {yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.ScalarNode: "a single value"}
        self.complain("P002", f"{self.name} must be {what}, not {kinds[type(self.node)]}")


class _Values:
    """Plain values of a node by the rules of safe YAML."""

    def construct(self, node: yaml.Node) -> Any:
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(node, deep=True)
        finally:
            loader.dispose()


_VALUES = _Values()


def read_document(text: str, path: str | None = None) -> Located:
    """The root of a YAML text, or a CompileError that says where it stops being one."""
    findings = Findings(text, path)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark or yaml.Mark("", 0, 0, 0, None, None)
        findings.add("P001", f"this is not YAML: {error.problem or error.context}", mark)
        findings.raise_any()
        raise AssertionError("unreachable") from None
    except ReaderError as error:
        message = f"this is not YAML: the character {chr(error.character)!r} may not stand in it"
        before = text[: error.position]
        line, column = before.count("\n"), len(before) - before.rfind("\n") - 1
        findings.add("P001", message, yaml.Mark("", error.position, line, column, None, None))
        findings.raise_any()
        raise AssertionError("unreachable") from None
    except RecursionError:
        findings.add("P001", "this is not YAML: it is nested too deeply", yaml.Mark("", 0, 0, 0, None, None))
        findings.raise_any()
        raise AssertionError("unreachable") from None
    if root is None:
        findings.add("P001", "the file is empty", yaml.Mark("", 0, 0, 0, None, None))
        findings.raise_any()
    return Located(root, "the file", findings)
