"""A scripted agent: the official client, with answers taken apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import mcp_types as types
from mcp import Client

Result = TypeVar("Result")


class Agent:
    """Calls tools; an answer is its structured content, which must be what its text says."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def tools(self) -> dict[str, types.Tool]:
        return {tool.name: tool for tool in (await self.client.list_tools()).tools}

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        answer = await self.client.call_tool(tool, arguments)
        (content,) = answer.content
        assert isinstance(content, types.TextContent)
        assert not answer.is_error, content.text
        members: dict[str, Any] = answer.structured_content
        return members

    async def refused(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The error of a call that fails. Its text begins with the code and holds the message."""
        answer = await self.client.call_tool(tool, arguments)
        (content,) = answer.content
        assert isinstance(content, types.TextContent)
        assert answer.is_error, content.text
        members: dict[str, Any] = answer.structured_content
        assert content.text.endswith(members["error"])
        return members

    async def pages(
        self, tool: str, member: str, /, between: Callable[[], None] = lambda: None, **arguments: Any
    ) -> list[list[Any]]:
        """Every page of an answer, to the end; something else may happen between them."""
        found = [await self.call(tool, **arguments)]
        while (token := found[-1].get("continuation")) is not None:
            between()
            found.append(await self.call(tool, **arguments, continuation=token))
        return [page[member] for page in found]


def as_agent(server: Any, script: Callable[[Agent], Awaitable[Result]], **options: Any) -> Result:
    """Run a script against a server: in memory, a process or a URL, as the client takes it."""

    async def run() -> Result:
        async with Client(server, **options) as client:
            return await script(Agent(client))

    return asyncio.run(run())
