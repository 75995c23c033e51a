"""The applied state of a cluster as commands address it: by the ledger alone.

A payload that is damaged or a graph that is in doubt blocks nobody who looks after a graph, so neither is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.cluster.addresses import graph_address
from omnigraph.cluster.diagnostics import ClusterError
from omnigraph.cluster.ledger import STATE_FOLDER, Ledger, graph_uri, revision_path
from omnigraph.cluster.state import State
from omnigraph.cluster.storage_root import open_storage_root, storage_root
from omnigraph.engine.object_store import ObjectStore
from omnigraph.errors import BadRequestError


@dataclass(frozen=True, slots=True)
class Applied:
    """A state, and the store it was read from."""

    store: ObjectStore
    state: State

    def graph_uri(self, graph_id: str) -> str:
        return graph_uri(self.store.uri, graph_id, self.state.generation(graph_id))

    def chosen_graphs(self, graph_id: str | None) -> list[str]:
        """The graph of that id, or all of them."""
        graph_ids = self.state.graph_ids
        if graph_id is None:
            return graph_ids
        if graph_id not in graph_ids:
            raise ClusterError.of(
                "graph_not_applied",
                graph_address(graph_id),
                f"graph '{graph_id}' is not applied in cluster '{self.store.uri}'; applied: {_listed(graph_ids)}",
            )
        return [graph_id]

    def one_graph(self, graph_id: str | None) -> str:
        """The graph of that id, or the only one there is."""
        found = self.chosen_graphs(graph_id)
        if not found:
            raise BadRequestError(
                f"cluster '{self.store.uri}' has no applied graphs; declare one and run `omnigraph cluster apply`"
            )
        if len(found) > 1:
            raise BadRequestError(
                f"cluster '{self.store.uri}' has {len(found)} graphs: {_listed(found)}; pass --graph <id>"
            )
        return found[0]


def read_applied(source: str | ObjectStore, revision: int | None = None) -> Applied:
    """The newest state, or the one of that revision. Raises `ClusterError`."""
    store = open_storage_root(source) if isinstance(source, str) else source
    if store is not None:
        ledger = Ledger(store)
        recorded = ledger.newest() if revision is None else ledger.revision(revision)
        if recorded is not None:
            return Applied(store, recorded.state)
    path = STATE_FOLDER if revision is None else revision_path(revision)
    where = storage_root(source) if isinstance(source, str) else source.uri
    raise ClusterError.of(
        "cluster_state_missing", path, f"'{where}' holds no state of a cluster; import and apply one first"
    )


class Revisions:
    """The ledger of a cluster as somebody follows it. `root` is the storage root itself."""

    def __init__(self, root: str) -> None:
        self.store = ObjectStore.open(root)
        self._ledger = Ledger(self.store)

    def newer_than(self, revision: int) -> int | None:
        """The newest revision when others follow that one. While there is none, it costs one read."""
        if self.store.read(revision_path(revision + 1)) is None:
            return None
        return self._ledger.revisions()[-1]


def _listed(graph_ids: list[str]) -> str:
    return ", ".join(graph_ids) or "none"
