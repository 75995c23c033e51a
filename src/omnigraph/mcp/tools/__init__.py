"""The tools that every graph has, whatever its schema and its stored queries."""

from __future__ import annotations

from typing import Final

from omnigraph.mcp.tool import Tool
from omnigraph.mcp.tools import branches, entities, queries

TOOLS: Final[dict[str, Tool]] = {
    tool.name: tool
    for tool in (
        queries.SCHEMA,
        queries.GUIDE_TOOL,
        queries.QUERY,
        entities.SEARCH,
        entities.ENTITY,
        entities.NEIGHBOURS,
        branches.BRANCHES,
        branches.BRANCH_CREATE,
        branches.DIFF,
        branches.MERGE_PREVIEW,
        branches.MERGE,
        queries.MUTATE,
        branches.HISTORY,
        branches.COMMIT_CHANGES,
    )
}
