"""Stored queries for a graph that has none by itself: those of .gq files, as a server offers those of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from omnigraph.api.load import MutationReceipt
from omnigraph.api.queries import StoredQueries, StoredQuery
from omnigraph.errors import BadRequestError, ConflictError
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.operation import describe_parameters
from omnigraph.mcp.graph import AgentGraph, Rows
from omnigraph.mcp.schema import catalog_of


def with_query_files(graph: AgentGraph, texts: Iterable[tuple[str, str]]) -> AgentGraph:
    """The graph with the queries of some texts, each given as a name for messages and the text itself.

    Raises when a query does not fit the schema of main, or when two have one name.
    """
    return cast(AgentGraph, _WithQueryFiles(graph, texts))  # whatever it has not itself, it has from the graph


class _WithQueryFiles:
    def __init__(self, graph: AgentGraph, texts: Iterable[tuple[str, str]]) -> None:
        self._graph = graph
        self._sources: dict[str, str] = {}
        catalog = catalog_of(graph.schema_text())
        entries = []
        for path, text in texts:
            for query in compile_queries(text, catalog, path).queries:
                if query.name in self._sources:
                    raise ConflictError(f"{path}: a query called '{query.name}' is given already; rename one of them")
                self._sources[query.name] = text
                entries.append(StoredQuery.of(query, describe_parameters(query.parameters)))
        self._entries = StoredQueries(tuple(sorted(entries, key=lambda entry: entry.name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def stored_queries(self) -> StoredQueries:
        return self._entries

    def invoke(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> Rows | MutationReceipt:
        entry = next((each for each in self._entries.queries if each.name == name), None)
        if entry is None:
            raise BadRequestError(f"there is no stored query '{name}'")
        if not entry.mutation:
            return self._graph.stream(
                self._sources[name], name, params, branch=branch, snapshot=snapshot, version=version
            )
        return self._graph.mutate(
            self._sources[name],
            name,
            params,
            branch=branch,
            if_commit=if_commit,
            actor=actor,
            idempotency_key=idempotency_key,
        )
