"""What an agent is told before it starts: how to work with a graph, and how queries are written."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import mcp_types as types

_READING: Final = """\
This is a versioned graph of typed nodes and edges. Read `schema` first. Ask with `query` (.gq text; `guide` tells \
how it is written), `search`, `entity` and `neighbours`, or with the stored queries that are offered as \
tools. Reads are of `branch`, main when it is left out, and answers name the commit that was read; given as \
`snapshot`, it reads the same state again. Answers are cut to a budget: repeat the call with the `continuation` that \
came with one to get the rest. Errors say what to mend."""

INSTRUCTIONS: Final = f"""\
{_READING} To change something, make a branch (`branch_create`), change it (`mutate`, or a stored query that \
writes), look at `merge_preview`, then `merge` it. With an `idempotency_key` of your own a write can be repeated \
safely; with `if_commit` it happens only if the branch is still at that commit."""

READ_ONLY: Final = f"{_READING} It is read-only: nothing can be changed here."

GUIDE: Final = files("omnigraph.mcp").joinpath("guide.md").read_text()

GUIDE_SCHEMA: Final = """\
node Person { name: String @key @index  age: I32? }
node City { name: String @key }
edge LivesIn: Person -> City
edge Knows: Person -> Person
"""
"""The schema that the examples of the guide are written for; a test compiles them."""

_EXPLORE: Final = """\
Get to know this graph. Read `schema`, count the nodes of the most important types with `query`, look at a few \
entities and their neighbours, and then tell me in a few paragraphs what it holds, how the types are connected and \
which questions it can answer."""

_CHANGE: Final = """\
Make this change to the graph: {task}

Work on a branch of your own (`branch_create`). Read the schema and what is there before you write. After `mutate`, \
check the result by querying the branch. Show me `merge_preview` and wait for my yes before you `merge`."""

PROMPTS: Final[dict[str, types.Prompt]] = {
    "explore": types.Prompt(name="explore", title="Explore the graph", description="What is in this graph?"),
    "propose_change": types.Prompt(
        name="propose_change",
        title="Propose a change",
        description="Make a change on a branch and show what it would do to main.",
        arguments=[types.PromptArgument(name="task", description="What to change.", required=True)],
    ),
}


def prompt(name: str, arguments: dict[str, str]) -> types.GetPromptResult:
    text = _EXPLORE if name == "explore" else _CHANGE.format(task=arguments.get("task", "").strip() or "(say what)")
    content = types.TextContent(type="text", text=text)
    return types.GetPromptResult(
        description=PROMPTS[name].description, messages=[types.PromptMessage(role="user", content=content)]
    )
