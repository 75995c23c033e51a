"""`omnigraph.Snapshot`: a pinned state of the whole graph that can be queried.

What `Graph.snapshot` returns: the engine's snapshot, with the reads of the engine within reach. It keeps the settings
of the handle it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph.api.query import ReadTarget
from omnigraph.engine.query.entity import read_entity
from omnigraph.engine.query.read import DEFAULT_OPTIONS, ReadOptions, run_query
from omnigraph.engine.query.result import QueryResult
from omnigraph.engine.snapshot import Snapshot as PinnedState


class Snapshot(PinnedState):
    """A state that never changes, for as long as cleanup keeps it."""

    def query(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: ReadOptions = DEFAULT_OPTIONS,
    ) -> QueryResult:
        """Run a read query on this state."""
        return run_query(self, ReadTarget(None, self.commit_id), source, name, params, options)

    def entity(self, type_key: str, entity_id: str) -> dict[str, Any] | None:
        """One node or edge in export form, None when the type or the id is not there."""
        return read_entity(self, type_key, entity_id)
