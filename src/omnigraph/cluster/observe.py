"""What stands at the roots of a cluster's graphs, looked at all at once."""

from __future__ import annotations

import re
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from omnigraph.cluster.addresses import RESOURCE_ID
from omnigraph.cluster.diagnostics import ClusterError
from omnigraph.cluster.digests import file_digest
from omnigraph.cluster.ledger import GRAPHS_FOLDER, graph_folder, graph_uri
from omnigraph.cluster.state import State
from omnigraph.engine.managed_graph import Found, Standing, look_at, schema_made_by
from omnigraph.engine.object_store import ObjectStore
from omnigraph.errors import StorageError

_LOOKS_AT_ONCE: Final = 8
_FOLDER: Final = re.compile(rf"(?P<id>{RESOURCE_ID.pattern})(?:\.(?P<generation>[1-9][0-9]*))?\.omni")


@dataclass(frozen=True, slots=True)
class GraphView:
    """A look at a root. `found` is None when the store did not let us, for the reason in `problem`."""

    graph_id: str
    uri: str
    found: Found | None
    problem: str | None = None

    @property
    def standing(self) -> Standing | None:
        return self.found.standing if self.found is not None else None

    @property
    def schema_digest(self) -> str | None:
        text = self.found.schema if self.found is not None else None
        return None if text is None else file_digest(text.encode())

    def made_by(self) -> str | None:
        """The apply that gave the graph the schema it has; None when somebody else did."""
        return schema_made_by(self.uri)


@dataclass(frozen=True, slots=True)
class Views:
    """What was found: graphs by id, and folders of roots that were deleted before."""

    graphs: dict[str, GraphView]
    strays: frozenset[str] = frozenset()
    """Ids of graphs that were asked for by nobody: neither declared nor recorded."""
    leftovers: tuple[str, ...] = field(default=())


def observe(store: ObjectStore, state: State | None, declared: Collection[str]) -> Views:
    """Look at every graph that is declared, recorded or simply there. One listing, and five reads for each graph."""
    folders = graph_folders(store)
    recorded = set(state.graph_ids) if state is not None else set()
    current, leftovers, strays = {}, [], set()
    for (graph_id, generation), folder in folders.items():
        newest = state.generation(graph_id) if state is not None else generation
        if generation < newest:
            leftovers.append(folder)
        elif generation == newest:
            current[graph_id] = folder
            if graph_id not in recorded and graph_id not in declared:
                strays.add(graph_id)

    def look(graph_id: str) -> GraphView:
        generation = state.generation(graph_id) if state is not None else 1
        uri = graph_uri(store.uri, graph_id, generation)
        if graph_id not in current:
            return GraphView(graph_id, uri, Found(Standing.NOTHING))
        try:
            return GraphView(graph_id, uri, look_at(uri))
        except StorageError as problem:
            return GraphView(graph_id, uri, None, str(problem))

    wanted = sorted({*declared, *recorded, *strays})
    with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="omnigraph-observe") as workers:
        views = dict(zip(wanted, workers.map(look, wanted), strict=True))
    return Views(views, frozenset(strays), tuple(leftovers))


def graph_folders(store: ObjectStore) -> dict[tuple[str, int], str]:
    """The folders of roots that stand, by id and generation."""
    try:
        names = store.folders(GRAPHS_FOLDER)
    except StorageError as problem:
        raise ClusterError.of("graph_observation_error", GRAPHS_FOLDER, str(problem)) from problem
    found = {}
    for name in names:
        if (parts := _FOLDER.fullmatch(name)) is not None:
            graph_id, generation = parts["id"], int(parts["generation"] or 1)
            if graph_folder(graph_id, generation) == f"{GRAPHS_FOLDER}/{name}":
                found[graph_id, generation] = f"{GRAPHS_FOLDER}/{name}"
    return found
