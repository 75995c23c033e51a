"""The stored queries of one graph: checked before anybody can call them, and described to those who can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from omnigraph.api.query import StoredQuery
from omnigraph.engine.query.described import described
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import BadRequestError, ConflictError
from omnigraph.server.serving import StoredQuerySource


class NamedSource(NamedTuple):
    """A stored query as it comes: its name, and the text that declares it."""

    name: str
    source: str


def stored_queries(sources: Iterable[NamedSource], snapshot: Snapshot) -> Mapping[str, StoredQuerySource]:
    """The queries by name, sorted. Raises when one does not parse, is not declared by its text or does not fit the
    schema of the state, and when two would be offered to agents as the same tool."""
    found: dict[str, StoredQuerySource] = {}
    for name, source in sorted(sources):
        try:
            entry = described(snapshot, source, name, f"{name}.gq")
        except BadRequestError as error:
            raise BadRequestError(f"stored query '{name}' can't be offered: {error}") from error
        if name in found:
            raise ConflictError(f"stored query '{name}' is given twice")
        found[name] = StoredQuerySource(source, entry)
    refuse_equal_tools(query.entry for query in found.values())
    return found


def refuse_equal_tools(entries: Iterable[StoredQuery]) -> None:
    """An agent calls a tool by its name alone."""
    owners: dict[str, str] = {}
    for entry in entries:
        owner = owners.setdefault(entry.tool_name, entry.name)
        if owner != entry.name:
            raise ConflictError(
                f"stored queries '{owner}' and '{entry.name}' have the same tool name '{entry.tool_name}'"
            )
