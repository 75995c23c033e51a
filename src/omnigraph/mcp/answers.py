"""Answers and failures as the protocol carries them: an object for programs, and its JSON text for models.

A failure of a tool is an answer with a code, a sentence and what a program may ask of it, so that a model can mend its
call. Whatever is not one of our errors is told as an internal one, and its cause goes to the log alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
import msgspec

from omnigraph.api import wire
from omnigraph.api.service.http import ErrorOutput
from omnigraph.errors import ErrorCode, OmniGraphError
from omnigraph.mcp.paging import shortened
from omnigraph.mcp.terms import Terms

_MOST_EXACT: Final = 2**53 - 1

logger: Final = logging.getLogger("omnigraph.mcp")


def answered(members: Mapping[str, Any]) -> types.CallToolResult:
    """The members of an answer. Its object is read from its text, so the two never differ."""
    text = msgspec.json.encode(_exact(wire.to_builtins(members)))
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text.decode())], structured_content=msgspec.json.decode(text)
    )


def _exact(value: Any) -> Any:
    """Integers that many JSON parsers would round become decimal texts."""
    if isinstance(value, dict):
        return {name: _exact(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_exact(member) for member in value]
    return str(value) if isinstance(value, int) and abs(value) > _MOST_EXACT else value


def refused(error: Exception, tool: str, terms: Terms) -> types.CallToolResult:
    """A failure as the caller may see it."""
    output = told(error, tool)
    members = wire.to_builtins(output)
    # Details are cut before the sentence that says what went wrong.
    room = terms.max_bytes - len(wire.encode({"error": output.error}))
    if 2 * room >= terms.max_bytes:
        members |= shortened({name: value for name, value in members.items() if name != "error"}, room)
    members = shortened(members, terms.max_bytes)
    named = members.get("code") or members.get("type") or "error"
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=f"{named}: {members['error']}")],
        structured_content=members,
        is_error=True,
    )


def told(error: Exception, what: str) -> ErrorOutput:
    if isinstance(error, OmniGraphError):
        return ErrorOutput.of(error)
    logger.error("%s failed", what, exc_info=error)
    return ErrorOutput(
        error=f"{what} failed inside; the log of the process that serves it has the cause",
        code=ErrorCode.INTERNAL,
        type=OmniGraphError.error_type(),
    )
