"""Search by words, by meaning or by both, without writing a query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from omnigraph.errors import BadRequestError, PolicyError
from omnigraph.language.catalog import NodeType
from omnigraph.mcp import query_texts
from omnigraph.mcp.members import Continuation, ReadArguments, TypeName
from omnigraph.mcp.paging import Place
from omnigraph.mcp.schema import catalog_of
from omnigraph.mcp.tool import Tool, Toolcall
from omnigraph.mcp.tools.entities import seen_properties


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
    place = Place.of("search", arguments, arguments.continuation)
    type_ = catalog_of(call.graph.schema_text(arguments.schema_branch)).type_named(arguments.type)
    if not isinstance(type_, NodeType):
        raise BadRequestError(f"'{type_.name}' is an edge type; only nodes are searched")
    ranking = query_texts.ranking(type_, arguments.mode, arguments.property, arguments.vector)
    properties = query_texts.shown(type_, arguments.properties)
    point = arguments.point(place)
    try:
        written, rows = _asked(call, type_, ranking, arguments, properties, point)
        hits: Iterator[dict[str, Any]] = (
            {"id": row["hit"], "score": row["score"], "properties": written.properties(row)} for row in rows.rows()
        )
    except PolicyError:
        # Some property is hidden from this actor: the entities as it may see them say which values there are.
        written, rows = _asked(call, type_, ranking, arguments, (), point)
        commit = rows.graph_commit_id
        hits = (
            {
                "id": row["hit"],
                "score": row["score"],
                "properties": seen_properties(call, type_, row["hit"], commit, properties),
            }
            for row in rows.rows()
        )
    head = {"commit": rows.graph_commit_id, "type": type_.name, "ranked_by": ranking}
    return place.page(call.terms, head, "hits", hits, [rows.graph_commit_id])


def _asked(
    call: Toolcall,
    type_: NodeType,
    ranking: str,
    arguments: SearchArguments,
    properties: Any,
    point: dict[str, str | None],
) -> tuple[query_texts.Written, Any]:
    written = query_texts.search(type_, ranking, arguments.text, arguments.limit, properties)
    return written, call.graph.stream(written.source, None, written.params, **point)


SEARCH: Final = Tool(
    "search",
    "Search",
    "Finds nodes of a type by text. The answer says which properties were ranked and how. Keyword and hybrid scores "
    "are better when higher, vector distances when lower. For conditions and traversals beside the search, write a "
    "query.",
    SearchArguments,
    search,
)
