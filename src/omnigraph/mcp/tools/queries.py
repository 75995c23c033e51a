"""The tools for the schema, the guide to the query language, read queries, and mutations on a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta

from omnigraph.api import wire
from omnigraph.language.query.parser import first_word
from omnigraph.mcp.graph import Rows, open_cursor
from omnigraph.mcp.guide import GUIDE, summary
from omnigraph.mcp.tool import (
    Branch,
    IdempotencyKey,
    IfCommit,
    Params,
    PinnedPoint,
    QueryName,
    Result,
    Snapshot,
    Toolcall,
    tool,
)

MutatedBranch = Annotated[
    str | None,
    Meta(description="The branch that is changed; one that branch_create made. Only branch statements leave it out."),
]


@tool("Schema")
def schema(
    call: Toolcall,
    *,
    branch: Branch = None,
    snapshot: Snapshot = None,
    type: Annotated[str | None, Meta(description="Only this type.")] = None,
    source: Annotated[bool, Meta(description="The text of the schema instead of a summary.")] = False,
) -> Result:
    """The types of the graph: nodes with their properties, keys and edges, and how edges are written in queries. Read
    this before you write a query."""
    point = PinnedPoint.of(branch, snapshot, call.position).pin(call.graph)
    head = {"commit": point.commit}
    if source:
        text = call.graph.schema.show(**point.keywords)
        return _page_of_lines(call, head, "source", text, lambda: point.pins)
    catalog = point.catalog(call.graph)
    types = summary(catalog)
    if type is not None:
        chosen = catalog.type_named(type)
        types = [each for each in types if (each["kind"], each["type"]) == (chosen.kind, chosen.name)]
    return call.page(head, "types", types, lambda: point.pins)


def _page_of_lines(
    call: Toolcall, head: Mapping[str, Any], name: str, text: str, pins: Callable[[], Iterable[str]] = tuple
) -> Result:
    """The lines of a text that fit, as one text again."""
    page = call.page(head, name, text.splitlines(keepends=True), pins)
    return {**page, name: "".join(page[name])}


@tool("How queries are written")
def guide(call: Toolcall) -> Result:
    """A page about the .gq language with examples of reading, searching and writing. Read it once before you write a
    query."""
    return _page_of_lines(call, {}, "text", GUIDE)


@tool("Run a read query")
def query(
    call: Toolcall,
    *,
    branch: Branch = None,
    snapshot: Snapshot = None,
    query: Annotated[str, Meta(description="The text of a read query in the .gq language.")],
    name: QueryName = None,
    params: Params = None,
) -> Result:
    """Runs a query in the .gq language on one snapshot of the graph. Example: query older($age: I32) { match { $p:
    Person $p.age > $age } return { $p.name as name, $p.age as age } order { age desc } limit 20 }. explain query …
    gives its plan instead of its rows. guide has more. Errors name the line and column, and often what was meant."""
    point = PinnedPoint.of(branch, snapshot, call.position)
    # The branches are not of a state of the graph: one that is named beside their statement is refused.
    named = {"branch": branch, "snapshot": snapshot} if first_word(query) == "branch" else point.keywords
    return page_of_rows(call, point, call.graph.stream(query, name, params, **named))


def page_of_rows(call: Toolcall, point: PinnedPoint, rows: Rows) -> Result:
    """The rows that fit, and the commit that they, and all pages after them, are read from."""
    commit = rows.graph_commit_id or None
    head = {"commit": commit, "columns": list(rows.columns)}
    with open_cursor(point.check(rows)) as cursor:
        return call.page(head, "rows", cursor, lambda: () if commit is None else point.at(call.graph, commit).pins)


@tool("Change a branch", writes=True, destructive=True)
def mutate(
    call: Toolcall,
    *,
    query: Annotated[str, Meta(description="The text of a mutation in the .gq language.")],
    branch: MutatedBranch = None,
    name: QueryName = None,
    params: Params = None,
    if_commit: IfCommit = None,
    idempotency_key: IdempotencyKey = None,
) -> Result:
    """Runs inserts, updates or deletes as one commit, or not at all. Examples: query add($name: String) { insert Person
    { name: $name } }; query age($name: String, $age: I32) { update Person set { age: $age } where name = $name }; query
    link($a: String, $b: String) { insert Knows { from: $a, to: $b } }; query drop($name: String) { delete Person where
    name = $name }. An insert replaces the node of the same key. commit is null when nothing matched. The statements
    branch create work from main, branch merge work into main and branch delete work name their branches themselves."""
    receipt = call.graph.mutate(
        query,
        name,
        params,
        branch=branch if first_word(query) in ("branch", "explain") else call.terms.writable(branch or ""),
        if_commit=if_commit,
        actor=call.actor,
        idempotency_key=idempotency_key,
    )
    members: Result = wire.to_builtins(receipt)
    return members
