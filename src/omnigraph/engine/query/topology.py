"""The topology of an edge type: its adjacency both ways, built once per table versions and shared by every reader.

Looked for in memory (one byte-bounded cache per process), then in the store, then derived from an older build by the
rows that changed since, and only then built from the tables. Keyed by immutable versions, so nothing is ever stale
and branches that point at the same versions share. Called by `expand`; answers never depend on what it finds.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from numpy.typing import NDArray

from omnigraph.engine.query.adjacency import Adjacency, either_way
from omnigraph.engine.query.bindings import RowSpace
from omnigraph.engine.query.topology_build import built, derived
from omnigraph.errors import HistoricalVersionReclaimedError, IntegrityError
from omnigraph.language.query.ir import Direction
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.models import TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.topology import TopologyDescription, TopologyFiles, described, topology_folder

CACHE_VARIABLE: Final = "OMNIGRAPH_TOPOLOGY_CACHE_BYTES"
_DEFAULT_CACHE_BYTES: Final = 1 << 30
_OLDER_BUILDS_TRIED: Final = 2
_BUILDS_PER_EDGE_TYPE: Final = 4
"""How many states of one edge type stay in memory. Every commit makes a new one, and readers want the newest."""
_REMEMBERED_KEYS: Final = 4_096


class Shape(StrEnum):
    """`NEIGHBOURS` lists each neighbour once, `EDGES` every stored edge."""

    NEIGHBOURS = "neighbours"
    EDGES = "edges"


@dataclass(frozen=True, slots=True)
class TopologyKey:
    """What a topology is made of. Equal keys mean equal arrays, for ever."""

    graph_id: str
    shape: Shape
    edges: TableState
    sources: TableState
    targets: TableState

    @property
    def folder(self) -> str:
        named = "\n".join(f"{s.path}@{s.version}" for s in (self.edges, self.sources, self.targets))
        return topology_folder(self.edges.table_id, f"{self.shape}-{hashlib.sha256(named.encode()).hexdigest()[:32]}")


class Topology:
    """Both directions of one edge type at one state."""

    def __init__(self, key: TopologyKey, out: Adjacency, back: Adjacency, dangling: bool) -> None:
        self.key = key
        self.out = replace(out, reverse=back)
        self.back = replace(back, reverse=out)
        self.dangling = dangling
        """Whether some edge names a node that does not exist, and was left out."""
        self._both: Adjacency | None = None

    def towards(self, direction: Direction) -> Adjacency:
        match direction:
            case Direction.OUT:
                return self.out
            case Direction.IN:
                return self.back
        if self._both is None:
            self._both = either_way(self.out, self.back)
        return self._both

    @property
    def nbytes(self) -> int:
        return self.out.nbytes + self.back.nbytes + (0 if self._both is None else self._both.nbytes)

    def arrays(self) -> dict[str, NDArray[Any]]:
        found = {
            "sources": self.out.sources.rows,
            "targets": self.out.ends.rows,
            "out.offsets": self.out.offsets,
            "out.targets": self.out.targets,
            "in.offsets": self.back.offsets,
            "in.targets": self.back.targets,
        }
        if self.out.ranks is not None and self.back.ranks is not None and self.out.edges is not None:
            found |= {"out.ranks": self.out.ranks, "in.ranks": self.back.ranks, "edges": self.out.edges}
        return found

    @classmethod
    def of_arrays(cls, key: TopologyKey, arrays: dict[str, NDArray[Any]], dangling: bool) -> Topology:
        sources = RowSpace(arrays["sources"])
        ends = sources if key.sources == key.targets else RowSpace(arrays["targets"])
        edges = arrays.get("edges")
        out = Adjacency(sources, ends, arrays["out.offsets"], arrays["out.targets"], arrays.get("out.ranks"), edges)
        back = Adjacency(ends, sources, arrays["in.offsets"], arrays["in.targets"], arrays.get("in.ranks"), edges)
        return cls(key, out, back, dangling)


class TopologyCache:
    """Topologies in memory, the least recently used leaving first once they outgrow the budget."""

    def __init__(self, budget: int | None = None) -> None:
        self._budget = budget if budget is not None else int(os.environ.get(CACHE_VARIABLE, _DEFAULT_CACHE_BYTES))
        self._held: OrderedDict[TopologyKey, Topology] = OrderedDict()
        self._stored: RecentlyUsed[TopologyKey, bool] = RecentlyUsed(_REMEMBERED_KEYS)
        self._making: dict[TopologyKey, threading.Lock] = {}
        self._spent: RecentlyUsed[TopologyKey, float] = RecentlyUsed(_REMEMBERED_KEYS)
        self._lock = threading.Lock()

    def held(self, key: TopologyKey) -> Topology | None:
        with self._lock:
            if (found := self._held.get(key)) is not None:
                self._held.move_to_end(key)
            return found

    def is_stored(self, root: GraphRoot, key: TopologyKey) -> bool:
        """Whether the store has it ready. Asked at most once per key."""
        if (known := self._stored.get(key)) is None:
            known = TopologyFiles(root.objects).describe(key.folder) is not None
            self._stored[key] = known
        return known

    def spend(self, key: TopologyKey, seconds: float) -> float:
        """Record what avoiding this topology cost, and return the sum so far: once it exceeds the cost of building,
        building would have been the better choice."""
        with self._lock:
            total = (self._spent.get(key) or 0.0) + seconds
            self._spent[key] = total
            return total

    def get(self, root: GraphRoot, key: TopologyKey) -> tuple[Topology, str]:
        """The topology, and where it came from."""
        if (found := self.held(key)) is not None:
            return found, "in memory"
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        try:
            with making:
                if (found := self.held(key)) is not None:
                    return found, "in memory"
                topology, origin = self._make(root, key)
                self._keep(topology)
        finally:
            with self._lock:
                self._making.pop(key, None)
        self._spent.pop(key)
        return topology, origin

    def held_count(self) -> int:
        with self._lock:
            return len(self._held)

    def clear(self) -> None:
        """Forget everything, as a restart does."""
        with self._lock:
            self._held.clear()
            self._stored.clear()
            self._spent.clear()

    def _make(self, root: GraphRoot, key: TopologyKey) -> tuple[Topology, str]:
        files = TopologyFiles(root.objects)
        if (loaded := _loaded(files, key)) is not None:
            return loaded, "from the store"
        for older in self._older(files, key):
            if (changed := _derived(root, key, older)) is not None:
                return changed, "from an older build and the rows changed since"
        parts = built(
            root.reader.open(key.edges),
            root.reader.open(key.sources),
            root.reader.open(key.targets),
            one_type=key.sources == key.targets,
            with_edges=key.shape is Shape.EDGES,
        )
        topology = Topology(key, parts.out, parts.back, parts.dangling)
        self._save(files, topology)
        return topology, "built"

    def store(self, root: GraphRoot, key: TopologyKey) -> None:
        """Make sure that the store has this topology ready for the next process."""
        files = TopologyFiles(root.objects)
        if files.describe(key.folder) is None:
            topology, _ = self.get(root, key)
            if files.describe(key.folder) is None:  # it was held, or derived from an older build
                self._save(files, topology)

    def _save(self, files: TopologyFiles, topology: Topology) -> None:
        key, arrays = topology.key, topology.arrays()
        files.save(
            key.folder,
            described(key.shape, key.edges, key.sources, key.targets, topology.dangling, arrays),
            arrays,
        )
        self._stored[key] = True

    def _keep(self, topology: Topology) -> None:
        with self._lock:
            self._held[topology.key] = topology
            alike = [key for key in self._held if _related(key, topology.key)]
            for key in alike[:-_BUILDS_PER_EDGE_TYPE]:
                del self._held[key]
            total = sum(t.nbytes for t in self._held.values())
            while total > self._budget and len(self._held) > 1:
                _, gone = self._held.popitem(last=False)
                total -= gone.nbytes

    def _older(self, files: TopologyFiles, key: TopologyKey) -> Iterator[Topology]:
        """Builds of the same edge table at other versions: those in memory first, the newest first."""
        if key.shape is Shape.EDGES:
            return  # the order of edge ids runs through all of it, a change has no local effect
        with self._lock:
            held = [t for t in reversed(self._held.values()) if _related(t.key, key)]
        yield from held[:_OLDER_BUILDS_TRIED]
        tried = 0
        for folder in files.folders(key.edges.table_id):
            description = files.describe(folder)
            if description is None or description.shape != key.shape or tried >= _OLDER_BUILDS_TRIED:
                continue
            tried += 1
            older = TopologyKey(key.graph_id, key.shape, description.edges, description.sources, description.targets)
            if _related(older, key) and (loaded := _loaded(files, older, description)) is not None:
                yield loaded


PROCESS_TOPOLOGIES: Final = TopologyCache()


def _related(older: TopologyKey, key: TopologyKey) -> bool:
    return (
        older.graph_id == key.graph_id
        and older.shape == key.shape
        and [s.path for s in (older.edges, older.sources, older.targets)]
        == [s.path for s in (key.edges, key.sources, key.targets)]
    )


def _loaded(files: TopologyFiles, key: TopologyKey, description: TopologyDescription | None = None) -> Topology | None:
    description = description or files.describe(key.folder)
    if description is None:
        return None
    arrays = files.arrays(key.folder, description)
    return None if arrays is None else Topology.of_arrays(key, arrays, description.dangling)


def _derived(root: GraphRoot, key: TopologyKey, older: Topology) -> Topology | None:
    reader = root.reader
    try:
        before = tuple(reader.open(s) for s in (older.key.edges, older.key.sources, older.key.targets))
        after = tuple(reader.open(s) for s in (key.edges, key.sources, key.targets))
        parts = derived((older.out, older.back), older.dangling, before, after)  # type: ignore[arg-type]
    except (HistoricalVersionReclaimedError, IntegrityError):
        return None  # the older version is gone or damaged; if the asked one is, building it says so
    return None if parts is None else Topology(key, parts.out, parts.back, parts.dangling)
