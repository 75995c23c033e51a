"""Search by words, by meaning or by both, without writing a query."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from omnigraph.errors import BadRequestError, EmbeddingError, PolicyError
from omnigraph.language.catalog import NodeType
from omnigraph.mcp import query_texts
from omnigraph.mcp.graph import taking
from omnigraph.mcp.members import Continuation, ReadArguments, TypeName
from omnigraph.mcp.paging import Place
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
    try:
        return _hits(call, arguments)
    except EmbeddingError as error:
        raise EmbeddingError(f"{error}; mode '{query_texts.KEYWORD}' needs no vector") from None


def _hits(call: Toolcall, arguments: SearchArguments) -> dict[str, Any]:
    place = Place.of("search", arguments, arguments.continuation)
    state, hides = arguments.state(place), False
    type_ = state.catalog(call.graph).type_named(arguments.type)
    if not isinstance(type_, NodeType):
        raise BadRequestError(f"'{type_.name}' is an edge type; only nodes are searched")
    ranking = query_texts.ranking(type_, arguments.mode, arguments.property, arguments.vector)
    properties = query_texts.shown(type_, arguments.properties)
    try:
        written = query_texts.search(type_, ranking, arguments.text, arguments.limit, properties)
        rows = call.graph.stream(written.source, None, written.params, **state.options)
    except PolicyError:
        # Some property is hidden from this actor: the entities as it may see them say which values there are.
        hides = True
        written = query_texts.search(type_, ranking, arguments.text, arguments.limit, ())
        rows = call.graph.stream(written.source, None, written.params, **state.options)
    commit = rows.graph_commit_id
    if hides:
        state = state.at(call.graph, commit)

    def hit(row: dict[str, Any]) -> dict[str, Any]:
        known = written.properties(row)
        if hides:
            known = seen_properties(call, type_, row["hit"], state, properties)
        return {"id": row["hit"], "score": row["score"], "properties": known}

    head = {"commit": commit, "type": type_.name, "ranked_by": ranking}
    with taking(state.rows(rows)) as found:
        return place.page(call.terms, head, "hits", map(hit, found), lambda: state.at(call.graph, commit).pins)


SEARCH: Final = Tool(
    "search",
    "Search",
    "Finds nodes of a type by text. The answer says which properties were ranked and how. Keyword and hybrid scores "
    "are better when higher, vector distances when lower. For conditions and traversals beside the search, write a "
    "query.",
    SearchArguments,
    search,
)
