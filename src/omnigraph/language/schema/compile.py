"""The way from schema text to a catalog, and the only module that builds one.

Callers: lint and tests compile offline (source order, provisional identities), the engine accepts a schema into a
graph (sorted by name, identities that follow what was accepted before). Warm results are not cached here: a
schema is compiled once per graph version, and the catalog itself is what gets cached.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from omnigraph.errors import Diagnostic
from omnigraph.language.catalog import AnyType, Catalog, EdgeType, InterfaceType, NodeType
from omnigraph.language.schema.check import declare
from omnigraph.language.schema.identity import Allocator
from omnigraph.language.schema.parser import parse_recovering
from omnigraph.language.schema.resolved import DeclaredSchema
from omnigraph.language.source import DiagnosticSink, SourceText

Item = TypeVar("Item")


def declare_schema(text: str, path: str | None = None) -> DeclaredSchema:
    """Parse and check a schema; one error carries every finding, in source order."""
    sink = DiagnosticSink(SourceText(text, path))
    declared = declare(*parse_recovering(sink), sink)
    sink.raise_if_any()
    return declared


def compile_schema(text: str, path: str | None = None) -> Catalog:
    """The offline catalog of a schema file: source order, identities as a new graph would give them."""
    return build_catalog(declare_schema(text, path), by_name=False)[0]


def accept_schema(text: str, path: str | None = None) -> Catalog:
    """The catalog of a new graph with this schema: types, properties and rule columns sorted by name."""
    return build_catalog(declare_schema(text, path), by_name=True)[0]


def build_catalog(
    schema: DeclaredSchema, accepted: Catalog | None = None, *, by_name: bool
) -> tuple[Catalog, tuple[Diagnostic, ...]]:
    """The catalog of a schema that follows the accepted one, and notes about its hints. `by_name` gives the one
    canonical order of a live graph."""
    types, next_id, notes = Allocator(schema, accepted).allocate()
    if by_name:
        types = sorted(map(_in_order, types), key=lambda type_: type_.name)
    catalog = Catalog(
        nodes={type_.name: type_ for type_ in types if isinstance(type_, NodeType)},
        edges={type_.name: type_ for type_ in types if isinstance(type_, EdgeType)},
        interfaces={type_.name: type_ for type_ in types if isinstance(type_, InterfaceType)},
        next_id=next_id,
    )
    return catalog, notes


def _in_order(type_: AnyType) -> AnyType:
    """The same type with its properties, rules and annotations sorted; its key keeps the order of ids."""
    properties = (replace(prop, annotations=_by_text(prop.annotations)) for prop in type_.property_list)
    type_ = replace(type_, property_list=tuple(sorted(properties, key=lambda prop: prop.name)))
    if isinstance(type_, InterfaceType):
        return type_
    uniques, indexes = (tuple(sorted(tuple(sorted(c)) for c in rule)) for rule in (type_.uniques, type_.indexes))
    type_ = replace(type_, uniques=uniques, indexes=indexes, annotations=_by_text(type_.annotations))
    if isinstance(type_, EdgeType):
        return type_
    implements = tuple(sorted(type_.implements))
    return replace(type_, ranges=_by_text(type_.ranges), checks=_by_text(type_.checks), implements=implements)


def _by_text(items: tuple[Item, ...]) -> tuple[Item, ...]:
    return tuple(sorted(items, key=repr))
