"""One node or edge, and what is connected to a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from omnigraph.errors import BadRequestError, NotFoundError, PolicyError
from omnigraph.language.catalog import NodeType, TableType
from omnigraph.mcp import query_texts
from omnigraph.mcp.graph import taking
from omnigraph.mcp.members import Continuation, ReadArguments, TypeName
from omnigraph.mcp.paging import Place
from omnigraph.mcp.reader_form import readable
from omnigraph.mcp.schema import traversal_name
from omnigraph.mcp.state import State
from omnigraph.mcp.tool import Tool, Toolcall

EntityId = Annotated[str, Meta(description="The id, which for a type with one key property is the key's text.")]


class EntityArguments(ReadArguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    type: TypeName
    id: EntityId
    properties: Annotated[
        list[str] | None, Meta(description="Only these properties; the way to get a vector or a blob in full.")
    ] = None


def entity(call: Toolcall, arguments: EntityArguments) -> dict[str, Any]:
    place = Place.of("entity", arguments, None)
    state = arguments.state().pinned(call.graph)
    type_ = state.catalog(call.graph).type_named(arguments.type)
    found = found_entity(call, type_, arguments.id, state)
    if arguments.properties is not None:
        chosen = [*type_.system_columns, *query_texts.shown(type_, arguments.properties)]
        found = {name: found[name] for name in chosen}
    found = readable(type_, found, arguments.properties or ())
    answer = place.page(call.terms, {"commit": state.commit, "type": type_.type_key}, "entities", [found])
    (told,) = answer.pop("entities")
    return {**answer, "entity": told}


def found_entity(call: Toolcall, type_: TableType, entity_id: str, state: State) -> dict[str, Any]:
    """An entity in export form. A remote graph says by an error that there is none, an embedded one by None."""
    found = call.graph.entity(type_.type_key, entity_id, **state.options)
    if found is None:
        raise NotFoundError(f"there is no {type_.kind} {type_.name} with the id '{entity_id}'; search for it, or query")
    return found


ENTITY: Final = Tool(
    "entity",
    "One entity",
    "One node or edge by its type and id, with every property.",
    EntityArguments,
    entity,
)


class NeighboursArguments(ReadArguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    type: TypeName
    id: EntityId
    edge: Annotated[str | None, Meta(description="Only over this edge type.")] = None
    direction: Annotated[
        Literal["out", "in", "both"], Meta(description="Along edges that start at the node, that end at it, or both.")
    ] = "both"
    continuation: Continuation = None


def neighbours(call: Toolcall, arguments: NeighboursArguments) -> dict[str, Any]:
    place = Place.of("neighbours", arguments, arguments.continuation)
    state = arguments.state(place).pinned(call.graph)
    catalog = state.catalog(call.graph)
    type_ = catalog.type_named(arguments.type)
    if not isinstance(type_, NodeType):
        raise BadRequestError(f"'{type_.name}' is an edge type; entity shows what an edge connects")
    hops = query_texts.hops(catalog, type_, arguments.edge, arguments.direction)
    node = readable(type_, found_entity(call, type_, arguments.id, state))
    found = (neighbour for hop in hops for neighbour in _over(call, type_, node, hop, catalog.nodes[hop.other], state))
    head = {"commit": state.commit, "node": {"type": type_.name, "id": node["id"]}}
    return place.page(call.terms, head, "neighbours", found, lambda: state.pins)


def _over(
    call: Toolcall, type_: NodeType, node: dict[str, Any], hop: query_texts.Hop, other: NodeType, state: State
) -> Iterator[dict[str, Any]]:
    of_node, of_edge = query_texts.shown(other), query_texts.shown(hop.edge)
    hides = False
    try:
        written = query_texts.neighbours(type_, node, hop, of_node, of_edge)
        rows = call.graph.stream(written.source, None, written.params, **state.options)
    except PolicyError:
        # Some property is hidden from this actor: what it may see of the neighbours is read one by one.
        of_edge, hides = [], True
        written = query_texts.neighbours(type_, node, hop, (), ())
        rows = call.graph.stream(written.source, None, written.params, **state.options)
    with taking(state.rows(rows)) as found:
        yield from (
            _neighbour(call, hop, other, row, of_edge, None if hides else written.properties(row), state)
            for row in found
            if row["self"] == node["id"]
        )


def _neighbour(
    call: Toolcall,
    hop: query_texts.Hop,
    other: NodeType,
    row: dict[str, Any],
    of_edge: Sequence[str],
    properties: dict[str, Any] | None,
    state: State,
) -> dict[str, Any]:
    """One entry of the answer; what is not known of the node yet is read."""
    told: dict[str, Any] = {"edge": traversal_name(hop.edge), "direction": hop.direction}
    told |= {"type": other.name, "id": row["other"]}
    on_edge = {name: row[f"e{number}"] for number, name in enumerate(of_edge) if row[f"e{number}"] is not None}
    if on_edge:
        told["edge_properties"] = on_edge
    if properties is None:
        properties = seen_properties(call, other, row["other"], state, query_texts.shown(other))
    return {**told, "properties": properties}


def seen_properties(
    call: Toolcall, type_: NodeType, entity_id: str, state: State, properties: Sequence[str]
) -> dict[str, Any]:
    """What an actor may see of an entity, without what is null or hidden."""
    found = found_entity(call, type_, entity_id, state)
    return readable(type_, {name: found[name] for name in properties}, properties, nulls=False)


NEIGHBOURS: Final = Tool(
    "neighbours",
    "Neighbours of a node",
    "What is connected to a node, edge type by edge type, one entry per edge, with the properties of the edge and of "
    "the node at its other end.",
    NeighboursArguments,
    neighbours,
)
