"""The stored queries of an applied state, for people: what they declare, and whether they fit their graphs as these
stand now. Serving has checks of its own, which refuse; this one tells everything it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias

from omnigraph.api.stored_queries import (
    DeclaredParameter,
    DeclaredQueries,
    DeclaredQuery,
    QueriesValidated,
    QueryNote,
)
from omnigraph.cluster.addresses import Address, Kind
from omnigraph.cluster.applied import Applied
from omnigraph.cluster.catalog import Catalog, query_path
from omnigraph.cluster.diagnostics import ClusterError, error
from omnigraph.cluster.state import Resource
from omnigraph.engine.query.declared import check, declaration
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import BadRequestError, IntegrityError, NotFoundError

Head: TypeAlias = Callable[[str], AbstractContextManager[Snapshot]]
"""The head of `main` of the graph at a URI, open for as long as it is needed."""


def declared_queries(applied: Applied, graph_ids: Iterable[str]) -> DeclaredQueries:
    """What the queries of some graphs declare. Raises `ClusterError` with every one that can't be told."""
    found, broken = [], []
    for address, resource in _stored(applied, graph_ids):
        try:
            declared = declaration(_source(applied, address, resource), address.name, _file(address))
        except (NotFoundError, IntegrityError, BadRequestError) as flaw:
            broken.append(error(_code(flaw), str(address), str(flaw)))
            continue
        found.append(
            DeclaredQuery(
                name=address.name,
                mcp_expose=False,
                tool_name=None,
                mutation=declared.is_mutation,
                description=declared.description,
                instruction=declared.instruction,
                params=tuple(DeclaredParameter(*parameter) for parameter in declared.parameters),
                graph_id=address.graph or "",
            )
        )
    if broken:
        raise ClusterError(broken)
    return DeclaredQueries(tuple(found))


def validated_queries(applied: Applied, graph_ids: Iterable[str], head: Head) -> QueriesValidated:
    """Every query of some graphs, checked against the schema that its graph has now."""
    breakages: list[QueryNote] = []
    warnings: list[QueryNote] = []
    checked = 0
    for graph_id in graph_ids:
        stored = list(_stored(applied, [graph_id]))
        if not stored:
            continue
        with head(applied.graph_uri(graph_id)) as state:
            for address, resource in stored:
                checked += 1
                try:
                    source = _source(applied, address, resource)
                    odd = check(state, source, address.name, _file(address))
                except (NotFoundError, IntegrityError, BadRequestError) as flaw:
                    breakages.append(QueryNote(address.name, str(flaw), graph_id))
                else:
                    warnings += [QueryNote(address.name, message, graph_id) for message in odd]
    return QueriesValidated(not breakages, tuple(breakages), tuple(warnings), checked)


def _stored(applied: Applied, graph_ids: Iterable[str]) -> Iterator[tuple[Address, Resource]]:
    chosen = set(graph_ids)
    return (found for found in applied.state.of_kind(Kind.QUERY) if found[0].graph in chosen)


def _source(applied: Applied, address: Address, resource: Resource) -> str:
    path = query_path(address.graph or "", address.name, resource.digest)
    try:
        return Catalog(applied.store).read(path, resource.digest).decode("utf-8")
    except UnicodeDecodeError:
        raise IntegrityError(path, "it is no UTF-8 text") from None


def _code(flaw: Exception) -> str:
    if isinstance(flaw, NotFoundError):
        return "catalog_payload_missing"
    return "catalog_payload_mismatch" if isinstance(flaw, IntegrityError) else "query_parse_error"


def _file(address: Address) -> str:
    return f"{address.name}.gq"
