"""What clients attach to a conversation by address: the schema, the guide, the stored queries, single entities."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

import mcp_types as types

from omnigraph.api import wire
from omnigraph.errors import NotFoundError
from omnigraph.mcp.graph import AgentGraph
from omnigraph.mcp.guide import GUIDE
from omnigraph.mcp.reader_form import readable
from omnigraph.mcp.schema import catalog_of
from omnigraph.mcp.stored_queries import query_tools

_SCHEME: Final = "omnigraph://"
_TEXT: Final = "text/plain"
_JSON: Final = "application/json"
_MARKDOWN: Final = "text/markdown"

TEMPLATES: Final = (
    types.ResourceTemplate(
        name="schema of a branch", uri_template=f"{_SCHEME}schema/{{branch}}", mime_type=_TEXT, description="Its text."
    ),
    types.ResourceTemplate(
        name="entity",
        uri_template=f"{_SCHEME}entity/{{type}}/{{id}}",
        mime_type=_JSON,
        description="One node or edge of main, by type and id (both percent-encoded).",
    ),
)


def listed(graph: AgentGraph, *, read_only: bool) -> list[types.Resource]:
    found = [
        types.Resource(name="schema", uri=f"{_SCHEME}schema", mime_type=_TEXT, description="The schema of main."),
        types.Resource(
            name="guide", uri=f"{_SCHEME}guide", mime_type=_MARKDOWN, description="How queries are written."
        ),
    ]
    for tool in query_tools(graph, read_only=read_only).values():
        uri = f"{_SCHEME}queries/{quote(tool.query.name, safe='')}"
        about = tool.query.description or f"What the stored query {tool.query.name} takes."
        found.append(types.Resource(name=tool.query.name, uri=uri, mime_type=_JSON, description=about))
    return found


def content(graph: AgentGraph, uri: str, *, read_only: bool) -> types.TextResourceContents:
    """The content at an address. Raises `NotFoundError` where there is nothing."""
    kind, *rest = (unquote(part) for part in uri.removeprefix(_SCHEME).split("/"))
    if not uri.startswith(_SCHEME):
        kind = ""
    match kind, rest:
        case "guide", []:
            return types.TextResourceContents(uri=uri, mime_type=_MARKDOWN, text=GUIDE)
        case "schema", []:
            return types.TextResourceContents(uri=uri, mime_type=_TEXT, text=graph.schema_text())
        case "schema", [branch, *more]:
            text = graph.schema_text("/".join([branch, *more]))
            return types.TextResourceContents(uri=uri, mime_type=_TEXT, text=text)
        case "queries", [name]:
            for tool in query_tools(graph, read_only=read_only).values():
                if tool.query.name == name:
                    return types.TextResourceContents(uri=uri, mime_type=_JSON, text=wire.encode(tool.query).decode())
        case "entity", [type_name, entity_id]:
            type_ = catalog_of(graph.schema_text()).type_named(type_name)
            if (found := graph.entity(type_.type_key, entity_id)) is not None:
                text = wire.encode(readable(type_, found)).decode()
                return types.TextResourceContents(uri=uri, mime_type=_JSON, text=text)
    raise NotFoundError(f"there is no resource '{uri}'")
