"""`RemoteSnapshot`: a pinned state of a graph behind a server. Each read is a call of the graph for one commit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from omnigraph.api.branches import SnapshotListing
from omnigraph.api.calls import GraphCalls, QueryBatches, QueryRows
from omnigraph.api.queries import OperatorProfile
from omnigraph.errors import DirectAccessError


class RemoteSnapshot:
    """A state that never changes, for as long as cleanup keeps it: `branch`, `version` and `commit_id` say which.

    What `RemoteGraph.at` and `RemoteGraph.snapshot` return. Of an `AsyncRemoteGraph` the calls are awaited.
    """

    def __init__(self, graph: GraphCalls, branch: str, version: int, commit_id: str) -> None:
        self._graph = graph
        self.branch = branch
        self.version = version
        self.commit_id = commit_id

    def __repr__(self) -> str:
        return f"<snapshot of {self._graph.uri}: branch '{self.branch}', version {self.version}>"

    def query(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: Any = None,
        **parameters: Any,
    ) -> QueryRows:
        """Run a read query on this state; see `Graph.query`."""
        asked = self._graph._bound(source, name, params, parameters, {"options": options})
        return self._graph.query(*asked, snapshot=self.commit_id, options=options)

    def stream(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: Any = None,
        **parameters: Any,
    ) -> QueryBatches:
        """As `query`, a batch at a time: for results that should not be in memory at once."""
        asked = self._graph._bound(source, name, params, parameters, {"options": options})
        return self._graph.stream(*asked, snapshot=self.commit_id, options=options)

    def explain(
        self, source: Any, name: str | None = None, params: Mapping[str, Any] | None = None, **parameters: Any
    ) -> list[str]:
        """The plan of a read query as lines of an indented tree. Nothing is run."""
        return self._graph.explain(*self._graph._bound(source, name, params, parameters, {}), snapshot=self.commit_id)

    def profile(
        self, source: Any, name: str | None = None, params: Mapping[str, Any] | None = None, **parameters: Any
    ) -> OperatorProfile:
        """Run a read query, drop its rows and tell what each operator did."""
        return self._graph.profile(*self._graph._bound(source, name, params, parameters, {}), snapshot=self.commit_id)

    def entity(self, type_name: str, entity_id: str) -> dict[str, Any] | None:
        """One node or edge in export form, by its type (`Book`, or `node:Book`) and id; None when it is not there."""
        return self._graph.entity(type_name, entity_id, snapshot=self.commit_id)

    def count(self, type_name: str, filter: str | None = None) -> int:
        """How many entities of a type there are. A filter is about stored columns, so it needs the storage itself."""
        if filter is not None:
            raise DirectAccessError("counting by a filter of stored columns")
        return self._graph.count(type_name, snapshot=self.commit_id)

    def listing(self) -> SnapshotListing:
        """The tables of this state with their versions, and how many entities each has."""
        return self._graph.listing(snapshot=self.commit_id)

    def export(self, types: Collection[str] = (), *, epoch: bool = False) -> Iterator[str]:
        """The lines of an export, each with its line end; with `epoch`, dates and times are numbers."""
        return self._graph.export(snapshot=self.commit_id, types=types, epoch=epoch)
