"""The server of the protocol: lists tools, resources and prompts, and runs a tool on the graph of a connection.

It is made once per process and keeps nothing of a connection; `access_of` finds the graph of a request. A failed tool
is a result with a code, a sentence and fields, so that a model can mend its call. An error that is not ours is an
internal one: its cause is written to the log and never sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

import mcp_types as types
import msgspec
from mcp import MCPError
from mcp.server import Server, ServerRequestContext

from omnigraph import __version__
from omnigraph.api import wire
from omnigraph.api.graph import GraphApi
from omnigraph.api.service.http import ErrorOutput
from omnigraph.errors import ErrorCode, NotFoundError, OmniGraphError, RequestShapeError
from omnigraph.language.source import did_you_mean
from omnigraph.mcp import guide
from omnigraph.mcp.graph import Access, Terms
from omnigraph.mcp.guide import GUIDE, catalog_of, readable
from omnigraph.mcp.stored_queries import QueryTool, query_tools
from omnigraph.mcp.tool import Tool, shorten
from omnigraph.mcp.tools import TOOLS

_MOST_EXACT: Final = 2**53 - 1

logger: Final = logging.getLogger("omnigraph.mcp")


def tool_result(members: Mapping[str, Any]) -> types.CallToolResult:
    """The members of an answer. Its object is read from its text, so the two never differ."""
    text = msgspec.json.encode(_with_exact_integers(wire.to_builtins(members)))
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text.decode())], structured_content=msgspec.json.decode(text)
    )


def _with_exact_integers(value: Any) -> Any:
    """Integers that many JSON parsers would round become decimal texts."""
    if isinstance(value, dict):
        return {name: _with_exact_integers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_exact_integers(member) for member in value]
    return str(value) if isinstance(value, int) and abs(value) > _MOST_EXACT else value


def error_result(error: Exception, tool: str, terms: Terms) -> types.CallToolResult:
    """A failure as the caller may see it."""
    output = error_output(error, tool)
    members = wire.to_builtins(output)
    # Details are cut before the sentence that says what went wrong.
    room = terms.max_bytes - len(wire.encode({"error": output.error}))
    if 2 * room >= terms.max_bytes:
        members |= shorten({name: value for name, value in members.items() if name != "error"}, room)
    members = shorten(members, terms.max_bytes)
    named = members.get("code") or members.get("type") or "error"
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=f"{named}: {members['error']}")],
        structured_content=members,
        is_error=True,
    )


def error_output(error: Exception, what: str) -> ErrorOutput:
    if isinstance(error, OmniGraphError):
        return ErrorOutput.of(error)
    logger.error("%s failed", what, exc_info=error)
    return ErrorOutput(
        error=f"{what} failed inside; the log of the process that serves it has the cause",
        code=ErrorCode.INTERNAL,
        type=OmniGraphError.error_type(),
    )


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


def resources_of(graph: GraphApi, *, read_only: bool) -> list[types.Resource]:
    resources = [
        types.Resource(name="schema", uri=f"{_SCHEME}schema", mime_type=_TEXT, description="The schema of main."),
        types.Resource(
            name="guide", uri=f"{_SCHEME}guide", mime_type=_MARKDOWN, description="How queries are written."
        ),
    ]
    for tool in query_tools(graph, read_only=read_only).values():
        uri = f"{_SCHEME}queries/{quote(tool.query.name, safe='')}"
        about = tool.query.description or f"What the stored query {tool.query.name} takes."
        resources.append(types.Resource(name=tool.query.name, uri=uri, mime_type=_JSON, description=about))
    return resources


def resource_at(graph: GraphApi, uri: str, *, read_only: bool) -> types.TextResourceContents:
    """The content at an address. Raises `NotFoundError` where there is nothing."""
    path = uri.removeprefix(_SCHEME) if uri.startswith(_SCHEME) else ""
    mime_type, text = _JSON, None
    match [unquote(part) for part in path.split("/")]:
        case ["guide"]:
            mime_type, text = _MARKDOWN, GUIDE
        case ["schema", *branch]:
            mime_type, text = _TEXT, graph.schema.show("/".join(branch) if branch else None)
        case ["queries", name]:
            queries = (tool.query for tool in query_tools(graph, read_only=read_only).values())
            text = next((wire.encode(query).decode() for query in queries if query.name == name), None)
        case ["entity", type_name, entity_id]:
            type_ = catalog_of(graph.schema.show()).type_named(type_name)
            if (entity := graph.entity(type_.type_key, entity_id)) is not None:
                text = wire.encode(readable(type_, entity)).decode()
    if text is None:
        raise NotFoundError(f"there is no resource '{uri}'")
    return types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)


Context: TypeAlias = ServerRequestContext[Any, Any]
Page: TypeAlias = types.PaginatedRequestParams | None
AccessOf: TypeAlias = Callable[[Context], Access]


def protocol_server(access_of: AccessOf, terms: Terms) -> Server[Any]:
    """A server over whatever graphs `access_of` finds."""
    handlers = _Handlers(access_of, terms)
    return Server(
        "omnigraph",
        version=__version__,
        title="OmniGraph",
        instructions=guide.READ_ONLY if terms.read_only else guide.INSTRUCTIONS,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )


class _Handlers:
    def __init__(self, access_of: AccessOf, terms: Terms) -> None:
        self._access_of = access_of
        self._terms = terms
        self._tools = {name: tool for name, tool in TOOLS.items() if not (terms.read_only and tool.writes)}
        prompts = guide.PROMPTS.items()
        self._prompts = {name: each for name, each in prompts if not (terms.read_only and each.arguments)}

    async def list_tools(self, context: Context, params: Page) -> types.ListToolsResult:
        stored = await self._read(context, partial(query_tools, read_only=self._terms.read_only))
        offered = [*self._tools.values(), *stored.values()]
        return types.ListToolsResult(tools=[tool.describe() for tool in offered])

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        access, terms, name = self._access_of(context), self._terms, params.name
        arguments = params.arguments or {}
        try:
            _refuse_lone_surrogates(arguments)
            tool: Tool | QueryTool | None = self._tools.get(name)
            if tool is None:
                queries = await access.run(partial(query_tools, read_only=terms.read_only), writes=False)
                if (tool := queries.get(name)) is None:
                    if name in TOOLS:
                        raise NotFoundError(f"'{name}' is not offered here: this endpoint is read-only")
                    hint = did_you_mean(name, [*self._tools, *queries]) or "tools/list lists the tools"
                    raise NotFoundError(f"there is no tool '{name}'; {hint}")
            run = tool.bind(arguments)
            return tool_result(await access.run(lambda graph: run(graph, terms, access.actor), writes=tool.writes))
        except Exception as error:
            return error_result(error, name, terms)

    async def list_resources(self, context: Context, params: Page) -> types.ListResourcesResult:
        resources = await self._read(context, partial(resources_of, read_only=self._terms.read_only))
        return types.ListResourcesResult(resources=resources)

    async def list_templates(self, context: Context, params: Page) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=list(TEMPLATES))

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        content = await self._read(context, partial(resource_at, uri=params.uri, read_only=self._terms.read_only))
        return types.ReadResourceResult(contents=[content])

    async def list_prompts(self, context: Context, params: Page) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=list(self._prompts.values()))

    async def get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name not in self._prompts:
            raise MCPError(types.INVALID_PARAMS, f"unknown prompt '{params.name}'; known: {', '.join(self._prompts)}")
        return guide.prompt(params.name, params.arguments or {})

    async def _read(self, context: Context, work: Callable[[GraphApi], Any]) -> Any:
        """Read for a request that is not a tool call; its failures are errors of the protocol."""
        try:
            return await self._access_of(context).run(work, writes=False)
        except Exception as error:
            output = error_output(error, context.method)
            is_theirs = isinstance(error, OmniGraphError) and error.http_status < 500
            code = types.INVALID_PARAMS if is_theirs else types.INTERNAL_ERROR
            raise MCPError(code, output.error, {"code": output.code, "type": output.type}) from None


def _refuse_lone_surrogates(arguments: dict[str, Any]) -> None:
    """JSON can spell a lone surrogate, which is not a text and can't be sent back."""
    try:
        msgspec.json.encode(arguments)
    except UnicodeEncodeError:
        message = "the arguments hold half a character, a lone surrogate; send whole characters"
        raise RequestShapeError(message) from None
