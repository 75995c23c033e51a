"""The tools for entities: one node or edge, the neighbours of a node, and search by words, by meaning or by both.

They write queries for the agent. Columns are numbered, so that no property can have the name of another column. Values
are parameters and never part of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from omnigraph.errors import BadRequestError, EmbeddingError, NotFoundError, PolicyError
from omnigraph.language.catalog import Catalog, EdgeType, IndexKind, NodeType, Property, TableType
from omnigraph.language.source import did_you_mean
from omnigraph.mcp.graph import Rows, open_cursor
from omnigraph.mcp.guide import readable, traversal_name
from omnigraph.mcp.tool import Branch, PinnedPoint, Result, Snapshot, Toolcall, TypeName, tool

KEYWORD: Final = "keyword"
VECTOR: Final = "vector"
HYBRID: Final = "hybrid"


@dataclass(frozen=True, slots=True)
class GeneratedQuery:
    """A query, its parameters, and which property each numbered column holds."""

    source: str
    params: Mapping[str, Any]
    columns: Mapping[str, str]

    def properties(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a row by the names of their properties, without those that have none."""
        named = {name: row[column] for column, name in self.columns.items()}
        return {name: value for name, value in named.items() if value is not None}


def _stream(
    call: Toolcall, point: PinnedPoint, write: Callable[[bool], GeneratedQuery]
) -> tuple[GeneratedQuery, Rows, bool]:
    """The rows of a query that returns all properties; or ids alone if some are masked for this actor, which the flag
    says. Entities are then read one by one, as the actor may see them."""
    try:
        written, masked = write(True), False
        rows = call.graph.stream(written.source, None, written.params, **point.keywords)
    except PolicyError:
        written, masked = write(False), True
        rows = call.graph.stream(written.source, None, written.params, **point.keywords)
    return written, point.check(rows), masked


def readable_properties(type_: TableType, wanted: Iterable[str] | None = None) -> list[str]:
    """The properties that an agent can read: all but blobs, which queries never return, and vectors, which are
    useless to a reader, unless they are named."""
    if wanted is None:
        return [prop.name for prop in type_.property_list if not (prop.type.is_blob or prop.type.is_vector)]
    return [property_of(type_, name).name for name in wanted]


def property_of(type_: TableType, name: str) -> Property:
    prop = type_.properties.get(name)
    if prop is None:
        hint = did_you_mean(name, type_.properties)
        raise BadRequestError(
            f"{type_.kind} type '{type_.name}' has no property '{name}'" + (f"; {hint}" if hint else "")
        )
    return prop


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
            names = ", ".join(prop.name for prop in vectors) or "none"
            raise BadRequestError(f"'{type_.name}.{name}' is not a vector; its vectors: {names}")
        return name
    if not vectors:
        raise BadRequestError(f"node type '{type_.name}' has no vector; search it with mode '{KEYWORD}'")
    return next((prop.name for prop in vectors if prop.embed is not None), vectors[0].name)


def search_query(type_: NodeType, ranking: str, text: str, limit: int, properties: Sequence[str]) -> GeneratedQuery:
    """The best matches of a type: `hit` is the id, `score` what they are ranked by."""
    columns = {f"p{number}": name for number, name in enumerate(properties)}
    projected = "".join(f", $x.{name} as {column}" for column, name in columns.items())
    return GeneratedQuery(
        f"query search($text: String) {{ match {{ $x: {type_.name} }} "
        f"return {{ $x.@id as hit, {ranking} as score{projected} }} order {{ {ranking} }} limit {limit} }}",
        {"text": text},
        columns,
    )


def choose_ranking(type_: NodeType, mode: str, text_property: str | None, vector_property: str | None) -> str:
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
    """One way to leave a node: over an edge type, along it or against it, to nodes of one type."""

    edge: EdgeType
    direction: str
    other: str


def hops_from(catalog: Catalog, type_: NodeType, edge: str | None, direction: str) -> list[Hop]:
    """Every way that leads away from a node of a type, of those that are asked for."""
    touching = catalog.incident_edges(type_.name)
    if edge is not None:
        chosen = catalog.edge_named(edge)
        if chosen is None or chosen not in touching:
            names = ", ".join(traversal_name(each) for each in touching) or "none"
            raise BadRequestError(f"no edge type '{edge}' touches '{type_.name}'; those that do: {names}")
        touching = (chosen,)
    hops: list[Hop] = []
    for each in touching:
        if type_.name in each.source_types and direction != "in":
            hops += (Hop(each, "out", other) for other in each.target_types)
        if type_.name in each.target_types and direction != "out":
            hops += (Hop(each, "in", other) for other in each.source_types)
    return hops


def neighbours_query(
    type_: NodeType, entity_id: str, hop: Hop, of_node: Sequence[str], of_edge: Sequence[str]
) -> GeneratedQuery:
    """The nodes at the other end of a hop, in the order of their ids."""
    name = traversal_name(hop.edge)
    walked = f"$n $e:{name} $m" if hop.direction == "out" else f"$m $e:{name} $n"
    walked = f"$m: {hop.other}  {walked}" if hop.edge.has_interface_end else walked
    columns = {f"p{number}": each for number, each in enumerate(of_node)}
    projected = "".join(f", $m.{each} as {column}" for column, each in columns.items())
    projected += "".join(f", $e.{each} as e{number}" for number, each in enumerate(of_edge))
    return GeneratedQuery(
        f"query neighbours($id: String) {{ match {{ $n: {type_.name}  $n.@id = $id  {walked} }} "
        f"return {{ $m.@id as other{projected} }} order {{ other }} }}",
        {"id": entity_id},
        columns,
    )


EntityId = Annotated[str, Meta(description="The id, which for a type with one key property is the key's text.")]


@tool("One entity", paged=False)
def entity(
    call: Toolcall,
    *,
    branch: Branch = None,
    snapshot: Snapshot = None,
    type: TypeName,
    id: EntityId,
    properties: Annotated[
        list[str] | None, Meta(description="Only these properties; the way to get a vector or a blob in full.")
    ] = None,
) -> Result:
    """One node or edge by its type and id, with every property."""
    point = PinnedPoint.of(branch, snapshot).pin(call.graph)
    type_ = point.catalog(call.graph).type_named(type)
    record = _find_entity(call, type_, id, point)
    if properties is not None:
        chosen = [*(name for name in record if name not in type_.properties), *readable_properties(type_, properties)]
        record = {name: record[name] for name in chosen}
    head = {"commit": point.commit, "type": type_.type_key}
    page = call.page(head, "entities", [readable(type_, record, properties or ())])
    (members,) = page.pop("entities")
    return {**page, "entity": members}


def _find_entity(call: Toolcall, type_: TableType, entity_id: str, point: PinnedPoint) -> dict[str, Any]:
    """An entity in export form. A remote graph says by an error that there is none, an embedded one by None."""
    record = call.graph.entity(type_.type_key, entity_id, **point.keywords)
    if record is None:
        raise NotFoundError(f"there is no {type_.kind} {type_.name} with the id '{entity_id}'; search for it, or query")
    return record


@tool("Neighbours of a node")
def neighbours(
    call: Toolcall,
    *,
    branch: Branch = None,
    snapshot: Snapshot = None,
    type: TypeName,
    id: EntityId,
    edge: Annotated[str | None, Meta(description="Only over this edge type.")] = None,
    direction: Annotated[
        Literal["out", "in", "both"], Meta(description="Along edges that start at the node, that end at it, or both.")
    ] = "both",
) -> Result:
    """What is connected to a node, edge type by edge type, one entry per edge, with the properties of the edge and of
    the node at its other end."""
    point = PinnedPoint.of(branch, snapshot, call.position).pin(call.graph)
    catalog = point.catalog(call.graph)
    type_ = catalog.type_named(type)
    if not isinstance(type_, NodeType):
        raise BadRequestError(f"'{type_.name}' is an edge type; entity shows what an edge connects")
    hops = hops_from(catalog, type_, edge, direction)
    node = readable(type_, _find_entity(call, type_, id, point))
    node_id = node[type_.system_name("id")]
    entries = (each for hop in hops for each in _over(call, type_, node_id, hop, catalog.nodes[hop.other], point))
    head = {"commit": point.commit, "node": {"type": type_.name, "id": node_id}}
    return call.page(head, "neighbours", entries, lambda: point.pins)


def _over(
    call: Toolcall, type_: NodeType, node_id: str, hop: Hop, other: NodeType, point: PinnedPoint
) -> Iterator[dict[str, Any]]:
    """The neighbours over one hop, an entry for each edge."""
    of_node, of_edge = readable_properties(other), readable_properties(hop.edge)

    def write(whole: bool) -> GeneratedQuery:
        return neighbours_query(type_, node_id, hop, of_node if whole else (), of_edge if whole else ())

    written, rows, masked = _stream(call, point, write)
    with open_cursor(rows) as cursor:
        for row in cursor:
            members: dict[str, Any] = {"edge": traversal_name(hop.edge), "direction": hop.direction}
            members |= {"type": other.name, "id": row["other"]}
            values = {} if masked else {name: row[f"e{number}"] for number, name in enumerate(of_edge)}
            if on_edge := {name: value for name, value in values.items() if value is not None}:
                members["edge_properties"] = on_edge
            properties = _visible(call, other, row["other"], point, of_node) if masked else written.properties(row)
            yield {**members, "properties": properties}


def _visible(
    call: Toolcall, type_: NodeType, entity_id: str, point: PinnedPoint, properties: Sequence[str]
) -> dict[str, Any]:
    """The properties of an entity that the actor may see, without nulls."""
    record = _find_entity(call, type_, entity_id, point)
    return readable(type_, {name: record[name] for name in properties}, properties, nulls=False)


@tool("Search")
def search(
    call: Toolcall,
    *,
    branch: Branch = None,
    snapshot: Snapshot = None,
    type: TypeName,
    text: Annotated[str, Meta(min_length=1, description="Words, or a sentence for the search by meaning.")],
    mode: Annotated[
        Literal["keyword", "vector", "hybrid"],
        Meta(description="keyword ranks by words, vector by the meaning of the text, hybrid by both."),
    ] = "keyword",
    property: Annotated[str | None, Meta(description="The text property whose words are searched.")] = None,
    vector: Annotated[str | None, Meta(description="The vector property that the text is compared with.")] = None,
    properties: Annotated[
        list[str] | None, Meta(description="Which properties of the hits to return; all but vectors when left out.")
    ] = None,
    limit: Annotated[int, Meta(ge=1, le=200, description="How many hits.")] = 10,
) -> Result:
    """Finds nodes of a type by text. The answer says which properties were ranked and how. Keyword and hybrid scores
    are better when higher, vector distances when lower. For conditions and traversals beside the search, write a
    query."""
    point = PinnedPoint.of(branch, snapshot, call.position)
    type_ = point.catalog(call.graph).type_named(type)
    if not isinstance(type_, NodeType):
        raise BadRequestError(f"'{type_.name}' is an edge type; only nodes are searched")
    ranking = choose_ranking(type_, mode, property, vector)
    chosen = readable_properties(type_, properties)
    try:
        return _hits(call, point, type_, ranking, text, limit, chosen)
    except EmbeddingError as error:
        raise EmbeddingError(f"{error}; mode '{KEYWORD}' needs no vector") from None


def _hits(
    call: Toolcall, point: PinnedPoint, type_: NodeType, ranking: str, text: str, limit: int, properties: Sequence[str]
) -> Result:
    def write(whole: bool) -> GeneratedQuery:
        return search_query(type_, ranking, text, limit, properties if whole else ())

    written, rows, masked = _stream(call, point, write)
    commit = rows.graph_commit_id
    if masked:
        point = point.at(call.graph, commit)

    def hit(row: dict[str, Any]) -> dict[str, Any]:
        values = _visible(call, type_, row["hit"], point, properties) if masked else written.properties(row)
        return {"id": row["hit"], "score": row["score"], "properties": values}

    head = {"commit": commit, "type": type_.name, "ranked_by": ranking}
    with open_cursor(rows) as cursor:
        return call.page(head, "hits", map(hit, cursor), lambda: point.at(call.graph, commit).pins)
