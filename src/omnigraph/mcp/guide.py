"""Texts for agents: instructions, the guide to the query language, prompts, and summaries of the schema.

It also makes entities readable: they come in export form, with days and milliseconds since 1970, vectors in full and
blobs with all their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import mcp_types as types

from omnigraph.dates import format_date, format_datetime
from omnigraph.language.catalog import Cardinality, Catalog, EdgeType, NodeType, Property, TableType
from omnigraph.language.query.tokens import RESERVED_WORDS
from omnigraph.language.schema.compile import compile_schema
from omnigraph.language.types import Scalar

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


@lru_cache(maxsize=16)
def catalog_of(text: str) -> Catalog:
    return compile_schema(text)


def summary(catalog: Catalog) -> list[dict[str, Any]]:
    """Every type in the order of the source, nodes first: its properties as text, and the edges that touch it."""
    types: list[TableType] = [*catalog.nodes.values(), *catalog.edges.values()]
    return [_summary(type_, catalog) for type_ in types]


def _summary(type_: TableType, catalog: Catalog) -> dict[str, Any]:
    members: dict[str, Any] = {"kind": type_.kind, "type": type_.name}
    if type_.description is not None:
        members["description"] = type_.description
    if type_.instruction is not None:
        members["instruction"] = type_.instruction
    if isinstance(type_, EdgeType):
        members |= {"from": type_.from_type, "to": type_.to_type, "written": traversal_name(type_)}
    if type_.key:
        members["key"] = list(type_.key)
    members["properties"] = {prop.name: _property(type_, prop) for prop in type_.property_list}
    if rules := _rules(type_):
        members["rules"] = rules
    if isinstance(type_, NodeType):
        members["edges"] = [
            f"{edge.from_type} {traversal_name(edge)} {edge.to_type}" for edge in catalog.incident_edges(type_.name)
        ]
    return members


def _property(type_: TableType, prop: Property) -> str:
    notes = [prop.type.display]
    if prop.default is not None:
        notes.append(f"default {prop.default_text}")
    notes += [str(kind) for kind in type_.index_kinds(prop.name)]
    if prop.embed is not None:
        notes.append(f"{'computed from' if prop.embed.on_write else 'embeds'} {prop.embed.property}")
    if prop.description is not None:
        notes.append(prop.description)
    return ", ".join(notes)


def _rules(type_: TableType) -> list[str]:
    """The rules for every write, as the language of schemas spells them."""
    rules = [f"@unique({', '.join(names)})" for names in type_.uniques]
    if isinstance(type_, EdgeType):
        return rules if type_.cardinality == Cardinality() else [*rules, f"@card({type_.cardinality})"]
    for each in type_.ranges:
        low, high = ("" if bound is None else bound for bound in (each.low, each.high))
        rules.append(f"@range({each.property}, {low}..{high})")
    return [*rules, *(f"@check({each.property}, {json.dumps(each.pattern)})" for each in type_.checks)]


def traversal_name(edge: EdgeType) -> str:
    """How queries spell an edge type. A word of the language is quoted."""
    name = edge.name[0].lower() + edge.name[1:]
    return f'"{name}"' if name in RESERVED_WORDS else name


def readable(
    type_: TableType, entity: Mapping[str, Any], wanted: Collection[str] = (), *, nulls: bool = True
) -> dict[str, Any]:
    """The members of an entity with dates as texts; a vector or blob that is not asked for is only mentioned."""
    members = {name: _value(type_.properties.get(name), value, name in wanted) for name, value in entity.items()}
    return members if nulls else {name: value for name, value in members.items() if value is not None}


def _value(prop: Property | None, value: Any, whole: bool) -> Any:
    if prop is None or value is None:
        return value
    kind = prop.type
    if kind.is_vector:
        return value if whole else f"({kind.display})"
    if kind.is_blob:
        return value if whole or not value.startswith("base64:") else "(Blob)"
    if kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        spell = format_date if kind.scalar is Scalar.DATE else format_datetime
        return list(map(spell, value)) if kind.list else spell(value)
    return value
