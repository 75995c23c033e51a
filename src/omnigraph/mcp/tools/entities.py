"""The tools for entities: one node or edge, the neighbours of a node, and search by words, by meaning or by both.

They write queries for the agent. Columns are numbered, so that no property can have the name of another column. Values
are parameters and never part of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from omnigraph.errors import BadRequestError, EmbeddingError, NotFoundError, PolicyError
from omnigraph.language.catalog import Catalog, EdgeType, IndexKind, NodeType, Property, TableType
from omnigraph.language.source import did_you_mean
from omnigraph.language.types import FLOATS, Scalar
from omnigraph.mcp.graph import reading
from omnigraph.mcp.guide import readable, traversal_name
from omnigraph.mcp.tool import Continuation, PagePosition, PinnedPoint, ReadArguments, Tool, Toolcall, TypeName

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


def readable_properties(type_: TableType, wanted: Iterable[str] | None = None) -> list[str]:
    """The properties that an agent can read: all but blobs, which queries never return, and vectors, which are
    useless to a reader, unless they are named."""
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
            raise BadRequestError(f"'{type_.name}.{name}' is not a vector; its vectors: {_names(vectors)}")
        return name
    if not vectors:
        raise BadRequestError(f"node type '{type_.name}' has no vector; search it with mode '{KEYWORD}'")
    return next((prop.name for prop in vectors if prop.embed is not None), vectors[0].name)


def search_query(
    type_: NodeType,
    ranking: str,
    text: str,
    limit: int,
    properties: Sequence[str],
) -> GeneratedQuery:
    """The best matches of a type: `hit` is the id, `score` what they are ranked by."""
    columns = {f"p{number}": name for number, name in enumerate(properties)}
    projected = "".join(f", $x.{name} as {column}" for column, name in columns.items())
    return GeneratedQuery(
        f"query search($text: String) {{ match {{ $x: {type_.name} }} "
        f"return {{ $x as hit, {ranking} as score{projected} }} order {{ {ranking} }} limit {limit} }}",
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
    """One way to leave a node: over an edge type, along it or against it."""

    edge: EdgeType
    direction: str

    @property
    def other(self) -> str:
        return self.edge.to_type if self.direction == "out" else self.edge.from_type


def hops_from(catalog: Catalog, type_: NodeType, edge: str | None, direction: str) -> list[Hop]:
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


def neighbours_query(
    type_: NodeType, node: Mapping[str, Any], hop: Hop, of_node: Sequence[str], of_edge: Sequence[str]
) -> GeneratedQuery:
    """The nodes at the other end of a hop, in the order of their ids. A query can't name an id, so the node is matched
    by its key, or by its other properties; `self` is the id of the node that matched."""
    pins, declared, params = [], [], {}
    for number, prop in enumerate(_matching_properties(type_, node)):
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
    return GeneratedQuery(
        f"query neighbours({', '.join(declared)}) {{ match {{ {matched} {walked} }} "
        f"return {{ $n as self, $m as other{projected} }} order {{ other }} }}",
        params,
        columns,
    )


def _matching_properties(type_: NodeType, node: Mapping[str, Any]) -> list[Property]:
    chosen = [type_.properties[name] for name in type_.key] or list(type_.property_list)
    return [prop for prop in chosen if node.get(prop.name) is not None and _is_exact(prop)]


def _is_exact(prop: Property) -> bool:
    """Whether a value that was read finds its row again: lists match by membership, floats by luck."""
    kind = prop.type
    return not (kind.list or kind.is_vector or kind.is_blob or kind.scalar in FLOATS or kind.scalar is Scalar.DATETIME)


def _names(properties: Iterable[Property]) -> str:
    return ", ".join(prop.name for prop in properties) or "none"


EntityId = Annotated[str, Meta(description="The id, which for a type with one key property is the key's text.")]


class EntityArguments(ReadArguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    type: TypeName
    id: EntityId
    properties: Annotated[
        list[str] | None, Meta(description="Only these properties; the way to get a vector or a blob in full.")
    ] = None


def entity(call: Toolcall, arguments: EntityArguments) -> dict[str, Any]:
    position = PagePosition.of("entity", arguments, None)
    point = arguments.point().pin(call.graph)
    type_ = point.catalog(call.graph).type_named(arguments.type)
    found = find_entity(call, type_, arguments.id, point)
    if arguments.properties is not None:
        chosen = [*type_.system_columns, *readable_properties(type_, arguments.properties)]
        found = {name: found[name] for name in chosen}
    found = readable(type_, found, arguments.properties or ())
    answer = position.page(call.terms, {"commit": point.commit, "type": type_.type_key}, "entities", [found])
    (members,) = answer.pop("entities")
    return {**answer, "entity": members}


def find_entity(call: Toolcall, type_: TableType, entity_id: str, point: PinnedPoint) -> dict[str, Any]:
    """An entity in export form. A remote graph says by an error that there is none, an embedded one by None."""
    found = call.graph.entity(type_.type_key, entity_id, **point.keywords)
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
    position = PagePosition.of("neighbours", arguments, arguments.continuation)
    point = arguments.point(position).pin(call.graph)
    catalog = point.catalog(call.graph)
    type_ = catalog.type_named(arguments.type)
    if not isinstance(type_, NodeType):
        raise BadRequestError(f"'{type_.name}' is an edge type; entity shows what an edge connects")
    hops = hops_from(catalog, type_, arguments.edge, arguments.direction)
    node = readable(type_, find_entity(call, type_, arguments.id, point))
    found = (neighbour for hop in hops for neighbour in _over(call, type_, node, hop, catalog.nodes[hop.other], point))
    head = {"commit": point.commit, "node": {"type": type_.name, "id": node["id"]}}
    return position.page(call.terms, head, "neighbours", found, lambda: point.pins)


def _over(
    call: Toolcall, type_: NodeType, node: dict[str, Any], hop: Hop, other: NodeType, point: PinnedPoint
) -> Iterator[dict[str, Any]]:
    of_node, of_edge = readable_properties(other), readable_properties(hop.edge)
    hides = False
    try:
        written = neighbours_query(type_, node, hop, of_node, of_edge)
        rows = call.graph.stream(written.source, None, written.params, **point.keywords)
    except PolicyError:
        # Some property is hidden from this actor: what it may see of the neighbours is read one by one.
        of_edge, hides = [], True
        written = neighbours_query(type_, node, hop, (), ())
        rows = call.graph.stream(written.source, None, written.params, **point.keywords)
    with reading(point.check(rows)) as found:
        yield from (
            _neighbour(call, hop, other, row, of_edge, None if hides else written.properties(row), point)
            for row in found
            if row["self"] == node["id"]
        )


def _neighbour(
    call: Toolcall,
    hop: Hop,
    other: NodeType,
    row: dict[str, Any],
    of_edge: Sequence[str],
    properties: dict[str, Any] | None,
    point: PinnedPoint,
) -> dict[str, Any]:
    """One entry of the answer; what is not known of the node yet is read."""
    members: dict[str, Any] = {"edge": traversal_name(hop.edge), "direction": hop.direction}
    members |= {"type": other.name, "id": row["other"]}
    on_edge = {name: row[f"e{number}"] for number, name in enumerate(of_edge) if row[f"e{number}"] is not None}
    if on_edge:
        members["edge_properties"] = on_edge
    if properties is None:
        properties = visible_properties(call, other, row["other"], point, readable_properties(other))
    return {**members, "properties": properties}


def visible_properties(
    call: Toolcall, type_: NodeType, entity_id: str, point: PinnedPoint, properties: Sequence[str]
) -> dict[str, Any]:
    """What an actor may see of an entity, without what is null or hidden."""
    found = find_entity(call, type_, entity_id, point)
    return readable(type_, {name: found[name] for name in properties}, properties, nulls=False)


NEIGHBOURS: Final = Tool(
    "neighbours",
    "Neighbours of a node",
    "What is connected to a node, edge type by edge type, one entry per edge, with the properties of the edge and of "
    "the node at its other end.",
    NeighboursArguments,
    neighbours,
)


class SearchArguments(ReadArguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    type: TypeName
    text: Annotated[str, Meta(min_length=1, description="Words, or a sentence for the search by meaning.")]
    mode: Annotated[
        Literal["keyword", "vector", "hybrid"],
        Meta(description="keyword ranks by words, vector by the meaning of the text, hybrid by both."),
    ] = "keyword"
    property: Annotated[str | None, Meta(description="The text property whose words are searched.")] = None
    vector: Annotated[str | None, Meta(description="The vector property that the text is compared with.")] = None
    properties: Annotated[
        list[str] | None, Meta(description="Which properties of the hits to return; all but vectors when left out.")
    ] = None
    limit: Annotated[int, Meta(ge=1, le=200, description="How many hits.")] = 10
    continuation: Continuation = None


def search(call: Toolcall, arguments: SearchArguments) -> dict[str, Any]:
    try:
        return _hits(call, arguments)
    except EmbeddingError as error:
        raise EmbeddingError(f"{error}; mode '{KEYWORD}' needs no vector") from None


def _hits(call: Toolcall, arguments: SearchArguments) -> dict[str, Any]:
    position = PagePosition.of("search", arguments, arguments.continuation)
    point, hides = arguments.point(position), False
    type_ = point.catalog(call.graph).type_named(arguments.type)
    if not isinstance(type_, NodeType):
        raise BadRequestError(f"'{type_.name}' is an edge type; only nodes are searched")
    ranking = choose_ranking(type_, arguments.mode, arguments.property, arguments.vector)
    properties = readable_properties(type_, arguments.properties)
    try:
        written = search_query(type_, ranking, arguments.text, arguments.limit, properties)
        rows = call.graph.stream(written.source, None, written.params, **point.keywords)
    except PolicyError:
        # Some property is hidden from this actor: the entities as it may see them say which values there are.
        hides = True
        written = search_query(type_, ranking, arguments.text, arguments.limit, ())
        rows = call.graph.stream(written.source, None, written.params, **point.keywords)
    commit = rows.graph_commit_id
    if hides:
        point = point.at(call.graph, commit)

    def hit(row: dict[str, Any]) -> dict[str, Any]:
        known = written.properties(row)
        if hides:
            known = visible_properties(call, type_, row["hit"], point, properties)
        return {"id": row["hit"], "score": row["score"], "properties": known}

    head = {"commit": commit, "type": type_.name, "ranked_by": ranking}
    with reading(point.check(rows)) as found:
        return position.page(call.terms, head, "hits", map(hit, found), lambda: point.at(call.graph, commit).pins)


SEARCH: Final = Tool(
    "search",
    "Search",
    "Finds nodes of a type by text. The answer says which properties were ranked and how. Keyword and hybrid scores "
    "are better when higher, vector distances when lower. For conditions and traversals beside the search, write a "
    "query.",
    SearchArguments,
    search,
)
