"""What Tab offers: the names that fit where the cursor is.

Names of types, properties and edges come from the schema of the current branch, those of branches from the graph. A
schema that can't be read offers nothing; it never disturbs typing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from omnigraph.errors import OmniGraphError
from omnigraph.language.catalog import Catalog
from omnigraph.language.schema.compile import compile_schema

KEYWORDS = (
    *("query", "match", "return", "order", "limit", "not", "as", "desc", "asc", "insert", "update", "delete"),
    *("set", "where", "and", "or", "contains", "starts_with", "nearest", "bm25", "rrf", "search", "fuzzy"),
    *("count", "sum", "avg", "min", "max", "now", "date", "datetime"),
)
_BOUND = re.compile(r"\$(\w+)\s*:\s*([A-Za-z_]\w*)")
_INTO = re.compile(r"\b(?:insert|update|delete)\s+([A-Za-z_]\w*)[^}]*$")


@dataclass
class Names:
    """Where names come from. Each is asked for when it is needed, and remembered by who gives it."""

    schema: Callable[[], str]
    branches: Callable[[], Sequence[str]]
    queries: Callable[[], Iterable[str]]
    commands: Mapping[str, Sequence[str]]
    """The commands of the shell, with the words that may follow each."""

    _compiled: tuple[str, Catalog | None] = ("", None)

    def complete(self, before: str, word: str) -> list[str]:
        """What `word` may become, after the text that stands before it in the statement."""
        return sorted(name for name in self._fitting(before, word) if name.startswith(word))

    def _fitting(self, before: str, word: str) -> Iterable[str]:
        said = before.split()
        if not said and word.startswith(":"):
            return self.commands
        if said and said[0] in self.commands and said[0] not in (":explain", ":profile"):
            if said[0] == ":branch":
                return [*self.branches(), *self.commands[":branch"]]
            return self.commands[said[0]] or self._types()
        if "." in word and word.startswith("$"):
            variable, _, _ = word.partition(".")
            return [f"{variable}.{name}" for name in self._properties_of(variable[1:], before)]
        if word.startswith("$"):
            return [f"${name}" for name, _ in _BOUND.findall(before)]
        if (into := _INTO.search(before)) is not None:
            return self._properties_of_type(into[1])
        offered = [*KEYWORDS, *self._types(), *self._edges(), *(self.queries() if not said else ())]
        pinned = _BOUND.search(before.rpartition("{")[0].rpartition("\n")[2])
        if pinned is not None and before.rstrip().endswith(("{", ",")):
            offered += self._properties_of_type(pinned[2])
        return offered

    def _catalog(self) -> Catalog | None:
        try:
            text = self.schema()
            if text != self._compiled[0]:
                self._compiled = (text, compile_schema(text))
        except OmniGraphError:
            return None
        return self._compiled[1]

    def _types(self) -> list[str]:
        catalog = self._catalog()
        return [] if catalog is None else [*catalog.nodes, *catalog.edges, *catalog.interfaces]

    def _edges(self) -> list[str]:
        """As a traversal spells them: with a small initial."""
        catalog = self._catalog()
        return [] if catalog is None else [name[:1].lower() + name[1:] for name in catalog.edges]

    def _properties_of(self, variable: str, before: str) -> list[str]:
        bound = dict(_BOUND.findall(before)).get(variable)
        if bound is not None:
            return self._properties_of_type(bound)
        catalog = self._catalog()
        return [] if catalog is None else [name for type_ in catalog.types() for name in type_.properties]

    def _properties_of_type(self, name: str) -> list[str]:
        catalog = self._catalog()
        if catalog is None:
            return []
        # An edge is spelled with a small initial where it is walked.
        found = catalog.nodes.get(name) or catalog.interfaces.get(name) or catalog.edge_named(name)
        return [] if found is None else list(found.properties)
