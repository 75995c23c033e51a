"""The stored queries of a cluster as `omnigraph queries` tells them: what is declared, and what no longer fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Struct

from omnigraph.api.query import ParamDescriptor, StoredQueries
from omnigraph.api.wire import LOCAL


class DeclaredParameter(Struct, frozen=True):
    """`type` is its text in the query language, without the mark of a nullable one."""

    name: str
    type: str
    nullable: bool

    def __str__(self) -> str:
        return f"${self.name}: {self.type}{'?' if self.nullable else ''}"


class DeclaredQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored query by what its text declares. A cluster exposes no tools, so there is no name of one."""

    name: str
    mcp_expose: bool
    tool_name: str | None
    mutation: bool
    description: str | None = None
    instruction: str | None = None
    params: tuple[DeclaredParameter, ...]
    graph_id: str

    def lines(self) -> Iterator[str]:
        """The query for a person."""
        yield f"{'mutation' if self.mutation else 'read'}  {self.name}({', '.join(map(str, self.params))})"
        if self.description is not None:
            yield f"    description: {self.description}"
        if self.instruction is not None:
            yield f"    instruction: {self.instruction}"


class DeclaredQueries(Struct, frozen=True):
    """Sorted by graph, then by name."""

    queries: tuple[DeclaredQuery, ...]

    @classmethod
    def offered(cls, listed: StoredQueries, graph_id: str) -> DeclaredQueries:
        """The queries that a server offers on a graph. It tells kinds of values where a text has types."""
        return cls(
            tuple(
                DeclaredQuery(
                    name=query.name,
                    mcp_expose=True,
                    tool_name=query.tool_name,
                    mutation=query.mutation,
                    description=query.description,
                    instruction=query.instruction,
                    params=tuple(DeclaredParameter(p.name, _kind(p), p.nullable) for p in query.params),
                    graph_id=graph_id,
                )
                for query in listed.queries
            )
        )

    def lines(self) -> Iterator[str]:
        """For a person; graphs are named where there are several."""
        if not self.queries:
            yield "(no stored queries registered)"
        graphs = {query.graph_id for query in self.queries}
        told = None
        for query in self.queries:
            if len(graphs) > 1 and query.graph_id != told:
                told = query.graph_id
                yield f"graph {told}"
            yield from query.lines()


def _kind(parameter: ParamDescriptor) -> str:
    if parameter.item_kind is not None:
        return f"[{parameter.item_kind}]"
    return parameter.kind if parameter.vector_dim is None else f"{parameter.kind}({parameter.vector_dim})"


class QueryNote(Struct, frozen=True):
    """What is wrong with one stored query, or odd about it."""

    query: str
    message: str
    graph_id: str


class QueriesValidated(Struct, frozen=True):
    """Whether every stored query fits the schema of its graph."""

    ok: bool
    breakages: tuple[QueryNote, ...]
    warnings: tuple[QueryNote, ...]
    checked: Annotated[int, LOCAL] = 0

    def lines(self) -> Iterator[str]:
        """The report for a person."""
        for breakage in self.breakages:
            yield f"ERROR  query '{breakage.query}': {_indented(breakage.message)}"
        for warning in self.warnings:
            yield f"WARN   query '{warning.query}': {_indented(warning.message)}"
        if self.ok:
            checks = "1 stored query type-checks" if self.checked == 1 else f"{self.checked} stored queries type-check"
            yield f"OK  {checks} against the schema"


def _indented(text: str) -> str:
    return text.replace("\n", "\n       ")
