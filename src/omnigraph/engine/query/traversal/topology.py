"""The topology of an edge type: its adjacency both ways, built once per table versions and shared by all readers.

It is looked for in shared memory, then in the store, then derived from an older one, and only then built. Keys are
immutable versions, so nothing goes stale and branches share topologies. Called by `neighbours`; results never depend
on which way it was found.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from numpy.typing import NDArray

from omnigraph.engine.query.bindings import RowSpace
from omnigraph.engine.query.traversal.adjacency import (
    Adjacency,
    LayeredAdjacency,
    Neighbours,
    either_way,
    either_way_layered,
)
from omnigraph.engine.query.traversal.topology_build import Tables, TwoWays, build, derive, rows_to_read
from omnigraph.engine.shared_memory import SHARED_MEMORY, Lookups
from omnigraph.errors import HistoricalVersionReclaimedError, IntegrityError
from omnigraph.language.query.ir import Direction
from omnigraph.storage.models import TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.topology import TopologyDescription, TopologyFiles, topology_folder

CACHE_VARIABLE: Final = "OMNIGRAPH_TOPOLOGY_CACHE_BYTES"
_DEFAULT_CACHE_BYTES: Final = 1 << 30
_OLDER_BUILDS_TRIED: Final = 2
# Topologies of one edge table in memory: the branches that are read now, and what the next commits derive from.
_HELD_PER_TABLE: Final = 8
# Deriving from memory by at most so many rows beats asking the store for a finished build.
_FEW_ROWS: Final = 1_000
# States whose topology was asked for and not made: each commit is one more.
_ABSENT_KNOWN: Final = 256
_DERIVED: Final = "from an older build and the rows changed since"


class Shape(StrEnum):
    """`NEIGHBOURS` lists each neighbour once, `EDGES` every stored edge."""

    NEIGHBOURS = "neighbours"
    EDGES = "edges"


@dataclass(frozen=True, slots=True)
class TopologyKey:
    """The table versions of a topology. Equal keys always mean equal arrays."""

    graph_id: str
    shape: Shape
    edges: TableState
    sources: TableState
    targets: TableState

    @property
    def folder(self) -> str:
        named = "\n".join(f"{s.path}@{s.version}" for s in (self.edges, self.sources, self.targets))
        return topology_folder(self.edges.table_id, f"{self.shape}-{hashlib.sha256(named.encode()).hexdigest()[:32]}")


def shape_of(folder: str) -> Shape:
    """The shape of a stored build, by the name of its folder."""
    return Shape(folder.rsplit("/", 1)[-1].partition("-")[0])


class Topology:
    """Both directions of one edge type at one state, perhaps as a layer over the arrays of an older one."""

    def __init__(self, key: TopologyKey, ways: TwoWays, base: Topology | None = None) -> None:
        self.key = key
        self.out: Neighbours = replace(ways.out, reverse=ways.back)
        self.back: Neighbours = replace(ways.back, reverse=ways.out)
        self.dangling = ways.dangling
        self.base = base
        """Whose arrays it shares."""
        self._both: Neighbours | None = None

    @classmethod
    def over(cls, older: Topology, key: TopologyKey, ways: TwoWays) -> Topology:
        """A change of an older topology; one that has grown large becomes a topology of its own."""
        layers = [way for way in (ways.out, ways.back) if isinstance(way, LayeredAdjacency)]
        if not any(layer.is_due_for_merge for layer in layers):
            return cls(key, ways, older.base or older)
        return cls(key, _merge_layers(ways))

    @property
    def ways(self) -> TwoWays:
        return TwoWays(self.out, self.back, self.dangling)

    def towards(self, direction: Direction) -> Neighbours:
        match direction:
            case Direction.OUT:
                return self.out
            case Direction.IN:
                return self.back
        if self._both is None:
            self._both = self._either_way()
        return self._both

    def _either_way(self) -> Neighbours:
        out, back = self.out, self.back
        if isinstance(out, Adjacency) and isinstance(back, Adjacency):
            return either_way(out, back)
        assert self.base is not None
        assert isinstance(out, LayeredAdjacency)
        assert isinstance(back, LayeredAdjacency)
        base = self.base.towards(Direction.BOTH)
        assert isinstance(base, Adjacency)
        return either_way_layered(base, out, back)

    @property
    def nbytes(self) -> int:
        """Without what it shares with its base."""
        return self.out.nbytes + self.back.nbytes + (0 if self._both is None else self._both.nbytes)

    def arrays(self) -> dict[str, NDArray[Any]]:
        ways = _merge_layers(self.ways)
        out, back = ways.out, ways.back
        assert isinstance(out, Adjacency)
        assert isinstance(back, Adjacency)
        arrays = {
            "sources": out.sources.rows,
            "targets": out.ends.rows,
            "out.offsets": out.offsets,
            "out.targets": out.targets,
            "in.offsets": back.offsets,
            "in.targets": back.targets,
        }
        if out.ranks is not None and back.ranks is not None and out.edges is not None:
            arrays |= {"out.ranks": out.ranks, "in.ranks": back.ranks, "edges": out.edges}
        return arrays

    @classmethod
    def of_arrays(cls, key: TopologyKey, arrays: dict[str, NDArray[Any]], dangling: bool) -> Topology:
        sources = RowSpace(arrays["sources"])
        ends = sources if key.sources == key.targets else RowSpace(arrays["targets"])
        edges = arrays.get("edges")
        out = Adjacency(sources, ends, arrays["out.offsets"], arrays["out.targets"], arrays.get("out.ranks"), edges)
        back = Adjacency(ends, sources, arrays["in.offsets"], arrays["in.targets"], arrays.get("in.ranks"), edges)
        return cls(key, TwoWays(out, back, dangling))


def _merge_layers(ways: TwoWays) -> TwoWays:
    """The same in arrays of its own."""
    out, back = ways.out, ways.back
    if isinstance(out, Adjacency) and isinstance(back, Adjacency):
        return ways
    sources = RowSpace(out.sources.rows)
    ends = sources if out.ends is out.sources else RowSpace(out.ends.rows)
    return TwoWays(_plain(out, sources, ends), _plain(back, ends, sources), ways.dangling)


def _plain(way: Neighbours, sources: RowSpace, ends: RowSpace) -> Adjacency:
    adjacency = way.merged if isinstance(way, LayeredAdjacency) else way
    return replace(adjacency, sources=sources, ends=ends, reverse=None)


class Nearest(NamedTuple):
    """A topology in memory, and how many rows have to be read to derive another one from it."""

    older: Topology
    rows: int


@dataclass(slots=True)
class _Absent:
    """What is known of a topology that is not in memory."""

    stored: bool | None = None
    spent: float = 0.0


class TopologyCache:
    """Topologies in memory, the least recently used leaving first once they outgrow the budget."""

    def __init__(self, budget: int | None = None) -> None:
        self.limit = budget if budget is not None else int(os.environ.get(CACHE_VARIABLE, _DEFAULT_CACHE_BYTES))
        self.lookups = Lookups()
        self._held: OrderedDict[TopologyKey, Topology] = OrderedDict()
        self._absent: OrderedDict[TopologyKey, _Absent] = OrderedDict()
        self._making: dict[TopologyKey, threading.Lock] = {}
        self._lock = threading.Lock()

    def peek(self, key: TopologyKey) -> Topology | None:
        with self._lock:
            if (topology := self._held.get(key)) is not None:
                self._held.move_to_end(key)
            return topology

    def is_stored(self, root: GraphRoot, key: TopologyKey) -> bool:
        """Whether the store has it ready. Asked at most once per key."""
        absent = self._absence(key)
        if absent.stored is None:
            absent.stored = TopologyFiles(root.objects).describe(key.folder) is not None
        return absent.stored

    def spend(self, key: TopologyKey, seconds: float) -> float:
        """Record what avoiding this topology cost, and return the sum so far: once it exceeds the cost of building,
        building would have been the better choice."""
        absent = self._absence(key)
        absent.spent += seconds
        return absent.spent

    def _absence(self, key: TopologyKey) -> _Absent:
        with self._lock:
            absence = self._absent.setdefault(key, _Absent())
            self._absent.move_to_end(key)
            while len(self._absent) > _ABSENT_KNOWN:
                self._absent.popitem(last=False)
            return absence

    def get(self, root: GraphRoot, key: TopologyKey, check: Callable[[], None] = lambda: None) -> tuple[Topology, str]:
        """The topology, and where it came from. `check` is called while it is built and may raise."""
        if (found := self.peek(key)) is not None:
            self.lookups.hits += 1
            return found, "in memory"
        self.lookups.misses += 1
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        try:
            with making:
                if (found := self.peek(key)) is not None:
                    return found, "in memory"
                topology, origin = self._make(root, key, check)
                self._keep(topology)
        finally:
            with self._lock:
                self._making.pop(key, None)
        return topology, origin

    def held_count(self) -> int:
        with self._lock:
            return len(self._held)

    def held_bytes(self) -> int:
        with self._lock:
            return self._held_bytes()

    def clear(self) -> None:
        """Forget everything, as a restart does."""
        with self._lock:
            self._held.clear()
            self._absent.clear()

    def _make(self, root: GraphRoot, key: TopologyKey, check: Callable[[], None]) -> tuple[Topology, str]:
        files = TopologyFiles(root.objects)
        held = self.nearest(root, key)
        if held is not None and held.rows <= _FEW_ROWS and (changed := _derive(root, key, held.older)) is not None:
            return changed, _DERIVED
        if (loaded := _load(files, key)) is not None:
            return loaded, "from the store"
        for older in (*([] if held is None else [held.older]), *self._stored_older(files, key)):
            if (changed := _derive(root, key, older)) is not None:
                if files.damage(key.folder) is not None:
                    self._save(files, changed)
                return changed, _DERIVED
        ways = build(
            *_open_tables(root, key),
            one_type=key.sources == key.targets,
            with_edges=key.shape is Shape.EDGES,
            check=check,
        )
        topology = Topology(key, ways)
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
        key = topology.key
        files.save(key.folder, key.shape, key.edges, key.sources, key.targets, topology.dangling, topology.arrays())
        self._absence(key).stored = True

    def nearest(self, root: GraphRoot, key: TopologyKey) -> Nearest | None:
        """The topology in memory from which this one is the fewest rows away. None where there is none near enough."""
        if key.shape is Shape.EDGES:
            return None  # the order of edge ids runs through all of it, a change has no local effect
        with self._lock:
            related = [t for t in reversed(self._held.values()) if _is_related(t.key, key)]
        nearest: Nearest | None = None
        for older in related:
            rows = _rows_between(root, older.key, key)
            if rows is not None and (nearest is None or rows < nearest.rows):
                nearest = Nearest(older, rows)
            if nearest is not None and nearest.rows <= _FEW_ROWS:
                break
        return nearest

    def _keep(self, topology: Topology) -> None:
        with self._lock:
            self._held[topology.key] = topology
            self._absent.pop(topology.key, None)
            related = [key for key in self._held if _is_related(key, topology.key)]
            for key in related[:-_HELD_PER_TABLE]:
                del self._held[key]
            while len(self._held) > 1 and self._held_bytes() > self.limit:
                self._held.popitem(last=False)

    def _held_bytes(self) -> int:
        owners = {id(t): t for held in self._held.values() for t in (held, held.base) if t is not None}
        return sum(owner.nbytes for owner in owners.values())

    def _stored_older(self, files: TopologyFiles, key: TopologyKey) -> Iterator[Topology]:
        """Stored builds of the same edge table at other versions, the newest first."""
        if key.shape is Shape.EDGES:
            return
        tried = 0
        for folder in files.folders(key.edges.table_id):
            description = files.describe(folder)
            if description is None or description.shape != key.shape or tried >= _OLDER_BUILDS_TRIED:
                continue
            tried += 1
            older = TopologyKey(key.graph_id, key.shape, description.edges, description.sources, description.targets)
            if _is_related(older, key) and (loaded := _load(files, older, description)) is not None:
                yield loaded


PROCESS_TOPOLOGIES: Final = SHARED_MEMORY.add("topologies", TopologyCache())


def _is_related(older: TopologyKey, key: TopologyKey) -> bool:
    return (
        older.graph_id == key.graph_id
        and older.shape == key.shape
        and [s.path for s in (older.edges, older.sources, older.targets)]
        == [s.path for s in (key.edges, key.sources, key.targets)]
    )


def _load(files: TopologyFiles, key: TopologyKey, description: TopologyDescription | None = None) -> Topology | None:
    description = description or files.describe(key.folder)
    if description is None:
        return None
    arrays = files.arrays(key.folder, description)
    return None if arrays is None else Topology.of_arrays(key, arrays, description.dangling)


def _rows_between(root: GraphRoot, older: TopologyKey, key: TopologyKey) -> int | None:
    if (before := _opened_older(root, older)) is None:
        return None
    return rows_to_read(before, _open_tables(root, key))


def _derive(root: GraphRoot, key: TopologyKey, older: Topology) -> Topology | None:
    if (before := _opened_older(root, older.key)) is None:
        return None
    try:
        ways = derive(older.ways, before, _open_tables(root, key))
    except (HistoricalVersionReclaimedError, IntegrityError):
        return None  # the older version is gone or damaged; if the asked one is, building it says so
    return None if ways is None else Topology.over(older, key, ways)


def _open_tables(root: GraphRoot, key: TopologyKey) -> Tables:
    return root.reader.open(key.edges), root.reader.open(key.sources), root.reader.open(key.targets)


def _opened_older(root: GraphRoot, key: TopologyKey) -> Tables | None:
    try:
        return _open_tables(root, key)
    except (HistoricalVersionReclaimedError, IntegrityError):
        return None
