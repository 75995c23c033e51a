"""Where another process finds a graph, with the store options of the process that sent it there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from omnigraph.engine.workspace import Workspace
from omnigraph.storage.location import Location
from omnigraph.storage.root import open_root


@dataclass(frozen=True, slots=True)
class GraphAddress:
    """Plain data for tasks and committing processes. The options of the store may hold credentials."""

    location: Location

    @classmethod
    def of(cls, uri: str) -> GraphAddress:
        return cls(Location.parse(uri))

    @contextmanager
    def opened(self) -> Iterator[Workspace]:
        """The graph, open for as long as the block runs."""
        workspace = Workspace(open_root(self.location))
        try:
            yield workspace
        finally:
            workspace.close()
