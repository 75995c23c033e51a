"""The tools for the schema, the guide to the query language, read queries, and mutations on a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from omnigraph.api import wire
from omnigraph.mcp.graph import Rows, reading
from omnigraph.mcp.guide import GUIDE, summary
from omnigraph.mcp.tool import (
    Arguments,
    Continuation,
    IdempotencyKey,
    PagePosition,
    Params,
    PinnedPoint,
    QueryName,
    ReadArguments,
    Tool,
    Toolcall,
)


class SchemaArguments(ReadArguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    type: Annotated[str | None, Meta(description="Only this type.")] = None
    source: Annotated[bool, Meta(description="The text of the schema instead of a summary.")] = False
    continuation: Continuation = None


def schema(call: Toolcall, arguments: SchemaArguments) -> dict[str, Any]:
    position = PagePosition.of("schema", arguments, arguments.continuation)
    point = arguments.point(position).pin(call.graph)
    head = {"commit": point.commit}
    if arguments.source:
        text = call.graph.schema.show(**point.keywords)
        return page_of_lines(call, position, head, "source", text, lambda: point.pins)
    catalog = point.catalog(call.graph)
    types = summary(catalog)
    if arguments.type is not None:
        chosen = catalog.type_named(arguments.type)
        types = [each for each in types if (each["kind"], each["type"]) == (chosen.kind, chosen.name)]
    return position.page(call.terms, head, "types", types, lambda: point.pins)


def page_of_lines(
    call: Toolcall,
    position: PagePosition,
    head: Mapping[str, Any],
    name: str,
    text: str,
    pins: Callable[[], Iterable[str]] = tuple,
) -> dict[str, Any]:
    """The lines of a text that fit, as one text again."""
    answer = position.page(call.terms, head, name, text.splitlines(keepends=True), pins)
    return {**answer, name: "".join(answer[name])}


SCHEMA: Final = Tool(
    "schema",
    "Schema",
    "The types of the graph: nodes with their properties, keys and edges, and how edges are written in queries. Read "
    "this before you write a query.",
    SchemaArguments,
    schema,
)


class GuideArguments(Arguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    continuation: Continuation = None


def guide(call: Toolcall, arguments: GuideArguments) -> dict[str, Any]:
    return page_of_lines(call, PagePosition.of("guide", arguments, arguments.continuation), {}, "text", GUIDE)


GUIDE_TOOL: Final = Tool(
    "guide",
    "How queries are written",
    "A page about the .gq language with examples of reading, searching and writing. Read it once before you write a "
    "query.",
    GuideArguments,
    guide,
)


class QueryArguments(ReadArguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description="The text of a read query in the .gq language.")]
    name: QueryName = None
    params: Params = None
    continuation: Continuation = None


def query(call: Toolcall, arguments: QueryArguments) -> dict[str, Any]:
    position = PagePosition.of("query", arguments, arguments.continuation)
    point = arguments.point(position)
    rows = call.graph.stream(arguments.query, arguments.name, arguments.params, **point.keywords)
    return page_of_rows(call, position, point, rows)


def page_of_rows(call: Toolcall, position: PagePosition, point: PinnedPoint, rows: Rows) -> dict[str, Any]:
    """The rows that fit, and the commit that they, and all pages after them, are read from."""
    commit = rows.graph_commit_id
    head = {"commit": commit, "columns": list(rows.columns)}
    with reading(point.check(rows)) as found:
        return position.page(call.terms, head, "rows", found, lambda: point.at(call.graph, commit).pins)


QUERY: Final = Tool(
    "query",
    "Run a read query",
    "Runs a query in the .gq language on one snapshot of the graph. Example: query older($age: I32) { match { "
    "$p: Person $p.age > $age } return { $p.name as name, $p.age as age } order { age desc } limit 20 }. There is "
    "no null and no negative literal: pass them as parameters. guide has more. Errors name the line and column, and "
    "often what was meant.",
    QueryArguments,
    query,
)


WriteBranch = Annotated[str, Meta(description="The branch that is changed; one that branch_create made.")]
IfCommit = Annotated[
    str | None, Meta(description="Only if the branch is at this commit; nothing is written otherwise.")
]


class MutateArguments(Arguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description="The text of a mutation in the .gq language.")]
    branch: WriteBranch
    name: QueryName = None
    params: Params = None
    if_commit: IfCommit = None
    idempotency_key: IdempotencyKey = None


def mutate(call: Toolcall, arguments: MutateArguments) -> dict[str, Any]:
    receipt = call.graph.mutate(
        arguments.query,
        arguments.name,
        arguments.params,
        branch=call.terms.writable(arguments.branch),
        if_commit=arguments.if_commit,
        actor=call.actor,
        idempotency_key=arguments.idempotency_key,
    )
    members: dict[str, Any] = wire.to_builtins(receipt)
    return members


MUTATE: Final = Tool(
    "mutate",
    "Change a branch",
    "Runs inserts, updates or deletes as one commit, or not at all. Examples: query add($name: String) { insert Person "
    "{ name: $name } }; query age($name: String, $age: I32) { update Person set { age: $age } where name = $name }; "
    "query link($a: String, $b: String) { insert Knows { from: $a, to: $b } }; query drop($name: String) { delete "
    "Person where name = $name }. An insert replaces the node of the same key. commit is null when nothing matched.",
    MutateArguments,
    mutate,
    writes=True,
    destructive=True,
)
