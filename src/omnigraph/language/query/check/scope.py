"""The context of the type checker at one point of a query: the catalog, the visible names, the sink of findings.

Every module of this package works on a `Scope`. A name whose own declaration failed stays known as broken, so that one
mistake is reported once and not at every use.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from itertools import count

from omnigraph.language.catalog import Catalog, EdgeType, NodeType, Property, TableType
from omnigraph.language.query.syntax import Variable
from omnigraph.language.source import DiagnosticSink, Name, TextSpan, did_you_mean
from omnigraph.language.types import PropertyType

UNCODED = "type error"

# Looking for near names costs more than the rest of the check; beyond a screenful of findings nobody reads them.
_SUGGESTIONS = 20


class Scope:
    """One flat namespace per nesting level. `inner` opens a negation: it sees everything, and nothing gets out."""

    def __init__(self, catalog: Catalog, findings: DiagnosticSink) -> None:
        self.catalog = catalog
        self.findings = findings
        self.parameters: dict[str, PropertyType] = {}
        self.nodes: dict[str, NodeType] = {}
        self.edges: dict[str, EdgeType] = {}
        self.broken: set[str] = set()
        # What negations bound so far on their own, at any depth, with the place of the negation.
        self.introduced_inside: list[tuple[str, TableType, TextSpan]] = []
        self._hidden = count(1)

    def slot(self, variable: Variable) -> str:
        """The name of a variable. One use of `$_` has a name that no identifier can spell and no other use shares."""
        return f"#{next(self._hidden)}" if variable.is_anonymous else variable.name

    def inner(self) -> Scope:
        scope = copy(self)
        scope.nodes, scope.edges, scope.broken = dict(self.nodes), dict(self.edges), set(self.broken)
        scope.introduced_inside = []
        return scope

    def report(
        self,
        code: str,
        message: str,
        at: TextSpan,
        *,
        near: str | None = None,
        among: Iterable[str] = (),
        help: str | None = None,
    ) -> None:
        """One finding. `near` is the name that missed, `among` what it could have meant; `help` is any other remedy."""
        crowded = len(self.findings.diagnostics) >= _SUGGESTIONS
        suggestion = help if near is None or crowded else did_you_mean(near, among) or help
        self.findings.report(code, message, at, suggestion=suggestion)

    def property_of(self, owner: TableType, name: Name, code: str) -> Property | None:
        """The property of a type, or None after a finding under `code`."""
        prop = owner.properties.get(name.text)
        if prop is None:
            message = f"{owner.kind} type '{owner.name}' has no property '{name.text}'"
            self.report(code, message, name.at, near=name.text, among=owner.properties)
        return prop

    def binds(self, variable: str) -> bool:
        """Whether a node or an edge has this name."""
        return variable in self.nodes or variable in self.edges

    def variables(self) -> dict[str, TableType]:
        return {**self.nodes, **self.edges}


def spelled_variables(names: Iterable[str]) -> Iterable[str]:
    """Variables as they are written, for suggestions."""
    return (f"${name}" for name in names)
