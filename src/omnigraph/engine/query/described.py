"""What callers are told of a query that is offered to them by name: checked against the schema of a state."""

from __future__ import annotations

from omnigraph.api.queries import StoredQuery
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.operation import describe_parameters


def described(snapshot: Snapshot, source: str, name: str, path: str | None = None) -> StoredQuery:
    """The query of that name in a text. Raises `CompileError` when the text does not parse or the query does not fit
    the schema, `BadRequestError` when the text does not declare it; `path` only shows in messages."""
    query = compile_queries(source, snapshot.catalog, path, snapshot.resources.limits.query).query(name)
    return StoredQuery.of(query, describe_parameters(query.parameters))
