"""The way from schema text to a catalog, and the only module that builds one.

Callers: lint and tests compile offline (source order, provisional identities), the engine accepts a schema into a
graph (sorted by name, identities that follow what was accepted before). Warm results are not cached here: a
schema is compiled once per graph version, and the catalog itself is what gets cached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from omnigraph.language.catalog import Catalog, EdgeType, InterfaceType, NodeType, Property
from omnigraph.language.schema.check import declare
from omnigraph.language.schema.identity import Identities, TypeIdentity, allocate
from omnigraph.language.schema.parser import parse_recovering
from omnigraph.language.schema.resolved import (
    DeclaredEdge,
    DeclaredInterface,
    DeclaredNode,
    DeclaredProperty,
    DeclaredSchema,
)
from omnigraph.language.source import DiagnosticSink, SourceText

Item = TypeVar("Item")


def declare_schema(text: str, path: str | None = None) -> DeclaredSchema:
    """Parse and check a schema; one error carries every finding, in source order."""
    sink = DiagnosticSink(SourceText(text, path))
    declared = declare(parse_recovering(sink), sink)
    sink.raise_if_any()
    return declared


def compile_schema(text: str, path: str | None = None) -> Catalog:
    """The offline catalog of a schema file: source order, identities as a new graph would give them."""
    schema = declare_schema(text, path)
    return build_catalog(schema, allocate(schema), by_name=False)


def accept_schema(text: str, path: str | None = None) -> Catalog:
    """The catalog of a new graph with this schema: types, properties and rule columns sorted by name."""
    schema = declare_schema(text, path)
    return build_catalog(schema, allocate(schema), by_name=True)


def build_catalog(schema: DeclaredSchema, identities: Identities, *, by_name: bool) -> Catalog:
    """Join declarations with their identities. `by_name` gives the one canonical order of a live graph."""
    builder = _Builder(identities, by_name)
    interfaces = [builder.interface(declared) for declared in schema.interfaces.values()]
    nodes = [builder.node(declared) for declared in schema.nodes.values()]
    edges = [builder.edge(declared) for declared in schema.edges.values()]
    if by_name:
        interfaces.sort(key=lambda t: t.name)
        nodes.sort(key=lambda t: t.name)
        edges.sort(key=lambda t: t.name)
    return Catalog(
        nodes={node.name: node for node in nodes},
        edges={edge.name: edge for edge in edges},
        interfaces={interface.name: interface for interface in interfaces},
        next_id=identities.next_id,
    )


class _Builder:
    def __init__(self, identities: Identities, by_name: bool) -> None:
        self.identities = identities
        self.by_name = by_name

    def interface(self, declared: DeclaredInterface) -> InterfaceType:
        identity = self.identities.types["interface", declared.name.text]
        return InterfaceType(
            name=declared.name.text,
            id=identity.id,
            property_list=self._properties(declared.properties.values(), identity),
        )

    def node(self, declared: DeclaredNode) -> NodeType:
        identity = self.identities.types["node", declared.name.text]
        return NodeType(
            name=declared.name.text,
            id=identity.id,
            table_incarnation=identity.incarnation,
            birth_name=identity.birth_name,
            property_list=self._properties(declared.properties.values(), identity),
            used_columns=identity.used_columns,
            key=tuple(sorted(declared.key, key=lambda name: identity.properties[name].id)),
            uniques=self._column_tuples(declared.uniques),
            indexes=self._column_tuples(declared.indexes),
            ranges=self._ordered(declared.ranges),
            checks=self._ordered(declared.checks),
            implements=tuple(sorted(declared.implements)) if self.by_name else declared.implements,
            description=declared.description,
            instruction=declared.instruction,
            annotations=self._ordered(declared.annotations),
        )

    def edge(self, declared: DeclaredEdge) -> EdgeType:
        identity = self.identities.types["edge", declared.name.text]
        return EdgeType(
            name=declared.name.text,
            id=identity.id,
            table_incarnation=identity.incarnation,
            birth_name=identity.birth_name,
            from_type=declared.source.text,
            to_type=declared.target.text,
            cardinality=declared.cardinality,
            property_list=self._properties(declared.properties.values(), identity),
            used_columns=identity.used_columns,
            uniques=self._column_tuples(declared.uniques),
            indexes=self._column_tuples(declared.indexes),
            description=declared.description,
            instruction=declared.instruction,
            annotations=self._ordered(declared.annotations),
        )

    def _properties(self, declared: Iterable[DeclaredProperty], identity: TypeIdentity) -> tuple[Property, ...]:
        built = (self._property(prop, identity) for prop in declared)
        return tuple(sorted(built, key=lambda p: p.name)) if self.by_name else tuple(built)

    def _property(self, declared: DeclaredProperty, identity: TypeIdentity) -> Property:
        name = declared.name.text
        known = identity.properties[name]
        return Property(
            name=name,
            id=known.id,
            type=declared.type,
            column=known.column,
            inline=tuple(sorted(declared.inline)),
            embed=declared.embed,
            metric=declared.metric,
            description=declared.description,
            annotations=self._ordered(declared.annotations),
            interfaces=tuple(sorted(declared.interfaces)),
            injected=declared.injected,
        )

    def _column_tuples(self, tuples: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        return tuple(sorted(tuple(sorted(columns)) for columns in tuples)) if self.by_name else tuples

    def _ordered(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        return tuple(sorted(items, key=repr)) if self.by_name else items
