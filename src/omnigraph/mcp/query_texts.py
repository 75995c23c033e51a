"""Queries that are written for an agent: a search over a type, and the neighbours of a node.

Columns are numbered, so that no property can have the name of another column. Values are parameters and never part of
the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Catalog, EdgeType, IndexKind, NodeType, Property, TableType
from omnigraph.language.source import did_you_mean
from omnigraph.language.types import FLOATS, Scalar
from omnigraph.mcp.schema import traversal_name

KEYWORD: Final = "keyword"
VECTOR: Final = "vector"
HYBRID: Final = "hybrid"


@dataclass(frozen=True, slots=True)
class Written:
    """A query, its parameters, and which property each numbered column holds."""

    source: str
    params: Mapping[str, Any]
    columns: Mapping[str, str]

    def properties(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a row by the names of their properties, without those that have none."""
        named = {name: row[column] for column, name in self.columns.items()}
        return {name: value for name, value in named.items() if value is not None}


def shown(type_: TableType, wanted: Iterable[str] | None = None) -> list[str]:
    """The properties that an agent can read: all but blobs, which queries never return, and vectors, which tell a
    reader nothing, unless they are asked for."""
    if wanted is None:
        return [prop.name for prop in type_.property_list if not (prop.type.is_blob or prop.type.is_vector)]
    return [property_of(type_, name).name for name in wanted]


def property_of(type_: TableType, name: str) -> Property:
    found = type_.properties.get(name)
    if found is None:
        hint = did_you_mean(name, type_.properties)
        raise BadRequestError(
            f"{type_.kind} type '{type_.name}' has no property '{name}'" + (f"; {hint}" if hint else "")
        )
    return found


# Search


def searched_text(type_: NodeType, name: str | None) -> str:
    """The property whose words are searched: the one that is named, else the text that is embedded, else the first
    with an index of its words, else the first text."""
    if name is not None:
        prop = property_of(type_, name)
        if not prop.type.is_free_text:
            raise BadRequestError(f"'{type_.name}.{name}' is {prop.type.display} and has no words to search")
        return name
    texts = [prop.name for prop in type_.property_list if prop.type.is_free_text]
    embedded = [prop.embed.property for prop in type_.property_list if prop.embed is not None]
    indexed = [text for text in texts if IndexKind.FULL_TEXT in type_.index_kinds(text) and (text,) != type_.key]
    for candidates in (embedded, indexed, texts):
        if candidates:
            return candidates[0]
    raise BadRequestError(f"node type '{type_.name}' has no text property to search; write a query instead")


def searched_vector(type_: NodeType, name: str | None) -> str:
    """The vector that texts are compared with: the one that is named, else the first that is made from a text."""
    vectors = [prop for prop in type_.property_list if prop.type.is_vector]
    if name is not None:
        if not property_of(type_, name).type.is_vector:
            raise BadRequestError(f"'{type_.name}.{name}' is no vector; its vectors: {_names(vectors)}")
        return name
    if not vectors:
        raise BadRequestError(f"node type '{type_.name}' has no vector; search it with mode '{KEYWORD}'")
    return next((prop.name for prop in vectors if prop.embed is not None), vectors[0].name)


def search(
    type_: NodeType,
    ranking: str,
    text: str,
    limit: int,
    properties: Sequence[str],
) -> Written:
    """The best matches of a type: `hit` is the id, `score` what they are ranked by."""
    columns = {f"p{number}": name for number, name in enumerate(properties)}
    projected = "".join(f", $x.{name} as {column}" for column, name in columns.items())
    return Written(
        f"query search($text: String) {{ match {{ $x: {type_.name} }} "
        f"return {{ $x as hit, {ranking} as score{projected} }} order {{ {ranking} }} limit {limit} }}",
        {"text": text},
        columns,
    )


def ranking(type_: NodeType, mode: str, text_property: str | None, vector_property: str | None) -> str:
    """The call that ranks matches, for each way to search."""
    by_words = by_meaning = ""
    if mode != VECTOR:
        by_words = f"bm25($x.{searched_text(type_, text_property)}, $text)"
    if mode != KEYWORD:
        by_meaning = f"nearest($x.{searched_vector(type_, vector_property)}, $text)"
    return f"rrf({by_meaning}, {by_words})" if mode == HYBRID else by_words or by_meaning


# Neighbours


@dataclass(frozen=True, slots=True)
class Hop:
    """One way to leave a node: over an edge type, along it or against it."""

    edge: EdgeType
    direction: str

    @property
    def other(self) -> str:
        return self.edge.to_type if self.direction == "out" else self.edge.from_type


def hops(catalog: Catalog, type_: NodeType, edge: str | None, direction: str) -> list[Hop]:
    """Every way that leads away from a node of a type, of those that are asked for."""
    touching = catalog.incident_edges(type_.name)
    if edge is not None:
        chosen = catalog.edge_named(edge)
        if chosen is None or chosen not in touching:
            known = ", ".join(traversal_name(each) for each in touching) or "none"
            raise BadRequestError(f"no edge type '{edge}' touches '{type_.name}'; those that do: {known}")
        touching = (chosen,)
    found = []
    for each in touching:
        if each.from_type == type_.name and direction != "in":
            found.append(Hop(each, "out"))
        if each.to_type == type_.name and direction != "out":
            found.append(Hop(each, "in"))
    return found


def neighbours(
    type_: NodeType, node: Mapping[str, Any], hop: Hop, of_node: Sequence[str], of_edge: Sequence[str]
) -> Written:
    """The nodes at the other end of a hop, in the order of their ids. A query can't name an id, so the node is matched
    by its key, or by whatever else is known of it; `self` tells whether it is the one."""
    pins, declared, params = [], [], {}
    for number, prop in enumerate(_pinned(type_, node)):
        kind = "String" if prop.type.is_enum else prop.type.scalar.value
        declared.append(f"$v{number}: {kind}")
        pins.append(f"{prop.name}: $v{number}")
        params[f"v{number}"] = node[prop.name]
    matched = f"$n: {type_.name}" + (f" {{ {', '.join(pins)} }}" if pins else "")
    name = traversal_name(hop.edge)
    walked = f"$n $e:{name} $m" if hop.direction == "out" else f"$m $e:{name} $n"
    columns = {f"p{number}": each for number, each in enumerate(of_node)}
    projected = "".join(f", $m.{each} as {column}" for column, each in columns.items())
    projected += "".join(f", $e.{each} as e{number}" for number, each in enumerate(of_edge))
    return Written(
        f"query neighbours({', '.join(declared)}) {{ match {{ {matched} {walked} }} "
        f"return {{ $n as self, $m as other{projected} }} order {{ other }} }}",
        params,
        columns,
    )


def _pinned(type_: NodeType, node: Mapping[str, Any]) -> list[Property]:
    chosen = [type_.properties[name] for name in type_.key] or list(type_.property_list)
    return [prop for prop in chosen if node.get(prop.name) is not None and _is_exact(prop)]


def _is_exact(prop: Property) -> bool:
    """Whether a value that was read finds its row again: lists match by membership, floats by luck."""
    kind = prop.type
    return not (kind.list or kind.is_vector or kind.is_blob or kind.scalar in FLOATS or kind.scalar is Scalar.DATETIME)


def _names(properties: Iterable[Property]) -> str:
    return ", ".join(prop.name for prop in properties) or "none"
