"""The tools that every graph has, whatever its schema and its stored queries."""

from __future__ import annotations

from typing import Final

from omnigraph.mcp.tool import Tool
from omnigraph.mcp.tools import branches, entities, history, reading, searching, writing

TOOLS: Final[dict[str, Tool]] = {
    tool.name: tool
    for tool in (
        reading.SCHEMA,
        reading.GUIDE_TOOL,
        reading.QUERY,
        searching.SEARCH,
        entities.ENTITY,
        entities.NEIGHBOURS,
        branches.BRANCHES,
        branches.BRANCH_CREATE,
        branches.DIFF,
        branches.MERGE_PREVIEW,
        branches.MERGE,
        writing.MUTATE,
        history.HISTORY,
        history.COMMIT_CHANGES,
    )
}
