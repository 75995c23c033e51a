"""The names of a schema: where each type and property is declared and mentioned, and which properties are one.

A property that a node type has from an interface is the same property, wherever it is declared: it is renamed
everywhere or nowhere. Declarations that don't parse are left out, the others are complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from omnigraph.errors import CompileError, Diagnostic
from omnigraph.language.catalog import Catalog
from omnigraph.language.schema import syntax as ast
from omnigraph.language.schema.check import declare
from omnigraph.language.schema.compile import build_catalog
from omnigraph.language.schema.parser import parse_recovering
from omnigraph.language.source import DiagnosticSink, Name, SourceText, TextSpan


class SymbolKind(StrEnum):
    NODE = "node"
    EDGE = "edge"
    INTERFACE = "interface"
    PROPERTY = "property"
    VARIABLE = "variable"
    PARAMETER = "parameter"
    QUERY = "query"
    FUNCTION = "function"


TYPE_KINDS: Final = frozenset({SymbolKind.NODE, SymbolKind.EDGE, SymbolKind.INTERFACE})


class Symbol(Struct, frozen=True):
    """What a name means. The owner of a property is the type key (`node:Person`) that stands for all types which share
    it, that of a variable its query and stage."""

    kind: SymbolKind
    name: str
    owner: str = ""

    @property
    def is_of_schema(self) -> bool:
        return self.kind in TYPE_KINDS or self.kind is SymbolKind.PROPERTY


class Occurrence(Struct, frozen=True):
    """A name in a text. A property of a variable that has several types may mean several symbols. `owners` are the type
    keys of a property as it was read."""

    at: TextSpan
    symbols: tuple[Symbol, ...]
    declares: bool = False
    owners: tuple[str, ...] = ()

    def has(self, offset: int) -> bool:
        return self.at.start <= offset <= self.at.end


def occurrence_at(occurrences: tuple[Occurrence, ...], offset: int) -> Occurrence | None:
    """The name that the cursor is on, or directly before or behind; where two meet, the one that begins here."""
    touched = [each for each in occurrences if each.has(offset)]
    return max(touched, key=lambda each: each.at.start, default=None)


_KINDS: Final[Mapping[type, SymbolKind]] = {
    ast.Node: SymbolKind.NODE,
    ast.Edge: SymbolKind.EDGE,
    ast.Interface: SymbolKind.INTERFACE,
}


def kind_of_declaration(declaration: ast.Declaration) -> SymbolKind:
    return _KINDS[type(declaration)]


def key_of_declaration(declaration: ast.Declaration) -> str:
    return f"{kind_of_declaration(declaration)}:{declaration.name.text}"


def properties_of(declaration: ast.Declaration) -> Iterator[ast.Property]:
    """The properties in the body of a declaration."""
    for member in declaration.members or ():
        if isinstance(member, ast.Property):
            yield member


class SchemaIndex:
    """The names of one schema text. `catalog` is None when the text has mistakes."""

    def __init__(
        self, path: Path, text: str, tree: ast.Schema, diagnostics: tuple[Diagnostic, ...], catalog: Catalog | None
    ) -> None:
        self.path = path
        self.text = text
        self.diagnostics = diagnostics
        self.catalog = catalog
        self.declarations = tree.declarations
        self.types = {key_of_declaration(each): each for each in reversed(tree.declarations)}
        self._edges_by_folded_name = {each.name.text.lower(): each for each in self._edges()}
        self._representatives = self._join_properties()
        self.occurrences = tuple(sorted(self._occurrences(), key=lambda each: each.at.start))

    def _edges(self) -> Iterator[ast.Edge]:
        return (each for each in self.declarations if isinstance(each, ast.Edge))

    def _join_properties(self) -> dict[tuple[str, str], str]:
        """The type key that stands for a property, by owner and name."""
        joined: dict[tuple[str, str], tuple[str, str]] = {}

        def find(prop: tuple[str, str]) -> tuple[str, str]:
            while joined.setdefault(prop, prop) != prop:
                prop = joined[prop]
            return prop

        for key, declaration in self.types.items():
            for prop in properties_of(declaration):
                find((key, prop.name.text))
            for interface in declaration.implements if isinstance(declaration, ast.Node) else ():
                contract = f"{SymbolKind.INTERFACE}:{interface.text}"
                for prop in properties_of(self.types[contract]) if contract in self.types else ():
                    joined[find((key, prop.name.text))] = find((contract, prop.name.text))
        return {prop: find(prop)[0] for prop in list(joined)}

    # ---- symbols ----------------------------------------------------------------------------------------

    def node_or_interface(self, name: str) -> Symbol:
        """What an end of an edge or a pattern names: a node type comes first."""
        is_interface = f"{SymbolKind.NODE}:{name}" not in self.types and f"{SymbolKind.INTERFACE}:{name}" in self.types
        return Symbol(SymbolKind.INTERFACE if is_interface else SymbolKind.NODE, name)

    def edge(self, name: str) -> Symbol:
        """An edge type as a query spells it: exact first, then by lower case."""
        declaration = self.types.get(f"{SymbolKind.EDGE}:{name}") or self._edges_by_folded_name.get(name.lower())
        return Symbol(SymbolKind.EDGE, name if declaration is None else declaration.name.text)

    def node_or_edge(self, name: str) -> Symbol:
        is_node = f"{SymbolKind.NODE}:{name}" in self.types
        return Symbol(SymbolKind.NODE, name) if is_node else self.edge(name)

    def has(self, symbol: Symbol) -> bool:
        if symbol.kind is SymbolKind.PROPERTY:
            return (symbol.owner, symbol.name) in self._representatives
        return f"{symbol.kind}:{symbol.name}" in self.types

    def property(self, owner: str, name: str) -> Symbol | None:
        """The property of a type, which `owner` names by its key."""
        representative = self._representatives.get((owner, name))
        return None if representative is None else Symbol(SymbolKind.PROPERTY, name, representative)

    def members_of(self, name: str) -> list[str]:
        """The keys of the node types that a type name in a query stands for."""
        key = f"{SymbolKind.NODE}:{name}"
        if key in self.types:
            return [key]
        nodes = ((key, each) for key, each in self.types.items() if isinstance(each, ast.Node))
        return [key for key, node in nodes if any(each.text == name for each in node.implements)]

    def property_names(self, owner: str) -> list[str]:
        return [name for key, name in self._representatives if key == owner]

    def declaration_of(self, owner: str, name: str) -> tuple[str, ast.Property] | None:
        """The declaration of a property: in the type itself, else in an interface that it implements."""
        representative = self._representatives.get((owner, name))
        shared = [key for (key, other), r in self._representatives.items() if other == name and r == representative]
        for key in dict.fromkeys((owner, *(key for key in shared if key.startswith(SymbolKind.INTERFACE)), *shared)):
            declaration = self.types.get(key)
            prop = next((p for p in properties_of(declaration) if p.name.text == name), None) if declaration else None
            if prop is not None:
                return key, prop
        return None

    # ---- occurrences ------------------------------------------------------------------------------------

    def _occurrences(self) -> Iterator[Occurrence]:
        for declaration in self.declarations:
            symbol = Symbol(kind_of_declaration(declaration), declaration.name.text)
            yield Occurrence(declaration.name.at, (symbol,), declares=True)
            if isinstance(declaration, ast.Node):
                for name in declaration.implements:
                    yield Occurrence(name.at, (Symbol(SymbolKind.INTERFACE, name.text),))
            elif isinstance(declaration, ast.Edge):
                for name in (declaration.source, declaration.target):
                    yield Occurrence(name.at, (self.node_or_interface(name.text),))
            for member in declaration.members or ():
                yield from self._of_member(key_of_declaration(declaration), member)

    def _of_member(self, owner: str, member: ast.Member) -> Iterator[Occurrence]:
        if isinstance(member, ast.Property):
            yield from self._of_property(owner, member.name, declares=True)
            for annotation in member.annotations:
                value = annotation.value
                if annotation.name == "embed" and value is not None:
                    inset = 1 if value.kind == "string" else 0
                    at = TextSpan(value.at.start + inset, value.at.end - inset)
                    yield from self._of_property(owner, Name(value.text, at=at))
            return
        for column in member.columns if isinstance(member, ast.ColumnsRule) else (member.column,):
            yield from self._of_property(owner, column)

    def _of_property(self, owner: str, name: Name, *, declares: bool = False) -> Iterator[Occurrence]:
        symbol = self.property(owner, name.text)
        if symbol is not None:
            yield Occurrence(name.at, (symbol,), declares, (owner,))


@lru_cache(maxsize=16)
def index_schema(path: Path, text: str) -> SchemaIndex:
    """The names and the findings of a schema. Never raises."""
    sink = DiagnosticSink(SourceText(text, str(path)))
    tree = ast.Schema()
    diagnostics: tuple[Diagnostic, ...] = ()
    catalog: Catalog | None = None
    try:
        tree, broken = parse_recovering(sink)
        declared = declare(tree, broken, sink)
        sink.raise_if_any()
        catalog, _ = build_catalog(declared, by_name=False)
    except CompileError as error:
        diagnostics = error.diagnostics
    return SchemaIndex(path, text, tree, diagnostics, catalog)
