"""The schema as an agent reads it: compiled from its text, and summarised type by type."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final

from omnigraph.language.catalog import Cardinality, Catalog, EdgeType, NodeType, Property, TableType
from omnigraph.language.schema.compile import compile_schema

_REMEMBERED: Final = 16


@lru_cache(_REMEMBERED)
def catalog_of(text: str) -> Catalog:
    return compile_schema(text)


def summary(catalog: Catalog) -> list[dict[str, Any]]:
    """Every type in the order of the source, nodes first: its properties as text, and the edges that touch it."""
    types: list[TableType] = [*catalog.nodes.values(), *catalog.edges.values()]
    return [_summary(type_, catalog) for type_ in types]


def _summary(type_: TableType, catalog: Catalog) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": type_.kind, "type": type_.name}
    if type_.description is not None:
        told["description"] = type_.description
    if type_.instruction is not None:
        told["instruction"] = type_.instruction
    if isinstance(type_, EdgeType):
        told |= {"from": type_.from_type, "to": type_.to_type, "written": traversal_name(type_)}
    elif type_.key:
        told["key"] = list(type_.key)
    told["properties"] = {prop.name: _property(type_, prop) for prop in type_.property_list}
    if rules := _rules(type_):
        told["rules"] = rules
    if isinstance(type_, NodeType):
        told["edges"] = [
            f"{edge.from_type} {traversal_name(edge)} {edge.to_type}" for edge in catalog.incident_edges(type_.name)
        ]
    return told


def _property(type_: TableType, prop: Property) -> str:
    notes = [prop.type.display]
    notes += [str(kind) for kind in type_.index_kinds(prop.name)]
    if prop.embed is not None:
        notes.append(f"{'computed from' if prop.embed.on_write else 'embeds'} {prop.embed.property}")
    if prop.description is not None:
        notes.append(prop.description)
    return ", ".join(notes)


def _rules(type_: TableType) -> list[str]:
    """What every write has to keep to, as the language of schemas spells it."""
    rules = [f"@unique({', '.join(names)})" for names in type_.uniques]
    if isinstance(type_, EdgeType):
        return rules if type_.cardinality == Cardinality() else [*rules, f"@card({type_.cardinality})"]
    for each in type_.ranges:
        low, high = ("" if bound is None else bound for bound in (each.low, each.high))
        rules.append(f"@range({each.property}, {low}..{high})")
    return [*rules, *(f"@check({each.property}, {json.dumps(each.pattern)})" for each in type_.checks)]


def traversal_name(edge: EdgeType) -> str:
    """How queries spell an edge type."""
    return edge.name[0].lower() + edge.name[1:]
