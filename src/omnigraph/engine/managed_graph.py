"""Graphs that a cluster manages: what is stored at a root, creating a graph there, and changing its schema.

Every step can be repeated, and the graph itself shows whether it was taken. A commit made here carries the operation
it belongs to, which distinguishes it from changes that people make by hand.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from omnigraph.api.schema import SchemaApplied, SchemaApplyRequest, SchemaPlan
from omnigraph.engine.history import log_walk
from omnigraph.engine.schema.apply import ManagedChange, apply_schema, plan_schema
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import ConflictError, NotFoundError, OmniGraphError, StorageError
from omnigraph.storage.creation import leftovers
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.location import Location
from omnigraph.storage.models import LogEntry

OPERATION: Final = "cluster_operation"
"""The member of a commit's details that names the operation which made it."""


class Standing(StrEnum):
    """The kinds of findings at a root."""

    NOTHING = "nothing"
    UNFINISHED = "unfinished"
    """Leftovers of an init that died. No graph yet, and nothing that anybody would miss."""
    OCCUPIED = "occupied"
    """Something that is not a graph."""
    BROKEN = "broken"
    """A graph that does not open."""
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Found:
    """A look at a root. `version` and `schema` (its text) are those of the head of main; `problem` says why there is no
    graph to see."""

    standing: Standing
    identity: str | None = None
    version: int | None = None
    schema: str | None = None
    problem: str | None = None


def look_at(uri: str) -> Found:
    """The finding at a root. Raises `StorageError` when it can't be determined."""
    try:
        return _graph_at(uri)
    except StorageError:
        raise
    except OmniGraphError as error:
        problem = error
    left = leftovers(Location.parse(uri))
    if left.foreign is not None and not left.is_graph:
        return Found(Standing.OCCUPIED, problem=f"it holds '{left.foreign}' and no graph")
    if not left.is_graph:
        return Found(Standing.UNFINISHED if left.own else Standing.NOTHING)
    if isinstance(problem, NotFoundError):
        # There was no graph a moment ago; one that was made meanwhile opens now.
        try:
            return _graph_at(uri)
        except StorageError:
            raise
        except OmniGraphError as error:
            problem = error
    return Found(Standing.BROKEN, problem=str(problem))


def _graph_at(uri: str) -> Found:
    with closing(Workspace.open(uri)) as workspace:
        head = workspace.snapshot(MAIN)
        return Found(Standing.GRAPH, workspace.graph_id, head.entry.version, head.schema_document.source)


def schema_made_by(uri: str) -> str | None:
    """The operation that gave main the schema it has, None when no managed change did. Found by steps back from the
    head that double, and a binary search in the last of them. A schema that came, went and came back within one step
    may be taken for the first one of its kind, which said the same."""
    with closing(Workspace.open(uri)) as workspace:
        head = workspace.head(MAIN)
        wanted, high, step = head.entry.schema, head.entry.version, 1

        def at(version: int) -> LogEntry:
            return log_walk.at_version(workspace.root, head, version)

        while (low := max(high - step, 0)) > 0 and at(low).schema == wanted:
            high, step = low, step * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if at(middle).schema == wanted else (middle, high)
        return at(high).commit.details.get(OPERATION)


def make(uri: str, schema: str, operation: str, actor: str | None) -> None:
    """Create a graph. Leftovers of an init that died are replaced; an existing graph is an error."""
    Workspace.init(uri, schema, actor=actor, details={OPERATION: operation}, force=True).close()


def change_schema(uri: str, seen: Found, schema: str, operation: str, actor: str | None) -> SchemaApplied:
    """Change the schema of the graph that `look_at` found; dropped data stays in its history. Refused when it is
    another graph now or its schema was changed since."""
    with closing(Workspace.open(uri)) as workspace:
        if workspace.graph_id != seen.identity or seen.version is None:
            raise ConflictError(f"'{uri}' is not the graph that was looked at; nothing was changed, look again")
        managed = ManagedChange(seen.version, {OPERATION: operation})
        return apply_schema(workspace, SchemaApplyRequest(schema), actor=actor, managed=managed)


def preview_change(uri: str, schema: str) -> SchemaPlan:
    """The migration from the schema of main to this one. Writes nothing."""
    with closing(Workspace.open(uri)) as workspace:
        return plan_schema(workspace, SchemaApplyRequest(schema))
