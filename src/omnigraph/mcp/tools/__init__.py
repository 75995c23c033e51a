"""The tools that every graph has, whatever its schema and its stored queries."""

from __future__ import annotations

from typing import Final

from omnigraph.mcp.tool import Tool
from omnigraph.mcp.tools.branches import branch_create, branches, commit_changes, diff, history, merge, merge_preview
from omnigraph.mcp.tools.entities import entity, neighbours, search
from omnigraph.mcp.tools.queries import guide, mutate, query, schema

TOOLS: Final[dict[str, Tool]] = {
    tool.name: tool
    for tool in (
        *(schema, guide, query, search, entity, neighbours, branches, branch_create),
        *(diff, merge_preview, merge, mutate, history, commit_changes),
    )
}
