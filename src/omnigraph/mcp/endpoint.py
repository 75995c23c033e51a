"""The protocol's server: lists tools, resources and prompts, and runs a tool on the graph of the connection.

It is made once per process and keeps nothing of a connection. `access_of` says whose graph a request is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

import mcp_types as types
import msgspec
from mcp import MCPError
from mcp.server import Server, ServerRequestContext

from omnigraph import __version__
from omnigraph.errors import NotFoundError, OmniGraphError, RequestShapeError
from omnigraph.language.source import did_you_mean
from omnigraph.mcp import guide, resources
from omnigraph.mcp.answers import answered, refused, told
from omnigraph.mcp.graph import Access, AgentGraph
from omnigraph.mcp.stored_queries import query_tools
from omnigraph.mcp.terms import Terms
from omnigraph.mcp.tool import Toolcall
from omnigraph.mcp.tools import TOOLS

Context: TypeAlias = ServerRequestContext[Any, Any]
AccessOf: TypeAlias = Callable[[Context], Access]

NAME: Final = "omnigraph"


def protocol_server(access_of: AccessOf, terms: Terms) -> Server[Any]:
    """A server over whatever graphs `access_of` finds."""
    answering = _Answering(access_of, terms)
    return Server(
        NAME,
        version=__version__,
        title="OmniGraph",
        instructions=guide.READ_ONLY if terms.read_only else guide.INSTRUCTIONS,
        on_list_tools=answering.list_tools,
        on_call_tool=answering.call_tool,
        on_list_resources=answering.list_resources,
        on_list_resource_templates=answering.list_templates,
        on_read_resource=answering.read_resource,
        on_list_prompts=answering.list_prompts,
        on_get_prompt=answering.get_prompt,
    )


class _Answering:
    def __init__(self, access_of: AccessOf, terms: Terms) -> None:
        self._access_of = access_of
        self._terms = terms
        self._tools = {name: tool for name, tool in TOOLS.items() if not (terms.read_only and tool.writes)}

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        stored = await self._read(context, partial(query_tools, read_only=self._terms.read_only))
        offered = [*self._tools.values(), *stored.values()]
        return types.ListToolsResult(tools=[tool.described() for tool in offered])

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        access, terms, name = self._access_of(context), self._terms, params.name
        given = params.arguments or {}
        tool = self._tools.get(name)
        try:
            _refuse_half_characters(given)
            if tool is not None:
                decoded = tool.decoded(given)
                run = lambda graph: tool.run(Toolcall(graph, terms, access.actor), decoded)  # noqa: E731
                return answered(await access.run(run, writes=tool.writes))
            queries = await access.run(partial(query_tools, read_only=terms.read_only), writes=False)
            if (stored := queries.get(name)) is None:
                raise NotFoundError(self._no_tool(name, queries))
            invoke = lambda graph: stored.run(Toolcall(graph, terms, access.actor), given)  # noqa: E731
            return answered(await access.run(invoke, writes=stored.writes))
        except Exception as error:
            return refused(error, name, terms)

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        found = await self._read(context, partial(resources.listed, read_only=self._terms.read_only))
        return types.ListResourcesResult(resources=found)

    async def list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=list(resources.TEMPLATES))

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        content = partial(resources.content, uri=params.uri, read_only=self._terms.read_only)
        return types.ReadResourceResult(contents=[await self._read(context, content)])

    async def list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=list(self._prompts().values()))

    async def get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name not in self._prompts():
            raise MCPError(types.INVALID_PARAMS, f"unknown prompt '{params.name}'; known: {', '.join(self._prompts())}")
        return guide.prompt(params.name, params.arguments or {})

    def _prompts(self) -> dict[str, types.Prompt]:
        return {name: each for name, each in guide.PROMPTS.items() if not (self._terms.read_only and each.arguments)}

    async def _read(self, context: Context, work: Callable[[AgentGraph], Any]) -> Any:
        """What is no tool has no answer for failures: those are errors of the protocol."""
        try:
            return await self._access_of(context).run(work, writes=False)
        except Exception as error:
            output = told(error, context.method)
            is_theirs = isinstance(error, OmniGraphError) and error.http_status < 500
            code = types.INVALID_PARAMS if is_theirs else types.INTERNAL_ERROR
            raise MCPError(code, output.error, {"code": output.code, "type": output.type}) from None

    def _no_tool(self, name: str, queries: Iterable[str]) -> str:
        if name in TOOLS:
            return f"'{name}' is not offered here: this endpoint is read-only"
        hint = did_you_mean(name, [*self._tools, *queries])
        return f"there is no tool '{name}'; {hint or 'tools/list tells which there are'}"


def _refuse_half_characters(given: dict[str, Any]) -> None:
    """JSON can spell half of a character, which is no text and fits into no answer."""
    try:
        msgspec.json.encode(given)
    except UnicodeEncodeError:
        told = "the arguments hold half a character, a lone surrogate; send whole characters"
        raise RequestShapeError(told) from None
