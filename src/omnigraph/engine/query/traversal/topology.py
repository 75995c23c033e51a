"""The topology of an edge type: its adjacency both ways, built once per table versions and shared by all readers.

It is looked for in shared memory, then in the store, then derived from an older one, and only then built. Keys are
immutable versions, so nothing goes stale and branches share topologies. Called by `neighbours`; results never depend
on which way it was found. Of a large one in a store behind a network, a few lists are read as ranges: every lookup in a
table would take several rounds.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.traversal.adjacency import (
    Adjacency,
    LayeredAdjacency,
    Neighbours,
    either_way,
    of_pairs,
    walk,
)
from omnigraph.engine.query.traversal.topology_build import Tables, TwoWays, build, derive, rows_to_read
from omnigraph.engine.rows.end_ids import PLAIN, IdForm
from omnigraph.errors import HistoricalVersionReclaimedError, IntegrityError
from omnigraph.language.catalog import EdgeType
from omnigraph.language.query import ir
from omnigraph.language.query.ir import Direction
from omnigraph.storage.cache import SHARED_MEMORY, Lookups, RecentlyUsed, bytes_from_environment
from omnigraph.storage.models import TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.memory.row_space import RowSpace
from omnigraph.storage.tables.rows import RowIds
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
FETCHED_BYTES: Final = 16 << 20
"""Up to so many bytes are read before it is certain that they are needed."""
_STORED: Final = "from the store"
_DERIVED: Final = "from an older build and the rows changed since"


TableStates: TypeAlias = tuple[TableState, TableState, TableState]
"""Those of an edge table, and of the node tables of its sources and targets."""


class Shape(StrEnum):
    """`NEIGHBOURS` lists each neighbour once, `EDGES` every stored edge."""

    NEIGHBOURS = "neighbours"
    EDGES = "edges"


@dataclass(frozen=True)
class TopologyKey:
    """The table versions of a topology, and how edges hold the ids of its nodes: of an edge type with an interface at
    an end, each pair of node types has a topology of its own. Equal keys always mean equal arrays."""

    graph_id: str
    shape: Shape
    edges: TableState
    sources: TableState
    targets: TableState
    source_form: IdForm = PLAIN
    target_form: IdForm = PLAIN

    @classmethod
    def of(
        cls, graph_id: str, shape: Shape, edge: EdgeType, nodes: tuple[str, str], states: TableStates
    ) -> TopologyKey:
        """Of the edges of a type between two node types; `states` are those of its table and of theirs."""
        source, target = (IdForm.of(end, node) for end, node in zip(edge.ends, nodes, strict=True))
        return cls(graph_id, shape, *states, source, target)

    @property
    def forms(self) -> tuple[IdForm, IdForm]:
        return self.source_form, self.target_form

    @property
    def tables(self) -> TableStates:
        return self.edges, self.sources, self.targets

    @cached_property
    def line(self) -> tuple[str, ...]:
        """The same for all versions of these tables, on any branch."""
        return self.graph_id, self.shape, *(state.path for state in self.tables), *self.source_form, *self.target_form

    @property
    def folder(self) -> str:
        named = "\n".join(f"{state.path}@{state.version}" for state in self.tables)
        if self.forms != (PLAIN, PLAIN):
            named = "\n".join((named, *self.source_form, *self.target_form))
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

    @property
    def ways(self) -> TwoWays:
        return TwoWays(self.out, self.back, self.dangling)

    def towards(self, direction: Direction) -> Neighbours:
        if direction is not Direction.BOTH:
            return self.out if direction is Direction.OUT else self.back
        if self._both is None:
            base = None if self.base is None else self.base.towards(Direction.BOTH)
            self._both = either_way(self.out, self.back, base)
        return self._both

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


def _merge_layers(ways: TwoWays) -> TwoWays:
    """The same in arrays of its own."""
    if isinstance(ways.out, Adjacency) and isinstance(ways.back, Adjacency):
        return ways
    sources = RowSpace(ways.out.sources.rows)
    ends = sources if ways.out.ends is ways.out.sources else RowSpace(ways.out.ends.rows)
    out, back = (way.merged if isinstance(way, LayeredAdjacency) else way for way in (ways.out, ways.back))
    return TwoWays(
        replace(out, sources=sources, ends=ends, reverse=None),
        replace(back, sources=ends, ends=sources, reverse=None),
        ways.dangling,
    )


@dataclass(slots=True)
class _Absent:
    """What is known of a topology that is not in memory."""

    description: TopologyDescription | None = None
    """Of the build that the store has."""
    is_described: bool = False
    asking: threading.Lock = field(default_factory=threading.Lock)


class TopologyCache:
    """Topologies in memory, the least recently used leaving first once they outgrow the budget."""

    def __init__(self, budget: int | None = None) -> None:
        self.limit = budget if budget is not None else bytes_from_environment(CACHE_VARIABLE, _DEFAULT_CACHE_BYTES)
        self.lookups = Lookups()
        self._held: OrderedDict[TopologyKey, Topology] = OrderedDict()
        self._absent: RecentlyUsed[TopologyKey, _Absent] = RecentlyUsed(_ABSENT_KNOWN)
        self._spent: RecentlyUsed[tuple[str, ...], float] = RecentlyUsed(_ABSENT_KNOWN)
        self._making: dict[TopologyKey, threading.Lock] = {}
        self._fetched: set[TopologyKey] = set()
        self._lock = threading.RLock()

    def peek(self, key: TopologyKey) -> Topology | None:
        with self._lock:
            if (topology := self._held.get(key)) is not None:
                self._held.move_to_end(key)
            return topology

    def find_stored(self, root: GraphRoot, key: TopologyKey) -> TopologyDescription | None:
        """What the store has ready. Asked at most once per key."""
        absent = self._absence(key)
        with absent.asking:
            if not absent.is_described:
                absent.description = TopologyFiles(root.objects).describe(key.folder)
                absent.is_described = True
        return absent.description

    def has_near(self, key: TopologyKey) -> bool:
        """Whether memory has it, or one of the same tables at other versions."""
        with self._lock:
            return any(held.line == key.line for held in self._held)

    def fetch(self, root: GraphRoot, key: TopologyKey) -> None:
        """Read a small stored topology before somebody needs it, so that a query over a network waits for it and for
        its nodes at the same time. One that can be derived from memory is left alone."""
        if self.has_near(key) or (stored := self.find_stored(root, key)) is None or stored.nbytes > FETCHED_BYTES:
            return
        with self._only_one(key):
            loaded = None if self.peek(key) is not None else _load(TopologyFiles(root.objects), key, stored)
            if loaded is not None:
                self._keep(loaded)
                with self._lock:
                    self._fetched.add(key)

    def spend(self, key: TopologyKey, seconds: float) -> float:
        """Record what avoiding a topology of these tables cost, and return the sum so far: once it exceeds the cost of
        building, building would have been the better choice. A commit in between changes nothing: the topology of the
        next state is derived from this one."""
        with self._lock:
            spent = self._spent[key.line] = (self._spent.get(key.line) or 0.0) + seconds
        return spent

    def _absence(self, key: TopologyKey) -> _Absent:
        with self._lock:
            if (absence := self._absent.get(key)) is None:
                absence = self._absent[key] = _Absent()
            return absence

    def get(self, root: GraphRoot, key: TopologyKey, check: Callable[[], None] = lambda: None) -> tuple[Topology, str]:
        """The topology, and where it came from. `check` is called while it is built and may raise."""
        if (topology := self.peek(key)) is not None:
            self.lookups.hits += 1
            return topology, self._origin_of_held(key)
        self.lookups.misses += 1
        with self._only_one(key):
            if (topology := self.peek(key)) is not None:
                return topology, self._origin_of_held(key)
            topology, origin = self._make(root, key, check)
            self._keep(topology)
        return topology, origin

    def _origin_of_held(self, key: TopologyKey) -> str:
        """Of one that was fetched ahead, the first reader learns that."""
        with self._lock:
            is_first = key in self._fetched
            self._fetched.discard(key)
        return _STORED if is_first else "in memory"

    @contextmanager
    def _only_one(self, key: TopologyKey) -> Iterator[None]:
        """One thread at a time makes or reads a topology; the others wait for it."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        try:
            with making:
                yield
        finally:
            with self._lock:
                self._making.pop(key, None)

    def held_count(self) -> int:
        with self._lock:
            return len(self._held)

    def held_bytes(self) -> int:
        with self._lock:
            owners = {id(t): t for held in self._held.values() for t in (held, held.base) if t is not None}
            return sum(owner.nbytes for owner in owners.values())

    def clear(self) -> None:
        """Forget everything, as a restart does."""
        with self._lock:
            self._held.clear()
            self._absent.clear()
            self._spent.clear()
            self._fetched.clear()

    def _make(self, root: GraphRoot, key: TopologyKey, check: Callable[[], None]) -> tuple[Topology, str]:
        files = TopologyFiles(root.objects)
        held = self.nearest(root, key)
        if held is not None and held[1] <= _FEW_ROWS and (changed := _derive(root, key, held[0])) is not None:
            return changed, _DERIVED
        if (loaded := _load(files, key, self._absence(key).description)) is not None:
            return loaded, _STORED
        for older in (*([] if held is None else [held[0]]), *self._stored_older(files, key)):
            if (changed := _derive(root, key, older)) is not None:
                if files.damage(key.folder) is not None:
                    self._save(files, changed)
                return changed, _DERIVED
        one_type, with_edges = key.sources == key.targets, key.shape is Shape.EDGES
        tables = _open_tables(root, key)
        ways = build(*tables, forms=key.forms, one_type=one_type, with_edges=with_edges, check=check)
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
        files.save(key.folder, key.shape, *key.tables, topology.dangling, topology.arrays())
        self._absence(key).is_described = False

    def nearest(self, root: GraphRoot, key: TopologyKey) -> tuple[Topology, int] | None:
        """The topology in memory from which this one can be derived by reading the fewest rows, and how many those are.
        None where there is none near enough."""
        if key.shape is Shape.EDGES:
            return None  # the order of edge ids runs through all of it, a change has no local effect
        with self._lock:
            related = [t for t in reversed(self._held.values()) if t.key.line == key.line]
        nearest: tuple[Topology, int] | None = None
        for older in related:
            try:
                before = _open_tables(root, older.key)
            except (HistoricalVersionReclaimedError, IntegrityError):
                continue
            rows = rows_to_read(before, _open_tables(root, key))
            if rows is not None and (nearest is None or rows < nearest[1]):
                nearest = older, rows
                if rows <= _FEW_ROWS:
                    break
        return nearest

    def _keep(self, topology: Topology) -> None:
        with self._lock:
            self._held[topology.key] = topology
            self._absent.pop(topology.key)
            self._spent.pop(topology.key.line)
            related = [key for key in self._held if key.line == topology.key.line]
            for key in related[:-_HELD_PER_TABLE]:
                del self._held[key]
                self._fetched.discard(key)
            while len(self._held) > 1 and self.held_bytes() > self.limit:
                self._fetched.discard(self._held.popitem(last=False)[0])

    def _stored_older(self, files: TopologyFiles, key: TopologyKey) -> Iterator[Topology]:
        """Stored builds of the same edge table at other versions, the newest first."""
        if key.shape is Shape.EDGES:
            return
        described = (files.describe(folder) for folder in files.folders(key.edges.table_id))
        alike = (description for description in described if description is not None and description.shape == key.shape)
        for description in islice(alike, _OLDER_BUILDS_TRIED):
            tables = description.edges, description.sources, description.targets
            older = TopologyKey(key.graph_id, key.shape, *tables, *key.forms)
            if older.line == key.line and (loaded := _load(files, older, description)) is not None:
                yield loaded


PROCESS_TOPOLOGIES: Final = SHARED_MEMORY.add("topologies", TopologyCache())


def _load(files: TopologyFiles, key: TopologyKey, description: TopologyDescription | None = None) -> Topology | None:
    description = description or files.describe(key.folder)
    if description is None or (arrays := files.arrays(key.folder, description)) is None:
        return None
    sources = RowSpace(arrays["sources"])
    ends = sources if key.sources == key.targets else RowSpace(arrays["targets"])
    edges = arrays.get("edges")
    out = Adjacency(sources, ends, arrays["out.offsets"], arrays["out.targets"], arrays.get("out.ranks"), edges)
    back = Adjacency(ends, sources, arrays["in.offsets"], arrays["in.targets"], arrays.get("in.ranks"), edges)
    return Topology(key, TwoWays(out, back, description.dangling))


def _derive(root: GraphRoot, key: TopologyKey, older: Topology) -> Topology | None:
    """A layer over the older one; a layer that has grown large becomes a topology of its own."""
    try:
        ways = derive(older.ways, _open_tables(root, older.key), _open_tables(root, key), key.forms)
    except (HistoricalVersionReclaimedError, IntegrityError):
        return None  # the older version is gone or damaged; if the asked one is, building it says so
    if ways is None:
        return None
    if any(isinstance(way, LayeredAdjacency) and way.is_due_for_merge for way in (ways.out, ways.back)):
        return Topology(key, _merge_layers(ways))
    return Topology(key, ways, older.base or older)


def _open_tables(root: GraphRoot, key: TopologyKey) -> Tables:
    edges, sources, targets = map(root.reader.open_to_read, key.tables)
    return edges, sources, targets


# A few lists of a large one

MOST_NODES: Final = 512
"""Lists of so many nodes are read by ranges."""
MOST_HOPS: Final = 4

_WAYS: Final = {Direction.OUT: ("out",), Direction.IN: ("in",), Direction.BOTH: ("out", "in")}


class StoredRanges(NamedTuple):
    """A stored topology whose nodes are numbered by their row ids, from a first one on."""

    files: TopologyFiles
    folder: str
    description: TopologyDescription
    first_source: int
    first_target: int

    @classmethod
    def of(cls, root: GraphRoot, key: TopologyKey) -> Self | None:
        """Of a topology that is too large to be read ahead; None where the store has none, or memory a near one."""
        if root.location.is_local or key.shape is not Shape.NEIGHBOURS or PROCESS_TOPOLOGIES.has_near(key):
            return None
        description = PROCESS_TOPOLOGIES.find_stored(root, key)
        if description is None or description.nbytes <= FETCHED_BYTES:
            return None
        files = TopologyFiles(root.objects)
        first = {stored.name: stored.first for stored in description.arrays}
        first_source, first_target = first.get("sources"), first.get("targets")
        if first_source is None or first_target is None or files.are_at_hand(key.folder, description):
            return None
        return cls(files, key.folder, description, first_source, first_target)

    def explore(self, plan: ir.Expand, nodes: RowIds, check: Callable[[], None]) -> Adjacency | None:
        """Everything within reach of the nodes; None when the files do not fit their description. `check` is called
        before each step and may raise."""

        def step(frontier: RowIds) -> tuple[RowIds, RowIds]:
            check()
            parts = [self._read(way, frontier) for way in _WAYS[plan.direction]]
            sources, ends = zip(*parts, strict=True)
            return np.concatenate(sources), np.concatenate(ends)

        try:
            return of_pairs(*walk(nodes, plan.max_hops, step, one_type=plan.edge.is_symmetric))
        except IntegrityError:
            return None

    def _read(self, way: str, nodes: RowIds) -> tuple[RowIds, RowIds]:
        near, far = self.first_source, self.first_target
        near, far = (far, near) if way == "in" else (near, far)
        counts, targets = self.files.neighbours(self.folder, self.description, way, nodes - near)
        return np.repeat(nodes, counts), targets.astype(np.int64) + far
